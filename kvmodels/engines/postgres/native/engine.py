"""The calls of a PostgreSQL engine as coroutines, for one event loop.

Rules of this module: the flows are those of the engine. A form is closed by its own loop, and stays open if that loop
is closed.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import Protocol

from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.postgres.flows import Flow
from kvmodels.engines.postgres.native.queue import NOT_STARTED
from kvmodels.engines.postgres.native.snapshot import PostgresAsyncSnapshot
from kvmodels.engines.postgres.native.transport import PostgresLoopTransport
from kvmodels.engines.postgres.snapshot import BegunSnapshot
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.complete_form import CompleteForm, CompleteOwner


class PostgresHandle(CompleteOwner, Protocol):
    """The engine that a form belongs to."""

    def check_open(self) -> PostgresStore:
        """Return the store of the handle, or raise ClosedError."""
        ...

    def pinning(self) -> Flow[BegunSnapshot]:
        """Return the flow of ``snapshot``."""
        ...

    def settling(self, versionstamp: bytes) -> Flow[bool]:
        """Return the flow of ``settle``."""
        ...


class PostgresAsyncEngine(CompleteForm[PostgresHandle]):
    """The asynchronous form of a ``PostgresEngine`` for one event loop.

    Small reads share a few connections, which have many requests under way. Commits that wait share a call. Large
    reads, with more than 128 rows, and snapshots take connections for themselves. It opens at most
    ``2 * pool_size + 4`` connections.

    Args:
        engine: it belongs to.
    """

    def __init__(self, engine: PostgresHandle) -> None:
        self._store = engine.check_open()
        self._transport = PostgresLoopTransport(self._store)
        super().__init__(engine, self._transport)
        self._snapshots: weakref.WeakSet[PostgresAsyncSnapshot] = weakref.WeakSet()

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it. Raises as ``Engine.read``.

        No flow is made for a read that shares a statement, because one takes a fifth of the time of such a read.
        """
        self._require_open()
        shared = self._transport.reads.joined(ranges, guard, follow, hiding=not include_expired)
        if shared is not None:
            return await shared
        return await super().read(ranges, guard, include_expired=include_expired, follow=follow)

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. Raises as ``Engine.commit``.

        No task of its own is needed: the queue waits for the outcome of what was sent.
        """
        try:
            return await self._run(lambda: self._engine.committing(write))
        except asyncio.CancelledError as cancelled:
            if not getattr(cancelled, "__notes__", None):
                cancelled.add_note(NOT_STARTED)
            raise

    async def snapshot(self) -> PostgresAsyncSnapshot:
        """Pin the present state, with the deadlines as of now. One round trip; it holds a connection.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        now = self._store.clock.now_ms()
        for other in list(self._snapshots):
            other.expire(now)
        begun = await self._run(self._engine.pinning)
        snapshot = PostgresAsyncSnapshot(self._store, self._require_open, self._transport.end_snapshot, begun)
        self._snapshots.add(snapshot)
        return snapshot

    async def settle(self, versionstamp: bytes) -> bool:
        """Wait until a state that was read is on the disk; false if it was lost.

        Raises as ``PostgresEngine.settle``.
        """
        return await self._run(lambda: self._engine.settling(versionstamp))

    def end(self) -> None:
        """Have the form closed by its event loop, which may run in another thread; nothing is waited for."""
        if self._loop.is_closed():
            self._transport.links.close()
        super().end()

    async def _end_waits(self) -> None:
        await super()._end_waits()
        for snapshot in list(self._snapshots):
            snapshot.expire(None)
