"""The SQL with which the SQLite engine counts rows without reading their values.

The rows of a range are counted by their keys alone, which is half the work of looking at the deadline of each. Those
whose deadline is reached are then taken off; an index leads to them, and few wait to be swept.

Rules of this module: as ``statements``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from kvmodels.core.operations import Counted, Guard, GuardFailed, ReadRange, to_versionstamp
from kvmodels.engines.contract import NotSmallError
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.file import without_counter

_STORED = "SELECT count(*) FROM kv WHERE k >= ? AND k < ?"
_FEW_STORED = "SELECT count(*) FROM (SELECT 1 FROM kv WHERE k >= ? AND k < ? LIMIT ?)"
# The "+" keeps SQLite from walking the range a second time.
_EXPIRED = "SELECT count(*) FROM kv WHERE x <= ? AND +k >= ? AND +k < ?"
# Of a file that was never opened for writing since there is an index of deadlines, and as far as a limit goes.
_LIVE = "SELECT count(*) FROM (SELECT 1 FROM kv WHERE k >= ? AND k < ? AND (x IS NULL OR x > ?) LIMIT ?)"

# One statement is one snapshot without a transaction.
TOGETHER = (
    "SELECT version, (SELECT s FROM kv WHERE k = ? AND (x IS NULL OR x > max(clock, ?))),"
    " (SELECT count(*) FROM kv WHERE k >= ? AND k < ?),"
    " (SELECT count(*) FROM kv WHERE x <= max(clock, ?) AND +k >= ? AND +k < ?) FROM meta WHERE id = 0"
)
FEW_TOGETHER = TOGETHER.replace(
    "count(*) FROM kv WHERE k >= ? AND k < ?", "count(*) FROM (SELECT 1 FROM kv WHERE k >= ? AND k < ? LIMIT ?)"
)


def count_together(
    connection: sqlite3.Connection, one: ReadRange, guard: Guard | None, clock: EngineClock, most: int | None = None
) -> Counted | GuardFailed:
    """The live rows of one range that has an end and no limit, with state and guard, in one statement."""
    start, end, now = one.start, one.end, clock.now_ms()
    key = b"" if guard is None else guard.key
    found: list[Any] = (
        connection.execute(TOGETHER, (key, now, start, end, now, start, end))
        if most is None
        else connection.execute(FEW_TOGETHER, (key, now, start, end, most + 1, now, start, end))
    ).fetchall()
    if not found:
        raise without_counter()
    version, guarded, stored, expired = found[0]
    if guard is not None:
        actual = None if guarded is None else to_versionstamp(guarded)
        if actual != guard.versionstamp:
            return GuardFailed(actual)
    if most is not None and stored > most:
        raise NotSmallError
    return Counted([stored - expired], to_versionstamp(version))


def count_ranges(
    connection: sqlite3.Connection, ranges: Sequence[ReadRange], now: int, *, indexed: bool, most: int | None = None
) -> list[int]:
    """The live rows of each range, in the read transaction that the caller holds."""
    numbers: list[int] = []
    left = most
    for one in ranges:
        number, walked = _count(connection, one, now, indexed=indexed, most=left)
        numbers.append(number)
        if left is not None:
            left -= walked
            if left < 0:
                raise NotSmallError
    return numbers


def _count(
    connection: sqlite3.Connection, one: ReadRange, now: int, *, indexed: bool, most: int | None
) -> tuple[int, int]:
    """The live rows of a range, and about how many were walked for it."""
    start, end, limit, _, _ = one
    if end is None:
        found = statements.read_ranges(connection, (one._replace(keys_only=True),), now)
        assert not isinstance(found, GuardFailed), "no guard was given"
        return len(found[0][0]), 1
    within = -1 if most is None else most + 1
    if limit is not None or not indexed:
        few = within if limit is None else limit if most is None else min(limit, within)
        number = _number(connection, _LIVE, (start, end, now, few))
        return number, number
    stored = (
        _number(connection, _STORED, (start, end))
        if most is None
        else _number(connection, _FEW_STORED, (start, end, within))
    )
    return stored - (_number(connection, _EXPIRED, (now, start, end)) if stored else 0), stored


def _number(connection: sqlite3.Connection, statement: str, parameters: tuple[Any, ...]) -> int:
    number: int = connection.execute(statement, parameters).fetchall()[0][0]
    return number
