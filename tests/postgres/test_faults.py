"""Eight writers while connections end, the server dies, answers are lost and standbys are slow or promoted.

What was acknowledged is there, nothing is applied twice, the history replays, and the store checks clean.
"""

from __future__ import annotations

import random
import signal
import threading
from contextlib import AbstractContextManager
from urllib.parse import quote

import psycopg
import pytest

from tests.crowd import Crowd, Order, until
from tests.postgres.databases import Databases
from tests.postgres.proxy import Fault, Proxy, proxy_of
from tests.postgres.server import PostgresServer, own_server

RUNS = [1, 2, 3]
BETWEEN = 120
"""Acknowledged writes between two faults."""

FAULTS = [pytest.param(2, marks=pytest.mark.servers), pytest.param(20, marks=pytest.mark.soak)]

pytestmark = pytest.mark.parametrize("seed", RUNS)


def standby_of(primary: PostgresServer, through: Proxy | None = None) -> AbstractContextManager[PostgresServer]:
    """A standby that is not started yet."""
    folder = primary.folder if through is None else through.folder
    return own_server(copy_of=primary, primary_conninfo=f"host={folder} user=postgres application_name=standby")


@pytest.mark.parametrize("faults", FAULTS)
def test_all_backends_are_terminated(databases: Databases, seed: int, faults: int):
    crowd = Crowd(databases.url(), seed)
    ended = 0
    with databases.admin() as admin:
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            ended += len(
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                ).fetchall()
            )
        crowd.wait_for(BETWEEN)
    assert ended
    crowd.finish()


@pytest.mark.parametrize("faults", FAULTS)
def test_the_server_is_killed_and_started_again(seed: int, faults: int):
    # The kernel outlives the server, so nothing depends on fsync here. With it, a start syncs every file of the data
    # first, and takes 1 to 4 s on a busy machine instead of 0.3 to 0.6.
    with own_server(fsync="off") as server:
        crowd = Crowd(server.url, seed)
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            server.stop()
            server.start(server.users)
        crowd.wait_for(BETWEEN)
        crowd.finish()


@pytest.mark.parametrize("faults", FAULTS)
def test_one_answer_in_twenty_is_swallowed(
    postgres_server: PostgresServer, databases: Databases, seed: int, faults: int
):
    """Of commits, of reads, and of the resolutions of what was swallowed before."""
    chance = random.Random(seed)
    names: list[str] = []

    def plan(request: bytes) -> Fault:
        called = next((name for name in (b"commit_1", b"resolve_1", b"read_1", b"state_1") if name in request), None)
        if called is None or chance.random() > (0.5 if called == b"resolve_1" else 0.05):
            return None
        names.append(called.decode())
        return "lose_answer" if chance.random() < 0.8 else "lose_request"

    with proxy_of(postgres_server.folder) as proxy:
        crowd = Crowd(proxy.url(databases.url()), seed, prepare=False)
        proxy.plan = plan
        crowd.wait_for(BETWEEN * faults)
        until(lambda: {"commit_1", "resolve_1"} <= set(names) or crowd.errors)
        proxy.plan = lambda request: None
        crowd.finish()
        print({name: names.count(name) for name in sorted(set(names))})


@pytest.mark.parametrize("faults", FAULTS)
def test_a_leader_is_interrupted(postgres_server: PostgresServer, databases: Databases, seed: int, faults: int):
    """The main thread is a ninth writer, and is interrupted while its call is under way, with others in its group."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.get_ident()
    told: list[str] = []
    try:
        with proxy_of(postgres_server.folder) as proxy:
            crowd = Crowd(proxy.url(databases.url()), seed, prepare=False)
            orders = crowd.db[Order]

            def plan(request: bytes) -> Fault:
                if b"commit_1" in request and b"interrupted-" in request:
                    proxy.plan = lambda request: None
                    signal.pthread_kill(main, signal.SIGINT)
                return None

            for turn in range(faults):
                crowd.wait_for(BETWEEN)
                name = f"interrupted-{turn}"
                proxy.plan = plan
                try:
                    orders.create(id=name, number=name, writer=9)
                    until(lambda: False)  # the interrupt comes at any time
                except KeyboardInterrupt as interrupt:
                    told += getattr(interrupt, "__notes__", ["no note"])
                    (crowd.own.made if orders.get_or_none(name) else crowd.own.refused).add(name)
            crowd.wait_for(BETWEEN)
            crowd.finish()
    finally:
        signal.signal(signal.SIGINT, before)
    print(told)
    assert len(told) == faults


@pytest.mark.parametrize("faults", FAULTS)
def test_a_synchronous_standby_is_slow(seed: int, faults: int):
    """Backends end while their commits wait for the standby, and a cancelled wait is no acknowledgement."""
    with (
        own_server(synchronous_standby_names="*", max_wal_senders="10") as primary,
        proxy_of(primary.folder) as proxy,
        standby_of(primary, proxy) as standby,
    ):
        proxy.delay_s = 0.02
        standby.start(standby.users)
        crowd = Crowd(primary.url, seed)
        with psycopg.connect(primary.url, autocommit=True) as admin:
            for turn in range(faults):
                crowd.wait_for(BETWEEN)
                end = "pg_terminate_backend" if turn % 2 else "pg_cancel_backend"
                admin.execute(
                    f"SELECT {end}(pid) FROM pg_stat_activity WHERE usename = 'postgres'"
                    " AND backend_type = 'client backend' AND pid <> pg_backend_pid()".encode()
                )
            crowd.wait_for(BETWEEN)
        crowd.finish()


@pytest.mark.parametrize(
    "faults", [pytest.param(1, marks=pytest.mark.servers), pytest.param(5, marks=pytest.mark.soak)]
)
def test_a_synchronous_standby_is_promoted(seed: int, faults: int):
    """The primary dies; what it has acknowledged is on the standby, which the writers find by themselves."""
    with (
        own_server(synchronous_standby_names="*", max_wal_senders="10") as primary,
        standby_of(primary) as standby,
    ):
        standby.start(standby.users)
        hosts = quote(f"{primary.folder},{standby.folder}", safe=",")
        crowd = Crowd(f"postgresql://postgres@/postgres?host={hosts}", seed)
        crowd.wait_for(BETWEEN * faults)
        primary.stop()
        standby.promote()
        crowd.wait_for(BETWEEN * faults)
        crowd.finish()
