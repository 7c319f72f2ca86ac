"""The store in one LMDB folder: its commits, sweeps, and the operations of one write transaction.

Rules of this module: one store per folder and process. A write transaction is inside a ``with`` statement, so that an
interrupt ends it, and the writer's lock of the file is held around it. An operation is evaluated by reads before
anything of it is written; a refused one uses no version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import lmdb

from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Row, to_versionstamp
from kvmodels.engines.lmdb import file as lmdb_file
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.environment import LmdbEnvironment
from kvmodels.engines.lmdb.file import Databases, OpenEnvironment, State, write_state
from kvmodels.engines.lmdb.rows import Transaction
from kvmodels.engines.shared.background import DueRemovals, LogState
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import confirmed_failures, evaluate
from kvmodels.engines.shared.file_checks import refuse_network_place
from kvmodels.engines.shared.group_commit import Group, UncontendedCommit
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import CommitUnknownError

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class EvaluatedWrite(NamedTuple):
    """One operation, ready to be stored: the state after it, its stamp, the rows that it leaves, its first deadline."""

    state: State
    stamp: bytes
    changes: dict[bytes, Row | None]
    earliest_ms: int | None


class LmdbTransaction:
    """The operations of a group in one write transaction of the store.

    Attributes:
        version: of the last operation that was written; None while there is none.
        earliest_ms: the first deadline that was written, or None.
    """

    def __init__(self, transaction: Transaction, databases: Databases, state: State, clock: EngineClock) -> None:
        self._transaction = transaction
        self._databases = databases
        self._state = state
        self._clock = clock
        self.version: int | None = None
        self.earliest_ms: int | None = None

    def next_state(self) -> State:
        """The state that the next operation leaves: the next version, and a clock that does not go back."""
        version, high_water, retention_ms, floor = self._state
        return _new(State, (version + 1, self._clock.not_before(high_water), retention_ms, floor))

    def evaluate(self, write: AtomicWrite) -> EvaluatedWrite | Conflict:
        """Judge an operation against the transaction, earlier operations included; nothing is written."""
        transaction, databases = self._transaction, self._databases
        state = self.next_state()
        checks, mutations = write
        failed = lmdb_rows.failed_checks(transaction, databases, checks, state.clock) if checks else ()
        if failed:
            failed = confirmed_failures(
                checks, failed, lambda one: lmdb_rows.scan(transaction, databases, one, state.clock)
            )
        if failed:
            return Conflict(failed)
        stamp = to_versionstamp(state.version)
        changes, earliest_ms = evaluate(
            mutations,
            stamp,
            state.clock,
            lambda key: lmdb_rows.stored_row(transaction, databases, key),
        )
        lmdb_rows.require_storable_keys(changes)
        return _new(EvaluatedWrite, (state, stamp, changes, earliest_ms))

    def apply(self, evaluated: EvaluatedWrite) -> Committed:
        """Write what was evaluated. Raises lmdb.Error: the transaction cannot go on."""
        state, stamp, changes, earliest_ms = evaluated
        lmdb_rows.write(self._transaction, self._databases, state, changes)
        self._applied(state)
        if earliest_ms is not None and (self.earliest_ms is None or earliest_ms < self.earliest_ms):
            self.earliest_ms = earliest_ms
        return _new(Committed, (stamp,))

    def remove_expired(self, limit: int) -> int:
        """Remove up to ``limit`` rows that have expired; how many there were. Uses a version only if there are any."""
        state = self.next_state()
        keys = lmdb_rows.expired_keys(self._transaction, self._databases, limit, state.clock)
        if not keys:
            return 0
        self._applied(state)
        return lmdb_rows.write(self._transaction, self._databases, state, dict.fromkeys(keys))

    def trim_log(self, before_ms: int) -> None:
        """Forget the changes that were made up to a time; a commit that changes no row."""
        state = self.next_state()
        if state.retention_ms:
            floor = lmdb_rows.trim(self._transaction, self._databases, state.floor, before_ms)
            state = state._replace(floor=floor)
        self._applied(state)

    def keep_changes(self, retention_ms: int) -> None:
        """Begin to keep changes for so long, or change how long, or end it (0)."""
        present, state = self._state, self.next_state()
        if present.retention_ms == retention_ms:
            return
        if not present.retention_ms:
            state = state._replace(floor=present.version)
        elif not retention_ms:
            lmdb_rows.forget_changes(self._transaction, self._databases)
        self._applied(state._replace(retention_ms=retention_ms))

    def finish(self) -> None:
        """Store the state; called before the transaction is committed."""
        write_state(self._transaction, self._state)

    def _applied(self, state: State) -> None:
        self._state = state
        self.version = state.version


T = TypeVar("T")


class LmdbStore(LmdbEnvironment):
    """The state of one folder that its handles share."""

    def open(self) -> None:
        """Recognise or make the store, and raise its counter; called once, by the first handle."""
        if not self.options.allow_network_fs:
            refuse_network_place(self.path, self.url)
        lmdb_file.refuse_unusable_path(self.path, self.url, must_exist=self.readonly)
        self.readonly = self.readonly or not lmdb_file.is_writable(self.path)
        try:
            lmdb_file.refuse_foreign_file(self.path, self.url)
            with self.write_lock, self._gate:
                if not self.readonly:
                    os.makedirs(self.path, exist_ok=True)
                self._open_environment(self.backoff(), first=True)
        except (lmdb.Error, OSError) as error:
            raise self.translated(error) from error
        try:
            self.identity = self.present_identity()
            self._set_up_log()
            self.background.opened()
        except BaseException:
            self.close("not opened")
            raise

    def _set_up_log(self) -> None:
        retention_ms = self.options.change_log
        if retention_ms is not None and not self.readonly:
            self._write(lambda transaction: transaction.keep_changes(retention_ms), self.backoff())

    def present_version(self) -> int:
        """The counter as the file holds it; raises as ``reading``."""

        def version(opened: OpenEnvironment) -> int:
            with opened.environment.begin() as transaction:
                return self.state_in(transaction).version

        return self.reading(version)

    def due(self) -> DueRemovals:
        """Return the rows and changes that are due for removal; raises as ``reading``."""

        def look(opened: OpenEnvironment) -> DueRemovals:
            with opened.environment.begin() as transaction:
                state = self.state_in(transaction)
                log = None
                if state.retention_ms:
                    oldest_ms = lmdb_rows.oldest_change_ms(transaction, opened.databases)
                    log = LogState(state.retention_ms, state.floor, oldest_ms)
                return DueRemovals(lmdb_rows.earliest_deadline(transaction, opened.databases), log)

        return self.reading(look)

    # Writing

    def sweep(self, limit: int, backoff: Backoff) -> int:
        """Remove up to ``limit`` rows that have expired, in one commit; how many there were."""
        self._require_writable()
        return self._write(lambda transaction: transaction.remove_expired(limit), backoff)

    def trim_log(self, before_ms: int, backoff: Backoff) -> None:
        """Forget the changes that were made up to a time; a commit that changes no row."""
        self._require_writable()
        self._write(lambda transaction: transaction.trim_log(before_ms), backoff)

    def reserve_writes(self, backoff: Backoff) -> bool:
        """Hold the writer's lock until the next commit of this process, or ``release_writes``; whether it was taken."""
        if self.readonly:
            return False
        with self.write_lock:
            if self._writes_reserved:
                return False
            taken = False
            try:
                self._require_environment(backoff)
                self._writer_lock.acquire(backoff)
                taken = self._writes_reserved = True
            finally:
                if not taken:
                    self._writer_lock.release()
        return True

    def release_writes(self) -> None:
        """Let other processes write again; idempotent."""
        with self.write_lock:
            if self._writes_reserved:
                self._writes_reserved = False
                self._writer_lock.release()

    def _carry_out_alone(self, commit: UncontendedCommit) -> None:
        self._write(commit.run, commit.backoff, commit)

    def _carry_out(self, group: Group) -> None:
        self._write(group.run, group.backoff, group)

    def _write(
        self, work: Callable[[LmdbTransaction], T], backoff: Backoff, group: Group | UncontendedCommit | None = None
    ) -> T:
        """Do ``work`` in a write transaction, again if the map must be made larger; ``group`` learns of the commit."""
        with self.write_lock:
            if self.snapshots:
                self.expire_snapshots(self.clock.now_ms())
            while True:
                opened = self._require_environment(backoff)
                try:
                    result, written = self._transact(opened, work, backoff, group)
                except lmdb.MapFullError:
                    self._make_room(opened)
                    # A group has judged each operation by those before it, so only a single one can run again here.
                    if isinstance(group, Group) and len(group.members) > 1:
                        raise
                except lmdb.MapResizedError:
                    self._resize(0)
                except lmdb.Error as error:
                    raise self.translated(error) from error
                else:
                    break
        # One call for the group: each woken waiter reads the store, and finds all changes of the group.
        if written.version is not None:
            self.background.committed(written.version, written.earliest_ms)
        return result

    def _transact(
        self,
        opened: OpenEnvironment,
        work: Callable[[LmdbTransaction], T],
        backoff: Backoff,
        group: Group | UncontendedCommit | None,
    ) -> tuple[T, LmdbTransaction]:
        """Do ``work`` in one write transaction, and commit it if anything was applied."""
        version: int | None = None
        try:
            if not self._writes_reserved:
                self._writer_lock.acquire(backoff)
            with opened.environment.begin(write=True) as raw:
                transaction = LmdbTransaction(raw, opened.databases, self.state_in(raw), self.clock)
                result = work(transaction)
                version = transaction.version
                if version is None:
                    raw.abort()
                else:
                    transaction.finish()
                    if group is not None:
                        # Before and not behind the commit: nothing takes an interrupt between this and the call.
                        group.committed = True
                    self._end(opened, raw)
        except (lmdb.Error, CommitUnknownError):
            if group is not None:
                group.committed = False
            raise
        except BaseException:
            if group is not None and group.committed and version is not None:
                group.committed = self._contains(opened, version)
            raise
        finally:
            self._writes_reserved = False
            self._writer_lock.release()
        return result, transaction

    def _end(self, opened: OpenEnvironment, raw: Transaction) -> None:
        try:
            raw.commit()
        except lmdb.Error as error:
            # The page that makes a commit valid is written last. If that fails, LMDB refuses everything from then on,
            # because the content of the disk is unknown; a commit that fails before that was not applied.
            if self._is_broken(opened):
                self.refuse_calls("an I/O error in a commit")
                reason = f"{type(error).__name__}: {error}"
                raise CommitUnknownError(
                    "the disk failed while a commit was being written", url=self.url, reason=reason
                ) from error
            raise

    def _is_broken(self, opened: OpenEnvironment) -> bool:
        try:
            opened.environment.begin().abort()
        except lmdb.PanicError:
            return True
        except lmdb.Error:
            return False
        return False

    def _contains(self, opened: OpenEnvironment, version: int) -> bool:
        """Whether a commit is in the file that an interrupt came upon; the caller holds the writer's lock."""
        try:
            with opened.environment.begin() as transaction:
                return self.state_in(transaction).version >= version
        except lmdb.Error:
            return True  # it was being committed, and LMDB did not refuse it

    def close(self, reason: str = "closed") -> None:
        """Wait for running calls and close the environment; nothing can be done with the store afterwards."""
        self.background.stop()
        with self.write_lock, self._gate:
            self.refuse_calls(reason)
            self._close_environment()
