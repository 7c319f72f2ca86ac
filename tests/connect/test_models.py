"""Models, queues, locks, watches, builds and repairs over KV Connect, with 10 checks and with 100, in both facades."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    EngineError,
    F,
    KvU64,
    UniqueViolationError,
)
from kvmodels.core.operations import AtomicWrite, Delete, ReadRange
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.models import Person, PersonByAge, people
from tests.connect.own_server import OwnServer
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer


@pytest.fixture(params=[10, 100, "own"])
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedServer | OwnServer]:
    """A server with so many checks, which names those that failed or does not; and that of this library."""
    if request.param == "own":
        with OwnServer(f"memory://{request.node.nodeid}") as own:
            yield own
        return
    with ScriptedServer(MemoryEngine()) as scripted:
        scripted.max_checks, scripted.names_failed_checks = request.param, request.param == 100
        yield scripted


@pytest.fixture
def db(server: ScriptedServer | OwnServer) -> Iterator[Database]:
    with Database(server.url, models=[Person], access_token=ACCESS_TOKEN) as opened:
        yield opened


def test_records_queries_bulk_writes_and_transactions(db):
    repository = db[Person]
    for person in people(range(30)):
        repository.insert(person)
    with pytest.raises(UniqueViolationError):
        repository.create(id=99, email="3@x", city="Oslo")
    assert repository.get(email="4@x").id == 4
    assert [one.id for one in repository.filter(city="Rome").order_by("-id")[:3]] == [28, 25, 22]
    assert repository.filter(city="Oslo").update(age=F("age") + 100).written == 10
    assert repository.filter(city="Bern").delete().written == 10
    moved = repository.get(0)
    moved.email, moved.city = "new@x", "Rome"
    repository.save(moved)
    with db.transaction() as tx:
        first, second = tx[Person].get(1), tx[Person].get(3)
        first.age, second.age = second.age, first.age
        tx[Person].save(first)
        tx[Person].save(second)
    assert (repository.get(1).age, repository.get(3).age) == (103, 1)
    assert (repository.count(), repository.filter(city="Rome").count()) == (20, 11)
    assert repository.get_or_none(email="0@x") is None
    assert db.check().ok


def test_indexes_are_built_over_stored_records_beside_a_writer_and_repaired(db, server):
    db[Person].bulk_create(people(range(4)))
    for first in range(4, 40, 4):
        db[Person].bulk_create(people(range(first, first + 4)))
    with Database(server.url, models=[PersonByAge], access_token=ACCESS_TOKEN) as newer:
        newer.build_indexes()
        newer[PersonByAge].create(id=40, email="40@x", city="Rome", age=40)
        rome = newer[PersonByAge].filter(city="Rome", age__gte=30)
        assert [one.id for one in rome.order_by("age")] == [31, 34, 37, 40]
        assert newer.check().ok
    rows = server.engine.read([ReadRange(b"\0", b"\xff")]).ranges[0]
    entry = next(row.key for row in rows if row.key.startswith(b"\x02people_by_city\x00"))
    server.engine.commit(AtomicWrite((), (Delete(entry),)))
    with Database(server.url, models=[PersonByAge], access_token=ACCESS_TOKEN) as newer:
        assert [one.kind for one in newer.check().findings] == ["missing"]
        newer.check(repair=True)
        assert newer.check().ok


def test_queues_locks_watches_and_counters(db):
    done = threading.Event()
    taken: list[Any] = []

    def handler(message: Any) -> None:
        taken.append(message)
        if len(taken) == 3:
            done.set()

    for at in range(3):
        db.kv.enqueue({"number": at})
    listener = db.kv.listen(handler)
    assert done.wait(60)
    listener.stop()
    assert sorted(one["number"] for one in taken) == [0, 1, 2]
    with db.kv.lock("report", ttl=30) as lock, pytest.raises(Exception, match="lock"):
        assert lock.fencing_token > 0
        with db.kv.lock("report", ttl=30, timeout=0.2):
            pass
    for _ in range(3):
        assert db.kv.atomic().sum(("n",), 2).commit()
    assert db.kv.get(("n",)).value == KvU64(6)
    watch = db.kv.watch([("n",)])
    assert next(watch)[0].value == KvU64(6)
    db.kv.set(("n",), KvU64(9))
    assert next(watch)[0].value == KvU64(9)
    watch.close()


async def test_the_asynchronous_facade_writes_and_reads_side_by_side(server):
    async with AsyncDatabase(server.url, models=[Person], access_token=ACCESS_TOKEN) as db:
        await asyncio.gather(*(db[Person].insert(person) for person in people(range(30))))
        await asyncio.gather(*(db[Person].mutate(n % 3, older) for n in range(12)))
        ages = [one.age async for one in db[Person].filter(id__in=[0, 1, 2]).order_by("id")]
        assert ages == [4, 5, 6]
        async with db.transaction() as tx:
            one = await tx[Person].get(5)
            one.city = "Kyiv"
            await tx[Person].save(one)
        assert await db[Person].filter(city="Kyiv").count() == 1
        assert (await db.check()).ok


def test_a_token_without_the_right_to_write_models_is_told_how_to_get_it():
    with OwnServer("memory://without the right", model_writes=False) as server:
        with pytest.raises(EngineError) as caught:
            Database(server.url, models=[Person], access_token=ACCESS_TOKEN)
        assert caught.value.message == "the server does not let this token write models"
        assert "--allow-model-writes" in str(caught.value.hint)
        with Database(server.url, access_token=ACCESS_TOKEN) as db:
            db.kv.set(("a",), 1)
            assert db.kv.get(("a",)).value == 1


def older(person: Person) -> None:
    person.age += 1
