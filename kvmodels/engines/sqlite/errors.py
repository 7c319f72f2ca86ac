"""SQLite's result codes as errors of this library, and what is repeated while the file is busy.

Rules of this module: a code is translated in one place; an error that the library does not know keeps SQLite's
name and text as its reason. Nothing here touches a file but by asking for its size.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from kvmodels.engines.shared.file_checks import has_room_for_no_more
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import (
    DecodeError,
    EngineError,
    EngineTimeoutError,
    ForeignFileError,
    KvModelsError,
    ReadOnlyError,
    StorageFullError,
)

ResultT = TypeVar("ResultT")

LARGEST_FRAME = 65_536 + 24
"""Bytes of the largest page with the header of its frame in the write-ahead log."""

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
