"""Work that a store does by itself: notice commits of other processes, sweep expired rows, and trim the change log.

Rules of this module: nothing runs while no caller waits and nothing expires. If the poll fails, the waiters are woken,
read the store themselves and get the error. If the sweep fails, it is tried again later: expired rows only take space,
because they are hidden from their deadline on. Only a waiter is a reason to sweep at once, because it learns of an
expiry by the sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, cast

from kvmodels.core.operations import format_versionstamp
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.engines.shared.waiting import RECHECK_S, Backoff, CommitSignal
from kvmodels.errors import (
    ClosedError,
    EngineTimeoutError,
    InvalidArgumentError,
    KvModelsError,
    ResumeExpiredError,
    UnsupportedError,
)

SWEEP_BATCH: Final = 500
"""Rows removed in one commit: about 5 ms on SQLite, for which writers wait."""

NEVER_MS: Final = 1 << 63

LONGEST_RETENTION_S: Final = 1e12
LONGEST_PAUSE_S: Final = 60.0
BETWEEN_BATCHES_S: Final = 0.005
PAUSE_WATCHED_S: Final = 0.02
PAUSE_S: Final = 1.0


def seconds_until(due_ms: int | None, now_ms: int, *, swept: int, watched: bool) -> float | None:
    """Seconds from one sweep to the next; None when nothing expires.

    Examples:
        >>> seconds_until(12_000, 10_000, swept=3, watched=False), seconds_until(None, 0, swept=0, watched=True)
        (2.001, None)
        >>> seconds_until(10_001, 10_000, swept=3, watched=False), seconds_until(10_001, 10_000, swept=3, watched=True)
        (1.0, 0.02)
        >>> seconds_until(9_000, 10_000, swept=SWEEP_BATCH, watched=False)
        0.005
    """
    if due_ms is None:
        return None
    if due_ms <= now_ms and swept:
        return BETWEEN_BATCHES_S
    # One millisecond more: the clock may round down, and to come too early means to come twice.
    until = (due_ms - now_ms + 1) / 1_000
    return min(LONGEST_PAUSE_S, max(until, PAUSE_WATCHED_S if watched else PAUSE_S))


def trim_slack_ms(retention_ms: int) -> int:
    """Return how long a change may stay in the log beyond its retention, so that many are removed at once."""
    return min(60_000, retention_ms // 10)


def require_sweep_limit(limit: int) -> None:
    """Refuse a limit that removes nothing. Raises InvalidArgumentError: not a positive integer."""
    given = cast("object", limit)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidArgumentError(
            "the number of rows to sweep is not positive",
            argument="limit",
            value=limit,
            hint="Give a positive integer.",
        )


def require_retention(change_log: float | timedelta | None) -> int | None:
    """The retention of a change log in whole milliseconds, rounded up; 0 for no log; None for what the store has.

    Raises InvalidArgumentError: neither a timedelta nor a number of seconds, 0 or more.

    Examples:
        >>> require_retention(0.5), require_retention(timedelta(hours=1)), require_retention(0), require_retention(None)
        (500, 3600000, 0, None)
    """
    if change_log is None:
        return None
    given = cast("object", change_log.total_seconds() if isinstance(change_log, timedelta) else change_log)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < LONGEST_RETENTION_S:
        raise InvalidArgumentError(
            "the retention of the change log must be a number of seconds",
            argument="change_log",
            value=change_log,
            hint="Give seconds or a timedelta; 0 to have no log, None to leave it as the store has it.",
        )
    return math.ceil(given * 1_000)


def without_change_log(url: str) -> UnsupportedError:
    """Return the error of reading the changes of a store that keeps no log."""
    return UnsupportedError(
        "the store keeps no change log", url=url, hint="Open it with change_log=, the seconds for which it is kept."
    )


def resume_expired(url: str, since: bytes, oldest: bytes) -> ResumeExpiredError:
    """Return the error of reading changes from before the beginning of the log."""
    return ResumeExpiredError(
        "the change log does not reach back so far",
        url=url,
        since=format_versionstamp(since),
        oldest=format_versionstamp(oldest),
    )


def require_reached(since: bytes, present: bytes) -> None:
    """Refuse a position that the store never had, as after the restore of a backup. Raises ResumeExpiredError.

    ``present`` is the last commit of the store; empty if it is not known.
    """
    if since > present:
        raise ResumeExpiredError(
            "the store has not reached this versionstamp",
            since=format_versionstamp(since),
            newest=format_versionstamp(present) if present else None,
            hint="Watch without since=, which starts with the present state. Was the store restored from a backup?",
        )


GRACE_S: Final = 1.0
"""The poll goes on for so long after the last waiter, because most waiters come back at once."""

BUSY_S: Final = 0.25
FAILED_S: Final = 60.0
LOG_LOOK_MS: Final = 60_000


class LogState(NamedTuple):
    """How long changes are kept, up to which commit they are gone, and when the oldest that is left was made."""

    retention_ms: int
    floor: int
    oldest_ms: int | None


class DueRemovals(NamedTuple):
    """Pending removals: the earliest deadline of a row, and the change log; None where there is none."""

    deadline_ms: int | None
    log: LogState | None

    @property
    def trim_ms(self) -> int | None:
        """Return the time when the oldest change may be removed from the log."""
        if self.log is None or self.log.oldest_ms is None:
            return None
        return self.log.oldest_ms + self.log.retention_ms + trim_slack_ms(self.log.retention_ms)

    @property
    def first_ms(self) -> int | None:
        """The earlier of the two."""
        return min((due for due in (self.deadline_ms, self.trim_ms) if due is not None), default=None)


class BackgroundStore(Protocol):
    """The store of background work. Reading raises ClosedError, EngineTimeoutError, DecodeError."""

    clock: EngineClock
    readonly: bool

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two looks for commits of other processes; None when no other process can commit."""
        ...

    def present_version(self) -> int:
        """The counter as the file holds it."""
        ...

    def due(self) -> DueRemovals:
        """Return the rows and changes that are due for removal."""
        ...

    def no_wait(self) -> Backoff:
        """Return a backoff that does not wait, for background work."""
        ...

    def sweep(self, limit: int, backoff: Backoff) -> int:
        """Remove expired rows in one commit; how many there were."""
        ...

    def trim_log(self, before_ms: int, backoff: Backoff) -> None:
        """Forget the changes that were made up to a time."""
        ...


class StoreBackground:
    """The waiters of one store, and the threads that serve it.

    Attributes:
        seen: the last version that this process has committed, or seen; later once a commit of this process returns.
    """

    def __init__(self, store: BackgroundStore) -> None:
        self.signal = CommitSignal()
        self._store = store
        self.seen = 0
        self._last_wanted = 0.0
        self._planned_ms = NEVER_MS
        self._missed_ms: int = NEVER_MS  # the earliest deadline for which the thread could not be started
        self._logs = False
        self._poll = BackgroundTask("poll", self._look)
        self._sweeper = BackgroundTask("sweep", self._sweep)

    def opened(self, due: DueRemovals | None = None) -> None:
        """Sweep what a file holds that was there before; ``due`` if that is known. Raises what reading raises."""
        due = due or self._store.due()
        self._logs = due.log is not None
        if due.first_ms is not None:
            self._plan(due.first_ms)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit of any process, until the returned function is called."""
        unsubscribe = self.signal.subscribe(wake)
        if self._store.poll_interval is not None:
            self._poll.schedule(self._store.poll_interval)
        if self._planned_ms != NEVER_MS:
            # The sweeper may be in a pause that only room would justify.
            due = (self._planned_ms - self._store.clock.now_ms() + 1) / 1_000
            self._sweeper.schedule(max(PAUSE_WATCHED_S, due))
        return unsubscribe

    def committed(self, version: int, earliest_ms: int | None) -> None:
        """Wake the waiters of this process for a commit of this process; ``earliest_ms`` is its first deadline."""
        self.seen = max(self.seen, version)
        self.signal.notify()
        if earliest_ms is not None:
            self._plan(earliest_ms)
        elif self._logs and self._planned_ms == NEVER_MS:
            self._plan(self._store.clock.now_ms() + LOG_LOOK_MS)  # what this commit noted is forgotten some day
        elif self._missed_ms != NEVER_MS:
            self._plan(self._missed_ms)

    def trim_log(self, backoff: Backoff) -> None:
        """Forget the changes that were kept for long enough."""
        log, now = self._store.due().log, self._store.clock.now_ms()
        if log is not None and log.oldest_ms is not None and log.oldest_ms + log.retention_ms <= now:
            self._store.trim_log(now - log.retention_ms, backoff)

    def look_soon(self) -> None:
        """Look for commits of other processes without waiting for the next time."""
        self._poll.schedule(0)

    def stop(self) -> None:
        """End the threads."""
        self._poll.stop()
        self._sweeper.stop()

    def _plan(self, due_ms: int) -> None:
        store = self._store
        if due_ms < self._planned_ms and store.clock.is_of_the_system and not store.readonly:
            due_ms = min(due_ms, self._missed_ms)
            if self._sweeper.schedule((due_ms - store.clock.now_ms() + 1) / 1_000):
                # Last, so that an interrupt leaves it unplanned rather than forgotten.
                self._planned_ms, self._missed_ms = due_ms, NEVER_MS
            else:
                self._missed_ms = due_ms

    def _look(self) -> float | None:
        now = time.monotonic()
        if self.signal.waited_for:
            self._last_wanted = now
        elif now - self._last_wanted > GRACE_S:
            return None
        try:
            version = self._store.present_version()
            if version > self.seen:
                self.seen = version
                self.signal.notify()
                # The writer may be killed before it sweeps.
                deadline_ms = self._store.due().deadline_ms
                if deadline_ms is not None:
                    self._plan(deadline_ms)
        except KvModelsError:
            self.signal.notify()
            return RECHECK_S
        return self._store.poll_interval

    def _sweep(self) -> float | None:
        store = self._store
        try:
            # From here on a commit plans its own deadline again; what was planned before is read from the file.
            self._planned_ms = NEVER_MS
            due = store.due()
            now = store.clock.now_ms()
            swept = 0
            if due.deadline_ms is not None and due.deadline_ms <= now:
                swept = store.sweep(SWEEP_BATCH, store.no_wait())
            if due.log is not None and due.trim_ms is not None and due.trim_ms <= now:
                store.trim_log(now - due.log.retention_ms, store.no_wait())
            due = store.due()
        except ClosedError:
            return None
        except EngineTimeoutError:
            return BUSY_S
        except KvModelsError:
            return FAILED_S
        if due.first_ms is not None:
            self._planned_ms = min(self._planned_ms, due.first_ms)
        return seconds_until(due.first_ms, now, swept=swept, watched=self.signal.waited_for)
