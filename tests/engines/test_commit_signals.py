"""The signals by which engines of this machine wake waiters: none is left behind, other processes are polled."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.memory.store import MemoryStore
from kvmodels.engines.url import open_engine
from kvmodels.errors import ClosedError, InvalidArgumentError
from kvmodels.flows.effects import wait_for_commit
from kvmodels.runtime.event_loop import aclose, arun
from tests.contract.test_waiting import FOREVER, commit

OTHER_PROCESS = """
import sys
from kvmodels.engines.url import open_engine
from kvmodels.core.operations import AtomicWrite, Set
engine = open_engine(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
print(engine.commit(AtomicWrite((), (Set(b"other", b"v", 3),))).versionstamp.hex())
engine.close()
"""


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request: pytest.FixtureRequest, url_of: Callable[..., str]) -> Iterator[Engine]:
    opened = open_engine(url_of(request.param))
    yield opened
    opened.close()


def wait_until_subscribed(engine: Engine, waiter_count: int = 1) -> None:
    """Until the engine knows its waiters, so that the commit that follows has somebody to wake."""
    while len(signal_of(engine)._subscribers) < waiter_count:
        time.sleep(0.001)


def signal_of(engine: Engine):
    opened: Any = engine
    store = opened.check_open()
    return store.signal if isinstance(store, MemoryStore) else store.background.signal


def test_every_waiter_is_woken_and_forgotten(engine):
    stamp = commit(engine)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(engine.wait_for_commit, stamp, FOREVER) for _ in range(5)]
        wait_until_subscribed(engine, 5)
        expected = commit(engine)
        assert [one.result(timeout=60) for one in waiting] == [expected] * 5
    assert not signal_of(engine).waited_for


@pytest.mark.parametrize("kind", ["sqlite", "lmdb"])
def test_a_commit_of_another_process_is_found_by_the_poll(kind, url_of):
    url = url_of(kind)
    engine = open_engine(url, poll_interval=0.01)
    stamp = commit(engine)
    writer = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    opened = engine.wait_for_commit(b"", 0)  # opening an LMDB store raises its counter
    assert opened >= stamp
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.wait_for_commit, opened, 30)
        wait_until_subscribed(engine)
        written, _ = writer.communicate("go\n", timeout=60)
        assert waiting.result(timeout=60).hex() == written.strip()
    engine.close()


@pytest.mark.parametrize("poll_interval", [0, -1, True, "fast", None])
def test_a_poll_interval_is_a_positive_number(url_of, poll_interval):
    for kind in ("sqlite", "lmdb"):
        with pytest.raises(InvalidArgumentError) as caught:
            open_engine(url_of(kind), poll_interval=poll_interval)
        assert caught.value.argument == "poll_interval"


async def test_a_cancelled_task_leaves_no_waiter(engine):
    waiting = asyncio.create_task(arun(engine, wait_for_commit(commit(engine), FOREVER)))
    while not signal_of(engine).waited_for:
        await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not signal_of(engine).waited_for
    await aclose(engine)


async def test_closing_ends_the_waiting_of_a_task(engine):
    waiting = asyncio.create_task(arun(engine, wait_for_commit(commit(engine), FOREVER)))
    while not signal_of(engine).waited_for:
        await asyncio.sleep(0.001)
    await aclose(engine)
    with pytest.raises(ClosedError):
        await asyncio.wait_for(waiting, 60)


def test_a_closed_loop_does_not_disturb_a_commit(engine):
    async def leave_a_waiter_behind() -> None:
        flow = arun(engine, wait_for_commit(commit(engine), FOREVER))
        task = asyncio.create_task(flow)
        while not signal_of(engine).waited_for:
            await asyncio.sleep(0.001)
        wakes.extend(signal_of(engine)._subscribers.values())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    wakes: list[Callable[[], object]] = []
    asyncio.run(leave_a_waiter_behind())
    engine.subscribe(wakes[0])
    assert commit(engine)


async def test_a_task_waits_without_blocking_the_loop_and_is_woken(engine):
    stamp = commit(engine)
    waiting = [asyncio.create_task(arun(engine, wait_for_commit(stamp, FOREVER))) for _ in range(20)]
    while len(signal_of(engine)._subscribers) < 20:
        await asyncio.sleep(0.001)
    expected = commit(engine)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [expected] * 20
    await aclose(engine)


def test_closing_ends_the_waiting(engine):
    stamp = commit(engine)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.wait_for_commit, stamp, FOREVER)
        wait_until_subscribed(engine)
        engine.close()
        with pytest.raises(ClosedError):
            waiting.result(timeout=60)
    with pytest.raises(ClosedError):
        engine.wait_for_commit(stamp, 0)
    with pytest.raises(ClosedError):
        engine.subscribe(lambda: None)


def test_a_forgotten_store_is_not_kept_alive_by_its_sweeper():
    engine = MemoryEngine()
    engine.commit(AtomicWrite(mutations=(Set(b"k", b"v", 3, engine.now_ms() + 3_600_000),)))
    sweeper = engine.check_open().sweeper
    del engine
    gc.collect()
    assert sweeper._work() is None
    sweeper.stop()
