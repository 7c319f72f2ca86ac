"""The connections to one SQLite database: a pool for reading, one for writing, and when they open and close.

Rules of this module: one store per file and process. A commit holds ``write_lock`` and leaves its connection
outside any transaction, whatever interrupts it; a reading connection returns to the pool only outside a
transaction. Before a fork every connection is closed, and opened again when it is needed. While ``write_lock`` is free,
the writing connection is inside a transaction only if writes are reserved.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from kvmodels.core.operations import Committed, Conflict
from kvmodels.engines.shared.background import DueRemovals
from kvmodels.engines.shared.file_checks import FileIdentity, file_identity, refuse_network_place, replaced
from kvmodels.engines.shared.file_engine import FileOptions, FileStore
from kvmodels.engines.shared.group_commit import Group, UncontendedCommit
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite import log as sqlite_log
from kvmodels.engines.sqlite import statements, write_transactions
from kvmodels.engines.sqlite.file import (
    IDLE_CONNECTIONS,
    MEMORY_PATH,
    SETTINGS_OF_A_READER,
    SETTINGS_OF_THE_WRITER,
    leaves_doubt,
    translated,
    with_backoff,
)
from kvmodels.engines.sqlite.write_transactions import SqliteTransaction
from kvmodels.errors import CommitUnknownError, EngineTimeoutError, KvModelsError

T = TypeVar("T")


class SqliteStore(FileStore[sqlite_file.Connection]):
    """The state of one database that its handles share."""

    def __init__(self, path: str, url: str, options: FileOptions) -> None:
        super().__init__(path, url, options, sqlite3.Error)
        self.in_memory = path == MEMORY_PATH
        """Whether this is a private database in memory: reads hold ``write_lock`` and use ``writer``."""
        # One value, so that an interrupt cannot come between its parts.
        self._known: write_transactions.Known = (0, None)
        self.writer: sqlite_file.Connection | None = None
        self._refused = False
        self.raised = False
        self._due: DueRemovals | None = None
        self._opening = threading.Lock()
        self.idle: SimpleQueue[sqlite_file.Connection] = SimpleQueue()
        # Plain weak references: a WeakSet removes what has died in a callback, and an interrupt in that is swallowed
        # and leaves the set with a length that never becomes zero.
        self._readers: list[weakref.ref[sqlite_file.Connection]] = []

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two looks for commits of other processes; None when no other process can commit."""
        return None if self.in_memory else self.options.poll_interval

    def open(self) -> None:
        """Recognise or make the file; called once, by the first handle. Its counter is raised by the first commit."""
        backoff = self.backoff()
        if self.in_memory:
            self.writer = sqlite_file.connect_memory()
            sqlite_file.initialise_memory(self.writer, self.clock)
            self._set_up_log(self.writer, backoff)
            self.raised = True
            return
        if not self.options.allow_network_fs:
            refuse_network_place(self.path, self.url)
        exists = sqlite_file.refuse_unusable_path(self.path, self.url, must_exist=self.readonly)
        self.readonly = self.readonly or not sqlite_file.is_writable(self.path)
        try:
            if self.readonly:
                self.idle.put(self._open_reader(backoff))
            elif not exists or not self._is_ready(backoff):
                self.writer = self._open_writer(backoff, create=True)
                self.raised = True
                self._set_up_log(self.writer, backoff)
        except BaseException:
            self.close("not opened")
            raise
        self.identity = self.present_identity()
        self.background.opened(self._due)

    def _is_ready(self, backoff: Backoff) -> bool:
        """Whether the file, which exists, lacks nothing; then one reading connection is open, and nothing was written.

        The counter is raised by the first commit: to raise it here would be a commit of its own, and the disk would
        be waited for by programs that only read.
        """
        if self.options.change_log is not None or sqlite_file.has_log(self.path):
            sqlite_file.prepare(self.path, self.url, backoff)
        if self.options.change_log is not None:
            return False
        found: list[tuple[int, bool, int | None] | None] = []
        connection = self._open_reader(backoff, lambda one: found.append(sqlite_file.ready(one, self.url)))
        state = found[-1]
        if state is None:
            self._discard(connection)
            return False
        high_water, logs, earliest_ms = state
        self.clock.raise_to(high_water)
        self.idle.put(connection)
        self._due = None if logs else DueRemovals(earliest_ms, None)
        return True

    def _set_up_log(self, writer: sqlite3.Connection, backoff: Backoff) -> None:
        retention_ms = self.options.change_log
        if retention_ms is not None:
            with_backoff(backoff, lambda: sqlite_log.set_up(writer, retention_ms))

    # Reading

    def reading(self, work: Callable[[sqlite_file.Connection], T]) -> T:
        """Do ``work`` on a reading connection, again while the file is busy; it may leave a transaction open."""
        if self.in_memory:
            with self.write_lock:
                if self.writer is None:
                    raise self.closed_error()
                try:
                    return work(self.writer)
                finally:
                    self.writer.rollback()
        backoff = None
        while True:
            connection = self.borrow()
            try:
                connection.in_call = True
                return work(connection)
            except sqlite3.Error as error:
                if not connection.discarded:
                    backoff = backoff or self.backoff()
                    backoff.wait(error)
            finally:
                connection.in_call = False
                self.give_back(connection)

    def present_identity(self) -> FileIdentity | None:
        """The identity of the file that the path holds now."""
        return file_identity(self.path)

    def reading_at_once(self, work: Callable[[sqlite_file.Connection], T]) -> T | None:
        """Do ``work`` if that takes no waiting, else return None; it may have been begun then."""
        if self.in_memory:
            # Not acquire(blocking=False): an interrupt behind it would leave the lock taken. Between the look and the
            # "with" another thread may come, whose commit in memory is short.
            return None if self.write_lock.locked() else self.reading(work)
        owned = self.borrow_at_once()
        if not owned:
            return None
        connection = owned[0]
        try:
            connection.in_call = True
            return work(connection)
        except sqlite3.Error:
            return None  # the caller reads again with backoff, and is told what is wrong
        finally:
            connection.in_call = False
            self.give_back(connection)

    def present_version(self) -> int:
        """The counter as the file holds it; raises as ``reading``."""
        return self.reading(statements.pinned_state)[0]

    def due(self) -> DueRemovals:
        """Return the rows and changes that are due for removal; raises as ``reading``."""
        return self.reading(lambda one: DueRemovals(statements.earliest_deadline(one), sqlite_log.log_state(one)))

    def borrow_at_once(self) -> list[sqlite_file.Connection]:
        """A reading connection that is open and idle, or nothing; the caller gives it back."""
        try:
            return [self.idle.get_nowait()]
        except Empty:
            return []

    def borrow(self) -> sqlite_file.Connection:
        """A reading connection; the caller gives it back. Raises ClosedError: the store was closed meanwhile."""
        try:
            return self.idle.get_nowait()
        except Empty:
            return self._open_reader(self.backoff())

    def give_back(self, connection: sqlite_file.Connection) -> None:
        """End a transaction that is still open, and keep the connection for the next call."""
        if connection.discarded:
            return
        if connection.in_transaction:
            connection.rollback()
        if self.idle.qsize() < IDLE_CONNECTIONS:
            self.idle.put(connection)
        else:
            self._discard(connection)

    def open_readers(self) -> list[sqlite_file.Connection]:
        """The reading connections that are open: in the pool, in use, or dropped by an interrupt."""
        found = [reference() for reference in self._readers]
        return [connection for connection in found if connection is not None and not connection.discarded]

    def _discard(self, connection: sqlite_file.Connection) -> None:
        connection.discarded = True
        connection.close()

    def _open_reader(
        self, backoff: Backoff, check: Callable[[sqlite_file.Connection], None] | None = None
    ) -> sqlite_file.Connection:
        with self._opening:
            if self.closed_reason is not None:
                raise self.closed_error()
            mode = sqlite_file.reading_mode(self.path) if self.readonly else "rw"
            connection = with_backoff(backoff, lambda: sqlite_file.connect(self.path, mode))
            self._readers = [*map(weakref.ref, self.open_readers()), weakref.ref(connection)]
            try:
                with_backoff(backoff, lambda: (check or self._check_file)(connection))
                with_backoff(backoff, lambda: [connection.execute(one).fetchall() for one in SETTINGS_OF_A_READER])
            except BaseException:
                self._discard(connection)
                raise
            connection.share_cursor()
            return connection

    def _check_file(self, connection: sqlite3.Connection) -> None:
        sqlite_file.refuse_uninitialised(connection, self.url)
        # Connections are opened as they are needed, long after the store was: the path may hold another file.
        if self.identity is not None and self.present_identity() != self.identity:
            raise replaced(self.url, self.path)

    # Writing

    def _carry_out_alone(self, commit: UncontendedCommit) -> None:
        """Carry out an operation; see ``GroupCommitter.commit_uncontended``."""
        with self.write_lock:
            connection = self.writer
            if connection is None or not self.raised or self.closed_reason is not None or self.snapshots:
                return
            if connection.in_transaction or not write_transactions.ends_at_once(commit.write):
                return
            try:
                connection.execute("BEGIN IMMEDIATE")
                written = write_transactions.written(connection, self.clock, self._known, commit.write)
                if written is None or isinstance(written, Conflict):
                    connection.rollback()
                    commit.verdict = written
                    return
                version, earliest_ms, check = written
                commit.verdict = Committed(version.to_bytes(8, "big") + statements.ZEROS)
                connection.execute("COMMIT")
                commit.committed = True
                self._known = version, check
            except BaseException as error:
                # As in ``_write``: nothing that takes an interrupt may come before the rollback.
                open_still = connection.in_transaction
                try:
                    connection.rollback()
                except sqlite3.Error as failure:
                    self._give_up_writer(connection, error, failure)
                if isinstance(error, sqlite3.Error):
                    self._refuse(error, in_commit=commit.verdict is not None)
                    return
                commit.committed = commit.verdict is not None and not open_still  # the interrupt came behind COMMIT
                raise
        self.background.committed(version, earliest_ms)

    def _refuse(self, error: sqlite3.Error, *, in_commit: bool) -> None:
        """Raise what an error of an uncontended commit means, unless a group may have more luck."""
        if in_commit and leaves_doubt(error, self.path):
            raise self._fail(error) from error
        meaning = self.translated(error)
        if not isinstance(error, sqlite3.IntegrityError) and not isinstance(meaning, EngineTimeoutError):
            raise meaning from error

    def _carry_out(self, group: Group) -> None:
        def work(connection: sqlite3.Connection) -> SqliteTransaction:
            transaction = SqliteTransaction(connection, self.clock)
            if group.run(transaction):
                transaction.finish()
            else:
                connection.rollback()
            return transaction

        written = self._write(work, group.backoff, group)
        # One call for the group: each woken waiter reads the store, and finds all changes of the group.
        if written.version is not None:
            self.background.committed(written.version, written.earliest_ms)

    def sweep(self, limit: int, backoff: Backoff) -> int:
        """Remove up to ``limit`` rows that have expired, in one commit; how many there were."""
        self._require_writable()

        def apply(connection: sqlite3.Connection) -> tuple[int, int]:
            version, now, _ = statements.judge(connection, (), self.clock)
            statements.set_state(connection, version, now)
            swept = statements.delete_expired(connection, limit, now)
            if not swept:
                connection.rollback()
            return swept, version

        swept, version = self._write(apply, backoff)
        if swept:
            self.background.committed(version, None)
        return swept

    def trim_log(self, before_ms: int, backoff: Backoff) -> None:
        """Forget the changes that were made up to a time; a commit that changes no row."""
        self._require_writable()

        def apply(connection: sqlite3.Connection) -> None:
            version, now, _ = statements.judge(connection, (), self.clock)
            statements.set_state(connection, version, now)
            if sqlite_log.log_state(connection) is not None:
                sqlite_log.trim(connection, before_ms)

        self._write(apply, backoff)

    def raise_counter(self) -> None:
        """Raise the counter now, if no commit of this process has: a number that a power loss took may be asked for."""
        if not self.raised and not self.readonly:
            self._write(lambda _: None, self.backoff())

    def _write(self, work: Callable[[sqlite3.Connection], T], backoff: Backoff, group: Group | None = None) -> T:
        """Do ``work`` in a write transaction, which it may roll back; ``group`` learns whether it was committed."""
        with self.write_lock:
            if self.snapshots:
                self.expire_snapshots(self.clock.now_ms())
            connection = self.writing_connection(backoff)
            ending = False
            try:
                self.begin(connection, backoff)
                if not self.raised:
                    sqlite_file.raise_counter(connection, self.clock)
                result = work(connection)
                if connection.in_transaction:
                    ending = True
                    self._end(connection, backoff)
                    self.raised = True
                    if group is not None:
                        group.committed = True
            except BaseException as error:
                # Also for an interrupt: a connection left inside a write transaction would block every process.
                # Nothing that takes an interrupt may come before the rollback, because a second one would hit it.
                open_still = connection.in_transaction
                try:
                    connection.rollback()
                except sqlite3.Error as failure:
                    self._give_up_writer(connection, error, failure)
                # The interrupt came behind COMMIT, which SQLite did not refuse.
                if ending and not open_still and not self._refused and group is not None:
                    group.committed = True
                if isinstance(error, sqlite3.Error):
                    raise self.translated(error) from error
                raise
        return result

    def begin(self, connection: sqlite3.Connection, backoff: Backoff) -> None:
        """Begin a write transaction, unless there is one because writes are reserved."""
        while not connection.in_transaction:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                backoff.wait(error)

    def _end(self, connection: sqlite3.Connection, backoff: Backoff) -> None:
        while True:
            self._refused = False
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._refused = True
                if leaves_doubt(error, self.path):
                    raise self._fail(error) from error
                backoff.wait(error)
            else:
                return

    def _give_up_writer(self, connection: sqlite_file.Connection, error: BaseException, failure: sqlite3.Error) -> None:
        """Close the writing connection, which could not be rolled back after an error; the next commit opens one."""
        error.add_note(f"the rollback failed too: {failure}")
        self.writer = None
        self._discard(connection)

    def _fail(self, error: sqlite3.Error) -> CommitUnknownError:
        """Close the store, because the state of the disk is unknown."""
        self.refuse_calls("an I/O error in COMMIT")
        reason = f"{error.sqlite_errorname}: {error}"
        return CommitUnknownError("the disk failed while a commit was being written", url=self.url, reason=reason)

    def _open_writer(self, backoff: Backoff, *, create: bool) -> sqlite_file.Connection:
        connection = with_backoff(backoff, lambda: sqlite_file.connect(self.path, "rwc" if create else "rw"))
        try:
            # FULL while the file is made and its counter raised, whatever the durability of the commits.
            sqlite_file.set_pragma(connection, "synchronous = FULL", backoff)
            if create:
                sqlite_file.initialise(connection, self.url, backoff, self.clock)
            else:
                with_backoff(backoff, lambda: self._check_file(connection))
            for setting in SETTINGS_OF_THE_WRITER[self.options.durability]:
                sqlite_file.set_pragma(connection, setting, backoff)
            connection.share_cursor()
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def reserve_writes(self, backoff: Backoff) -> bool:
        """Keep other processes from writing until the next commit of this one, or ``release_writes``.

        The writing connection is inside ``BEGIN IMMEDIATE`` then, and has written nothing. The next commit of this
        process is carried out in that transaction. Nothing depends on it: checks decide.
        """
        if self.in_memory or self.readonly:
            return False
        with self.write_lock:
            writer = self.writing_connection(backoff)
            if writer.in_transaction:
                return False
            self.begin(writer, backoff)
        return True

    def release_writes(self) -> None:
        """Let other processes write again; idempotent."""
        with self.write_lock:
            writer = self.writer
            if writer is not None and writer.in_transaction:
                try:
                    writer.rollback()
                except sqlite3.Error:
                    # Closing the connection ends its transaction as well; the next commit opens another one.
                    self.writer = None
                    self._discard(writer)

    def writing_connection(self, backoff: Backoff) -> sqlite_file.Connection:
        """The connection that writes, opened if need be; the caller holds ``write_lock``."""
        if self.closed_reason is not None:
            raise self.closed_error()
        connection = self.writer
        if connection is None:
            connection = self.writer = self._open_writer(backoff, create=False)
        return connection

    def translated(self, error: Exception) -> KvModelsError:
        """The error of this library for an error of SQLite."""
        return translated(error, self.url, self.path)

    # Closing

    def close(self, reason: str = "closed") -> None:
        """Wait for running calls and close every connection; nothing can be done with the store afterwards."""
        self.background.stop()
        with self.write_lock, self._opening:
            self.refuse_calls(reason)
            self._close_connections()

    def before_fork(self) -> None:
        """Wait for running calls, close every connection to a file, and hold the locks until the fork is over."""
        self.write_lock.acquire()
        self._opening.acquire()
        if not self.in_memory:
            self._close_connections()

    def after_fork_in_parent(self) -> None:
        """Let calls go on; they open connections again."""
        self._opening.release()
        self.write_lock.release()

    def _close_connections(self) -> None:
        self.expire_snapshots(None)
        writer, self.writer = self.writer, None
        if writer is not None:
            self._discard(writer)
        # The pool is empty for newcomers, who wait for the lock on opening; running calls bring theirs back. What
        # is in neither place after a while was dropped by an interrupt, and a traceback may keep it for ever.
        while self.open_readers():
            try:
                self._discard(self.idle.get(timeout=0.02))
            except Empty:
                for connection in self.open_readers():
                    if not connection.in_call:
                        self._discard(connection)
