"""Models, queues, locks, watches, builds and repairs in etcd, in both facades: one node, and three."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, F, KvU64, OperationTooLargeError, UniqueViolationError
from kvmodels.core.operations import AtomicWrite, Delete, ReadRange
from tests.connect.models import Person, PersonByAge, people
from tests.worlds import in_test_servers

pytestmark = pytest.mark.parametrize("server", ["etcd", *in_test_servers("etcd34x3")])


@pytest.fixture
def url(url_of: Callable[..., str], server: str) -> str:
    return url_of(server)


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with opened(url) as database:
        yield database
        assert database.check().ok


def opened(url: str, model: type = Person) -> Database:
    return Database(url, models=[model], allow_lossy_server=True, busy_timeout=60)


def test_records_queries_bulk_writes_and_transactions(db: Database, url: str):
    repository = db[Person]
    for first in range(0, 200, 10):
        repository.bulk_create(people(range(first, first + 10)))
    with pytest.raises(UniqueViolationError):
        repository.create(id=999, email="3@x", city="Oslo")
    assert repository.get(email="4@x").id == 4
    assert [one.id for one in repository.filter(city="Rome").order_by("-id")[:3]] == [199, 196, 193]
    assert repository.filter(city="Oslo").update(age=F("age") + 100).written == 67
    assert repository.filter(city="Bern").delete().written == 66
    with db.transaction() as tx:
        one, other = tx[Person].get(1), tx[Person].get(3)
        one.age, other.age = other.age, one.age
        tx[Person].save(one)
        tx[Person].save(other)
    with opened(url) as again:
        assert (again[Person].get(1).age, again[Person].get(3).age) == (103, 1)
        assert (again[Person].count(), again[Person].filter(city="Rome").count()) == (134, 67)


def test_an_operation_that_is_too_large_is_refused_before_anything_is_written(db: Database):
    with pytest.raises(OperationTooLargeError) as caught, db.transaction() as tx:
        for person in people(range(40)):
            tx[Person].insert(person)
    assert (caught.value.limit, caught.value.limits) == ("max_checks", "ETCD")
    assert db[Person].count() == 0


def test_an_index_is_built_beside_a_writer_and_repaired(db: Database, url: str):
    for first in range(0, 60, 10):
        db[Person].bulk_create(people(range(first, first + 10)))
    with opened(url, PersonByAge) as newer:
        newer.build_indexes()
        newer[PersonByAge].create(id=100, email="100@x", city="Rome", age=100)
        rome = newer[PersonByAge].filter(city="Rome", age__gte=50)
        assert [one.id for one in rome.order_by("age")] == [52, 55, 58, 100]
        engine = newer._engine
        rows: Any = engine.read([ReadRange(b"\0", b"\xff")])
        entry = next(row.key for row in rows.ranges[0] if row.key.startswith(b"\x02people_by_city\x00"))
        engine.commit(AtomicWrite((), (Delete(entry),)))
        assert [one.kind for one in newer.check().findings] == ["missing"]
        newer.check(repair=True)
        assert newer.check().ok
        newer[PersonByAge].remove(100)
    with opened(url, PersonByAge) as again:
        assert again.check().ok


def test_queues_locks_counters_and_watches_of_another_handle(db: Database, url: str):
    done, taken = threading.Event(), list[Any]()

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
    with opened(url) as other:
        with db.kv.lock("report", ttl=30) as lock:
            assert lock.fencing_token > 0
            assert not other.kv.lock("report", ttl=30, wait=0).acquire()
        for _ in range(3):
            assert db.kv.atomic().sum(("n",), 2).commit()
        watch = db.kv.watch([("n",)])
        assert next(watch)[0].value == KvU64(6)
        other.kv.set(("n",), KvU64(9))
        assert next(watch)[0].value == KvU64(9)
        watch.close()


async def test_tasks_write_and_read_side_by_side(url: str, server: str):
    async with AsyncDatabase(url, models=[Person], allow_lossy_server=True, busy_timeout=60) as db:
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


def older(person: Person) -> None:
    person.age += 1
