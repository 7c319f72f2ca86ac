"""The calls of an etcd engine as coroutines, for one event loop.

Rules of this module: the flows are those of the engine. A commit runs in a task of its own, which a cancellation of
its caller does not end. Notices of commits come from the engine's thread, which all event loops share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

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
)
from kvmodels.engines.etcd.errors import closed
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.transport import EtcdLoopTransport, TlsFiles
from kvmodels.engines.etcd.snapshot import EtcdAsyncSnapshot, SnapshotState
from kvmodels.engines.shared.group_commit import outcome_note
from kvmodels.engines.shared.waiting import RECHECK_S

T = TypeVar("T")

_Outcome: TypeAlias = Committed | Conflict | BaseException


class EtcdHandle(Protocol):
    """The engine that a form belongs to."""

    @property
    def url(self) -> str:
        """The URL for messages."""
        ...

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed."""
        ...

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, *, include_expired: bool, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``."""
        ...

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``."""
        ...

    def committing(self, write: AtomicWrite) -> Steps[Committed | Conflict]:
        """Return the flow of ``commit``."""
        ...

    def pinning(self) -> Steps[SnapshotState]:
        """Return the flow of ``snapshot``."""
        ...

    def present_stamp(self) -> Steps[bytes]:
        """Return the flow that reads the versionstamp of the last commit."""
        ...

    def changing(self, one: ReadRange, after: bytes) -> Steps[Changes]:
        """Return the flow of ``changes``."""
        ...

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when the engine is closed."""
        ...


class EtcdAsyncEngine:
    """The asynchronous form of an ``EtcdEngine`` for one event loop, with channels of its own.

    Args:
        engine: it belongs to.
        tls: the files for encrypted connections; None for none.
    """

    def __init__(self, engine: EtcdHandle, tls: TlsFiles | None) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._transport = EtcdLoopTransport(tls)
        self._commits: set[asyncio.Task[_Outcome]] = set()
        self._wakers: set[asyncio.Event] = set()
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending: asyncio.Task[None] | None = None

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

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. Raises as ``Engine.commit``.

        A caller that is cancelled waits for the outcome, which is a note of the CancelledError.
        """
        self._require_open()
        task = asyncio.create_task(self._carried_out(write))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as cancelled:
            while not task.done():
                with contextlib.suppress(asyncio.CancelledError):  # the first one is raised with the outcome
                    await asyncio.wait((task,))
            cancelled.add_note(outcome_note(task.result()))
            raise
        outcome = task.result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def snapshot(self) -> EtcdAsyncSnapshot:
        """Pin the present state. One round trip. Raises as ``Engine.snapshot``."""
        return EtcdAsyncSnapshot(await self._run(self._engine.pinning), self._run)

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
                # Cleared before the store is asked: a commit between the two leaves it set.
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

    async def aclose(self) -> None:
        """Wait for the calls of this event loop, then close its channels; idempotent."""
        self._closed = True
        for woken in self._wakers:
            woken.set()
        while self._running:
            await self._idle.wait()
        await self._transport.aclose()

    def end(self) -> None:
        """Have the form closed by its event loop, which may run in another thread; nothing is waited for."""
        if not self._closed and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in this instant
                self._loop.call_soon_threadsafe(self._end_here)

    def _end_here(self) -> None:
        self._ending = self._loop.create_task(self.aclose())

    def _require_open(self) -> None:
        self._engine.require_open()
        if self._closed:
            raise closed(self._engine.url, "closed")

    async def _carried_out(self, write: AtomicWrite) -> _Outcome:
        """Return the outcome or the error of a commit, so that an interrupt reaches the caller and not the loop."""
        try:
            return await self._run(lambda: self._engine.committing(write))
        except BaseException as error:  # noqa: BLE001 - raised where the operation came from
            return error

    async def _run(self, make: Callable[[], Steps[T]], /) -> T:
        self._require_open()
        self._running += 1
        self._idle.clear()
        try:
            return await self._transport.run(make())
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
