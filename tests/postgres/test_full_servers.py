"""A server without a connection left, or that starts: calls share what there is, commits have their own, all wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey
from kvmodels.errors import EngineTimeoutError, KvModelsError
from tests.crowd import until
from tests.postgres.databases import Databases
from tests.postgres.server import own_server

LIMIT = 4
THREADS = 16
ROUNDS = 10
TASKS = 100

pytestmark = pytest.mark.servers


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    text: Indexed[str]
    hits: int = 0


@contextmanager
def role(databases: Databases, name: str, limit: int) -> Iterator[str]:
    """Yield the URL of a database for a role that may open so many connections."""
    url = databases.url()
    with psycopg.connect(url, autocommit=True) as admin:
        (database,) = admin.execute("SELECT quote_ident(current_database())").fetchone() or ("",)
        admin.execute(
            f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {limit}; GRANT ALL ON DATABASE {database} TO {name}".encode()
        )
        try:
            yield url.replace("postgres@", f"{name}@")
        finally:
            query = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{name}'".encode()
            until(lambda: admin.execute(query).fetchone() == (0,))
            admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def few(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    limit: int = getattr(request, "param", LIMIT)
    with role(databases, f"few_{limit}", limit) as url:
        yield url


def work(db: Database, number: int, together: threading.Barrier, failed: list[KvModelsError]) -> None:
    """Read, write and run transactions, as a worker of a web server does."""
    pages = db[Page]
    together.wait()
    for at in range(ROUNDS):
        try:
            pages.patch(number, text=f"{at}")
            assert pages.get(number).text == f"{at}"
            assert len(list(pages.filter(text=f"{at}")[:200])) <= THREADS
            with db.transaction() as tx:
                page = tx[Page].get(number)
                page.hits += 1
                tx[Page].save(page)
        except KvModelsError as error:
            failed.append(error)


def test_threads_share_the_connections_of_a_full_server(few: str):
    with Database(few, models=[Page], schema="few", busy_timeout=60) as db:
        db[Page].bulk_create([Page(id=number, text="") for number in range(THREADS)])
        failed: list[KvModelsError] = []
        together = threading.Barrier(THREADS)
        threads = [threading.Thread(target=work, args=(db, at, together, failed)) for at in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert sum(page.hits for page in db[Page].all()) == THREADS * ROUNDS


@pytest.mark.parametrize("few", [5], indirect=True)
async def test_tasks_share_the_connections_of_a_full_server(few: str):
    async with AsyncDatabase(few, models=[Page], schema="few", busy_timeout=60) as db:
        pages = db[Page]
        await pages.bulk_create([Page(id=number, text="") for number in range(TASKS)])

        async def visit(number: int) -> None:
            assert (await pages.get(number)).hits == 0
            assert len([page async for page in pages.filter(text="")[:200]]) <= TASKS
            async with db.transaction() as tx:
                page = await tx[Page].get(number)
                page.hits += 1
                await tx[Page].save(page)
            await pages.patch(number, text="visited")

        await asyncio.gather(*(visit(number) for number in range(TASKS)))
        assert await pages.filter(text="visited").count() == TASKS
        assert sum([page.hits async for page in pages.all()]) == TASKS


@pytest.mark.parametrize("few", [3], indirect=True)
def test_transactions_cannot_take_the_connection_that_their_commits_need(few: str, databases: Databases):
    with Database(few, models=[Page], schema="few", busy_timeout=60) as db, databases.admin() as admin:
        db[Page].bulk_create([Page(id=number, text="") for number in range(4)])
        admin.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'few_3'")
        pair = threading.Barrier(2)

        def change(number: int) -> None:
            with db.transaction() as tx:
                page = tx[Page].get(number)
                pair.wait(60)
                page.hits += 1
                tx[Page].save(page)

        threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [page.hits for page in db[Page].all()] == [1] * 4


@pytest.mark.parametrize("few", [2], indirect=True)
def test_a_full_server_is_told_apart_from_one_that_is_not_there(few: str):
    with Database(few, models=[Page], schema="few", busy_timeout=0.2) as db:
        db[Page].create(id=1, text="alone")
        with db.transaction() as tx:
            assert tx[Page].get(1).text == "alone"
            with pytest.raises(EngineTimeoutError, match="takes no connections") as caught:
                db[Page].get(1)
        assert caught.value.reason == "53300"
        assert "CONNECTION LIMIT" in str(caught.value)
        assert db[Page].get(1).text == "alone"


def test_a_server_that_starts_is_waited_for():
    with own_server("postgres", start=False, fsync="off") as server:
        opened: list[int] = []

        def use() -> None:
            with Database(server.url, models=[Page], busy_timeout=60) as db:
                db[Page].create(id=1, text="waited")
                server.stop()
                restart = threading.Thread(target=server.start, args=(server.users,))
                restart.start()
                opened.append(db[Page].count())
                restart.join()

        thread = threading.Thread(target=use)
        thread.start()
        server.start(server.users)
        thread.join()
        assert opened == [1]
