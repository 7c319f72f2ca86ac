"""LMDB's errors as errors of this library.

Rules of this module: an error is translated in one place; what the library does not know keeps LMDB's text as its
reason.
"""

from __future__ import annotations

import errno

import lmdb

from kvmodels.engines.shared.file_checks import has_room_for_no_more
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

NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})

LARGEST_WRITE = 1 << 16

OPEN_ALREADY = "already open in this process"
"""Of the text of an error that has neither a class nor a number."""

DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError, lmdb.BadTxnError)


def translated(error: Exception, url: str, data_file: str) -> KvModelsError:
    """The error of this library for an error of LMDB or of its lock file; the caller raises it from the original."""
    number = getattr(error, "code", None) or getattr(error, "errno", None)
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, (BlockingIOError, lmdb.ReadersFullError)):
        return EngineTimeoutError("the file was busy for longer than the deadline", url=url, reason=reason)
    # To LMDB, a write that the system has cut short for want of room is an I/O error.
    if number in NO_ROOM or (number == errno.EIO and has_room_for_no_more([data_file], LARGEST_WRITE)):
        return StorageFullError("there is no room for the write", url=url, reason=reason)
    if isinstance(error, (lmdb.ReadonlyError, PermissionError)):
        return ReadOnlyError(
            "the file cannot be written",
            url=url,
            reason=reason,
            hint="Make the folder and its files writable; those who only read register in lock.mdb too.",
        )
    if isinstance(error, DAMAGE):
        return DecodeError("the LMDB file is damaged", reason=reason, hint="Restore a backup.")
    if isinstance(error, lmdb.InvalidError):
        return ForeignFileError("this file is not an LMDB database", url=url, reason=reason)
    if isinstance(error, lmdb.VersionMismatchError):
        return UnsupportedError(
            "the file has a format that this version of LMDB does not know",
            url=url,
            reason=reason,
            hint="Install the version of the package lmdb that wrote it, or a later one.",
        )
    if OPEN_ALREADY in str(error):
        return EngineError(
            "the folder is already open in this process, and not by this library",
            url=url,
            reason=reason,
            hint="LMDB allows that once. Close the environment of the package lmdb first, or use another process.",
        )
    hint = "Nothing was written. Look at the disk and the file system if it happens again."
    return EngineError("LMDB could not carry out the operation", url=url, reason=reason, hint=hint)
