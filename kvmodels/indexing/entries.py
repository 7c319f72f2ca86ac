"""What one record has in one index: the keys of its entries, what they hold, and whether the index can hold it at all.

Rules of this module: pure; an entry is a function of the stored document, of the key of its record, and of nothing
else, so that the write compiler, a build and a check all come to the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import EntryKey, EntryLayout
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import Row
from kvmodels.errors import DecodeError, InvalidValueError, KvModelsError, OperationTooLargeError
from kvmodels.indexing.aggregates import contribution
from kvmodels.schema.definition.definition import Document

RAW_BYTES = 3
"""Encoding number of raw bytes; a pointer entry has the empty value."""

NOTHING_HELD = (b"", RAW_BYTES)
"""The value of an entry whose key names its record, and its encoding."""


class _Stored(Protocol):
    """A record as it is stored: its packed primary key, its document, and the bytes of that."""

    @property
    def pk(self) -> bytes: ...
    @property
    def new_document(self) -> Document | None: ...
    @property
    def value(self) -> bytes: ...
    @property
    def encoding(self) -> int: ...


def entry_keys(index: LiveIndex, document: Document | None, pk: bytes) -> tuple[EntryKey, ...]:
    """The keys that a document has in an index; none when it stores no value for a column yet.

    Raises:
        InvalidValueError: a column value cannot be a key part; the field is named.
    """
    if document is None or not index.layout.covers(document):
        return ()
    return index.layout.keys(document, pk)


def require_fan_out(live: LiveCollection, index: LiveIndex, size: int) -> None:
    """Refuse a record with more entries, or groups of counters, than its index allows.

    Raises:
        OperationTooLargeError: with ``limit="max_fan_out"`` and the index.
    """
    maximum = index.definition.max_fan_out
    if size > maximum:
        raise OperationTooLargeError(
            "a record has more distinct values than its index takes",
            limit="max_fan_out",
            size=size,
            maximum=maximum,
            index=f"{live.schema.collection}.{index.stored.name}",
            hint="Store fewer values in the record, or declare the index with a higher max_fan_out.",
        )


def misfit(
    index: LiveIndex, document: Document, pk: bytes, max_key_bytes: int, expire_at: int | None = None
) -> str | None:
    """Why an index cannot hold a document, as the kind of a violation; None when it can.

    ``not_encodable``: a column or a sum is out of the range of its type, or is not stored; ``too_many``: more
    distinct values than ``max_fan_out``; ``too_long``: a key is longer than the engine takes; ``expires``: nothing
    would take the record out of the counters of its group when it expires.
    """
    keys: Sequence[bytes]
    if not index.layout.covers(document):
        return "not_encodable"
    try:
        if index.definition.aggregates is None:
            keys = [key for key, _ in entry_keys(index, document, pk)]
            fan_out = len(keys)
        elif expire_at is not None:
            return "expires"
        else:
            keys = list(contribution(index, document, None))
            fan_out = len(index.layout.groups(document)) if keys else 0
    except InvalidValueError:
        return "not_encodable"
    if fan_out > index.definition.max_fan_out:
        return "too_many"
    return "too_long" if any(len(key) > max_key_bytes for key in keys) else None


def entry_value(codec: ValueCodec, layout: EntryLayout, slot: bool, record: _Stored) -> tuple[bytes, int]:
    """What an entry of a record holds.

    A copy of the record; or the fields that the index includes, behind the primary key where the entry is a unique
    slot; or the primary key alone; or nothing.
    """
    if layout.definition.store == "record":
        return record.value, record.encoding
    included = None
    if layout.definition.include and record.new_document is not None:
        included = layout.included(record.new_document)
    if not slot:
        return NOTHING_HELD if included is None else codec.encode_document(included)
    pk = list(decode_key(record.pk))
    if included is None:
        return codec.encode(pk)
    # Two fields may share a container, which is stored once per field in a document, and once in any other value:
    # read back, nothing is shared, and a check comes to the same bytes.
    return codec.encode([pk, codec.decode_document(*codec.encode_document(included))])


def same_included(codec: ValueCodec, index: LiveIndex, old: Document, new: Document) -> bool:
    """Whether the entries of two documents hold the same fields with the same values.

    Both must store every field that the index includes. Bytes are compared, because ``True == 1`` in Python.
    """
    before, after = index.layout.included(old), index.layout.included(new)
    if before is None or after is None:
        return before is after
    return codec.encode_document(before) == codec.encode_document(after)


def included_values(codec: ValueCodec, slot: bool, row: Row) -> Document:
    """The fields that an entry of a covering index holds, as its record stores them.

    Raises:
        DecodeError: the row is not an entry of this index.
    """
    if not slot:
        return codec.decode_document(row.value, row.encoding, row.key)
    try:
        _, included = codec.decode(row.value, row.encoding, row.key)
        return dict(included)
    except (ValueError, TypeError) as error:
        raise _no_entry(row, "not a primary key and the included fields") from error


def slot_owner(codec: ValueCodec, live: LiveCollection, index: LiveIndex, row: Row) -> bytes:
    """The packed primary key of the record that holds a unique slot.

    Raises:
        DecodeError: the row is not a slot of this index.
    """
    try:
        if index.definition.store == "record":
            owner = live.layout.pack_document(codec.decode_document(row.value, row.encoding, row.key))
        else:
            value = codec.decode(row.value, row.encoding, row.key)
            if index.definition.include:
                value, _ = value
            owner = encode_key(tuple(value))
        live.layout.unpack(owner)
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
