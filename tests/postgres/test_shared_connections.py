"""Stores of several schemas with equal connection parameters share the connections of the process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import psycopg
import pytest

from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.engines.postgres import listening
from kvmodels.engines.postgres.connection import Call
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.native import link as native_link
from kvmodels.errors import ClosedError
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.crowd import until
from tests.postgres.databases import Databases

WAIT_S = 60
NEVER_S = 1e6

pytestmark = pytest.mark.servers


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    title: Unique[str]
    topic: Annotated[str, Indexed()] = "none"


@pytest.fixture
def connections(databases: Databases):
    """Count the connections of the program to the server."""
    url = databases.url()
    with databases.admin() as admin:

        def count() -> int:
            ((number,),) = admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
                (url.rsplit("=", 1)[1],),
            ).fetchall()
            return int(number)

        yield count


def schemas(number: int) -> list[str]:
    return [f"shop_{at}" for at in range(number)]


def test_the_schemas_of_one_process_take_no_more_connections_than_one_pool(databases: Databases, connections):
    url, size = databases.url(), 3
    with ExitStack() as stack:
        stores = [stack.enter_context(Database(url, models=[Note], schema=name, pool_size=size)) for name in schemas(6)]
        most = 0

        def work(at: int) -> None:
            nonlocal most
            db = stores[at % len(stores)]
            with db.transaction() as tx:
                tx[Note].create(id=at, title=f"{at}")
            assert db[Note].get(title=f"{at}").id == at
            most = max(most, connections()) if at % 6 == 0 else most

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(work, range(30)))
        assert [db[Note].count() for db in stores] == [5] * 6
        assert 1 < most <= 2 * size + 1
        assert all(db.check().ok for db in stores[:2])


async def test_the_schemas_of_an_event_loop_take_no_more_connections_than_one(databases: Databases, connections):
    url, size = databases.url(), 3
    stores = [AsyncDatabase(url, models=[Note], schema=name, pool_size=size) for name in schemas(6)]
    for db in stores:
        await db.open()

    async def work(at: int) -> None:
        db = stores[at % len(stores)]
        await db[Note].create(id=at, title=f"{at}")
        async with db.transaction() as tx:
            await tx[Note].patch(at, topic="changed")
        assert (await db[Note].get(title=f"{at}")).topic == "changed"

    await asyncio.gather(*(work(at) for at in range(30)))
    assert [await db[Note].filter(topic="changed").count() for db in stores] == [5] * 6
    # Six for the loop with its snapshots and large reads, and those of threads that have opened the stores.
    assert connections() <= 2 * size + 6
    for db in stores[1:]:
        await db.close()
    assert (await stores[0][Note].get(0)).title == "0"
    await stores[0].close()
    until(lambda: connections() == 0)  # the server ends its processes a moment later


def test_a_commit_that_waits_for_its_schema_stops_no_commit_of_another(databases: Databases):
    url = databases.url()
    one, other = (PostgresEngine(url, schema=name, busy_timeout=WAIT_S) for name in schemas(2))
    with databases.admin() as admin, ThreadPoolExecutor(2) as pool:
        with admin.transaction():
            admin.execute("LOCK TABLE shop_0.gate IN EXCLUSIVE MODE")
            waiting = pool.submit(commit, one, put(b"k"))
            until(lambda: one.check_open().server.pool.is_used_by(one.check_open()))
            commit(other, put(b"k"))

            async def in_a_loop() -> None:
                first = asyncio.create_task(one.native().commit(put_of(b"l")))
                links = one.native()._transport.links
                while links.writer_now(one) is not None or links._live_writer() is None:
                    await asyncio.sleep(0.001)
                await other.native().commit(put_of(b"l"))
                assert not first.done()
                admin.execute("COMMIT")
                await first
                await asyncio.gather(one.native().aclose(), other.native().aclose())

            asyncio.run(in_a_loop())
        waiting.result(WAIT_S)
    assert keys(one, EVERYTHING) == keys(other, EVERYTHING) == [b"k", b"l"]
    one.close()
    other.close()


def put_of(key: bytes) -> AtomicWrite:
    return AtomicWrite((), (Set(key, b"v", 0, None),))


def listening_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("kvmodels-listen")


def test_one_connection_listens_for_all_schemas_and_each_is_told_its_own_commits(databases: Databases, monkeypatch):
    monkeypatch.setattr(listening, "PROBE_S", WAIT_S)
    url = databases.url()
    stores = [PostgresEngine(url, schema=name, poll_interval=NEVER_S) for name in schemas(3)]
    others = [PostgresEngine(f"{url}-other", schema=name) for name in schemas(3)]
    woken = [threading.Event() for _ in stores]
    before = listening_threads()
    for store, event in zip(stores, woken, strict=True):
        store.subscribe(event.set)
    until(lambda: all(store.check_open().listener.active for store in stores))
    assert listening_threads() <= before + 1
    for at, other in enumerate(others):
        for event in woken:
            event.clear()
        commit(other, put(b"k"))
        assert woken[at].wait(WAIT_S)
        assert [event.is_set() for event in woken].count(True) == 1
    stores[0].close()
    woken[1].clear()
    commit(others[1], put(b"l"))
    assert woken[1].wait(WAIT_S)
    with databases.admin() as admin:
        held = "SELECT count(DISTINCT objid) FROM pg_locks WHERE locktype = 'advisory'"
        until(lambda: admin.execute(held).fetchone() == (2,))
    for engine in (*stores[1:], *others):
        engine.close()
    until(lambda: listening_threads() <= before)


def test_a_schema_that_cannot_be_listened_to_leaves_the_others_told(databases: Databases, monkeypatch):
    monkeypatch.setattr(listening, "PROBE_S", WAIT_S)
    url = databases.url()
    gone, kept = (PostgresEngine(url, schema=name, poll_interval=NEVER_S) for name in schemas(2))
    other = PostgresEngine(f"{url}-other", schema="shop_1")
    woken = threading.Event()
    kept.subscribe(woken.set)
    until(lambda: kept.check_open().listener.active)
    with databases.admin() as admin:
        admin.execute("ALTER SCHEMA shop_0 RENAME TO moved")
        try:
            gone.subscribe(lambda: None)
            until(lambda: gone.check_open().listener._retry_at)
        finally:
            admin.execute("ALTER SCHEMA moved RENAME TO shop_0")
    woken.clear()
    commit(other, put(b"k"))
    assert woken.wait(WAIT_S)
    for engine in (gone, kept, other):
        engine.close()


def test_a_store_that_is_closed_leaves_the_connections_to_the_others(databases: Databases, connections):
    url = databases.url()
    one, other = (PostgresEngine(url, schema=name) for name in schemas(2))
    server = one.check_open().server
    assert server is other.check_open().server
    snapshot = one.snapshot()
    one.close()
    with pytest.raises(ClosedError):
        snapshot.read([EVERYTHING])
    commit(other, put(b"k"))
    with other.snapshot() as still:
        assert keys(still, EVERYTHING) == [b"k"]
    again = PostgresEngine(url, schema="shop_0")
    assert again.check_open().server is server
    again.close()
    other.close()
    until(lambda: connections() == 0)
    fresh = PostgresEngine(url, schema="shop_0")
    assert fresh.check_open().server is not server
    fresh.close()


def test_closing_a_store_waits_for_its_calls_and_not_for_those_of_another(databases: Databases):
    url = databases.url()
    one, other = (PostgresEngine(url, schema=name, busy_timeout=WAIT_S) for name in schemas(2))
    with databases.admin() as admin, ThreadPoolExecutor(2) as pool, admin.transaction():
        admin.execute("LOCK TABLE shop_1.gate IN EXCLUSIVE MODE")
        waiting = pool.submit(commit, other, put(b"k"))
        store = other.check_open()
        until(lambda: store.server.pool.is_used_by(store))
        one.close()
        closing = pool.submit(other.close)
        until(lambda: store.closed_reason is not None)
        assert not waiting.done()
        assert not closing.done()
        admin.execute("COMMIT")
        waiting.result(WAIT_S)
        closing.result(WAIT_S)


def test_other_connection_parameters_are_another_pool(databases: Databases):
    url = databases.url()
    engines = [
        PostgresEngine(url, schema="shop_0"),
        PostgresEngine(url, schema="shop_1", pool_size=3),
        PostgresEngine(url, schema="shop_2", prepare=False),
        PostgresEngine(url, schema="shop_3", idle_timeout=60),
        PostgresEngine(f"{url}-x", schema="shop_4"),
        PostgresEngine(url, schema="shop_0", readonly=True),
    ]
    assert len({id(engine.check_open().server) for engine in engines}) == len(engines)
    for engine in engines:
        engine.close()


def test_a_forked_child_has_connections_of_its_own_for_every_schema(databases: Databases):
    url = databases.url()
    one, other = (PostgresEngine(url, schema=name) for name in schemas(2))
    commit(one, put(b"parent"))
    child = os.fork()
    if not child:
        told = 1
        try:
            own = PostgresEngine(url, schema="shop_0")
            commit(own, put(b"child"))
            second = PostgresEngine(url, schema="shop_1")
            commit(second, put(b"child"))
            own.close()
            second.close()
            told = 0
        finally:
            os._exit(told)
    assert os.waitpid(child, 0)[1] == 0
    commit(other, put(b"parent"))
    assert keys(one, EVERYTHING) == keys(other, EVERYTHING) == [b"child", b"parent"]
    one.close()
    other.close()


def test_a_connection_that_one_schema_has_spoilt_is_not_given_to_another(databases: Databases):
    url = databases.url()
    one, other = (PostgresEngine(url, schema=name, pool_size=1) for name in schemas(2))
    pool = one.check_open().server.pool
    spoilt = pool.take("reads", WAIT_S)
    spoilt.execute(b"BEGIN")
    with pytest.raises(psycopg.Error):
        spoilt.execute(b"SELECT 1/0")
    pool.give_back(spoilt)
    commit(other, put(b"k"))
    assert keys(other, EVERYTHING) == [b"k"]
    assert spoilt.closed
    one.close()
    other.close()


async def test_statements_of_many_schemas_stay_prepared_up_to_a_bound(databases: Databases, monkeypatch):
    monkeypatch.setattr(native_link, "MOST_PREPARED", 4)
    url = databases.url()
    stores = [AsyncDatabase(url, models=[Note], schema=name, pool_size=1) for name in schemas(4)]
    for db in stores:
        await db.open()
    for turn in range(3):
        for at, db in enumerate(stores):
            await db[Note].create(id=turn, title=f"{turn}")
            assert (await db[Note].get(title=f"{turn}")).id == turn
            assert await db[Note].count() == turn + 1, at
    links = stores[0]._engine.native()._transport.links  # type: ignore[attr-defined]
    for link in links._all():
        assert len(link._prepared) <= 4
        rows = (await link.call(Call(b"SELECT count(*) FROM pg_catalog.pg_prepared_statements", ()))).rows
        assert rows[0][0] <= 4
    for db in stores:
        await db.close()


def test_through_a_proxy_that_pools_transactions_the_schemas_share_a_pool_too(databases_on):
    url = databases_on("pgbouncer").url()
    stores = [Database(url, models=[Note], schema=name, prepare=False) for name in schemas(2)]
    for db in stores:
        db[Note].create(id=1, title="one")
    assert [db[Note].get(title="one").id for db in stores] == [1, 1]
    for db in stores:
        db.close()


def test_connections_that_no_call_uses_are_closed_after_a_while(databases: Databases, connections):
    url = databases.url()
    with Database(url, models=[Note], idle_timeout=0.05) as db:
        for at in range(2):
            with db.transaction() as tx:
                tx[Note].create(id=at, title=f"{at}")
            until(lambda: connections() == 0)
        with db.kv.snapshot() as snapshot:
            time.sleep(0)
            until(lambda: connections() == 1)
            assert snapshot.versionstamp
        assert db[Note].count() == 2


async def test_connections_of_an_event_loop_are_closed_after_a_while(databases: Databases, connections):
    async with AsyncDatabase(databases.url(), models=[Note], idle_timeout=0.05) as db:
        for at in range(2):
            async with db.transaction() as tx:
                await tx[Note].create(id=at, title=f"{at}")
            deadline = time.monotonic() + WAIT_S
            while connections():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
        assert await db[Note].count() == 2


def test_a_process_with_many_tenants_holds_no_more_connections_than_with_one(databases: Databases, connections):
    """Tenants are parts of one store, so they share its pool whatever their number is."""
    with Database(databases.url(), tenant_models=[Note], pool_size=2) as db:
        for number in range(20):
            db.create_tenant(f"t{number}")

        def work(at: int, tenants: int) -> int:
            tenant = db.tenant(f"t{at % tenants}")
            with tenant.transaction() as tx:
                tx[Note].create(id=at, title=f"{at}")
            tenant.kv.set(("raw", at), at)
            return connections()

        with ThreadPoolExecutor(8) as pool:
            assert max(pool.map(work, range(16), [1] * 16)) <= 2 * 2 + 1
            assert max(pool.map(work, range(16, 56), [20] * 40)) <= 2 * 2 + 1
