"""The engine that keeps everything in one schema of a PostgreSQL database; needs the extra ``postgres``.

Rules of this module: handles, which translate calls into reads and commits of the shared store; statements are in
``reads.py`` and ``commits.py``, the functions that they call in ``sql/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeVar

from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Removal,
)
from kvmodels.engines.contract import Capabilities, CommitWaiter, QueuedCommit, ServerCalls, WriteCalls
from kvmodels.engines.postgres.connections.server import ConnectionParameters, ServerConnections
from kvmodels.engines.postgres.flows import (
    Flow,
    RangesRead,
    changes_flow,
    commit_flow,
    count_flow,
    pin_flow,
    read_flow,
    settle_flow,
    stamp_flow,
)
from kvmodels.engines.postgres.native.engine import PostgresAsyncEngine
from kvmodels.engines.postgres.reads import sizes_once
from kvmodels.engines.postgres.settings import (
    PostgresOptions,
    connection_string,
    require_sensible_options,
    retention_ms,
    shown_url,
)
from kvmodels.engines.postgres.snapshot import BegunSnapshot, PostgresSnapshot
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.background import require_sweep_limit
from kvmodels.engines.shared.evaluation import from_versionstamp
from kvmodels.engines.shared.registry import StoreHandle, StoreRegistry, require_same_options
from kvmodels.engines.shared.server_engine import LoopForms
from kvmodels.engines.shared.waiting import wait_for
from kvmodels.engines.sqlite.backup import SHARED_FILE_MODE, copy_snapshot
from kvmodels.limits import Limits, Traits

T = TypeVar("T")

POSTGRES_TRAITS: Final = Traits(
    may_lose_answers=False, snapshots=True, blocking=True, persistent=True, clock="server", remote=True
)

_stores: StoreRegistry[PostgresStore] = StoreRegistry()

_of_the_parent: list[LoopForms[PostgresAsyncEngine]] = []


class PostgresEngine(StoreHandle[PostgresStore]):
    """An ordered store in one schema of a PostgreSQL database, shared by any number of machines.

    A read, a count and a commit are one round trip each; a read that a Python function continues is two. Commits that
    wait at the same time in one process share a call. An answer that is lost is resolved by the engine: it asks the
    server whether the commit was applied. All engines of one process with the same URL and schema must ask for the same
    options. Engines with the same URL share their connections, at most ``2 * pool_size + 1``, whatever their schemas
    are, if they have the same ``readonly``, ``pool_size``, ``prepare``, ``busy_timeout`` and ``idle_timeout``.

    Args:
        url: ``postgresql://user@host/database`` with libpq's parameters; ``PG*`` variables and service files hold.
        limits: the largest sizes, for the layers above.
        durability: ``"commit"`` (a returned commit is on the server's disk, and on that of a synchronous standby) or
            ``"relaxed"`` (a crash of the server may lose the last commits, never a part of one).
        clock: milliseconds since the epoch; None for the server's clock, which counts whatever that of this machine
            says. For tests.
        readonly: commits raise ReadOnlyError, the store must exist, and the server may be a standby.
        schema: the name of the schema that holds the store.
        pool_size: connections for reads, and as many for snapshots. Where the server has fewer, calls share them; one
            is kept for commits.
        prepare: whether statements are prepared; False for a proxy that cannot keep them.
        busy_timeout: seconds that any one call may wait for a connection, also where the server takes none at present,
            or for the lock of writers.
        snapshot_max_age: seconds after which a snapshot expires.
        poll_interval: seconds between two checks for commits of other processes, while a caller waits for one.
        change_log: seconds or a timedelta for which changes are kept, by every process that writes the store; 0 ends
            it, None leaves it as the store has it.
        create: whether the schema is made if it is absent.
        durable_reads: True has reads show only what is on the disk, so that writers of several processes wait for each
            other's flush; False lets them share it; None leaves it as the store has it, which is False in a new one.
        idle_timeout: seconds after which a connection that no call uses is closed; it is opened again when needed.

    Raises:
        InvalidArgumentError: the URL or an option makes no sense, or the store is open here with other options.
        EngineError: the server refuses the connection, or there is no store; EngineTimeoutError: it is unreachable.
        ForeignFileError: the schema holds something else.
        UnsupportedError: a later release has made the store.
    """

    __slots__ = ("_forms", "capabilities")

    def __init__(
        self,
        url: str,
        limits: Limits = Limits.EMBEDDED,
        *,
        durability: Literal["commit", "relaxed"] = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        schema: str = "kvmodels",
        pool_size: int = 10,
        prepare: bool = True,
        busy_timeout: float = 5.0,
        snapshot_max_age: float = 60.0,
        poll_interval: float = 0.05,
        change_log: float | timedelta | None = None,
        create: bool = True,
        durable_reads: bool | None = None,
        idle_timeout: float = 600.0,
    ) -> None:
        options = PostgresOptions(
            durability=durability,
            clock=clock,
            readonly=readonly,
            schema=schema,
            pool_size=pool_size,
            prepare=prepare,
            busy_timeout=busy_timeout,
            snapshot_max_age=snapshot_max_age,
            poll_interval=poll_interval,
            change_log=retention_ms(change_log),
            create=create,
            durable_reads=durable_reads,
            idle_timeout=idle_timeout,
        )
        require_sensible_options(options)
        shown = shown_url(url)
        super().__init__(_attach(url, shown, options), limits, shown)
        self._forms: LoopForms[PostgresAsyncEngine] = LoopForms()
        self.capabilities = Capabilities(
            POSTGRES_TRAITS,
            writes=WriteCalls(submit=self.submit, outcome=self.outcome),
            server=ServerCalls(
                native=self.native, sizes=self.sizes, settle=self.settle, await_settled=self.await_settled
            ),
            turns=self.check_open().turns,
        )

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the server's clock, estimated from its last answer; it never goes back."""
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

        Cost: one round trip, O(log n + rows) per range; a second one where a Python function says what follows.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError (damaged data).
        """
        return self._run(self.reading(ranges, guard, include_expired=include_expired, follow=follow))

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot.

        Cost: one round trip, O(log n + rows) per range.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError (damaged data).
        """
        return self._run(self.counting(ranges, guard))

    def snapshot(self) -> PostgresSnapshot:
        """Pin the present state, with the deadlines as of now. One round trip; it holds a connection.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        store = self.check_open()
        connection, state, first = store.begin_snapshot()
        # In a list, which the snapshot empties when it takes over: at every moment one of the two owns it.
        owned = [connection]
        try:
            return PostgresSnapshot(self, store, owned, state, first)
        finally:
            if owned:
                store.return_snapshot(owned.pop())

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. One round trip, O(log n) per check and mutation.

        A mutation with a Python function costs a read more, and both again after a conflict.

        Raises:
            CommitUnknownError: the server did not answer and could not be asked for half a minute.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer; nothing was applied.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError, UnsupportedError: nothing was applied.
        """
        return self.check_open().commit(write)

    def outcome(self, token: str) -> bool:
        """Find out whether a commit was applied whose answer was lost; if not, it never will be. One round trip.

        Raises:
            InvalidArgumentError: the token is not one of this engine.
            CommitUnknownError: the server did not answer for half a minute, or has forgotten the commit.
            ClosedError, ReadOnlyError.
        """
        return self.check_open().outcome(token)

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit:
        """Put an operation into the queue, for a thread that calls ``member.committer.lead()``; returns at once.

        Raises:
            ClosedError, ReadOnlyError.
        """
        return self.check_open().submit(write, waiter)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when a handle of the store is closed.

        While there are subscribers, a thread listens for notifications of the server, or asks it every
        ``poll_interval`` where these do not arrive.

        Raises:
            ClosedError: the engine is closed.
        """
        return self.check_open().subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Raises:
            ClosedError: the engine is closed, or was while this waited; EngineTimeoutError.
        """
        return wait_for(lambda: self._run(self.present_stamp()), self.subscribe, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, in one commit; O(log n) each.

        After a jump of the server's clock by more than an hour it removes nothing while the clock of this machine does
        not agree with it.

        Raises:
            InvalidArgumentError: the limit is not a positive integer.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError: nothing was removed.
        """
        require_sweep_limit(limit)
        store = self.check_open()
        swept = store.sweep(limit, store.backoff())
        store.background.trim_log(store.backoff())
        return swept

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range).

        Raises:
            UnsupportedError: the store keeps no change log.
            ResumeExpiredError: the log no longer reaches back, a failover has lost the commit of ``after``, or the
                store never reached it.
            ClosedError, EngineTimeoutError, DecodeError.
        """
        return self._run(self.changing(one, after))

    def backup(self, path: str) -> None:
        """Write one snapshot into a new SQLite file on this machine; O(n), and commits go on meanwhile.

        Raises:
            EngineError: there is a file already, or it cannot be written; StorageFullError: no room.
            ClosedError, EngineTimeoutError, SnapshotLostError.
        """
        with self.snapshot() as state:
            state.keep()
            copy_snapshot(state, path, self.url, SHARED_FILE_MODE, self.now_ms())

    def sizes(self) -> dict[str, int]:
        """Return the size of each table in bytes, with its indexes, by qualified name. One round trip.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        store = self.check_open()
        found = store.reading(lambda: sizes_once(store.texts))
        return {f"{store.options.schema}.{table}": size for table, size in found.items()}

    def settle(self, versionstamp: bytes) -> bool:
        """Wait until a state that was read is on the disk; false if a crash of the server has removed it.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        return self._run(self.settling(versionstamp))

    async def await_settled(self, versionstamp: bytes) -> bool:
        """Wait as ``settle`` does, without blocking the running event loop."""
        return await self.native().settle(versionstamp)

    def native(self) -> PostgresAsyncEngine:
        """Return the form for the running event loop, always the same one."""
        return self._forms.present(lambda: PostgresAsyncEngine(self))

    def close(self) -> None:
        """Wait for running calls; the last handle closes the connections. Idempotent.

        Event loops that still use the engine close their own connections, and are not waited for.
        """
        self._forms.end()
        with _stores.lock:
            store, self._store = self._store, None
            if store is None:
                return
            store.handles -= 1
            if store.handles == 0:
                if _stores.stores.get(store.path) is store:
                    del _stores.stores[store.path]
                store.close()
        store.background.signal.notify()

    def abandon(self) -> None:
        """Forget the store in a forked child; its connections belong to the parent."""
        super().abandon()
        # Kept as they are: their connections and their event loops belong to the parent.
        _of_the_parent.append(self._forms)
        self._forms = LoopForms()

    def check_open(self) -> PostgresStore:
        """The store of this handle, or ClosedError."""
        store = super().check_open()
        store.require_open()
        return store

    # What both forms share

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed, and in a forked child."""
        self.check_open()

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, *, include_expired: bool, follow: Follow | None
    ) -> Flow[ReadResult | GuardFailed]:
        """Return the flow of ``read``. Raises ClosedError."""
        return read_flow(RangesRead(self.check_open(), ranges, guard, follow, not include_expired))

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Flow[Counted | GuardFailed]:
        """Return the flow of ``count``. Raises ClosedError."""
        return count_flow(self.check_open(), ranges, guard)

    def committing(self, write: AtomicWrite) -> Flow[Committed | Conflict]:
        """Return the flow of ``commit``. Raises ClosedError, ReadOnlyError."""
        store = self.check_open()
        store.require_writable()
        return commit_flow(store, write)

    def pinning(self) -> Flow[BegunSnapshot]:
        """Return the flow of ``snapshot`` of an event loop. Raises ClosedError."""
        self.check_open()
        return pin_flow()

    def settling(self, versionstamp: bytes) -> Flow[bool]:
        """Return the flow of ``settle``. Raises ClosedError."""
        return settle_flow(self.check_open(), from_versionstamp(versionstamp), bounded=True)

    def present_stamp(self) -> Flow[bytes]:
        """Return the flow that reads the versionstamp of the last commit. Raises ClosedError."""
        return stamp_flow(self.check_open())

    def changing(self, one: ReadRange, after: bytes) -> Flow[Changes]:
        """Return the flow of ``changes``. Raises ClosedError."""
        return changes_flow(self.check_open(), one, after)

    def _run(self, flow: Flow[T]) -> T:
        return self.check_open().run(flow)


def _attach(given_url: str, url: str, options: PostgresOptions) -> PostgresStore:
    """Return the store that this process has open under the same URL and schema, or a new one, with one handle more."""
    path = f"{given_url}\0{options.schema}\0{options.readonly}"
    with _stores.lock:
        store = _stores.stores.get(path)
        if store is not None and store.closed_reason is None:
            if options.change_log is None:
                options = options._replace(change_log=store.options.change_log)
            if options.durable_reads is None:
                options = options._replace(durable_reads=store.options.durable_reads)
            require_same_options(store.options._asdict(), options._asdict(), url)
            store.handles += 1
            return store
        opened = PostgresStore(path, options, _server_of(given_url, url, options))
        opened.open()
        opened.handles = 1
        _stores.stores[path] = opened
        return opened


def _server_of(given_url: str, url: str, options: PostgresOptions) -> ServerConnections:
    """Return the connections that another store has open with the same parameters, or new ones."""
    conninfo = connection_string(given_url, readonly=options.readonly)
    parameters = ConnectionParameters.of(given_url, conninfo, options)
    for store in _stores.stores.values():
        if store.closed_reason is None and store.server.options == parameters:
            return store.server
    return ServerConnections(parameters, url)
