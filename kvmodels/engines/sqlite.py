"""The engine that keeps everything in one SQLite file, or in a private SQLite database in memory.

Rules of this module: handles, which translate calls into reads and commits of the shared store; SQL is in
``sqlite_statements``, connections are in ``sqlite_store``, the file is in ``sqlite_file``.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

from kvmodels.engines import sqlite_log
from kvmodels.engines import sqlite_statements as statements
from kvmodels.engines.backup import SHARED_FILE_MODE, new_backup
from kvmodels.engines.evaluation import to_versionstamp
from kvmodels.engines.forking import forget_after_fork
from kvmodels.engines.registry import StoreRegistry, require_same_options
from kvmodels.engines.signals import wait_for
from kvmodels.engines.sqlite_file import Connection, connect_memory, file_identity, refuse_network_file_system
from kvmodels.engines.sqlite_snapshot import SqliteSnapshot
from kvmodels.engines.sqlite_store import MEMORY_PATH, SYNCHRONOUS, SqliteOptions, SqliteStore
from kvmodels.engines.sweeping import (
    require_reached,
    require_retention,
    require_sweep_limit,
    resume_expired,
    without_change_log,
)
from kvmodels.errors import ClosedError, EngineError, InvalidArgumentError
from kvmodels.limits import Limits, Traits
from kvmodels.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)

__all__ = ["SqliteEngine", "SqliteSnapshot"]

FILE_TRAITS = Traits(may_lose_answers=False, snapshots=True, hides_expired=True, blocking=True, persistent=True)
MEMORY_TRAITS = Traits(may_lose_answers=False, snapshots=True, hides_expired=True, blocking=True, persistent=False)

PRIVATE_MEMORY = ":memory:"

_files: StoreRegistry[SqliteStore] = StoreRegistry()


class SqliteEngine:
    """An ordered store in one SQLite file, shared by any number of threads and processes of one machine.

    A read of one key is one statement, every other read one transaction; a commit is one write
    transaction, and one writer at a time is let in. In WAL mode readers and the writer do not wait for each other.
    All engines of one process that open the same file share its connections, and must ask for the same options.

    Args:
        path: the file, made if it is absent; ``":memory:"`` for a private database in memory.
        limits: the largest sizes, for the layers above.
        url: what to show in messages; None for the path.
        durability: ``"commit"`` (a returned commit survives a power loss) or ``"relaxed"`` (it survives a killed
            process; after a power loss the file is intact and holds a prefix of the commits).
        clock: milliseconds since the epoch; None for the system's clock.
        readonly: commits raise ReadOnlyError, and the file must exist. A file that this user may not write is
            opened in this way by itself.
        busy_timeout: seconds that any one call may wait for other processes.
        snapshot_max_age: seconds after which a snapshot expires; an open one keeps the log from being shortened.
        allow_network_fs: do not refuse network file systems; safe only while one machine opens the file.
        poll_interval: seconds between two looks for commits of other processes, while somebody waits for one.
        change_log: seconds or a timedelta for which changes are kept in the file, by every process that writes it;
            0 ends it, None leaves it as the file has it.

    Raises:
        EngineError: the path is a folder, or its folder does not exist.
        ForeignFileError: the file is not one of this library; it is left as it was.
        InvalidArgumentError: an option makes no sense, or the file is open in this process with other options.
        EngineTimeoutError, DecodeError, UnsupportedError.

    Examples:
        >>> from kvmodels.operations import Check, Set
        >>> engine = SqliteEngine(":memory:")
        >>> committed = engine.commit(AtomicWrite((Check(b"k", None),), (Set(b"k", b"v", 3),)))
        >>> engine.read([ReadRange(b"a", b"z")]).ranges[0][0].value
        b'v'
        >>> engine.close()
    """

    __slots__ = ("__weakref__", "_closed_reason", "_limits", "_store", "_traits", "_url")

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Limits = Limits.EMBEDDED,
        *,
        url: str | None = None,
        durability: Literal["commit", "relaxed"] = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        busy_timeout: float = 5.0,
        snapshot_max_age: float = 60.0,
        allow_network_fs: bool = False,
        poll_interval: float = 0.05,
        change_log: float | timedelta | None = None,
    ) -> None:
        options = SqliteOptions(
            durability=durability,
            clock=clock,
            readonly=readonly,
            busy_timeout=busy_timeout,
            snapshot_max_age=snapshot_max_age,
            allow_network_fs=allow_network_fs,
            poll_interval=poll_interval,
            change_log=require_retention(change_log),
        )
        _require_sensible(options)
        given = os.fspath(path)
        self._limits = limits
        self._url = given if url is None else url
        self._closed_reason: str | None = None
        self._traits = MEMORY_TRAITS if given == PRIVATE_MEMORY else FILE_TRAITS
        self._store: SqliteStore | None = _attach(given, self._url, options)
        forget_after_fork(self)

    @property
    def limits(self) -> Limits:
        """The largest sizes that this store takes."""
        return self._limits

    @property
    def traits(self) -> Traits:
        """How this engine behaves."""
        return self._traits

    @property
    def url(self) -> str:
        """What was opened, for messages."""
        return self._url

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the clock that decides on expiry; it never goes back."""
        return self.check_open().clock.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it.

        Cost: O(log n + rows) per range; rows are fetched up to the limit, and completely before this returns.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError (a damaged file).
        """
        store = self.check_open()
        return store.reading(
            lambda connection: _read(connection, store, ranges, guard, include_expired=include_expired, follow=follow)
        )

    def snapshot(self) -> SqliteSnapshot:
        """Pin the present state, with the deadlines as of now.

        Cost: one statement on a file. A private database in memory is copied, because it has one connection.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError (a damaged file).
        """
        store = self.check_open()
        if store.in_memory:
            with store.write_lock:
                if store.writer is None:
                    raise self._closed()
                copies = [connect_memory()]
                store.writer.backup(copies[0])
            return SqliteSnapshot(self, store, copies)
        patience = None
        while True:
            # In a list, which the snapshot empties when it takes over: at every moment one of the two owns it.
            owned = [store.borrow()]
            try:
                owned[0].execute("BEGIN")
                return SqliteSnapshot(self, store, owned)
            except sqlite3.Error as error:
                if not owned[0].discarded:
                    patience = patience or store.patience()
                    patience.wait(error)
            finally:
                if owned:
                    store.give_back(owned.pop())

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. O(log n) per check and mutation, one fsync.

        Raises:
            CommitUnknownError: the disk failed in the middle of COMMIT; the engine is closed then.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer; nothing was applied.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError: nothing was applied.
        """
        return self.check_open().commit(write)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when a handle of the store is closed.

        While anybody is subscribed, a thread reads the counter every ``poll_interval``, about 20 us each.

        Raises:
            ClosedError: the engine is closed.
        """
        return self.check_open().background.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Raises:
            ClosedError: the engine is closed, or was while this waited.
            EngineTimeoutError, DecodeError (a damaged file).
        """
        return wait_for(self._present_stamp, self.subscribe, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, in one commit; an index search and O(log n) each.

        Raises:
            InvalidArgumentError: the limit is not a positive integer.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError: nothing was removed.
        """
        require_sweep_limit(limit)
        store = self.check_open()
        return store.sweep(limit, store.patience())

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range).

        Raises:
            UnsupportedError: the file keeps no change log.
            ResumeExpiredError: the log no longer reaches back.
            InvalidArgumentError: the store never reached the versionstamp.
            ClosedError, EngineTimeoutError, DecodeError.
        """
        store = self.check_open()
        return store.reading(lambda connection: _changes(connection, store, one, after))

    def writer_pragmas(self) -> dict[str, int | str]:
        """What the writing connection says of its own settings, by name; for tests and for support.

        Raises:
            ClosedError: the engine is closed.
            ReadOnlyError: the engine has no writing connection.
        """
        return self.check_open().writer_pragmas()

    def backup(self, path: str) -> None:
        """Copy one snapshot into a new file, with SQLite's own backup; O(pages), and commits go on meanwhile.

        A private database in memory has one connection: there, commits wait.

        Raises:
            EngineError: there is a file already, or it cannot be written; StorageFullError: no room.
            ClosedError, EngineTimeoutError, DecodeError (a damaged file).
        """
        store = self.check_open()
        mode = SHARED_FILE_MODE if store.in_memory else stat.S_IMODE(os.stat(store.path).st_mode)
        new_backup(os.path.abspath(path), self._url, mode, lambda target: store.reading(_copy_into(target)))

    def close(self) -> None:
        """Wait for running calls; the last handle closes the connections. Idempotent."""
        with _files.lock:
            store, self._store = self._store, None
            if store is None:
                return
            self._closed_reason = "closed"
            store.handles -= 1
            if store.handles == 0:
                if _files.stores.get(store.path) is store:
                    del _files.stores[store.path]
                store.close()
        store.background.signal.notify()

    def abandon(self) -> None:
        """Forget the store in a forked child; its connections were closed before the fork."""
        if self._store is not None:
            self._closed_reason = "forked"
            self._store = None

    def check_open(self) -> SqliteStore:
        """The store of this handle, or ClosedError."""
        store = self._store
        if store is None:
            raise self._closed()
        if store.closed_reason is not None:
            raise store.closed_error()
        return store

    def _present_stamp(self) -> bytes:
        return to_versionstamp(self.check_open().present_version())

    def _closed(self) -> ClosedError:
        if self._closed_reason == "forked":
            return ClosedError("this store was opened before the process was forked", url=self._url, reason="forked")
        return ClosedError("this store is closed", url=self._url, reason="closed")


def _read(
    connection: Connection,
    store: SqliteStore,
    ranges: Sequence[ReadRange],
    guard: Guard | None,
    follow: Follow | None,
    *,
    include_expired: bool,
) -> ReadResult | GuardFailed:
    if guard is None and follow is None and len(ranges) == 1:
        one = ranges[0]
        if one.end is None and one.limit != 0:
            return statements.read_point(connection, one.start, None if include_expired else store.clock)
    connection.execute("BEGIN")
    version, high_water = statements.pinned_state(connection)
    now = statements.BEFORE_ALL_TIME if include_expired else max(store.clock.now_ms(), high_water)
    found = statements.read_ranges(connection, ranges, now, guard, follow)
    if isinstance(found, GuardFailed):
        return found
    return ReadResult(found[0], found[1], to_versionstamp(version))


def _copy_into(target: sqlite3.Connection) -> Callable[[Connection], None]:
    def copy(connection: Connection) -> None:
        # The snapshot is pinned first: the backup itself would wait for a busy file without an end.
        connection.execute("BEGIN")
        statements.pinned_state(connection)
        connection.backup(target)

    return copy


def _changes(connection: Connection, store: SqliteStore, one: ReadRange, after: bytes) -> Changes:
    connection.execute("BEGIN")
    version, high_water = statements.pinned_state(connection)
    require_reached(after, to_versionstamp(version))
    log = sqlite_log.log_state(connection)
    if log is None:
        raise without_change_log(store.url)
    since = int.from_bytes(after[:8], "big")
    if since < log.floor:
        raise resume_expired(store.url, after, to_versionstamp(log.floor))
    changes, last = sqlite_log.changes_in(connection, one, since, max(store.clock.now_ms(), high_water))
    return Changes(changes, to_versionstamp(version if last is None else last))


def _attach(given: str, url: str, options: SqliteOptions) -> SqliteStore:
    """A new store, or the one that this process has open on the same file."""
    path = MEMORY_PATH if given == PRIVATE_MEMORY else os.path.realpath(given)
    with _files.lock:
        store = _files.stores.get(path)
        if store is not None and store.closed_reason is None:
            if options.change_log is None:
                options = options._replace(change_log=store.options.change_log)
            require_same_options(store.options._asdict(), options._asdict())
            if file_identity(path) != store.identity:
                raise EngineError(
                    "the file was replaced while the store was open",
                    url=url,
                    reason=path,
                    hint="Close every handle before the file is moved, replaced or restored.",
                )
            store.handles += 1
            return store
        if store is not None:
            _files.private.add(store)
        opened = SqliteStore(path, url, options)
        if path != MEMORY_PATH and not options.allow_network_fs and os.path.exists("/proc/mounts"):
            with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
                refuse_network_file_system(path, url, mounts)
        opened.open()
        opened.handles = 1
        if path == MEMORY_PATH:
            _files.private.add(opened)
        else:
            _files.stores[path] = opened
        return opened


def _require_sensible(options: SqliteOptions) -> None:
    if options.durability not in SYNCHRONOUS:
        raise InvalidArgumentError(
            "this durability does not exist",
            argument="durability",
            value=options.durability,
            expected=tuple(SYNCHRONOUS),
        )
    for argument in ("busy_timeout", "snapshot_max_age", "poll_interval"):
        value = getattr(options, argument)
        sensible = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        if not sensible or (argument != "busy_timeout" and value == 0):
            raise InvalidArgumentError(
                "a number of seconds is negative, zero or no number",
                argument=argument,
                value=value,
                hint="Give seconds as a number, 0 or more (all but busy_timeout: above 0).",
            )
