"""Waiting for a commit: of this thread, of another, of another process; and what ends the waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, ReadResult, Set, point
from kvmodels.engines.contract import Engine
from kvmodels.errors import ClosedError
from kvmodels.flows.effects import wait_for_commit
from kvmodels.runtime.event_loop import aclose, arun
from kvmodels.runtime.sync import run

FOREVER = float("inf")


def commit(engine: Engine, value: bytes = b"v") -> bytes:
    done = engine.commit(AtomicWrite(mutations=(Set(b"k", value, 3),)))
    assert isinstance(done, Committed)
    return done.versionstamp


def test_a_later_commit_is_answered_without_waiting(engine):
    before = engine.wait_for_commit(b"", 0)
    stamp = commit(engine)
    assert stamp > before
    assert engine.wait_for_commit(before, FOREVER) == stamp


def test_what_a_read_did_not_see_is_waited_for(engine):
    found = engine.read([point(b"k")])
    assert isinstance(found, ReadResult)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.wait_for_commit, found.versionstamp, FOREVER)
        assert commit(engine) == waiting.result(timeout=60)


def test_the_time_can_be_over_first(engine):
    stamp = commit(engine)
    assert engine.wait_for_commit(stamp, 0) == stamp
    assert engine.wait_for_commit(stamp, 0.01) == stamp


def test_a_failed_check_wakes_nobody_for_good(engine):
    stamp = commit(engine)
    engine.commit(AtomicWrite((Check(b"k", None),)))
    assert engine.wait_for_commit(stamp, 0.01) == stamp


def test_closing_leaves_no_thread(background_threads: Callable[[], list[str]], open_engine: Callable[..., Engine]):
    engines = [open_engine() for _ in range(3)]
    for engine in engines:
        engine.wait_for_commit(engine.wait_for_commit(b"", 0), 0.001)
    for engine in engines:
        engine.close()
    assert background_threads() == []


def test_the_driver_waits_in_its_thread(engine):
    stamp = commit(engine)
    assert run(engine, wait_for_commit(stamp, 0.001)) == stamp
    later = commit(engine)
    assert run(engine, wait_for_commit(stamp, FOREVER)) == later


async def test_the_time_of_a_task_can_be_over_first(engine):
    stamp = commit(engine)
    assert await arun(engine, wait_for_commit(stamp, 0)) == stamp
    assert await arun(engine, wait_for_commit(stamp, 0.01)) == stamp
    await aclose(engine)


@pytest.mark.parametrize("wait", [0, 0.0005])
def test_waiters_are_woken_wherever_a_commit_meets_them(engine, wait):
    for _ in range(20):
        stamp = commit(engine)
        with ThreadPoolExecutor(5) as pool:
            waiting = [pool.submit(engine.wait_for_commit, stamp, FOREVER) for _ in range(5)]
            threading.Event().wait(wait)
            expected = commit(engine)
            assert [one.result(timeout=60) for one in waiting] == [expected] * 5


def test_closing_ends_the_waiting(engine):
    stamp = commit(engine)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.wait_for_commit, stamp, FOREVER)
        engine.close()
        with pytest.raises(ClosedError):
            waiting.result(timeout=60)
    with pytest.raises(ClosedError):
        engine.wait_for_commit(stamp, 0)
    with pytest.raises(ClosedError):
        engine.subscribe(lambda: None)


def test_whoever_is_subscribed_is_woken_by_each_commit_and_by_the_end(engine):
    woken = threading.Event()
    unsubscribe = engine.subscribe(woken.set)
    for _ in range(3):
        woken.clear()
        commit(engine)
        assert woken.wait(60)
    unsubscribe()
    woken.clear()
    commit(engine)
    assert not woken.is_set()
    engine.subscribe(woken.set)
    engine.close()
    assert woken.wait(60)


async def test_tasks_wait_without_blocking_the_loop_and_are_woken(engine):
    for turns in range(20):
        stamp = commit(engine)
        waiting = [asyncio.create_task(arun(engine, wait_for_commit(stamp, FOREVER))) for _ in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        expected = commit(engine)
        assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [expected] * 5
    await aclose(engine)


async def test_a_task_that_waits_may_be_cancelled_and_is_ended_by_closing(engine):
    stamp = commit(engine)
    cancelled, ended = (asyncio.create_task(arun(engine, wait_for_commit(stamp, FOREVER))) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await aclose(engine)
    with pytest.raises(ClosedError):
        await asyncio.wait_for(ended, 60)
