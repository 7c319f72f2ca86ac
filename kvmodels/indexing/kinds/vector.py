"""Entries of an index of vectors: a key of group and primary key, which holds the vector in the form of the index.

Rules of this module: pure, without numpy. A record has one entry for each value of its group, none without a vector.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.vector import options_of, require_comparable
from kvmodels.schema.vectors.stores import STORES
from kvmodels.schema.vectors.vector import components, is_vector


class VectorMaintenance(KindMaintenance):
    """The maintenance of an index of vectors."""

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        self._options = options = options_of(layout.definition)
        self._read = reader_of(options.vector)
        self._store = STORES[options.store]

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entry of a record; raises InvalidValueError for a vector that the index does not take."""
        del codec
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        data: Any = self._read(document)
        if data is None:
            return NOTHING
        try:
            value = (self._stored(data), BYTES_ENCODING)
        except InvalidValueError as error:
            error.field = self._options.field
            raise
        heads, _ = layout.heads(document)
        return Contents({head + record.pk: value for head in heads}, fan_out=len(heads))

    def _stored(self, data: Any) -> bytes:
        if not is_vector(data):
            raise InvalidValueError(
                "a stored value is not a vector",
                type=type(data).__name__,
                hint="A vector has four bytes for each number, the lowest first; none is NaN or infinite.",
            )
        numbers = components(data)
        require_comparable(self._options, len(numbers), is_zero=not any(numbers))
        return self._store(data)


MAINTENANCE: Final = VectorMaintenance
