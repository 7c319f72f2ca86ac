"""A state of an SQLite store that stays readable, on a connection of its own.

Rules of this module: a snapshot owns one connection from its beginning and gives it back when it is closed, when it
is too old, and before the process forks.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Sequence
from typing import Protocol, Self

from kvmodels.engines import sqlite_statements as statements
from kvmodels.engines.evaluation import to_versionstamp
from kvmodels.engines.sqlite_file import Connection
from kvmodels.engines.sqlite_store import SqliteStore
from kvmodels.errors import ClosedError, SnapshotExpiredError
from kvmodels.operations import Follow, GuardFailed, ReadRange, ReadResult

__all__ = ["SqliteHandle", "SqliteSnapshot"]


class SqliteHandle(Protocol):
    """The engine that a snapshot belongs to."""

    @property
    def url(self) -> str:
        """What was opened, for messages."""
        ...

    def check_open(self) -> SqliteStore:
        """The store of the handle, or ClosedError."""
        ...


class SqliteSnapshot:
    """A state of an SQLite store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree. The connection is its own until it is
    closed; it expires when it is too old, and when the process forks.
    """

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _connection: Connection | None = None

    def __init__(self, engine: SqliteHandle, store: SqliteStore, owned: list[Connection]) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._expired = False
        version, high_water = statements.pinned_state(owned[0])
        self._versionstamp = to_versionstamp(version)
        self._now = max(store.clock.now_ms(), high_water)
        self._expires_ms = self._now + round(store.options.snapshot_max_age * 1_000)
        store.snapshots[id(self)] = weakref.ref(self)
        self._connection = owned.pop()

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. O(log n + rows) per range.

        Raises:
            SnapshotExpiredError: it was kept open for longer than the maximum age, or the process forked.
            ClosedError: the snapshot or its engine is closed.
        """
        self._engine.check_open()
        self.expire(self._store.clock.now_ms())
        with self._lock:
            connection = self._connection
            if connection is None or connection.discarded:
                raise self._gone()
            now = statements.BEFORE_ALL_TIME if include_expired else self._now
            try:
                found = statements.read_ranges(connection, ranges, now, None, follow)
            except sqlite3.Error as error:
                raise self._store.translated(error) from error
            assert not isinstance(found, GuardFailed), "no guard was given"
            return ReadResult(found[0], found[1], self._versionstamp)

    def expire(self, now: int | None) -> None:
        """Let the connection go if the maximum age is over at ``now`` (None: in any case)."""
        if now is None or now >= self._expires_ms:
            with self._lock:
                self._expired = self._expired or self._connection is not None
                self._release()

    def close(self) -> None:
        """Let the engine forget the state; idempotent."""
        with self._lock:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        # No lock: nobody else can refer to it now, and a finalizer may run while its thread holds any lock.
        if self._connection is not None:
            self._release()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        self._store.snapshots.pop(id(self), None)
        if connection is not None:
            if self._store.in_memory:
                connection.close()
            else:
                self._store.give_back(connection)

    def _gone(self) -> ClosedError | SnapshotExpiredError:
        if self._expired or self._connection is not None:
            return SnapshotExpiredError("this snapshot is past its maximum age", url=self._engine.url)
        return ClosedError("this snapshot is closed", url=self._engine.url, reason="closed")
