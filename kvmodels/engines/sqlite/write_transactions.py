"""Write transactions of an SQLite file: those of a group of operations, and those of one while no other writer waits.

An operation is evaluated completely before anything of it is written, so a refused one needs no savepoint.

An uncontended commit is one operation in a transaction of its own. The queue, the group and their bookkeeping are an
eighth of the processor time of a commit that waits for the disk, and what a commit checks is mostly what the last one
has left, or the rows that it writes.

Rules of this module: an uncontended commit takes what ends at once. An operation of many checks, a file that is busy, a
snapshot that may have to be ended, a key in the way of a new row, a row of another version: nothing is applied then,
and the operation is left to a group, which says what is wrong. A check of a row that is written is judged by the
statement that writes it. A check that held at a version of the store holds as long as the file has that
version, because each commit of any process raises it; whether it has is part of the statement that raises it again.
Only a check that disregards deadlines is remembered so, of a row that the operation has left as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, Delete, Removal, Set, to_versionstamp
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import statements

INSERT: Final = "INSERT INTO kv (k, v, e, s) VALUES (?, ?, ?, ?)"
UPDATE: Final = "UPDATE kv SET v = ?, e = ?, s = ? WHERE k = ? AND s = ? AND x IS NULL"
RAISE: Final = "UPDATE meta SET version = ?, clock = ? WHERE id = 0 AND version = ?"

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class SqliteTransaction:
    """Evaluates and writes operations while the store holds a write transaction.

    Attributes:
        version: of the last operation that was written; None while there is none.
        earliest_ms: the first deadline that was written, or None.
    """

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


Known: TypeAlias = tuple[int, Check | None]
"""The version of the last transaction of this kind, and a check that holds as long as the store has it."""

_Row: TypeAlias = tuple[bytearray, bytearray, int, int]
_Parameters: TypeAlias = tuple[
    AbstractSet[bytes],
    list[_Row],
    list[tuple[bytearray, int, int, bytearray, int]],
    list[_Row],
    list[tuple[bytearray]],
]
"""The keys that are written, and the parameters of rows to insert, to update, to insert or update, and to delete."""

_UNCHECKED: Final = b""
"""In place of a versionstamp, for a key that no check names."""

Written: TypeAlias = tuple[int, int | None, Check | None]
"""The result of a transaction: its version, its first deadline, and a check that still holds."""


def ends_at_once(write: AtomicWrite | Removal) -> bool:
    """Return whether an operation has few enough checks for one statement."""
    return isinstance(write, Removal) or len(write.checks) <= statements.CHECKS_AT_ONCE


def written(
    connection: sqlite3.Connection, clock: EngineClock, known: Known, write: AtomicWrite | Removal
) -> Written | Conflict | None:
    """Judge and write an operation in a write transaction, or return its conflict; None: leave it to a group."""
    before, held = known
    if isinstance(write, Removal):
        if held is not None and write.check == held and _raise(connection, clock, before):
            return _removed(connection, before + 1, write)
        evaluated, now = statements.evaluate_removal(connection, write, clock)
        if isinstance(evaluated, Conflict):
            return evaluated
        checks: Sequence[Check] = write[:1]
    else:
        checks, mutations = write
        judging = _judged_by_writing(write, held, before + 1) if before else None
        if judging is not None and _raise(connection, clock, before):
            if not _carried_out(connection, judging):
                return None
            return before + 1, None, _unchanged_check(() if held is None else (held,), judging[0])
        version, now, failed = statements.judge(connection, checks, clock)
        if failed:
            return _new(Conflict, (failed,))
        evaluated = statements.evaluate(connection, mutations, version, now)
    statements.set_state(connection, evaluated[0], now)
    statements.write(connection, evaluated)
    changed = {row[0] for rows in evaluated[1:4] for row in rows}
    return evaluated[0], evaluated[4], _unchanged_check(checks, changed)


def _raise(connection: sqlite3.Connection, clock: EngineClock, version: int) -> bool:
    """Raise the counter if it is this one; its time was written by this store, whose clock never goes back."""
    return connection.execute(RAISE, (version + 1, clock.now_ms(), version)).rowcount == 1


def _judged_by_writing(write: AtomicWrite, held: Check | None, version: int) -> _Parameters | None:
    """Return the parameters of statements that write an operation and judge its checks, except ``held``.

    None if statements cannot judge them. A row that must be absent is inserted, one that must have a version is updated
    where it has it.
    """
    checks, mutations = write
    if len(mutations) >= statements.ROWS_TO_SORT:
        return None  # so many rows are written in the order of their keys
    others = [check for check in checks if check != held]
    expected = {check.key: check.versionstamp for check in others}
    keys = {mutation.key for mutation in mutations}
    inserts: list[_Row] = []
    updates: list[tuple[bytearray, int, int, bytearray, int]] = []
    upserts: list[_Row] = []
    deletions: list[tuple[bytearray]] = []
    if len(expected) < len(others) or len(keys) < len(mutations):
        return None  # two checks or two mutations of one key
    for mutation in mutations:
        if type(mutation) is Delete:
            (key,) = mutation
            if key in expected:
                return None
            deletions.append((bytearray(key),))
            continue
        if type(mutation) is not Set:
            return None
        key, value, encoding, expire_at, versionstamped = mutation
        if expire_at is not None or versionstamped:
            return None
        known = expected.pop(key, _UNCHECKED)
        # Of bytes Python asks first whether they are to be adapted, as said of ``statements.bound``.
        if known is None:
            inserts.append((bytearray(key), bytearray(value), encoding, version))
        elif known is _UNCHECKED:
            upserts.append((bytearray(key), bytearray(value), encoding, version))
        elif known[8:] == statements.ZEROS and known[0] <= 127:  # no row has another version
            updates.append((bytearray(value), encoding, version, bytearray(key), int.from_bytes(known[:8], "big")))
        else:
            return None
    if expected:
        return None  # a key is checked and not written
    return keys, inserts, updates, upserts, deletions


def _carried_out(connection: sqlite3.Connection, parameters: _Parameters) -> bool:
    """Execute the statements; return False if a row has not the version that it must have."""
    _, inserts, updates, upserts, deletions = parameters
    if updates and connection.executemany(UPDATE, updates).rowcount < len(updates):
        return False
    if inserts:
        connection.executemany(INSERT, inserts)
    if upserts:
        connection.executemany(statements.UPSERT, upserts)
    if deletions:
        connection.executemany(statements.DELETE, deletions)
    return True


def _removed(connection: sqlite3.Connection, version: int, removal: Removal) -> Written | Conflict:
    """As ``statements.evaluate_removal`` where its check holds, and written."""
    check, key, entries = removal
    found = connection.execute(statements.POINT, (bytearray(key),)).fetchall()
    keys = None
    if found:
        value, encoding, _, expire_at = found[0]
        if expire_at is None:
            keys = entries(key, value, encoding)
    if keys is None:
        return _new(Conflict, ((),))
    connection.executemany(statements.DELETE, [(bytearray(key),), *[(bytearray(one),) for one in keys]])
    return version, None, None if check.key == key or check.key in keys else check


def _unchanged_check(checks: Sequence[Check], changed: AbstractSet[bytes]) -> Check | None:
    """Return a check of a row that an operation does not change; expiry does not change its result either."""
    for check in checks:
        if check.versionstamp is not None and check.physical and check.key not in changed:
            return check
    return None
