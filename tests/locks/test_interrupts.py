"""A lock that is interrupted or cancelled at any step of ``acquire`` or ``release`` leaves nothing behind.

The clock of these stores stands still, so that no lease and no ticket ends by itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import open_async_kv
from kvmodels.api._sync.kv import Kv
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.url import open_engine
from kvmodels.limits import Traits
from tests.kv.stores import Clock
from tests.passing_engine import PassingEngine
from tests.store_codecs import async_kv_on, kv_on

MANY = 60
"""More steps than any of these calls takes."""


class InterruptingEngine(PassingEngine):
    """Raises KeyboardInterrupt at one request, before it is carried out or right after."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.left = 0
        self.after = False
        self.while_waiting: Callable[[], object] = lambda: None

    def interrupt_at(self, request: int, *, after: bool) -> None:
        self.left, self.after = request, after

    def _step(self, act: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        answer = act()
        if self.left == 0:
            raise KeyboardInterrupt
        return answer

    def now_ms(self) -> int:
        return self._step(self.inner.now_ms)

    def read(self, ranges: Any, *rest: Any, **options: Any) -> Any:
        return self._step(lambda: self.inner.read(ranges, *rest, **options))

    def commit(self, write: Any) -> Any:
        return self._step(lambda: self.inner.commit(write))

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        def wait() -> bytes:
            self.while_waiting()
            return self.inner.wait_for_commit(after, timeout_s)

        return self._step(wait)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request, url_of):
    opened = open_engine(url_of(request.param, "lock"), durability="relaxed", clock=Clock())
    yield opened
    opened.close()


def require_nothing_left(kv: Kv) -> None:
    other = kv.lock("a", wait=0)
    assert other.acquire(), "the lock is free"
    other.release()
    assert list(kv.list(("__kvmodels__",))) == []


def every_request(interrupt: Callable[[int], bool]) -> int:
    """Call with 1, 2, ... until the call is no longer interrupted; how many requests it has."""
    for request in range(1, MANY):
        if not interrupt(request):
            return request - 1
    raise AssertionError("it has no end")


@pytest.mark.parametrize("after", [False, True], ids=["before the request", "after the request"])
def test_an_interrupt_at_any_request_of_acquire_leaves_a_free_lock_free(engine, after):
    kv, interrupting = kv_on(engine), InterruptingEngine(engine)

    def interrupt(request: int) -> bool:
        lock = kv_on(interrupting).lock("a")
        interrupting.interrupt_at(request, after=after)
        try:
            lock.acquire()
        except KeyboardInterrupt:
            require_nothing_left(kv)
            return True
        interrupting.interrupt_at(0, after=after)
        lock.release()
        return False

    assert every_request(interrupt) >= 3


@pytest.mark.parametrize("after", [False, True], ids=["before the request", "after the request"])
def test_an_interrupt_at_any_request_of_acquire_leaves_no_place_in_the_line(engine, after):
    kv, interrupting = kv_on(engine), InterruptingEngine(engine)

    def interrupt(request: int) -> bool:
        holder, lock = kv.lock("a"), kv_on(interrupting).lock("a")
        assert holder.acquire()
        held = [holder]

        def release() -> None:
            while held:
                held.pop().release()

        interrupting.while_waiting = release
        interrupting.interrupt_at(request, after=after)
        try:
            lock.acquire()
        except KeyboardInterrupt:
            release()
            require_nothing_left(kv)
            return True
        interrupting.interrupt_at(0, after=after)
        lock.release()
        return False

    assert every_request(interrupt) >= 7


@pytest.mark.parametrize("after", [False, True], ids=["before the request", "after the request"])
def test_an_interrupt_at_any_request_of_release_gives_the_lock_back(engine, after):
    kv, interrupting = kv_on(engine), InterruptingEngine(engine)

    def interrupt(request: int) -> bool:
        lock = kv_on(interrupting).lock("a")
        assert lock.acquire()
        interrupting.interrupt_at(request, after=after)
        try:
            lock.release()
        except KeyboardInterrupt:
            require_nothing_left(kv)
            assert lock.acquire(), "the object can be used again"
            lock.release()
            return True
        return False

    assert every_request(interrupt) >= 1


def test_an_interrupt_while_the_renewal_is_waited_for_gives_the_lock_back(engine, monkeypatch):
    kv = kv_on(engine)
    lock = kv.lock("a")
    assert lock.acquire()
    renewing: Any = lock._renewing
    join = renewing.join

    def interrupted_once(_: float | None) -> None:
        monkeypatch.setattr(renewing, "join", join)
        raise KeyboardInterrupt

    monkeypatch.setattr(renewing, "join", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert not renewing.is_alive()
    require_nothing_left(kv)


# --- cancellation -----------------------------------------------------------------------------------------------------


class CancelledAt:
    """Awaits a coroutine and cancels the task at its n-th suspension, or from that one on."""

    def __init__(self, coroutine: Awaitable[Any], at: int, *, always: bool) -> None:
        self._coroutine = coroutine
        self._at = at
        self._always = always
        self.cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._coroutine.__await__()
        step, value = steps.send, None
        suspensions = 0
        while True:
            try:
                waited_for = step(value)
            except StopIteration as done:
                return done.value
            suspensions += 1
            if suspensions == self._at or (self._always and suspensions > self._at):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                self.cancelled = True
            step = steps.send
            try:
                value = yield waited_for
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                step, value = steps.throw, error


async def cancelled_at(make: Callable[[], Awaitable[Any]], at: int, *, always: bool) -> bool:
    """Whether a call was cancelled at its n-th suspension; False: it has fewer."""

    async def call() -> bool:
        cancelling = CancelledAt(make(), at, always=always)
        with suppress(asyncio.CancelledError):
            await cancelling
            assert not cancelling.cancelled, "a cancellation is not lost"
        return cancelling.cancelled

    return await asyncio.create_task(call())


async def every_step(cancel: Callable[[int], Awaitable[bool]]) -> int:
    for step in range(1, MANY):
        if not await cancel(step):
            return step - 1
    raise AssertionError("it has no end")


async def require_free(kv: Any) -> None:
    other = kv.lock("a", wait=0)
    assert await other.acquire(), "the lock is free"
    await other.release()
    assert await kv.count(("__kvmodels__",)) == 0


@pytest.fixture(params=["sqlite", "lmdb"])
def url(request, url_of):
    return url_of(request.param, "lock")


always = pytest.mark.parametrize("always", [False, True], ids=["once", "again and again"])


@always
async def test_a_cancellation_at_any_suspension_of_acquire_leaves_a_free_lock_free(url, always):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:

        async def cancel(suspension: int) -> bool:
            lock = kv.lock("a")
            cancelled = await cancelled_at(lock.acquire, suspension, always=always)
            if not cancelled:
                await lock.release()
            await require_free(kv)
            return cancelled

        assert await every_step(cancel) >= 1


@always
async def test_a_cancellation_at_any_suspension_of_acquire_leaves_no_place_in_the_line(url, always):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:

        async def cancel(suspension: int) -> bool:
            lock, holder = kv.lock("a"), kv.lock("a")
            assert await holder.acquire()
            acquiring = asyncio.create_task(cancelled_at(lock.acquire, suspension, always=always))
            while not acquiring.done() and await kv.count(("__kvmodels__", "lock", "a")) == 0:
                await asyncio.sleep(0)
            await holder.release()
            cancelled = await acquiring
            if not cancelled:
                await lock.release()
            await require_free(kv)
            return cancelled

        assert await every_step(cancel) >= 2


class CancellingEngine(PassingEngine):
    """Cancels a task while one of its requests is carried out in a thread."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self.task: asyncio.Task[Any] | None = None
        self.left = 0

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, blocking=True)

    def _cancel(self) -> None:
        assert self.task is not None
        self.task.cancel()

    def _step(self, act: Callable[[], Any]) -> Any:
        answer = act()
        self.left -= 1
        if self.left == 0:
            if threading.current_thread() is self._thread:
                self._cancel()
            else:
                done = threading.Event()
                self._loop.call_soon_threadsafe(self._cancel)
                self._loop.call_soon_threadsafe(done.set)
                assert done.wait(60)
        return answer

    def read(self, ranges: Any, *rest: Any, **options: Any) -> Any:
        return self._step(lambda: self.inner.read(ranges, *rest, **options))

    def commit(self, write: Any) -> Any:
        return self._step(lambda: self.inner.commit(write))

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        return self._step(lambda: self.inner.wait_for_commit(after, timeout_s))


@pytest.mark.parametrize("in_line", [False, True], ids=["free", "held"])
async def test_a_cancellation_while_a_request_of_acquire_is_carried_out_leaves_nothing(in_line):
    inner = MemoryEngine(clock=Clock())
    engine, kv = CancellingEngine(inner), async_kv_on(inner)

    async def cancel(request: int) -> bool:
        holder, lock = kv.lock("a"), async_kv_on(engine).lock("a")
        assert not in_line or await holder.acquire()
        engine.task, engine.left = asyncio.create_task(lock.acquire()), request
        while in_line and not engine.task.done() and await kv.count(("__kvmodels__", "lock", "a")) == 0:
            await asyncio.sleep(0)
        if in_line:
            await holder.release()
        try:
            await engine.task
        except asyncio.CancelledError:
            await require_free(kv)
            return True
        await lock.release()
        return False

    assert await every_step(cancel) >= (5 if in_line else 2)
    await kv.close()


async def test_a_cancellation_while_release_is_carried_out_gives_the_lock_back():
    inner = MemoryEngine(clock=Clock())
    engine, kv = CancellingEngine(inner), async_kv_on(inner)

    async def cancel(request: int) -> bool:
        lock = async_kv_on(engine).lock("a")
        assert await lock.acquire()
        engine.task, engine.left = asyncio.create_task(lock.release()), request
        try:
            await engine.task
        except asyncio.CancelledError:
            return True
        finally:
            await require_free(kv)
        return False

    assert await every_step(cancel) >= 1
    await kv.close()


async def test_a_cancellation_at_any_turn_of_the_loop_during_release_gives_the_lock_back(url):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:
        lock = kv.lock("a")
        for turns in range(12):
            assert await lock.acquire()
            releasing = asyncio.create_task(lock.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            cancelled = releasing.cancel()
            with suppress(asyncio.CancelledError):
                await releasing
                assert not cancelled, "a cancellation is not lost"
            if turns:
                await require_free(kv)
            else:
                await lock.release()  # the task had not begun: nothing was asked of the lock


async def test_a_release_that_is_cancelled_at_every_turn_gives_the_lock_back(url):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:
        lock = kv.lock("a")
        assert await lock.acquire()
        assert await cancelled_at(lock.release, 1, always=True)
        await require_free(kv)


async def test_a_loop_that_ends_cancels_the_release_and_the_lock_is_given_back(url):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:
        lock = kv.lock("a")
        assert await lock.acquire()
        before = asyncio.all_tasks()
        releasing = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before:
            task.cancel()  # as asyncio.run does at its end: the task that gives it back as well
        with pytest.raises(asyncio.CancelledError):
            await releasing
        await require_free(kv)


async def test_a_free_lock_is_acquired_after_many_waits_that_ran_out_of_time(url):
    async with open_async_kv(url, durability="relaxed", clock=Clock()) as kv:
        holder = kv.lock("a")
        assert await holder.acquire()
        for turns in range(30):
            waiting = asyncio.create_task(kv.lock("a").acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await holder.release()
        await require_free(kv)
