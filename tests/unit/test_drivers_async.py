"""The asynchronous driver: the same flows, threads for blocking engines, and cancellation at every step."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import threading
import time
import weakref
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, Set, point
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, CommitUnknownError, InvalidValueError
from kvmodels.flows.effects import commit, now, read, sleep, wait_for_commit
from kvmodels.limits import Traits
from kvmodels.runtime.event_loop import aclose, arun
from kvmodels.runtime.threads import READ_THREADS
from tests.passing_engine import PassingEngine

PATIENCE_S = 60


class BlockingEngine(PassingEngine):
    """A memory engine that says it blocks; a gate per kind of call holds it, and every step is recorded."""

    def __init__(self):
        super().__init__(MemoryEngine())
        self.events = []
        self.threads = set()
        self.read_gate = threading.Event()
        self.commit_gate = threading.Event()
        self.read_gate.set()
        self.commit_gate.set()
        self.error_before = None
        self.error_after = None

    @property
    def traits(self):
        return Traits(may_lose_answers=True, snapshots=True, blocking=True, persistent=False)

    def read(self, ranges, guard=None, *, include_expired=False, follow=None):
        self._enter("read")
        assert self.read_gate.wait(PATIENCE_S)
        result: Any = self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)
        self.events.append("read done")
        return result

    def commit(self, write):
        self._enter("commit")
        assert self.commit_gate.wait(PATIENCE_S)
        if self.error_before is not None:
            raise self.error_before
        outcome = self.inner.commit(write)
        self.events.append("commit done")
        if self.error_after is not None:
            raise self.error_after
        return outcome

    def close(self):
        self._enter("close")
        self.inner.close()

    def _enter(self, name):
        self.threads.add(threading.get_ident())
        self.events.append(name)

    def stored(self, key):
        result: Any = self.inner.read([point(key)])
        rows = result.ranges[0]
        return rows[0].value if rows else None


def put(key, value=b"v", *checks):
    return AtomicWrite(checks, (Set(key, value, 3),))


async def until(condition):
    """Let the loop and the threads run until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


def keep_the_loop_busy_until(condition):
    for _ in range(1_000 * PATIENCE_S):
        time.sleep(0.001)
        if condition():
            time.sleep(0.01)  # the thread delivers its answer to the loop, which cannot take it yet
            return
    raise AssertionError("the condition was never met")


async def cancelled_error(task):
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value


def notes(error):
    return getattr(error, "__notes__", [])


async def test_an_engine_that_waits_for_nothing_is_called_in_the_loop():
    caller = []

    class Recording(MemoryEngine):
        def commit(self, write):
            caller.append(threading.get_ident())
            return super().commit(write)

    outcome = await arun(Recording(), commit(put(b"k")))
    assert isinstance(outcome, Committed)
    assert caller == [threading.get_ident()]


async def test_a_blocking_engine_is_called_in_threads_and_gives_the_same_answers():
    engine = BlockingEngine()

    def flow():
        first = yield from commit(put(b"k"))
        second = yield from commit(put(b"k", b"w", Check(b"k", None)))
        found = yield from read([point(b"k")])
        moment = yield from now()
        return first, second, found.ranges[0][0].value, moment

    first, second, value, moment = await arun(engine, flow())
    assert isinstance(first, Committed)
    assert second == Conflict((0,))
    assert value == b"v"
    assert moment > 0
    assert threading.get_ident() not in engine.threads


async def test_sleeping_uses_the_injected_sleep_and_does_not_block_the_loop():
    slept = []

    async def fake(seconds):
        slept.append(seconds)

    await arun(MemoryEngine(), sleep(0.5), sleep=fake)
    assert slept == [0.5]


@pytest.mark.parametrize("make", [BlockingEngine, MemoryEngine])
async def test_engine_errors_are_thrown_into_the_flow(make):
    engine = make()
    engine.close()

    def flow():
        try:
            yield from read([point(b"k")])
        except ClosedError:
            return "handled"

    assert await arun(engine, flow()) == "handled"


@pytest.mark.parametrize("error", [ZeroDivisionError("bug"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
async def test_any_other_exception_closes_the_flow(error):
    class Failing(MemoryEngine):
        def read(self, ranges, guard=None, *, include_expired=False, follow=None):
            raise error

    events = []

    def flow():
        try:
            yield from read([point(b"k")])
        finally:
            events.append("finally")

    with pytest.raises(type(error)):
        await arun(Failing(), flow())
    assert events == ["finally"]


async def test_waiting_commits_do_not_keep_reads_from_running():
    engine = BlockingEngine()
    engine.commit_gate.clear()
    commits = [asyncio.create_task(arun(engine, commit(put(b"k%d" % n)))) for n in range(20)]
    await until(lambda: "commit" in engine.events)
    found = await arun(engine, read([point(b"k0")]))
    assert found.ranges == [[]]
    engine.commit_gate.set()
    assert all(isinstance(outcome, Committed) for outcome in await asyncio.gather(*commits))


async def test_reads_run_beside_each_other_up_to_the_number_of_threads():
    engine = BlockingEngine()
    engine.read_gate.clear()
    reads = [asyncio.create_task(arun(engine, read([point(b"k")]))) for _ in range(READ_THREADS + 3)]
    await until(lambda: engine.events.count("read") == READ_THREADS)
    engine.read_gate.set()
    assert len(await asyncio.gather(*reads)) == READ_THREADS + 3


async def test_cancelling_a_queued_commit_withdraws_it():
    engine = BlockingEngine()
    engine.commit_gate.clear()
    first = asyncio.create_task(arun(engine, commit(put(b"first"))))
    await until(lambda: engine.events == ["commit"])
    queued = asyncio.create_task(arun(engine, commit(put(b"queued"))))
    await asyncio.sleep(0.01)
    queued.cancel()
    error = await cancelled_error(queued)
    assert notes(error) == ["the commit was not applied: it had not been started"]
    engine.commit_gate.set()
    assert isinstance(await first, Committed)
    await arun(engine, commit(put(b"last")))
    assert engine.stored(b"queued") is None
    assert engine.stored(b"last") == b"v"
    assert engine.events.count("commit") == 2


@pytest.mark.parametrize(
    ("write", "before", "after", "note", "stored"),
    [
        (put(b"k"), None, None, "the commit was applied", b"v"),
        (put(b"k", b"v", Check(b"k", bytes(10))), None, None, "the commit was not applied: a check failed", None),
        (put(b"k"), InvalidValueError("no number"), None, "the commit was not applied: [KV502] no number", None),
        (put(b"k"), None, CommitUnknownError("lost", hint=""), "the outcome of the commit is unknown", b"v"),
        (put(b"k"), CommitUnknownError("lost", hint=""), None, "the outcome of the commit is unknown", None),
        (put(b"k"), None, ZeroDivisionError("bug"), "the outcome of the commit is unknown", b"v"),
    ],
    ids=["applied", "conflict", "refused", "unknown-applied", "unknown-lost", "bug"],
)
async def test_cancelling_a_started_commit_waits_for_it_and_says_what_happened(write, before, after, note, stored):
    engine = BlockingEngine()
    engine.error_before, engine.error_after = before, after
    engine.commit_gate.clear()
    events = []

    def flow():
        try:
            yield from commit(write)
            events.append("went on")
        finally:
            events.append("finally")

    task = asyncio.create_task(arun(engine, flow()))
    await until(lambda: engine.events == ["commit"])
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done(), "a started commit is awaited"
    task.cancel()  # a second cancellation does not break the waiting either
    await asyncio.sleep(0.02)
    assert not task.done()
    engine.commit_gate.set()
    error = await cancelled_error(task)
    assert len(notes(error)) == 1
    assert notes(error)[0].startswith(note)
    assert events == ["finally"]
    assert engine.stored(b"k") == stored
    engine.error_before = engine.error_after = None
    assert isinstance(await arun(engine, commit(put(b"again"))), Committed)


async def test_a_cancellation_that_arrives_with_the_answer_still_says_applied():
    engine = BlockingEngine()
    engine.commit_gate.clear()
    task = asyncio.create_task(arun(engine, commit(put(b"k"))))
    await until(lambda: engine.events == ["commit"])
    engine.commit_gate.set()
    keep_the_loop_busy_until(
        lambda: "commit done" in engine.events
    )  # so that answer and cancellation meet in one round
    task.cancel()
    assert notes(await cancelled_error(task)) == ["the commit was applied"]


async def test_a_timeout_around_a_started_commit_reports_the_outcome_in_its_context():
    engine = BlockingEngine()
    engine.commit_gate.clear()
    caller: Any = asyncio.current_task()

    async def run_out_of_time_when_it_has_begun() -> None:
        await until(lambda: engine.events == ["commit"])
        limit.reschedule(0)
        await until(caller.cancelling)
        engine.commit_gate.set()

    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(None) as limit:
            ending = asyncio.create_task(run_out_of_time_when_it_has_begun())
            await arun(engine, commit(put(b"k")))
    await ending
    # asyncio names it as the cause as well, but not in every release of Python 3.11.
    assert notes(caught.value.__context__) == ["the commit was applied"]


async def test_a_cancelled_read_is_abandoned_at_once_and_leaks_nothing():
    engine = BlockingEngine()
    engine.read_gate.clear()
    events = []

    def flow():
        try:
            yield from read([point(b"k")])
        finally:
            events.append("finally")

    running = [asyncio.create_task(arun(engine, flow())) for _ in range(READ_THREADS)]
    await until(lambda: engine.events.count("read") == READ_THREADS)
    queued = asyncio.create_task(arun(engine, flow()))
    await asyncio.sleep(0.01)
    for task in [*running, queued]:
        task.cancel()
    for task in [*running, queued]:
        assert notes(await cancelled_error(task)) == []
    assert events == ["finally"] * (READ_THREADS + 1)
    engine.read_gate.set()
    await until(lambda: engine.events.count("read done") == READ_THREADS)
    assert engine.events.count("read") == READ_THREADS, "the queued read was withdrawn"
    assert (await arun(engine, read([point(b"k")]))).ranges == [[]]


async def test_a_cancellation_that_comes_with_the_awaited_commit_is_not_lost():
    engine = MemoryEngine()
    before = engine.wait_for_commit(b"", 0)

    def waiting():
        yield from wait_for_commit(before, 60)
        return "the cancellation was lost"

    task = asyncio.create_task(arun(engine, waiting()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # Before the commit, because the commit wakes the task at once.
    asyncio.get_running_loop().call_soon(task.cancel)
    engine.commit(AtomicWrite((), (Set(b"k", b"v", 3),)))
    with pytest.raises(asyncio.CancelledError):
        await task
    engine.close()


async def test_cancelling_while_a_flow_sleeps_closes_it():
    events = []

    def flow():
        try:
            yield from sleep(60)
        finally:
            events.append("finally")

    task = asyncio.create_task(arun(MemoryEngine(), flow()))
    await asyncio.sleep(0.01)
    task.cancel()
    await cancelled_error(task)
    assert events == ["finally"]


@pytest.mark.parametrize("steps", range(9))
async def test_cancellation_after_any_number_of_loop_rounds_leaves_a_commit_whole_or_absent(steps):
    engine = BlockingEngine()

    def flow():
        yield from read([point(b"a")])
        yield from commit(AtomicWrite((), (Set(b"a", b"1", 3), Set(b"b", b"1", 3))))
        yield from read([point(b"a")])
        yield from commit(AtomicWrite((), (Set(b"a", b"2", 3), Set(b"b", b"2", 3))))

    task = asyncio.create_task(arun(engine, flow()))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert engine.stored(b"a") == engine.stored(b"b")
    assert isinstance(await arun(engine, commit(put(b"again"))), Committed)
    assert engine.stored(b"a") == engine.stored(b"b")


async def test_aclose_carries_out_what_was_queued_and_then_closes():
    engine = BlockingEngine()
    engine.commit_gate.clear()
    tasks = [asyncio.create_task(arun(engine, commit(put(b"k%d" % n)))) for n in range(3)]
    await until(lambda: engine.events == ["commit"])
    closing = asyncio.create_task(aclose(engine))
    await asyncio.sleep(0.01)
    engine.commit_gate.set()
    await closing
    assert all(isinstance(outcome, Committed) for outcome in await asyncio.gather(*tasks))
    assert engine.events[-1] == "close"
    with pytest.raises(ClosedError):
        await arun(engine, commit(put(b"late")))


@pytest.mark.usefixtures("few_objects")
async def test_the_threads_of_an_engine_end_with_it():
    engine = BlockingEngine()
    await arun(engine, commit(put(b"k")))
    await arun(engine, read([point(b"k")]))
    mine = [thread for thread in threading.enumerate() if thread.ident in engine.threads]
    assert len(mine) == 2
    gone = weakref.ref(engine)
    del engine
    # A thread that has given its answer may still be on its way out of the call, which knows the engine.
    await until(lambda: gc.collect() >= 0 and gone() is None)
    await until(lambda: not any(thread.is_alive() for thread in mine))


def test_one_engine_serves_one_loop_after_another_and_two_at_once():
    engine = BlockingEngine()
    for number in range(3):
        assert isinstance(asyncio.run(arun(engine, commit(put(b"k%d" % number)))), Committed)
    outcomes = []

    def in_own_loop(number):
        outcomes.append(asyncio.run(arun(engine, commit(put(b"t%d" % number)))))

    threads = [threading.Thread(target=in_own_loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(outcomes)) == 4


def _run_in_child(engine, answers):
    try:
        asyncio.run(arun(engine, commit(put(b"child"))))
        answers.put("no error")
    except ClosedError:
        answers.put("closed")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_gets_an_answer_instead_of_waiting_for_threads_it_does_not_have():
    engine = BlockingEngine()
    asyncio.run(arun(engine, commit(put(b"parent"))))
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_run_in_child, args=(engine, answers))
    child.start()
    child.join(PATIENCE_S)
    try:
        assert child.exitcode == 0
        assert answers.get() == "closed"
    finally:
        child.kill()
        child.join()
