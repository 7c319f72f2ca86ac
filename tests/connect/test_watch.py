"""Waits for changed keys by the protocol's watch, of threads and of event loops, and what replaces it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from kvmodels import ClosedError, open_async_kv, open_kv
from kvmodels.engines.connect import watching
from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.connect.wire.encoding import encode_watch_output
from kvmodels.engines.connect.wire.frames import MAX_FRAME_BYTES, PING, encode_frame
from kvmodels.engines.connect.wire.messages import ReadStatus, WatchOutput
from tests.connect.scripted import ACCESS_TOKEN, Answer, Request, ScriptedServer
from tests.connect.stores import Serve
from tests.contract.shorthand import commit, put
from tests.worlds import in_test_servers

ANSWER_S = 60
WATCH = "/v2/watch"
KEYS = (b"\x02a\x00", b"\x02b\x00")

Wait = Callable[[tuple[bytes, ...], int, float], int]


def until(condition: Callable[[], object]) -> None:
    for _ in tries():
        if condition():
            return
        time.sleep(0.005)


def tries() -> Iterator[None]:
    """Yield until the loop ends; fail when it takes longer than any answer."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        assert time.monotonic() < deadline
        yield


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again at once, and end soon after the last wait."""
    monkeypatch.setattr(watching, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(watching, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(watching, "LINGER_S", 0.5)


@pytest.fixture(params=["thread", "loop"])
def waits(request: pytest.FixtureRequest) -> Iterator[Callable[[ConnectEngine], Wait]]:
    """The wait of an engine in this thread, and in an event loop."""
    if request.param == "thread":
        yield lambda engine: engine.wait_for_keys
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    engines: list[ConnectEngine] = []

    def in_loop(engine: ConnectEngine, *arguments: Any) -> int:
        return asyncio.run_coroutine_threadsafe(engine.await_keys(*arguments), loop).result(ANSWER_S)

    async def end() -> None:
        for engine in engines:
            await engine.native().aclose()

    def of(engine: ConnectEngine) -> Wait:
        engines.append(engine)
        return partial(in_loop, engine)

    yield of
    asyncio.run_coroutine_threadsafe(end(), loop).result(ANSWER_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def opened(wait: Wait, server: ScriptedServer, keys: tuple[bytes, ...] = KEYS) -> int:
    """Wait until the stream of the keys has begun, and return the number of its first frame."""
    number = 0
    for _ in tries():
        before, number = number, wait(keys, number, 0.05)
        if number == before and server.open_watches:
            return number
    raise AssertionError


def test_an_idle_watch_asks_for_nothing_and_a_change_ends_the_wait(server, reach, waits):
    wait = waits(reach())
    number = opened(wait, server)
    server.requests.clear()
    server.pings = 0
    for _ in tries():
        assert wait(KEYS, number, 0.05) == number
        if server.pings >= 5:
            break
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, KEYS, number, ANSWER_S)
        commit(server.engine, put(KEYS[1]))
        assert waiting.result() != number
    assert server.paths() == []


def test_a_change_between_two_waits_ends_the_second_one_also_after_its_stream_has_ended(server, reach, waits):
    wait = waits(reach())
    number = opened(wait, server)
    commit(server.engine, put(KEYS[0]))
    changed = wait(KEYS, number, ANSWER_S)
    assert changed != number
    until(lambda: server.open_watches == 0)
    commit(server.engine, put(KEYS[0]))
    assert wait(KEYS, changed, ANSWER_S) != changed


def test_waits_for_the_same_keys_share_a_stream_and_others_have_their_own(server, reach, waits):
    wait = waits(reach())
    number = opened(wait, server)
    opened(wait, server, KEYS[:1])
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(wait, KEYS, number, ANSWER_S) for _ in range(8)]
        server.pings = 0
        until(lambda: server.pings > 4)
        assert server.open_watches == 2
        commit(server.engine, put(KEYS[1]))
        assert number not in [one.result() for one in waiting]
    assert server.paths().count(WATCH) == 2
    until(lambda: server.open_watches == 0)


def refused_by(answer: Answer) -> Callable[[Request, ScriptedServer], Answer | None]:
    return lambda request, _: answer if request.path == WATCH else None


def stream(*parts: bytes) -> Callable[[Request, ScriptedServer], Answer | None]:
    """A script with a new stream of these parts for each watch."""

    def frames() -> Generator[bytes]:
        yield from parts

    return lambda request, _: Answer(200, parts=frames()) if request.path == WATCH else None


FAULTS = {
    "400": refused_by(Answer(400, b"Too many watched keys.")),
    "404": refused_by(Answer(404)),
    "401": refused_by(Answer(401)),
    "503": refused_by(Answer(503)),
    "redirect": refused_by(Answer(307, headers={"location": "http://127.0.0.2:1/watch"})),
    "lost": refused_by(Answer(None)),
    "not frames": refused_by(Answer(200, b"<html>not a stream</html>")),
    "empty": refused_by(Answer(200)),
    "too large": stream((MAX_FRAME_BYTES + 1).to_bytes(4, "little")),
    "damaged": stream(encode_frame(b"\xff\xff")),
    "disabled": stream(encode_frame(encode_watch_output(WatchOutput(ReadStatus.READ_DISABLED)))),
    "pings": stream(PING, PING),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_stream_a_wait_ends_soon_and_the_stream_is_tried_again(server, reach, waits, fault):
    wait = waits(reach())
    server.script = FAULTS[fault]
    number = 0
    for _ in tries():
        before, number = number, wait(KEYS, number, ANSWER_S)
        assert number != before, "the caller reads the keys"
        if server.paths().count(WATCH) >= 4:
            break
    server.script = lambda _request, _server: None
    opened(wait, server)


def test_a_server_of_an_older_version_is_not_asked_to_watch(server, reach, waits):
    server.version = 2
    wait = waits(reach())
    number = 0
    for _ in range(5):
        before, number = number, wait(KEYS, number, ANSWER_S)
        assert number != before
    assert WATCH not in server.paths()


def test_an_endpoint_that_is_disabled_or_has_moved_is_asked_for_again(server, reach, waits):
    for fault in ("disabled", "401"):
        wait = waits(reach())
        server.requests.clear()
        server.script = FAULTS[fault]
        for _ in tries():
            wait(KEYS, 0, 0.05)
            if "/" in server.paths():
                break
        server.script = lambda _request, _server: None


def test_a_stream_that_sends_nothing_is_opened_again(server, reach, waits, monkeypatch):
    monkeypatch.setattr(watching, "QUIET_S", 0.2)
    wait = waits(reach())
    silent = threading.Event()

    def frames() -> Generator[bytes]:
        yield encode_frame(encode_watch_output(WatchOutput(ReadStatus.SUCCESS)))
        silent.wait(ANSWER_S)

    server.script = lambda request, _: Answer(200, parts=frames()) if request.path == WATCH else None
    number = 0
    for _ in tries():
        number = wait(KEYS, number, 0.05)
        if server.paths().count(WATCH) >= 3:
            break
    silent.set()


def test_a_change_while_the_stream_was_broken_is_noticed(server, reach, waits):
    wait = waits(reach())
    number = opened(wait, server)
    server.script = FAULTS["503"]
    server.break_watches()
    commit(server.engine, put(KEYS[0]))
    server.script = lambda _request, _server: None
    assert wait(KEYS, number, ANSWER_S) != number


def test_closing_ends_the_waits_of_threads_with_their_thread(server, reach):
    engine = reach()
    number = opened(engine.wait_for_keys, server)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(engine.wait_for_keys, KEYS, number, ANSWER_S) for _ in range(4)]
        server.pings = 0
        until(lambda: server.pings > 4)
        engine.close()
        assert [type(one.exception()) for one in waiting] == [ClosedError] * 4
    with pytest.raises(ClosedError):
        engine.wait_for_keys(KEYS, number, ANSWER_S)
    assert "kvmodels-watch" not in [one.name for one in threading.enumerate()]


async def test_closing_ends_the_waits_of_tasks(server, reach):
    engine = reach()
    waiting = [asyncio.create_task(engine.await_keys(KEYS, at, ANSWER_S)) for at in range(4)]
    await asyncio.sleep(0)
    await engine.native().aclose()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in outcomes} == {ClosedError}
    with pytest.raises(ClosedError):
        await engine.await_keys(KEYS, 0, ANSWER_S)


def test_the_thread_ends_with_its_last_stream_and_begins_again(server, reach):
    engine = reach()
    for _ in range(3):
        opened(engine.wait_for_keys, server)
        until(lambda: "kvmodels-watch" not in [one.name for one in threading.enumerate()])


async def test_a_wait_that_is_cancelled_leaves_the_others(server, reach):
    engine = reach()
    number = 0
    for _ in tries():
        number = await engine.await_keys(KEYS, number, 0.05)
        if server.open_watches:
            break
    number = await engine.await_keys(KEYS, number, 0.2)
    first, second = (asyncio.create_task(engine.await_keys(KEYS, number, ANSWER_S)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    commit(server.engine, put(KEYS[0]))
    assert await second != number
    await engine.native().aclose()


@pytest.fixture(params=["connect", "connect-own", *in_test_servers("connect-denokv")])
def url(request: pytest.FixtureRequest, serving: Callable[[str], Serve]) -> Iterator[str]:
    """The URL of a server with a watch."""
    with ExitStack() as stack:
        yield serving(request.param)(stack, None)


def test_a_watch_delivers_every_last_state_and_ends_with_the_store(url):
    kv = open_kv(url, access_token=ACCESS_TOKEN)
    watch = kv.watch([("a",), ("b",)])
    assert [one.value for one in next(watch)] == [None, None]
    for at in range(5):
        kv.set(("ab"[at % 2],), at)
        assert [one.value for one in next(watch)] == [at - at % 2, at - 1 + at % 2 if at else None]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, watch)
        kv.delete(("a",))
        assert [one.value for one in waiting.result()] == [None, 3]
        ending = pool.submit(list, watch)
        kv.close()
        assert ending.result() == []


async def test_watches_of_many_tasks_see_the_last_state(url):
    async with open_async_kv(url, access_token=ACCESS_TOKEN) as kv:

        async def follow(key: str) -> int:
            async for [entry] in kv.watch([(key,)]):
                if entry.value == 9:
                    return 9
            return 0

        followers = [asyncio.create_task(follow(f"k{at % 3}")) for at in range(12)]
        for value in range(10):
            for at in range(3):
                await kv.set((f"k{at}",), value)
        async with asyncio.timeout(ANSWER_S):
            assert await asyncio.gather(*followers) == [9] * 12


def test_a_watch_with_a_timeout_ends_when_nothing_changes(url):
    with open_kv(url, access_token=ACCESS_TOKEN) as kv:
        assert len(list(kv.watch([("a",)], timeout=0.3))) == 1
