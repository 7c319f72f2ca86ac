"""An engine that counts what is read from it, and SQLite's own count of the work for a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.passing_engine import CountingEngine


class Reads(NamedTuple):
    """The reads of one call."""

    calls: int
    ranges: int
    rows: int
    size: int
    commits: int


class ReadsEngine(CountingEngine):
    """Counts calls, ranges, rows and bytes that another engine hands out."""

    def reset(self) -> None:
        self.meter.reset()

    @property
    def counts(self) -> Reads:
        seen = self.meter
        return Reads(seen.reads, seen.ranges, seen.rows + seen.followed, seen.bytes, seen.commits)


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
