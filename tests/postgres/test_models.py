"""Models on PostgreSQL: records, queries, transactions, an index build, a watch and the checks of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DoesNotExist,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    StaleObjectError,
    TransactionConflictError,
    UniqueViolationError,
)
from tests.postgres.databases import Databases
from tests.query.models import Person, people
from tests.query.test_pages import QUERIES, walk
from tests.transactions.bank import found, in_threads, opened
from tests.transactions.test_bank import require_balance
from tests.zoo import Account, Animal


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.url()


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, models=[Account, Animal]) as database:
        yield database
        assert database.check().ok


@pytest.fixture
async def adb(url: str) -> AsyncIterator[AsyncDatabase]:
    async with AsyncDatabase(url, models=[Account]) as database:
        yield database
        assert (await database.check()).ok


# Records


def test_records_are_made_changed_and_removed(db: Database, url: str):
    accounts = db[Account]
    one = accounts.create(id=1, email="one")
    accounts.create(id=2, color="blue")
    one.email = "first"
    accounts.save(one)
    accounts.patch(2, n=5)
    accounts.mutate(2, lambda record: setattr(record, "n", record.n + 1))
    assert accounts.get(email="first").id == 1
    assert accounts.get_or_none(email="one") is None
    assert accounts.remove(1)
    with Database(url, models=[Account]) as again:
        assert [(account.id, account.n) for account in again[Account]] == [(2, 6)]


def test_what_is_refused_changes_nothing(db: Database):
    accounts = db[Account]
    accounts.create(id=1, email="one")
    accounts.create(id=2, email="two")
    stale = accounts.get(2)
    accounts.patch(2, n=1)
    with pytest.raises(AlreadyExistsError):
        accounts.create(id=1)
    with pytest.raises(UniqueViolationError):
        accounts.patch(2, email="one")
    with pytest.raises(StaleObjectError):
        accounts.save(stale)
    with pytest.raises(DoesNotExist):
        accounts.get(3)
    assert [(account.id, account.email, account.n) for account in accounts] == [(1, "one", 0), (2, "two", 1)]


def test_every_kind_of_index_follows_its_records(db: Database):
    animals = db[Animal]
    for number in range(30):
        animals.create(
            park="east" if number % 2 else "west",
            number=number,
            chip=f"chip {number}",
            berth=f"berth {number}",
            tag=f"tag {number}",
            species="ibex" if number % 3 else "owl",
            diet="hay" if number % 3 else None,
            weight=number / 2,
            name=f"name {number}",
        )
    assert animals.filter(species="owl").count() == 10
    assert [animal.number for animal in animals.filter(species="owl").order_by("-weight")[:3]] == [27, 24, 21]
    assert animals.get(tag="tag 7").park == "east"
    assert animals.filter(species="owl").update(species="eagle").written == 10
    assert animals.filter(diet="hay").delete().written == 20
    assert sorted(animal.number for animal in animals.filter(species="eagle")) == list(range(0, 30, 3))


# Queries


@pytest.fixture(scope="module")
def both(postgres_server, worker_id) -> Iterator[tuple[Database, Database]]:
    databases = Databases(postgres_server, worker_id, __name__)
    with (
        Database(databases.url("queries"), models=[Person]) as server,
        Database("memory://", models=[Person]) as memory,
    ):
        for database in (server, memory):
            database[Person].bulk_create([Person(**fields) for fields in people(300)])
        yield server, memory


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_the_server_and_memory_answer_alike(both: tuple[Database, Database], number: int):
    server, memory = (QUERIES[number](database[Person]) for database in both)
    expected = memory.to_list()
    assert server.to_list() == list(server) == expected
    assert server.count() == len(expected)
    assert server.reverse().to_list() == expected[::-1]
    assert server[5:25].to_list() == expected[5:25]
    assert walk(server, 90) == expected


# Transactions


def test_a_transaction_is_one_commit_or_none(db: Database):
    accounts = db[Account]
    with db.transaction() as tx:
        tx[Account].create(id=1, email="one")
        tx[Account].create(id=2, email="two")
        assert tx[Account].get(email="two").id == 2
        assert accounts.count() == 0
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx[Account].patch(1, n=1 // 0)
    assert [(account.id, account.n) for account in accounts] == [(1, 0), (2, 0)]


def test_a_transaction_whose_reads_have_changed_is_refused(db: Database):
    db[Account].create(id=1)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        account = tx[Account].get(1)
        db[Account].patch(1, n=5)
        account.n += 1
        tx[Account].save(account)
    assert db[Account].get(1).n == 5


def test_eight_threads_move_money_and_the_sum_holds(url: str):
    with opened(url) as bank:
        found(bank)
        require_balance(bank, *in_threads(bank, range(8), 4))


# Asynchronous use


async def test_tasks_share_a_store(adb: AsyncDatabase):
    accounts = adb[Account]
    await asyncio.gather(*(accounts.create(id=number, email=f"{number}", color="blue") for number in range(20)))
    assert await accounts.filter(color="blue").count() == 20
    assert (await accounts.get(email="7")).id == 7

    @adb.transactional(retries=1_000)
    async def add_one(tx):
        account = await tx[Account].get(1)
        account.n += 1
        await tx[Account].save(account)

    await asyncio.gather(*(add_one() for _ in range(8)))
    assert (await accounts.get(1)).n == 8


async def test_a_watch_sees_the_commits_of_another_handle_by_polling(adb: AsyncDatabase, url: str):
    """Its URL is another one, so that it shares nothing with the watch but the server, as another process."""
    async with AsyncDatabase(f"{url}-other", models=[Account]) as other:
        async for (entry,) in adb.kv.watch([("k",)]):
            if entry.value == 1:
                break
            await other.kv.set(("k",), 1)


# Indexes that come later


class Plain(KvModel, collection="plants"):
    """A model before it has an index."""

    id: PrimaryKey[int]
    kind: str = Field(default="fern")


class Plant(KvModel, collection="plants"):
    """The same model with an index."""

    id: PrimaryKey[int]
    kind: Indexed[str] = Field(default="fern")


def test_an_index_is_built_for_records_that_are_there(url: str):
    with Database(url, models=[Plain]) as before:
        before[Plain].bulk_create(Plain(id=number, kind="moss" if number % 4 == 0 else "fern") for number in range(200))
    with Database(f"{url}-later", models=[Plant]) as after:
        after.build_indexes()
        assert after[Plant].filter(kind="moss").count() == 50
        assert after.check().ok
