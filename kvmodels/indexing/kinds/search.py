"""Entries and statistics of an index of words, both of the terms that the document stores.

A key of group, term and primary key holds the norm of the length of the record, then one frequency for each field. The
statistics of a group are two counters, whose sums commute: the number of records, and the sum of their lengths, each as
its norm gives it. An edit that keeps the norm writes no counter, and of the entries only those of changed terms.

Rules of this module: pure. Counters have a part for a shard, which is 0; readers add up all shards.
"""

from __future__ import annotations

from typing import Final

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_part
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.search import COUNT, LENGTH, options_of
from kvmodels.schema.words.stored_terms import length_of


class SearchMaintenance(KindMaintenance):
    """The maintenance of an index of words."""

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self._options = options_of(layout.definition)
        self._terms = reader_of(self._options.terms)
        self._ranks = self.has_counters = self._options.ranks

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entries of a record, one for each term; raises InvalidValueError for damaged terms."""
        del codec
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        if self._ranks and record.expire_at is not None:
            return NOTHING
        terms = self._options.terms_in(self._terms(document))
        if terms is None or not terms.frequencies:
            return NOTHING
        heads, _ = layout.heads(document)
        norm, pk = bytes((terms.norm,)), record.pk
        tails = [
            (encode_part(term) + pk, (norm + counts, BYTES_ENCODING)) for term, counts in terms.frequencies.items()
        ]
        entries = {head + tail: value for head in heads for tail, value in tails}
        amounts: dict[bytes, int] = {}
        for head in heads if self._ranks else ():
            group = layout.counters + head[len(layout.prefix) :]
            amounts[group + COUNT] = 1
            amounts[group + LENGTH] = length_of(terms.norm)
        return Contents(entries, amounts, fan_out=len(tails))


MAINTENANCE: Final = SearchMaintenance
