"""Reads of one row of an SQLite file, with few calls around the one statement.

Rules of this module: None leaves the read to ``SqliteStore.reading``, which waits for a busy file and raises the right
error. A connection that is taken from the idle ones is given back, whatever happens.
"""

from __future__ import annotations

import sqlite3
import threading
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Protocol

from kvmodels.core.operations import Follow, Guard, PlainRow, PredictedFollow, ReadResult
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite.file import Connection
from kvmodels.engines.sqlite.reads import statements
from kvmodels.engines.sqlite.settings import MEMORY_PATH

IDLE_CONNECTIONS = 16
"""Reading connections kept open for the next call; each costs some file descriptors and up to 8 MB of cache."""


class PointStore(Protocol):
    """The store whose rows are read."""

    path: str
    clock: EngineClock
    write_lock: threading.Lock
    writer: Connection | None
    committer: int
    idle: SimpleQueue[Connection]

    def give_back(self, connection: Connection) -> None:
        """End a transaction that is still open, and keep the connection for the next call."""
        ...


def point(
    store: PointStore, key: bytes, guard: Guard | None, follow: Follow | None, clock: EngineClock | None
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
    store: PointStore, key: bytes, guard: Guard | None, follow: Follow | None, clock: EngineClock | None
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
    store: PointStore, key: bytes, guard: Guard | None, follow: Follow | None, at_once: bool
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


def _point_where_it_was_written(store: PointStore, key: bytes, clock: EngineClock | None) -> ReadResult | None:
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
