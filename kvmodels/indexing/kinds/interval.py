"""Entries of an index of intervals: a key of group, class, start and primary key, which holds the end.

Rules of this module: pure. A record has one entry for each value of its group, none without a start.
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
from kvmodels.schema.kinds.interval import options_of
from kvmodels.schema.kinds.interval_spans import class_of


class IntervalMaintenance(KindMaintenance):
    """The maintenance of an index of intervals."""

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self._options = options = options_of(layout.definition)
        self._start = reader_of(options.start)
        self._end = reader_of(options.end)

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entry of a record; raises InvalidValueError for an interval that does not end after its start."""
        del codec
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        start = self._start(document)
        if start is None:
            return NOTHING
        end = self._end(document)
        options = self._options
        tail = encode_part(class_of(*options.numbers(start, end))) + options.start.codec.pack_stored(start) + record.pk
        value = (options.end.codec.pack_stored(end), BYTES_ENCODING)
        heads, _ = layout.heads(document)
        return Contents({head + tail: value for head in heads}, fan_out=len(heads))


MAINTENANCE: Final = IntervalMaintenance
