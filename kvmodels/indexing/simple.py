"""Compile writes of records whose indexes are complete, by what can be decided once per header.

``compile_in_full`` decides for every change whether an index is being built, whether two records of the commit want one
slot, which deadline applies and what an entry holds. For most writes all of that is known beforehand. ``RecordWriter``
is the branch of ``compile_write`` for them, and compiles many inserts by columns. Tests compare both with
``compile_in_full``. It takes indexes with entries of plain fields, unique or not, and every other index whose entries
are not contested: of these it asks ``contents``, but only if the change sets another value in one of their fields.

Rules of this module: pure; the checks are those of ``kvmodels.indexing.rules``. None means: compile in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import unwrap
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.columns.registry import column_packer
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Delete, Guard, Mutation, Removal, Row, Set
from kvmodels.errors import DecodeError
from kvmodels.indexing import rules
from kvmodels.indexing.entries import NeedRows, RecordChange, StoredRecord, additions, fold
from kvmodels.indexing.entry_columns import UNREADABLE, EntryColumns, sets_of
from kvmodels.indexing.kinds.contract import NOTHING
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.other_indexes import OtherIndex, add_difference
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Column, Document

LARGEST_AWAITED: Final = 1 << 16
"""Maximum bytes of a record that is decoded while every other writer waits: a tenth of a millisecond at most."""

U64_ZERO: Final = bytes(8)
"""A value as long as that of a counter."""

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
PART_IS_STORED: Final = frozenset({"int", "str", "uuid", "ulid"})
"""Codecs of which the part of a key is the value that the document stores."""

_LARGEST: Final = 1 << 63
"""Every column of integers holds one of a smaller magnitude."""

_Index = tuple[Callable[[Document], bytes], bool, EntryLayout]
"""The keys that documents have in an index as far as ``packed_columns`` gives them, and whether they are slots."""


def record_writer(live: LiveCollection, header: Guard, codec: ValueCodec) -> RecordWriter | None:
    """Return the compiled writer of a collection; None if an index is not complete, or is contested and not plain.

    It is kept in ``live.compiled``.
    """
    known = live.compiled.writer
    if isinstance(known, RecordWriter) and known.live is live and known.header == header:
        return known
    if not switches.fast_kinds:
        return None
    if not all(index.readable and index.fence is None and _is_taken(index) for index in live.maintained):
        return None
    if live.references or live.is_staged:
        return None  # the target must be read; rows of ended versions and of blobs are compiled in full
    made = live.compiled.writer = RecordWriter(live, header, codec)
    return made


def _is_taken(index: LiveIndex) -> bool:
    return index.layout.is_plain or maintenance_of(index).resolve is None


def compile_simple(
    changes: Sequence[RecordChange], rows: Mapping[bytes, Row | None] | None, header: Guard, codec: ValueCodec
) -> AtomicWrite | NeedRows | None:
    """Compile changes of records whose indexes are all simple; None for others. Arguments as of ``compile_write``."""
    if not changes:
        return None
    writer = record_writer(changes[0][0], header, codec)
    return None if writer is None else writer.compiled(changes, rows)


def fits(write: AtomicWrite, limits: Limits) -> bool:
    """Return whether ``check_budget`` certainly accepts an operation.

    Nothing in an operation is longer than all of it together, so one sum decides where it is below every limit.
    """
    checks, mutations = write
    if len(checks) > limits.max_checks or len(mutations) > limits.max_mutations:
        return False
    size = 0
    for check in checks:
        size += len(check.key)
    for mutation in mutations:
        if type(mutation) is Set:
            size += 2 * len(mutation.key) + len(mutation.value)
        elif type(mutation) is Delete:
            size += len(mutation.key)
        elif type(mutation) is Arithmetic:
            size += 2 * len(mutation.key) + len(U64_ZERO)
        else:
            return False
    if size > limits.max_key_bytes or size > limits.max_value_bytes:
        return False
    return size <= limits.max_operation_bytes and size <= limits.max_operation_key_bytes


def _entry(index: _Index, document: Document, pk: bytes) -> tuple[bytes, bool]:
    """Return the key of a document in an index, empty for none, and whether it is a slot. Raises ``UNREADABLE``."""
    columns, unique, layout = index
    key = columns(document)
    if key:
        return (key, True) if unique else (key + pk, False)
    keys = layout.keys(document, pk)  # it has a None
    return keys[0] if keys else (b"", False)


def _same(columns: Iterable[Column]) -> Callable[[Document, Document], bool]:
    """Return a predicate: two documents certainly have equal entries in an index of plain fields.

    Equal strings are packed to the same bytes, and never refused: a stored one has no lone surrogate. So are equal
    integers of a column of integers, unless they are too large. Of other values nothing is known, because only their
    codec decides what is equal (0.0 and -0.0) and what it refuses.
    """
    fields = tuple({column.field: column.codec.name == "int" for column in columns}.items())

    def same(before: Document, after: Document) -> bool:
        for name, takes_int in fields:
            old, new = before[name], after[name]
            if type(new) is str:
                if old != new:
                    return False
                continue
            if old != new:
                return False
            if not takes_int or type(new) is not int or type(old) is not int or not -_LARGEST < new < _LARGEST:
                return False
        return True

    return same


class RecordWriter:
    """Compiles writes of records of one collection, as long as the header does not change.

    Every slot that a record claims is taken for free, which the operation checks. Rows and documents have no deadline.
    """

    def __init__(self, live: LiveCollection, header: Guard, codec: ValueCodec) -> None:
        self.live = live
        self.header = header
        check = rules.header_check(header)
        self._header: tuple[Check, ...] = () if check is None else (check,)
        self._prefix = live.layout.prefix
        self._pack = live.layout.document_packer()
        self._codec = codec
        self._longest = 0
        # Of the parts of a key nothing is shared, so no pass needs to look for it.
        self._encode = codec.encode_document if isinstance(codec, MsgpackCodec) else codec.encode
        primary_key = live.schema.primary_key
        stored = all(column.codec.name in PART_IS_STORED for column in primary_key)
        self._parts = tuple(column.field for column in primary_key) if stored else ()
        self._primary_key = [(column.field, column_packer(unwrap(column.codec.pack_stored))) for column in primary_key]
        self._key_field = self._parts[0] if len(self._parts) == 1 else None
        plain = [(index, cast("EntryLayout", index.layout)) for index in live.maintained if index.layout.is_plain]
        self._others = tuple(OtherIndex(index) for index in live.maintained if not index.layout.is_plain)
        self._same_entries = _same(column for index, _ in plain for column in index.definition.columns)
        self._indexes: tuple[_Index, ...] = tuple(
            (layout.packed_columns(), index.definition.unique, layout) for index, layout in plain
        )
        self._compared = tuple(
            (_same(index.definition.columns), one) for (index, _), one in zip(plain, self._indexes, strict=True)
        )
        self._entry_columns = tuple(EntryColumns(layout) for _, layout in plain)

    def compiled(
        self, changes: Sequence[RecordChange], rows: Mapping[bytes, Row | None] | None
    ) -> AtomicWrite | NeedRows | None:
        """Compile the changes of some records; return None where they meet at a key, or one is not simple.

        NeedRows: slots that they claim, which were not read with ``rows``.
        """
        checks = [*self._header]
        mutations: list[Mutation] = []
        claimed: list[bytes] = []
        totals: dict[bytes, int] = {}
        for change in changes:
            if not self._add(change, checks, mutations, claimed):
                return None
            if self._others and not self._add_others(change, mutations, totals):
                return None
        if len(changes) > 1 and len({mutation.key for mutation in mutations}) < len(mutations):
            return None
        if rows is not None and claimed:
            if any(rows.get(key) is not None for key in claimed):
                return None  # it may be refused without the others
            unread = frozenset([key for key in claimed if key not in rows])
            if unread:
                return NeedRows(unread)
        if totals:
            mutations += additions(totals)
        return _new(AtomicWrite, ((*checks,), (*mutations,)))

    def _add_others(self, change: RecordChange, mutations: list[Mutation], totals: dict[bytes, int]) -> bool:
        """Add what a change writes in the indexes that are not plain; return False where one cannot hold the record."""
        _, pk, row, before, document, value, encoding, *_ = change
        old = new = None
        try:
            for index in self._others:
                if before is not None and document is not None and index.is_same(before, document):
                    continue
                had = has = NOTHING
                if row is not None and before is not None:
                    old = old or StoredRecord(pk, before, row.value, row.encoding)
                    had = index.contents(old, self._codec)
                if document is not None:
                    new = new or StoredRecord(pk, document, value, encoding)
                    has = index.contents(new, self._codec)
                if has.fan_out > index.most and has.fan_out > 1:
                    return False
                add_difference(had, has, mutations, always=index.writes_always)
                if index.counts:
                    fold(totals, had.amounts, -1)
                    fold(totals, has.amounts, +1)
        except UNREADABLE:
            return False
        return True

    def _add(self, change: RecordChange, checks: list[Check], mutations: list[Mutation], claimed: list[bytes]) -> bool:
        """Add what a change checks, writes and claims; return False where it is not simple."""
        live, pk, old, before, document, value, encoding, expire_at, rewrite, only, tolerant, _, _ = change
        if live is not self.live or expire_at is not None or rewrite or only is not None or tolerant:
            return False
        key = self._prefix + pk
        check = rules.record_check(key, old, 0)
        if check is not None:
            checks.append(check)
        try:
            if old is not None and (old[4] is not None or before is None or not self._names(before, document, pk)):
                return False
            if document is None:
                if old is None or before is None or live.referrers:
                    return False
                keys = [key, *_in_order([_entry(index, before, pk) for index in self._indexes])]
                mutations += [_new(Delete, (one,)) for one in keys]
                return True
            mutations.append(_new(Set, (key, value, encoding, None, False)))
            released: list[bytes] = []
            if before is None:
                slots = self._add_entries(pk, document, mutations)
            elif self._same_entries(before, document):
                return True
            else:
                slots, released = self._replace_entries(pk, before, document, mutations)
        except UNREADABLE:
            return False
        if slots:
            # As ``entry_value``, which takes the key apart again.
            parts = [document[field] for field in self._parts] or [*decode_key(pk)]
            owner, owner_encoding = self._encode(parts)
            for slot in slots:
                check = rules.slot_check(slot, None)
                if check is not None:
                    checks.append(check)
                mutations.append(_new(Set, (slot, owner, owner_encoding, None, False)))
            claimed += slots
        if released:
            mutations += [_new(Delete, (slot,)) for slot in released]
        return True

    def _names(self, before: Document, document: Document | None, pk: bytes) -> bool:
        """Return whether a stored document has the primary key of its row, which is that of ``document``, if given."""
        name = self._key_field
        if name is not None and document is not None:
            old, new = before[name], document[name]
            if old == new and type(old) is type(new):
                return True
        return self._pack(before) == pk

    def _add_entries(self, pk: bytes, document: Document, mutations: list[Mutation]) -> list[bytes]:
        """Set the entries of a new record, and return the slots that it claims."""
        slots: list[bytes] = []
        for index in self._indexes:
            columns, unique, _ = index
            entry = columns(document)
            if entry and not unique:
                mutations.append(_new(Set, (entry + pk, b"", BYTES_ENCODING, None, False)))
                continue
            entry, is_slot = (entry, True) if entry else _entry(index, document, pk)
            if is_slot:
                slots.append(entry)
            elif entry:
                mutations.append(_new(Set, (entry, b"", BYTES_ENCODING, None, False)))
        return slots

    def _replace_entries(
        self, pk: bytes, before: Document, document: Document, mutations: list[Mutation]
    ) -> tuple[list[bytes], list[bytes]]:
        """Set and delete the entries that differ, and return the slots that are claimed and released.

        Only indexes of which a column has another value are compared.
        """
        slots: list[bytes] = []
        released: list[bytes] = []
        for is_same, index in self._compared:
            if is_same(before, document):
                continue
            gone, was_slot = _entry(index, before, pk)
            entry, is_slot = _entry(index, document, pk)
            if gone == entry:
                continue
            if is_slot:
                slots.append(entry)
            elif entry:
                mutations.append(_new(Set, (entry, b"", BYTES_ENCODING, None, False)))
            if was_slot:
                released.append(gone)
            elif gone:
                mutations.append(_new(Delete, (gone,)))
        return slots, released

    def removal(self, pk: bytes, limits: Limits) -> Removal | None:
        """Return the removal of a record that the engine reads itself in the transaction of the commit.

        None if so many keys may be over one of the limits, however short they are, and with a codec that may run code
        of the program, which must not run while every other writer waits.
        """
        if self.live.referrers or self._others:
            return None
        if not self._longest:
            if not self._header or len(self._indexes) >= limits.max_mutations or limits.max_checks < 2:
                return None
            # Counted are the keys of both checks, of the record and of each entry.
            self._longest = min(limits.max_key_bytes, limits.max_operation_bytes // (len(self._indexes) + 3))
        (header,) = self._header or (None,)
        if header is None or len(header.key) > self._longest or type(self._codec) is not MsgpackCodec:
            return None
        return _new(Removal, (header, self._prefix + pk, self._entry_keys))

    def _entry_keys(self, key: bytes, value: bytes, encoding: int) -> list[bytes] | None:
        """Return the keys of the entries of a record, for a ``Removal``; None where it must be compiled in full."""
        if len(value) > LARGEST_AWAITED:
            return None
        pk = key[len(self._prefix) :]
        try:
            document = self._codec.decode_unchecked(value, encoding, key)
            if self._pack(document) != pk:
                return None
            keys = _in_order([_entry(index, document, pk) for index in self._indexes])
        except (DecodeError, *UNREADABLE):
            return None
        return keys if max(map(len, (key, *keys))) <= self._longest else None

    # --- many inserts, by columns -----------------------------------------------------------------------------

    def packed_keys(self, documents: Sequence[Document]) -> list[bytes] | None:
        """Return the packed primary keys of documents; None if one has a value that cannot be a key."""
        try:
            parts = [pack(list(map(itemgetter(field), documents))) for field, pack in self._primary_key]
        except UNREADABLE:
            return None
        return parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))

    def compiled_inserts(
        self,
        codec: MsgpackCodec,
        documents: Sequence[Document],
        pks: Sequence[bytes],
        values: Sequence[bytes],
        encoding: int,
    ) -> Inserts | None:
        """Return the operation that inserts records; None where two of them meet, or an index cannot hold one."""
        keys = list(map(self._prefix.__add__, pks))
        entries: list[bytes] = []
        slots: list[bytes] = []
        claimants: list[int] = []
        try:
            for index in self._entry_columns:
                index.add_keys(documents, pks, entries, slots, claimants)
        except UNREADABLE:
            return None
        checked = keys + slots
        if len(set(checked)) < len(checked):  # an entry ends with the primary key, so entries cannot meet elsewhere
            return None
        sets = [*sets_of(keys, values, encoding), *sets_of(entries, repeat(b""), BYTES_ENCODING)]
        others: list[Mutation] = []
        if self._others and not self._add_inserted(zip(pks, documents, values, strict=True), encoding, others):
            return None
        owners: list[bytes] = []
        if slots:
            of_record, owner_encoding = codec.encode_many(self._owners(documents, pks))
            owners = [of_record[place] for place in claimants]
            sets += sets_of(slots, owners, owner_encoding)
        checks = (*self._header, *_absent(keys, slots=False), *_absent(slots, slots=True))
        headers = [check.key for check in self._header]
        written, held = keys + entries + slots, [*values, *owners]
        if others:
            sets += others
            written += [mutation.key for mutation in others]
            held += [mutation.value if type(mutation) is Set else U64_ZERO for mutation in others]
        return Inserts(AtomicWrite(checks, (*sets,)), keys, headers + checked, written, held)

    def _add_inserted(
        self, records: Iterable[tuple[bytes, Document, bytes]], encoding: int, mutations: list[Mutation]
    ) -> bool:
        """Add what new records have in the indexes that are not plain; return False where one cannot hold a record."""
        totals: dict[bytes, int] = {}
        try:
            for pk, document, value in records:
                record = StoredRecord(pk, document, value, encoding)
                for index in self._others:
                    has = index.contents(record, self._codec)
                    if has.fan_out > index.most and has.fan_out > 1:
                        return False
                    add_difference(NOTHING, has, mutations, always=False)
                    fold(totals, has.amounts, +1)
        except UNREADABLE:
            return False
        mutations += additions(totals)
        return True

    def _owners(self, documents: Sequence[Document], pks: Sequence[bytes]) -> list[list[Any]]:
        """Return the values of the slots of each record, as ``entry_value`` makes them."""
        if self._parts:
            columns = [list(map(itemgetter(field), documents)) for field in self._parts]
            return list(map(list[Any], zip(*columns, strict=True)))
        return [[*decode_key(pk)] for pk in pks]


def _in_order(entries: list[tuple[bytes, bool]]) -> list[bytes]:
    """Return the keys of entries in the order in which they are removed: slots last."""
    keys = [entry_key for entry_key, slot in entries if entry_key and not slot]
    keys += [entry_key for entry_key, slot in entries if slot]
    return keys


class Inserts(NamedTuple):
    """The operation that inserts some records, and what it holds by columns.

    Attributes:
        write: the operation.
        keys: of the records, in their order.
        checked: the keys of all checks.
        written: the keys of all mutations.
        values: the values of all mutations that are not empty.
    """

    write: AtomicWrite
    keys: list[bytes]
    checked: list[bytes]
    written: list[bytes]
    values: list[bytes]

    def fits(self, limits: Limits) -> bool:
        """Return whether ``check_budget`` has nothing to say against the operation."""
        if len(self.checked) > limits.max_checks or len(self.written) > limits.max_mutations:
            return False
        checked, written, values = map(len, self.checked), list(map(len, self.written)), list(map(len, self.values))
        # What is checked is written as well, but for the header.
        longest = max(*written, len(self.checked[0]))
        if longest > limits.max_key_bytes or max(values) > limits.max_value_bytes:
            return False
        key_bytes = sum(written)
        operation_bytes = sum(checked) + 2 * key_bytes + sum(values)
        return key_bytes <= limits.max_operation_key_bytes and operation_bytes <= limits.max_operation_bytes


def _absent(keys: Sequence[bytes], *, slots: bool) -> Iterable[Check]:
    """Return the check that a key is absent, for each key; they differ in the key alone, so the rule is asked once."""
    if not keys:
        return ()
    first = rules.slot_check(keys[0], None) if slots else rules.record_check(keys[0], None, 0)
    if first is None:
        return ()
    _, versionstamp, physical = first
    return map(_new, repeat(Check), zip(keys, repeat(versionstamp), repeat(physical), strict=False))
