"""Write transactions of an SQLite file, which evaluate and write the operations of one commit or of a group.

Rules of this module: an operation is evaluated completely before anything of it is written, so a refused one needs no
savepoint.
"""

from __future__ import annotations

import sqlite3

from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Removal, to_versionstamp
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import statements


class SqliteTransaction:
    """Evaluates and writes operations while the store holds a write transaction.

    Attributes:
        version: of the last operation that was written; None while there is none.
        earliest_ms: the first deadline that was written, or None.
    """

    __slots__ = ("_clock", "_connection", "_seen_ms", "_stored_ms", "earliest_ms", "version")

    def __init__(self, connection: sqlite3.Connection, clock: EngineClock) -> None:
        self._connection = connection
        self._clock = clock
        self._seen_ms = 0
        self._stored_ms = 0
        self.version: int | None = None
        self.earliest_ms: int | None = None

    def evaluate(self, write: AtomicWrite | Removal) -> statements.Evaluated | Conflict:
        """Judge an operation against the transaction, earlier operations included; nothing is written."""
        if isinstance(write, Removal):
            evaluated, self._seen_ms = statements.evaluate_removal(self._connection, write, self._clock)
            return evaluated
        checks, mutations = write
        version, now, failed = statements.judge(self._connection, checks, self._clock)
        self._seen_ms = now
        if failed:
            return Conflict(failed)
        return statements.evaluate(self._connection, mutations, version, now)

    def apply(self, evaluated: statements.Evaluated) -> Committed:
        """Write what was evaluated last. Raises sqlite3.Error: the transaction cannot go on."""
        version, earliest_ms = evaluated[0], evaluated[4]
        statements.set_state(self._connection, version, self._seen_ms)
        statements.write(self._connection, evaluated)
        self._stored_ms = self._seen_ms
        self.version = version
        if earliest_ms is not None and (self.earliest_ms is None or earliest_ms < self.earliest_ms):
            self.earliest_ms = earliest_ms
        return Committed(to_versionstamp(version))

    def finish(self) -> None:
        """Store the time that a refused operation has seen after the last that was written; called before COMMIT."""
        if self._seen_ms > self._stored_ms and self.version is not None:
            statements.set_state(self._connection, self.version, self._seen_ms)
