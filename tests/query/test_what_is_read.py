"""How many rows a query reads: a function of what is asked for, not of how much is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import Database, NoUsableIndexError, Q, UniqueConstraint  # noqa: F401
from tests.passing_engine import Meter
from tests.query.engines import WatchedEngine, watched
from tests.query.models import Mixed, Person, people

SMALL, LARGE = 300, 3_000


def filled(count: int, **options: Any) -> tuple[Database, WatchedEngine]:
    db, engine = watched([Person, Mixed], **options)
    db[Person].bulk_create([Person(**fields) for fields in people(count)])
    engine.meter.reset()
    return db, engine


@pytest.fixture(scope="module")
def stores() -> list[tuple[Database, WatchedEngine]]:
    return [filled(SMALL), filled(LARGE)]


Ask = Callable[[Any], Any]


@pytest.mark.fast_kinds
@pytest.mark.parametrize(
    ("ask", "reads", "rows", "followed"),
    [
        (lambda q: q.get(7), 1, 1, 0),
        (lambda q: q.get(email="p000007@x.org"), 1, 1, 1),
        (lambda q: q.get_or_none(email="nobody"), 1, 0, 0),
        (lambda q: q.in_bulk([1, 2, 3, 10**9]), 1, 3, 0),
        (lambda q: q.filter(id=7).to_list(), 1, 1, 0),
        (lambda q: q.filter(color="red").page(size=20), 1, 21, 21),
        (lambda q: q.all().page(size=20), 1, 21, 0),
        (lambda q: q.filter(color="red").first(), 1, 1, 1),
        (lambda q: q.order_by("-age").first(), 1, 1, 1),
        (lambda q: q.filter(color="red").last(), 1, 1, 1),
        (lambda q: q.filter(color="red").exists(), 1, 0, 0),
        (lambda q: q.all().exists(), 1, 0, 0),
        (lambda q: q.filter(color="red")[:10].to_list(), 1, 10, 10),
        (lambda q: q.filter(color="red")[:10].count(), 1, 0, 0),
        (lambda q: q.filter(color="red")[30:40].to_list(), 2, 40, 10),
        (lambda q: q.filter(color="red")[30], 2, 31, 1),
        (lambda q: q.filter(email__in=[f"p{n:06}@x.org" for n in range(50)]).to_list(), 1, 50, 50),
        (lambda q: q.filter(id__in=range(100)).to_list(), 1, 100, 0),
        (lambda q: q.filter(age=3, color="red").explain(), 0, 0, 0),
        (lambda q: repr(q.filter(age=3)), 0, 0, 0),
        (lambda q: q.filter(id__in=[]).to_list(), 0, 0, 0),
    ],
)
def test_what_is_read_does_not_depend_on_the_size_of_the_collection(
    stores: list[tuple[Database, WatchedEngine]], ask: Ask, reads: int, rows: int, followed: int
):
    found = []
    for db, engine in stores:
        engine.meter.reset()
        ask(db[Person])
        meter = engine.meter
        assert (meter.reads, meter.rows, meter.followed) == (reads, rows, followed)
        found.append(meter.bytes)
    assert found[0] == found[1] or "last" in str(ask) or rows == 1


@pytest.mark.fast_kinds
def test_a_later_page_reads_as_much_as_the_first(stores: list[tuple[Database, WatchedEngine]]):
    for db, engine in stores:
        asked = db[Person].filter(color="red")
        cursor = None
        for _ in range(4):
            engine.meter.reset()
            cursor = asked.page(size=20, after=cursor).next_cursor
            assert engine.meter == Meter(reads=1, rows=21, followed=21, bytes=engine.meter.bytes)


@pytest.mark.fast_kinds
def test_count_is_one_request_that_reads_no_row(stores: list[tuple[Database, WatchedEngine]]):
    db, engine = stores[1]
    for asked, number in (
        (db[Person].filter(color="red"), LARGE // 3),
        (db[Person].all(), LARGE),
        (db[Person].filter(color="red")[3:], LARGE // 3 - 3),
        (db[Person].filter(color="red")[3:10], 7),
        (db[Person].filter(color="red")[LARGE:], 0),
        (db[Person].filter(color="red").reverse()[:10], 10),
        (db[Person].filter(color__in=["red", "blue"]), LARGE // 3 * 2),
    ):
        engine.meter.reset()
        assert asked.count() == number
        assert (engine.meter.reads, engine.meter.rows, engine.meter.followed) == (1, 0, 0)
        engine.meter.reset()
        assert asked.exists() is (number > 0)
        assert (engine.meter.reads, engine.meter.rows, engine.meter.followed) == (1, 0, 0)


def test_a_count_in_a_transaction_sees_the_rows(stores: list[tuple[Database, WatchedEngine]]):
    db, engine = stores[1]
    with db.transaction() as tx:
        engine.meter.reset()
        assert tx[Person].filter(color="red").count() == LARGE // 3
        assert engine.meter.counted == 0


def test_a_query_streams_in_batches_that_grow(stores: list[tuple[Database, WatchedEngine]]):
    db, engine = stores[1]
    engine.meter.reset()
    iterator = iter(db[Person].all())
    next(iterator)
    assert engine.meter.rows == 101
    sizes: list[int] = []
    for _ in iterator:
        if engine.meter.rows != sum(sizes):
            sizes.append(engine.meter.rows - sum(sizes))
    assert sizes[:4] == [101, 201, 401, 501]
    assert max(sizes) == 501


def test_empty_ranges_of_a_long_list_are_read_in_few_reads():
    db, engine = filled(SMALL)
    asked = db[Person].filter(color__in=[f"no such color {n}" for n in range(1_000)] + ["red", "zzz"])
    assert asked.count() == SMALL // 3
    assert engine.meter.reads < 40
    engine.meter.reset()
    assert len(asked.to_list()) == SMALL // 3
    assert engine.meter.reads < 600


def test_P9_a_list_of_any_length_is_answered_and_a_filter_without_an_index_is_refused():
    db, engine = filled(SMALL, max_ranges=10)
    keys = list(range(0, SMALL, 2))
    assert [person.id for person in db[Person].filter(id__in=keys)] == keys
    emails = [f"p{number:06}@x.org" for number in keys]
    assert [person.id for person in db[Person].filter(email__in=emails)] == keys
    assert list(db[Person].in_bulk(keys)) == keys
    assert db[Person].filter(email__in=emails).count() == len(keys)
    engine.meter.reset()
    with pytest.raises(NoUsableIndexError):
        db[Person].filter(score=1.0).to_list()
    assert engine.meter.rows == 0


def test_review_10_a_copy_is_read_in_place_of_its_record_and_can_be_saved():
    db, engine = watched([Mixed])
    for number in range(50):
        db[Mixed].create(left=number, right="x", b="b", c=number % 5, e=number)
    engine.meter.reset()
    found = db[Mixed].filter(b="b", c=3).to_list()
    assert [row.left for row in found] == list(range(3, 50, 5))
    assert (engine.meter.rows, engine.meter.followed) == (10, 0)
    saved = found[0]
    saved.free = 9
    db[Mixed].save(saved)
    assert db[Mixed].get(left=3, right="x").free == 9
    engine.meter.reset()
    assert db[Mixed].filter(e=7, c=2, left=7).first() is not None
    assert (engine.meter.rows, engine.meter.followed) in {(1, 0), (1, 1)}


ESTIMATED = [
    *(lambda q, a=a, b=b: q.filter(color="red")[a:b] for a, b in ((0, 1), (1, 2), (3, 90), (499, 505), (0, 501))),
    *(lambda q, a=a, b=b: q.all()[a:b] for a, b in ((1, 2), (500, 1_003), (2_999, 3_005), (3_000, 3_001))),
    *(lambda q, n=n: q.filter(id__in=range(n)) for n in (1, 101, 500, 501, 1_200)),
    *(lambda q, n=n: q.filter(email__in=[f"p{at:06}@x.org" for at in range(n)], score__gte=0) for n in (100, 501)),
    *(lambda q, n=n: q.filter(Q(email__in=[f"p{at:06}@x.org" for at in range(n)]) | Q(id=3)) for n in (99, 101, 501)),
]


@pytest.mark.parametrize("ask", ESTIMATED)
def test_no_more_is_read_than_was_estimated(stores: list[tuple[Database, WatchedEngine]], ask: Ask):
    for db, engine in stores:
        asked = ask(db[Person])
        estimate = asked.explain().estimated_reads
        engine.meter.reset()
        asked.to_list()
        assert engine.meter.rows + engine.meter.followed <= estimate
        analysis = asked.explain(analyze=True).analysis
        assert (analysis.rows, analysis.reads) == (engine.meter.rows // 2, analysis.rows + analysis.records)
