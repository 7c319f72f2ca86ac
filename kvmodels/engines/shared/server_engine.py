"""The base of engines on a server without a shared store in this process: the calls of threads.

Rules of this module: every call is a flow, which is made and carried out while the engine is open. ``close`` waits for
running calls; a forked child never uses the connections of its parent.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kvmodels.engines.shared.registry import EngineHandle
from kvmodels.engines.shared.server_form import LoopForms, ServerForm
from kvmodels.engines.shared.steps import AnySteps
from kvmodels.errors import ReadOnlyError
from kvmodels.limits import Limits

T = TypeVar("T")
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
