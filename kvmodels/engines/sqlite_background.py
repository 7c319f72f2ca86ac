"""What an SQLite store does by itself: it looks for commits of other processes while somebody waits for one.

Rules of this module: nothing runs while nobody waits. An error is left to those who wait: they are woken, ask the
store themselves and get it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from kvmodels.engines import sqlite_statements as statements
from kvmodels.engines.background import BackgroundTask
from kvmodels.engines.signals import RECHECK_S, CommitSignal
from kvmodels.errors import KvModelsError

__all__ = ["BackgroundStore", "SqliteBackground"]

T = TypeVar("T")

GRACE_S: Final = 1.0
"""The poll goes on for so long after the last waiter, because most waiters come back at once."""


class BackgroundStore(Protocol):
    """What is needed of the store."""

    @property
    def in_memory(self) -> bool:
        """Whether no other process can commit."""
        ...

    @property
    def options(self) -> Any:
        """Has ``poll_interval``."""
        ...

    def reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work on a reading connection."""
        ...


class SqliteBackground:
    """The waiters of one store, and the thread that serves them.

    Args:
        store: shares its life with this object.
    """

    def __init__(self, store: BackgroundStore) -> None:
        self.signal = CommitSignal()
        self._store = store
        self._seen = 0
        self._last_wanted = 0.0
        self._poll = BackgroundTask("poll", self._look)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit of any process, until the returned function is called."""
        unsubscribe = self.signal.subscribe(wake)
        if not self._store.in_memory:
            self._poll.schedule(self._store.options.poll_interval)
        return unsubscribe

    def present_version(self) -> int:
        """The counter as the file holds it. Raises ClosedError, EngineTimeoutError, DecodeError."""
        return self._store.reading(statements.pinned_state)[0]

    def committed(self, version: int) -> None:
        """Wake the waiters of this process for a commit of this process."""
        self._seen = max(self._seen, version)
        self.signal.notify()

    def stop(self) -> None:
        """End the thread."""
        self._poll.stop()

    def _look(self) -> float | None:
        now = time.monotonic()
        if self.signal.waited_for:
            self._last_wanted = now
        elif now - self._last_wanted > GRACE_S:
            return None
        try:
            version = self.present_version()
        except KvModelsError:
            self.signal.notify()
            return RECHECK_S
        if version > self._seen:
            self._seen = version
            self.signal.notify()
        interval: float = self._store.options.poll_interval
        return interval
