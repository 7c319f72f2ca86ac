"""Servers that misbehave: what is sent again, what is not, what is unknown, and where the tokens go."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import quote

import pytest

from kvmodels import (
    CommitUnknownError,
    Database,
    EngineError,
    EngineTimeoutError,
    Indexed,
    KvModel,
    PrimaryKey,
    ReadOnlyError,
    RetryPolicy,
    Unique,
    UniqueViolationError,
    open_async_kv,
)
from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Conflict, ReadResult, point
from kvmodels.engines.connect import transport
from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.connect.wire.encoding import encode_atomic_write_output
from kvmodels.engines.connect.wire.messages import AtomicWriteOutput, WriteStatus
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.scripted import ACCESS_TOKEN, DATA_TOKEN, LOST, Answer, Request, ScriptedServer
from tests.contract.shorthand import commit, number, put


def once(path: str, *answers: Answer) -> Callable[[Request, ScriptedServer], Answer | None]:
    """The answers to the next requests with this path; then the server answers again."""
    left = list(answers)
    return lambda request, _: left.pop(0) if request.path == path and left else None


def paths_of(server: ScriptedServer, call: Callable[[], Any]) -> list[str]:
    """The paths that a call asks for."""
    server.requests.clear()
    call()
    return server.paths()


READ, WRITE = "/v2/snapshot_read", "/v2/atomic_write"


def test_a_401_renews_the_metadata_once_also_for_a_commit(server, reach):
    engine = reach()
    for path, call in ((READ, lambda: engine.read([point(b"k")])), (WRITE, lambda: commit(engine, put(b"k")))):
        server.script = once(path, Answer(401, b"Invalid access token."))
        assert paths_of(server, call) == [path, "/", path]
        server.script = once(path, *[Answer(401, f"{DATA_TOKEN} is invalid".encode())] * 2)
        with pytest.raises(EngineError) as caught:
            call()
        assert "credentials" in caught.value.message
        assert "access token" in (caught.value.hint or "")
        assert DATA_TOKEN not in str(caught.value)


def test_metadata_is_renewed_before_it_expires_and_used_while_it_holds(server, reach):
    server.seconds = 9.5  # less than the time before its end at which metadata is renewed
    engine = reach()
    assert paths_of(server, lambda: engine.read([point(b"k")])) == [READ], "the first exchange was just now"
    engine._session._renewing_until = 0.0
    server.seconds = 3_600.0
    assert paths_of(server, lambda: engine.read([point(b"k")])) == ["/", READ]
    assert paths_of(server, lambda: engine.read([point(b"k")])) == [READ]


@pytest.mark.parametrize(
    "fault", [Answer(503), Answer(500, b"?"), Answer(429), LOST], ids=["503", "500", "429", "lost"]
)
def test_a_read_is_sent_again_until_it_is_answered(server, reach, fault):
    engine = reach()
    stamp = commit(engine, put(b"k"))
    server.script = once(READ, fault, fault)
    found = engine.read([point(b"k")])
    assert isinstance(found, ReadResult)
    assert found.ranges[0][0].versionstamp == stamp
    server.script = lambda request, _: fault if request.path == READ else None
    engine._options = engine._options._replace(busy_timeout=0.2)
    with pytest.raises(EngineTimeoutError):
        engine.read([point(b"k")])


@pytest.mark.parametrize(
    "fault", [Answer(503), Answer(500), Answer(502), Answer(409), Answer(204), Answer(200, b"\xff"), LOST]
)
def test_a_commit_without_a_clear_answer_is_unknown_and_is_sent_once(server, reach, fault):
    engine = reach()

    def applied_and(request: Request, server: ScriptedServer) -> Answer | None:
        if request.path != WRITE:
            return None
        server.answer(request)
        return fault

    server.script = applied_and
    with pytest.raises(CommitUnknownError):
        commit(engine, Arithmetic("sum", b"n", 1))
    server.script = lambda _request, _server: None
    assert number(engine, b"n") == 1


def test_a_commit_that_was_refused_for_now_is_sent_again(server, reach):
    engine = reach()
    server.script = once(WRITE, Answer(429), Answer(429))
    commit(engine, Arithmetic("sum", b"n", 1))
    disabled = Answer(200, encode_atomic_write_output(AtomicWriteOutput(WriteStatus.WRITE_DISABLED)))
    server.script = once(WRITE, disabled)
    assert paths_of(server, lambda: commit(engine, Arithmetic("sum", b"n", 1))) == [WRITE, "/", WRITE]
    assert number(engine, b"n") == 2
    server.script = lambda request, _: disabled if request.path == WRITE else None
    with pytest.raises(ReadOnlyError):
        commit(engine, Arithmetic("sum", b"n", 1))


def test_a_server_that_is_not_there_is_waited_for(server, reach):
    engine = reach()
    server.script = lambda request, _: server.metadata(endpoints=NOWHERE) if request.path == "/" else None
    engine._session.forget(engine._session._served)
    timer = threading.Timer(0.3, lambda: setattr(server, "script", lambda _request, _server: None))
    timer.start()
    commit(engine, Arithmetic("sum", b"n", 1))
    timer.join()
    assert number(engine, b"n") == 1


NOWHERE = [{"url": "http://127.0.0.1:9/v2", "consistency": "strong"}]


ENOUGH_TO_SEND_S = (0.3, 2, 10)
"""Seconds for a call; on a busy machine the shortest may be over before the request is sent."""


def error_of_a_late_answer(engine: ConnectEngine) -> BaseException:
    """Return the error of a commit that was sent and is not answered in time."""
    for seconds in ENOUGH_TO_SEND_S:
        engine._options = engine._options._replace(busy_timeout=seconds)
        with pytest.raises((CommitUnknownError, EngineTimeoutError)) as caught:
            commit(engine, put(b"k"))
        if not isinstance(caught.value, EngineTimeoutError):
            break
    return caught.value


def test_an_answer_that_is_late_is_not_waited_for_longer_than_a_call_may_take(server, reach):
    engine = reach()
    engine._options = engine._options._replace(busy_timeout=0.3)
    gone = threading.Event()
    server.script = lambda request, _: gone.wait(60) and None if request.path in (READ, WRITE) else None
    try:
        with pytest.raises(EngineTimeoutError):
            engine.read([point(b"k")])
        assert isinstance(error_of_a_late_answer(engine), CommitUnknownError)
    finally:
        gone.set()


class Slow:
    """Answers with a body that trickles in for half a minute, unless ``gone`` is set."""

    def __init__(self, part: bytes) -> None:
        self.gone = threading.Event()
        self.part = part

    def __call__(self, request: Request, _server: ScriptedServer) -> Answer | None:
        return Answer(200, parts=self._parts()) if request.path in (READ, WRITE) else None

    def _parts(self) -> Generator[bytes]:
        for _ in range(1_500):
            if self.gone.wait(0.02):
                return
            yield self.part


def test_an_answer_that_trickles_in_is_not_waited_for_longer_than_a_call_may_take(server, reach):
    engine = reach()
    engine._options = engine._options._replace(busy_timeout=0.3)
    server.script = slow = Slow(b"\0")
    with pytest.raises(EngineTimeoutError):
        engine.read([point(b"k")])
    error = error_of_a_late_answer(engine)
    assert isinstance(error, CommitUnknownError)
    assert "in time" in str(error)
    slow.gone.set()


async def test_an_answer_that_trickles_in_is_not_awaited_for_longer_than_a_call_may_take(server):
    async with open_async_kv(server.url, access_token=ACCESS_TOKEN, busy_timeout=60) as kv:
        assert (await kv.get(("k",))).value is None
        engine = kv._opening.open()
        assert isinstance(engine, ConnectEngine)
        allowed = engine._options
        server.script = slow = Slow(b"\0")
        for seconds in ENOUGH_TO_SEND_S:
            engine._options = allowed._replace(busy_timeout=seconds)
            with pytest.raises((CommitUnknownError, EngineTimeoutError)) as caught:
                await kv.set(("k",), 1)
            if not isinstance(caught.value, EngineTimeoutError):
                break
        assert isinstance(caught.value, CommitUnknownError)
        assert "in time" in str(caught.value)
        with pytest.raises(EngineTimeoutError):
            await kv.get(("k",))
        slow.gone.set()
        server.script = lambda _request, _server: None
        engine._options = allowed
        await kv.set(("k",), 2)
        assert (await kv.get(("k",))).value == 2


def test_an_answer_without_an_end_is_not_kept_in_memory(server, reach, monkeypatch):
    monkeypatch.setattr(transport, "MOST_BYTES", 100_000)
    engine = reach()
    server.script = slow = Slow(bytes(60_000))
    with pytest.raises(CommitUnknownError, match="larger than"):
        commit(engine, put(b"k"))
    slow.gone.set()


def test_a_date_of_the_server_that_is_none_is_ignored(server, reach):
    dates = ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2020 00:00:00 +99999999999999", "soon", ""]
    for date in dates:
        metadata = server.metadata()
        server.script = once("/", metadata._replace(headers={**metadata.headers, "date": date}))
        assert reach().read([point(b"k")]).ranges == [[]]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>"),
        Answer(200, b"[" * 100_000),
        {"version": 4},
        {"databaseId": "not a uuid"},
        {"endpoints": []},
        {"endpoints": [{"url": "/v2", "consistency": "eventual"}]},
        {"endpoints": [{"url": "ftp://127.0.0.1/v2", "consistency": "strong"}]},
        {"endpoints": [{"url": "http://[", "consistency": "strong"}]},
        {"endpoints": [{"url": "http://127.0.0.1:99999999/", "consistency": "strong"}]},
        {"expiresAt": "tomorrow"},
        Answer(307, b"", {"location": "http://["}),
        Answer(308, b"", {"location": "http://127.0.0.1:99999999/"}),
        Answer(404, b"Resource not found."),
        Answer(403, ACCESS_TOKEN.encode()),
    ],
    ids=str,
)
def test_metadata_that_cannot_be_used_is_an_error_at_opening(server, reach, answer):
    server.script = lambda _request, _server: server.metadata(**answer) if isinstance(answer, dict) else answer
    with pytest.raises(EngineError) as caught:
        reach()
    assert caught.value.hint
    assert ACCESS_TOKEN not in str(caught.value)
    assert DATA_TOKEN not in str(caught.value)
    assert server.paths() == ["/"]


@pytest.mark.parametrize(
    "written",
    [ACCESS_TOKEN, quote(ACCESS_TOKEN, safe=""), quote(ACCESS_TOKEN, safe="").lower(), f"Bearer {ACCESS_TOKEN}"],
)
@pytest.mark.parametrize("place", ["redirect", "host", "relative", "body", "long body"])
def test_a_token_that_the_server_repeats_is_in_no_error(server, reach, place, written):
    answer = {
        "redirect": Answer(302, b"", {"location": f"https://other.example/{written}/x?y={written}"}),
        "host": Answer(302, b"", {"location": f"http://[{written}"}),
        "relative": Answer(304, b"", {"location": written}),
        "body": Answer(401, f"unknown token {written}.".encode()),
        "long body": Answer(404, (" " * 1_190 + written * 9).encode()),
    }[place]
    server.script = lambda _request, _server: answer
    with pytest.raises(EngineError) as caught:
        reach()
    shown = f"{caught.value}{caught.value.data}".lower()
    assert "***" in shown
    assert written.lower() not in shown
    assert ACCESS_TOKEN[:8].lower() not in shown


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_refused_and_the_token_kept(server, reach, status):
    with ScriptedServer(MemoryEngine()) as other:
        server.script = once("/", Answer(status, b"", {"location": f"{other.url}/?secret=1"}))
        with pytest.raises(EngineError) as caught:
            reach()
        assert "secret" not in str(caught.value)
        engine = reach()
        server.script = lambda _request, _server: Answer(status, b"", {"location": other.url})
        for call in (lambda: engine.read([point(b"k")]), lambda: commit(engine, put(b"k"))):
            with pytest.raises(EngineError):
                call()
        assert other.requests == []


def test_a_redirect_within_the_host_is_followed_for_the_metadata(server, reach):
    server.script = lambda request, _: (
        Answer(308, b"", {"location": "/elsewhere"})
        if request.path == "/"
        else server.metadata()
        if request.path == "/elsewhere"
        else None
    )
    commit(reach(), put(b"k"))
    server.script = lambda _request, _server: Answer(307, b"", {"location": "/again"})
    with pytest.raises(EngineError):
        reach()


def test_the_access_token_goes_to_the_metadata_and_the_other_one_to_the_data(server, reach):
    for version in (1, 2, 3):
        server.version = version
        server.requests.clear()
        engine = reach()
        engine.read([point(b"k")])
        first, *others = server.requests
        assert first.headers["authorization"] == f"Bearer {ACCESS_TOKEN}"
        for request in others:
            assert request.headers["authorization"] == f"Bearer {DATA_TOKEN}"
            assert request.headers.get("x-denokv-version") == (None if version == 1 else str(version))
            assert ("x-transaction-domain-id" in request.headers) == (version == 1)


def test_another_database_at_the_same_address_is_refused(server, reach):
    engine = reach()
    server.script = lambda request, _: (
        server.metadata(databaseId="11111111-2222-3333-4444-555555555555") if request.path == "/" else None
    )
    engine._session.forget(engine._session._served)
    with pytest.raises(EngineError) as caught:
        engine.read([point(b"k")])
    assert "another database" in caught.value.message


@pytest.mark.parametrize(
    "changed", [{"read_is_strongly_consistent": False}, {"status": 2}, {"status": 0}, {"read_disabled": True}], ids=str
)
def test_an_inconsistent_read_is_not_believed(server, reach, changed):
    engine = reach()
    stamp = commit(engine, put(b"k"))
    left = [changed]
    server.script = lambda request, _: server.read(request, **left.pop()) if request.path == READ and left else None
    found: list[Any] = []
    assert paths_of(server, lambda: found.append(engine.read([point(b"k")]))) == [READ, "/", READ]
    assert found[0].ranges[0][0].versionstamp == stamp


def test_checks_that_a_server_does_not_name_are_looked_for(server, reach):
    server.names_failed_checks = False
    engine = reach()
    stamp = commit(engine, put(b"a"))
    wrong = engine.commit(AtomicWrite((Check(b"a", stamp), Check(b"b", stamp), Check(b"a", None)), (put(b"c"),)))
    assert wrong == Conflict((1, 2))
    refusing = Answer(200, encode_atomic_write_output(AtomicWriteOutput(WriteStatus.CHECK_FAILURE)))
    server.script = once(WRITE, refusing)
    commit(engine, put(b"c"))
    server.script = lambda request, _: refusing if request.path == WRITE else None
    assert engine.commit(AtomicWrite((Check(b"a", stamp),), (put(b"c"),))) == Conflict((0,))


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    balance: int = 0


def losing(share: float, seed: int) -> Callable[[Request, ScriptedServer], Answer | None]:
    """Lose a share of all answers to commits, before or after they are applied."""
    rng, lock = random.Random(seed), threading.Lock()

    def script(request: Request, server: ScriptedServer) -> Answer | None:
        if not request.path.endswith("atomic_write"):
            return None
        with lock:
            lost, applied = rng.random() < share, rng.random() < 0.7
        if lost and applied:
            server.answer(request)
        return LOST if lost else None

    return script


@pytest.mark.parametrize("max_checks", [10, 100])
def test_a_fifth_of_the_answers_is_lost_and_models_are_exact(server, max_checks):
    server.max_checks, server.names_failed_checks = max_checks, max_checks == 100
    retry = RetryPolicy(attempts=50, deadline_s=60.0)
    with Database(server.url, models=[Account], access_token=ACCESS_TOKEN, retry=retry) as db:
        server.script = losing(0.2, 20)
        for at in range(20):
            db[Account].create(id=at, email=f"{at}@x", city="Oslo")
        with pytest.raises(UniqueViolationError):
            db[Account].create(id=99, email="7@x", city="Rome")

        def deposit(account: Account) -> None:
            account.balance += 1

        for at in range(40):
            db[Account].mutate(at % 4, deposit)
        server.script = lambda _request, _server: None
        assert [one.balance for one in db[Account].order_by("id")] == [10] * 4 + [0] * 16
        assert db.check().ok


def test_raw_sums_whose_answers_are_lost_are_unknown_and_sent_once(server, reach):
    engine = reach()
    rng, applied = random.Random(7), []

    def script(request: Request, server: ScriptedServer) -> Answer | None:
        if request.path != WRITE:
            return None
        answer = server.answer(request)
        applied.append(answer)
        return LOST if rng.random() < 0.2 else answer

    server.script = script
    unknown = 0
    for _ in range(40):
        try:
            commit(engine, Arithmetic("sum", b"n", 1))
        except CommitUnknownError:
            unknown += 1
    server.script = lambda _request, _server: None
    assert (len(applied), number(engine, b"n")) == (40, 40)
    assert 0 < unknown < 40


def test_many_tasks_and_threads_renew_together_without_an_error(server):
    server.seconds = 10.5
    engine = ConnectEngine(server.url, access_token=ACCESS_TOKEN)
    threads = [threading.Thread(target=lambda: [engine.read([point(b"k")]) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.close()
    assert server.paths().count(READ) == 40
