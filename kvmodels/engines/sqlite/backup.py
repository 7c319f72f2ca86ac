"""The file of a backup: made under a temporary name, given its own when it is whole, and never over another file.

Rules of this module: only SQLite reads or writes a database. What else happens to a file happens before SQLite has
opened it or after it was closed, under a secret name: it is created for this user, forced to disk, and linked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator

from kvmodels.core.lineage import LINEAGE_KEY, TENANT_PARTS
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.engines.contract import Snapshot
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.engines.shared.file_checks import absolute_path
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite.file import translated
from kvmodels.errors import EngineError

SHARED_FILE_MODE = 0o666
"""The permissions of a new file, without the mask of the process."""

BATCH_ROWS = 500

ALL_KEYS = (b"", b"\xff")

SIDE_FILES = ("-journal", "-wal", "-shm")

ROW = "INSERT INTO kv (k, v, e, s, x) VALUES (?, ?, ?, ?, ?)"


def new_backup(path: str, url: str, mode: int, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make a database at a path that does not exist; it is there whole, or not at all."""
    path = absolute_path(path, url)
    sqlite_file.refuse_unusable_path(path, url, must_exist=False)
    if os.path.lexists(path):
        raise _exists(path, url)
    temporary = f"{path}.{secrets.token_hex(4)}.partial"
    try:
        with _system_errors(path, url):
            # Made before SQLite sees it: a database that others may not read has backups that they may not read.
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        connection = sqlite_file.connect(temporary, "rw")
        try:
            fill(connection)
            _forget_lineages(connection)
        except sqlite3.Error as error:
            raise translated(error, url, temporary) from error
        finally:
            connection.close()
        with _system_errors(path, url):
            _publish(temporary, path, url)
    finally:
        for end in ("", *SIDE_FILES):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary + end)


def _forget_lineages(connection: sqlite3.Connection) -> None:
    """Remove the rows that positions of change feeds are compared with, in the store and in its tenants.

    The copy will have other commits than the store, so the positions of one are refused by the other.
    """
    connection.execute("DELETE FROM kv WHERE k = ?", (LINEAGE_KEY,))
    of_tenants = "DELETE FROM kv WHERE k >= ? AND k < ? AND substr(k, ?) = ?"
    last = -len(LINEAGE_KEY)
    connection.execute(of_tenants, (TENANT_PARTS, after_prefix(TENANT_PARTS), last, LINEAGE_KEY))
    connection.commit()


def copy_snapshot(state: Snapshot, path: str, url: str, mode: int, now_ms: int) -> None:
    """Make a database of what a snapshot holds, for an engine that keeps none itself; O(n)."""
    version = from_versionstamp(state.versionstamp)
    new_backup(path, url, mode, lambda connection: write_rows(connection, all_rows(state), version, now_ms))


def write_rows(connection: sqlite3.Connection, batches: Iterable[list[Row]], version: int, clock_ms: int) -> None:
    """Fill an empty database with rows, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in (*sqlite_file.SCHEMA, sqlite_file.DEADLINES):
        connection.execute(statement)
    for rows in batches:
        connection.executemany(ROW, [(k, v, e, from_versionstamp(s), x) for k, v, e, s, x in rows])
    connection.execute("UPDATE meta SET version = ?, clock = ? WHERE id = 0", (version, clock_ms))
    connection.execute("COMMIT")


def all_rows(state: Snapshot) -> Iterator[list[Row]]:
    """Every row of a snapshot in batches, expired ones included."""
    start, end = ALL_KEYS
    while True:
        rows = state.read([ReadRange(start, end, BATCH_ROWS)], include_expired=True).ranges[0]
        if not rows:
            return
        yield rows
        start = rows[-1].key + b"\0"


def _publish(temporary: str, path: str, url: str) -> None:
    """Give the file its name, without replacing another, so that both survive a power loss from here on."""
    _force_to_disk(temporary, os.O_RDWR)
    try:
        # A rename would replace a file that another program has put there meanwhile.
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path, url) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise _exists(path, url) from None
        os.rename(temporary, path)
    if hasattr(os, "O_DIRECTORY"):
        _force_to_disk(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)


def _force_to_disk(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _system_errors(path: str, url: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            "the backup cannot be written",
            url=url,
            reason=f"{path}: {error.strerror}",
            hint="Give a path in a folder that this user may write, with room for the whole store.",
        ) from error


def _exists(path: str, url: str) -> EngineError:
    return EngineError(
        "the file of the backup exists already",
        url=url,
        reason=path,
        hint="Give a path that does not exist; nothing is ever overwritten.",
    )
