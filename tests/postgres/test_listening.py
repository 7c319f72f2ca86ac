"""Notifications: who is woken by them, when none are sent, and what happens where they do not arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from kvmodels.engines.postgres import listening
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.listening import CommitListener
from kvmodels.runtime.event_loop import aclose
from tests.contract.shorthand import commit, put
from tests.postgres.databases import Databases

WAIT_S = 60
NEVER_S = 1e6

LISTENERS = (
    "FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
    " WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()"
)

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server may deliver the notification that proves LISTEN late."""
    monkeypatch.setattr(listening, "PROBE_S", WAIT_S)


@pytest.fixture
def admin(databases: Databases) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"{databases.url()}-admin", autocommit=True) as one:
        yield one


@pytest.fixture
def other(databases: Databases) -> Iterator[PostgresEngine]:
    """A store of its own, as another process would have."""
    engine = PostgresEngine(f"{databases.url()}-other")
    yield engine
    engine.close()


@pytest.fixture
def engine(databases: Databases) -> Iterator[PostgresEngine]:
    """One that asks the server for nothing by itself."""
    engine = PostgresEngine(databases.url(), poll_interval=NEVER_S)
    yield engine
    engine.close()


def listener_of(engine: PostgresEngine) -> CommitListener:
    return engine.check_open().listener


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def listeners_of(admin: psycopg.Connection) -> list[tuple]:
    """The backends that hold the lock of listeners."""
    return admin.execute(f"SELECT l.pid {LISTENERS}".encode()).fetchall()


def listening_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kvmodels-listen"]


def test_a_commit_of_another_process_wakes_by_a_notification(engine: PostgresEngine, other: PostgresEngine):
    woken = threading.Event()
    unsubscribe = engine.subscribe(woken.set)
    wait_until(lambda: listener_of(engine).active)
    for at in range(3):
        woken.clear()
        commit(other, put(b"k", b"%d" % at))
        assert woken.wait(WAIT_S)
    unsubscribe()


async def test_a_task_that_waits_is_woken(engine: PostgresEngine, other: PostgresEngine):
    unsubscribe = engine.subscribe(lambda: None)
    wait_until(lambda: listener_of(engine).active)
    before = await engine.native().wait_for_commit(b"", 0)
    stamp = commit(other, put(b"k"))
    assert await engine.native().wait_for_commit(before, WAIT_S) == stamp
    unsubscribe()
    await aclose(engine)


def test_commits_notify_only_while_somebody_listens(
    engine: PostgresEngine, other: PostgresEngine, admin: psycopg.Connection
):
    ((channel,),) = admin.execute("SELECT 'kvmodels_' || 'kvmodels.gate'::regclass::oid").fetchall()
    admin.execute(f'LISTEN "{channel}"'.encode())
    commit(other, put(b"k"))
    assert list(admin.notifies(timeout=0.2)) == []
    unsubscribe = engine.subscribe(lambda: None)
    wait_until(lambda: listener_of(engine).active)
    stamp = commit(other, put(b"k"))
    notification = next(one for one in admin.notifies(timeout=WAIT_S) if not one.payload.startswith("probe"))
    assert int(notification.payload) == int.from_bytes(stamp[:8], "big")
    unsubscribe()
    engine.close()
    wait_until(lambda: not listeners_of(admin))
    commit(other, put(b"k"))
    assert list(admin.notifies(timeout=0.2)) == []


def test_a_listener_whose_connection_ends_connects_again(
    engine: PostgresEngine, other: PostgresEngine, admin: psycopg.Connection
):
    woken = threading.Event()
    unsubscribe = engine.subscribe(woken.set)
    listener = listener_of(engine)
    for _ in range(2):
        wait_until(lambda: listener.active and listeners_of(admin))
        ((ended,),) = admin.execute(f"SELECT pg_terminate_backend(l.pid, 60000) {LISTENERS}".encode()).fetchall()
        assert ended
        wait_until(lambda: not listener.active or listeners_of(admin))
        engine.check_open().background.signal.notify()
    wait_until(lambda: listener.active and listeners_of(admin))
    woken.clear()
    commit(other, put(b"k"))
    assert woken.wait(WAIT_S)
    unsubscribe()


def test_where_nothing_is_delivered_the_store_is_polled(
    databases: Databases, other: PostgresEngine, monkeypatch: pytest.MonkeyPatch
):
    """As through a proxy that pools transactions, which accepts LISTEN."""
    monkeypatch.setattr(listening, "PROBE_S", 0.05)
    monkeypatch.setattr(listening, "_NOTIFY", listening._NOTIFY.replace(b"pg_notify(", b"concat("))
    engine = PostgresEngine(databases.url())
    woken = threading.Event()
    unsubscribe = engine.subscribe(woken.set)
    listener = listener_of(engine)
    wait_until(lambda: listener._retry_at)
    assert not listener.active
    woken.clear()
    commit(other, put(b"k"))
    assert woken.wait(WAIT_S)
    unsubscribe()
    engine.close()
    assert listening_threads() == []


def test_listen_through_a_proxy_that_pools_transactions_is_not_believed(
    url_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listening, "PROBE_S", 0.5)
    engine = PostgresEngine(url_of("pgbouncer"), prepare=False)
    other = PostgresEngine(url_of("pgbouncer") + "-other", prepare=False)
    woken = threading.Event()
    engine.subscribe(woken.set)
    listener = listener_of(engine)
    wait_until(lambda: listener._retry_at)
    assert not listener.active
    woken.clear()
    commit(other, put(b"k"))
    assert woken.wait(WAIT_S)
    other.close()
    engine.close()


def test_closing_ends_the_thread_and_the_connection(engine: PostgresEngine, admin: psycopg.Connection):
    engine.subscribe(lambda: None)
    wait_until(lambda: listener_of(engine).active)
    assert len(listening_threads()) == 1
    engine.close()
    assert listening_threads() == []
    wait_until(lambda: not listeners_of(admin))


def test_a_listener_that_nobody_needs_ends(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listening, "LINGER_S", 0.05)
    engine.subscribe(lambda: None)()
    wait_until(lambda: not listening_threads())
    assert not listener_of(engine).active
