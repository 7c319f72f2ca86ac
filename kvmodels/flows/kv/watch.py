"""Watches: the present state first, then changes in commit order; several changes of a key may be combined.

Rules of this module: between two calls of ``following`` nothing is open and nothing is queued, so a slow consumer costs
nothing and gets the last state of every key. Each wait is for a commit after the versionstamp of the last snapshot, so
no change is missed in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from kvmodels.core.keys import Key, key_range, key_successor
from kvmodels.core.operations import Entry, ReadRange, Row, format_versionstamp, point
from kvmodels.errors import ClosedError, EngineTimeoutError, InvalidArgumentError, OperationTooLargeError
from kvmodels.flows.arguments import KEYS_HINT, items_of, versionstamp_of
from kvmodels.flows.effects import Flow, Settle, WaitForKeys, now, read, read_changes, sleep, wait_for_commit
from kvmodels.flows.kv.leases import POLL_S, tells_of_changes
from kvmodels.flows.kv.operations import check_read_size
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits, Traits

T = TypeVar("T")

BATCH: Final = 500
"""The minimum number of entries in a delivery, if there are so many; the changes of one commit are never split."""

SLICE_S: Final = 1.0
"""The longest wait in seconds, after which a watch notices that another thread has closed it."""

_LONGEST_S: Final = 1e9
"""About 30 years, in place of a longer timeout, such as an int that is too large for a float."""

SHORTEST_WAIT_S: Final = 0.002
"""If the system clock was set back, the engine's clock stands still, possibly just before a deadline."""


def watching(
    form: StoreFormat,
    monotonic: Callable[[], float],
    *,
    keys: Iterable[Key] | None,
    prefix: Key | None,
    since: str | None,
    timeout: float | None,
) -> Watch[Entry]:
    """Check the arguments of ``watch``, and return the new watch."""
    seconds = timeout_of(timeout)
    if (keys is None) == (prefix is None):
        raise InvalidArgumentError(
            "a watch needs keys or a prefix, and not both",
            argument="keys" if keys is None else "prefix",
            hint="Write watch([key, ...]) or watch(prefix=(...)).",
        )
    if prefix is not None:
        return PrefixWatch(form, prefix, position_of(since), (seconds, monotonic))
    assert keys is not None  # exactly one is given
    if since is not None:
        raise InvalidArgumentError(
            "a watch of keys takes no since=, because it begins with their present state",
            argument="since",
            value=since,
            hint="Leave since= out: nothing can be missed. It is for a prefix.",
        )
    return KeyWatch(form, keys, (seconds, monotonic))


def timeout_of(timeout: object) -> float:
    """Return a timeout in seconds; None is no limit. Raises InvalidArgumentError."""
    if timeout is None:
        return float("inf")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidArgumentError(
            "the timeout must be a number of seconds",
            argument="timeout",
            value=timeout,
            hint="Give 0 or more seconds, or None to wait without a limit.",
        )
    return min(timeout, _LONGEST_S)


def position_of(since: object) -> bytes | None:
    """Return the versionstamp to resume after; None to begin with the present state. Raises InvalidArgumentError."""
    if since is None:
        return None
    hint = "Pass the versionstamp of a watch, a snapshot or a commit."
    return versionstamp_of("since", since, expected="20 hexadecimal digits or None", hint=hint)


class Watch(ABC, Generic[T]):
    """Base class of both kinds of watch: how long they wait, and when they end.

    ``limits_within``: returns the limits of its keys, given those of the engine. ``timeout``: the seconds without a
    change after which the watch ends; measured by a monotonic clock.
    """

    def __init__(self, limits_within: Callable[[Limits], Limits], timeout: tuple[float, Callable[[], float]]) -> None:
        self._limits_within = limits_within
        self._timeout, self._monotonic = timeout
        self._begun = False
        self._ended = False
        self._seen = b""
        self._deadline: int | None = None
        self._watched: tuple[bytes, ...] = ()
        """The keys that are all that is watched; empty for a range."""
        self._notice = 0
        """The answer to the last wait for these keys."""

    @property
    @abstractmethod
    def versionstamp(self) -> str | None:
        """The commit up to which every change was delivered; None if it is not known."""

    @abstractmethod
    def _look(self, limits: Limits) -> Flow[list[T] | None]:
        """Return entries to deliver, or None if nothing has changed; sets ``_seen`` to the snapshot that was read."""

    def end(self) -> None:
        """End the deliveries."""
        self._ended = True

    def following(self, engine_limits: Limits, traits: Traits, *, reports_keys: bool = False) -> Flow[list[T] | None]:
        """Return the next entries; None at the end: the store was closed, or nothing has changed within the timeout.

        If the engine reports neither commits nor, with ``wait_for_keys``, changes of keys, it is read every ``POLL_S``
        seconds. Raises UnsupportedError: the engine cannot report the changes of a prefix; ClosedError: the store was
        closed before the watch began, or the process was forked.
        """
        limits = self._limits_within(engine_limits)
        give_up = self._monotonic() + self._timeout
        try:
            while not self._ended:
                found = yield from self._look(limits)
                if found is not None:
                    self._begun = True
                    return found
                if tells_of_changes(traits):
                    wait = self._wait_for_commit
                else:
                    wait = self._wait_for_keys if reports_keys and self._watched else _pause
                yield from self._wait(give_up, wait)
        except ClosedError as error:
            if not self._begun or error.reason == "forked":
                raise
            self._ended = True
        return None

    def _wait(self, give_up: float, wait: Callable[[float], Flow[bool]]) -> Flow[None]:
        """Wait until something may have changed; end when the time is over.

        ``wait``: waits for so many seconds at most, and returns whether something may have changed.
        """
        due = float("inf")
        if self._deadline is not None:
            # One extra millisecond: the engine's clock may have been rounded down.
            expires_in = (self._deadline - (yield from now()) + 1) / 1_000
            due = self._monotonic() + max(expires_in, SHORTEST_WAIT_S)
        while not self._ended:
            at = self._monotonic()
            if at >= give_up:
                self._ended = True
            if at >= min(due, give_up) or (yield from wait(min(SLICE_S, due - at, give_up - at))):
                return

    def _is_durable(self, versionstamp: bytes) -> Flow[bool]:
        """Wait until a state may be delivered; false if it has to be read again, such as after a crash."""
        try:
            durable: bool = yield Settle(versionstamp)
        except EngineTimeoutError:
            return False  # the disk does not answer; the watch waits on, for the state that is then the newest
        return durable

    def _wait_for_commit(self, seconds: float) -> Flow[bool]:
        return (yield from wait_for_commit(self._seen, seconds)) > self._seen

    def _wait_for_keys(self, seconds: float) -> Flow[bool]:
        before = self._notice
        self._notice = yield WaitForKeys(self._watched, before, seconds)
        return self._notice != before


def _pause(seconds: float) -> Flow[bool]:
    """Wait for the next of the regular reads."""
    yield from sleep(min(POLL_S, seconds))
    return True


class KeyWatch(Watch[Entry]):
    """Delivers all keys whenever one of them was written, removed, or has expired."""

    def __init__(self, form: StoreFormat, keys: Iterable[Key], timeout: tuple[float, Callable[[], float]]) -> None:
        super().__init__(form.limits_within, timeout)
        self._form = form
        self._keys = [form.pack_key(key) for key in items_of("keys", keys, KEYS_HINT)]
        self._watched = tuple(self._keys)
        self._last: list[bytes | None] | None = None
        self._delivered: bytes | None = None
        self._ended = not self._keys

    @property
    def versionstamp(self) -> str | None:
        """The last delivered snapshot; None before the first, and on engines without versioned reads."""
        return format_versionstamp(self._delivered) if self._delivered else None

    def _look(self, limits: Limits) -> Flow[list[Entry] | None]:
        if self._last is None:
            self._check_sizes(limits)
        while True:
            found = yield from read([point(key) for key in self._keys])
            self._seen = found.versionstamp
            present = [rows[0].versionstamp if rows else None for rows in found.ranges]
            deadlines = [row.expire_at for rows in found.ranges for row in rows if row.expire_at is not None]
            self._deadline = min(deadlines, default=None)
            if present == self._last:
                return None
            if (yield from self._is_durable(found.versionstamp)):
                break
        self._last, self._delivered = present, found.versionstamp
        return [self._form.entry_at(key, rows) for key, rows in zip(self._keys, found.ranges, strict=True)]

    def _check_sizes(self, limits: Limits) -> None:
        for key in self._keys:
            check_read_size(len(key) + 1, limits, self._form.unpack_key(key))
        if len(self._keys) > limits.max_ranges:
            raise OperationTooLargeError(
                "too many keys in one watch",
                limit="max_ranges",
                size=len(self._keys),
                maximum=limits.max_ranges,
                limits=limits.whose("max_ranges"),
                hint="Watch them in several calls, each of which delivers one state of its keys; or watch their "
                "prefix, on an engine that has a change log.",
            )


class RangeWatch(Watch[T]):
    """Delivers the rows of a range, unless it resumes after a commit, and then the keys that change.

    ``since``: deliver the changes after this commit; None to begin with the present state.
    """

    def __init__(
        self,
        ends: tuple[bytes, bytes],
        since: bytes | None,
        limits_within: Callable[[Limits], Limits],
        timeout: tuple[float, Callable[[], float]],
    ) -> None:
        super().__init__(limits_within, timeout)
        self._start, self._end = ends
        self._listed_to: bytes | None = None if since is not None else self._start
        self._seen = since or b""

    @property
    def versionstamp(self) -> str | None:
        """Where another watch can resume; None while the present state is still being delivered."""
        return format_versionstamp(self._seen) if self._listed_to is None else None

    @abstractmethod
    def _listed(self, rows: Sequence[Row]) -> Flow[list[T]]:
        """Return what is delivered for rows of the present state."""

    @abstractmethod
    def _changed(self, changes: Sequence[tuple[bytes, Row | None]]) -> Flow[list[T]]:
        """Return what is delivered for keys that have changed, with their rows."""

    def _look(self, limits: Limits) -> Flow[list[T] | None]:
        check_read_size(len(self._start), limits)
        batch = min(BATCH, limits.max_read_entries)
        if self._listed_to is not None:
            return (yield from self._list(self._listed_to, batch))
        found = yield from read_changes(ReadRange(self._start, self._end, batch), self._seen)
        items = yield from self._changed([(change.key, change.row) for change in found.changes])
        self._seen = found.through  # last: after an error, the changes are delivered again
        return items if found.changes else None

    def _list(self, start: bytes, batch: int) -> Flow[list[T]]:
        yield from self._begin_listing()
        rows = yield from self._durable(ReadRange(start, self._end, batch))
        items = yield from self._listed(rows)
        self._listed_to = key_successor(rows[-1].key) if len(rows) == batch else None
        return items

    def _begin_listing(self) -> Flow[None]:
        if not self._seen:
            # Changes during the initial listing are delivered afterwards, from this position. Reading the log first
            # also detects at once that there is none.
            present = yield from wait_for_commit(b"", 0)
            yield from read_changes(ReadRange(self._start, self._end, 1), present)
            self._seen = present

    def _durable(self, one: ReadRange) -> Flow[list[Row]]:
        found = yield from read([one])
        while not (yield from self._is_durable(found.versionstamp)):
            found = yield from read([one])
        return found.ranges[0]


class PrefixWatch(RangeWatch[Entry]):
    """Delivers the entries of a prefix, unless it resumes after a commit, and then the keys that change."""

    def __init__(
        self, form: StoreFormat, prefix: Key, since: bytes | None, timeout: tuple[float, Callable[[], float]]
    ) -> None:
        low, high = key_range(prefix=prefix, start=None, end=None)
        super().__init__((form.root + low, form.root + high), since, form.limits_within, timeout)
        self._form = form

    def _listed(self, rows: Sequence[Row]) -> Flow[list[Entry]]:
        yield from ()  # a flow, as for records, whose header is read
        return [self._form.entry(row) for row in rows]

    def _changed(self, changes: Sequence[tuple[bytes, Row | None]]) -> Flow[list[Entry]]:
        yield from ()
        return [self._form.entry_at(key, () if row is None else (row,)) for key, row in changes]
