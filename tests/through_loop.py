"""The asynchronous form of an engine behind the calls of a synchronous one, so that the contract suite runs over it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Self, TypeVar

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
from kvmodels.engines.contract import AsyncEngine, AsyncSnapshot, Capabilities, Engine
from kvmodels.errors import ClosedError
from tests.passing_engine import PassingEngine

T = TypeVar("T")

ANSWER_S = 60


async def _caught(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Return the result of a coroutine, or raise its error: an interrupt would end the loop."""
    try:
        return await coroutine, None
    except BaseException as error:  # noqa: BLE001 - raised in the thread of the caller
        return None, error


class SnapshotThroughLoop:
    """A snapshot of the asynchronous form."""

    def __init__(self, inner: AsyncSnapshot, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    @property
    def versionstamp(self) -> bytes:
        return self._inner.versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        found: ReadResult = self._run(self._inner.read(ranges, include_expired=include_expired, follow=follow))
        return found

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        counted: Counted = self._run(self._inner.count(ranges))
        return counted

    def keep(self) -> None:
        self._inner.keep()

    def close(self) -> None:
        with suppress(ClosedError):
            self._run(self._inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class EngineThroughLoop(PassingEngine):
    """Carries out every call that the asynchronous form has in an event loop of its own, in a thread."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        native = inner.capabilities.server.native
        assert native is not None
        self._native: Callable[[], AsyncEngine] = native
        self._capabilities = Capabilities(self.traits)
        self._loop = asyncio.new_event_loop()
        # A daemon: in a forked child it does not exist, and nobody ends it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()
        self._ended = False
        self._submitting = threading.Lock()
        self._running: set[Future[Any]] = set()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        return self._run(lambda form: form.read(ranges, guard, include_expired=include_expired, follow=follow))

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        return self._run(lambda form: form.count(ranges, guard))

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        return self._run(lambda form: form.commit(write))

    def snapshot(self) -> SnapshotThroughLoop:
        snapshot = self._run(lambda form: form.snapshot())
        return SnapshotThroughLoop(snapshot, self._call)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        return self._run(lambda form: form.wait_for_commit(after, timeout_s))

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        return self._run(lambda form: form.changes(one, after))

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            with suppress(ClosedError):
                self._run(lambda form: form.aclose())
            self.inner.close()
            if not self._thread.is_alive():
                return  # a forked child
            with self._submitting:  # nothing is submitted from now on, because the engine is closed
                running = list(self._running)
            wait(running, ANSWER_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, call: Callable[[AsyncEngine], Coroutine[Any, Any, T]]) -> T:
        async def called() -> T:
            return await call(self._native())

        return self._call(called())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            self.inner.now_ms()  # also before the lock, which a thread that a forked child lacks may have held
            with self._submitting:
                self.inner.now_ms()
                called = asyncio.run_coroutine_threadsafe(_caught(coroutine), self._loop)
                self._running.add(called)
        except ClosedError:  # the loop is closed, or in a forked child it does not run
            coroutine.close()
            raise
        try:
            result, error = called.result(ANSWER_S)
        finally:
            self._running.discard(called)
        if error is not None:
            raise error
        return result
