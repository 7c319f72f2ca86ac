"""One transaction at the engine, asynchronous: its snapshot, its flows, its commit or rollback.

Rules of this module: what is read, kept and compiled is decided in ``kvmodels.flows.transaction.transaction``. Names
and behaviour are those of ``kvmodels.api._sync.transaction_session``, which a test compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kvmodels.api.scope import Store
from kvmodels.engines.contract import Snapshot
from kvmodels.flows.effects import AnyFlow, Flow, steps_of
from kvmodels.flows.transaction import commit as transaction_commit
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.runtime.event_loop import apin, arelease, arun

T = TypeVar("T")


class AsyncSession:
    """One transaction at the engine: its snapshot, its flows, its end.

    Args:
        store: the store and the declarations.
        attempt: how often the transaction was begun, this time included.
    """

    __slots__ = ("_lock", "_sent", "_snapshot", "flows", "store", "versionstamp")

    def __init__(self, store: Store, attempt: int) -> None:
        self.store = store
        self.flows = transaction_flows.TransactionFlows(store.context, store.form, attempt)
        self.versionstamp: bytes | None = None
        self._lock = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._sent = False

    async def run(self, flow: AnyFlow[T]) -> T:
        """Run a flow of the library in the transaction.

        Args:
            flow: a generator that has not been started.

        Returns:
            What the flow returns.
        """
        return await self.perform(self.flows.through(steps_of(flow)))

    async def perform(self, flow: Flow[T]) -> T:
        """Run a flow of the transaction itself, in its snapshot.

        Args:
            flow: a generator that has not been started.

        Returns:
            What the flow returns.
        """
        async with self._lock:
            return await arun(self.store.engine, flow, snapshot=self._snapshot)

    async def begin(self) -> None:
        """Pin the state that is read."""
        if self.store.context.traits.snapshots:
            self._snapshot = await self._pinned()
        await self.perform(self.flows.begin())

    async def commit(self) -> list[Callable[[], object]]:
        """Send the one commit, if anything was written.

        Returns:
            What is to run now, in order.
        """
        write = await self.perform(self.flows.prepared())
        if write is None:
            await self._require_unchanged()
            await self._release()
            return self.flows.commit(b"")
        # Engines keep what is replaced for a snapshot, and it has been read for the last time.
        await self._release()
        self._sent = True
        flows = self.flows
        sending = transaction_commit.send(self.store.context, write, flows.view.live.values(), flows.conflict)
        self.versionstamp = await self._send(sending)
        return flows.commit(self.versionstamp)

    async def roll_back(self, error: BaseException) -> None:
        """Forget what was written.

        Args:
            error: what has ended the transaction.

        Raises:
            TransactionConflictError: the error may come from two states of an engine without snapshots.
        """
        try:
            if isinstance(error, Exception) and not self._sent and self.flows.met is None:
                await self._require_unchanged()
        finally:
            try:
                await self._release()
            finally:
                self.flows.fail()

    async def _require_unchanged(self) -> None:
        if not self.store.context.traits.snapshots:
            await self.perform(self.flows.changed())

    async def _pinned(self) -> Snapshot:
        return await apin(self.store.engine)

    async def _send(self, flow: Flow[T]) -> T:
        return await arun(self.store.engine, flow)

    async def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            await arelease(self.store.engine, snapshot)
