"""The shared state of one PostgreSQL store in this process: connections, clock, waiters, and the queue of commits.

Rules of this module: reads are repeated once on a new connection, commits never without a resolution. The greatest
version and time that any answer has shown go with every call, so that a server that has lost both learns of it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg

from kvmodels._support.turns import Turns
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Removal, Row, to_versionstamp
from kvmodels.engines.contract import CommitWaiter, QueuedCommit
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import (
    NO_ANSWER,
    CallAnswer,
    CallOutcome,
    CommitRun,
    Outcome,
    Pause,
    Step,
    Uncomputed,
    commit_statements,
)
from kvmodels.engines.postgres.connection import (
    FALSE,
    TRUE,
    Call,
    Calls,
    PostgresConnection,
    int8,
)
from kvmodels.engines.postgres.connections.pool import READS
from kvmodels.engines.postgres.connections.server import ServerConnections
from kvmodels.engines.postgres.flows import AS_RAISED, Flow, RangesRead, Settling, computing_flow
from kvmodels.engines.postgres.listening import CHECK_S, CommitListener
from kvmodels.engines.postgres.modes import WriterMode
from kvmodels.engines.postgres.packing import PackedWrite, packed
from kvmodels.engines.postgres.places import KeyPlaces
from kvmodels.engines.postgres.reads import (
    NONE,
    Reading,
    StateSeen,
    Times,
    due_once,
    durable_reads_once,
    state_once,
    statements,
)
from kvmodels.engines.postgres.schema import ADDING_INTEGERS, NOT_UPGRADED, WITHOUT_SEALS, prepare_schema, quoted
from kvmodels.engines.postgres.settings import PostgresOptions
from kvmodels.engines.postgres.snapshot import SNAPSHOTS, BegunSnapshot, FirstRow, lost_or_refused
from kvmodels.engines.shared.background import DueRemovals, LogState, StoreBackground
from kvmodels.engines.shared.clock import EngineClock, ServerClock, system_clock_ms
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.engines.shared.file_checks import read_only
from kvmodels.engines.shared.file_engine import FileSnapshot, expire_snapshots
from kvmodels.engines.shared.group_commit import Group, GroupCommitter
from kvmodels.engines.shared.registry import closed_error
from kvmodels.engines.shared.steps import run_steps
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import ClosedError, EngineTimeoutError, KvModelsError

COMMITS_KEPT_MS: Final = 3_600_000
"""How long the id of a commit is remembered: an operation that is delivered later is refused."""

COMMITS_BETWEEN_TRIMS: Final = 1_000
MOST_TRIMMED: Final = 5_000

_SWEEP: Final = "SELECT removed, s, d FROM {schema}.sweep_1(%b, %b, %b, %b, %b, %b, %b)"
_TRIM: Final = "SELECT {schema}.trim_1(%b, %b, %b, %b, %b, %b, %b, %b)"
_KEEP_READS: Final = "SELECT {schema}.keep_durable_reads_2(%b, %b, %b, %b, %b)"
_KEEP: Final = "SELECT {schema}.keep_changes_1(%b, %b, %b, %b, %b)"

ResultT = TypeVar("ResultT")


class PostgresStore:
    """One store on a server, as all its handles in this process share it.

    Args:
        path: what names it among the open stores.
        options: of the engine.
        server: has the connections; other stores may share it.
    """

    def __init__(self, path: str, options: PostgresOptions, server: ServerConnections) -> None:
        self.path = path
        self.url = server.url
        self.server = server.join()
        self.options = options
        self.schema = quoted(options.schema)
        self.readonly = options.readonly
        self.busy_timeout = options.busy_timeout
        self.synced = TRUE if options.durability == "commit" else FALSE
        self.handles = 0
        self.identity = None
        self.closed_reason: str | None = None
        self._left = False
        self.seen = 0
        self.clock = ServerClock() if options.clock is None else EngineClock(options.clock)
        self.turns = Turns()
        self.snapshots: dict[int, weakref.ref[FileSnapshot[Any]]] = {}
        self.mode = WriterMode()
        self.settling = Settling()
        self.texts = statements(self.schema, seals=False)
        self.commit_texts = commit_statements(self.schema)
        self.conninfo = server.conninfo
        self._pool = server.pool
        self._committing = threading.Lock()
        self._committer = GroupCommitter(self._carry_out, psycopg.Error)
        self._since_trim = 0
        self.first_key: bytes | None = None
        self.adds_integers = False
        self.background = StoreBackground(self)
        self.listener = CommitListener(self, server.listener)
        self.places = KeyPlaces(self)
        self.turns.on_outsiders = self.places.want

    def open(self) -> None:
        """Make the store if need be, and learn its state.

        Raises:
            EngineError, EngineTimeoutError, ForeignFileError, UnsupportedError.
        """
        try:
            functions = self._once_more(self._prepare)
            self._use(seals=functions > WITHOUT_SEALS)
            self.adds_integers = functions >= ADDING_INTEGERS
            self.present_version()
            self._keep_changes()
            self._keep_durable_reads()
            self.background.opened()
        except BaseException:
            self.close()
            raise

    def _prepare(self, connection: PostgresConnection) -> int:
        """Make or upgrade the schema, and return the number of its functions."""
        return prepare_schema(connection, self.options, self.url)

    def _use(self, *, seals: bool) -> None:
        """Use the functions that the store has: with seals, or those of an earlier release."""
        durable = self.synced == TRUE
        self.texts = statements(self.schema, seals=seals)
        self.mode.usable = seals and durable and not self.readonly
        self.settling.needed = seals and durable
        self.settling.may_seal = not self.readonly

    @property
    def answer_s(self) -> float:
        """Seconds after which a call without an answer is given up, with its connection."""
        return self.server.answer_s

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks for commits of other processes."""
        return CHECK_S if self.listener.active else self.options.poll_interval

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit of any process, until the returned function is called."""
        unsubscribe = self.background.subscribe(wake)
        self.listener.want()
        return unsubscribe

    # Time and versions

    def times(self) -> Times:
        """The time of a call: that of a clock that was passed in, else the server's."""
        clock = self.clock
        if isinstance(clock, ServerClock):
            return Times(NONE, clock.high_water)
        return Times(clock.now_ms(), NONE)

    def note(self, state: StateSeen) -> None:
        """Take over the version and the time of an answer; a time of 0 says nothing."""
        if state.version > self.seen:
            self.seen = state.version
        clock = self.clock
        if state.present:
            if isinstance(clock, ServerClock):
                clock.answered(state.present)
            else:
                clock.raise_to(state.present)

    def present_version(self) -> int:
        """The version of the last commit, as the server has it."""
        state = self.reading(lambda: state_once(self.texts, self.times()))
        self.note(state)
        return state.version

    # Requests of flows

    def run(self, steps: Flow[ResultT]) -> ResultT:
        """Carry out a flow in this thread, and return its result. Raises what it raises."""
        return run_steps(steps, self._answered, AS_RAISED)

    def _answered(self, request: Any) -> Any:
        if isinstance(request, RangesRead):
            return self.reading(request.calls)
        if isinstance(request, Reading):
            return self._read_pinned(request) if request.pinned else self.reading(request.make)
        if isinstance(request, PackedWrite):
            return self._commit_packed(request)
        assert isinstance(request, Pause)
        return time.sleep(request.seconds)

    def _read_pinned(self, request: Reading) -> Any:
        """Carry out a read in a transaction of one state."""
        connection, _, _ = self.begin_snapshot()
        failure: KvModelsError
        try:
            return connection.run(request.make())
        except psycopg.Error as error:
            failure = lost_or_refused(error, self.url, self.schema)
        finally:
            self.return_snapshot(connection)
        raise failure

    # Connections

    def reading(self, make: Callable[[], Calls[ResultT]]) -> ResultT:
        """Run the calls of a read on a connection, and new ones once more on a new one if the first was lost.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError; and what the read raises.
        """
        return self._once_more(lambda connection: connection.run(make()))

    def _once_more(self, work: Callable[[PostgresConnection], ResultT]) -> ResultT:
        """Do what may be done twice on a connection, and once more on a new one if the first was lost."""
        self.require_open()
        failure: KvModelsError | None = None
        for attempt in range(2):
            connection = self._pool.take(READS, self.busy_timeout, self)
            try:
                self.require_open()
                return work(connection)
            except psycopg.Error as error:
                failure = errors.translated(error, self.url, self.schema)
                if not errors.is_lost(error) or attempt:
                    break
            finally:
                self._pool.give_back(connection)
            self._pool.drop_idle()
        assert failure is not None
        raise failure

    def _written(self, call: Call) -> CallAnswer:
        """Carry out a call that writes, for the holder of ``_committing``. Raises as connecting does."""
        connection = self._pool.take_writer(self.busy_timeout, self)
        try:
            connection.warned = False
            rows = connection.call(call.statement, call.parameters)
            return CallAnswer(rows, connection.warned)
        finally:
            self._pool.give_back(connection)

    def drop_connections(self) -> None:
        """Close the connections that are not reading: the server has restarted, or is another one."""
        self._pool.drop_writer()
        self._pool.drop_idle()

    def begins_with(self, key: bytes) -> None:
        """Have the next snapshot read this key in the round trip that begins it."""
        self.first_key = key

    def begin_snapshot(self) -> BegunSnapshot:
        """Return a connection in a transaction of one state, and the row that was read with its beginning.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        self.require_open()
        expire_snapshots(self.snapshots, self.clock.now_ms())
        given, mark = self.times()
        key = self.first_key
        # One string without parameters, so that both statements are one round trip.
        start = "NULL" if key is None else f"pg_catalog.decode('{key.hex()}', 'hex')"
        text = (
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "  # noqa: S608 - a quoted name, numbers, digits
            f"SELECT k, v, e, s, d FROM {self.schema}.read_1(ARRAY[{start}]::pg_catalog.bytea[], '{{NULL}}', "
            f"'{{NULL}}', '{{4}}', '', '{NONE}', '{given}', '{mark}', 'false', '0', '{{}}', '{{}}', '{{}}', '{{}}')"
        )
        failure: KvModelsError | None = None
        for attempt in range(2):
            connection = self._pool.take(SNAPSHOTS, self.busy_timeout, self)
            kept = False
            try:
                self.require_open()
                cursor = connection.execute(text.encode(), prepare=False)
                cursor.nextset()
                (_, _, _, *seen), *rows = cursor.fetchall()
                state = StateSeen(*seen)
                self.note(state)
                found = [Row(k, v, e, to_versionstamp(version), at) for k, v, e, version, at in rows]
                kept = True
                first = None if key is None else FirstRow(key, found[0] if found else None)
                return BegunSnapshot(connection, state, first)
            except psycopg.Error as error:
                failure = errors.translated(error, self.url, self.schema)
                if not errors.is_lost(error) or attempt:
                    break
            finally:
                if not kept:
                    self._pool.give_back(connection, in_transaction=True)
            self._pool.drop_idle()
        assert failure is not None
        raise failure

    def return_snapshot(self, connection: PostgresConnection) -> None:
        """Take the connection of a snapshot back. For finalizers too."""
        self._pool.give_back(connection, in_transaction=True)

    # Commits

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply an operation whole, or return the conflict. Raises as ``Engine.commit``."""
        self.require_writable()
        if packed(write, adds_integers=self.adds_integers) is not None:
            outcome: Outcome = self._committer.commit(write, self.backoff())
        else:
            outcome = self.run(computing_flow(self, write))
        if isinstance(outcome, KvModelsError):
            raise outcome
        return outcome

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit:
        """Put an operation into the queue; the next caller of ``committer.lead`` carries it out."""
        self.require_open()
        self.require_writable()
        return self._committer.submit(write, self.backoff(), waiter)

    def outcome(self, token: str) -> bool:
        """Return whether an operation without an answer was applied; see ``CommitRun.resolve``."""
        self.require_writable()
        with self._committing:
            self.require_open()
            run = CommitRun(self, self.commit_texts, [PackedWrite((), [], [], [])])
            return run.resolve(token, self.perform)

    def _commit_packed(self, write: PackedWrite) -> Outcome:
        """Carry out one operation outside of the queue."""
        with self._committing:
            self.require_open()
            run = CommitRun(self, self.commit_texts, [write])
            run.finish(self.perform)
        outcome = run.outcomes[0]
        assert outcome is not None
        assert not isinstance(outcome, Uncomputed), "it has no functions"
        self._announce([(write, outcome)])
        return outcome

    def _carry_out(self, group: Group) -> None:
        """Commit a group of the queue in one call; see ``GroupCommitter``."""
        while group.take() is not None:
            pass
        with self._committing:
            self.require_open()
            members = group.members
            writes = [packed(one.write, adds_integers=self.adds_integers) for one in members]
            sent = [(member, write) for member, write in zip(members, writes, strict=True) if write is not None]
            run = CommitRun(self, self.commit_texts, [write for _, write in sent])
            # From here on nothing is put back into the queue: what was sent is certain only by its own outcome.
            group.committed = True
            try:
                run.finish(self.perform)
            finally:
                for (member, _), outcome in zip(sent, run.outcomes, strict=True):
                    member.verdict = None if isinstance(outcome, Uncomputed) else outcome
        self._announce([(write, outcome) for (_, write), outcome in zip(sent, run.outcomes, strict=True)])
        for member in members:
            if member.verdict is None and isinstance(member.write, AtomicWrite):
                try:
                    member.verdict = self.run(computing_flow(self, member.write))
                except Exception as refusal:  # noqa: BLE001 - raised where the operation came from
                    member.verdict = refusal

    def _announce(self, done: list[tuple[PackedWrite, CallOutcome | None]]) -> None:
        """Wake the waiters of this process, and remove old rows of commits now and then."""
        if self.announce(done):
            with suppress(EngineTimeoutError, ClosedError):  # the next thousand commits try again
                self.trim_log(None, self.no_wait())

    def announce(self, done: list[tuple[PackedWrite, CallOutcome | None]]) -> bool:
        """Wake the waiters of this process, and return whether old rows of commits are to be removed."""
        applied = [write for write, outcome in done if isinstance(outcome, Committed)]
        if not applied:
            return False
        earliest = min((at for write in applied if (at := write.earliest_ms) is not None), default=None)
        last = max(outcome.versionstamp for _, outcome in done if isinstance(outcome, Committed))
        self.settling.durable = max(self.settling.durable, from_versionstamp(last))
        self.background.committed(from_versionstamp(last), earliest)
        self._since_trim += len(applied)
        if self._since_trim < COMMITS_BETWEEN_TRIMS:
            return False
        self._since_trim = 0
        return True

    def trim_call(self, log_before: int = NONE) -> Call:
        """Return the call that removes old changes, and rows of commits that are old enough."""
        kept = self.clock.now_ms() - COMMITS_KEPT_MS
        return self._writing_call(_TRIM, int8(log_before), int8(kept), int8(MOST_TRIMMED))

    def perform(self, step: Step) -> CallAnswer:
        """Carry out one step of a commit. Raises KvModelsError if nothing was sent, else psycopg's errors."""
        if not isinstance(step, Call):
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                self.drop_connections()
            return NO_ANSWER
        return self._written(step)

    def _writing_call(self, statement: str, *parameters: bytes) -> Call:
        """Return the call of a function that writes on its own account."""
        given, mark = self.times()
        context = (int8(given), int8(mark), int8(self.seen), int8(max(1, round(self.busy_timeout * 1_000))))
        synced = () if statement in (_KEEP, _KEEP_READS) else (self.synced,)
        return Call(statement.format(schema=self.schema).encode(), (*parameters, *context, *synced))

    def _writing(self, statement: str, *parameters: bytes) -> tuple[int, ...]:
        """Run a statement that writes on its own account, and may run twice. Returns its row."""
        self.require_open()
        self.require_writable()
        failure: KvModelsError | None = None
        with self._committing:
            for attempt in range(2):
                self.require_open()
                try:
                    return self._written(self._writing_call(statement, *parameters)).rows[0]
                except psycopg.Error as error:
                    failure = errors.translated(error, self.url, self.schema)
                    if not (errors.is_lost(error) or error.sqlstate == errors.READ_ONLY) or attempt:
                        break
                self.drop_connections()
        assert failure is not None
        raise failure

    # Waiting and sweeping: what StoreBackground asks for

    def due(self) -> DueRemovals:
        """Return when the next removal is due."""
        deadline, log_ms, floor, oldest = self.reading(lambda: due_once(self.texts))
        return DueRemovals(deadline, None if log_ms is None else LogState(log_ms, floor, oldest))

    def backoff(self) -> Backoff:
        """A new deadline for one call."""
        return Backoff(self.busy_timeout, _as_it_is)

    def no_wait(self) -> Backoff:
        """Return the deadline of background work, which gives way to every call."""
        return Backoff(0.0, _as_it_is)

    def sweep(self, limit: int, backoff: Backoff) -> int:  # noqa: ARG002 - the server waits for the lock
        """Remove up to ``limit`` rows that have expired, in one commit; how many there were."""
        removed, version, present = self._writing(_SWEEP, int8(limit), int8(system_clock_ms()))
        self.note(StateSeen(version, present))
        if removed:
            self.background.committed(version, None)
        return removed

    def trim_log(self, before_ms: int | None, backoff: Backoff) -> None:  # noqa: ARG002 - as sweep
        """Forget the changes made up to a time (None: those old enough), and rows of commits that are old enough."""
        kept = self.clock.now_ms() - COMMITS_KEPT_MS
        before = NONE if before_ms is None else before_ms
        self._writing(_TRIM, int8(before), int8(kept), int8(MOST_TRIMMED))

    def _keep_changes(self) -> None:
        wanted = self.options.change_log
        if wanted is None or self.readonly:
            return
        log = self.due().log
        if (0 if log is None else log.retention_ms) != wanted:
            self._writing(_KEEP, int8(wanted))

    def _keep_durable_reads(self) -> None:
        wanted = self.options.durable_reads
        if wanted is None or self.readonly:
            return
        if not self.settling.needed and not self.mode.usable and self.synced == TRUE:
            raise NOT_UPGRADED.of(self.url, "upgrade")
        if self.reading(lambda: durable_reads_once(self.texts)) != wanted:
            self._writing(_KEEP_READS, TRUE if wanted else FALSE)

    # Life

    def require_open(self) -> None:
        """Raise ClosedError once the store is closed."""
        if self.closed_reason is not None:
            raise self.closed_error()

    def require_writable(self) -> None:
        """Raise ReadOnlyError if the store was opened for reading."""
        if self.readonly:
            raise read_only(self.url, asked_for=True)

    def closed_error(self) -> ClosedError:
        """Return the error of a call on a closed store."""
        return closed_error(self.url, self.closed_reason or "closed")

    def close(self) -> None:
        """Wait for running calls and close every connection."""
        self.closed_reason = "closed"
        self.background.stop()
        self.listener.stop()
        self.places.stop()
        with self._committing:
            pass  # the commit that runs has ended
        expire_snapshots(self.snapshots, None)
        if not self._left:
            self._left = True
            self.server.leave(self)

    def before_fork(self) -> None:
        """Nothing: a child finds its handles abandoned, and libpq's wrapper closes nothing there."""

    def after_fork_in_parent(self) -> None:
        """Nothing, as before."""


def _as_it_is(error: Exception) -> KvModelsError:
    if isinstance(error, KvModelsError):
        return error
    return EngineTimeoutError("the server did not carry out the call in time", reason=type(error).__name__)
