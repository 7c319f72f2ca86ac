"""The asynchronous driver: runs flows in an event loop without keeping it.

Rules of this module: those of ``kvmodels.drivers``, from which it is apart because asyncio takes a fifth of the time of
a whole import, and a synchronous program has no use for it.

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
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from kvmodels.drivers import Look, looked_up, perform, tell
from kvmodels.drivers_lanes import (
    Lanes,
    close_at_once,
    closing_lanes,
    count_at_once,
    glanced,
    lanes_of,
    may_read,
    outcome_of,
    read_at_once,
    settle,
    snapshot_at_once,
    submit,
)
from kvmodels.engines.base import Engine, Snapshot
from kvmodels.engines.group_commit import Member, outcome_note
from kvmodels.engines.signals import RECHECK_S
from kvmodels.errors import KvModelsError
from kvmodels.flows.requests import (
    AGAIN,
    AnyFlow,
    Commit,
    Count,
    Flow,
    OneRead,
    OneRow,
    Read,
    ReadChanges,
    ReadToChange,
    Remove,
    Request,
    Sleep,
    WaitForCommit,
    request_of,
    steps_of,
)
from kvmodels.operations import Committed, Conflict, GuardFailed

__all__ = ["aclose", "apin", "arelease", "arun"]

T = TypeVar("T")


def arun(
    engine: Engine,
    flow: AnyFlow[T],
    *,
    snapshot: Snapshot | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Coroutine[Any, Any, T]:
    """Run a flow to its end in the running event loop.

    An engine that waits for nothing (trait ``blocking`` false) is called directly; another one in threads that
    belong to the engine: one for its commits, which it serialises anyway, and a few for its reads, so that
    waiting commits never keep a read from running. Of an embedded engine, small reads that wait for nothing are
    carried out in the event loop, and operations that wait to be committed hold no thread and share transactions.

    Args:
        engine: answers the reads and commits of the flow.
        flow: a generator that has not been started, or the one read that it would be.
        snapshot: where the flow reads, without guards; None for the present state at each read.
        sleep: waits for a number of seconds; tests inject their own.

    Returns:
        What the flow returns.

    Raises:
        KvModelsError: what the engine raised and the flow did not handle, or what the flow raised.
        asyncio.CancelledError: the task was cancelled; after a started commit it carries a note with the outcome.
    """
    if snapshot is None:
        if isinstance(flow, OneRow):
            return _run_row(engine, flow, sleep)
        if isinstance(flow, OneRead):
            return _run_one(engine, flow, sleep)
        return _run_through(engine, flow, snapshot, sleep)
    return _run_through(engine, steps_of(flow), snapshot, sleep)


async def _run_row(engine: Engine, one: OneRow[T], sleep: Callable[[float], Awaitable[object]]) -> T:
    look: Look | None = getattr(engine, "row_at_key", None)
    if look is None or one.made is None:
        return await _run_one(engine, one.read(), sleep)
    if not may_read():
        await asyncio.sleep(0)
    found: T = looked_up(look, one, at_once=True)
    return await _run_one(engine, one.read(guessed=True), sleep) if found is AGAIN else found


async def _run_one(engine: Engine, one: OneRead[T], sleep: Callable[[float], Awaitable[object]]) -> T:
    lanes = lanes_of(engine) if engine.traits.blocking else None
    request = request_of(one)
    found = perform(engine, request) if lanes is None else await _perform_beside(engine, lanes, request, None)
    if type(found) is not GuardFailed:
        result: T = one.answer(found)
        if result is not AGAIN:
            return result
    assert one.otherwise is not None  # there was a guard, or an answer that needs it
    return await _run_through(engine, one.otherwise(), None, sleep)


async def _run_through(
    engine: Engine, flow: Flow[T], snapshot: Snapshot | None, sleep: Callable[[float], Awaitable[object]]
) -> T:
    lanes = lanes_of(engine) if engine.traits.blocking else None
    answer: Any = None
    failed = False
    member: Member | None
    try:
        while True:
            try:
                request = flow.throw(answer) if failed else flow.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer, failed, member = None, False, None
            try:
                if lanes is not None and lanes.embedded and (type(request) is Commit or type(request) is Remove):
                    member, answered = submit(engine, lanes, request[0])
                    del request  # what many tasks keep while they wait, the collector visits
                    await answered
                    answer = outcome_of(member)
                elif type(request) is Sleep:
                    await sleep(request.seconds)
                elif type(request) is WaitForCommit:
                    answer = await _wait_for_commit(engine, request)
                elif lanes is None:
                    answer = perform(engine, request, snapshot)
                else:
                    if type(request) is ReadToChange and lanes.glances and snapshot is None:
                        answer = glanced(engine, lanes, request)
                    if answer is None:
                        answer = await _perform_beside(engine, lanes, request, snapshot)
            except KvModelsError as error:
                answer, failed = error, True
            except BaseException as interruption:
                if member is not None and isinstance(interruption, asyncio.CancelledError):
                    await settle(member, interruption)
                tell(flow, interruption)
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
    closing = asyncio.wrap_future(closing_lanes(engine).commits.submit(engine.close))
    await asyncio.wait((closing,))
    closing.result()


async def apin(engine: Engine) -> Snapshot:
    """A snapshot of the engine, made without blocking the event loop.

    Raises:
        UnsupportedError: the engine has no snapshots; and what the engine raises.
    """
    if not engine.traits.blocking:
        return engine.snapshot()
    lanes = lanes_of(engine)
    if lanes.embedded and (pinned := snapshot_at_once(engine)) is not None:
        return pinned
    # If the task is cancelled meanwhile, nobody holds the snapshot that the thread makes, and its finalizer closes it.
    return await asyncio.wrap_future(lanes.reads.submit(engine.snapshot))


async def arelease(engine: Engine, snapshot: Snapshot) -> None:
    """Close a snapshot without blocking the event loop: it waits for a read that a cancelled task has left behind."""
    if not engine.traits.blocking:
        snapshot.close()
        return
    lanes = lanes_of(engine)
    if not (lanes.embedded and close_at_once(snapshot)):
        await asyncio.wrap_future(lanes.reads.submit(snapshot.close))


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
    return await asyncio.wrap_future(lanes_of(engine).reads.submit(engine.wait_for_commit, b"", 0))


async def _perform_beside(engine: Engine, lanes: Lanes, request: Request, snapshot: Snapshot | None) -> Any:
    """Carry out what may block, without keeping the event loop."""
    if isinstance(request, Commit | Remove):
        return await _commit_in_thread(lanes, engine, request)
    if lanes.embedded and isinstance(request, Read | Count):
        if not may_read():
            await asyncio.sleep(0)
        found: Any
        if isinstance(request, Read):
            found = read_at_once(engine, request, snapshot)
        else:
            found = count_at_once(engine, request, snapshot)
        if found is not None:
            return found
    if isinstance(request, Read | Count | ReadChanges):
        return await asyncio.wrap_future(lanes.reads.submit(perform, engine, request, snapshot))
    return engine.now_ms()  # a clock is read, nothing waits


async def _commit_in_thread(lanes: Lanes, engine: Engine, request: Commit | Remove) -> Committed | Conflict:
    future = lanes.commits.submit(perform, engine, request)
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
        cancelled.add_note(outcome_note(waiter.exception() or waiter.result()))
        raise
    outcome: Committed | Conflict = waiter.result()
    return outcome
