"""Readers of an SQLite store beside its engine: snapshots, and single rows for one turn of an event loop.

Rules of this module: a snapshot owns one connection, and gives it back when it is closed, when it is too old, and
before the process forks. A read for a turn may be older by as much as the turn has lasted, because the commit that
follows checks it; but never older than a commit of this process that has returned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from kvmodels.core.operations import Follow, GuardFailed, ReadRange, Row, to_versionstamp
from kvmodels.engines.shared.file_engine import FileSnapshot
from kvmodels.engines.shared.registry import StoreHandle
from kvmodels.engines.sqlite import counts as sqlite_counts
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.file import Connection
from kvmodels.engines.sqlite.statements import POINT
from kvmodels.engines.sqlite.store import SqliteStore

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

READS_BY_THEMSELVES: Final = 4
"""Reads of one turn before a transaction is begun for the rest: it costs as much as it saves for two or three."""


class SqliteSnapshot(FileSnapshot[Connection]):
    """A state of an SQLite store that stays readable while others write; close it soon.

    Expiry is judged at the time of its opening, so that two reads agree. The connection is its own until it is
    closed; it expires when it is too old, and when the process forks.
    """

    def __init__(self, engine: StoreHandle[Any], store: SqliteStore, owned: list[Connection]) -> None:
        super().__init__(engine, store, *statements.pinned_state(owned[0]))
        self._store = store
        self._reader = owned.pop()

    def _read(
        self, reader: Connection, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        if reader.discarded:  # the store has taken it back
            raise self._gone()
        try:
            found = statements.read_ranges(reader, ranges, now, None, follow)
        except sqlite3.Error as error:
            raise self._store.translated(error) from error
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found

    def _count(self, reader: Connection, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:
        if reader.discarded:
            raise self._gone()
        try:
            return sqlite_counts.count_ranges(reader, ranges, now, indexed=not self._store.readonly, most=most)
        except sqlite3.Error as error:
            raise self._store.translated(error) from error

    def _let_go(self, reader: Connection) -> None:
        if self._store.in_memory:
            reader.close()
        else:
            self._store.give_back(reader)


class SqliteTurnReader:
    """Reads single rows for one turn of an event loop; see the module."""

    __slots__ = ("_cursor", "_owned", "_reads", "_seen", "_store")

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._owned: list[Connection] = []
        self._cursor: sqlite3.Cursor | None = None
        self._reads = 0
        self._seen = 0

    def rows(self, key: bytes) -> list[Row] | None:
        """The row of a key, expired or not; None: read it in another way, which also says what is wrong."""
        cursor = self._cursor
        if cursor is None or self._seen != self._store.background.seen:
            cursor = self._begin()
            if cursor is None:
                return None
        connection = self._owned[0]
        try:
            connection.in_call = True
            found = cursor.execute(POINT, (bytearray(key),)).fetchall()
        except sqlite3.Error:
            self.close()
            return None
        finally:
            connection.in_call = False
        if not found:
            return []
        value, encoding, version, expire_at = found[0]
        return [_new(Row, (key, value, encoding, to_versionstamp(version), expire_at))]

    def _begin(self) -> sqlite3.Cursor | None:
        """Begin to read the present state, if enough is read to make up for it."""
        self._reads += 1
        if self._reads <= READS_BY_THEMSELVES or self._store.in_memory:
            return None
        seen = self._store.background.seen  # first: a commit that comes in between is a later one
        try:
            self._owned = self._owned or self._store.borrow_at_once()
            if not self._owned:
                return None
            connection = self._owned[0]
            connection.rollback()
            connection.execute("BEGIN")
        except sqlite3.Error:
            self.close()
            return None
        self._cursor = connection.cursor()
        self._seen = seen
        return self._cursor

    def close(self) -> None:
        """Give back what was used; may be called again."""
        self._cursor = None
        while self._owned:
            with suppress(sqlite3.Error):  # it cannot be used again then, and nothing holds it any more
                self._store.give_back(self._owned[0])
            self._owned.pop()
