"""``db.stats()``: rows and bytes by collection and index, compared with a count by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodels import AsyncDatabase, Database, InvalidArgumentError, SchemaProgress, StoreStats
from tests.describe.models import MODELS, Author, Book, Shelf
from tests.worlds import in_test_servers

GENRES = ("essay", "novel", "poetry")


def fill(db: Database, books: int) -> None:
    db[Author].bulk_create([Author(id=n, email=f"{n}@example.org") for n in range(3)])
    db[Book].bulk_create(
        [Book(id=n, author_id=n % 3, title=f"{n:04}", genre=GENRES[n % 3], pages=n) for n in range(books)]
    )
    db[Shelf].create(room="A", number=1, expire_in=3600)
    db.kv.set(("settings", "dark"), True)
    db.kv.set(("session",), "x", expire_in=60)
    db.kv.namespace("plugin").set("colour", "red")
    db.kv.enqueue("now")
    db.kv.enqueue("later", delay=60)


@pytest.fixture(params=["memory", "sqlite", "lmdb", *in_test_servers("postgres")])
def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


def by_hand(db: Database, prefix: tuple[object, ...]) -> int:
    return db.kv.count(prefix)  # type: ignore[arg-type]


def rows(stats: StoreStats) -> dict[str, int]:
    return {f"{one.name}.{index.name}": index.entries.rows for one in stats.collections for index in one.indexes} | {
        one.name: one.records.rows for one in stats.collections
    }


@pytest.mark.servers
def test_an_exact_run_and_an_estimate_count_the_same_rows(url: str):
    with Database(url, models=MODELS) as db, Database(url) as bare:
        fill(db, 450)
        with db.kv.lock("nightly"):
            exact, estimate = bare.stats(exact=True), bare.stats()
        assert rows(exact) == rows(estimate)
        assert rows(exact)["books"] == 450
        assert rows(exact)["books.genre_price"] == 450
        assert rows(exact)["books.essays"] == 150
        assert rows(exact)["books.tags"] == 0
        assert rows(exact)["books.genre_totals"] == by_hand(bare, ("__kvmodels__", "counter"))
        assert (exact.queue_ready, exact.queue_later, exact.locks_held, exact.lock_waiters) == (1, 1, 1, 0)
        assert (exact.namespaces.rows, exact.other.rows, exact.other.expiring) == (1, 2, 1)
        everything = sum(one.total.rows for one in exact.collections) + exact.namespaces.rows + exact.other.rows
        assert everything + exact.library.rows + 2 == by_hand(bare, ())
        assert exact.exact
        assert not estimate.exact
        books, guessed = exact.collections[1].records, estimate.collections[1].records
        assert abs(guessed.bytes - books.bytes) < books.bytes / 20
        assert "books: 450 rows, about " in str(estimate)
        assert [one.records.expiring for one in exact.collections] == [0, 0, 1]
        if url.startswith("postgresql"):
            assert {"kvmodels.kv", "kvmodels.commits"} <= exact.files.keys()
            assert exact.files["kvmodels.kv"] > exact.collections[1].total.bytes
        else:
            assert all(Path(path).is_file() for path in exact.files)
            assert bool(exact.files) is not url.startswith("memory")


def test_a_small_store_needs_no_estimate():
    with Database("memory://", models=MODELS) as db:
        fill(db, 5)
        assert db.stats() == db.stats(exact=True)
        assert db.stats().exact


def test_progress_and_throttle_are_those_of_a_schema_change():
    with Database("memory://", models=MODELS) as db:
        fill(db, 600)
        seen: list[SchemaProgress] = []
        db.stats(exact=True, progress=seen.append)
        assert {one.step for one in seen} == {"stats"}
        records = [one for one in seen if (one.collection, one.index) == ("books", None)]
        assert [(one.scanned, one.total) for one in records] == [(500, 600), (600, 600)]

        def stop(progress: SchemaProgress) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            db.stats(exact=True, progress=stop)
        with pytest.raises(InvalidArgumentError):
            db.stats(throttle=0)
        with pytest.raises(InvalidArgumentError):
            db.stats(exact="yes")  # type: ignore[call-overload]


async def test_the_asynchronous_database_counts_the_same():
    url = "memory://stats"
    with Database(url, models=MODELS) as db:
        fill(db, 5)
        async with AsyncDatabase(url) as other:
            assert await other.stats(exact=True) == db.stats(exact=True)
            assert await other.explain_key(("books", 1)) == db.explain_key(("books", 1))


def test_an_empty_store_has_no_rows():
    with Database("memory://") as db:
        assert str(db.stats()).splitlines()[0] == "queue: 0 ready, 0 later, 0 dead"
