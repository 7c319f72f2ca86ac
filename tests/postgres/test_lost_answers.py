"""Answers, requests and connections that are lost: what was acknowledged is there, and nothing is applied twice."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from kvmodels import AsyncDatabase, Database
from kvmodels.core.operations import VACANT, Arithmetic, AtomicWrite, Check, Committed, Conflict, Set
from kvmodels.engines.postgres import commits
from kvmodels.engines.postgres.connection import CONNECT_ATTEMPTS, PostgresConnection
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.packing import PackedWrite
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.errors import (
    CommitUnknownError,
    EngineTimeoutError,
    InvalidArgumentError,
    KeyTooLargeError,
    KvModelsError,
)
from tests.contract.shorthand import commit, get, number, put
from tests.postgres.databases import Databases
from tests.postgres.proxy import Fault, Proxy, proxy_of
from tests.postgres.server import PostgresServer

WRITERS = 4
GIVE_UP_S = 1.0
"""Time for a commit whose answers are all lost: enough for a busy machine to send it."""
SEED = 20_261_123

pytestmark = pytest.mark.servers


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with proxy_of(postgres_server.folder) as one:
        yield one


@pytest.fixture
def engine(proxy: Proxy, databases: Databases) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(proxy.url(databases.url()), prepare=False, busy_timeout=30)
    yield opened
    proxy.plan = lambda request: None
    opened.close()


def store_of(db: Database | AsyncDatabase) -> PostgresStore:
    """The store of a database, of which a test changes how long it waits once it is open."""
    engine = db._engine
    assert isinstance(engine, PostgresEngine)
    return engine.check_open()


def faults_of(**plans: list[Fault]):
    """Faults by the name of the function that is called."""
    left = {name.encode() + b"_1": list(faults) for name, faults in plans.items()}

    def plan(request: bytes) -> Fault:
        for name, faults in left.items():
            if name in request and faults:
                return faults.pop(0)
        return None

    return plan


def add(engine: PostgresEngine, times: int) -> tuple[int, list[KvModelsError]]:
    """Increase a counter; how often that was acknowledged, and what was raised."""
    done, refused = 0, []
    for _ in range(times):
        try:
            assert isinstance(engine.commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),))), Committed)
            done += 1
        except KvModelsError as error:
            refused.append(error)
    return done, refused


def test_a_lost_answer_is_resolved(engine: PostgresEngine, proxy: Proxy):
    proxy.plan = faults_of(commit=["lose_answer"])
    commit(engine, put(b"k", b"1"), Arithmetic("sum", b"n", 1))
    assert proxy.lost == ["lose_answer"]
    assert number(engine, b"n") == 1


def test_a_lost_request_is_sent_again(engine: PostgresEngine, proxy: Proxy):
    proxy.plan = faults_of(commit=["lose_request"])
    commit(engine, Arithmetic("sum", b"n", 1))
    assert number(engine, b"n") == 1


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
def test_the_answer_of_a_resolution_is_lost_too(engine: PostgresEngine, proxy: Proxy, fault: Fault):
    proxy.plan = faults_of(commit=[fault], resolve=["lose_answer", "lose_request", "lose_answer"])
    commit(engine, Arithmetic("sum", b"n", 1))
    assert len(proxy.lost) == 4
    assert number(engine, b"n") == 1


def test_a_void_row_that_is_taken_for_a_commit_is_noticed(engine: PostgresEngine, proxy: Proxy, databases: Databases):
    """The mutant of the rule: without the mark, the second resolution would report the operation as applied."""
    with psycopg.connect(databases.url(), autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION kvmodels.unmark() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN NEW.void := false; RETURN NEW; END$$;"
            "CREATE TRIGGER unmarked BEFORE INSERT ON kvmodels.commits"
            " FOR EACH ROW EXECUTE FUNCTION kvmodels.unmark()"
        )
    proxy.plan = faults_of(commit=["lose_request"], resolve=["lose_answer"])
    commit(engine, Arithmetic("sum", b"n", 1))
    assert get(engine, b"n") is None
    with psycopg.connect(databases.url(), autocommit=True) as admin:
        admin.execute("DROP FUNCTION kvmodels.unmark CASCADE")


@pytest.mark.parametrize(("fault", "applied"), [("lose_answer", True), ("lose_request", False)])
def test_what_became_of_a_commit_can_be_asked_later(
    proxy: Proxy, databases: Databases, monkeypatch: pytest.MonkeyPatch, fault: Fault, applied: bool
):
    monkeypatch.setattr(commits, "ANSWER_S", 0.0)
    with Database(proxy.url(databases.url()), models=[], prepare=False, busy_timeout=60) as db:
        db.kv.set(("k",), 1)
        store = store_of(db)

        def plan(request: bytes) -> Fault:
            if b"commit_1" in request:
                proxy.plan = lambda later: "lose_answer" if b"_1" in later else None
                return fault
            return None

        proxy.plan = plan
        store.busy_timeout = GIVE_UP_S
        with pytest.raises(CommitUnknownError) as caught:
            db.kv.set(("k",), 2)
        assert caught.value.token is not None
        with pytest.raises(CommitUnknownError) as again:
            db.outcome(caught.value.token)
        assert again.value.token == caught.value.token
        store.busy_timeout = 60.0
        proxy.plan = lambda request: None
        for _ in range(2):
            assert db.outcome(caught.value.token) is applied
        assert db.kv.get(("k",)).value == (2 if applied else 1)
        for wrong in ("token", caught.value.token + "0"):
            with pytest.raises(InvalidArgumentError):
                db.outcome(wrong)


async def test_what_became_of_a_commit_of_a_task_can_be_asked_later(
    proxy: Proxy, databases: Databases, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(commits, "ANSWER_S", 0.0)
    async with AsyncDatabase(proxy.url(databases.url()), models=[], prepare=False, busy_timeout=60) as db:
        await db.kv.set(("k",), 1)
        store = store_of(db)
        proxy.plan = lambda request: "lose_answer" if b"commit_1" in request or b"resolve_1" in request else None
        store.busy_timeout = GIVE_UP_S
        with pytest.raises(CommitUnknownError) as caught:
            await db.kv.set(("k",), 2)
        store.busy_timeout = 60.0
        proxy.plan = lambda request: None
        assert caught.value.token is not None
        assert await db.outcome(caught.value.token)


def test_a_conflict_whose_answer_is_lost_is_a_conflict(engine: PostgresEngine, proxy: Proxy):
    commit(engine, put(b"k"))
    proxy.plan = faults_of(commit=["lose_answer"])
    assert engine.commit(AtomicWrite((Check(b"k", None), Check(b"l", VACANT)), (put(b"k", b"2"),))) == Conflict((0,))


def test_what_became_of_a_commit_that_the_store_has_forgotten_is_unknown(
    engine: PostgresEngine, proxy: Proxy, databases: Databases
):
    commit(engine, put(b"k"))

    def plan(request: bytes) -> Fault:
        if b"commit_1" not in request:
            return None
        with psycopg.connect(databases.url(), autocommit=True) as admin:
            admin.execute("UPDATE kvmodels.meta SET forgotten = 1::int8 << 62")
        proxy.plan = lambda _: None
        return "lose_request"

    proxy.plan = plan
    with pytest.raises(CommitUnknownError) as caught:
        engine.commit(AtomicWrite((), (put(b"k", b"2"),)))
    assert caught.value.reason == "forgotten"


def test_an_engine_that_was_idle_for_longer_than_the_store_remembers_goes_on(
    engine: PostgresEngine, databases: Databases
):
    commit(engine, put(b"k"))
    other = PostgresEngine(databases.url())
    last = commit(other, put(b"l"))
    other.close()
    with psycopg.connect(databases.url(), autocommit=True) as admin:
        admin.execute("UPDATE kvmodels.meta SET forgotten = %s", (int.from_bytes(last[:8], "big"),))
    commit(engine, put(b"k", b"2"))


def test_answers_are_lost_under_writers(engine: PostgresEngine, proxy: Proxy):
    chance = random.Random(SEED)

    def plan(request: bytes) -> Fault:
        if b"_1(" not in request or chance.random() > 0.1:
            return None
        return "lose_answer" if chance.random() < 0.7 else "lose_request"

    proxy.plan = plan
    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(add, engine, 40) for _ in range(WRITERS)]
        outcomes = [writer.result() for writer in writers]
    proxy.plan = lambda request: None
    assert [str(error) for _, refused in outcomes for error in refused] == []
    assert number(engine, b"n") == sum(done for done, _ in outcomes) == 40 * WRITERS
    print(f"seed {SEED}: {len(proxy.lost)} lost")
    assert proxy.lost


def test_all_connections_are_terminated_under_writers(databases: Databases):
    """Each writer ends the connections of all after every tenth commit, however slow the machine is."""
    engine = PostgresEngine(databases.url(), busy_timeout=30)
    killed: list[tuple] = []

    def write() -> tuple[int, list[KvModelsError]]:
        done = 0
        refused: list[KvModelsError] = []
        with psycopg.connect(f"{databases.url()}-admin", autocommit=True) as admin:
            for _ in range(5):
                more, errors = add(engine, 10)
                done, refused = done + more, refused + errors
                killed.extend(
                    admin.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND application_name !~ '-admin$'"
                    ).fetchall()
                )
        return done, refused

    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = [writer.result() for writer in [pool.submit(write) for _ in range(WRITERS)]]
    assert killed
    assert [str(error) for _, refused in outcomes for error in refused] == []
    assert number(engine, b"n") == sum(done for done, _ in outcomes) == 50 * WRITERS
    engine.close()


@pytest.fixture(params=["sync", "native"])
def get_on_new_connection(request: pytest.FixtureRequest, databases: Databases, monkeypatch: pytest.MonkeyPatch):
    """Return what a get returns if the first connections are ended while they are opened."""
    kind: Any = PostgresConnection if request.param == "sync" else psycopg.AsyncConnection
    opened = kind.connect

    def call(times: int, busy_timeout: float = 60) -> object:
        left = [times]

        def connect(*args: object, **options: object) -> object:
            if not left[0]:
                return opened(*args, **options)
            left[0] -= 1
            raise psycopg.OperationalError("FATAL:  terminating connection due to administrator command")

        with Database(databases.url()) as db:
            db.kv.set(("k",), 1)
        monkeypatch.setattr(kind, "connect", connect)
        if request.param == "sync":
            with Database(databases.url(), busy_timeout=busy_timeout) as db:
                return db.kv.get(("k",)).value

        async def run() -> object:
            async with AsyncDatabase(databases.url(), busy_timeout=busy_timeout) as db:
                return (await db.kv.get(("k",))).value

        return asyncio.run(run())

    return call


def test_a_connection_that_is_terminated_while_it_is_opened_is_replaced(get_on_new_connection):
    assert get_on_new_connection(CONNECT_ATTEMPTS - 1) == 1


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("new", [True, False], ids=["new", "made"])
def test_a_store_is_opened_whichever_connection_is_lost_meanwhile(
    proxy: Proxy, databases: Databases, fault: Fault, new: bool
):
    url = proxy.url(databases.url())
    for lost in itertools.count():
        requests = itertools.count()
        proxy.plan = lambda _, requests=requests, lost=lost: fault if next(requests) == lost else None  # type: ignore[misc]
        engine = PostgresEngine(url, schema=f"store_{lost}" if new else "kvmodels", change_log=60, prepare=False)
        proxy.plan = lambda _: None
        commit(engine, put(b"k"))
        engine.close()
        if len(proxy.lost) <= lost:
            break
    assert len(proxy.lost) > 5


def test_a_server_that_terminates_every_connection_is_reported(get_on_new_connection):
    with pytest.raises(EngineTimeoutError) as caught:
        get_on_new_connection(10**6, busy_timeout=0.05)
    assert caught.value.reason == "57P01"


def test_an_interrupted_leader_finishes_its_group_first(engine: PostgresEngine, proxy: Proxy):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def plan(request: bytes) -> Fault:
        if b"commit_1" in request:
            proxy.plan = lambda _: None
            os.kill(os.getpid(), signal.SIGINT)
        return None

    proxy.plan = plan
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            engine.commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.__notes__ == ["the commit was applied"]
    assert number(engine, b"n") == 1
    commit(engine, Arithmetic("sum", b"n", 1))
    assert number(engine, b"n") == 2


def test_one_bad_operation_does_not_fail_its_group(engine: PostgresEngine):
    store = engine.check_open()
    chance = random.Random(SEED)
    good = [PackedWrite((), [Set(b"k%d" % at, b"v", 3)], [], []) for at in range(3)]
    bad = PackedWrite((), [Set(chance.randbytes(4_000), b"v", 3)], [], [])
    run = commits.CommitRun(store, store.commit_texts, [good[0], bad, *good[1:]])
    run.finish(store.perform)
    assert [type(outcome) for outcome in run.outcomes] == [Committed, KeyTooLargeError, Committed, Committed]


def test_a_warning_during_a_commit_counts_as_a_lost_answer(engine: PostgresEngine, proxy: Proxy, databases: Databases):
    with psycopg.connect(databases.url(), autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION kvmodels.warn() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE WARNING 'as a cancelled wait for a standby'; RETURN NEW; END$$"
        )
        admin.execute("CREATE TRIGGER warn BEFORE INSERT ON kvmodels.kv FOR EACH ROW EXECUTE FUNCTION kvmodels.warn()")
    asked: list[bytes] = []
    proxy.plan = lambda request: asked.append(request)
    commit(engine, put(b"k"))
    assert sum(b"commit_1" in request for request in asked) == 1
    assert sum(b"resolve_1" in request for request in asked) == 1
    with psycopg.connect(databases.url(), autocommit=True) as admin:
        admin.execute("DROP FUNCTION kvmodels.warn CASCADE")
