"""A state of an SQLite store that stays readable, on a connection of its own.

Rules of this module: a snapshot owns one connection from its beginning and gives it back when it is closed, when it
is too old, and before the process forks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from kvmodels.core.operations import Follow, GuardFailed, ReadRange, Row
from kvmodels.engines.shared.file_snapshot import FileSnapshot, SnapshotHandle
from kvmodels.engines.sqlite.file import Connection
from kvmodels.engines.sqlite.reads import counts as sqlite_counts
from kvmodels.engines.sqlite.reads import statements
from kvmodels.engines.sqlite.store import SqliteStore


class SqliteSnapshot(FileSnapshot[Connection]):
    """A state of an SQLite store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree. The connection is its own until it is
    closed; it expires when it is too old, and when the process forks.
    """

    def __init__(self, engine: SnapshotHandle, store: SqliteStore, owned: list[Connection]) -> None:
        super().__init__(engine, store, *statements.pinned_state(owned[0]))
        self._store = store
        self._reader = owned.pop()

    def _read(
        self, reader: Connection, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        try:
            found = statements.read_ranges(reader, ranges, now, None, follow)
        except sqlite3.Error as error:
            raise self._store.translated(error) from error
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found

    def _count(self, reader: Connection, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:
        try:
            return sqlite_counts.count_ranges(reader, ranges, now, indexed=not self._store.readonly, most=most)
        except sqlite3.Error as error:
            raise self._store.translated(error) from error

    def _let_go(self, reader: Connection) -> None:
        if self._store.in_memory:
            reader.close()
        else:
            self._store.give_back(reader)

    def _is_lost(self, reader: Connection) -> bool:
        return reader.discarded
