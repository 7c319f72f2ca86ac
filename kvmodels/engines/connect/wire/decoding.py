"""Messages from bytes.

Rules of this module: every function raises ``WireError`` if the bytes are not such a message, and no other error.
"""

from __future__ import annotations

from kvmodels.engines.connect.wire.fields import MAX_FIELDS, Field, read_fields, read_packed, to_signed
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    AtomicWriteOutput,
    CheckMessage,
    EnqueueMessage,
    KvEntry,
    KvValue,
    MutationMessage,
    ReadRangeMessage,
    ReadRangeOutput,
    SnapshotRead,
    SnapshotReadOutput,
    WatchKeyOutput,
    WatchMessage,
    WatchOutput,
)

_MASK32 = (1 << 32) - 1
_MOST_OF_PART = 100
"""The largest number of fields of a range, a check, a mutation or a message in a request, which have at most 30."""


def decode_snapshot_read(data: bytes, most: int = MAX_FIELDS) -> SnapshotRead:
    """Return the request of a snapshot read. Raises TooManyFieldsError: it has more than ``most`` fields."""
    return SnapshotRead(tuple(map(_read_range, _parts(read_fields(data, most), 1))))


def decode_snapshot_read_output(data: bytes) -> SnapshotReadOutput:
    """Return the answer to a snapshot read."""
    fields = read_fields(data)
    return SnapshotReadOutput(
        tuple(map(_read_range_output, _parts(fields, 1))),
        read_disabled=bool(_integer(fields, 2)),
        read_is_strongly_consistent=bool(_integer(fields, 4)),
        status=to_signed(_integer(fields, 8), 32),
    )


def decode_atomic_write(data: bytes, most: int = MAX_FIELDS) -> AtomicWriteMessage:
    """Return the request of an atomic write. Raises TooManyFieldsError: it has more than ``most`` fields."""
    fields = read_fields(data, most)
    return AtomicWriteMessage(
        tuple(map(_check, _parts(fields, 1))),
        tuple(map(_mutation, _parts(fields, 2))),
        tuple(map(_enqueue, _parts(fields, 3))),
    )


def decode_atomic_write_output(data: bytes) -> AtomicWriteOutput:
    """Return the answer to an atomic write."""
    fields = read_fields(data)
    return AtomicWriteOutput(to_signed(_integer(fields, 1), 32), _bytes(fields, 2), _integers(fields, 4))


def decode_watch(data: bytes, most: int = MAX_FIELDS) -> WatchMessage:
    """Return the request of a watch. Raises TooManyFieldsError: it has more than ``most`` fields."""
    parts = _parts(read_fields(data, most), 1)
    return WatchMessage(tuple(_bytes(read_fields(part, _MOST_OF_PART), 1) for part in parts))


def decode_watch_output(data: bytes) -> WatchOutput:
    """Return one frame of the answer to a watch."""
    fields = read_fields(data)
    return WatchOutput(to_signed(_integer(fields, 1), 32), tuple(map(_watch_key_output, _parts(fields, 2))))


def _read_range(data: bytes) -> ReadRangeMessage:
    fields = read_fields(data, _MOST_OF_PART)
    return ReadRangeMessage(
        _bytes(fields, 1), _bytes(fields, 2), to_signed(_integer(fields, 3), 32), bool(_integer(fields, 4))
    )


def _read_range_output(data: bytes) -> ReadRangeOutput:
    return ReadRangeOutput(tuple(_entry(read_fields(part)) for part in _parts(read_fields(data), 1)))


def _entry(fields: list[Field]) -> KvEntry:
    return KvEntry(_bytes(fields, 1), _bytes(fields, 2), to_signed(_integer(fields, 3), 32), _bytes(fields, 4))


def _check(data: bytes) -> CheckMessage:
    fields = read_fields(data, _MOST_OF_PART)
    return CheckMessage(_bytes(fields, 1), _bytes(fields, 2))


def _mutation(data: bytes) -> MutationMessage:
    fields = read_fields(data, _MOST_OF_PART)
    value = _merged(fields, 2)
    return MutationMessage(
        _bytes(fields, 1),
        None if value is None else KvValue(_bytes(value, 1), to_signed(_integer(value, 2), 32)),
        to_signed(_integer(fields, 3), 32),
        to_signed(_integer(fields, 4), 64),
        sum_min=_bytes(fields, 5),
        sum_max=_bytes(fields, 6),
        sum_clamp=bool(_integer(fields, 7)),
    )


def _enqueue(data: bytes) -> EnqueueMessage:
    fields = read_fields(data, _MOST_OF_PART)
    return EnqueueMessage(
        _bytes(fields, 1), to_signed(_integer(fields, 2), 64), tuple(_parts(fields, 3)), _integers(fields, 4)
    )


def _watch_key_output(data: bytes) -> WatchKeyOutput:
    fields = read_fields(data)
    entry = _merged(fields, 2)
    return WatchKeyOutput(bool(_integer(fields, 1)), None if entry is None else _entry(entry))


def _integer(fields: list[Field], number: int) -> int:
    found = 0
    for one, value in fields:
        if one == number and isinstance(value, int):
            found = value
    return found


def _bytes(fields: list[Field], number: int) -> bytes:
    found = b""
    for one, value in fields:
        if one == number and isinstance(value, bytes):
            found = value
    return found


def _parts(fields: list[Field], number: int) -> list[bytes]:
    return [value for one, value in fields if one == number and isinstance(value, bytes)]


def _integers(fields: list[Field], number: int) -> tuple[int, ...]:
    """Return a repeated field of unsigned integers, packed or not."""
    found: list[int] = []
    for one, value in fields:
        if one == number:
            found += [value] if isinstance(value, int) else read_packed(value)
    return tuple(value & _MASK32 for value in found)


def _merged(fields: list[Field], number: int) -> list[Field] | None:
    """Return the fields of a message that may be sent in several parts, which count as one; None if there is none."""
    parts = _parts(fields, number)
    return [field for part in parts for field in read_fields(part)] if parts else None
