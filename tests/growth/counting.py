"""An engine that counts what is read from it, and SQLite's own count of the work for a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.passing_engine import PassingEngine


class Reads(NamedTuple):
    """The reads of one call."""

    calls: int
    ranges: int
    rows: int
    size: int
    commits: int


class CountingEngine(PassingEngine):
    """Counts calls, ranges, rows and bytes that another engine hands out."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.reset()

    def reset(self) -> None:
        self.calls = self.ranges = self.rows = self.size = self.commits = 0

    @property
    def counts(self) -> Reads:
        return Reads(self.calls, self.ranges, self.rows, self.size, self.commits)

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.calls += 1
        self.ranges += len(ranges) + (guard is not None)
        result = self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)
        assert isinstance(result, ReadResult)
        for rows in (*result.ranges, *result.followed):
            self._count(rows)
        self.ranges += len(result.followed)
        return result

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self.calls += 1
        self.ranges += len(ranges) + (guard is not None)
        return self.inner.count(ranges, guard)

    def _count(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:  # of an entry with a record behind it perhaps nothing but the key
            self.rows += 1
            self.size += len(row[0]) + (len(row[1]) if len(row) == 5 else 0)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.commits += 1
        return self.inner.commit(write)


@contextmanager
def virtual_machine_steps(engine: SqliteEngine, grain: int = 10) -> Iterator[list[int]]:
    """Counts the instructions that SQLite executes, in units of ``grain``: stepping over a row costs several."""
    store = engine.check_open()
    seen = [0]

    def tick() -> int:
        seen[0] += 1
        return 0

    connections: list[sqlite3.Connection] = []
    borrow = store.borrow

    def watched() -> sqlite3.Connection:
        connection = borrow()
        connection.set_progress_handler(tick, grain)
        connections.append(connection)
        return connection

    store.borrow = watched  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        store.borrow = borrow  # type: ignore[method-assign]
        for connection in connections:
            connection.set_progress_handler(None, grain)
