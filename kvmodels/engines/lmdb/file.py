"""The folder of an LMDB store: whether it is ours, how it is made and opened, and how LMDB's errors are translated.

    data.mdb     the database
    lock.mdb     LMDB's readers and its lock for writing
    writer.lock  taken before that lock, because one can wait for it with a deadline; made by this library

Rules of this module: a folder that is not ours is recognised before anything is written into it. Nothing but LMDB opens
``data.mdb`` and ``lock.mdb``, because closing any other handle of them drops every lock of this process (POSIX); only
before LMDB opens the folder, ``pages.py`` looks whether ``data.mdb`` was cut short. An error that the library does not
know keeps LMDB's text as its reason.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Any, Final, NamedTuple

import lmdb

from kvmodels.engines.lmdb.pages import is_cut_short
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.file_checks import file_identity, has_room_for_no_more
from kvmodels.engines.shared.file_engine import FileOptions
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

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

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


FORMAT = 1
"""The number of the layout of the databases."""

MAGIC = b"kvmodels"

STATE_KEY = b"kvmodels"
"""In the unnamed database, beside the names of the others: one record fewer to write in each commit than in its own."""

_STATE = struct.Struct(">8sIQqqQ")
_BEGINNING = struct.pack(">8sI", MAGIC, FORMAT)
VERSION = slice(12, 20)
"""Where the version is in the stored state."""


DATABASES = ((b"rows", False), (b"deadlines", True), (b"log", False), (b"commits", True))

DATA = "data.mdb"
LOCKS = "lock.mdb"
WRITER_LOCK = "writer.lock"
OURS = frozenset({DATA, LOCKS, WRITER_LOCK})

LARGEST_KEY = 511
"""The maximum key size of LMDB unless it was built with another; a file must open wherever it is carried to."""

MOST_READERS = 1_022
"""Reads and snapshots open at one time, in all processes; LMDB's default is 126."""


class State(NamedTuple):
    """The last versionstamp, the high-water mark of the clock, and how long and since when changes are kept."""

    version: int
    clock: int
    retention_ms: int
    floor: int


class Databases(NamedTuple):
    """Rows by key; keys by deadline; the last commit by key, and keys by commit, if changes are kept."""

    rows: lmdb._Database
    deadlines: lmdb._Database
    log: lmdb._Database
    commits: lmdb._Database


class OpenEnvironment(NamedTuple):
    """An environment and its databases."""

    environment: lmdb.Environment
    databases: Databases


def data_file(path: str) -> str:
    """The file whose identity is that of the store."""
    return os.path.join(path, DATA)


def writer_lock_file(path: str) -> str:
    """The file whose lock a writer holds."""
    return os.path.join(path, WRITER_LOCK)


def refuse_unusable_path(path: str, url: str, *, must_exist: bool) -> None:
    """Refuse a path that cannot be, or become, the folder of a store."""
    if file_identity(path) is not None and not os.path.isdir(path):
        hint = "An LMDB store is a folder. Give the path of one, or sqlite:/// for an SQLite file."
        raise EngineError("the path is a file", url=url, reason=path, hint=hint)
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        raise EngineError("the folder does not exist", url=url, reason=above, hint="Create the folder first.")
    if file_identity(data_file(path)) is not None:
        if not os.path.isfile(data_file(path)):  # a pipe or a device would be waited for
            raise EngineError("the path is not a file", url=url, reason=data_file(path), hint="Give another folder.")
        return
    if must_exist:
        raise EngineError(
            "the file does not exist",
            url=url,
            reason=data_file(path),
            hint="A store that is opened with readonly=True must exist; open it without once to create it.",
        )
    others = sorted(set(os.listdir(path)) - OURS) if os.path.isdir(path) else []
    if others:
        raise ForeignFileError(
            "the folder contains other files",
            url=url,
            reason=", ".join(others[:3]),
            hint="Give the path of a folder that is empty or does not exist.",
        )


def refuse_foreign_file(path: str, url: str) -> None:
    """Look at a database that has never been opened by this library, without so much as a lock file."""
    data = data_file(path)
    # A folder with our lock is ours, or becomes it while we look: then one looks with LMDB's locks.
    if os.path.exists(writer_lock_file(path)) or not os.path.exists(data) or os.stat(data).st_size == 0:
        return
    _refuse_cut_file(path)
    environment = lmdb.Environment(path, readonly=True, lock=False, create=False, max_dbs=len(DATABASES))
    try:
        with environment.begin() as transaction:
            read_state(transaction, url)
    finally:
        environment.close()


def _refuse_cut_file(path: str) -> None:
    """Refuse a file that lacks pages, which would end the process when LMDB reads them. Raises DecodeError."""
    if os.path.exists(data_file(path)) and is_cut_short(data_file(path)):
        raise DecodeError(
            "the LMDB file is damaged",
            reason="it was cut short: pages that are in use lie behind its end",
            hint="Restore a backup. A copy must be made by kv.backup(), or while no program has the store open.",
        )


def is_writable(path: str) -> bool:
    """Whether this user may write the store; one that is not there yet is tried."""
    data = data_file(path)
    return not os.path.exists(data) or os.access(data, os.W_OK)


def open_environment(path: str, url: str, options: FileOptions, map_size: int, *, readonly: bool) -> lmdb.Environment:
    """Open the environment; the folder must exist. Raises ReadOnlyError, UnsupportedError or lmdb.Error."""
    if readonly and os.stat(data_file(path)).st_size == 0:
        raise _empty(url)
    _refuse_cut_file(path)
    environment = lmdb.Environment(
        path,
        map_size=map_size,
        readonly=readonly,
        metasync=options.durability == "commit",
        create=False,
        max_dbs=len(DATABASES),
        max_readers=MOST_READERS,
        max_spare_txns=1,
    )
    if environment.max_key_size() < LARGEST_KEY:
        size = environment.max_key_size()
        environment.close()
        raise UnsupportedError(
            "this build of LMDB takes keys that are too short",
            url=url,
            reason=f"{size} bytes, needed are {LARGEST_KEY}",
            hint="Install the package lmdb from PyPI.",
        )
    return environment


def read_state(transaction: lmdb.Transaction[bytes], url: str) -> State | None:
    """The state of the store, or None when the database is empty. Raises ForeignFileError or UnsupportedError."""
    stored = transaction.get(STATE_KEY)
    if stored is not None and len(stored) == _STATE.size and stored.startswith(_BEGINNING):
        return _new(State, _STATE.unpack(stored)[2:])
    if stored is None and not transaction.stat()["entries"]:
        return None
    if stored is None or not stored.startswith(MAGIC):
        raise ForeignFileError("this LMDB database belongs to another application", url=url)
    number = int.from_bytes(stored[len(MAGIC) : len(MAGIC) + 4], "big")
    raise UnsupportedError(
        "the file has a format that this version does not know",
        url=url,
        reason=f"format {number}, known is {FORMAT}",
        hint="Install the version of kvmodels that wrote it, or a later one.",
    )


def write_state(transaction: lmdb.Transaction[bytes], state: State) -> None:
    """Store the state, in a write transaction."""
    transaction.put(STATE_KEY, _STATE.pack(MAGIC, FORMAT, *state))


def open_databases(environment: lmdb.Environment, transaction: lmdb.Transaction[bytes] | None = None) -> Databases:
    """The databases of the environment.

    ``transaction``: a write transaction, in which those that are missing are made; None if the environment is open for
    reading only. Without one, an environment for writing would begin one for each database.
    """
    create = transaction is not None
    return Databases(
        *(environment.open_db(name, transaction, dupsort=sorted_, create=create) for name, sorted_ in DATABASES)
    )


def initialise(environment: lmdb.Environment, url: str, clock: EngineClock, *, raise_counter: bool) -> Databases:
    """Open the databases, make the store ours if it is empty, and raise its counter; one durable transaction."""
    with environment.begin(write=True) as transaction:
        state = read_state(transaction, url)
        databases = open_databases(environment, transaction)
        if state is None or raise_counter:
            present = state or State(0, 0, 0, 0)
            write_state(transaction, present._replace(version=max(present.version + 1, clock.counter_floor())))
            clock.raise_to(present.clock)
    # Whatever the durability of the commits: a number is never used twice, whatever a power loss takes away later.
    environment.sync(True)
    return databases


def refuse_uninitialised(environment: lmdb.Environment, url: str, clock: EngineClock) -> None:
    """For an environment that cannot be written: the store must be ours already."""
    with environment.begin() as transaction:
        state = read_state(transaction, url)
    if state is None:
        raise _empty(url)
    clock.raise_to(state.clock)


def _empty(url: str) -> ReadOnlyError:
    return ReadOnlyError(
        "the file is empty, and it cannot be made a store because it is open for reading only",
        url=url,
        hint="It must be opened once with readonly=False, by a user who may write the file and its folder.",
    )
