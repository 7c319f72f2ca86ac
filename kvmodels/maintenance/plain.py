"""Compile the write of one record whose indexes are complete and plain, by what can be decided once per header.

``compile_write`` asks of every change whether an index is being built, whether two records of the commit want one slot,
what has a deadline and what an entry holds. Of most writes every answer is known beforehand. Those are compiled here,
to the very operation that it would make, which a test compares; whatever is not plainly one of them is left to it.

Rules of this module: pure; the checks are those of ``maintenance/rules.py``. None means: ask ``compile_write``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvmodels.encoding.values import MsgpackCodec, ValueCodec
from kvmodels.errors import KvModelsError
from kvmodels.keys import decode_key
from kvmodels.limits import Limits
from kvmodels.maintenance import rules
from kvmodels.maintenance.changes import RecordChange
from kvmodels.maintenance.entries import RAW_BYTES
from kvmodels.operations import AtomicWrite, Check, Delete, Guard, Mutation, Row, Set
from kvmodels.schema.definition import Document
from kvmodels.schema.keyspace import EntryLayout
from kvmodels.schema.live import LiveCollection

__all__ = ["PART_IS_STORED", "UNREADABLE", "Entries", "PlainWrites", "plain_writes"]

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_NO_ENTRY: Final = (b"", False)
PART_IS_STORED: Final = frozenset({"int", "str", "uuid", "ulid"})
"""Codecs of which the part of a key is the value that the document stores."""

_COMPARABLE: Final[dict[str, type]] = {"int": int, "str": str}
"""Codecs that pack equal values of these very types to the same bytes, given or stored."""

UNREADABLE: Final = (KvModelsError, LookupError, TypeError, ValueError, AttributeError)
"""What packing raises for a document that an index cannot hold."""

Entries = list[tuple[bytes, bool]]
"""The key that a document has in each index, in their order, and whether it is a slot; an empty key for nothing."""

_Parts = tuple[list[Check], list[Mutation], list[bytes]]
"""Checks, mutations, and the slots that are claimed."""

_Index = tuple[Callable[[Document], bytes], bool, EntryLayout]
"""The keys that documents have in an index as far as ``packed_columns`` gives them, and whether they are slots."""

_NOTHING: Final[Entries] = []
_NO_DOCUMENT: Final[Document] = {}
_UNREAD: Final[Any] = object()
_WRITES: Final = "plain writes"


def plain_writes(live: LiveCollection, header: Guard, codec: ValueCodec) -> PlainWrites | None:
    """What compiles writes of a collection; None if one of its indexes is not plain, or not complete.

    It is remembered with the plans.
    """
    known: PlainWrites | None = live.plans.get(_WRITES)
    if known is not None and known.live is live and known.header == header:
        return known
    if not all(index.readable and index.fence is None and index.layout.is_plain for index in live.maintained):
        return None
    made = live.plans[_WRITES] = PlainWrites(live, header, codec)
    return made


def _entry(index: _Index, document: Document, pk: bytes) -> tuple[bytes, bool]:
    """The entry of a document in an index; it raises one of ``UNREADABLE``."""
    columns, unique, layout = index
    key = columns(document)
    if key:
        return (key, True) if unique else (key + pk, False)
    keys = layout.keys(document, pk)  # it has a None
    return keys[0] if keys else _NO_ENTRY


def _same(fields: Sequence[str]) -> Callable[[Document, Document], bool]:
    """Whether two documents certainly have one entry in an index of plain fields.

    The very same text is packed to the same bytes, and never refused: what was read has no lone surrogate. Of every
    other value nothing is said, because only its codec knows what is equal (0.0 and -0.0) and what it refuses.
    """
    if len(fields) == 1:
        (field,) = fields

        def same_text(before: Document, after: Document) -> bool:
            value = after[field]
            return value is before[field] and type(value) is str

        return same_text

    def same(before: Document, after: Document) -> bool:
        for name in fields:
            value = after[name]
            if value is not before[name] or type(value) is not str:
                return False
        return True

    return same


class PlainWrites:
    """Compiles writes of single records of one collection, as long as the header does not change.

    Every slot that a record claims is taken for free, which the operation checks. Rows and documents have no deadline.

    Args:
        live: a collection of which every maintained index is readable and plain.
        header: of which ``live`` was made.
        codec: encodes what slots hold.
    """

    __slots__ = (
        "_compared",
        "_encode",
        "_header",
        "_indexes",
        "_key",
        "_pack",
        "_parts",
        "_prefix",
        "_texts",
        "header",
        "live",
    )

    def __init__(self, live: LiveCollection, header: Guard, codec: ValueCodec) -> None:
        self.live = live
        self.header = header
        check = rules.header_check(header)
        self._header: tuple[Check, ...] = () if check is None else (check,)
        self._prefix = live.layout.prefix
        self._pack = live.layout.document_packer()
        # Of the parts of a key nothing is shared, so no pass needs to look for it.
        self._encode = codec.encode_list if isinstance(codec, MsgpackCodec) else codec.encode
        primary_key = live.schema.primary_key
        stored = all(column.codec.name in PART_IS_STORED for column in primary_key)
        self._parts = tuple(column.field for column in primary_key) if stored else ()
        self._key: tuple[str, type] | None = None
        if len(primary_key) == 1 and primary_key[0].codec.name in _COMPARABLE:
            self._key = primary_key[0].field, _COMPARABLE[primary_key[0].codec.name]
        self._texts = tuple({column.field for index in live.maintained for column in index.definition.columns})
        self._indexes: tuple[_Index, ...] = tuple(
            (index.layout.packed_columns(), index.definition.unique, index.layout) for index in live.maintained
        )
        self._compared = tuple(
            (_same([column.field for column in index.definition.columns]), one)
            for index, one in zip(live.maintained, self._indexes, strict=True)
        )

    def entries(self, document: Document, pk: bytes) -> Entries | None:
        """The entries of a document.

        Args:
            document: as it is stored.
            pk: the packed primary key of the record.

        Returns:
            None if an index cannot hold it, or if it is the document of another record.
        """
        try:
            if self._pack(document) != pk:
                return None
            return [_entry(index, document, pk) for index in self._indexes]
        except UNREADABLE:
            return None

    def packed_key(self, document: Document) -> bytes | None:
        """The packed primary key of a document; None if it has none."""
        try:
            return self._pack(document)
        except UNREADABLE:
            return None

    def holds(self, document: Document, given: Any) -> bool:
        """Whether the packed primary key of a document is certainly the one that was packed of a value."""
        if self._key is None:
            return False
        name, kind = self._key
        value = document.get(name)
        return type(value) is kind and type(given) is kind and value == given

    def insert(self, pk: bytes, new: tuple[Document, tuple[bytes, int]]) -> AtomicWrite | None:
        """The operation that inserts a record; None if an index cannot hold it.

        Args:
            pk: the packed primary key of the document.
            new: as of ``store``.
        """
        try:
            entries = [_entry(index, new[0], pk) for index in self._indexes]
        except UNREADABLE:
            return None
        return self.store(pk, None, _NOTHING, entries, new)

    def replace(
        self, pk: bytes, old: Row, before: Document, new: tuple[Document, tuple[bytes, int]]
    ) -> AtomicWrite | None:
        """The operation that stores a record in place of another version; ``store`` with all entries gives the same.

        Only indexes of which a column was given another value are looked at.

        Args:
            pk: the packed primary key of the document before.
            old: the row as read.
            before: its document.
            new: as of ``store``.

        Returns:
            None if an index cannot hold one of the documents, or if the new one is that of another record.
        """
        document = new[0]
        try:
            same = self._key is not None and self.holds(document, before.get(self._key[0]))
            if not same and self._pack(document) != pk:
                return None
            for name in self._texts:
                value = document[name]
                if value is not before[name] or type(value) is not str:
                    break
            else:
                return self._record_alone(pk, old, new[1])
            changed = [index for is_same, index in self._compared if not is_same(before, document)]
            gone = [_entry(index, before, pk) for index in changed]
            entries = [_entry(index, document, pk) for index in changed]
        except UNREADABLE:
            return None
        return self.store(pk, old, gone, entries, new)

    def store(
        self, pk: bytes, old: Row | None, before: Entries, after: Entries, new: tuple[Document, tuple[bytes, int]]
    ) -> AtomicWrite:
        """The operation that stores a record.

        Args:
            pk: its packed primary key.
            old: the row as read; None to insert it.
            before: entries of the document of that row; none for an insert.
            after: entries of the new document.
            new: that document, with its bytes and the number of their encoding.
        """
        checks, mutations, _ = self._stored(pk, old, before, after, new)
        return _new(AtomicWrite, ((*self._header, *checks), (*mutations,)))

    def _record_alone(self, pk: bytes, old: Row, value: tuple[bytes, int]) -> AtomicWrite:
        """What ``store`` gives for a record with the entries that it had."""
        key = self._prefix + pk
        check = rules.record_check(key, old, 0)
        checks = self._header if check is None else (*self._header, check)
        return _new(AtomicWrite, (checks, (_new(Set, (key, *value, None, False)),)))

    def _stored(
        self, pk: bytes, old: Row | None, before: Entries, after: Entries, new: tuple[Document, tuple[bytes, int]]
    ) -> _Parts:
        """The parts of that operation besides the check of the header."""
        document, (value, encoding) = new
        key = self._prefix + pk
        check = rules.record_check(key, old, 0)
        checks = [] if check is None else [check]
        mutations: list[Mutation] = [_new(Set, (key, value, encoding, None, False))]
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
            # As entry_value does, which takes the key apart again.
            parts = [document[field] for field in self._parts] or [*decode_key(pk)]
            owner, owner_encoding = self._encode(parts)
            for slot_key in claimed:
                check = rules.slot_check(slot_key, None)
                if check is not None:
                    checks.append(check)
                mutations.append(_new(Set, (slot_key, owner, owner_encoding, None, False)))
        if released:
            mutations.extend([_new(Delete, (slot_key,)) for slot_key in released])
        return checks, mutations, claimed

    @staticmethod
    def in_order(entries: Entries) -> list[bytes]:
        """The keys of entries in the order in which they are removed: slots last."""
        keys = [entry_key for entry_key, slot in entries if entry_key and not slot]
        keys += [entry_key for entry_key, slot in entries if slot]
        return keys

    def removal(self, limits: Limits) -> tuple[Check, int] | None:
        """What a removal that reads its record in the transaction checks, and how long a key may be so that it fits.

        None if an operation of so many keys may be over one of the limits, however short they are.
        """
        if not self._header or len(self._indexes) >= limits.max_mutations or limits.max_checks < 2:
            return None
        (header,) = self._header
        # Counted are the keys of both checks, of the record and of each entry.
        longest = min(limits.max_key_bytes, limits.max_operation_bytes // (len(self._indexes) + 3))
        return (header, longest) if len(header.key) <= longest else None

    def remove(self, pk: bytes, old: Row, before: Entries) -> AtomicWrite:
        """The operation that removes a record; the arguments are those of ``store``."""
        checks, mutations, _ = self._removed(pk, old, before)
        return _new(AtomicWrite, ((*self._header, *checks), (*mutations,)))

    def _removed(self, pk: bytes, old: Row, before: Entries) -> _Parts:
        key = self._prefix + pk
        check = rules.record_check(key, old, 0)
        keys = [key, *self.in_order(before)]
        return [] if check is None else [check], [_new(Delete, (one,)) for one in keys], []

    def compiled(self, changes: Sequence[RecordChange], rows: Mapping[bytes, Row | None] | None) -> AtomicWrite | None:
        """The operation for the changes of several records; None where they meet at a key, or one is not plain.

        Args:
            changes: as of ``compile_write``.
            rows: as of ``compile_write``; a slot that is claimed must be free in them.
        """
        checks = [*self._header]
        mutations: list[Mutation] = []
        for change in changes:
            parts = self._parts_of(change)
            if parts is None:
                return None
            more, writes, claimed = parts
            if rows is not None and any(rows.get(key, _UNREAD) is not None for key in claimed):
                return None
            checks += more
            mutations += writes
        if len({mutation[0] for mutation in mutations}) < len(mutations):
            return None
        return _new(AtomicWrite, ((*checks,), (*mutations,)))

    def _parts_of(self, change: RecordChange) -> _Parts | None:
        live, pk, old, old_document, document, value, encoding, expire_at, rewrite, only, tolerant, _ = change
        if live is not self.live or expire_at is not None or rewrite or only is not None or tolerant:
            return None
        before = _NOTHING if old is None else self.entries(old_document or _NO_DOCUMENT, pk)
        if before is None or (old is not None and old[4] is not None):
            return None
        if document is None:
            return None if old is None else self._removed(pk, old, before)
        after = self.entries(document, pk)
        return None if after is None else self._stored(pk, old, before, after, (document, (value, encoding)))
