"""The base of engines on a server without a shared store in this process: the calls of one event loop.

Rules of this module: the flows are those of the engine. A commit runs in a task of its own, which a cancellation of
its caller does not end once it may have been sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.shared.group_commit import outcome_note
from kvmodels.engines.shared.registry import closed_error
from kvmodels.engines.shared.steps import AnySteps

T = TypeVar("T")

_Outcome: TypeAlias = Committed | Conflict | BaseException


class LoopForm(Protocol):
    """The asynchronous form of an engine for one event loop."""

    def end(self) -> None:
        """Have the form closed by its event loop, which may run in another thread; nothing is waited for."""
        ...


LoopFormT = TypeVar("LoopFormT", bound=LoopForm)


class LoopForms(dict[asyncio.AbstractEventLoop, LoopFormT]):
    """The asynchronous forms of an engine, by event loop."""

    def present(self, make: Callable[[], LoopFormT]) -> LoopFormT:
        """Return the form for the running event loop, a new one the first time; forget those of closed loops."""
        loop = asyncio.get_running_loop()
        form = self.get(loop)
        if form is None:
            for other in [one for one in list(self) if one.is_closed()]:
                self.pop(other).end()
            form = self[loop] = make()
        return form

    def end(self) -> None:
        """Have every form closed by its event loop; nothing is waited for."""
        for form in list(self.values()):
            form.end()


class FormOwner(Protocol):
    """The engine that a form belongs to."""

    @property
    def url(self) -> str:
        """The URL for messages."""
        ...

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed."""
        ...

    def committing(self, write: AtomicWrite) -> AnySteps[Committed | Conflict]:
        """Return the flow of ``commit``."""
        ...


OwnerT = TypeVar("OwnerT", bound=FormOwner)


class AsyncStepsTransport(Protocol):
    """Carries out flows in one event loop."""

    async def run(self, steps: AnySteps[T]) -> T:
        """Return the result of a flow. Raises what it raises."""
        ...

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        ...


class ServerForm(ABC, Generic[OwnerT]):
    """The asynchronous form of a ``ServerEngine`` for one event loop, with connections of its own."""

    def __init__(self, engine: OwnerT, transport: AsyncStepsTransport) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._carrier = transport
        self._commits: set[asyncio.Task[_Outcome]] = set()
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending: asyncio.Task[None] | None = None

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

    async def aclose(self) -> None:
        """Wait for the calls of this event loop, then close its connections; idempotent."""
        self._closed = True
        await self._end_waits()
        while self._running:
            await self._idle.wait()
        await self._carrier.aclose()

    def end(self) -> None:
        """Have the form closed by its event loop, which may run in another thread; nothing is waited for."""
        if not self._closed and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in this instant
                self._loop.call_soon_threadsafe(self._end_here)

    @abstractmethod
    async def _end_waits(self) -> None:
        """Wake the tasks that wait for a change, when the form is closed."""

    def _end_here(self) -> None:
        self._ending = self._loop.create_task(self.aclose())

    def _require_open(self) -> None:
        self._engine.require_open()
        if self._closed:
            raise closed_error(self._engine.url, "closed")

    async def _carried_out(self, write: AtomicWrite) -> _Outcome:
        """Return the outcome or the error of a commit, so that an interrupt reaches the caller and not the loop."""
        try:
            return await self._run(lambda: self._engine.committing(write))
        except BaseException as error:  # noqa: BLE001 - raised where the operation came from
            return error

    async def _run(self, make: Callable[[], AnySteps[T]], /) -> T:
        self._require_open()
        self._running += 1
        self._idle.clear()
        try:
            return await self._carrier.run(make())
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
