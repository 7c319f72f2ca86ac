"""Listeners in threads and tasks: sharing the work, failures of every kind, and a shutdown that finishes what runs."""

from __future__ import annotations

import asyncio
import logging
import threading
from queue import Queue

import pytest

from kvmodels import open_async_kv, open_kv
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import (
    ClosedError,
    DecodeError,
    EngineTimeoutError,
    InvalidArgumentError,
    InvalidValueError,
    ReadOnlyError,
    UnsupportedError,
)
from tests.store_codecs import async_kv_on, kv_on

PATIENCE_S = 60
"""Until a test that waits in vain fails; nothing is asserted about how long anything takes."""


@pytest.fixture(autouse=True)
def silence(caplog):
    caplog.set_level(logging.CRITICAL, "kvmodels.queue")


def test_several_listeners_of_several_handles_share_the_messages(url):
    handled: Queue = Queue()
    with open_kv(url) as one, open_kv(url) as two:
        for number in range(60):
            one.enqueue(number)
        with one.listen(handled.put, concurrency=3), one.listen(handled.put), two.listen(handled.put, concurrency=2):
            seen = {handled.get(timeout=PATIENCE_S) for _ in range(60)}
        assert seen == set(range(60))
        assert one.count(("__kvmodels__", "queue")) == 0
    assert handled.empty(), "nobody was paused for longer than the lease, so nothing was handled twice"


async def test_tasks_share_the_messages_too(url):
    handled: asyncio.Queue = asyncio.Queue()
    async with open_async_kv(url) as one, open_async_kv(url) as two:
        for number in range(60):
            await one.enqueue(number)
        async with one.listen(handled.put, concurrency=3), two.listen(handled.put_nowait, concurrency=2):
            seen = {await asyncio.wait_for(handled.get(), PATIENCE_S) for _ in range(60)}
        assert seen == set(range(60))
        assert await one.count(("__kvmodels__", "queue")) == 0


def test_a_message_of_another_handle_wakes_a_listener_that_waits(url):
    handled: Queue = Queue()
    with open_kv(url) as one, open_kv(url) as two, one.listen(handled.put):
        for number in range(3):
            two.atomic().set(("n",), number).enqueue(number).commit()
            assert handled.get(timeout=PATIENCE_S) == number


def failing(times, error):
    """A handler that raises so many times, and the deliveries it saw."""
    deliveries: list = []

    def handler(message):
        deliveries.append(message)
        if len(deliveries) <= times:
            raise error

    return handler, deliveries


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_handler_that_raises_is_called_again_whatever_it_raises(url, error):
    handler, deliveries = failing(2, error)
    with open_kv(url) as kv:
        kv.enqueue("x", backoff_schedule=[0, 0.001], keys_if_undelivered=[("failed",)])
        with kv.listen(handler):
            wait_until(lambda: kv.count(("__kvmodels__", "queue")) == 0)
        assert deliveries == ["x"] * 3
        assert kv.get(("failed",)).versionstamp is None


async def test_K20_an_asynchronous_handler_that_rejects_is_called_again_and_then_the_message_is_stored(url):
    deliveries = []

    async def rejects(message):
        deliveries.append(message)
        await asyncio.sleep(0)
        raise ValueError("rejected after an await")

    async with open_async_kv(url) as kv:
        await kv.enqueue("x", backoff_schedule=[0, 0], keys_if_undelivered=[("failed",)])
        async with kv.listen(rejects):
            await until(lambda: kv.count(("__kvmodels__", "queue")))
        assert deliveries == ["x"] * 3
        assert (await kv.get(("failed",))).value == "x"


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
async def test_K20_a_plain_handler_that_raises_among_tasks_is_called_again(url, error):
    handler, deliveries = failing(1, error)
    async with open_async_kv(url) as kv:
        await kv.enqueue("x", backoff_schedule=[0])
        async with kv.listen(handler):
            await until(lambda: kv.count(("__kvmodels__", "queue")))
    assert deliveries == ["x"] * 2


def test_K20_a_handler_that_nobody_would_await_is_refused_and_never_counts_as_success(url):
    async def handler(message):
        raise AssertionError("nobody runs this")

    with open_kv(url) as kv:
        with pytest.raises(InvalidArgumentError) as caught:
            kv.listen(handler)
        assert caught.value.argument == "handler"
        kv.enqueue("x", backoff_schedule=(), keys_if_undelivered=[("failed",)])
        with kv.listen(lambda message: handler(message)):
            wait_until(lambda: kv.get(("failed",)).versionstamp is not None)


def test_what_fails_is_logged(url, caplog):
    caplog.set_level(logging.WARNING, "kvmodels.queue")
    handler, _ = failing(2, ValueError("this line is seen"))
    with open_kv(url) as kv:
        kv.enqueue("x", backoff_schedule=[0])
        with kv.listen(handler):
            wait_until(lambda: kv.count(("__kvmodels__", "queue")) == 0)
    assert "this line is seen" in caplog.text
    assert "it is delivered again after 0 seconds" in caplog.text
    assert "it was given up, or another listener has it" in caplog.text


def test_closing_the_store_finishes_what_runs_and_starts_nothing_more(url):
    began, go_on, finished = threading.Event(), threading.Event(), []

    def handler(message):
        began.set()
        assert go_on.wait(PATIENCE_S)
        finished.append(message)

    with open_kv(url) as other:
        kv = open_kv(url)
        for number in range(3):
            kv.enqueue(number)
        listener = kv.listen(handler)
        assert began.wait(PATIENCE_S)
        closing = threading.Thread(target=kv.close)
        closing.start()
        while not listener._stopping:
            threading.Event().wait(0.001)
        go_on.set()
        closing.join(PATIENCE_S)
        assert listener.wait(PATIENCE_S)
        assert len(finished) == 1
        assert other.count(("__kvmodels__", "queue")) == 2, "the one that ran was acknowledged, the others are there"
        with pytest.raises(ClosedError):
            kv.listen(handler)


async def test_closing_the_store_finishes_the_tasks_that_run(url):
    began, go_on, finished = asyncio.Event(), asyncio.Event(), []

    async def handler(message):
        began.set()
        await go_on.wait()
        finished.append(message)

    async with open_async_kv(url) as other:
        kv = open_async_kv(url)
        for number in range(3):
            await kv.enqueue(number)
        listener = kv.listen(handler)
        await began.wait()
        closing = asyncio.create_task(kv.close())
        assert not await listener.stop(0), "a handler runs"
        go_on.set()
        await closing
        assert await listener.wait()
        assert len(finished) == 1
        assert await other.count(("__kvmodels__", "queue")) == 2


def test_a_handler_may_stop_its_listener_and_close_the_store(url):
    ended = threading.Event()
    with open_kv(url) as other:
        kv = open_kv(url)

        def handler(message):
            assert not listener.stop()
            kv.close()
            ended.set()

        other.enqueue("x")
        listener = kv.listen(handler)
        assert ended.wait(PATIENCE_S)
        assert listener.wait(PATIENCE_S)
        assert other.count(("__kvmodels__", "queue")) == 1, "not acknowledged: it is delivered again after its lease"


async def test_a_task_may_stop_its_listener(url):
    async with open_async_kv(url) as kv:

        async def handler(message):
            assert not await listener.stop()

        await kv.enqueue("x")
        listener = kv.listen(handler)
        assert await listener.wait(PATIENCE_S)
        assert await kv.count(("__kvmodels__", "queue")) == 0


def test_a_lease_is_renewed_while_the_handler_runs(url):
    go_on, calls = threading.Event(), []

    def handler(message):
        calls.append(message)
        assert go_on.wait(PATIENCE_S)

    with open_kv(url) as kv:
        kv.enqueue("x")
        with kv.listen(handler, lease=0.6), kv.listen(handler, lease=0.6):
            wait_until(lambda: calls)
            places: set = set()

            def moved():
                places.update(entry.key for entry in kv.list(("__kvmodels__", "queue")))
                return len(places) > 4

            wait_until(moved)
            go_on.set()
            wait_until(lambda: kv.count(("__kvmodels__", "queue")) == 0)


async def test_a_lease_is_renewed_while_a_task_runs(url):
    go_on = asyncio.Event()
    async with open_async_kv(url) as kv:
        await kv.enqueue("x")
        async with kv.listen(lambda message: go_on.wait(), lease=0.6):
            places: set = set()
            while len(places) < 5:
                places.update([entry.key async for entry in kv.list(("__kvmodels__", "queue"))])
                await asyncio.sleep(0.01)
            go_on.set()
            await until(lambda: kv.count(("__kvmodels__", "queue")))
        assert await kv.count(("__kvmodels__", "queue")) == 0


def test_what_ends_a_listener_is_told_to_whoever_waits(url):
    with open_kv(url) as kv:
        kv.unsafe().set(("__kvmodels__", "queue", 0, "id"), "no message")
        listener = kv.listen(print)
        with pytest.raises(DecodeError):
            listener.wait(PATIENCE_S)
        with pytest.raises(DecodeError):
            listener.stop()


async def test_what_ends_a_listener_of_tasks_is_told_to_whoever_waits(url):
    async with open_async_kv(url) as kv:
        await kv.unsafe().set(("__kvmodels__", "queue", 0, "id"), "no message")
        with pytest.raises(DecodeError):
            await kv.listen(print).wait(PATIENCE_S)


def test_a_store_that_is_read_only_cannot_be_listened_to(tmp_path):
    path = tmp_path / "queue.db"
    with open_kv(path) as kv:
        kv.enqueue("x")
    with open_kv(path, readonly=True) as kv, pytest.raises(ReadOnlyError):
        kv.listen(print).wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("handler", "options", "error"),
    [
        ("no function", {}, InvalidArgumentError),
        (print, {"concurrency": 0}, InvalidArgumentError),
        (print, {"concurrency": True}, InvalidArgumentError),
        (print, {"concurrency": 1.5}, InvalidArgumentError),
        (print, {"lease": 0}, InvalidArgumentError),
        (print, {"lease": float("nan")}, InvalidArgumentError),
        (print, {"lease": None}, InvalidValueError),
    ],
)
async def test_wrong_arguments_of_listen_are_refused(handler, options, error):
    with open_kv() as kv, pytest.raises(error):
        kv.listen(handler, **options)
    async with open_async_kv() as kv:
        with pytest.raises(error):
            kv.listen(handler, **options)


def test_listening_with_tasks_needs_a_loop():
    with pytest.raises(UnsupportedError):
        open_async_kv().listen(print)


class BusyEngine(MemoryEngine):
    """Was busy for too long at some commits, counted from 1."""

    def __init__(self, *busy):
        super().__init__()
        self.busy, self.commits = busy, 0

    def commit(self, write):
        self.commits += 1
        if self.commits in self.busy:
            raise EngineTimeoutError("the engine was busy", hint="Try again.")
        return super().commit(write)


def test_a_listener_goes_on_after_an_engine_was_busy():
    engine = BusyEngine(2, 3)  # 1 is the message
    handled: Queue = Queue()
    with kv_on(engine) as kv:
        kv.enqueue("x")
        with kv.listen(handled.put):
            assert handled.get(timeout=PATIENCE_S) == "x"
    assert engine.commits == 5


async def test_a_listener_of_tasks_goes_on_after_an_engine_was_busy():
    engine = BusyEngine(2)
    handled: asyncio.Queue = asyncio.Queue()
    async with async_kv_on(engine) as kv:
        await kv.enqueue("x")
        async with kv.listen(handled.put):
            assert await asyncio.wait_for(handled.get(), PATIENCE_S) == "x"
    assert engine.commits == 4


def wait_until(condition):
    pause = threading.Event()
    for _ in range(PATIENCE_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("this never came true")


async def until(empty):
    async with asyncio.timeout(PATIENCE_S):
        while await empty():
            await asyncio.sleep(0.005)


def test_queue_lock_and_namespace_work_with_the_codec_of_deno():
    handled: Queue = Queue()
    with open_kv(codec="v8") as kv:
        kv.enqueue({"n": 1, "x": b"raw"}, keys_if_undelivered=[("failed",)])
        with kv.listen(handled.put):
            assert handled.get(timeout=PATIENCE_S) == {"n": 1, "x": b"raw"}
        with kv.lock("a") as lock:
            lock.check()
            assert not kv.lock("a", wait=0).acquire()
        space = kv.namespace("plugin")
        assert space.compare_and_set("a", None, 1)
        assert not space.compare_and_set("a", 1.0, 2)
        assert space.compare_and_set("a", 1, 2)
