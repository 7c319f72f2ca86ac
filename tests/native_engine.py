"""An engine with an asynchronous form that waits for nothing but a turn of the event loop, as a network would."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

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
from kvmodels.engines.contract import Capabilities, Engine, ServerCalls, Snapshot
from kvmodels.engines.shared.group_commit import outcome_note
from tests.passing_engine import PassingEngine


class NativeSnapshot:
    """A snapshot of the inner engine."""

    def __init__(self, inner: Snapshot, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    @property
    def versionstamp(self) -> bytes:
        return self._inner.versionstamp

    async def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        self._calls.append("snapshot.read")
        await asyncio.sleep(0)
        return self._inner.read(ranges, include_expired=include_expired, follow=follow)

    async def count(self, ranges: Sequence[ReadRange]) -> Counted:
        self._calls.append("snapshot.count")
        await asyncio.sleep(0)
        return self._inner.count(ranges)

    def keep(self) -> None:
        self._inner.keep()

    async def aclose(self) -> None:
        self._calls.append("snapshot.aclose")
        self._inner.close()


class NativeForm:
    """The asynchronous form for one event loop."""

    def __init__(self, inner: Engine, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self._calls.append("read")
        await asyncio.sleep(0)
        return self._inner.read(ranges, guard, include_expired=include_expired, follow=follow)

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self._calls.append("count")
        await asyncio.sleep(0)
        return self._inner.count(ranges, guard)

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Send the operation in the next turn of the loop; its answer comes in the one after that."""
        self._calls.append("commit")
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            cancelled.add_note("the commit was not applied: it had not been started")
            raise
        outcome = self._inner.commit(write)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(outcome_note(outcome))
            raise
        return outcome

    async def snapshot(self) -> NativeSnapshot:
        self._calls.append("snapshot")
        await asyncio.sleep(0)
        return NativeSnapshot(self._inner.snapshot(), self._calls)

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        self._calls.append("wait_for_commit")
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + timeout_s
        unsubscribe = self._inner.subscribe(lambda: loop.call_soon_threadsafe(woken.set))
        try:
            while True:
                stamp = self._inner.wait_for_commit(b"", 0)
                if stamp > after or loop.time() >= deadline:
                    return stamp
                woken.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await woken.wait()
        finally:
            unsubscribe()

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        self._calls.append("changes")
        await asyncio.sleep(0)
        return self._inner.changes(one, after)

    async def aclose(self) -> None:
        self._calls.append("aclose")


class NativeEngine(PassingEngine):
    """Passes calls on to another engine, and has an asynchronous form; ``calls`` has what that was asked for."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self._traits = replace(inner.capabilities.traits, blocking=True)
        self._capabilities = Capabilities(self._traits, server=ServerCalls(self.native))
        self._forms: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, NativeForm] = weakref.WeakKeyDictionary()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def native(self) -> NativeForm:
        loop = asyncio.get_running_loop()
        if loop not in self._forms:
            self._forms[loop] = NativeForm(self.inner, self.calls)
        return self._forms[loop]


def native(make: Callable[..., Engine]) -> Callable[..., Engine]:
    """The same constructor of an engine, whose engines have an asynchronous form."""

    def made(*arguments: object, **options: object) -> Engine:
        return NativeEngine(make(*arguments, **options))

    return made
