"""Write transactions of an SQLite file, which evaluate and write the operations of one commit or of a group.

A statement takes longer than most of what it does, and one operation alone needs three. A group reads the versions that
its checks ask for beforehand, keeps back the rows of operations whose checks hold, and writes them together in the
order of their keys.

Rules of this module: a group decides an operation itself only if all its checks hold and it sets rows without a
deadline or removes rows; ``SqliteTransaction`` decides all others, when what was kept back has been written. Not for a
file with a change log, whose triggers ask which commit writes a row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Removal, to_versionstamp
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import log as sqlite_log
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
        """Judge an operation against the transaction, earlier operations included; nothing is written.

        Raises InvalidValueError: a sum, min or max met a value that is no 64-bit integer; sqlite3.Error: the
        transaction cannot go on.
        """
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


MANY = 16
"""Operations from which on it is worth to read beforehand."""


_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_UNKNOWN: Final = object()
"""In the place of a versionstamp, of which no check holds: the row has to be looked at."""


def group_transaction(
    connection: sqlite3.Connection, clock: EngineClock, ahead: Sequence[AtomicWrite | Removal]
) -> SqliteTransaction:
    """Return the transaction of a group: with few statements for many operations, else one after the other."""
    if len(ahead) < MANY or sqlite_log.log_state(connection) is not None:
        return SqliteTransaction(connection, clock)
    return SqliteGroupTransaction(connection, clock, ahead)


class SqliteGroupTransaction(SqliteTransaction):
    """Evaluates many operations with few statements; the arguments of ``group_transaction``."""

    __slots__ = ("_high_water", "_known", "_last", "_rows")

    def __init__(
        self, connection: sqlite3.Connection, clock: EngineClock, ahead: Sequence[AtomicWrite | Removal]
    ) -> None:
        super().__init__(connection, clock)
        self._last, self._high_water = statements.pinned_state(connection)
        self._known = _known_versionstamps(connection, [write for write in ahead if not isinstance(write, Removal)])
        self._rows: dict[bytes, statements.StoredRow | None] | None = None

    def evaluate(self, write: AtomicWrite | Removal) -> Any:
        """Judge an operation; see ``SqliteTransaction``. Rows that are kept back may be written before."""
        if type(write) is AtomicWrite:
            known = self._known
            for key, versionstamp, _ in write[0]:
                if known.get(key, _UNKNOWN) != versionstamp:
                    break
            else:
                rows = statements.plain_rows(write[1], self._last + 1)
                if rows is not None:
                    return rows
        try:
            self._write_rows()
        except sqlite3.Error:
            raise
        except Exception as error:  # a number that SQLite cannot hold: it ends the transaction, as in ``apply``
            raise sqlite3.DataError(str(error)) from error
        return super().evaluate(write)

    def apply(self, evaluated: Any) -> Committed:
        """Keep back or write what was evaluated last. Raises sqlite3.Error: the transaction cannot go on."""
        known = self._known
        if isinstance(evaluated, statements.Evaluated):
            committed = super().apply(evaluated)
            self._last, upserts, timed, deletions, _ = evaluated
            for changed in ([row[0] for row in upserts], [row[0] for row in timed], [row[0] for row in deletions]):
                known.update(dict.fromkeys(changed, _UNKNOWN))
            return committed
        rows: dict[bytes, statements.StoredRow | None] = evaluated
        self._last += 1
        stamp = to_versionstamp(self._last)
        for key, left in rows.items():
            known[key] = None if left is None else stamp
        if self._rows is None:
            self._rows = rows
        else:
            self._rows.update(rows)
        return _new(Committed, (stamp,))

    def finish(self) -> None:
        """Write what is kept back; see ``SqliteTransaction``."""
        self._write_rows()
        super().finish()

    def _write_rows(self) -> None:
        rows = self._rows
        if rows is None:
            return
        # The time is that of nothing that was decided: no row that was looked at has a deadline.
        self._seen_ms = self._stored_ms = self._clock.not_before(self._high_water)
        self.version = self._last
        statements.set_state(self._connection, self._last, self._seen_ms)
        statements.write_rows(self._connection, rows)
        self._rows = None


def _known_versionstamps(
    connection: sqlite3.Connection, operations: Iterable[AtomicWrite]
) -> dict[bytes, bytes | object | None]:
    """Return the versionstamps that checks compare, by key: None for no row, _UNKNOWN for one with a deadline."""
    asked = {check[0]: check for checks, _ in operations for check in checks}
    known: dict[bytes, bytes | object | None] = dict.fromkeys(asked)
    for key, (version, expire_at) in statements.stored_versions(connection, [*asked.values()]).items():
        known[key] = to_versionstamp(version) if expire_at is None else _UNKNOWN
    return known
