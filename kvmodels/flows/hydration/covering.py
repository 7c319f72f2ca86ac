"""The part of a document that an index entry holds: lossless columns, included fields, the primary key.

Rules of this module: pure. A column with several values is left out, because an entry holds one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.indexing.entries import included_values
from kvmodels.schema.definition.definition import Column, Document


class Cover:
    """Reads the entries of one index as documents.

    Args:
        codec: of the values of the store.
        live: the collection.
        index: whose entries are read.
    """

    __slots__ = ("_codec", "_columns", "_includes", "_index", "_live", "_primary_key")

    def __init__(self, codec: ValueCodec, live: LiveCollection, index: LiveIndex) -> None:
        self._codec = codec
        self._live = live
        self._index = index
        self._includes = bool(index.definition.include)
        self._columns = [
            (position, column.path or (column.field,), _stored(column))
            for position, column in enumerate(index.definition.columns, 1)
            if column.codec.lossless and not column.many
        ]
        self._primary_key = [(column.field, _stored(column)) for column in live.schema.primary_key]

    def document(self, row: Row, pk: bytes) -> Document:
        """What an entry holds of the document of its record.

        Args:
            row: the entry.
            pk: the packed primary key that it leads to.

        Raises:
            DecodeError, ValueError, TypeError: the row is not an entry of this index.
        """
        document: Document = {}
        parts = decode_key(row.key)
        for position, path, stored in self._columns:
            _put(document, path, stored(parts[position]))
        for (field, stored), part in zip(self._primary_key, decode_key(pk), strict=True):
            document[field] = stored(part)
        if self._includes:
            slot = len(parts) == 1 + len(self._index.definition.columns)
            document.update(included_values(self._codec, slot, row))
        return document


def _stored(column: Column) -> Callable[[Any], Any]:
    """From a part of a key to the value that a document stores."""
    unpack, to_stored = column.codec.unpack, column.codec.to_stored
    return unpack if to_stored is None else lambda part: to_stored(unpack(part))


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    at: dict[str, Any] = document
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
