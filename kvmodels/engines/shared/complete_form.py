"""The asynchronous form of an engine on a server that has everything: snapshots, notices of commits, a log of changes.

Rules of this module: the flows are those of the engine, and so are the notices, which all event loops share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kvmodels.core.operations import (
    Changes,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.shared.server_engine import AsyncStepsTransport, FormOwner, ServerForm
from kvmodels.engines.shared.steps import AnySteps
from kvmodels.engines.shared.waiting import RECHECK_S


class CompleteOwner(FormOwner, Protocol):
    """The engine that a form belongs to."""

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, *, include_expired: bool, follow: Follow | None
    ) -> AnySteps[ReadResult | GuardFailed]:
        """Return the flow of ``read``."""
        ...

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> AnySteps[Counted | GuardFailed]:
        """Return the flow of ``count``."""
        ...

    def present_stamp(self) -> AnySteps[bytes]:
        """Return the flow that reads the versionstamp of the last commit."""
        ...

    def changing(self, one: ReadRange, after: bytes) -> AnySteps[Changes]:
        """Return the flow of ``changes``."""
        ...

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when the engine is closed."""
        ...


CompleteOwnerT = TypeVar("CompleteOwnerT", bound=CompleteOwner)


class CompleteForm(ServerForm[CompleteOwnerT]):
    """The calls of such an engine as coroutines, for one event loop, with connections of its own."""

    def __init__(self, engine: CompleteOwnerT, transport: AsyncStepsTransport) -> None:
        super().__init__(engine, transport)
        self._wakers: set[asyncio.Event] = set()

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it. Raises as ``Engine.read``."""
        return await self._run(
            lambda: self._engine.reading(ranges, guard, include_expired=include_expired, follow=follow)
        )

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range. Raises as ``Engine.count``."""
        return await self._run(lambda: self._engine.counting(ranges, guard))

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Raises:
            ClosedError: the engine is closed, or was while this waited; EngineTimeoutError.
        """
        loop, woken = self._loop, asyncio.Event()
        deadline = loop.time() + timeout_s
        stamp = await self._run(self._engine.present_stamp)
        if stamp > after or timeout_s <= 0:
            return stamp

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # a closed loop refuses the call, and no task waits in it
                loop.call_soon_threadsafe(woken.set)

        unsubscribe = self._engine.subscribe(wake)
        self._wakers.add(woken)
        try:
            while True:
                # Clear the event before reading the stamp: then a commit between the two sets it again.
                woken.clear()
                stamp = await self._run(self._engine.present_stamp)
                remaining = deadline - loop.time()
                if stamp > after or remaining <= 0:
                    return stamp
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(remaining, RECHECK_S)):
                        await woken.wait()
        finally:
            self._wakers.discard(woken)
            unsubscribe()

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Return the keys of a range that changed after a versionstamp. Raises as ``Engine.changes``."""
        return await self._run(lambda: self._engine.changing(one, after))

    async def _end_waits(self) -> None:
        for woken in self._wakers:
            woken.set()
