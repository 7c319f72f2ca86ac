"""How many round trips each verb costs on a server, counted by a proxy in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.core.operations import Delete, ReadRange, point
from kvmodels.engines.postgres.engine import PostgresEngine
from tests.contract.shorthand import commit, put
from tests.postgres.databases import Databases
from tests.postgres.proxy import Proxy, proxy_of
from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.servers


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    visits: int = 0


CITIES = ["Bonn", "Kiel", "Ulm", "Jena", "Gera"]


def user(number: int) -> User:
    return User(id=number, email=f"{number}@example.org", city=CITIES[number % len(CITIES)])


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with proxy_of(postgres_server.folder) as one:
        yield one


@pytest.fixture(params=[True, False], ids=["prepared", "unprepared"])
def db(proxy: Proxy, databases: Databases, request: pytest.FixtureRequest) -> Iterator[Database]:
    with Database(proxy.url(databases.url()), models=[User], prepare=request.param) as one:
        one[User].bulk_create([user(number) for number in range(300)])
        yield one


@pytest.fixture
async def adb(proxy: Proxy, databases: Databases) -> AsyncIterator[AsyncDatabase]:
    # Not prepared, so that the proxy knows the end of a snapshot.
    async with AsyncDatabase(proxy.url(databases.url()), models=[User], prepare=False) as one:
        await one[User].bulk_create([user(number) for number in range(300)])
        yield one


async def in_a_transaction_of_a_task(db: AsyncDatabase, number: int) -> None:
    async with db.transaction() as tx:
        one = await tx[User].get(number)
        one.visits += 1
        await tx[User].save(one)


def in_a_transaction(db: Database, number: int) -> None:
    with db.transaction() as tx:
        one = tx[User].get(number)
        one.visits += 1
        tx[User].save(one)


def add_visit(record: User) -> None:
    record.visits += 1


VERBS: dict[str, tuple[int, Callable[[Any, int], Any]]] = {
    "get": (1, lambda db, n: db[User].get(n)),
    "get of a key that is absent": (1, lambda db, n: db[User].get_or_none(5000 + n)),
    "unique get": (1, lambda db, n: db[User].get(email=f"{n}@example.org")),
    "in_bulk": (1, lambda db, n: db[User].in_bulk([n, n + 1, n + 2])),
    "list of 20 through an index": (1, lambda db, n: db[User].filter(city="Ulm")[:20].to_list()),
    "page of 20 through an index": (1, lambda db, n: db[User].filter(city="Ulm").page(size=20)),
    "in of 3 values": (1, lambda db, n: db[User].filter(city__in=CITIES[:3])[:20].to_list()),
    "page of in of 3 values": (1, lambda db, n: db[User].filter(city__in=CITIES[:3]).page(size=20)),
    "count": (1, lambda db, n: db[User].filter(city="Ulm").count()),
    "exists": (1, lambda db, n: db[User].filter(city="Ulm").exists()),
    "insert": (1, lambda db, n: db[User].insert(user(1000 + n))),
    "create": (1, lambda db, n: db[User].create(**user(2000 + n).model_dump())),
    "patch": (2, lambda db, n: db[User].patch(n, visits=5)),
    "patch of an indexed field": (2, lambda db, n: db[User].patch(n, city="Hof")),
    "mutate": (2, lambda db, n: db[User].mutate(n, add_visit)),
    "remove": (2, lambda db, n: db[User].remove(n)),
    "transaction of a get and a save": (3, in_a_transaction),
    "bulk_create of 100": (1, lambda db, n: db[User].bulk_create([user(10_000 + 100 * n + i) for i in range(100)])),
    "kv.get": (1, lambda db, n: db.kv.get(("k", n))),
    "kv.set": (1, lambda db, n: db.kv.set(("k", n), 1)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_costs_no_more_round_trips(db: Database, proxy: Proxy, verb: str):
    most, call = VERBS[verb]
    call(db, 10)  # the first call reads the header, prepares its statements and learns what to predict
    call(db, 20)
    before = proxy.round_trips
    call(db, 30)
    assert proxy.round_trips - before == most


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_costs_a_task_no_more_round_trips(adb: AsyncDatabase, proxy: Proxy, verb: str):
    most, call = VERBS[verb]
    if call is in_a_transaction:
        call = in_a_transaction_of_a_task
    await call(adb, 10)
    await call(adb, 20)
    before = proxy.round_trips
    await call(adb, 30)
    assert proxy.round_trips - before == most


@pytest.mark.parametrize("deadline", [None, 1_005, 999_999])
def test_the_row_that_is_read_while_a_snapshot_begins_is_that_of_its_state(
    proxy: Proxy, databases: Databases, deadline: int | None
):
    """The second snapshot reads the key that the first one has read first."""
    now = [1_000]
    engine = PostgresEngine(proxy.url(databases.url()), clock=lambda: now[0])
    first = commit(engine, put(b"k", b"1", expire_at=deadline), put(b"l"))
    with engine.snapshot() as snapshot:
        snapshot.read([point(b"k")])
    now[0] = 1_010
    with engine.snapshot() as snapshot:
        commit(engine, put(b"k", b"2"), Delete(b"l"))
        before = proxy.round_trips
        known, stored = snapshot.read([point(b"k")]), snapshot.read([point(b"k")], include_expired=True)
        assert proxy.round_trips == before
        assert known == snapshot.read([point(b"k")], follow=lambda found: [])
        assert [row.value for row in known.ranges[0]] == ([] if deadline == 1_005 else [b"1"])
        assert [(row.value, row.versionstamp, row.expire_at) for row in stored.ranges[0]] == [(b"1", first, deadline)]
        assert [row.key for row in snapshot.read([ReadRange(b"a", b"z")]).ranges[0]][-1] == b"l"
        assert snapshot.read([point(b"absent")]).ranges == [[]]
    engine.close()
