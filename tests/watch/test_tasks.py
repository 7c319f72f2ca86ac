"""Watching in tasks: many of them without a thread each, cancelled without a trace, ended by the store."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kvmodels.api._async.kv import open_async_kv

KEY = ("k",)


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory://" if request.param == "memory" else str(tmp_path / "store.db")


async def first_value(kv, ready):
    async for entries in kv.watch([KEY]):
        if entries[0].value is not None:
            return entries[0].value
        ready.release()
    return None


async def test_many_tasks_wait_with_few_threads(url):
    others = set(threading.enumerate())  # of stores that tests before this one have not closed yet
    async with open_async_kv(url) as kv:
        ready = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(first_value(kv, ready)) for _ in range(200)]
        for _ in tasks:
            await ready.acquire()
        await asyncio.sleep(0.05)
        ours = [thread for thread in threading.enumerate() if thread not in others]
        assert len([thread for thread in ours if thread.name.startswith("kvmodels")]) <= 8
        await kv.set(KEY, "go")
        assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == ["go"] * 200


async def test_a_cancelled_watch_leaves_nothing_behind(url):
    async with open_async_kv(url) as kv:
        ready = asyncio.Semaphore(0)
        task = asyncio.create_task(first_value(kv, ready))
        await ready.acquire()
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await kv.set(KEY, 1)


async def test_closing_the_store_ends_the_watch_of_a_task(url):
    kv = open_async_kv(url)
    ready = asyncio.Semaphore(0)
    task = asyncio.create_task(first_value(kv, ready))
    await ready.acquire()
    await asyncio.sleep(0.02)
    await kv.close()
    assert await asyncio.wait_for(task, 60) is None


async def test_a_busy_store_does_not_keep_other_tasks_from_running():
    async with open_async_kv() as kv:
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        watch = kv.watch([KEY])
        for number in range(100):
            await kv.set(KEY, number)
            entries = await anext(watch)
            assert entries[0].value == number
        assert ticks >= 100
        ticking.cancel()
