"""The drivers: the only place where a flow meets an engine.

Rules of this module: a driver performs requests and decides nothing else. Errors of the library are thrown into
the flow, so that it can handle them; every other exception closes the flow and goes on. KeyboardInterrupt and
cancellation pass through the flow, which may add a note with the token of an operation whose answer was lost.
Whatever happens, the flow is closed when the driver returns, and no lock is held.

What cancellation of ``arun`` leaves behind:

- a read is abandoned; when its thread is running, it ends by itself and its rows are dropped;
- waiting for a commit of others ends at once, and no thread is left waiting;
- a commit that still waits for its thread is withdrawn: nothing is applied;
- a commit that has been started is awaited to its end, and the CancelledError carries a note that says
  ``applied``, ``not applied`` or ``unknown``, since a half-known state is what a caller cannot repair.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from kvmodels.engines.base import Engine, Snapshot
from kvmodels.engines.signals import RECHECK_S
from kvmodels.errors import CommitUnknownError, KvModelsError
from kvmodels.flows.requests import Commit, Flow, Read, ReadChanges, Request, Sleep, WaitForCommit
from kvmodels.operations import AtomicWrite, Committed, Conflict

__all__ = ["aclose", "apin", "arelease", "arun", "run"]

T = TypeVar("T")

READ_THREADS = 4
"""Threads that read from one blocking engine; SQLite gains nothing beyond, since rows are decoded under the GIL."""


def run(
    engine: Engine,
    flow: Flow[T],
    *,
    snapshot: Snapshot | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Run a flow to its end in this thread.

    Args:
        engine: answers the reads and commits of the flow.
        flow: a generator that has not been started.
        snapshot: where the flow reads, without guards; None for the present state at each read.
        sleep: waits for a number of seconds; tests inject their own.

    Returns:
        What the flow returns.

    Raises:
        KvModelsError: what the engine raised and the flow did not handle, or what the flow raised.

    Examples:
        >>> from kvmodels.engines.memory import MemoryEngine
        >>> from kvmodels.flows.requests import commit, read
        >>> from kvmodels.operations import AtomicWrite, Set, point
        >>> def write_and_read():
        ...     yield from commit(AtomicWrite(mutations=(Set(b"k", b"v", 3),)))
        ...     found = yield from read([point(b"k")])
        ...     return found.ranges[0][0].value
        >>> run(MemoryEngine(), write_and_read())
        b'v'
    """
    step: Callable[[Any], Request] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                request = step(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                if type(request) is Sleep:
                    sleep(request.seconds)
                    answer = None
                else:
                    answer = _perform(engine, request, snapshot)
            except KvModelsError as error:
                step, answer = flow.throw, error
            except BaseException as interruption:
                _tell(flow, interruption)
                raise
    finally:
        flow.close()
        answer = None  # an error kept here would hold its traceback, and this frame, in a cycle


async def arun(
    engine: Engine,
    flow: Flow[T],
    *,
    snapshot: Snapshot | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Run a flow to its end in the running event loop.

    An engine that waits for nothing (trait ``blocking`` false) is called directly; another one in threads that
    belong to the engine: one for its commits, which it serialises anyway, and a few for its reads, so that
    waiting commits never keep a read from running.

    Args:
        engine: answers the reads and commits of the flow.
        flow: a generator that has not been started.
        snapshot: where the flow reads, without guards; None for the present state at each read.
        sleep: waits for a number of seconds; tests inject their own.

    Returns:
        What the flow returns.

    Raises:
        KvModelsError: what the engine raised and the flow did not handle, or what the flow raised.
        asyncio.CancelledError: the task was cancelled; after a started commit it carries a note with the outcome.
    """
    blocking = engine.traits.blocking
    step: Callable[[Any], Request] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                request = step(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                if type(request) is Sleep:
                    await sleep(request.seconds)
                    answer = None
                elif type(request) is WaitForCommit:
                    answer = await _wait_for_commit(engine, request)
                elif blocking:
                    answer = await _perform_in_thread(engine, request, snapshot)
                else:
                    answer = _perform(engine, request, snapshot)
            except KvModelsError as error:
                step, answer = flow.throw, error
            except BaseException as interruption:
                _tell(flow, interruption)
                raise
    finally:
        flow.close()
        answer = None  # as in run


async def aclose(engine: Engine) -> None:
    """Close an engine without blocking the event loop, and give its threads back.

    Commits that were queued before are carried out first. Cancelling does not stop the closing.
    """
    if not engine.traits.blocking:
        engine.close()
        return
    closing = asyncio.wrap_future(_threads.of(engine).commits.submit(engine.close))
    _threads.forget(engine)
    await asyncio.wait((closing,))
    closing.result()


async def apin(engine: Engine) -> Snapshot:
    """A snapshot of the engine, made without blocking the event loop.

    Raises:
        UnsupportedError: the engine has no snapshots; and what the engine raises.
    """
    if not engine.traits.blocking:
        return engine.snapshot()
    # If the task is cancelled meanwhile, nobody holds the snapshot that the thread makes, and its finalizer closes it.
    return await asyncio.wrap_future(_threads.of(engine).reads.submit(engine.snapshot))


async def arelease(engine: Engine, snapshot: Snapshot) -> None:
    """Close a snapshot without blocking the event loop: it waits for a read that a cancelled task has left behind."""
    if not engine.traits.blocking:
        snapshot.close()
    else:
        await asyncio.wrap_future(_threads.of(engine).reads.submit(snapshot.close))


def _tell(flow: Flow[Any], interruption: BaseException) -> None:
    """Let a flow note on a KeyboardInterrupt or a cancellation what it knows of the outcome; it cannot go on."""
    if not isinstance(interruption, Exception):
        with suppress(StopIteration):
            flow.throw(interruption)


def _perform(engine: Engine, request: Request, snapshot: Snapshot | None = None) -> Any:
    if type(request) is Read:
        if snapshot is not None:
            return snapshot.read(request.ranges, include_expired=request.include_expired, follow=request.follow)
        return engine.read(
            request.ranges, request.guard, include_expired=request.include_expired, follow=request.follow
        )
    if type(request) is Commit:
        return engine.commit(request.write)
    if type(request) is WaitForCommit:
        return engine.wait_for_commit(request.after, request.seconds)
    if type(request) is ReadChanges:
        return engine.changes(request.one, request.after)
    return engine.now_ms()


async def _wait_for_commit(engine: Engine, request: WaitForCommit) -> bytes:
    """Wait without a thread: the engine wakes the loop, and only asking what it holds may need one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.seconds
    stamp = await _present_versionstamp(engine)
    if stamp > request.after or request.seconds <= 0:
        return stamp
    woken = asyncio.Event()

    def wake() -> None:
        # A closed loop refuses the call, and then nobody waits in it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(woken.set)

    unsubscribe = engine.subscribe(wake)
    try:
        while True:
            woken.clear()
            stamp = await _present_versionstamp(engine)
            remaining = deadline - loop.time()
            if stamp > request.after or remaining <= 0:
                return stamp
            with contextlib.suppress(TimeoutError):  # the end of a slice: the loop above asks again
                await asyncio.wait_for(woken.wait(), min(remaining, RECHECK_S))
    finally:
        unsubscribe()


async def _present_versionstamp(engine: Engine) -> bytes:
    if not engine.traits.blocking:
        return engine.wait_for_commit(b"", 0)
    return await asyncio.wrap_future(_threads.of(engine).reads.submit(engine.wait_for_commit, b"", 0))


async def _perform_in_thread(engine: Engine, request: Request, snapshot: Snapshot | None) -> Any:
    if type(request) in (Read, ReadChanges):
        return await asyncio.wrap_future(_threads.of(engine).reads.submit(_perform, engine, request, snapshot))
    if type(request) is Commit:
        return await _commit_in_thread(engine, request.write)
    return engine.now_ms()  # a clock is read, nothing waits


async def _commit_in_thread(engine: Engine, write: AtomicWrite) -> Committed | Conflict:
    future = _threads.of(engine).commits.submit(engine.commit, write)
    waiter = asyncio.wrap_future(future)
    try:
        # Not shield(): it reports an error that comes after a cancellation to the loop as if nobody had seen it.
        await asyncio.wait((waiter,))
    except asyncio.CancelledError as cancelled:
        if future.cancel():
            cancelled.add_note("the commit was not applied: it had not been started")
            raise
        while not waiter.done():
            try:
                await asyncio.wait((waiter,))
            except asyncio.CancelledError:
                # The first cancellation is raised below, once the outcome is known; a second one adds nothing.
                continue
        cancelled.add_note(_outcome_note(waiter))
        raise
    return waiter.result()


def _outcome_note(waiter: asyncio.Future[Committed | Conflict]) -> str:
    error = waiter.exception()
    if error is None:
        applied = isinstance(waiter.result(), Committed)
        return "the commit was applied" if applied else "the commit was not applied: a check failed"
    if isinstance(error, KvModelsError) and not isinstance(error, CommitUnknownError):
        return f"the commit was not applied: {error}"
    return f"the outcome of the commit is unknown: {error!r}"


class _Lanes:
    """The threads of one engine; they end when nothing refers to the lanes any more."""

    __slots__ = ("commits", "reads")

    def __init__(self) -> None:
        # Not the default executor of the loop: it is shared with code that may wait for us, and queueing there
        # would let reads of one slow engine keep those of another from running.
        self.commits = ThreadPoolExecutor(1, thread_name_prefix="kvmodels-commit")
        self.reads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="kvmodels-read")


class _ThreadsByEngine:
    """The lanes of every blocking engine in use; an entry goes with its engine."""

    __slots__ = ("_lanes", "_lock")

    def __init__(self) -> None:
        self.forget_all()

    def of(self, engine: Engine) -> _Lanes:
        with self._lock:
            lanes = self._lanes.get(engine)
            if lanes is None:
                lanes = self._lanes[engine] = _Lanes()
            return lanes

    def forget(self, engine: Engine) -> None:
        with self._lock:
            self._lanes.pop(engine, None)

    def forget_all(self) -> None:
        # In a forked child the executors are there but their threads are not: a call would wait for ever instead
        # of raising the engine's ClosedError. The lock is new, since a lost thread may have been holding it.
        self._lock = threading.Lock()
        self._lanes: weakref.WeakKeyDictionary[Engine, _Lanes] = weakref.WeakKeyDictionary()


_threads = _ThreadsByEngine()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget_all)
