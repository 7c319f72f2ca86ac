"""A unique index of which two records of a transaction claim one value, which is allowed until the commit.

The slot of a value has room for one record. So from the first read that meets two claims, the transaction reads the
index like one that is not unique: every slot, of the snapshot or written by the transaction, becomes an entry that ends
with the primary key of its record. Plans, pages, counts and lookups then are those of a plain index. Writes follow the
unique index as before, and the commit decides whether the claims may stand.

Rules of this module: pure. A position after a slot, from a read before the change, is a position after all entries of
its value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kvmodels.catalog.collection import CompiledCollection, LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import index_layout
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import split_key
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.errors import DecodeError, InvalidKeyError
from kvmodels.indexing.entries import EMPTY_VALUE, included_values, slot_owner
from kvmodels.schema.definition.definition import Column


class IndexPlace(NamedTuple):
    """The collection and the name of a unique index."""

    collection: str
    name: str


class SharedIndex:
    """A unique index that is read as one that is not."""

    def __init__(self, codec: ValueCodec, live: LiveCollection, name: str) -> None:
        self._codec = codec
        self._live = live
        self._unique: LiveIndex = live.readable[name]
        definition = replace(self._unique.definition, unique=False)
        layout = index_layout(live.layout.collection, definition, self._unique.stored.generation)
        self._plain = replace(self._unique, definition=definition, layout=layout)
        self.prefix = layout.prefix

    def view_of(self, live: LiveCollection) -> LiveCollection:
        """Return a collection of which queries use the index that is not unique; writes maintain the unique one."""
        readable = {**live.readable, self._unique.definition.name: self._plain}
        return replace(live, readable=readable, compiled=CompiledCollection())

    def entry(self, row: Row) -> Row:
        """Return the entry for a slot; an entry, and a row that is neither, unchanged."""
        try:
            if self._plain.layout.pk_in(row.key):
                return row
            owner = slot_owner(self._codec, self._live, self._unique, row)
            definition = self._unique.definition
            if definition.copies_record:
                return row._replace(key=row.key + owner)
            value = EMPTY_VALUE
            if definition.include:
                value = self._codec.encode_document(included_values(self._codec, True, row))
        except (DecodeError, InvalidKeyError):
            return row
        return row._replace(key=row.key + owner, value=value[0], encoding=value[1])

    def slots(self, wanted: ReadRange) -> tuple[ReadRange, bytes]:
        """Return the range of the slots of a range of entries, and the first key that counts."""
        start, after = self._slot(wanted.start)
        if after == b"\0":  # the successor of a slot
            start = after_prefix(start)
            return wanted._replace(start=start, end=max(start, wanted.end or start)), start
        limit = None if wanted.limit is None else wanted.limit + 1
        return wanted._replace(start=start, limit=limit), wanted.start

    def _slot(self, key: bytes) -> tuple[bytes, bytes]:
        """Return a key up to its columns, and the rest; all of it where a value is None, because it is an entry."""
        try:
            primary_key = self._plain.layout.pk_in(key)
        except InvalidKeyError:
            return key, b""
        slot = key[: len(key) - len(primary_key)]
        definition = self._unique.definition
        if definition.repeats_none:
            parts = split_key(slot)[-len(definition.columns) :]
            if any(map(_is_none, definition.columns, parts)):
                return key, b""
        return slot, primary_key


def _is_none(column: Column, part: bytes) -> bool:
    return column.nullable and part == column.codec.pack(None)
