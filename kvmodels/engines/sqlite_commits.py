"""The operations of one write transaction of an SQLite store, one after the other.

Rules of this module: an operation is evaluated by reads and written by at most two statements; a number is drawn when
an operation is evaluated and used by the first that is not refused, so a refused commit uses none. The transaction is
begun and ended by the store.
"""

from __future__ import annotations

import sqlite3

from kvmodels.engines import sqlite_statements as statements
from kvmodels.engines.clock import EngineClock
from kvmodels.engines.evaluation import to_versionstamp
from kvmodels.operations import AtomicWrite, Committed, Conflict

__all__ = ["SqliteTransaction"]


class SqliteTransaction:
    """What a group uses while the store holds a write transaction.

    Args:
        connection: inside ``BEGIN IMMEDIATE``.
        clock: decides on deadlines; each operation sees the time of its own evaluation.

    Attributes:
        version: of the last operation that was written; None while there is none.
        earliest_ms: the first deadline that was written, or None.
    """

    __slots__ = ("_clock", "_connection", "_drawn", "earliest_ms", "version")

    def __init__(self, connection: sqlite3.Connection, clock: EngineClock) -> None:
        self._connection = connection
        self._clock = clock
        self._drawn = False
        self.version: int | None = None
        self.earliest_ms: int | None = None

    def evaluate(self, write: AtomicWrite) -> statements.Evaluated | Conflict:
        """Judge an operation against the transaction, earlier operations included; nothing is written.

        Raises:
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer.
            sqlite3.Error: the transaction cannot go on.
        """
        connection, clock = self._connection, self._clock
        draw = statements.same_version if self._drawn else statements.next_version
        version, now = draw(connection, clock.now_ms())
        self._drawn = True
        clock.raise_to(now)
        checks, mutations = write
        failed = statements.failed_checks(connection, checks, now) if checks else ()
        if failed:
            return Conflict(failed)
        return statements.evaluate(connection, mutations, version, now)

    def apply(self, evaluated: statements.Evaluated) -> Committed:
        """Write what was evaluated. Raises sqlite3.Error: the transaction cannot go on."""
        statements.write(self._connection, evaluated)
        self._drawn = False
        self.version = evaluated.version
        earliest_ms = evaluated.earliest_ms
        if earliest_ms is not None and (self.earliest_ms is None or earliest_ms < self.earliest_ms):
            self.earliest_ms = earliest_ms
        return Committed(to_versionstamp(evaluated.version))

    def finish(self) -> None:
        """Give back a number that was drawn for an operation that was refused; called before COMMIT."""
        if self._drawn:
            statements.return_version(self._connection)
