"""Messages as bytes.

Rules of this module: fields are written in the order of their numbers, and defaults are left out, as ``protobuf`` does.
"""

from __future__ import annotations

from kvmodels.engines.connect.wire.fields import bytes_field, integer_field, message_field, packed_field
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


def encode_snapshot_read(message: SnapshotRead) -> bytes:
    """Return the bytes of the request of a snapshot read."""
    return b"".join([message_field(1, _read_range(one)) for one in message.ranges])


def encode_snapshot_read_output(message: SnapshotReadOutput) -> bytes:
    """Return the bytes of the answer to a snapshot read."""
    made = [message_field(1, _read_range_output(one)) for one in message.ranges]
    made += (
        integer_field(2, message.read_disabled),
        integer_field(4, message.read_is_strongly_consistent),
        integer_field(8, message.status),
    )
    return b"".join(made)


def encode_atomic_write(message: AtomicWriteMessage) -> bytes:
    """Return the bytes of the request of an atomic write."""
    made = [message_field(1, _check(one)) for one in message.checks]
    made += [message_field(2, _mutation(one)) for one in message.mutations]
    made += [message_field(3, _enqueue(one)) for one in message.enqueues]
    return b"".join(made)


def encode_atomic_write_output(message: AtomicWriteOutput) -> bytes:
    """Return the bytes of the answer to an atomic write."""
    return (
        integer_field(1, message.status) + bytes_field(2, message.versionstamp) + packed_field(4, message.failed_checks)
    )


def encode_watch(message: WatchMessage) -> bytes:
    """Return the bytes of the request of a watch."""
    return b"".join([message_field(1, bytes_field(1, key)) for key in message.keys])


def encode_watch_output(message: WatchOutput) -> bytes:
    """Return the bytes of one frame of the answer to a watch, without its length."""
    made = [integer_field(1, message.status)]
    made += [message_field(2, _watch_key_output(one)) for one in message.keys]
    return b"".join(made)


def _read_range(message: ReadRangeMessage) -> bytes:
    return (
        bytes_field(1, message.start)
        + bytes_field(2, message.end)
        + integer_field(3, message.limit)
        + integer_field(4, message.reverse)
    )


def _read_range_output(message: ReadRangeOutput) -> bytes:
    return b"".join([message_field(1, _entry(one)) for one in message.values])


def _entry(message: KvEntry) -> bytes:
    return (
        bytes_field(1, message.key)
        + bytes_field(2, message.value)
        + integer_field(3, message.encoding)
        + bytes_field(4, message.versionstamp)
    )


def _check(message: CheckMessage) -> bytes:
    return bytes_field(1, message.key) + bytes_field(2, message.versionstamp)


def _mutation(message: MutationMessage) -> bytes:
    return b"".join(
        (
            bytes_field(1, message.key),
            b"" if message.value is None else message_field(2, _value(message.value)),
            integer_field(3, message.mutation_type),
            integer_field(4, message.expire_at_ms),
            bytes_field(5, message.sum_min),
            bytes_field(6, message.sum_max),
            integer_field(7, message.sum_clamp),
        )
    )


def _value(message: KvValue) -> bytes:
    return bytes_field(1, message.data) + integer_field(2, message.encoding)


def _enqueue(message: EnqueueMessage) -> bytes:
    made = [bytes_field(1, message.payload), integer_field(2, message.deadline_ms)]
    made += [message_field(3, key) for key in message.keys_if_undelivered]
    made.append(packed_field(4, message.backoff_schedule))
    return b"".join(made)


def _watch_key_output(message: WatchKeyOutput) -> bytes:
    entry = message.entry_if_changed
    return integer_field(1, message.changed) + (b"" if entry is None else message_field(2, _entry(entry)))
