"""Requests of the data path as operations of an engine.

Rules of this module: pure. The order of the tests and the texts are those of Deno's own server, so that both refuse a
faulty request for the same reason. Here a key must also be an encoded key, because kvmodels could not list another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.base import V8_ENCODING
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import Key, decode_key, encode_key
from kvmodels.core.operations import U64_ENCODING, Apply, Arithmetic, Check, Delete, Mutation, ReadRange, Set
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    EnqueueMessage,
    MutationMessage,
    MutationType,
    SnapshotRead,
    ValueEncoding,
    WatchMessage,
)
from kvmodels.errors import InvalidKeyError
from kvmodels.ext.serve import refusals
from kvmodels.ext.serve.refusals import RequestRefusedError
from kvmodels.ext.serve.sums import NOT_U64_OPERAND, refused, v8_sum
from kvmodels.flows.kv.queue import DEFAULT_BACKOFF, LONGEST_DELAY_MS, LONGEST_INTERVAL_MS, Message, NewMessage
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits

MAX_WATCHED_KEYS: Final = 10
MAX_DEAD_LETTER_KEYS: Final = 10
MAX_INTERVALS: Final = 10
KNOWN_ENCODINGS: Final = frozenset((ValueEncoding.V8, ValueEncoding.LE64, ValueEncoding.BYTES))

_U64_KINDS: Final = {MutationType.SUM: "sum", MutationType.MIN: "min", MutationType.MAX: "max"}
_SETS: Final = (MutationType.SET, MutationType.SET_SUFFIX_VERSIONSTAMPED_KEY)
_LATEST_MS: Final = 1 << 52
"""About 140,000 years: later deadlines are refused."""


@dataclass(frozen=True, slots=True)
class RequestedWrite:
    """A checked atomic write.

    Attributes:
        checks, mutations: the operation, with the messages as the last mutations.
        written: the first parts of the keys that the client writes.
    """

    checks: tuple[Check, ...]
    mutations: tuple[Mutation, ...]
    written: frozenset[object]


def requested_ranges(message: SnapshotRead, limits: Limits) -> list[ReadRange]:
    """Return the ranges of a snapshot read. Raises RequestRefusedError."""
    if len(message.ranges) > limits.max_ranges:
        raise RequestRefusedError(400, refusals.TOO_MANY_RANGES)
    total = 0
    for one in message.ranges:
        if one.limit <= 0:
            raise RequestRefusedError(400, refusals.INVALID_LIMIT)
        if max(len(one.start), len(one.end)) > limits.max_read_key_bytes:
            raise RequestRefusedError(400, refusals.KEY_TOO_LARGE)
        total += one.limit
    if total > limits.max_read_entries:
        raise RequestRefusedError(400, refusals.TOO_MANY_ENTRIES)
    return [ReadRange(one.start, max(one.start, one.end), one.limit, one.reverse) for one in message.ranges]


def requested_keys(message: WatchMessage, limits: Limits) -> list[bytes]:
    """Return the keys of a watch. Raises RequestRefusedError."""
    if len(message.keys) > MAX_WATCHED_KEYS:
        raise RequestRefusedError(400, refusals.TOO_MANY_WATCHED)
    if any(len(key) > limits.max_key_bytes for key in message.keys):
        raise RequestRefusedError(400, refusals.KEY_TOO_LARGE)
    return list(message.keys)


class WriteReader:
    """Turns one atomic write into an operation.

    Args:
        form: the format of the store; its codec is ``V8Codec``.
        limits: the limits of Deno, within those of the engine.
        now_ms: the engine's clock.
        new_id: returns the id of a message of the queue.
    """

    __slots__ = ("_codec", "_form", "_limits", "_new_id", "_now_ms", "_size", "_written")

    def __init__(self, form: StoreFormat, limits: Limits, now_ms: int, new_id: Callable[[], str]) -> None:
        assert isinstance(form.codec, V8Codec)
        self._form = form
        self._codec = form.codec
        self._limits = limits
        self._now_ms = now_ms
        self._new_id = new_id
        self._size = 0
        self._written: set[object] = set()

    def read(self, message: AtomicWriteMessage) -> RequestedWrite:
        """Return the operation of a request. Raises RequestRefusedError."""
        limits = self._limits
        if len(message.checks) > limits.max_checks:
            raise RequestRefusedError(400, refusals.TOO_MANY_CHECKS)
        if len(message.mutations) + len(message.enqueues) > limits.max_mutations:
            raise RequestRefusedError(400, refusals.TOO_MANY_MUTATIONS)
        checks = tuple(self._check(one.key, one.versionstamp) for one in message.checks)
        mutations = [self._mutation(one) for one in message.mutations]
        mutations += [self._arrival(one) for one in message.enqueues]
        if self._size > limits.max_operation_bytes:
            raise RequestRefusedError(400, refusals.WRITE_TOO_LARGE)
        return RequestedWrite(checks, tuple(mutations), frozenset(self._written))

    def _check(self, key: bytes, versionstamp: bytes) -> Check:
        if len(key) > self._limits.max_read_key_bytes:
            raise RequestRefusedError(400, refusals.KEY_TOO_LARGE)
        self._size += len(key)
        if len(versionstamp) not in (0, 10):
            raise RequestRefusedError(400, refusals.INVALID_VERSIONSTAMP)
        return Check(key, versionstamp or None)

    def _mutation(self, message: MutationMessage) -> Mutation:
        key = message.key
        self._use_key(key)
        value = message.value
        if value is not None:
            self._use_value(value.data)
        if message.mutation_type == MutationType.DELETE:
            made: Mutation = Delete(key)
        elif value is None or message.mutation_type not in (*_SETS, *_U64_KINDS):
            raise RequestRefusedError(400, refusals.INVALID_MUTATION)
        elif value.encoding not in KNOWN_ENCODINGS:
            raise RequestRefusedError(400, refusals.INVALID_MESSAGE)
        elif value.encoding == ValueEncoding.LE64 and len(value.data) != 8:
            raise RequestRefusedError(400, refusals.INVALID_MUTATION)
        elif message.mutation_type in _SETS:
            versionstamped = message.mutation_type == MutationType.SET_SUFFIX_VERSIONSTAMPED_KEY
            made = Set(key, value.data, value.encoding, _deadline(message.expire_at_ms), versionstamped)
        else:
            made = self._combination(message, value.data, value.encoding)
        _deadline(message.expire_at_ms)  # an invalid one is refused whatever the mutation does with it
        return made

    def _combination(self, message: MutationMessage, data: bytes, encoding: int) -> Mutation:
        kind = _U64_KINDS[MutationType(message.mutation_type)]
        if encoding == U64_ENCODING:
            operand = int.from_bytes(data, "little")
            if kind == "sum":
                return Arithmetic("sum", message.key, operand)
            return Arithmetic("min" if kind == "min" else "max", message.key, operand)
        if kind != "sum":
            return Apply(message.key, refused(NOT_U64_OPERAND.format(kind)), len(data))
        return Apply(message.key, v8_sum(message, self._codec), len(data))

    def _arrival(self, message: EnqueueMessage) -> Set:
        self._use_value(message.payload)
        if len(message.keys_if_undelivered) > MAX_DEAD_LETTER_KEYS:
            raise RequestRefusedError(400, refusals.TOO_MANY_DEAD_LETTER_KEYS)
        for key in message.keys_if_undelivered:
            self._use_key(key)
        schedule = message.backoff_schedule
        if len(schedule) > MAX_INTERVALS:
            raise RequestRefusedError(400, refusals.TOO_MANY_INTERVALS)
        if any(interval > LONGEST_INTERVAL_MS for interval in schedule):
            raise RequestRefusedError(400, refusals.INTERVAL_TOO_LARGE)
        self._size += 4 * len(schedule)
        if not self._now_ms - LONGEST_DELAY_MS <= message.deadline_ms <= self._now_ms + LONGEST_DELAY_MS:
            raise RequestRefusedError(400, refusals.INVALID_DEADLINE)
        # Deno's server, too, has its default schedule where a message names none.
        backoff = schedule or tuple(round(seconds * 1000) for seconds in DEFAULT_BACKOFF)
        stored = Message(message.payload, V8_ENCODING, backoff, message.keys_if_undelivered)
        return NewMessage(self._new_id(), 0, stored).arrival(self._form, message.deadline_ms)

    def _use_key(self, key: bytes) -> None:
        if len(key) > self._limits.max_key_bytes:
            raise RequestRefusedError(400, refusals.KEY_TOO_LARGE)
        self._size += len(key)
        self._written.add(_parts(key)[0])

    def _use_value(self, data: bytes) -> None:
        if len(data) > self._limits.max_value_bytes:
            raise RequestRefusedError(400, refusals.VALUE_TOO_LARGE)
        self._size += len(data)


def _parts(packed: bytes) -> Key:
    """Return the parts of a key. Raises RequestRefusedError if it is not a key, or empty."""
    try:
        key = decode_key(packed)
    except InvalidKeyError:
        key = ()
    if not key or encode_key(key) != packed:
        raise RequestRefusedError(400, refusals.INVALID_KEY)
    return key


def _deadline(expire_at_ms: int) -> int | None:
    if expire_at_ms in (0, -1):
        return None
    if not 0 < expire_at_ms < _LATEST_MS:
        raise RequestRefusedError(400, refusals.INVALID_EXPIRE_AT)
    return expire_at_ms
