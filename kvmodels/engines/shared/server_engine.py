"""The base of engines on a server without a shared store in this process: the calls of threads and of event loops.

Rules of this module: every call is a flow, which is made and carried out while the engine is open. ``close`` waits for
running calls; a forked child never uses the connections of its parent. An engine has one form for each event loop. A
commit of a form runs in a task of its own, which a cancellation of its caller does not end once it may have been sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.shared.group_commit import outcome_note
from kvmodels.engines.shared.registry import EngineHandle, closed_error
from kvmodels.engines.shared.steps import AnySteps
from kvmodels.errors import ReadOnlyError
from kvmodels.limits import Limits

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


FormT = TypeVar("FormT", bound=ServerForm[Any])

_of_the_parent: list[object] = []


class StepsTransport(Protocol):
    """Carries out flows in the calling thread."""

    def run(self, steps: AnySteps[T]) -> T:
        """Return the result of a flow. Raises what it raises."""
        ...

    def close(self) -> None:
        """Close the connections; idempotent."""
        ...


class ServerEngine(EngineHandle, ABC, Generic[FormT]):
    """An engine whose calls are flows of requests, with one form for each event loop."""

    __slots__ = ("_carrier", "_forms", "_idle", "_readonly", "_running")

    def __init__(self, url: str, limits: Limits, transport: StepsTransport, *, readonly: bool) -> None:
        super().__init__(limits, url)
        self._carrier = transport
        self._readonly = readonly
        self._forms: LoopForms[FormT] = LoopForms()
        self._running = 0
        self._idle = threading.Condition()

    def native(self) -> FormT:
        """Return the form for the running event loop, always the same one."""
        return self._forms.present(self._new_form)

    def close(self) -> None:
        """Wait for running calls, then close the connections; idempotent."""
        with self._idle:
            if self._closed_reason == "forked":
                return
            self._closed_reason = "closed"
        self._end_waits()
        with self._idle:
            while self._running:
                self._idle.wait()
        self._forms.end()
        self._end_threads()
        self._carrier.close()

    def is_busy(self) -> bool:
        """Return whether calls are under way, or an event loop has used the engine."""
        return self._running > 0 or bool(self._forms)

    def abandon(self) -> None:
        """Forget the connections in a forked child: they belong to the parent."""
        super().abandon()
        # Kept as they are: closing them would use the parent's connections, or wait for threads that are not here.
        _of_the_parent.append((self._carrier, self._forms))
        self._forms = LoopForms()
        self._idle = threading.Condition()

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed, and in a forked child."""
        if self._closed_reason is not None:
            raise self._closed()

    def require_writable(self) -> None:
        """Raise ClosedError, or ReadOnlyError for an engine that was opened for reading only."""
        self.require_open()
        if self._readonly:
            raise ReadOnlyError(
                "this store was opened for reading only", url=self.url, hint="Open it with readonly=False."
            )

    def run(self, make: Callable[[], AnySteps[T]], /) -> T:
        """Make a flow and carry it out in this thread; ``close`` waits for it. Raises ClosedError."""
        return self._counted(lambda: self._carrier.run(make()))

    @abstractmethod
    def _new_form(self) -> FormT:
        """Return a form for the running event loop."""

    @abstractmethod
    def _end_waits(self) -> None:
        """Wake the callers that wait for a change, when the engine is closed and before running calls end."""

    @abstractmethod
    def _end_threads(self) -> None:
        """End the threads of the engine, after its running calls."""

    def _counted(self, call: Callable[[], T]) -> T:
        """Make a call that ``close`` waits for, and return its result. Raises ClosedError."""
        with self._idle:
            self.require_open()
            self._running += 1
        try:
            return call()
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()
