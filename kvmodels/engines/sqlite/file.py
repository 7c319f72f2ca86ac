"""The SQLite file: where it may be, whether it is ours, how it is made and opened, and how its errors are translated.

Rules of this module: nothing opens the file, its log or its index but SQLite, because closing any other handle
drops every lock that this process has on the file (POSIX), after which another process deletes the log under us.
A file that is not ours is recognised on a connection and left as it was. An error that the library does not know keeps
SQLite's name and text as its reason.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.file_checks import file_identity, has_room_for_no_more
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import (
    DecodeError,
    EngineError,
    EngineTimeoutError,
    ForeignFileError,
    KvModelsError,
    ReadOnlyError,
    StorageFullError,
    UnsupportedError,
)

ResultT = TypeVar("ResultT")

LARGEST_FRAME = 65_536 + 24
"""Bytes of the largest page with the header of its frame in the write-ahead log."""

_FOLDER = (
    "Readers and writers share two files next to it, so a reader must be able to write the folder as well. If nobody "
    "writes the store, take the permission to write the file and the folder from all users (chmod a-w): then it is "
    "read without these files. Or read a copy that kv.backup() has made in another folder."
)

SIDE_FILES = ("", "-wal", "-shm", "-journal")


def _primary_code(error: Exception) -> int:
    # An error that Python's module raises by itself, such as a closed connection, has no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def leaves_doubt(error: sqlite3.Error, path: str) -> bool:
    """Return whether the state of the disk is unknown after this error of COMMIT.

    A full disk is certain: the frame that marks the commit was not written. Any other I/O error, a failed fsync above
    all, leaves doubt.
    """
    return _primary_code(error) == sqlite3.SQLITE_IOERR and not _has_no_room(error, path)


def _has_no_room(error: Exception, path: str) -> bool:
    """Whether a write failed for want of space.

    SQLite knows of ENOSPC alone. A file that may not grow because of RLIMIT_FSIZE is an I/O error to it, and
    Python's module does not hand on the error number of the system, so the sizes decide.
    """
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return True
    if code != sqlite3.SQLITE_IOERR or not path:
        return False
    return has_room_for_no_more([path + end for end in SIDE_FILES], LARGEST_FRAME)


def translated(error: Exception, url: str, path: str) -> KvModelsError:
    """The error of this library for an error of SQLite; the caller raises it from the original."""
    code = _primary_code(error)
    reason = f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}"
    if _has_no_room(error, path):
        return StorageFullError("there is no room for the write", url=url, reason=reason)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return EngineTimeoutError("the file was busy for longer than the deadline", url=url, reason=reason)
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFileError("this file is not an SQLite database", url=url, reason=reason)
    if code == sqlite3.SQLITE_CORRUPT:
        return DecodeError(
            "the SQLite file is damaged",
            reason=reason,
            hint="Restore a backup, or salvage the file with the .recover command of the sqlite3 program.",
        )
    if getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_DIRECTORY":
        return ReadOnlyError("the folder of the file cannot be written", url=url, reason=reason, hint=_FOLDER)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        hint = "Make the file and its folder writable for this user."
        return ReadOnlyError("the file cannot be written", url=url, reason=reason, hint=hint)
    if code == sqlite3.SQLITE_CANTOPEN:
        hint = "Check that the folder exists and that this user may read and write it and the file."
        return EngineError("the file cannot be opened", url=url, reason=reason, hint=hint)
    hint = "Nothing was written. Look at the disk and the file system if it happens again."
    return EngineError("SQLite could not carry out the operation", url=url, reason=reason, hint=hint)


def with_backoff(backoff: Backoff, call: Callable[[], ResultT]) -> ResultT:
    """The result of ``call``, repeated while SQLite is busy.

    SQLite's own busy handler sleeps the same sequence in every process, so that processes which collided once collide
    again, and it does not run in every place that answers SQLITE_BUSY (a change of the journal mode, the recovery of a
    log). Raises EngineTimeoutError: it was busy until the deadline; any other error of SQLite is translated.
    """
    while True:
        try:
            return call()
        except sqlite3.Error as error:
            backoff.wait(error)


IDLE_CONNECTIONS = 16
"""Reading connections kept open for the next call; each costs some file descriptors and up to 8 MB of cache."""

SETTINGS_OF_A_READER = ("PRAGMA query_only = ON", "PRAGMA cache_size = -8000")
"""The cache in KiB. With SQLite's 2,000 a store of 10 MB does not stay in memory, and a lookup at random takes a
twentieth longer. Pages are kept as they are read, so a small store takes no more than before."""

PAGES_OF_THE_LOG = 4_000
"""Pages (16 MiB) after which a commit copies the log into the database. With SQLite's 1,000, a page that is written
often is copied four times as often, which is a tenth to a fifth of the time of an update or a removal; and each copy
waits for the disk twice. 4,062 pages fit in the first part of the index of the log, so a read asks there once."""

WRITERS_CACHE_KIB = 1_000
"""The page cache of the writing connection, half of SQLite's 2,000. Batches, updates and the reads of the
thread that writes take the same time with both, within 2 %, at 20,000 records in 8 MB; what it does not keep is in the
cache of the operating system. Readers, which scan, have a larger one."""

_OF_EACH_WRITER = (f"wal_autocheckpoint = {PAGES_OF_THE_LOG}", f"cache_size = -{WRITERS_CACHE_KIB}")

SETTINGS_OF_THE_WRITER = {
    "commit": ("synchronous = FULL", *_OF_EACH_WRITER, "fullfsync = ON", "checkpoint_fullfsync = ON"),
    "relaxed": ("synchronous = NORMAL", *_OF_EACH_WRITER),
}
"""By durability. Only macOS knows the difference of the last two: its fsync does not reach the platter."""

MEMORY_PATH = ""


APPLICATION_ID = 0x6B764D31
"""``kvM1``: tells our files from those of other applications."""

FORMAT = 1
"""The number of the layout of the tables, kept in ``user_version``."""

OLDEST_SQLITE = (3, 35, 0)
"""The first version with RETURNING."""

KV_TABLE = (
    "CREATE TABLE kv (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL, e INTEGER NOT NULL, s INTEGER NOT NULL, x INTEGER)"
    " WITHOUT ROWID"
)

SCHEMA = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
    KV_TABLE,
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL, clock INTEGER NOT NULL)",
    "INSERT INTO meta (id, version, clock) VALUES (0, 0, 0)",
)

DEADLINES = "CREATE INDEX IF NOT EXISTS kv_x ON kv (x) WHERE x IS NOT NULL"
"""Finds what has expired. Added whenever a file is opened for writing: files without it stay readable."""

LMDB_DATA = "data.mdb"
"""The name of the data file in a folder of LMDB; here because that engine cannot be imported without its package."""

READY_STATE = "SELECT clock, (SELECT x FROM kv WHERE x IS NOT NULL ORDER BY x LIMIT 1) FROM meta WHERE id = 0"
"""The state that an opening reads besides the names of the schema. One statement for both takes SQLite 5 us more to
compile than two."""


class Connection(sqlite3.Connection):
    """A connection that its store can find again.

    Attributes:
        in_call: a read uses it. Without this it is in the pool, belongs to a snapshot, is on its way from one to
            another, or was dropped by an interrupt.
        discarded: it was closed; a caller that holds it takes another one.
    """

    in_call = False
    discarded = False

    def share_cursor(self) -> None:
        """Have every statement from now on run on one cursor; for a connection that one thread at a time uses.

        A connection remembers its cursors by weak references, and those of dead ones up to two hundred statements
        long. Made in the middle of a large batch, they keep memory from being given back that the batch has needed.
        """
        cursor = self.cursor()
        self.__dict__.update(execute=cursor.execute, executemany=cursor.executemany)


def refuse_unusable_path(path: str, url: str, *, must_exist: bool) -> bool:
    """Say in words what SQLite calls "unable to open database file"; whether the file exists."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise UnsupportedError(
            "the SQLite library is too old",
            url=url,
            reason=f"version {sqlite3.sqlite_version}",
            hint="Install a Python that comes with SQLite 3.35 or later.",
        )
    if os.path.isfile(path):
        return True
    exists = file_identity(path) is not None
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise EngineError("the folder does not exist", url=url, reason=folder, hint="Create the folder first.")
    if os.path.isdir(path):
        hint = "Give the path of a file in the folder."
        if _holds_lmdb(path):
            hint = f"It holds an LMDB database. Give its URL: {_lmdb_url(path, url)}"
        raise EngineError("the path is a folder", url=url, reason=path, hint=hint)
    if exists and not os.path.isfile(path):  # a pipe or a device would be waited for
        raise EngineError("the path is not a file", url=url, reason=path, hint="Give the path of an ordinary file.")
    if must_exist and not exists:
        raise EngineError(
            "the file does not exist",
            url=url,
            reason=path,
            hint="A store that is opened with readonly=True must exist; open it without once to create it.",
        )
    if not exists:
        _refuse_folder(folder, path, url)
    return exists


def _refuse_folder(folder: str, path: str, url: str) -> None:
    """Refuse a folder in which no file can, or should, be made."""
    if _holds_lmdb(folder):
        raise EngineError(
            "the folder holds an LMDB database, and no SQLite file is made in it",
            url=url,
            reason=folder,
            hint=f"Give the URL of that database, lmdb:///{folder}, or the path of a file in another folder.",
        )
    if not is_writable(path):
        raise ReadOnlyError(
            "the file does not exist, and its folder cannot be written",
            url=url,
            reason=folder,
            hint="Make the folder writable for this user, or give the path of a file in another one.",
        )


def _holds_lmdb(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, LMDB_DATA))


def _lmdb_url(path: str, url: str) -> str:
    """The URL of a folder, as relative as it was given: an absolute path has a fourth slash, of its own."""
    given = url.removeprefix("sqlite:///")
    return f"lmdb:///{given if os.path.realpath(given) == path else path}"


def is_writable(path: str) -> bool:
    """Whether this user may write the file, or create it, and its side files."""
    folder_writable = os.access(os.path.dirname(path), os.W_OK | os.X_OK)
    return folder_writable and (os.access(path, os.W_OK) or not os.path.exists(path))


def connect(path: str, mode: str) -> Connection:
    """A connection in autocommit mode without a busy handler: the caller has a deadline of its own."""
    # The URI form is the only one that takes a mode; as_uri escapes what has a meaning in it.
    return sqlite3.connect(
        f"{_uri_of(path)}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )


@lru_cache(maxsize=64)
def _uri_of(path: str) -> str:
    return Path(path).as_uri()


def set_pragma(connection: sqlite3.Connection, setting: str, backoff: Backoff) -> None:
    """Change a setting of the connection.

    SQLite reads the schema of the file before some settings, such as ``synchronous``, and so finds it busy while
    another process makes the file or recovers its log. Raises EngineTimeoutError: it was busy until the deadline; any
    other error of SQLite is translated.
    """
    with_backoff(backoff, lambda: connection.execute(f"PRAGMA {setting}").fetchall())


def connect_memory() -> Connection:
    """A connection to a new database in memory, which no other connection can see."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)


_WRITABLE_BY_ANY = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def reading_mode(path: str) -> str:
    """The mode for a store that is open for reading only.

    A log needs a writable folder, or side files that exist already. Where there are none and no process can write, the
    file is opened as immutable, and only there: an immutable connection takes no locks. That is so on a file system
    that is mounted for reading only, and if no user has the permission to write the file and its folder.
    """
    log_size = os.stat(path + "-wal").st_size if os.path.exists(path + "-wal") else 0
    if log_size == 0 and hasattr(os, "statvfs"):
        mounted = os.statvfs(path).f_flag & os.ST_RDONLY
        if mounted or not (os.stat(path).st_mode | os.stat(os.path.dirname(path)).st_mode) & _WRITABLE_BY_ANY:
            return "ro&immutable=1"
    return "ro"


def recognise(connection: sqlite3.Connection, url: str) -> bool:
    """Whether the database on the connection is ours (true) or empty (false)."""
    application_id = int(connection.execute("PRAGMA application_id").fetchall()[0][0])
    number = int(connection.execute("PRAGMA user_version").fetchall()[0][0])
    if application_id == APPLICATION_ID:
        if number != FORMAT:
            raise UnsupportedError(
                "the file has a format that this version does not know",
                url=url,
                reason=f"format {number}, known is {FORMAT}",
                hint="Install the version of kvmodels that wrote it, or a later one.",
            )
        return True
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0])
    if application_id or number or tables:
        raise ForeignFileError(
            "this SQLite file belongs to another application",
            url=url,
            reason=f"application_id {application_id}, user_version {number}, {tables} schema entries",
        )
    return False


def ready(connection: sqlite3.Connection, url: str) -> tuple[int, bool, int | None] | None:
    """Return the high-water mark of the clock, whether changes are kept, and the first deadline of a row.

    None if the file has to be made or completed.
    """
    try:
        connection.execute("BEGIN")
        if not recognise(connection, url):
            return None
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()}
        if "kv_x" not in names or connection.execute("PRAGMA journal_mode").fetchall()[0][0] != "wal":
            return None
        rows = connection.execute(READY_STATE).fetchall()
        if not rows:
            raise without_counter()
        high_water, earliest_ms = rows[0]
        return high_water, "log_state" in names, earliest_ms
    finally:
        connection.rollback()


def has_log(path: str) -> bool:
    """Whether there is a write-ahead log beside the file. ``os.path.exists`` takes three times as long to say no."""
    return os.access(path + "-wal", os.F_OK)


def prepare(path: str, url: str, backoff: Backoff) -> None:
    """Look at a file that exists before anything is written to it."""
    # With a log present, a reading connection: closing a writing one would move the log of another application
    # into its database. Without one, a writing connection, because a reading one leaves an empty log behind.
    mode = "ro" if has_log(path) else "rw"

    def look() -> None:
        connection = connect(path, mode)
        try:
            recognise(connection, url)
        finally:
            connection.close()

    with_backoff(backoff, look)


def initialise(connection: sqlite3.Connection, url: str, backoff: Backoff, clock: EngineClock) -> None:
    """Make the file ours if it is empty, set the write-ahead log, and raise the counter of versionstamps.

    The connection must have ``synchronous = FULL``: the raised counter is on disk before the first write, so that a
    number is never used twice, whatever a power loss takes away later. Raises ForeignFileError: another process has put
    something else there meanwhile; UnsupportedError: the file system cannot hold a write-ahead log.
    """
    with_backoff(backoff, lambda: _make_ours(connection, url, clock))
    mode = with_backoff(backoff, lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall())[0][0]
    if mode != "wal":
        raise UnsupportedError(
            "the write-ahead log cannot be used here",
            url=url,
            reason=f"journal mode {mode}",
            hint="Put the file on a local disk that supports shared memory maps.",
        )


def _make_ours(connection: sqlite3.Connection, url: str, clock: EngineClock) -> None:
    """Make what is missing, and raise the counter in the same commit: another one would wait for the disk once more."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        if not recognise(connection, url):
            for statement in SCHEMA:
                connection.execute(statement)
        connection.execute(DEADLINES)
        high_water = raise_counter(connection, clock)
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    clock.raise_to(high_water)


def raise_counter(connection: sqlite3.Connection, clock: EngineClock) -> int:
    """Set the counter to max(counter + 1, wall clock in microseconds); returns the stored high-water mark."""
    floor = clock.counter_floor()
    connection.execute("UPDATE meta SET version = max(version + 1, ?) WHERE id = 0", (floor,))
    rows = connection.execute("SELECT clock FROM meta WHERE id = 0").fetchall()
    if not rows:
        raise without_counter()
    high_water: int = rows[0][0]
    return high_water


def without_counter() -> DecodeError:
    """Return the error for a file whose row with the counter of versionstamps is missing."""
    return DecodeError("the SQLite file is damaged", reason="its counter is missing", hint="Restore a backup.")


def refuse_uninitialised(connection: sqlite3.Connection, url: str) -> None:
    """For a connection that cannot write: the file must be ours already. Raises ReadOnlyError: the file is empty."""
    if not recognise(connection, url):
        raise ReadOnlyError(
            "the file is empty, and it cannot be made a store because it is open for reading only",
            url=url,
            hint="It must be opened once with readonly=False, by a user who may write the file and its folder.",
        )


def initialise_memory(connection: sqlite3.Connection, clock: EngineClock) -> None:
    """Make the tables of a private database in memory."""
    for statement in (*SCHEMA, DEADLINES):
        connection.execute(statement)
    clock.raise_to(raise_counter(connection, clock))
