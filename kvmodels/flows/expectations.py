"""What one record, as it was read, calls for in the indexes, and in what an entry differs from that.

Rules of this module: pure; nothing is said of the entries of a record that cannot be indexed as a whole, because a
repair could not write any of them.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels.errors import DecodeError, KvModelsError
from kvmodels.flows.context import Context
from kvmodels.flows.records import document_of, stored_of
from kvmodels.maintenance.changes import RecordChange
from kvmodels.maintenance.entries import entry_keys, entry_value, slot_owner
from kvmodels.operations import Row
from kvmodels.schema.definition import Document
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.slotted import dataclass

__all__ = ["Expected", "RecordEntries", "difference"]


@dataclass(frozen=True, slots=True)
class Expected:
    """An entry that a record calls for."""

    live: LiveCollection
    index: LiveIndex
    slot: bool
    value: bytes
    encoding: int


class _Entries(NamedTuple):
    """The keys of the entries of one record in one index, with whether they are slots, and what they all hold."""

    keys: dict[bytes, bool]
    value: tuple[bytes, int]


class RecordEntries:
    """The entries of one record; it is decoded once, and each index is computed when it is asked for.

    Args:
        live: its collection under the header that ``row`` was read with.
        row: the record.
    """

    __slots__ = ("_context", "_document", "_filled", "_live", "_of", "pk", "row")

    def __init__(self, context: Context, live: LiveCollection, row: Row) -> None:
        self._context = context
        self._live = live
        self._of: dict[tuple[str, int], _Entries | None] = {}
        self.row = row
        self.pk = live.layout.pk_of(row.key)
        self._document = self._read()
        self._filled: Document | None = None

    def _read(self) -> Document | None:
        try:
            document = document_of(self._context, self.row)
        except KvModelsError:
            return None
        return document if self._live.layout.names(document, self.row.key) else None

    @property
    def can_be_read(self) -> bool:
        """Whether it is a document of this record, so that anything can be said about its entries."""
        return self._document is not None

    def all(self) -> dict[bytes, Expected] | None:
        """The entries that it calls for in the indexes that are complete; None when it cannot be indexed."""
        found: dict[bytes, Expected] = {}
        for index in self._live.maintained:
            if not index.readable:
                continue
            made = self._entries(index)
            if made is None:
                return None
            keys, value = made
            found.update((key, Expected(self._live, index, slot, *value)) for key, slot in keys.items())
        return found

    def in_index(self, index: LiveIndex) -> dict[bytes, Expected] | None:
        """The entries in one index, complete or not; None when it cannot hold the record."""
        made = self._entries(index)
        if made is None:
            return None
        keys, value = made
        return {key: Expected(self._live, index, slot, *value) for key, slot in keys.items()}

    def calls_for(self, index: LiveIndex, entry: Row) -> bool:
        """Whether an entry of an index is one of this record, as it is.

        What an entry of an index under construction holds is not compared: it may be made anew by the build.
        """
        made = self._entries(index)
        if made is None:
            return False
        keys, value = made
        slot = keys.get(entry.key)
        if slot is None:
            return False
        return (
            not index.readable
            or difference(self._context, Expected(self._live, index, slot, *value), entry, self.row) is None
        )

    def _entries(self, index: LiveIndex) -> _Entries | None:
        """The keys of its entries in one index, and what they all hold."""
        place = index.stored.name, index.stored.generation
        if place not in self._of:
            self._of[place] = self._made(index)
        return self._of[place]

    def _made(self, index: LiveIndex) -> _Entries | None:
        try:
            document = self._document_for(index)
            if document is None:
                return None
            keys = dict(entry_keys(index, document, self.pk))
        except KvModelsError:
            return None
        if not keys:
            return _Entries(keys, (b"", 0))
        # A copy is compared with the bytes that are stored, also while a build has not filled in a new column yet.
        row = self.row
        change = RecordChange(self._live, self.pk, row, document, document, row.value, row.encoding)
        slot = next(iter(keys.values()))  # the same for all of them
        return _Entries(keys, entry_value(self._context.codec, index.layout, slot, change))

    def _document_for(self, index: LiveIndex) -> Document | None:
        """What it stores; with the defaults of the model filled in, where the index asks for what is not stored."""
        if self._document is None or index.layout.covers(self._document):
            return self._document
        if self._filled is None:
            self._filled = stored_of(self._context, self._live, self.row).document
        return self._filled


def difference(context: Context, wanted: Expected, entry: Row, record: Row) -> str | None:
    """In what an entry differs from what its record calls for, in a few words; None if it does not."""
    if (entry.value, entry.encoding) != (wanted.value, wanted.encoding):
        return "wrong owner" if _names_another(context, wanted, entry, record) else "wrong value"
    if entry.expire_at != record.expire_at:
        return "another deadline than the record"
    if wanted.index.definition.store == "record" and entry.versionstamp != record.versionstamp:
        return "another versionstamp than the record"
    return None


def _names_another(context: Context, wanted: Expected, entry: Row, record: Row) -> bool:
    """Whether a slot belongs to another record than it should, or to none that can be named."""
    definition = wanted.index.definition
    if not wanted.slot or definition.store is not None:
        return False
    if not definition.include:
        return True
    try:
        owner = slot_owner(context.codec, wanted.live, wanted.index, entry)
        return owner != wanted.live.layout.pk_of(record.key)
    except DecodeError:
        return True
