"""The change log of an SQLite file: for each key the commit that changed it last.

Rules of this module: triggers write it, so that every process that writes the file keeps it, whatever options it was
opened with; the retention is stored in the file. As in ``statements``, no statement is left open and no
transaction begun or ended, except in ``set_up``.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from kvmodels.core.operations import Change, ReadRange, Row, to_versionstamp
from kvmodels.engines.shared.background import LogState

# An upsert, not INSERT OR REPLACE: in a trigger, the conflict clause of the outer statement would override that.
_RECORD: Final = (
    "BEGIN INSERT INTO log (k, s, t) SELECT {row}.k, version, clock FROM meta WHERE id = 0"
    " ON CONFLICT (k) DO UPDATE SET s = excluded.s, t = excluded.t; END"
)

_CREATE: Final = (
    "CREATE TABLE log_state (id INTEGER PRIMARY KEY CHECK (id = 0), retention INTEGER NOT NULL, floor INTEGER)",
    "INSERT INTO log_state (id, retention, floor) SELECT 0, 0, version FROM meta WHERE id = 0",
    "CREATE TABLE log (k BLOB PRIMARY KEY NOT NULL, s INTEGER NOT NULL, t INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX log_s ON log (s, k)",
    f"CREATE TRIGGER log_insert AFTER INSERT ON kv {_RECORD.format(row='NEW')}",
    f"CREATE TRIGGER log_update AFTER UPDATE ON kv {_RECORD.format(row='NEW')}",
    f"CREATE TRIGGER log_delete AFTER DELETE ON kv {_RECORD.format(row='OLD')}",
)
_DROP: Final = (
    "DROP TRIGGER log_insert",
    "DROP TRIGGER log_update",
    "DROP TRIGGER log_delete",
    "DROP TABLE log",
    "DROP TABLE log_state",
)

_EXISTS: Final = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'log_state'"
_STATE: Final = "SELECT retention, floor, (SELECT t FROM log ORDER BY s LIMIT 1) FROM log_state WHERE id = 0"

# The plus signs keep SQLite from the index on keys: a range of keys is often all of them, a range of commits never.
_SELECT: Final = (
    "SELECT log.k, log.s, kv.v, kv.e, kv.s, kv.x FROM log LEFT JOIN kv ON kv.k = log.k"
    " WHERE {commits} AND +log.k >= ? AND +log.k < ? ORDER BY log.s, log.k"
)
_AFTER: Final = _SELECT.format(commits="log.s > ?") + " LIMIT ?"
_REST: Final = _SELECT.format(commits="log.s = ? AND log.k > ?")


def log_state(connection: sqlite3.Connection) -> LogState | None:
    """The state of the log; None when the file keeps none."""
    if not connection.execute(_EXISTS).fetchall()[0][0]:
        return None
    return LogState(*connection.execute(_STATE).fetchall()[0])


def set_up(connection: sqlite3.Connection, retention_ms: int) -> None:
    """Begin to keep changes for so long, or change how long, or end it (0); one transaction."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        present = log_state(connection)
        if retention_ms and present is None:
            for statement in _CREATE:
                connection.execute(statement)
        if retention_ms:
            connection.execute("UPDATE log_state SET retention = ? WHERE id = 0", (retention_ms,))
        elif present is not None:
            for statement in _DROP:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def changes_in(connection: sqlite3.Connection, one: ReadRange, after: int, now: int) -> tuple[list[Change], int | None]:
    """Changes after a commit, and the commit behind which there may be more; None when these are all."""
    limit = -1 if one.limit is None else one.limit
    found = connection.execute(_AFTER, (after, one.start, one.end, limit)).fetchall()
    last = None
    if one.limit is not None and len(found) >= one.limit:
        key, last = found[-1][0], found[-1][1]
        found += connection.execute(_REST, (last, key, one.start, one.end)).fetchall()
    return [_change(row, now) for row in found], last


def trim(connection: sqlite3.Connection, before_ms: int) -> None:
    """Forget the changes that were made up to a time, in a write transaction."""
    connection.execute(
        "UPDATE log_state SET floor = max(floor, coalesce((SELECT max(s) FROM log WHERE t <= ?), 0)) WHERE id = 0",
        (before_ms,),
    )
    connection.execute("DELETE FROM log WHERE s <= (SELECT floor FROM log_state WHERE id = 0)")


def _change(found: tuple[Any, ...], now: int) -> Change:
    key, commit, value, encoding, version, expire_at = found
    if version is None or (expire_at is not None and expire_at <= now):
        return Change(key, to_versionstamp(commit), None)
    return Change(key, to_versionstamp(commit), Row(key, value, encoding, to_versionstamp(version), expire_at))
