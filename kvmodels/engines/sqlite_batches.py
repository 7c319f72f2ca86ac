"""A large operation of new rows in an SQLite store, without asking beforehand whether their keys are free.

A batch of new records checks that the keys of records and slots are absent, and sets them. SQLite finds each key twice
then, the second time to insert it, and an insert says by itself that a key is taken.

Rules of this module: only for the first operation of a transaction. When a key of it is taken, the transaction is
rolled back, with nothing lost but this operation, and carried out anew by ``SqliteTransaction``, which finds out what
is in the way. Every other check is made before anything is written, and whatever else does not hold is left to it.
"""

from __future__ import annotations

import sqlite3
from operator import itemgetter
from typing import Any, Final

from kvmodels.engines import sqlite_statements as statements
from kvmodels.engines.clock import EngineClock
from kvmodels.engines.sqlite_commits import SqliteTransaction
from kvmodels.operations import AtomicWrite, Committed, Removal

__all__ = ["LARGE", "RowInTheWayError", "SqliteBatchTransaction"]

LARGE: Final = 64
"""Checks of an operation from which on it is large: to insert in two statements costs as much as to look for two."""

INSERT = "INSERT INTO kv (k, v, e, s) VALUES (?, ?, ?, ?)"

_key_of: Final = itemgetter(0)


class RowInTheWayError(Exception):
    """A key that should be free is taken; internal: the transaction is carried out again the clear way."""


class SqliteBatchTransaction(SqliteTransaction):
    """What a group uses whose first operation is large; the arguments are those of ``SqliteTransaction``."""

    __slots__ = ("_fresh", "_is_first")

    def __init__(self, connection: sqlite3.Connection, clock: EngineClock) -> None:
        super().__init__(connection, clock)
        self._fresh: list[statements.StoredRow] = []
        self._is_first = True

    def evaluate(self, write: AtomicWrite | Removal) -> Any:
        """Judge an operation; see ``SqliteTransaction``. Keys that must be free are looked at by ``apply``."""
        evaluated = None
        if self._is_first and isinstance(write, AtomicWrite):
            evaluated = self._without_looking(write)
        self._is_first = False
        return super().evaluate(write) if evaluated is None else evaluated

    def _without_looking(self, write: AtomicWrite) -> statements.Evaluated | None:
        """What ``apply`` stores besides the rows whose keys must be free; None where the clear way has to look."""
        checks, mutations = write
        free = {check[0] for check in checks if check[1] is None}
        if len(free) < LARGE:
            return None
        others = [check for check in checks if check[1] is not None]
        version, now, failed = statements.judge(self._connection, others, self._clock)
        rows = None if failed else statements.plain_rows(mutations, version)
        if rows is None:
            return None
        fresh = [row for key in free if (row := rows.pop(key, None)) is not None]
        if len(fresh) < len(free):
            return None  # one is checked and not set
        fresh.sort(key=_key_of)
        self._fresh, self._seen_ms = fresh, now
        return statements.of_plain_rows(version, rows)

    def apply(self, evaluated: statements.Evaluated) -> Committed:
        """Write what was evaluated last.

        Raises:
            RowInTheWayError: a key is taken that should be free.
            sqlite3.Error: the transaction cannot go on.
        """
        committed = super().apply(evaluated)
        fresh, self._fresh = self._fresh, []
        if fresh:
            try:
                self._connection.executemany(INSERT, statements.bound(fresh))
            except sqlite3.IntegrityError as error:
                raise RowInTheWayError from error
        return committed
