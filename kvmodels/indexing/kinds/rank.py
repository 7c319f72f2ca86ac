"""Entries and counters of an index of ranks: a key of group, value and primary key, and a number for each bucket.

Rules of this module: pure. A record has one entry for each value of its group, none without a value. It adds 1 to a
counter of each level; a move within a bucket changes no counter.
"""

from __future__ import annotations

from typing import Final

from kvmodels.catalog.keyspace import IndexLayout, bucket_keys
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import EMPTY_VALUE, StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.rank import Buckets


class RankMaintenance(KindMaintenance):
    """The maintenance of an index of ranks."""

    has_counters = True

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self._buckets = Buckets(layout.definition)
        self._column = column = layout.definition.columns[-1]
        self._read = reader_of(column)
        self._from_stored, self._pack = column.codec.from_stored, column.codec.pack_stored

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entry of a record and its additions to counters; a record with a deadline has nothing."""
        del codec
        layout, document = self.layout, record.document
        if record.expire_at is not None or not layout.covers(document) or not layout.holds(document):
            return NOTHING
        stored = self._read(document)
        if stored is None:
            return NOTHING
        try:
            size = len(self._pack(stored))
        except InvalidValueError as error:
            error.field = error.field or self._column.field
            raise
        buckets, start = self._buckets, len(layout.prefix)
        bucket = buckets.bucket(stored if self._from_stored is None else self._from_stored(stored))
        heads, _ = layout.heads(document)
        groups = [layout.counters + head[start : len(head) - size] for head in heads]
        amounts = {key: 1 for group in groups for key in bucket_keys(group, bucket, buckets.levels)}
        return Contents({head + record.pk: EMPTY_VALUE for head in heads}, amounts, fan_out=len(heads))


MAINTENANCE: Final = RankMaintenance
