"""The messages of KV Connect's data path.

Rules of this module: fields have the names of the protocol. Numbers of enumerations are plain integers, because a peer
may send unknown ones; the enumerations here name the known ones. Versionstamps are ten bytes; absent keys have none.
"""

from __future__ import annotations

from enum import IntEnum

from kvmodels._support.slotted_dataclass import dataclass


class ReadStatus(IntEnum):
    """The status of a snapshot read or a watch."""

    UNSPECIFIED = 0
    SUCCESS = 1
    READ_DISABLED = 2


class WriteStatus(IntEnum):
    """The status of an atomic write."""

    UNSPECIFIED = 0
    SUCCESS = 1
    CHECK_FAILURE = 2
    WRITE_DISABLED = 5


class MutationType(IntEnum):
    """The kinds of mutations."""

    UNSPECIFIED = 0
    SET = 1
    DELETE = 2
    SUM = 3
    MAX = 4
    MIN = 5
    SET_SUFFIX_VERSIONSTAMPED_KEY = 9


class ValueEncoding(IntEnum):
    """The encodings of values."""

    UNSPECIFIED = 0
    V8 = 1
    LE64 = 2
    BYTES = 3


@dataclass(frozen=True, slots=True)
class ReadRangeMessage:
    """The keys ``start <= key < end``, at most ``limit``, in descending order with ``reverse``."""

    start: bytes = b""
    end: bytes = b""
    limit: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A request to read several ranges in one snapshot."""

    ranges: tuple[ReadRangeMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class KvEntry:
    """A stored key with its value."""

    key: bytes = b""
    value: bytes = b""
    encoding: int = ValueEncoding.UNSPECIFIED
    versionstamp: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadRangeOutput:
    """The entries of one requested range."""

    values: tuple[KvEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotReadOutput:
    """The answer to a ``SnapshotRead``: one output for each requested range, in the same order."""

    ranges: tuple[ReadRangeOutput, ...] = ()
    read_disabled: bool = False
    read_is_strongly_consistent: bool = False
    status: int = ReadStatus.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class CheckMessage:
    """A key that must have this versionstamp; without one, it must be absent."""

    key: bytes = b""
    versionstamp: bytes = b""


@dataclass(frozen=True, slots=True)
class KvValue:
    """The bytes of a value and the number of their encoding."""

    data: bytes = b""
    encoding: int = ValueEncoding.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class MutationMessage:
    """A change of one key.

    Attributes:
        key: the packed key, or the part of it before the versionstamp.
        value: the value to store, or the operand; a delete needs none.
        mutation_type: a ``MutationType``.
        expire_at_ms: the deadline in milliseconds since the epoch; 0 or -1 for none.
        sum_min: the smallest result of a sum, as a V8 value; empty for no bound.
        sum_max: the largest result of a sum, as a V8 value; empty for no bound.
        sum_clamp: whether a result outside the bounds is set to the nearer one, instead of being refused.
    """

    key: bytes = b""
    value: KvValue | None = None
    mutation_type: int = MutationType.UNSPECIFIED
    expire_at_ms: int = 0
    sum_min: bytes = b""
    sum_max: bytes = b""
    sum_clamp: bool = False


@dataclass(frozen=True, slots=True)
class EnqueueMessage:
    """A message for a queue.

    Attributes:
        payload: the message as a V8 value.
        deadline_ms: the time of its delivery in milliseconds since the epoch.
        keys_if_undelivered: the keys that get the message after the last failed delivery.
        backoff_schedule: the milliseconds before each further delivery.
    """

    payload: bytes = b""
    deadline_ms: int = 0
    keys_if_undelivered: tuple[bytes, ...] = ()
    backoff_schedule: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AtomicWriteMessage:
    """A request to make checks, and if all pass, to apply mutations and to add messages to the queue."""

    checks: tuple[CheckMessage, ...] = ()
    mutations: tuple[MutationMessage, ...] = ()
    enqueues: tuple[EnqueueMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class AtomicWriteOutput:
    """The answer to an ``AtomicWriteMessage``; a server may leave ``failed_checks``, a list of positions, empty."""

    status: int = WriteStatus.UNSPECIFIED
    versionstamp: bytes = b""
    failed_checks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """A request to watch some keys."""

    keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchKeyOutput:
    """Whether a watched key changed, and its entry then; None if the key is absent."""

    changed: bool = False
    entry_if_changed: KvEntry | None = None


@dataclass(frozen=True, slots=True)
class WatchOutput:
    """One frame of the answer to a ``WatchMessage``, with the watched keys in the order of the request."""

    status: int = ReadStatus.UNSPECIFIED
    keys: tuple[WatchKeyOutput, ...] = ()
