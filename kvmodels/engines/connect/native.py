"""The calls of a KV Connect engine as coroutines, for one event loop.

Rules of this module: the flows are those of the engine. A commit runs in a task of its own, which a cancellation of
its caller does not end once it may have been sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NoReturn, Protocol, TypeAlias, TypeVar

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
from kvmodels.engines.connect.errors import closed
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.session import Session
from kvmodels.engines.connect.transport import LoopTransport
from kvmodels.engines.connect.watching import KeyStreams
from kvmodels.engines.contract import AsyncSnapshot
from kvmodels.engines.shared.group_commit import outcome_note

T = TypeVar("T")

_Outcome: TypeAlias = Committed | Conflict | BaseException


class ConnectHandle(Protocol):
    """The engine that a form belongs to."""

    @property
    def url(self) -> str:
        """The URL for messages."""
        ...

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed."""
        ...

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``."""
        ...

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``."""
        ...

    def committing(self, write: AtomicWrite) -> Steps[Committed | Conflict]:
        """Return the flow of ``commit``."""
        ...

    def refuse(self, missing: str) -> NoReturn:
        """Raise UnsupportedError."""
        ...


class ConnectAsyncEngine:
    """The asynchronous form of a ``ConnectEngine`` for one event loop, with connections of its own.

    Args:
        engine: it belongs to.
        session: of the database.
        pool_size: the most connections, apart from those of watches.
    """

    def __init__(self, engine: ConnectHandle, session: Session, pool_size: int) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._transport = LoopTransport(pool_size)
        self._streams = KeyStreams(session, engine.url)
        self._commits: set[asyncio.Task[_Outcome]] = set()
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
        del include_expired  # the server shows what it has
        return await self._run(self._engine.reading(ranges, guard, follow))

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count the rows of each range by reading them. Raises as ``Engine.count``."""
        return await self._run(self._engine.counting(ranges, guard))

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. Raises as ``Engine.commit``.

        A caller that is cancelled waits for the outcome, which is a note of the CancelledError.
        """
        self._require_open()
        task = asyncio.create_task(self._carried_out(self._engine.committing(write)))
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

    async def snapshot(self) -> AsyncSnapshot:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        self._engine.refuse("snapshots over several reads")

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del after, timeout_s
        self._engine.refuse("notices of commits")

    async def wait_for_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait for a change of some keys. Raises as ``KeyWatcher.wait_for_keys``."""
        self._require_open()
        return await self._streams.wait(keys, after, timeout_s)

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Raise UnsupportedError: KV Connect has no log of changes."""
        del one, after
        self._engine.refuse("a change log")

    async def aclose(self) -> None:
        """Wait for the calls of this event loop, then close its connections; idempotent."""
        self._closed = True
        await self._streams.aclose()
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

    async def _carried_out(self, steps: Steps[Committed | Conflict]) -> _Outcome:
        """Return the outcome or the error of a commit, so that an interrupt reaches the caller and not the loop."""
        try:
            return await self._run(steps)
        except BaseException as error:  # noqa: BLE001 - raised where the operation came from
            return error

    async def _run(self, steps: Steps[T]) -> T:
        self._require_open()
        self._running += 1
        self._idle.clear()
        try:
            return await self._transport.run(steps)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
