"""Compile one operation that inserts many records whose indexes are complete and simple, column by column.

It is the operation that ``RecordWriter.compiled`` makes of the same records, in another order; a test compares the two.
A record has no object of its own on the way: lists of keys and values hold it, because what the collector must visit
costs more than what is computed.

Rules of this module: pure; the checks are those of ``kvmodels.indexing.rules``. None means: compile in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import unwrap
from itertools import repeat
from operator import add, itemgetter
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.codecs.columns.registry import Packed, column_packer
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import AtomicWrite, Check, Guard, Mutation, Set
from kvmodels.indexing import rules
from kvmodels.indexing.entries import RAW_BYTES
from kvmodels.indexing.simple import PART_IS_STORED, UNREADABLE, record_writer
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Document

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


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
        """Whether ``check_budget`` has nothing to say against the operation."""
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


def insert_writer(live: LiveCollection, header: Guard, codec: MsgpackCodec) -> InsertWriter | None:
    """Return the compiled writer of new records; None for a collection without a ``RecordWriter``.

    It is kept in ``live.compiled``.
    """
    known = live.compiled.inserts
    if isinstance(known, InsertWriter) and known.live is live and known.header == header:
        return known
    if record_writer(live, header, codec) is None:
        return None
    made = live.compiled.inserts = InsertWriter(live, header, codec)
    return made


class _Entries:
    """The entries of many documents in one index."""

    __slots__ = ("_columns", "_layout", "_prefix", "_unique")

    def __init__(self, index: LiveIndex) -> None:
        columns = index.definition.columns
        self._layout = index.layout
        self._prefix = index.layout.prefix
        self._unique = index.definition.unique
        self._columns: list[tuple[str, Packed]] = []  # none: a column may be None, so each document is looked at
        if not any(column.nullable for column in columns):
            self._columns = [(column.field, column_packer(unwrap(column.codec.pack_stored))) for column in columns]

    def keys(self, documents: Sequence[Document], pks: Sequence[bytes]) -> tuple[list[bytes], list[bytes], list[int]]:
        """The keys of entries without an owner; those of slots, and the places of the documents that claim them."""
        if not self._columns:
            return self._one_by_one(documents, pks)
        parts = [pack(list(map(itemgetter(field), documents))) for field, pack in self._columns]
        if len(parts) == 1:
            heads = list(map(self._prefix.__add__, parts[0]))
        else:
            heads = list(map(b"".join, zip(repeat(self._prefix), *parts, strict=False)))
        if self._unique:
            return [], heads, [*range(len(heads))]
        return list(map(add, heads, pks)), [], []

    def _one_by_one(
        self, documents: Sequence[Document], pks: Sequence[bytes]
    ) -> tuple[list[bytes], list[bytes], list[int]]:
        entries: list[bytes] = []
        slots: list[bytes] = []
        claimants: list[int] = []
        for place, (document, pk) in enumerate(zip(documents, pks, strict=True)):
            for key, slot in self._layout.keys(document, pk):
                if slot:
                    slots.append(key)
                    claimants.append(place)
                else:
                    entries.append(key)
        return entries, slots, claimants


class InsertWriter:
    """Compiles inserts of many records of one collection, as long as the header does not change.

    Args:
        live: a collection of which every maintained index is readable and simple.
        header: of which ``live`` was made.
        codec: encodes what slots hold.
    """

    __slots__ = ("_codec", "_header", "_indexes", "_parts", "_prefix", "_primary_key", "header", "live")

    def __init__(self, live: LiveCollection, header: Guard, codec: MsgpackCodec) -> None:
        self.live = live
        self.header = header
        check = rules.header_check(header)
        self._header: tuple[Check, ...] = () if check is None else (check,)
        self._codec = codec
        self._prefix = live.layout.prefix
        columns = live.schema.primary_key
        self._primary_key = [(column.field, column_packer(unwrap(column.codec.pack_stored))) for column in columns]
        stored = all(column.codec.name in PART_IS_STORED for column in columns)
        self._parts = tuple(column.field for column in columns) if stored else ()
        self._indexes = tuple(_Entries(index) for index in live.maintained)

    def packed_keys(self, documents: Sequence[Document]) -> list[bytes] | None:
        """The packed primary keys of documents; None if one has a value that cannot be a key."""
        try:
            parts = [pack(list(map(itemgetter(field), documents))) for field, pack in self._primary_key]
        except UNREADABLE:
            return None
        return parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))

    def compiled(
        self, documents: Sequence[Document], pks: Sequence[bytes], values: Sequence[bytes], encoding: int
    ) -> Inserts | None:
        """The operation that inserts records; None where two of them meet, or an index cannot hold one.

        Args:
            documents: as they are stored, one at least.
            pks: their packed primary keys.
            values: their bytes.
            encoding: the number of the encoding of all of them.
        """
        keys = list(map(self._prefix.__add__, pks))
        entries: list[bytes] = []
        slots: list[bytes] = []
        claimants: list[int] = []
        try:
            for index in self._indexes:
                more_entries, more_slots, more_claimants = index.keys(documents, pks)
                entries += more_entries
                slots += more_slots
                claimants += more_claimants
        except UNREADABLE:
            return None
        checked = keys + slots
        if len(set(checked)) < len(checked):  # an entry ends with the primary key, so entries cannot meet elsewhere
            return None
        sets = [*_sets(keys, values, encoding), *_sets(entries, repeat(b""), RAW_BYTES)]
        owners: list[bytes] = []
        if slots:
            of_record, owner_encoding = self._codec.encode_many(self._owners(documents, pks))
            owners = [of_record[place] for place in claimants]
            sets += _sets(slots, owners, owner_encoding)
        checks = (*self._header, *_absent(keys, slots=False), *_absent(slots, slots=True))
        headers = [check.key for check in self._header]
        return Inserts(
            AtomicWrite(checks, (*sets,)), keys, headers + checked, keys + entries + slots, [*values, *owners]
        )

    def _owners(self, documents: Sequence[Document], pks: Sequence[bytes]) -> list[list[Any]]:
        """What the slots of each record hold, as ``entry_value`` makes it."""
        if self._parts:
            columns = [list(map(itemgetter(field), documents)) for field in self._parts]
            return list(map(list[Any], zip(*columns, strict=True)))
        return [[*decode_key(pk)] for pk in pks]


def _sets(keys: Sequence[bytes], values: Iterable[bytes], encoding: int) -> Iterable[Mutation]:
    return map(_new, repeat(Set), zip(keys, values, repeat(encoding), repeat(None), repeat(False), strict=False))


def _absent(keys: Sequence[bytes], *, slots: bool) -> Iterable[Check]:
    """The check that nothing is there, for each key: they differ in nothing but that, so the rule is asked once."""
    if not keys:
        return ()
    first = rules.slot_check(keys[0], None) if slots else rules.record_check(keys[0], None, 0)
    if first is None:
        return ()
    _, versionstamp, physical = first
    return map(_new, repeat(Check), zip(keys, repeat(versionstamp), repeat(physical), strict=False))
