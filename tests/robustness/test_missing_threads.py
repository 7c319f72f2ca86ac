"""Threads that cannot be started: the call gets a typed error, nothing hangs or stays open, and the next call works."""

from __future__ import annotations

import ast
import asyncio
import io
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue
from typing import Any

import pytest

from kvmodels import AsyncDatabase, ClosedError, EngineError, KvModel, PrimaryKey, open_async_kv, open_kv
from kvmodels.api._sync import queue as kv_queue
from kvmodels.core.operations import AtomicWrite, ReadRange, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.shared.file_engine import FileSnapshot
from kvmodels.flows.effects import commit, wait_for_commit
from kvmodels.limits import Traits
from kvmodels.runtime.event_loop import arun
from tests.passing_engine import PassingEngine
from tests.source_tree import nodes, parse, python_files, shown

PATIENCE_S = 60
FAILURE = "can't start new thread"


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]


@contextmanager
def without_threads(monkeypatch, times=10**9):
    """Within the block so many starts of a thread fail, as at the limit of the operating system."""
    start, left = threading.Thread.start, [times]

    def failing(thread):
        if left[0] > 0:
            left[0] -= 1
            raise RuntimeError(FAILURE)
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        yield


def require_says_so(error):
    assert isinstance(error, EngineError)
    assert FAILURE in (error.reason or "")
    assert "Then try again." in (error.hint or "")


def open_files(folder):
    """The files below a folder that this process has open."""
    links = (entry.path for entry in os.scandir("/proc/self/fd"))
    return [path for path in map(os.path.realpath, links) if path.startswith(os.path.realpath(folder) + os.sep)]


def thread_names(others=frozenset()):
    return {thread.name for thread in threading.enumerate() if thread not in others}


@pytest.fixture(params=["sqlite", "lmdb"])
def url(request, tmp_path):
    return str(tmp_path / "app.db") if request.param == "sqlite" else f"lmdb:///{tmp_path}/app.lmdb"


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def any_url(request, url_of):
    return url_of(request.param)


# --- an event loop ----------------------------------------------------------------------------------------------------


async def test_queued_commits_get_the_error_and_the_next_commit_tries_again(url, monkeypatch):
    async with asyncio.timeout(PATIENCE_S), open_async_kv(url, durability="relaxed") as kv:
        with without_threads(monkeypatch, times=1):
            answers = await asyncio.gather(*(kv.set(("a", n), n) for n in range(5)), return_exceptions=True)
            for answer in answers:
                require_says_so(answer)
            assert len(set(map(id, answers))) == 5, "each task gets its own error"
            assert (await kv.set(("b",), 1)).ok
        assert [entry.key async for entry in kv.list(())] == [("b",)], "what was refused is not carried out later"


async def test_writes_of_models_get_the_error_and_the_next_one_works(url, monkeypatch):
    async with AsyncDatabase(url, models=[Person]):
        pass  # lists the collection
    async with asyncio.timeout(PATIENCE_S), AsyncDatabase(url, models=[Person]) as db:
        with without_threads(monkeypatch, times=1):
            with pytest.raises(EngineError) as caught:
                await db[Person].create(id=1)
            require_says_so(caught.value)
            await db[Person].create(id=2)
        assert [person.id async for person in db[Person]] == [2]


async def test_a_commit_that_another_thread_carries_out_gets_its_answer(tmp_path, monkeypatch):
    """The operation of the task is taken by a thread that commits for itself, so it must not be refused."""
    path = tmp_path / "app.db"
    with open_kv(path, durability="relaxed") as other:
        async with asyncio.timeout(PATIENCE_S), open_async_kv(path, durability="relaxed") as kv:
            with without_threads(monkeypatch, times=1):
                setting = asyncio.create_task(kv.set(("a",), 1))
                await asyncio.sleep(0)  # it is in the queue, and is led at the next turn of the loop
                other.set(("b",), 2)
                assert (await setting).ok
        assert other.get(("a",)).value == 1


async def test_a_cancelled_commit_that_was_refused_says_that_it_was_not_applied(tmp_path, monkeypatch):
    async with asyncio.timeout(PATIENCE_S), open_async_kv(tmp_path / "app.db", durability="relaxed") as kv:
        with without_threads(monkeypatch):
            setting = asyncio.create_task(kv.set(("a",), 1))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(setting.cancel)
            with pytest.raises(asyncio.CancelledError) as caught:
                await setting
        assert caught.value.__notes__ == ["the commit was not applied: it had not been started"]
        assert (await kv.get(("a",))).value is None


class BlockingEngine(PassingEngine):
    """An engine that is called in threads, and whose commits do not wait in a queue."""

    @property
    def traits(self):
        return Traits(may_lose_answers=False, snapshots=True, blocking=True, persistent=False)


async def test_a_commit_that_got_no_thread_is_not_carried_out_by_a_later_one(monkeypatch):
    engine = BlockingEngine(MemoryEngine())
    with without_threads(monkeypatch, times=1):
        with pytest.raises(EngineError) as caught:
            await arun(engine, commit(AtomicWrite((), (Set(b"a", b"1", 3),))))
        require_says_so(caught.value)
        await arun(engine, commit(AtomicWrite((), (Set(b"b", b"2", 3),))))
    found: Any = engine.read([ReadRange(b"a", b"z")])
    assert [row.key for row in found.ranges[0]] == [b"b"]
    engine.close()


async def test_opening_writing_waiting_and_copying_say_so_and_work_again(url, monkeypatch, tmp_path):
    kv = open_async_kv(url, durability="relaxed")

    async def present_versionstamp():
        return await arun(kv._opening.open(), wait_for_commit(b"", 0))

    calls = [
        kv.open,
        lambda: kv.set(("a",), 1),
        present_versionstamp,
        lambda: kv.backup(tmp_path / "copy.db"),
        lambda: kv.dump(io.BytesIO()),
    ]
    async with asyncio.timeout(PATIENCE_S):
        for call in calls:
            # The threads of the loop that were started before would do it without a new one.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            with without_threads(monkeypatch, times=1):
                with pytest.raises(EngineError) as caught:
                    await call()
                require_says_so(caught.value)
                await call()
        await kv.close()


@pytest.mark.parametrize("opened", [False, True])
async def test_closing_without_threads_closes_the_files(url, monkeypatch, tmp_path, opened):
    kv = open_async_kv(url, durability="relaxed")
    async with asyncio.timeout(PATIENCE_S):
        if opened:
            await kv.open()
            assert open_files(tmp_path)
        with without_threads(monkeypatch):
            await kv.close()
    assert open_files(tmp_path) == []


async def test_a_snapshot_is_closed_without_threads(url, monkeypatch):
    monkeypatch.setattr(FileSnapshot, "close_at_once", lambda _: False)  # as while a read of it is still running
    async with asyncio.timeout(PATIENCE_S), open_async_kv(url, durability="relaxed") as kv:
        await kv.set(("a",), 1)
        with without_threads(monkeypatch):
            async with kv.snapshot() as state:
                assert (await state.get(("a",))).value == 1
            with pytest.raises(ClosedError):
                await state.get(("a",))


SCRIPT = """
import asyncio, sys, threading
from concurrent.futures import thread
from kvmodels import EngineError, open_async_kv

stored = threading.Event()


async def work():
    async with open_async_kv(sys.argv[1]) as kv:
        await kv.set(("a",), 1)
        stored.set()
        # Until the interpreter has begun to end and the thread for commits, which could carry out one more, is gone.
        while not thread._shutdown or any(t.name.startswith("kvmodels-commit") for t in threading.enumerate()):
            await asyncio.sleep(0)
        for value in (2, 3):
            try:
                await kv.set(("a",), value)
                print("stored")
            except EngineError as error:
                print("main thread" in error.hint)
        print((await kv.get(("a",))).value)
    print("closed")


threading.Thread(target=asyncio.run, args=(work(),)).start()
stored.wait()
"""


def test_a_loop_that_outlives_the_main_thread_gets_errors_and_can_close(url):
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, url],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert (found.stdout.split(), found.stderr) == (["True", "True", "1", "closed"], "")


# --- the background of a store ----------------------------------------------------------------------------------------


def test_a_commit_with_a_deadline_is_stored_although_no_sweeper_can_be_started(any_url, monkeypatch, tmp_path):
    others = set(threading.enumerate())  # of stores that earlier tests have left to the garbage collector
    kv = open_kv(any_url)
    with without_threads(monkeypatch, times=2):
        assert kv.set(("a",), 1, expire_in=3600).ok
        assert kv.set(("b",), 1, expire_in=7200).ok
        assert "kvmodels-sweep" not in thread_names(others)
        assert kv.set(("c",), 1).ok
        assert "kvmodels-sweep" in thread_names(others), "the next commit tries again"
    kv.close()
    assert "kvmodels-sweep" not in thread_names(others)
    assert open_files(tmp_path) == []


def test_the_earliest_deadline_is_swept_first_when_the_sweeper_starts_later(url, monkeypatch):
    kv = open_kv(url)
    engine: Any = kv._opening.open()
    background = engine.check_open().background
    with without_threads(monkeypatch, times=1):
        kv.set(("a",), 1, expire_in=3600)
        kv.set(("b",), 1, expire_in=7200)
    assert background._planned_ms == kv.get(("a",)).expires_at
    kv.close()


def test_a_store_is_closed_although_its_background_never_started(any_url, monkeypatch, tmp_path):
    with without_threads(monkeypatch):
        kv = open_kv(any_url)
        kv.set(("a",), 1, expire_in=3600)
        kv.close()
    assert open_files(tmp_path) == []


def test_watching_works_although_the_thread_that_polls_cannot_be_started(url, monkeypatch):
    others = set(threading.enumerate())
    with open_kv(url) as kv:
        with without_threads(monkeypatch, times=1):
            first = kv.watch([("a",)], timeout=0)
            assert next(first)[0].value is None
        engine = kv._opening.open()
        with without_threads(monkeypatch, times=1):
            engine.subscribe(lambda: None)()
            assert "kvmodels-poll" not in thread_names(others)
            engine.subscribe(lambda: None)()
            assert "kvmodels-poll" in thread_names(others), "the next wait tries again"


# --- locks and queues -------------------------------------------------------------------------------------------------


def test_a_lock_whose_renewal_cannot_be_started_is_given_back(any_url, monkeypatch):
    with open_kv(any_url) as kv:
        lock = kv.lock("a")
        with without_threads(monkeypatch):
            with pytest.raises(EngineError) as caught:
                lock.acquire()
            require_says_so(caught.value)
        assert kv.count(("__kvmodels__",)) == 0
        with lock:
            assert not kv.lock("a", wait=0).acquire()


def test_a_listener_that_cannot_be_started_is_an_error_and_the_store_can_be_closed(any_url, monkeypatch):
    handled: Queue[str] = Queue()
    kv = open_kv(any_url)
    with without_threads(monkeypatch):
        with pytest.raises(EngineError) as caught:
            kv.listen(handled.put)
        require_says_so(caught.value)
    with kv.listen(handled.put):
        kv.enqueue("later")
        assert handled.get(timeout=PATIENCE_S) == "later"
    kv.close()


def test_a_message_for_which_no_thread_starts_is_put_back_and_handled_later(any_url, monkeypatch):
    handled: Queue[str] = Queue()
    deliveries = []
    monkeypatch.setattr(kv_queue, "RECHECK_S", 0.01)
    start = threading.Thread.start

    def failing_once(thread):
        if thread.name == "kvmodels-message":
            deliveries.append(thread)
            if len(deliveries) == 1:
                raise RuntimeError(FAILURE)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing_once)
    with open_kv(any_url) as kv:
        kv.enqueue("hello", backoff_schedule=())
        with kv.listen(handled.put):
            assert handled.get(timeout=PATIENCE_S) == "hello", "the failed start was no delivery"
        assert kv.count(("__kvmodels__", "queue")) == 0


def test_a_listener_without_threads_can_be_stopped_and_keeps_no_message(any_url, monkeypatch):
    tried = threading.Event()
    monkeypatch.setattr(kv_queue, "RECHECK_S", 0.01)
    start = threading.Thread.start

    def failing(thread):
        if thread.name == "kvmodels-message":
            tried.set()
            raise RuntimeError(FAILURE)
        start(thread)

    handled: Queue[str] = Queue()
    with open_kv(any_url) as kv:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", failing)
            kv.enqueue("hello")
            listener = kv.listen(handled.put, lease=3600)
            assert tried.wait(PATIENCE_S)
            assert listener.stop(PATIENCE_S)
        with kv.listen(handled.put):
            assert handled.get(timeout=PATIENCE_S) == "hello", "it does not wait for the end of the lease"


async def test_an_asynchronous_listener_goes_on_when_a_commit_got_no_thread(url, monkeypatch):
    handled: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.timeout(PATIENCE_S), open_async_kv(url, durability="relaxed") as kv:
        with open_kv(url, durability="relaxed") as other:
            other.enqueue("hello")
        with without_threads(monkeypatch, times=1):
            async with kv.listen(handled.put):
                assert await handled.get() == "hello"


# --- every place ------------------------------------------------------------------------------------------------------

STARTS = {"to_thread", "run_in_executor", "ThreadPoolExecutor", "start_new_thread"}
GUARDED = {
    "kvmodels/engines/shared/threads.py": {"start"},
    # A request that finds no thread is answered with 500 by its server, and the next one tries again.
    "kvmodels/ext/fastapi/pulling.py": {"to_thread"},
    "kvmodels/ext/fastapi/tenant_streams.py": {"to_thread"},
    "kvmodels/ext/serve/application.py": {"to_thread"},
    "kvmodels/runtime/event_loop.py": {"run_in_executor"},
    "kvmodels/runtime/threads.py": {"ThreadPoolExecutor"},
}


def starts_of_threads(tree: ast.AST) -> set[str]:
    """The names by which a module starts threads."""
    used = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes(tree)}
    called = [node.func for node in nodes(tree) if isinstance(node, ast.Call) and not node.args]
    starts = {"start" for func in called if isinstance(func, ast.Attribute) and func.attr == "start"}
    return (starts if "threading" in used else set()) | (used & STARTS)


def test_threads_are_started_only_where_a_failure_is_handled():
    words = STARTS | {".start()"}
    suspects = [path for path in python_files() if any(word in path.read_text("utf-8") for word in words)]
    found = {shown(path): starts_of_threads(parse(path)) for path in suspects}
    unguarded = {path: names for path, names in found.items() if names - GUARDED.get(path, set())}
    assert unguarded == {}
    assert {path for path, names in found.items() if names} == set(GUARDED)
    assert starts_of_threads(ast.parse("threading.Thread(target=work).start()")) == {"start"}
