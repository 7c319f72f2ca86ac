"""What a store in a file does by itself: it looks for commits of other processes, and sweeps what has expired.

Rules of this module: nothing runs while nobody waits and nothing expires. Errors of the poll are left to those who
wait: they are woken, ask the store themselves and get it. Errors of the sweep cost nothing but room, since expired
rows are hidden: it is tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kvmodels.engines.shared.background import BackgroundTask
from kvmodels.engines.shared.busy_timeout import Backoff
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.commit_signal import RECHECK_S, CommitSignal
from kvmodels.engines.shared.expiry import NEVER_MS, PAUSE_WATCHED_S, SWEEP_BATCH, seconds_until, trim_slack_ms
from kvmodels.errors import ClosedError, EngineTimeoutError, KvModelsError

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
    """What waits to be removed: the earliest deadline of a row, and the change log, None where there is none."""

    deadline_ms: int | None
    log: LogState | None

    @property
    def trim_ms(self) -> int | None:
        """When the oldest change may be forgotten."""
        if self.log is None or self.log.oldest_ms is None:
            return None
        return self.log.oldest_ms + self.log.retention_ms + trim_slack_ms(self.log.retention_ms)

    @property
    def first_ms(self) -> int | None:
        """The earlier of the two."""
        return min((due for due in (self.deadline_ms, self.trim_ms) if due is not None), default=None)


class BackgroundStore(Protocol):
    """What is needed of the store. Reading raises ClosedError, EngineTimeoutError, DecodeError."""

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
        """What waits to be removed."""
        ...

    def no_wait(self) -> Backoff:
        """For work that nobody waits for: it gives way to every other process."""
        ...

    def sweep(self, limit: int, backoff: Backoff) -> int:
        """Remove expired rows in one commit; how many there were."""
        ...

    def trim_log(self, before_ms: int, backoff: Backoff) -> None:
        """Forget the changes that were made up to a time."""
        ...


class StoreBackground:
    """The waiters of one store, and the threads that serve it.

    Args:
        store: shares its life with this object.
    """

    def __init__(self, store: BackgroundStore) -> None:
        self.signal = CommitSignal()
        self._store = store
        self._seen = 0
        self._last_wanted = 0.0
        self._planned_ms = NEVER_MS
        self._missed_ms: int = NEVER_MS  # the earliest deadline for which the thread could not be started
        self._logs = False
        self._poll = BackgroundTask("poll", self._look)
        self._sweeper = BackgroundTask("sweep", self._sweep)

    @property
    def seen(self) -> int:
        """The last version that this process has committed, or seen; later once a commit of this process returns."""
        return self._seen

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
        self._seen = max(self._seen, version)
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
            if version > self._seen:
                self._seen = version
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
