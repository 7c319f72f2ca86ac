"""A queue: enqueue a message, take it with a lease, renew, acknowledge, redeliver it or give it up.

A message is an ordinary key, ``("__kvmodels__", "queue", ready_ms, id)``, below the part of the store that the queue
belongs to. Taking it moves it to the end of its lease, with a token of its new owner; so a message of a dead owner
becomes ready again by itself. Every later step is checked against the versionstamp of that move: once another owner has
the message, no step of the former owner has any effect. If the engine does not end leases, takers do: see
``kvmodels/flows/kv/leases.py``.

Rules of this module: it draws no random numbers, and uses only the engine's clock. Each step is one commit; after a
lost answer, the message is looked up before the step is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import Key, decode_key, encode_key, encode_part, prefix_range
from kvmodels.core.operations import AtomicWrite, Check, Committed, Delete, Mutation, ReadRange, Row, Set, point
from kvmodels.errors import CommitUnknownError, DecodeError, InvalidArgumentError
from kvmodels.flows.arguments import duration_ms, items_of
from kvmodels.flows.effects import Flow, commit, now, read
from kvmodels.flows.kv.dead_letters import note_keys
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat

DEFAULT_BACKOFF: Final = (0.1, 1.0, 5.0, 30.0, 60.0)
"""Seconds before each redelivery; Deno's schedule."""

LONGEST_DELAY_MS: Final = 30 * 24 * 3600 * 1000
LONGEST_INTERVAL_MS: Final = 3600 * 1000
MOST_INTERVALS: Final = 5
CANDIDATES: Final = 16
"""The number of ready messages among which a taker chooses after a conflict on the first one."""

OBSERVED: Final = 100
"""The number of messages at the front of the queue that takers read to find ended leases."""

ATTEMPTS: Final = 5
"""The maximum number of times that one step is sent if its answers are lost."""


class Message(NamedTuple):
    """A stored message.

    Attributes:
        value, encoding: the packed value and its encoding number.
        backoff: milliseconds before each redelivery.
        undelivered: packed keys that store the value after the last delivery.
        owner: token of its owner, None while it waits.
        lease_ms: stored only while the message has an owner, on an engine that does not end leases.
    """

    value: bytes
    encoding: int
    backoff: tuple[int, ...]
    undelivered: tuple[bytes, ...]
    owner: str | None = None
    lease_ms: int = 0

    @property
    def dead_letters(self) -> tuple[Set, ...]:
        """The mutations after the last failed delivery."""
        return tuple(Set(key, self.value, self.encoding) for key in self.undelivered)

    def pack(self, codec: ValueCodec) -> tuple[bytes, int]:
        """Return the bytes of the row and the number of their encoding."""
        content = {**self._asdict(), "backoff": list(self.backoff), "undelivered": list(self.undelivered)}
        if not self.lease_ms:
            del content["lease_ms"]
        return codec.encode(content)

    @classmethod
    def unpack(cls, codec: ValueCodec, row: Row) -> Message:
        """Return the message in a row of a queue. Raises DecodeError."""
        found: Any = codec.decode(row.value, row.encoding, row.key)
        try:
            return cls(
                found["value"],
                found["encoding"],
                tuple(found["backoff"]),
                tuple(found["undelivered"]),
                found["owner"],
                found.get("lease_ms", 0),
            )
        except (AttributeError, LookupError, TypeError):
            raise DecodeError("a row of a queue holds no message", key=decode_key(row.key)) from None


class NewMessage(NamedTuple):
    """A message to enqueue, ready ``delay_ms`` after its commit."""

    id: str
    delay_ms: int
    message: Message

    def arrival(self, form: StoreFormat, committed_ms: int) -> Set:
        """Return the mutation that puts it into the queue."""
        value, encoding = self.message.pack(form.codec)
        return Set(_message_key(form, committed_ms + self.delay_ms, self.id), value, encoding)


def new_message(
    form: StoreFormat,
    message_id: str,
    value: Any,
    *,
    delay: object = 0,
    keys_if_undelivered: Iterable[Key] = (),
    backoff_schedule: Iterable[object] | None = None,
) -> NewMessage:
    """Pack a message. Raises InvalidValueError, InvalidArgumentError, InvalidKeyError or ReservedKeyError."""
    delay_ms = duration_ms("delay", delay, longest_ms=LONGEST_DELAY_MS)
    intervals = items_of(
        "backoff_schedule",
        DEFAULT_BACKOFF if backoff_schedule is None else backoff_schedule,
        "Give a list of seconds, at most five; an empty one for no further delivery.",
    )
    if len(intervals) > MOST_INTERVALS:
        raise InvalidArgumentError(
            "the backoff schedule has too many intervals",
            argument="backoff_schedule",
            value=len(intervals),
            hint="Give 5 intervals at most.",
        )
    backoff = tuple(
        duration_ms(f"backoff_schedule[{position}]", interval, longest_ms=LONGEST_INTERVAL_MS)
        for position, interval in enumerate(intervals)
    )
    keys = items_of("keys_if_undelivered", keys_if_undelivered, "Give a list of keys.")
    undelivered = tuple(form.pack_written_key(key) for key in keys)
    data, encoding = form.codec.encode(value)
    return NewMessage(message_id, delay_ms, Message(data, encoding, backoff, undelivered))


def take_message(
    form: StoreFormat, owner: str, lease_ms: int, choose: Callable[[int], int], leases: Leases
) -> Flow[Delivery | float | None]:
    """Take a message that is ready; one read and one commit, more after conflicts.

    Returns the message; or seconds until the next message is ready; or None if there is none.
    """
    start, end = prefix_range(queue_prefix(form))
    candidates = 1 if leases.ended_by_engine else OBSERVED
    while True:
        time = yield from now()
        found = yield from read([ReadRange(start, end, candidates)])
        rows = found.ranges[0]
        due_in = _due_in(form, rows, time, leases)
        ready = [row for row, pause in zip(rows, due_in, strict=True) if pause <= 0]
        if not ready:
            return min(due_in) / 1000 if rows else None
        row = ready[choose(len(ready))]
        delivery = Delivery(form, row, owner, stores_lease=not leases.ended_by_engine)
        taken = yield from delivery.extend(lease_ms)
        if taken:
            return delivery
        # Another taker has the first one: with a choice among several, conflicts are rare.
        candidates = max(candidates, CANDIDATES)


def _due_in(form: StoreFormat, rows: list[Row], time: int, leases: Leases) -> list[int]:
    """Return milliseconds until each message may be taken."""
    due_in = [message_parts(form, row.key)[0] - time for row in rows]
    if leases.ended_by_engine:
        return due_in
    messages = [Message.unpack(form.codec, row) for row in rows]
    leases.see(row for row, message in zip(rows, messages, strict=True) if message.owner is not None)
    own_ms = leases.own_ms()
    return [
        pause if message.owner is None else leases.end_of(row, message.lease_ms) - own_ms
        for row, message, pause in zip(rows, messages, due_in, strict=True)
    ]


class _Target(NamedTuple):
    key: bytes
    owner: str | None


class Delivery:
    """A message of one owner. Its steps must not run at the same time; the facades hold a lock.

    ``row``: the message that was found; it belongs to the owner once ``extend`` has returned True.
    """

    def __init__(self, form: StoreFormat, row: Row, owner: str, *, stores_lease: bool = False) -> None:
        self._form = form
        self._stores_lease = stores_lease
        self._key = row.key
        self._versionstamp = row.versionstamp
        self._message = Message.unpack(form.codec, row)._replace(owner=owner)
        _, self._id = message_parts(form, row.key)

    @property
    def key(self) -> bytes:
        """The present packed key of the message."""
        return self._key

    def value(self) -> Any:
        """Return the value of the message. Raises DecodeError if another codec has packed it."""
        return self._form.codec.decode(self._message.value, self._message.encoding, self._key)

    def extend(self, lease_ms: int) -> Flow[bool]:
        """Take the message, or keep it, for this time from now on; return False if another owner has it."""
        time = yield from now()
        stored_ms = lease_ms if self._stores_lease else 0
        return (yield from self._move(time + lease_ms, self._message._replace(lease_ms=stored_ms)))

    def acknowledge(self) -> Flow[bool]:
        """Remove the message; return False, without any effect, if another owner has it."""
        return (yield from self._commit((Delete(self._key),), None))

    def put_back(self, delay_s: float) -> Flow[bool]:
        """Put the message back unhandled after a delay, without using up a delivery; return False if it was lost."""
        time = yield from now()
        return (yield from self._move(time + round(delay_s * 1000), self._message._replace(owner=None, lease_ms=0)))

    def fail(self) -> Flow[float | None]:
        """Put the message back by its schedule, or store it under ``keys_if_undelivered`` after the last delivery.

        The last step takes two commits, of which the first one notes the keys for ``dead_letters()``.

        Returns seconds until it is ready again; None if it was given up, or if another owner has it.
        """
        backoff = self._message.backoff
        if not backoff:
            if self._message.undelivered:
                value = self._message.value, self._message.encoding
                yield from note_keys(self._form, self._id, self._message.undelivered, value, owned=self._owned())
            yield from self._commit((Delete(self._key), *self._message.dead_letters), None)
            return None
        time = yield from now()
        message = self._message._replace(backoff=backoff[1:], owner=None, lease_ms=0)
        moved = yield from self._move(time + backoff[0], message)
        return backoff[0] / 1000 if moved else None

    def _move(self, ready_ms: int, message: Message) -> Flow[bool]:
        value, encoding = message.pack(self._form.codec)
        key = _message_key(self._form, ready_ms, self._id)
        return (yield from self._commit((Delete(self._key), Set(key, value, encoding)), _Target(key, message.owner)))

    def _commit(self, mutations: tuple[Mutation, ...], target: _Target | None) -> Flow[bool]:
        """Apply one step if the message has not moved since the last one; return whether it was applied."""
        write = AtomicWrite((self._owned(),), mutations)
        unknown: CommitUnknownError | None = None
        for _ in range(ATTEMPTS):
            try:
                outcome = yield from commit(write)
            except CommitUnknownError as error:
                unknown = error
            else:
                if isinstance(outcome, Committed):
                    self._key = self._key if target is None else target.key
                    self._versionstamp = outcome.versionstamp
                    return True
            # Also after a conflict: a network may deliver a step twice and return the second outcome.
            applied = yield from self._look(target)
            if applied is not None:
                return applied or (target is None and unknown is not None)
        raise unknown or CommitUnknownError("every attempt of a step of a queue met a conflict")

    def _owned(self) -> Check:
        return Check(self._key, self._versionstamp)

    def _look(self, target: _Target | None) -> Flow[bool | None]:
        """Return whether a step with an unknown outcome was applied; None if it was not, or has not arrived yet."""
        found = yield from read([point(self._key)] if target is None else [point(self._key), point(target.key)])
        if any(row.versionstamp == self._versionstamp for row in found.ranges[0]):
            return None
        if target is None:
            return False
        for row in found.ranges[1]:
            if Message.unpack(self._form.codec, row).owner == target.owner:
                self._key, self._versionstamp = target.key, row.versionstamp
                return True
        return False


def queue_prefix(form: StoreFormat) -> bytes:
    """Return the packed beginning of the keys of all messages."""
    return form.root + encode_key((LIBRARY_PART, "queue"))


def _message_key(form: StoreFormat, ready_ms: int, message_id: str) -> bytes:
    return queue_prefix(form) + encode_part(ready_ms) + encode_part(message_id)


def message_parts(form: StoreFormat, key: bytes) -> tuple[int, str]:
    """Return when a message is ready, in milliseconds, and its id. Raises DecodeError for another key."""
    match decode_key(key[len(queue_prefix(form)) :]):
        case (int() as ready_ms, str() as message_id):
            return ready_ms, message_id
        case _:
            raise DecodeError("a key of a queue is not that of a message", key=decode_key(key))
