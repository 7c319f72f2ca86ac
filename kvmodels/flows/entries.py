"""From the rows of an index, or of the records themselves, to objects.

A pointer entry is kept only if the record reproduces this very entry: a dangling or a foreign row is passed over, and
``db.check()`` reports it. A copy (``store="record"``) carries the versionstamp of its record and is exact in its
snapshot.

Rules of this module: pure. Nothing is passed over in silence but an entry without its record; a record that cannot be
read is a DecodeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.records import document_of, object_of, object_of_document
from kvmodels.keys import decode_key
from kvmodels.maintenance.entries import slot_owner
from kvmodels.operations import ReadRange, Row, point
from kvmodels.query.plans import QueryPlan
from kvmodels.schema.definition import Document
from kvmodels.schema.live import LiveCollection, LiveIndex

__all__ = ["EntryReader", "Follower"]


class EntryReader:
    """Turns the rows that one plan reads into objects.

    Args:
        context: shared by the flows of the database.
        live: the collection under the header that guards the read.
        plan: what is read.
    """

    __slots__ = ("_columns", "_context", "_index", "_live", "_matches")

    def __init__(self, context: Context, live: LiveCollection, plan: QueryPlan) -> None:
        self._context = context
        self._live = live
        self._index: LiveIndex | None = live.readable[plan.index] if plan.index is not None else None
        self._matches = plan.matches
        self._columns = b""

    def record_key(self, row: Row) -> bytes | None:
        """The key of the record that a pointer entry leads to; None for a row that is no entry of the index."""
        index = self._index
        assert index is not None  # only pointer entries are followed
        try:
            pk = self._pk_in(index, row.key) or slot_owner(self._context.codec, self._live, index, row)
        except (InvalidKeyError, DecodeError):
            return None
        return self._live.layout.key(pk)

    def _pk_in(self, index: LiveIndex, key: bytes) -> bytes:
        """The packed primary key at the end of an entry key."""
        # Entries of one value lie together: a key that begins with the columns of the one before has the same
        # columns, unless ff follows, which goes on with a text. Taking each key apart costs ten times as much.
        columns = self._columns
        if columns and key.startswith(columns) and key[len(columns) : len(columns) + 1] != b"\xff":
            return key[len(columns) :]
        pk = index.layout.pk_in(key)
        self._columns = key[: len(key) - len(pk)]
        return pk

    def document_behind(self, entry: Row, record: Row) -> Document | None:
        """The document of the record that an entry led to; None if the record does not have this very entry."""
        index = self._index
        assert index is not None  # as above
        document = document_of(self._context, record)
        try:
            keys = index.layout.keys(document, self._live.layout.pk_of(record.key))
        except (InvalidValueError, KeyError):  # a column that the index cannot hold, or none: the entry is not its
            return None
        return document if any(key.key == entry.key for key in keys) else None

    def from_document(self, record: Row, document: Document) -> Any | None:
        """The object of a record; None if it does not match. The document belongs to the object afterwards."""
        return self._matching(object_of_document(self._live, record, document, self._live.layout.pk_of(record.key)))

    def from_copy(self, row: Row) -> Any | None:
        """The object in a record row or in an entry that holds the record; None if it does not match.

        Raises:
            DecodeError: the row is no record of this model.
        """
        if self._index is None:
            try:
                return self._matching(object_of(self._context, self._live, row))
            except InvalidKeyError as error:
                raise DecodeError(
                    "a key of this collection is not the key of a record",
                    key=decode_key(row.key),
                    model=self._live.schema.name,
                    hint='Run db.check(repair="all"), or remove the key with kv.unsafe().',
                ) from error
        document = document_of(self._context, row)
        pk = self._pk_in(self._index, row.key) or self._live.layout.pack_document(document)
        return self._matching(object_of_document(self._live, row, document, pk))

    def _matching(self, instance: Any) -> Any | None:
        return instance if self._matches is None or self._matches.on_object(instance) else None


class Follower:
    """The ``follow`` of a read: from the first ``size`` entries of all ranges to their records.

    It remembers the record keys of the rows that it was given last, so that they are not taken apart twice; the
    answer depends on the rows alone, as the engine requires.
    """

    __slots__ = ("_reader", "_size", "keys")

    def __init__(self, reader: EntryReader, size: int) -> None:
        self._reader = reader
        self._size = size
        self.keys: list[bytes | None] = []

    def __call__(self, ranges: list[list[Row]]) -> Sequence[ReadRange]:
        """The keys of the records behind the entries that were read."""
        rows = [row for found in ranges for row in found][: self._size]
        self.keys = [self._reader.record_key(row) for row in rows]
        return [point(key) for key in self.keys if key is not None]
