"""Reads of single rows for one turn of an event loop, in one state of an SQLite file.

Rules of this module: what is read here is checked by the commit that follows, so it may be older than the read by as
much as the turn has lasted; but never older than a commit of this process that has returned. A reader is used by one
thread, gives its connection back when it is closed, and answers None where the row must be read in another way.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any, Final, Protocol

from kvmodels.core.operations import Row, to_versionstamp
from kvmodels.engines.shared.file_background import StoreBackground
from kvmodels.engines.sqlite.file import Connection
from kvmodels.engines.sqlite.reads.statements import POINT

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

READS_BY_THEMSELVES: Final = 4
"""Reads of one turn before a transaction is begun for the rest: it costs as much as it saves for two or three."""


class TurnReaderStore(Protocol):
    """The store whose rows are read."""

    background: StoreBackground

    @property
    def in_memory(self) -> bool:
        """Whether there is one connection, which is no reader's own."""
        ...

    def borrow_at_once(self) -> list[Connection]:
        """A reading connection that is open and idle, or nothing; the caller gives it back."""
        ...

    def give_back(self, connection: Connection) -> None:
        """End a transaction that is still open, and keep the connection for the next call."""
        ...


class SqliteTurnReader:
    """See the module.

    Args:
        store: of an open engine.
    """

    __slots__ = ("_cursor", "_owned", "_reads", "_seen", "_store")

    def __init__(self, store: TurnReaderStore) -> None:
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
