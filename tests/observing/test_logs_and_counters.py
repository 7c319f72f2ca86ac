"""The observers of the library: the query log, the log of slow operations, and the counters."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import pytest

from kvmodels import (
    Database,
    FinishedOperation,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    OperationCounters,
    PrimaryKey,
    QueryLog,
    SlowLog,
    Unique,
    UnsupportedError,
)


class Author(KvModel, collection="authors"):
    name: PrimaryKey[str]
    country: Indexed[str]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    isbn: Unique[str]
    author: ForeignKey[str, Author]
    genre: str = "essay"
    price: float = 9.5

    class Meta:
        indexes = (Index("genre", "price"),)


SECRET = "secret"


def stocked(*observers: Any) -> Database:
    db = Database("memory://", models=[Author, Book])
    for observer in observers:
        db.add_observer(observer)
    return db


def use(db: Database) -> None:
    """Use many methods, with values that must not be logged."""
    db[Author].create(name=SECRET, country=SECRET)
    db[Book].create(id=1, isbn=SECRET, genre=SECRET, author=SECRET)
    db[Book].get(isbn=SECRET)
    db[Book].filter(genre=SECRET, price__range=(0, 10)).order_by("price").to_list()
    db[Book].filter(genre__in=[SECRET, "other"]).exclude(isbn=SECRET).count()
    db[Book].filter(Book.author.in_(db[Author].filter(country=SECRET))).to_list()
    db.kv.set((SECRET,), SECRET)
    with db.transaction() as tx:
        tx.kv.get((SECRET,))


def test_the_query_log_has_one_line_for_each_operation_and_no_values(caplog: pytest.LogCaptureFixture):
    seen: list[FinishedOperation] = []
    with caplog.at_level(logging.DEBUG, "kvmodels.query"), stocked(QueryLog(), seen.append) as db:
        use(db)
    lines = [record.getMessage() for record in caplog.records if record.name == "kvmodels.query"]
    assert len(lines) == len(seen)
    assert not [line for line in lines if SECRET in line or "\n" in line]
    assert re.fullmatch(r"get books: \d+\.\d{3} ms, 1 read of 2 rows through books\.isbn", lines[2])


def test_nothing_is_logged_above_its_level(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO), stocked(QueryLog()) as db:
        use(db)
    assert caplog.records == []


def test_the_text_of_an_operation_names_what_happened():
    one = FinishedOperation(
        "save", "books", reads=2, rows=3, commits=1, conflicts=1, waited=0.25, duration=0.5, error="E", code="KV1"
    )
    assert str(one) == (
        "save books: 500.000 ms, 2 reads of 3 rows, 1 commit, 1 conflict, waited 250.000 ms, failed with E [KV1]"
    )
    assert str(FinishedOperation("open", duration=0.001)) == "open: 1.000 ms"


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kvmodels.slow"]


def test_the_slow_log_shows_plans_without_operands(caplog: pytest.LogCaptureFixture):
    with stocked(SlowLog(0)) as db:
        use(db)
    lines = slow_lines(caplog)
    assert not [line for line in lines if SECRET in line]
    assert lines[3].splitlines()[1:] == [
        "Book: 1 range of index genre_price",
        "  reads only  genre = … and … <= price <= …",
        "  in order    price, id",
        "  reads       an entry and a record for each result",
    ]
    assert "genre in (…)" in lines[4]


def test_the_slow_log_shows_operands_on_request_and_quick_operations_never(caplog: pytest.LogCaptureFixture):
    with stocked(SlowLog(0, values=True), SlowLog(1000)) as db:
        db[Book].filter(genre=SECRET).to_list()
        with db.kv.lock("a"):
            pass
        next(db.kv.watch([("a",)]))
    lines = slow_lines(caplog)
    assert f"genre = '{SECRET}'" in lines[0]
    assert [line.partition(":")[0] for line in lines] == ["to_list books", "release"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None, True])
def test_a_wrong_threshold_is_refused(seconds):
    with pytest.raises(InvalidArgumentError, match="number of seconds"):
        SlowLog(seconds)


def test_metrics_count_operations_conflicts_and_uses_of_indexes():
    with stocked(OperationCounters()) as db:
        use(db)
        db[Book].mutate(1, lambda book: setattr(book, "price", 1))
        rivals = iter([True])

        def change(book: Book) -> None:
            if next(rivals, False):
                db[Book].mutate(1, lambda other: setattr(other, "price", 2))
            book.price += 1

        db[Book].mutate(1, change)
        with pytest.raises(Book.DoesNotExist):
            db[Book].get(9)
        metrics = db.metrics()
    verbs = {(one.collection, one.verb): one for one in metrics.verbs}
    assert verbs["books", "get"].count == 2
    assert verbs["books", "get"].failed == 1
    assert verbs["books", "mutate"].seconds >= verbs["books", "mutate"].longest > 0
    assert verbs[None, "transaction"].count == 1
    books = next(one for one in metrics.collections if one.collection == "books")
    assert (books.commits, books.conflicts, books.retries) == (4, 1, 1)
    assert {(one.collection, one.index): one.uses for one in metrics.indexes} == {
        ("authors", "country"): 1,
        ("books", "author"): 1,
        ("books", "genre_price"): 2,
        ("books", "isbn"): 1,
    }
    assert metrics == db._core.metrics(db._opening.reporters)
    assert re.fullmatch(
        r"\d+ operations, 1 failed; \d+ reads, \d+ commits, \d+ conflicts; 4 of 4 indexes used", str(metrics)
    )


def test_metrics_without_counters_are_refused():
    with stocked(QueryLog()) as db, pytest.raises(UnsupportedError, match="not counted") as caught:
        db.metrics()
    assert "OperationCounters()" in str(caught.value)


def test_counters_lose_no_operation_of_any_thread():
    with stocked(OperationCounters()) as db:
        threads = [threading.Thread(target=lambda: [db.kv.get(("a",)) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(one.verb, one.count) for one in db.metrics().verbs] == [("get", 800)]
