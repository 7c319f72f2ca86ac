"""Changes of records, the values of entries, and the totals of counters.

What a record has in an index is said by ``kinds``, one module for each kind.

Rules of this module: pure. An entry is a function of the stored document and of the key of its record, so the write
compiler, a build and a check produce the same bytes. Counters are 64-bit integers in two's complement, little endian:
the sum of an engine is exact for them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import EntryLayout, RecordLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import U64_ENCODING, U64_MODULUS, Arithmetic, ReadRange, Row
from kvmodels.errors import DecodeError, KvModelsError, OperationTooLargeError
from kvmodels.schema.definition.definition import Document, IndexDefinition


class Misfit(NamedTuple):
    """Why an index cannot hold a record.

    Attributes:
        kind: of the violation, as ``misfit`` and a build give it.
        reason: for ``key_function``, the name of the type of what the function raised; for ``duplicate``, the name of
            another index, whose slot the record may not take; for a record that cannot be read or encoded, the field
            and the cause.
    """

    kind: str
    reason: str | None = None

    def to_value(self) -> dict[str, str]:
        """Return the value of a violation row."""
        return {"kind": self.kind} if self.reason is None else {"kind": self.kind, "reason": self.reason}


class VersionNote:
    """Who writes a version of a record with a history, and after the commit is compiled, what is stored.

    Attributes:
        by, why: the actor and the reason, as given by ``acting``; None if not given.
        to_key: the parts of the new key, if the record leaves its key by a rename.
        from_key: the parts of the old key, if the record comes to its key by a rename.
        trash: the trash row that a restore checks and removes.
        forgets: whether the version that a removal ends gets no row.
        document, value, encoding: the stored document and its bytes, as last compiled; None before.
    """

    __slots__ = ("by", "document", "encoding", "forgets", "from_key", "to_key", "trash", "value", "why")

    def __init__(self, by: str | None, why: str | None) -> None:
        self.by = by
        self.why = why
        self.to_key: tuple[Any, ...] | None = None
        self.from_key: tuple[Any, ...] | None = None
        self.trash: Row | None = None
        self.forgets = False
        self.document: Document | None = None
        self.value: bytes | None = None
        self.encoding = 0

    def told(self) -> dict[str, str]:
        """Return actor and reason, as far as they are given."""
        return {name: text for name, text in (("by", self.by), ("why", self.why)) if text is not None}


class RecordChange(NamedTuple):
    """One record of a commit: as it was read, and as it shall be.

    Attributes:
        live: its collection under the header of the snapshot that ``old`` was read in.
        pk: packed primary key.
        old: the physical row as read, expired or not; None when there is none.
        old_document: the decoded document of ``old``.
        new_document: the document to store, or None to remove the record.
        value, encoding: the bytes of ``new_document``.
        expire_at: deadline in ms since the epoch that the record and all its entries get, or None.
        rewrite: write every entry, also those that should be there already; for repair.
        only: leave the record alone and write its entries in this index; for a build, whose record does not change.
        tolerant: record a duplicate in an index under construction instead of refusing it; for a build.
        unmade: why the columns that the document does not store could not be made; for a build.
        note: who writes the version, in a collection with a history; None: a rewrite, which ends no version.
    """

    live: LiveCollection
    pk: bytes
    old: Row | None
    old_document: Document | None
    new_document: Document | None
    value: bytes = b""
    encoding: int = 0
    expire_at: int | None = None
    rewrite: bool = False
    only: LiveIndex | None = None
    tolerant: bool = False
    unmade: Misfit | None = None
    note: VersionNote | None = None

    @property
    def stored_value(self) -> tuple[bytes, int]:
        """The bytes that the commit stores, and their encoding."""
        note = self.note
        return (self.value, self.encoding) if note is None or note.value is None else (note.value, note.encoding)

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return self.live.layout.prefix + self.pk

    @property
    def before(self) -> StoredRecord | None:
        """The record as it was read; None if there was none."""
        old, document = self.old, self.old_document
        if old is None or document is None:
            return None
        return StoredRecord(self.pk, document, old.value, old.encoding, old.expire_at)

    @property
    def after(self) -> StoredRecord | None:
        """The record as it shall be; None if it is removed."""
        document = self.new_document
        return None if document is None else StoredRecord(self.pk, document, self.value, self.encoding, self.expire_at)


class NeedRows(NamedTuple):
    """Rows that the compiler must see.

    Attributes:
        keys: to be read in one snapshot with the records; what was found in ranges before is forgotten.
        spans: ranges by their first keys, to be read in that snapshot or in a later one; only where ``keys`` is empty.
        neighbours: ranges to be read like ``spans``, but with expired rows, because a commit checks what is stored.
    """

    keys: frozenset[bytes]
    spans: Mapping[bytes, ReadRange] = {}
    neighbours: frozenset[ReadRange] = frozenset()


class StaleRow(NamedTuple):
    """A row that was read later than its record, which has changed since: the attempt has met a conflict.

    ``key``: of the record.
    """

    key: bytes


Neighbours = Mapping[ReadRange, Sequence[Row]]
"""The physical rows that were found in each range of ``NeedRows.neighbours``."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A contested entry that this commit may not claim: another record is in the way, or another one of its own.

    Attributes:
        slot: the key of the entry of the other record; a unique slot is that of both.
        owner: the packed primary key of the other record.
        value: what the entry of the other record holds, if that is a part of the reason.
        others: the other records of the commit that are refused for such a reason.
    """

    change: RecordChange
    index: LiveIndex
    slot: bytes
    owner: bytes
    value: bytes = b""
    others: tuple[Violation, ...] = ()


DUPLICATE = "duplicate"
"""The kind of violation of a record whose unique value another record holds."""

OVERLAP = "overlap"
"""The kind of violation of a record whose interval overlaps that of another record."""

COUNT = "count"
HALF = 2**32
LARGEST = 2**63


def fold(totals: MutableMapping[bytes, int], amounts: Mapping[bytes, int], sign: int) -> None:
    """Add what one record adds to the totals of a commit, or take it away (``sign`` -1).

    All records of a commit are folded, so that a counter gets one mutation at most.
    """
    for key, amount in amounts.items():
        totals[key] = totals.get(key, 0) + sign * amount


def additions(totals: Mapping[bytes, int]) -> tuple[Arithmetic, ...]:
    """Return the mutations for the totals of a commit; a counter that does not change gets none."""
    return tuple(Arithmetic("sum", key, to_u64(total)) for key, total in totals.items() if total)


def to_u64(number: int) -> int:
    """Return a signed number as an engine adds it: modulo 2**64."""
    return number % U64_MODULUS


def from_u64(number: int) -> int:
    """Return the signed number that a counter stands for: two's complement.

    Examples:
        >>> from_u64(to_u64(-3))
        -3
    """
    return number - U64_MODULUS if number >= LARGEST else number


def number_in(row: Row) -> int:
    """Return the signed number in the row of a counter. Raises DecodeError for a row that is none."""
    if row.encoding != U64_ENCODING:
        raise DecodeError(
            "a counter of an index is not a number",
            key=decode_key(row.key),
            reason=f"encoding {row.encoding}",
            hint="Another program wrote it: run db.check(repair=True).",
        )
    return from_u64(int.from_bytes(row.value, "little"))


EMPTY_VALUE = (b"", BYTES_ENCODING)
"""The empty value, and its encoding: entries whose key contains the primary key have no other value."""


class StoredRecord(NamedTuple):
    """A record as it is stored: its packed primary key, its document, the bytes of that, and its deadline."""

    pk: bytes
    document: Document
    value: bytes
    encoding: int
    expire_at: int | None = None


def many_valued(index: LiveIndex) -> str | None:
    """Return the field of which an index has an entry for each value; None if it has one entry for a record."""
    return next((column.field for column in index.definition.columns if column.many), None)


def require_fan_out(live: LiveCollection, index: LiveIndex, size: int) -> None:
    """Refuse a record with more entries, or groups of counters, than its index allows."""
    maximum = index.definition.max_fan_out
    if size > maximum:
        raise OperationTooLargeError(
            "a record has more distinct values than its index takes",
            limit="max_fan_out",
            size=size,
            maximum=maximum,
            index=f"{live.schema.collection}.{index.stored.name}",
            field=many_valued(index),
            hint="Store fewer values in the record, or declare the index with a higher max_fan_out.",
        )


def entry_value(codec: ValueCodec, layout: EntryLayout, slot: bool, record: StoredRecord) -> tuple[bytes, int]:
    """Return the value of an entry, and its encoding.

    A copy of the record; or the fields that the index includes, behind the primary key where the entry is a unique
    slot; or the primary key alone; or nothing.
    """
    if layout.definition.copies_record:
        return record.value, record.encoding
    included = None
    if layout.definition.include:
        included = layout.included(record.document)
    if not slot:
        return EMPTY_VALUE if included is None else codec.encode_document(included)
    pk = list(decode_key(record.pk))
    if included is None:
        # Of the parts of a key nothing is shared, so no pass needs to look for it.
        return codec.encode_document(pk) if isinstance(codec, MsgpackCodec) else codec.encode(pk)
    # Two fields may share a container, which is stored once per field in a document, and once in any other value:
    # read back, nothing is shared, and a check comes to the same bytes.
    return codec.encode([pk, codec.decode_document(*codec.encode_document(included))])


def included_values(codec: ValueCodec, slot: bool, row: Row) -> Document:
    """Return the fields that an entry of a covering index holds, as its record stores them. Raises DecodeError."""
    if not slot:
        return codec.decode_document(row.value, row.encoding, row.key)
    try:
        _, included = codec.decode(row.value, row.encoding, row.key)
        return dict(included)
    except (ValueError, TypeError) as error:
        raise _no_entry(row, "not a primary key and the included fields") from error


def slot_owner(codec: ValueCodec, live: LiveCollection, index: LiveIndex, row: Row) -> bytes:
    """Return the packed primary key of the record that holds a unique slot. Raises DecodeError."""
    return owner_in(codec, live.layout, index.definition, row)


def owner_in(codec: ValueCodec, layout: RecordLayout, definition: IndexDefinition, row: Row) -> bytes:
    """Return the result of ``slot_owner``, given the layout of the records and the definition of the index."""
    try:
        if definition.copies_record:
            owner = layout.pack_document(codec.decode_document(row.value, row.encoding, row.key))
        else:
            value = codec.decode(row.value, row.encoding, row.key)
            if definition.include:
                value, _ = value
            owner = encode_key(tuple(value))
        layout.unpack(owner)
    except (KvModelsError, ValueError, TypeError, LookupError) as error:
        raise _no_entry(row, str(error)) from error
    return owner


def _no_entry(row: Row, reason: str) -> DecodeError:
    return DecodeError(
        "an entry of a unique index does not name a record",
        key=decode_key(row.key),
        reason=reason,
        hint="Another program wrote it, or the store is damaged: run db.check(repair=True).",
    )
