"""Compile the write of one record whose indexes are complete and plain, by what can be decided once per header.

``compile_write`` asks of every change whether an index is being built, whether two records of the commit want one slot,
what has a deadline and what an entry holds. Of most writes every answer is known beforehand. Those are compiled here,
to the very operation that it would make, which a test compares; whatever is not plainly one of them is left to it.

Rules of this module: pure; the checks are those of ``maintenance/rules.py``. None means: ask ``compile_write``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvmodels.encoding.values import ValueCodec
from kvmodels.errors import KvModelsError
from kvmodels.keys import decode_key
from kvmodels.maintenance import rules
from kvmodels.maintenance.entries import RAW_BYTES
from kvmodels.operations import AtomicWrite, Check, Delete, Guard, Mutation, Row, Set
from kvmodels.schema.definition import Document
from kvmodels.schema.keyspace import EntryKey, EntryLayout
from kvmodels.schema.live import LiveCollection

__all__ = ["Entries", "PlainWrites", "plain_writes"]

_new: Final = tuple.__new__  # of a named tuple, without the call of its own constructor
_NO_ENTRY: Final = EntryKey(b"", False)
_UNREADABLE: Final = (KvModelsError, LookupError, TypeError, ValueError, AttributeError)
"""What packing raises for a document that an index cannot hold."""

Entries = list[EntryKey]
"""What a document has in each index, in their order; an empty key for nothing."""


def plain_writes(live: LiveCollection, header: Guard, codec: ValueCodec) -> PlainWrites | None:
    """What compiles writes of a collection; None if one of its indexes is not plain, or not complete."""
    plain = all(index.readable and index.fence is None and index.layout.is_plain for index in live.maintained)
    return PlainWrites(live, header, codec) if plain else None


class PlainWrites:
    """Compiles writes of single records of one collection, as long as the header does not change.

    Every slot that a record claims is taken for free, which the operation checks. Rows and documents have no deadline.

    Args:
        live: a collection of which every maintained index is readable and plain.
        header: of which ``live`` was made.
        codec: encodes what slots hold.
    """

    __slots__ = ("_encode", "_header", "_indexes", "_pack", "_prefix")

    def __init__(self, live: LiveCollection, header: Guard, codec: ValueCodec) -> None:
        check = rules.header_check(header)
        self._header: tuple[Check, ...] = () if check is None else (check,)
        self._prefix = live.layout.prefix
        self._pack = live.layout.document_packer()
        self._encode = codec.encode
        self._indexes: tuple[tuple[Callable[[Document], bytes], bool, EntryLayout], ...] = tuple(
            (index.layout.packed_columns(), index.definition.unique, index.layout) for index in live.maintained
        )

    def entries(self, document: Document, pk: bytes) -> Entries | None:
        """The entries of a document.

        Args:
            document: as it is stored.
            pk: the packed primary key of the record.

        Returns:
            None if an index cannot hold it, or if it is the document of another record.
        """
        found: Entries = []
        try:
            if self._pack(document) != pk:
                return None
            for columns, unique, layout in self._indexes:
                key = columns(document)
                if key:
                    found.append(_new(EntryKey, (key, True) if unique else (key + pk, False)))
                else:  # it has a None
                    keys = layout.keys(document, pk)
                    found.append(keys[0] if keys else _NO_ENTRY)
        except _UNREADABLE:
            return None
        return found

    def store(
        self, pk: bytes, old: Row | None, before: Entries, after: Entries, value: tuple[bytes, int]
    ) -> AtomicWrite:
        """The operation that stores a record.

        Args:
            pk: its packed primary key.
            old: the row as read; None to insert it.
            before: entries of the document of that row; none for an insert.
            after: entries of the new document.
            value: its bytes and the number of their encoding.
        """
        key = self._prefix + pk
        checks = [*self._header]
        check = rules.record_check(key, old, 0)
        if check is not None:
            checks.append(check)
        mutations: list[Mutation] = [_new(Set, (key, *value, None, False))]
        claimed: list[bytes] = []
        released: list[bytes] = []
        for position, entry in enumerate(after):
            entry_key, slot = entry
            if before:
                gone = before[position]
                if gone == entry:
                    continue
                if gone[1]:
                    released.append(gone[0])
            else:
                gone = _NO_ENTRY
            if slot:
                claimed.append(entry_key)
            elif entry_key:
                mutations.append(_new(Set, (entry_key, b"", RAW_BYTES, None, False)))
            if gone[0] and not gone[1]:
                mutations.append(_new(Delete, (gone[0],)))
        if claimed:
            owner = self._encode([*decode_key(pk)])
            for slot_key in claimed:
                check = rules.slot_check(slot_key, None)
                if check is not None:
                    checks.append(check)
                mutations.append(_new(Set, (slot_key, *owner, None, False)))
        mutations.extend([_new(Delete, (slot_key,)) for slot_key in released])
        return _new(AtomicWrite, ((*checks,), (*mutations,)))

    def remove(self, pk: bytes, old: Row, before: Entries) -> AtomicWrite:
        """The operation that removes a record; the arguments are those of ``store``."""
        key = self._prefix + pk
        check = rules.record_check(key, old, 0)
        checks = self._header if check is None else (*self._header, check)
        entries = [entry_key for entry_key, slot in before if entry_key and not slot]
        slots = [entry_key for entry_key, slot in before if slot]
        return _new(AtomicWrite, (checks, tuple([_new(Delete, (one,)) for one in (key, *entries, *slots)])))
