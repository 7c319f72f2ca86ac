"""The SQL of the SQLite engine: reads of one snapshot, and one operation inside a write transaction.

Rules of this module: every function takes a connection and leaves no statement open (each result is fetched
completely) and no transaction begun or ended. Every range is an index search, and SQLite stops at the limit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from kvmodels.core.operations import (
    Check,
    Conflict,
    Delete,
    Follow,
    Guard,
    GuardFailed,
    Guess,
    Mutation,
    PlainRow,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Removal,
    Row,
    Set,
    SuffixFollow,
    as_plain_rows,
    to_versionstamp,
)
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import confirmed_failures
from kvmodels.engines.shared.evaluation import evaluate as evaluate_mutations
from kvmodels.engines.sqlite import entry_join as sqlite_suffix_follow
from kvmodels.engines.sqlite.file import without_counter

STATE = "SELECT version, clock FROM meta WHERE id = 0"
SET_STATE = "UPDATE meta SET version = ?, clock = ? WHERE id = 0"
"""Not with RETURNING, which costs more than a SELECT that says what the checks ask for as well."""

POINT = "SELECT v, e, s, x FROM kv WHERE k = ?"
# One statement is one snapshot without a transaction. Not for ranges: once the user has run ANALYZE, SQLite no longer
# sees that this join needs no sorting, and would sort the whole range before the limit.
POINT_WITH_VERSION = "SELECT version, clock, v, e, s, x FROM meta LEFT JOIN kv ON k = ? WHERE id = 0"
GUARDED_POINT = (
    "SELECT version, clock, guard.s, guard.x, kv.v, kv.e, kv.s, kv.x FROM meta"
    " LEFT JOIN kv AS guard ON guard.k = ? LEFT JOIN kv ON kv.k = ? WHERE id = 0"
)

AT_KEY = "SELECT k, v, e, s, x FROM kv WHERE k = ?"

PREDICTED_ROW = (
    "SELECT behind.k, behind.v, behind.e, behind.s, behind.x FROM kv AS guard CROSS JOIN kv CROSS JOIN kv AS behind"
    " ON behind.k = CAST({} AS BLOB)"
    " WHERE kv.k = ? AND guard.k = X'{}' AND guard.s = {} AND guard.x ISNULL AND kv.x ISNULL AND behind.x ISNULL"
)
"""The row at the key that the value of a slot gives, if the guard holds and none of the three rows has a deadline.

A cross join is walked from its left side, whatever ANALYZE has found. Without the counter, the slot and a suffix, each
of which costs as much as a twentieth of the statement, and outer joins, which cost a tenth. What stays the same from
one lookup to the next is written into it: a parameter costs four times as much as a constant.
"""

SCAN = {
    False: "SELECT k, v, e, s, x FROM kv WHERE k >= ? AND k < ? AND (x IS NULL OR x > ?) ORDER BY k LIMIT ?",
    True: "SELECT k, v, e, s, x FROM kv WHERE k >= ? AND k < ? AND (x IS NULL OR x > ?) ORDER BY k DESC LIMIT ?",
}
"""By ``reverse``; parameters start, end, the time in ms up to which deadlines have passed, limit (-1: none)."""

KEYS = {reverse: statement.replace("k, v,", "k, x'',") for reverse, statement in SCAN.items()}
"""As ``SCAN`` without the values, so that SQLite does not fetch the pages that a large one overflows into."""

UPSERT = (
    "INSERT INTO kv (k, v, e, s) VALUES (?, ?, ?, ?) ON CONFLICT (k) DO UPDATE SET"
    " v = excluded.v, e = excluded.e, s = excluded.s, x = NULL"
)
"""Without a parameter for the deadline that most rows do not have: each costs as much as an eighth of a row."""
UPSERT_TIMED = (
    "INSERT INTO kv (k, v, e, s, x) VALUES (?, ?, ?, ?, ?) ON CONFLICT (k) DO UPDATE SET"
    " v = excluded.v, e = excluded.e, s = excluded.s, x = excluded.x"
)
DELETE = "DELETE FROM kv WHERE k = ?"

EARLIEST = "SELECT x FROM kv WHERE x IS NOT NULL ORDER BY x LIMIT 1"
EXPIRED = "SELECT k FROM kv WHERE x <= ? ORDER BY x LIMIT ?"

CHECKS_PER_STATEMENT = 64
CHECK = "SELECT s, x FROM kv WHERE k = ?"
CHECK_MANY = f"SELECT k, s, x FROM kv WHERE k IN ({', '.join('?' * CHECKS_PER_STATEMENT)})"  # noqa: S608 - only "?"

ANY_BETWEEN = "SELECT 1 FROM kv WHERE k >= ? AND k <= ? LIMIT 1"

CHECKS_AT_ONCE = 8
# One row for the counter and all checks: executing a statement costs as much as finding two keys.
VERSION_OF = ", (SELECT CASE WHEN x IS NULL THEN s ELSE -1 END FROM kv WHERE k = ?)"
STATE_AND_VERSIONS = tuple(
    f"SELECT version, clock{VERSION_OF * checks} FROM meta WHERE id = 0"  # noqa: S608 - only "?"
    for checks in range(CHECKS_AT_ONCE + 1)
)
"""By the number of keys: the state, and for each key its version; NULL: absent, -1: its row has a deadline."""
STATE_AND_ROW = (
    "SELECT version, clock, (SELECT CASE WHEN x IS NULL THEN s ELSE -1 END FROM kv WHERE k = ?), kv.v, kv.e, kv.x"
    " FROM meta LEFT JOIN kv ON kv.k = ? WHERE id = 0"
)
"""The state, the version of one key as above, and the row of another."""
HAS_DEADLINE = -1
ZEROS = b"\0\0"

BEFORE_ALL_TIME = -(1 << 63)
"""The time to pass where expired rows are wanted: no deadline lies before it."""


_VERSION: Final = itemgetter(3)
_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
_key_of: Final = itemgetter(0)

ROWS_TO_SORT = 64

StoredRow: TypeAlias = tuple[bytes, bytes, int, int]
TimedRow: TypeAlias = tuple[bytes, bytes, int, int, int]


class Evaluated(NamedTuple):
    """One operation, ready to be stored: its version, the rows to set, the keys to remove, its first deadline.

    Rows that have a deadline are five values and stand in ``timed``, the others four.
    """

    version: int
    upserts: list[StoredRow]
    timed: list[TimedRow]
    deletions: list[tuple[bytes]]
    earliest_ms: int | None


Judged: TypeAlias = tuple[int, int, tuple[int, ...]]


def pinned_state(connection: sqlite3.Connection) -> tuple[int, int]:
    """The counter and the stored high-water mark of the clock; inside a transaction this pins the snapshot."""
    return _state_of(connection.execute(STATE).fetchall())


def set_state(connection: sqlite3.Connection, version: int, high_water: int) -> None:
    """Store the counter and the high-water mark; before the rows of a commit, since the change log reads them there."""
    connection.execute(SET_STATE, (version, high_water))


def judge(connection: sqlite3.Connection, checks: Sequence[Check], clock: EngineClock) -> Judged:
    """The version that the next operation would have, the time, and which of its checks do not hold."""
    if len(checks) > CHECKS_AT_ONCE:
        return _judged_apart(connection, checks, clock)
    found = connection.execute(STATE_AND_VERSIONS[len(checks)], [bytearray(check.key) for check in checks]).fetchall()
    if not found:
        return _judged_apart(connection, checks, clock)  # which says what is missing
    version, high_water, *stored = found[0]
    for check, stamp in zip(checks, stored, strict=True):
        versionstamp = check.versionstamp
        if stamp is None:
            if versionstamp is not None:
                return _judged_apart(connection, checks, clock)
        elif stamp == HAS_DEADLINE or versionstamp != stamp.to_bytes(8, "big") + ZEROS:
            return _judged_apart(connection, checks, clock)
    return version + 1, clock.not_before(high_water), ()


def _judged_apart(connection: sqlite3.Connection, checks: Sequence[Check], clock: EngineClock) -> Judged:
    version, high_water = pinned_state(connection)
    now = clock.not_before(high_water)
    failed = failed_checks(connection, checks, now)
    return version + 1, now, confirmed_failures(checks, failed, lambda one: _scan(connection, one, now))


def read_point(connection: sqlite3.Connection, key: bytes, clock: EngineClock | None) -> ReadResult:
    """The row of one key in one statement; ``clock`` None: also when it has expired."""
    found = connection.execute(POINT_WITH_VERSION, (bytearray(key),)).fetchall()
    version, high_water = _state_of(found)
    rows = _live(key, found[0][2:], high_water, clock)
    return _new(ReadResult, ([rows], [], version.to_bytes(8, "big") + ZEROS))


def read_guarded_point(
    connection: sqlite3.Connection, key: bytes, guard: Guard, follow: Follow | None, clock: EngineClock | None
) -> ReadResult | None:
    """A key, and the one that follows from it, in a statement each; None where that is not enough.

    Both say the version of the store, and when it is the same they saw the same state: every commit that changes a row
    raises it. So no transaction is needed, which costs as much as two more statements. Not enough is it when another
    commit has come in between, the guard does not hold, or several keys follow. ``clock``: decides on expiry; None:
    rows that have expired are read too.
    """
    found = connection.execute(GUARDED_POINT, (bytearray(guard.key), bytearray(key))).fetchall()
    version, high_water = _state_of(found)
    _, _, guarded, guarded_until, value, encoding, stamp, expire_at = found[0]
    if guarded is None or guarded_until is not None or guarded.to_bytes(8, "big") + ZEROS != guard.versionstamp:
        return None
    rows = _live(key, (value, encoding, stamp, expire_at), high_water, clock)
    more = () if follow is None else follow([rows])
    if not more:
        return _new(ReadResult, ([rows], [], version.to_bytes(8, "big") + ZEROS))
    start, end, limit, _, _ = more[0]
    if len(more) > 1 or end is not None or limit is not None:
        return None
    again = connection.execute(POINT_WITH_VERSION, (bytearray(start),)).fetchall()
    if _state_of(again)[0] != version:
        return None
    one = _live(start, again[0][2:], high_water, clock)
    return _new(ReadResult, ([rows], [one], version.to_bytes(8, "big") + ZEROS))


def predicted_row(follow: PredictedFollow, guard: Guard) -> tuple[Guess, Guard, str] | None:
    """The statement that finds the row at the likely key, in the state of guard and slot; None: the guard never holds.

    Its parameter is the key of the slot. It is to be remembered, with what it was made of: a text that is the same
    object is found at once among the statements that a connection keeps prepared.
    """
    versionstamp = guard.versionstamp
    if versionstamp is None or versionstamp[8:] != ZEROS or versionstamp[0] > 127:  # no row has such a version
        return None
    guess = follow.guess
    predicted, others = _made_by(guess), follow.others
    if others:
        cases = [f"WHEN {length} THEN {_made_by(other)}" for length, other in others.items()]
        predicted = f"CASE length(kv.v) {' '.join(cases)} ELSE {predicted} END"
    return guess, guard, PREDICTED_ROW.format(predicted, guard.key.hex(), int.from_bytes(versionstamp[:8], "big"))


def _made_by(guess: Guess) -> str:
    """An expression for the key that is made of the value of a slot."""
    prefix, start, suffix = guess
    end = f" || X'{suffix.hex()}'" if suffix else ""
    return f"X'{prefix.hex()}' || substr(kv.v, {start + 1}){end}"


def _live(key: bytes, stored: Sequence[Any], high_water: int, clock: EngineClock | None) -> list[Row]:
    value, encoding, stamp, expire_at = stored
    if stamp is None or (expire_at is not None and clock is not None and expire_at <= max(clock.now_ms(), high_water)):
        return []
    return [_new(Row, (key, value, encoding, stamp.to_bytes(8, "big") + ZEROS, expire_at))]


def unless_expired(connection: sqlite3.Connection, row: PlainRow, clock: EngineClock) -> PlainRow | None:
    """A row that has a deadline, if that is not reached."""
    _, high_water = pinned_state(connection)
    return row if row[4] is None or row[4] > max(clock.now_ms(), high_water) else None


def read_ranges(
    connection: sqlite3.Connection,
    ranges: Sequence[ReadRange],
    now: int,
    guard: Guard | None = None,
    follow: Follow | None = None,
) -> GuardFailed | tuple[list[list[Row]], list[list[Row]]]:
    """Rows per range and per followed range, in the read transaction that the caller holds."""
    if guard is not None:
        rows = _scan(connection, ReadRange(guard.key), now)
        actual = rows[0].versionstamp if rows else None
        if actual != guard.versionstamp:
            return GuardFailed(actual)
    if isinstance(follow, SuffixFollow) and len(ranges) == 1 and ranges[0].end is not None:
        return sqlite_suffix_follow.with_followed(connection, ranges[0], now, follow)
    if follow is as_plain_rows:
        return [(_scan if one.end is None else _scan_plain)(connection, one, now) for one in ranges], []
    found = [_scan(connection, one, now) for one in ranges]
    followed = [] if follow is None else [_scan(connection, one, now) for one in follow(found)]
    return found, followed


def failed_checks(connection: sqlite3.Connection, checks: Sequence[Check], now: int) -> tuple[int, ...]:
    """The positions of the checks that do not hold."""
    if len(checks) < CHECKS_PER_STATEMENT:
        return tuple([at for at, check in enumerate(checks) if not _holds(connection, check, now)])
    stored = stored_versions(connection, checks)
    failed: list[int] = []
    for position, (key, versionstamp, physical) in enumerate(checks):
        row = stored.get(key)
        if row is None or (row[1] is not None and not physical and row[1] <= now):
            if versionstamp is not None:
                failed.append(position)
        elif to_versionstamp(row[0]) != versionstamp:
            failed.append(position)
    return tuple(failed)


def _holds(connection: sqlite3.Connection, check: Check, now: int) -> bool:
    key, versionstamp, physical = check
    found = connection.execute(CHECK, (bytearray(key),)).fetchall()
    if not found:
        return versionstamp is None
    version, expire_at = found[0]
    if expire_at is not None and not physical and expire_at <= now:
        return versionstamp is None
    return versionstamp is not None and to_versionstamp(version) == versionstamp


def evaluate(connection: sqlite3.Connection, mutations: Sequence[Mutation], version: int, now: int) -> Evaluated:
    """Return the rows after the mutations, applied in order; nothing is written. Raises InvalidValueError."""
    changes: dict[bytes, StoredRow | None] = {}
    for mutation in mutations:
        if type(mutation) is Set:
            key, value, encoding, expire_at, versionstamped = mutation
            if expire_at is not None or versionstamped:
                break
            changes[key] = (key, value, encoding, version)
        elif type(mutation) is Delete:
            changes[mutation.key] = None
        else:
            break
    else:
        return _evaluated(version, changes, [row for row in changes.values() if row is not None], [], None)
    return _evaluate_all(connection, mutations, version, now)


def evaluate_removal(
    connection: sqlite3.Connection, removal: Removal, clock: EngineClock
) -> tuple[Evaluated | Conflict, int]:
    """Return the rows after a removal, or the conflict, and the time; nothing is written."""
    (checked, versionstamp, _), key, entries = removal
    found = connection.execute(STATE_AND_ROW, (bytearray(checked), bytearray(key))).fetchall()
    version, high_water = _state_of(found)
    _, _, stamp, value, encoding, expire_at = found[0]
    now = clock.not_before(high_water)
    if stamp == HAS_DEADLINE:
        return _new(Conflict, ((),)), now
    if (None if stamp is None else stamp.to_bytes(8, "big") + ZEROS) != versionstamp:
        return _new(Conflict, ((0,),)), now
    keys = None if encoding is None or expire_at is not None else entries(key, value, encoding)
    if keys is None:
        return _new(Conflict, ((),)), now
    return _new(Evaluated, (version + 1, [], [], [(key,), *[(one,) for one in keys]], None)), now


def _evaluate_all(connection: sqlite3.Connection, mutations: Sequence[Mutation], version: int, now: int) -> Evaluated:
    """Evaluate an operation with any kind of mutation, as ``evaluate`` does for common kinds."""

    def stored(key: bytes) -> Row | None:
        rows = _scan(connection, ReadRange(key), BEFORE_ALL_TIME)
        return rows[0] if rows else None

    rows, earliest = evaluate_mutations(mutations, to_versionstamp(version), now, stored)
    kept = [row for row in rows.values() if row is not None]
    upserts: list[StoredRow] = [(key, value, encoding, version) for key, value, encoding, _, x in kept if x is None]
    timed: list[TimedRow] = [(key, value, encoding, version, x) for key, value, encoding, _, x in kept if x is not None]
    return _evaluated(version, rows, upserts, timed, earliest)


def _evaluated(
    version: int,
    changes: Mapping[bytes, tuple[Any, ...] | None],
    upserts: list[StoredRow],
    timed: list[TimedRow],
    earliest: int | None,
) -> Evaluated:
    rows = len(upserts) + len(timed)
    deletions = [(key,) for key, row in changes.items() if row is None] if rows < len(changes) else []
    if len(changes) >= ROWS_TO_SORT:
        # In the order of the tree: neighbours are written while their page is at hand, and pages are split less often.
        upserts.sort(key=_key_of)
        deletions.sort()
    return _new(Evaluated, (version, upserts, timed, deletions, earliest))


def write(connection: sqlite3.Connection, evaluated: Evaluated) -> None:
    """Store what was evaluated, with at most three statements."""
    _, upserts, timed, deletions, _ = evaluated
    if upserts:
        connection.executemany(UPSERT, bound(upserts))
    if timed:
        connection.executemany(UPSERT_TIMED, timed)
    if deletions:
        connection.executemany(DELETE, [(bytearray(key),) for (key,) in deletions])


def bound(rows: Iterable[StoredRow]) -> Iterator[tuple[bytearray, bytearray, int, int]]:
    """Rows without a deadline as parameters, one after the other: those of a batch would leave room that is not free.

    Of bytes Python asks at each use whether they are to be adapted: 0.2 us, three times as much as to copy them into
    an array of bytes, which it takes as it is. A third of what it takes to insert the rows of a batch.
    """
    for key, value, encoding, version in rows:
        yield bytearray(key), bytearray(value), encoding, version


def earliest_deadline(connection: sqlite3.Connection) -> int | None:
    """The deadline that is reached first, or was; None when no row has one."""
    found = connection.execute(EARLIEST).fetchall()
    return found[0][0] if found else None


def delete_expired(connection: sqlite3.Connection, limit: int, now: int) -> int:
    """Delete up to ``limit`` rows that have expired at ``now``; how many there were."""
    keys = connection.execute(EXPIRED, (now, limit)).fetchall()
    connection.executemany(DELETE, keys)
    return len(keys)


def _state_of(found: list[Any]) -> tuple[int, int]:
    if not found:
        raise without_counter()
    return found[0][0], found[0][1]


def _scan(connection: sqlite3.Connection, one: ReadRange, now: int) -> list[Row]:
    if one.end is None:
        start = one.start
        if one.limit == 0:
            return []
        found = connection.execute(POINT, (bytearray(start),)).fetchall()
        return [_new(Row, (start, v, e, to_versionstamp(s), x)) for v, e, s, x in found if x is None or x > now]
    plain = _scan_plain(connection, one, now)
    stamps = _stamps(map(_VERSION, plain))
    return [_new(Row, (k, v, e, stamps[s], x)) for k, v, e, s, x in plain]


def _scan_plain(connection: sqlite3.Connection, one: ReadRange, now: int) -> list[Any]:
    """The rows of a range that has an end, as tuples with the number of the version, which SQLite makes."""
    start, end, limit, reverse, keys_only = one
    statement = (KEYS if keys_only else SCAN)[reverse]
    bounds = bytearray(start), None if end is None else bytearray(end)
    return connection.execute(statement, (*bounds, now, -1 if limit is None else limit)).fetchall()


def _stamps(versions: Iterable[int]) -> dict[int, bytes]:
    """The versionstamps of many rows, of which those of one commit share theirs."""
    return {version: version.to_bytes(8, "big") + ZEROS for version in set(versions)}


def stored_versions(connection: sqlite3.Connection, checks: Sequence[Check]) -> dict[bytes, tuple[int, int | None]]:
    """Version and deadline of each checked key that is stored."""
    stored: dict[bytes, tuple[int, int | None]] = {}
    # One statement per key is cheaper for the few checks of one record, one for many in a batch of records. The
    # number of parameters is fixed, so that it is prepared once.
    keys = sorted([check.key for check in checks])
    for at in range(0, len(keys), CHECKS_PER_STATEMENT):
        some = keys[at : at + CHECKS_PER_STATEMENT]
        # Between new keys that were given in order, as most are, there is nothing: one search instead of many.
        if not connection.execute(ANY_BETWEEN, (some[0], some[-1])).fetchall():
            continue
        some += some[-1:] * (CHECKS_PER_STATEMENT - len(some))
        for key, version, expire_at in connection.execute(CHECK_MANY, [*map(bytearray, some)]).fetchall():
            stored[key] = (version, expire_at)
    return stored
