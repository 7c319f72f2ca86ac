"""Reads of single rows of an SQLite file, with few calls around the one statement, and for one turn of an event loop.

Rules of this module: None leaves the read to ``SqliteStore.reading``, which waits for a busy file and raises the right
error. A connection that is taken from the idle ones is given back, whatever happens. A read for a turn may be older by
as much as the turn has lasted, because the commit that follows checks it; but never older than a commit of this process
that has returned.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from queue import Empty
from threading import get_ident
from typing import Any, Final

from kvmodels.core.operations import Follow, Guard, PlainRow, PredictedFollow, ReadResult, Row, to_versionstamp
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.file import IDLE_CONNECTIONS, MEMORY_PATH, Connection
from kvmodels.engines.sqlite.statements import POINT
from kvmodels.engines.sqlite.store import SqliteStore


def point(
    store: SqliteStore, key: bytes, guard: Guard | None, follow: Follow | None, clock: EngineClock | None
) -> ReadResult | None:
    """Read one key, and the key that follows from it, by an idle connection of a file; None: read it with ``reading``.

    What ``reading`` does for such a read, without the calls in between, which cost as much as a third of it. What
    SQLite raises is raised as it is: the caller reads again with backoff, and is told what is wrong.
    """
    if store.path == MEMORY_PATH:
        return None
    if guard is None and follow is None and store.committer == get_ident() and not store.write_lock.locked():
        return _point_where_it_was_written(store, key, clock)
    return point_at_once(store, key, guard, follow, clock)


def point_at_once(
    store: SqliteStore, key: bytes, guard: Guard | None, follow: Follow | None, clock: EngineClock | None
) -> ReadResult | None:
    """Do the same always by an idle connection, which waits for nothing. What SQLite raises is raised as it is."""
    if store.path == MEMORY_PATH:
        return None
    try:
        connection = store.idle.get_nowait()
    except Empty:
        return None
    try:
        connection.in_call = True
        if guard is not None:
            return statements.read_guarded_point(connection, key, guard, follow, clock)
        return None if follow is not None else statements.read_point(connection, key, clock)
    finally:
        connection.in_call = False
        store.give_back(connection)


def row_at_key(
    store: SqliteStore, key: bytes, guard: Guard | None, follow: Follow | None, at_once: bool
) -> PlainRow | tuple[()] | None:
    """Return what ``SqliteEngine.row_at_key`` returns. What SQLite raises is raised as it is."""
    if guard is None and follow is None:
        statement = statements.AT_KEY
        if store.committer == get_ident() and not at_once and not store.write_lock.locked():
            with store.write_lock:  # as in _point_where_it_was_written
                if store.writer is None:
                    return None
                here = store.writer.execute(statement, (bytearray(key),)).fetchone()
            return statements.row_at_key(here, key, store.clock)
    elif guard is None or not isinstance(follow, PredictedFollow):
        return None
    else:
        asked = follow.asked
        if asked is None or asked[0] is not follow.guess or asked[1] is not guard:
            asked = follow.asked = statements.predicted_row(follow, guard)
            if asked is None:
                return None
        statement = asked[2]
    idle = store.idle  # of a private database in memory nobody puts anything there
    try:
        connection = idle.get_nowait()
    except Empty:
        return None
    try:
        connection.in_call = True
        # Of bytes Python asks first whether they are to be adapted, which takes longer than to copy them.
        found: PlainRow | None = connection.execute(statement, (bytearray(key),)).fetchone()
    finally:
        connection.in_call = False
        # What give_back does for a connection that no transaction was begun on, without the call of it.
        if connection.discarded or idle.qsize() >= IDLE_CONNECTIONS:
            store.give_back(connection)
        else:
            idle.put(connection)
    if guard is None or not isinstance(follow, PredictedFollow):
        return statements.row_at_key(found, key, store.clock)
    if found is not None:
        follow.misses = 0
    return found


def _point_where_it_was_written(store: SqliteStore, key: bytes, clock: EngineClock | None) -> ReadResult | None:
    """Read one key by the writing connection, for the thread that has committed last while no thread writes.

    A commit makes the pages that other connections keep in memory stale, all of them; a thread that reads, writes
    and reads again would fetch them again each time. Where several threads write, most reads are those of others.
    Between the look at the lock and the "with" another thread may come, whose commit is waited for then.
    """
    with store.write_lock:
        writer = store.writer
        if writer is None:
            return None
        try:
            return statements.read_point(writer, key, clock)
        except sqlite3.Error:
            return None  # the caller reads again with backoff, and is told what is wrong


_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

READS_BY_THEMSELVES: Final = 4
"""Reads of one turn before a transaction is begun for the rest: it costs as much as it saves for two or three."""


class SqliteTurnReader:
    """See the module."""

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
