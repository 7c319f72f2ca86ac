"""The engine that keeps everything in one SQLite file, or in a private SQLite database in memory.

Rules of this module: handles, which translate calls into reads and commits of the shared store; SQL is in
``statements.py``, connections are in ``store.py``, the file is in ``file.py``. A read of one key takes an idle
connection, gives it back, whatever happens, and makes few calls around its one statement; where it gets no answer,
``SqliteStore.reading`` waits for a busy file and raises the right error.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import Empty
from typing import Literal

from kvmodels.core.operations import (
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    PlainRow,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Removal,
    to_versionstamp,
)
from kvmodels.engines.contract import Capabilities, ImmediateReads, WriteCalls
from kvmodels.engines.shared.background import require_reached, require_retention, resume_expired, without_change_log
from kvmodels.engines.shared.file_checks import canonical_path
from kvmodels.engines.shared.file_engine import FileEngine, FileOptions, attach, require_sensible
from kvmodels.engines.shared.registry import StoreRegistry
from kvmodels.engines.sqlite import counts as sqlite_counts
from kvmodels.engines.sqlite import log as sqlite_log
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.backup import SHARED_FILE_MODE, new_backup
from kvmodels.engines.sqlite.file import IDLE_CONNECTIONS, MEMORY_PATH, Connection, connect_memory
from kvmodels.engines.sqlite.readers import SqliteSnapshot, SqliteTurnReader
from kvmodels.engines.sqlite.store import SqliteStore
from kvmodels.limits import Limits, Traits

FILE_TRAITS = Traits(may_lose_answers=False, snapshots=True, blocking=True, persistent=True)
MEMORY_TRAITS = Traits(may_lose_answers=False, snapshots=True, blocking=True, persistent=False)

PRIVATE_MEMORY = ":memory:"

_files: StoreRegistry[SqliteStore] = StoreRegistry()


class SqliteEngine(FileEngine[SqliteStore]):
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
        poll_interval: seconds between two checks for commits of other processes, while a caller waits for one.
        change_log: seconds or a timedelta for which changes are kept in the file, by every process that writes it;
            0 ends it, None leaves it as the file has it.

    Raises:
        EngineError: the path is a folder, or its folder does not exist or may not be entered or written.
        ForeignFileError: the file is not one of this library; it is left as it was.
        InvalidArgumentError: an option makes no sense, or the file is open in this process with other options.
        EngineTimeoutError, DecodeError, UnsupportedError.

    Examples:
        >>> from kvmodels.core.operations import AtomicWrite, Check, Set
        >>> engine = SqliteEngine(":memory:")
        >>> committed = engine.commit(AtomicWrite((Check(b"k", None),), (Set(b"k", b"v", 3),)))
        >>> engine.read([ReadRange(b"a", b"z")]).ranges[0][0].value
        b'v'
        >>> engine.close()
    """

    __slots__ = ("capabilities",)

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
        options = FileOptions(
            durability=durability,
            clock=clock,
            readonly=readonly,
            busy_timeout=busy_timeout,
            snapshot_max_age=snapshot_max_age,
            allow_network_fs=allow_network_fs,
            poll_interval=poll_interval,
            change_log=require_retention(change_log),
        )
        require_sensible(options, ("busy_timeout", "snapshot_max_age", "poll_interval"))
        given = os.fspath(path)
        url = given if url is None else url
        traits = MEMORY_TRAITS if given == PRIVATE_MEMORY else FILE_TRAITS
        store = _attach(given, url, options)
        super().__init__(_files, store, limits, url)
        self.capabilities = Capabilities(
            traits,
            ImmediateReads(
                row=None if given == PRIVATE_MEMORY else self.row_at_key,
                read=self.read_at_once,
                count=self.count_at_once,
                snapshot=self.snapshot_at_once,
                turn_reader=self.turn_reader,
            ),
            WriteCalls(
                submit=self.submit, remove=self.remove, reserve=self.reserve_writes, release=self.release_writes
            ),
            turns=store.turns,
            files=() if given == PRIVATE_MEMORY else (store.path, f"{store.path}-wal"),
        )

    def remove(self, removal: Removal) -> Committed | Conflict:
        """Remove a key and what follows from its row, which is read in the transaction of the commit."""
        return self.check_open().commit(removal)

    def row_at_key(self, key: bytes, guard: Guard | None, follow: Follow | None) -> PlainRow | tuple[()] | None:
        """The row of a key, or with a guard the one that follows from it; None where ``read`` has to be asked.

        One statement, of nothing but the row, and one of the clock if it has a deadline. ``()``: there is no row, which
        is said of a key alone. None is no answer: the file is busy, the guard does not hold, ``follow`` is no
        ``PredictedFollow``, there is no row where it expects one, or it has a deadline there; ``read`` tells these
        apart.
        """
        store = self._store
        if store is None or store.closed_reason is not None:
            return None
        statement = statements.AT_KEY
        if guard is not None or follow is not None:
            if guard is None or not isinstance(follow, PredictedFollow):
                return None
            asked = follow.asked
            if asked is None or asked[0] is not follow.guess or asked[1] is not guard:
                asked = follow.asked = statements.predicted_row(follow, guard)
            if asked is None:
                return None
            statement = asked[2]
        idle = store.idle  # always empty for a private database in memory
        try:
            connection = idle.get_nowait()
        except Empty:
            return None
        try:
            connection.in_call = True
            # Of bytes Python asks first whether they are to be adapted, which takes longer than to copy them.
            found: PlainRow | None = connection.execute(statement, (bytearray(key),)).fetchone()
            if found is not None and found[4] is not None:  # not behind a slot, see ``PREDICTED_ROW``
                found = statements.unless_expired(connection, found, store.clock)
        except sqlite3.Error:
            return None
        finally:
            connection.in_call = False
            # What give_back does for a connection that no transaction was begun on, without the call of it.
            if connection.discarded or idle.qsize() >= IDLE_CONNECTIONS:
                store.give_back(connection)
            else:
                idle.put(connection)
        if guard is None:
            return () if found is None else found
        if found is not None and follow is not None:
            follow.misses = 0
        return found

    def turn_reader(self) -> SqliteTurnReader:
        """Return a reader of single rows for one turn of an event loop. Raises ClosedError."""
        return SqliteTurnReader(self.check_open())

    def snapshot(self) -> SqliteSnapshot:
        """Pin the present state, with the deadlines as of now.

        Cost: one statement on a file. A private database in memory is copied, because it has one connection.
        """
        store = self.check_open()
        if store.in_memory:
            with store.write_lock:
                if store.writer is None:
                    raise store.closed_error()
                copies = [connect_memory()]
                store.writer.backup(copies[0])
            return SqliteSnapshot(self, store, copies)
        backoff = None
        while True:
            # In a list, which the snapshot empties when it takes over: at every moment one of the two owns it.
            owned = [store.borrow()]
            try:
                owned[0].execute("BEGIN")
                return SqliteSnapshot(self, store, owned)
            except sqlite3.Error as error:
                if not owned[0].discarded:
                    backoff = backoff or store.backoff()
                    backoff.wait(error)
            finally:
                if owned:
                    store.give_back(owned.pop())

    def snapshot_at_once(self) -> SqliteSnapshot | None:
        """Pin the present state in this thread if that takes no waiting, else return None. Raises ClosedError."""
        store = self.check_open()
        owned = [] if store.in_memory else store.borrow_at_once()
        try:
            if not owned:
                return None
            owned[0].execute("BEGIN")
            return SqliteSnapshot(self, store, owned)
        except sqlite3.Error:
            return None
        finally:
            if owned:
                store.give_back(owned.pop())

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range)."""
        self.check_open().raise_counter()
        return super().changes(one, after)

    def backup(self, path: str) -> None:
        """Copy one snapshot into a new file, with SQLite's own backup; O(pages), and commits go on meanwhile.

        A private database in memory has one connection: there, commits wait. The copy has no change log. A restored
        store begins a new one above all older versionstamps, so that a follower whose last changes were undone by the
        restore starts with the present state.
        """
        store = self.check_open()
        mode = SHARED_FILE_MODE if store.in_memory else stat.S_IMODE(os.stat(store.path).st_mode)

        def fill(target: sqlite3.Connection) -> None:
            store.reading(_copy_into(target))
            sqlite_log.set_up(target, 0)

        new_backup(path, self.url, mode, fill)

    def _read(
        self,
        reader: Connection,
        store: SqliteStore,
        ranges: Sequence[ReadRange],
        guard: Guard | None,
        follow: Follow | None,
        *,
        all_time: bool,
    ) -> ReadResult | GuardFailed:
        if len(ranges) == 1:
            start, end, limit, _, _ = ranges[0]
            clock = None if all_time else store.clock
            if end is None and limit is None:
                if guard is not None:
                    result = statements.read_guarded_point(reader, start, guard, follow, clock)
                    if result is not None:
                        return result
                elif follow is None:
                    return statements.read_point(reader, start, clock)
        reader.execute("BEGIN")
        version, high_water = statements.pinned_state(reader)
        now = statements.BEFORE_ALL_TIME if all_time else max(store.clock.now_ms(), high_water)
        found = statements.read_ranges(reader, ranges, now, guard, follow)
        if isinstance(found, GuardFailed):
            return found
        return ReadResult(found[0], found[1], to_versionstamp(version))

    def _count(
        self,
        reader: Connection,
        store: SqliteStore,
        ranges: Sequence[ReadRange],
        guard: Guard | None,
        most: int | None = None,
    ) -> Counted | GuardFailed:
        indexed = not store.readonly
        if indexed and len(ranges) == 1 and ranges[0].end is not None and ranges[0].limit is None:
            return sqlite_counts.count_together(reader, ranges[0], guard, store.clock, most)
        reader.execute("BEGIN")
        version, high_water = statements.pinned_state(reader)
        now = max(store.clock.now_ms(), high_water)
        if guard is not None:
            found = statements.read_ranges(reader, (), now, guard)
            if isinstance(found, GuardFailed):
                return found
        numbers = sqlite_counts.count_ranges(reader, ranges, now, indexed=indexed, most=most)
        return Counted(numbers, to_versionstamp(version))

    def _changes(self, reader: Connection, store: SqliteStore, one: ReadRange, after: bytes) -> Changes:
        reader.execute("BEGIN")
        version, high_water = statements.pinned_state(reader)
        log = sqlite_log.log_state(reader)
        if log is None:
            raise without_change_log(store.url)
        require_reached(after, to_versionstamp(version))
        since = int.from_bytes(after[:8], "big")
        if since < log.floor:
            raise resume_expired(store.url, after, to_versionstamp(log.floor))
        changes, last = sqlite_log.changes_in(reader, one, since, max(store.clock.now_ms(), high_water))
        return Changes(changes, to_versionstamp(version if last is None else last))


def _copy_into(target: sqlite3.Connection) -> Callable[[Connection], None]:
    def copy(connection: Connection) -> None:
        # The snapshot is pinned first: the backup itself would wait for a busy file without an end.
        connection.execute("BEGIN")
        statements.pinned_state(connection)
        connection.backup(target)

    return copy


def _attach(given: str, url: str, options: FileOptions) -> SqliteStore:
    """A new store, or the one that this process has open on the same file."""
    path = MEMORY_PATH if given == PRIVATE_MEMORY else canonical_path(given, url)

    def opened() -> SqliteStore:
        store = SqliteStore(path, url, options)
        store.open()
        return store

    if path != MEMORY_PATH:
        return attach(_files, path, url, options, opened)
    with _files.lock:
        private = opened()
        private.handles = 1
        _files.private.add(private)
        return private
