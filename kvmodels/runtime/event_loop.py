"""The asynchronous driver: runs flows in an event loop without blocking it.

Rules of this module: those of ``kvmodels.runtime.sync``. It is a separate module because asyncio takes a fifth of the
whole import time, and synchronous programs do not need it.

The effects of cancelling ``arun``:

- a read is abandoned; if its thread is running, it ends normally and its rows are dropped;
- a wait for commits of other writers ends at once, and no thread is left waiting;
- a commit that still waits for its thread is withdrawn: nothing is applied;
- a commit that has started is awaited to its end, and the CancelledError gets a note that says ``applied``, ``not
  applied`` or ``unknown``, because callers cannot repair a partly known state.

An engine with an asynchronous form guarantees the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar, cast

from kvmodels.core.operations import GuardFailed
from kvmodels.engines.contract import AsyncEngine, AsyncSnapshot, Engine, ImmediateSnapshot, QueuedCommit, Snapshot
from kvmodels.engines.shared.group_commit import outcome_note
from kvmodels.engines.shared.waiting import RECHECK_S
from kvmodels.errors import ClosedError, EngineError, KvModelsError
from kvmodels.flows.effects import (
    AGAIN,
    AnyFlow,
    CallOutside,
    Commit,
    CountRows,
    Flow,
    OneLookup,
    OneRequest,
    Pull,
    Read,
    ReadChanges,
    ReadPresent,
    ReadToChange,
    Remove,
    Request,
    ReserveWrites,
    Settle,
    Sleep,
    TakeTurn,
    WaitForCommit,
    WaitForKeys,
    steps_of,
)
from kvmodels.flows.settling import with_durable_refusals
from kvmodels.runtime.sync import interrupt, perform, read_one_row, release_writes
from kvmodels.runtime.threads import (
    EngineThreads,
    closing_threads,
    may_read,
    perform_at_once,
    read_in_turn,
    settle,
    submit,
    submit_call,
    threads_of,
)

T = TypeVar("T")

_QUEUED: Final = frozenset({Commit, Remove})
"""Requests that a submitting engine takes into its queue."""

_WITHOUT_THREADS: Final = frozenset({CallOutside, Pull, Settle, TakeTurn, WaitForCommit})
"""Requests that wait in the event loop, or for nothing, or in no thread of the engine."""


def arun(
    engine: Engine,
    flow: AnyFlow[T],
    *,
    snapshot: Snapshot | AsyncSnapshot | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Coroutine[Any, Any, T]:
    """Run a flow to its end in the running event loop, and return its result.

    An engine that waits for nothing (trait ``blocking`` false) is called directly, one with an asynchronous form
    through that form. Any other engine is called in its own threads: one for its commits, which it serialises anyway,
    and a few for its reads, so that waiting commits never block a read. Small reads that wait for nothing are carried
    out in the event loop, and operations in the queue of a submitting engine use no thread of their own and share
    transactions. ``snapshot`` comes from ``apin``; tests inject ``sleep``. Raises KvModelsError: an error of the engine
    that the flow did not handle, or of the flow; asyncio.CancelledError: the task was cancelled; after a started commit
    it has a note with the outcome.
    """
    if snapshot is None:
        if isinstance(flow, OneLookup):
            return _run_lookup(engine, flow, sleep)
        if isinstance(flow, OneRequest):
            return _run_one(engine, flow, sleep)
    steps = steps_of(flow)
    if engine.capabilities.server.settle is not None:
        steps = with_durable_refusals(steps, snapshot)
    return _run_through(engine, steps, snapshot, sleep)


async def _run_lookup(engine: Engine, one: OneLookup[T], sleep: Callable[[float], Awaitable[object]]) -> T:
    row_at_key = engine.capabilities.immediate.row
    if row_at_key is None or one.lookup.load is None:
        return await _run_one(engine, one.one_request(), sleep)
    if not may_read():
        await asyncio.sleep(0)
    found: T = read_one_row(row_at_key, one)
    return await _run_one(engine, one.one_request(guessed=True), sleep) if found is AGAIN else found


async def _run_one(engine: Engine, one: OneRequest[T], sleep: Callable[[float], Awaitable[object]]) -> T:
    request, native = one.request, engine.capabilities.server.native
    if native is not None:
        found = await _perform_natively(engine, native(), request, None)
    elif engine.capabilities.traits.blocking:
        found = await _perform_beside(engine, threads_of(engine), request, None)
    else:
        found = perform(engine, request)
    if type(found) is not GuardFailed:
        result: T = one.answer(found)
        if result is not AGAIN:
            return result
    assert one.otherwise is not None  # the read had a guard, or an answer that may require it
    return await arun(engine, one.otherwise(), sleep=sleep)


async def _run_through(
    engine: Engine, flow: Flow[T], state: Snapshot | AsyncSnapshot | None, sleep: Callable[[float], Awaitable[object]]
) -> T:
    capabilities = engine.capabilities
    native = None if capabilities.server.native is None else capabilities.server.native()
    threads = threads_of(engine) if capabilities.traits.blocking and native is None else None
    enqueue, snapshot = capabilities.writes.submit, cast("Snapshot | None", state)
    member: QueuedCommit | None
    answer, failed = cast("Any", None), False
    try:
        while True:
            try:
                request: Any = flow.throw(cast("BaseException", answer)) if failed else flow.send(answer)
            except StopIteration as done:
                return cast("T", done.value)
            answer, failed, member = None, False, None
            try:
                if threads and enqueue and type(request) in _QUEUED and (sent := submit(enqueue, threads, request[0])):
                    member, answered = sent
                    del request, sent  # frees objects that the collector would visit in every waiting task
                    await answered
                    answer = member.result()
                elif type(request) is Sleep:
                    await sleep(request.seconds)
                elif native is not None or type(request) in _WITHOUT_THREADS:
                    answer = await _without_threads(engine, native, request, cast("AsyncSnapshot | None", state))
                elif threads is None:
                    answer = perform(engine, request, snapshot)
                else:
                    if type(request) is ReadToChange and snapshot is None:
                        answer = read_in_turn(capabilities.immediate, threads, request)
                    if answer is None:
                        answer = await _perform_beside(engine, threads, request, snapshot)
            except KvModelsError as error:
                answer, failed = error, True
            except BaseException as interruption:
                if member is not None and isinstance(interruption, asyncio.CancelledError):
                    await settle(member, interruption)
                interrupt(flow, interruption)
                raise
    finally:
        flow.close()
        answer = None  # as in ``run``


async def _perform_natively(
    engine: Engine, native: AsyncEngine, request: Request, snapshot: AsyncSnapshot | None
) -> Any:
    """Carry out one request through the asynchronous form of an engine, which handles cancellation."""
    if isinstance(request, Read):
        ranges, guard, include_expired, follow = request
        if snapshot is not None and type(request) is not ReadPresent:
            return await snapshot.read(ranges, include_expired=include_expired, follow=follow)
        return await native.read(ranges, guard, include_expired=include_expired, follow=follow)
    if type(request) is Commit:
        return await native.commit(request.write)
    if type(request) is CountRows:
        return await (native.count(*request) if snapshot is None else snapshot.count(request.ranges))
    if type(request) is WaitForCommit:
        return await native.wait_for_commit(request.after, request.seconds)
    if type(request) is WaitForKeys:
        await_keys = engine.capabilities.server.await_keys
        assert await_keys is not None  # see ``Watch.following``
        return await await_keys(*request)
    if type(request) is Settle:
        await_settled = engine.capabilities.server.await_settled
        return await_settled is None or await await_settled(request.versionstamp)
    if type(request) is ReadChanges:
        return await native.changes(request.one, request.after)
    return perform(engine, request)  # only Now, which does not wait, is left


async def aclose(engine: Engine) -> None:
    """Close an engine without blocking the event loop, and release its threads.

    Commits that were queued before are carried out first. Cancellation does not stop the closing. If no thread can be
    started for it, the event loop waits: an unclosed store would keep its file and its locks.
    """
    if not engine.capabilities.traits.blocking:
        engine.close()
        return
    native = engine.capabilities.server.native
    try:
        if native is not None:
            with contextlib.suppress(ClosedError):  # it was closed in another event loop
                await run_to_end(native().aclose)
    finally:
        await _close_in_thread(engine)


async def _close_in_thread(engine: Engine) -> None:
    threads = closing_threads(engine)
    try:
        closing = asyncio.wrap_future(submit_call(threads.commits.submit, engine.close))
    except EngineError:
        engine.close()
        return
    await asyncio.wait((closing,))
    closing.result()


async def run_to_end(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a cleanup coroutine to its end, and only then raise a cancellation that arrived meanwhile.

    ``make`` returns the coroutine. It is called again if another party has cancelled the coroutine, such as a loop that
    cancels all tasks at its shutdown.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        # A separate task: a scope of anyio cancels again at every iteration of the loop, and a second attempt in this
        # task would never get further than the first one.
        cleaning = asyncio.create_task(make())
        while not cleaning.done():
            try:
                await asyncio.wait((cleaning,))
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
        if not cleaning.cancelled():
            break
    if cancelled is None:
        return cleaning.result()
    if (failure := cleaning.exception()) is not None:
        cancelled.add_note(f"the cleaning up has failed: {failure}")
    try:
        raise cancelled
    finally:
        del cancelled, cleaning, failure  # avoids a reference cycle: the error refers to this frame


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that may block in a thread of the event loop, and return its result. Raises EngineError."""
    run_in_executor = asyncio.get_running_loop().run_in_executor
    return await asyncio.wrap_future(submit_call(partial(run_in_executor, None), function, *arguments))


async def apin(engine: Engine) -> Snapshot | AsyncSnapshot:
    """Return a snapshot of the engine, taken without blocking the event loop. Raises UnsupportedError."""
    if not engine.capabilities.traits.blocking:
        return engine.snapshot()
    if engine.capabilities.server.native is not None:
        return await engine.capabilities.server.native().snapshot()
    threads = threads_of(engine)
    pin = engine.capabilities.immediate.snapshot
    if pin is not None and (pinned := pin()) is not None:
        return pinned
    # If the task is cancelled meanwhile, the finalizer of the snapshot closes it.
    return await asyncio.wrap_future(submit_call(threads.reads.submit, engine.snapshot))


def arelease_writes(engine: Engine) -> None:
    """Let other processes write again after all started commits are complete.

    The caller does not wait for it, so cancellation has no effect on it. The thread for commits also makes the
    reservations, one at a time.
    """
    try:
        submit_call(threads_of(engine).commits.submit, release_writes, engine)
    except EngineError:  # no thread can be started: this may have to wait for a commit of another thread
        release_writes(engine)


async def arelease(engine: Engine, state: Snapshot | AsyncSnapshot) -> None:
    """Close a snapshot without blocking the event loop; waits for a read that a cancelled task has abandoned."""
    if engine.capabilities.server.native is not None:
        await cast("AsyncSnapshot", state).aclose()
        return
    snapshot = cast("Snapshot", state)
    if not engine.capabilities.traits.blocking:
        snapshot.close()
        return
    threads = threads_of(engine)
    if engine.capabilities.immediate.snapshot is not None and cast("ImmediateSnapshot", snapshot).close_at_once():
        return
    try:
        closing = submit_call(threads.reads.submit, snapshot.close)
    except EngineError:
        snapshot.close()  # as in ``aclose``
        return
    await asyncio.wrap_future(closing)


def _without_threads(
    engine: Engine, native: AsyncEngine | None, request: Request, snapshot: AsyncSnapshot | None
) -> Awaitable[Any]:
    """Carry out a request that waits for other writers, or any request through the engine's asynchronous form."""
    if isinstance(request, TakeTurn):
        return _wait_for_turn(request)
    if isinstance(request, Pull):
        return _pull(request)
    if isinstance(request, CallOutside):
        return in_thread(request.function)
    if native is not None:
        return _perform_natively(engine, native, request, snapshot)
    if isinstance(request, Settle):
        return asyncio.sleep(0, result=True)  # only engines with an asynchronous form show what is not durable
    return _wait_for_commit(engine, cast("WaitForCommit", request))


def _woken_from_any_thread() -> tuple[asyncio.Event, Callable[[], bool]]:
    """Return an event, and a function that sets it and that any thread may call; false if the loop is closed."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.get_ident()

    def wake() -> bool:
        if threading.get_ident() == thread and not loop.is_closed():
            woken.set()  # without the system calls that wake the loop up
            return True
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:  # a closed loop refuses the call, but then no task waits in it
            return False
        return True

    return woken, wake


async def wait_until(woken: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set or the time is up."""
    # Not wait_for(): in Python 3.11 it loses a cancellation that arrives together with the call.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()


async def _wait_for_commit(engine: Engine, request: WaitForCommit) -> bytes:
    """Wait without a thread: the engine wakes the loop, and only reading its state may need one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.seconds
    stamp = await _present_versionstamp(engine)
    if stamp > request.after or request.seconds <= 0:
        return stamp
    woken, wake = _woken_from_any_thread()
    unsubscribe = engine.subscribe(wake)
    try:
        while True:
            woken.clear()
            stamp = await _present_versionstamp(engine)
            remaining = deadline - loop.time()
            if stamp > request.after or remaining <= 0:
                return stamp
            await wait_until(woken, min(remaining, RECHECK_S))
    finally:
        unsubscribe()


async def _wait_for_turn(request: TakeTurn) -> bool:
    """Wait without a thread: the holder that passes the turn on wakes the loop."""
    ticket, seconds = request
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    woken, ticket.wake = _woken_from_any_thread()
    while not ticket.look():
        remaining = deadline - loop.time()
        if remaining <= 0:
            return False
        await wait_until(woken, min(remaining, ticket.recheck_s))
        woken.clear()
    return True


async def _pull(request: Pull) -> bytes:
    """Read a source that is asynchronous or in memory here, and any other one in a thread."""
    reader, size = request
    if reader.is_async or reader.is_ready:
        return await reader.aread(size)
    return await in_thread(reader.read, size)


async def _present_versionstamp(engine: Engine) -> bytes:
    if not engine.capabilities.traits.blocking:
        return engine.wait_for_commit(b"", 0)
    return await asyncio.wrap_future(submit_call(threads_of(engine).reads.submit, engine.wait_for_commit, b"", 0))


async def _perform_beside(engine: Engine, threads: EngineThreads, request: Request, snapshot: Snapshot | None) -> Any:
    """Carry out a request that may block, without blocking the event loop."""
    snapshot = None if type(request) is ReadPresent else snapshot
    if isinstance(request, Commit | Remove | ReserveWrites):
        return await _commit_in_thread(threads, engine, request)
    immediate = engine.capabilities.immediate
    if immediate.read is not None and isinstance(request, Read | CountRows):
        if not may_read():
            await asyncio.sleep(0)
        found = perform_at_once(immediate, request, snapshot)
        if found is not None:
            return found
    if isinstance(request, Read | CountRows | ReadChanges):
        return await asyncio.wrap_future(submit_call(threads.reads.submit, perform, engine, request, snapshot))
    return engine.now_ms()  # reads a clock and does not wait


async def _commit_in_thread(threads: EngineThreads, engine: Engine, request: Commit | Remove | ReserveWrites) -> Any:
    future = submit_call(threads.commits.submit, perform, engine, request)
    waiter = asyncio.wrap_future(future)
    try:
        # Not shield(): it reports an error that arrives after a cancellation as never retrieved.
        await asyncio.wait((waiter,))
    except asyncio.CancelledError as cancelled:
        if future.cancel():
            if isinstance(request, ReserveWrites):
                raise
            cancelled.add_note("the commit was not applied: it had not been started")
            raise
        while not waiter.done():
            try:
                await asyncio.wait((waiter,))
            except asyncio.CancelledError:
                # The first cancellation is raised below, once the outcome is known; a second one has no further effect.
                continue
        outcome = waiter.exception() or waiter.result()
        if not isinstance(request, ReserveWrites):
            cancelled.add_note(outcome_note(outcome))
        raise
    return waiter.result()
