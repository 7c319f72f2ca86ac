"""The calls of a PostgreSQL engine as coroutines, for one event loop.

Rules of this module: it translates calls into reads and commits, as ``PostgresEngine`` does for threads. An engine and
its forms know each other; a form is closed by its own loop, and stays open if that loop is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

import psycopg

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
    SuffixFollow,
    as_plain_rows,
    point,
    to_versionstamp,
)
from kvmodels.engines.contract import is_small
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.connection import Call, last_answer
from kvmodels.engines.postgres.native.commits import LoopCommits
from kvmodels.engines.postgres.native.link import Link
from kvmodels.engines.postgres.native.links import LoopLinks
from kvmodels.engines.postgres.native.reads import LoopReads
from kvmodels.engines.postgres.native.snapshot import PostgresAsyncSnapshot
from kvmodels.engines.postgres.reads import (
    StateSeen,
    changes_of,
    changes_once,
    count_once,
    guard_in,
    read_and_follow,
    read_once,
    state_once,
    version_of,
)
from kvmodels.engines.postgres.snapshot import SNAPSHOTS, FirstRow, is_one_key
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.registry import closed_error
from kvmodels.engines.shared.waiting import RECHECK_S
from kvmodels.errors import KvModelsError

_BEGIN = Call(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())


class OwningEngine(Protocol):
    """The engine that a form belongs to."""

    def check_open(self) -> PostgresStore:
        """Return the store of the handle, or raise ClosedError."""
        ...

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, until the result is called."""
        ...


class PostgresAsyncEngine:
    """The asynchronous form of a ``PostgresEngine`` for one event loop.

    Small reads share a few connections, which have many requests under way. Commits that wait share a call. Large
    reads, with more than 128 rows, and snapshots take connections for themselves. It opens at most
    ``2 * pool_size + 4`` connections.

    Args:
        engine: it belongs to.
    """

    def __init__(self, engine: OwningEngine) -> None:
        store = engine.check_open()
        self._engine = engine
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._links = LoopLinks(store)
        self._reads = LoopReads(store, self._links)
        self._commits = LoopCommits(store, self._links, self._reads)
        self._snapshots: weakref.WeakSet[PostgresAsyncSnapshot] = weakref.WeakSet()
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    async def read(
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
        store = self._require_open()
        hiding = not include_expired
        plain = follow is as_plain_rows
        if is_one_key(ranges, None if plain else follow):
            return await self._reads.read_key(ranges[0], guard, hiding=hiding, plain=plain)
        if isinstance(follow, SuffixFollow) and len(ranges) == 1 and ranges[0].end is not None and is_small(ranges):
            return await self._reads.read_page(ranges[0], follow, guard, hiding=hiding)
        state, found = await self._reads.run(
            lambda: read_and_follow(store.texts, ranges, store.times(), guard=guard, follow=follow, hiding=hiding)
        )
        store.note(state)
        if found is not None:
            return found
        # A commit came between two calls. A snapshot is one state.
        snapshot = await self.snapshot()
        try:
            if guard is not None:
                failed = guard_in(await snapshot.read([ReadRange(guard.key)], include_expired=include_expired), guard)
                if failed is not None:
                    return failed
            return await snapshot.read(ranges, include_expired=include_expired, follow=follow)
        finally:
            await snapshot.aclose()

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot.

        Cost: one round trip, O(log n + rows) per range.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError (damaged data).
        """
        store = self._require_open()
        state, found = await self._reads.run(lambda: count_once(store.texts, ranges, guard, store.times()))
        store.note(state)
        return found

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. One round trip, O(log n) per check and mutation.

        A mutation with a Python function costs a read more, and both again after a conflict.

        Raises:
            CommitUnknownError: the server did not answer and could not be asked for half a minute.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer; nothing was applied.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError, UnsupportedError: nothing was applied.
        """
        self._require_open().require_writable()
        return await self._commits.commit(write)

    async def snapshot(self) -> PostgresAsyncSnapshot:
        """Pin the present state, with the deadlines as of now. One round trip; it holds a connection.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        store = self._require_open()
        now = store.clock.now_ms()
        for other in list(self._snapshots):
            other.expire(now)
        failure: KvModelsError | None = None
        for attempt in range(2):
            link = await self._links.take(SNAPSHOTS)
            begun: tuple[StateSeen, FirstRow | None] | None = None
            try:
                begun = await self._begin(link)
            except psycopg.Error as error:
                failure = errors.translated(error, store.url, store.schema)
                if not errors.is_lost(error) or attempt:
                    break
            finally:
                if begun is None:
                    self._end_snapshot(link)
            if begun is not None:
                store.note(begun[0])
                snapshot = PostgresAsyncSnapshot(store, self._require_open, link, self._end_snapshot, begun=begun)
                self._snapshots.add(snapshot)
                return snapshot
            self._links.drop()
        assert failure is not None
        raise failure

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Raises:
            ClosedError: the engine is closed, or was while this waited; EngineTimeoutError.
        """
        loop, woken = self._loop, asyncio.Event()
        deadline = loop.time() + timeout_s
        stamp = await self._present_stamp()
        if stamp > after or timeout_s <= 0:
            return stamp

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # a closed loop refuses the call, and no task waits in it
                loop.call_soon_threadsafe(woken.set)

        unsubscribe = self._engine.subscribe(wake)
        try:
            while True:
                # Clear the event before reading the stamp: then a commit between the two sets it again.
                woken.clear()
                stamp = await self._present_stamp()
                remaining = deadline - loop.time()
                if stamp > after or remaining <= 0:
                    return stamp
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(remaining, RECHECK_S)):
                        await woken.wait()
        finally:
            unsubscribe()

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range).

        Raises:
            UnsupportedError: the store keeps no change log.
            ResumeExpiredError: the log no longer reaches back, a failover has lost the commit of ``after``, or the
                store never reached it.
            ClosedError, EngineTimeoutError, DecodeError.
        """
        store = self._require_open()
        given = max(0, version_of(after))
        found = await self._reads.run(lambda: changes_once(store.texts, one, given, store.times()))
        store.note(found.state)
        return changes_of(found, after, store.url)

    async def aclose(self) -> None:
        """Wait for the calls of this event loop, then close its connections; idempotent."""
        self._closed = True
        self._store.background.signal.notify()  # those that wait for a commit learn of it
        for snapshot in list(self._snapshots):
            snapshot.expire(None)
        await self._reads.aclose()
        await self._commits.aclose()
        await self._links.aclose()

    def end(self) -> None:
        """Have the form closed by its event loop, which may run in another thread; nothing is waited for."""
        self._closed = True
        if self._links.closed:
            return
        if self._loop.is_closed():
            self._links.close()
            return
        with contextlib.suppress(RuntimeError):  # closed in this instant
            self._loop.call_soon_threadsafe(self._end_here)

    def _end_here(self) -> None:
        self._ending = self._loop.create_task(self.aclose())

    def _require_open(self) -> PostgresStore:
        store = self._engine.check_open()
        if self._closed:
            raise closed_error(store.url, "closed")
        return store

    async def _begin(self, link: Link) -> tuple[StateSeen, FirstRow | None]:
        """Begin a transaction of one state, and read the key that the snapshot before has read first."""
        store, key = self._store, self._store.first_key
        ranges = [] if key is None else [point(key)]
        reading = read_once(store.texts, ranges, store.times(), guard=None, follow=None, hiding=False)
        answer = await link.call(_BEGIN, next(reading))
        state, found, _ = last_answer(reading, answer.rows)
        if key is None or isinstance(found, GuardFailed):
            return state, None
        rows = found.ranges[0]
        return state, FirstRow(key, rows[0] if rows else None)

    def _end_snapshot(self, link: Link) -> None:
        self._links.give_back(SNAPSHOTS, link, in_transaction=True)

    async def _present_stamp(self) -> bytes:
        store = self._require_open()
        state = await self._reads.run(lambda: state_once(store.texts, store.times()))
        store.note(state)
        return to_versionstamp(state.version)
