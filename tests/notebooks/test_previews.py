"""A query in a notebook shows its first results within a bound of rows, or says why it does not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Count,
    Database,
    ForeignKey,
    GeoIndex,
    GeoPoint,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    QuerySet,
    SearchIndex,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.notebooks.outputs import Output
from tests.passing_engine import CountingEngine

RECORDS = 600
MOST_ROWS = 1_010
"""Of any preview: groups read 500 entries and their records at once, all others four batches of 50."""


class Range(KvModel, collection="ranges"):
    name: PrimaryKey[str]


class Peak(KvModel, collection="peaks"):
    id: PrimaryKey[int]
    country: Indexed[str]
    height: int
    range: ForeignKey[str, Range]
    tags: MultiIndexed[list[str]]
    place: GeoPoint
    text: str = ""

    class Meta:
        indexes = (
            Index("height"),
            AggregateIndex("country", name="by_country"),
            GeoIndex("place"),
            SearchIndex("text", name="words"),
        )


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Database, CountingEngine]]:
    engine = CountingEngine(MemoryEngine())
    db = Database.from_engine(engine, DatabaseCore([Range, Peak]))
    db[Range].bulk_create([Range(name="Alps"), Range(name="Jura")])
    db[Peak].bulk_create(
        [
            Peak(
                id=number,
                country=("CH", "IT", "FR")[number % 3],
                height=number,
                range="Alps",
                tags=["snow", "rock"],
                place=GeoPoint(lat=46 + number / 10_000, lon=7),
                text="snow on rock",
            )
            for number in range(RECORDS)
        ],
        results=False,
    )
    yield db, engine
    db.close()


READ: dict[str, Callable[[Database], Any]] = {
    "all": lambda db: db[Peak],
    "one index": lambda db: db[Peak].filter(country="CH"),
    "tested": lambda db: db[Peak].filter(country="CH", height__gte=597),
    "tested, all pass": lambda db: db[Peak].filter(country="CH").exclude(text="x"),
    "intersection": lambda db: db[Peak].filter(country="CH", tags__contains="snow", height__gt=3),
    "merge": lambda db: db[Peak].filter(country__in=["CH", "IT"]).order_by("pk"),
    "or": lambda db: db[Peak].filter(Q(country="CH") | Q(height__gt=400)),
    "several values": lambda db: db[Peak].filter(tags__contains_any=["snow", "rock"]),
    "keys": lambda db: db[Peak].filter(pk__in=range(590)),
    "slice": lambda db: db[Peak].order_by("-height")[5:500],
    "values": lambda db: db[Peak].filter(country="CH").values("id", "range__name"),
    "tuples": lambda db: db[Peak].values_list("country", "height"),
    "distinct": lambda db: db[Peak].values_list("country", flat=True).distinct(),
    "many distinct": lambda db: db[Peak].values_list("height", flat=True).distinct(),
    "related": lambda db: db[Peak].filter(country="CH").with_related(Peak.range),
    "target": lambda db: db[Peak].filter(country="CH", range__name="Alps"),
    "counters": lambda db: db[Peak].group_by("country").aggregate(Count()),
    "groups of an index": lambda db: db[Peak].group_by("height").aggregate(Count()),
    "rows of groups": lambda db: db[Peak].group_by("country").aggregate(n=Count()).having(n__gte=2)[:2],
    "nothing": lambda db: db[Peak].filter(pk__in=[]),
}
UNREAD: dict[str, tuple[Callable[[Database], Any], str]] = {
    "no index": (lambda db: db[Peak].filter(text="x"), "no index serves this query"),
    "scan": (lambda db: db[Peak].filter(text="x").allow_scan(), "which scans or sorts"),
    "sort": (lambda db: db[Peak].order_by("text").sort_in_memory(), "sorted in memory"),
    "held": (lambda db: db[Peak].values("text").distinct().sort_in_memory(), "held in memory"),
    "subquery": (
        lambda db: db[Peak].filter(Peak.range.in_(db[Range].filter(pk="Alps"))),
        "needs reads of its own",
    ),
    "counts": (lambda db: db[Range].with_counts(peaks=Count(Peak.range)), "with_counts()"),
    "nearest": (lambda db: db[Peak].nearest("place", GeoPoint(lat=46, lon=7)), "many reads"),
    "search": (lambda db: db[Peak].search("words", "snow"), "many reads"),
    "many scans": (lambda db: db[Peak].filter(height__in=range(20)).order_by("pk"), "combines 20 scans"),
    "groups in memory": (lambda db: db[Peak].sort_in_memory().group_by("text").aggregate(Count()), "held in memory"),
    "rows in order": (
        lambda db: db[Peak].group_by("country").aggregate(n=Count()).order_by("-n")[:2],
        "held in memory",
    ),
    "grouped": (lambda db: db[Peak].group_by("country"), "Call aggregate()"),
}


@pytest.mark.parametrize("kind", READ)
def test_a_preview_shows_at_most_ten_results_and_reads_few_rows(store: tuple[Database, CountingEngine], kind: str):
    db, engine = store
    query = READ[kind](db)
    engine.meter.reset()
    shown = Output(query)
    assert engine.meter.rows + engine.meter.followed <= MOST_ROWS
    assert "Not read" not in shown.text
    results = query.all().to_list() if isinstance(query, QuerySet) else query.to_list()
    found = len(shown.rows) - 1
    assert found == min(10, len(results)) or "there may be more" in shown.text
    firsts = [str(getattr(one, "id", one)) for one in results[:found]]
    assert all(
        text in first or "(" in first or "{" in first for text, first in zip(shown.cells(0), firsts, strict=True)
    )


@pytest.mark.parametrize("kind", UNREAD)
def test_a_query_without_a_bound_is_described_and_not_read(store: tuple[Database, CountingEngine], kind: str):
    db, engine = store
    query, reason = UNREAD[kind][0](db), UNREAD[kind][1]
    engine.meter.reset()
    shown = Output(query)
    assert reason in shown.text
    assert not shown.rows
    assert engine.meter.rows + engine.meter.followed <= 1  # the catalogue


def test_the_repr_of_a_query_reads_nothing(store: tuple[Database, CountingEngine]):
    db, engine = store
    engine.meter.reset()
    for make in [*READ.values(), *(make for make, _ in UNREAD.values())]:
        assert repr(make(db)).startswith("<")
    repr(db.kv.list(()))
    assert engine.meter.reads == 0


@pytest.mark.parametrize("scans", ["warn", "allow"])
def test_a_database_that_allows_scans_shows_a_query_without_scan_and_warning(scans: Any):
    with Database("memory://", models=[Range, Peak], scans=scans) as db:  # warnings are errors in the tests
        assert "which scans or sorts" in Output(db[Peak].filter(text="x")).text
        assert "which scans or sorts" in Output(db[Peak].order_by("text")).text
        assert "which scans or sorts" in Output(db[Peak].group_by("text").aggregate(Count())).text
        with db.transaction() as tx:
            assert "which scans or sorts" in Output(tx[Peak].filter(text="x")).text


def test_filter_order_slice_and_index_are_shown(store: tuple[Database, CountingEngine]):
    shown = Output(store[0][Peak].filter(country="CH").order_by("-pk")[2:6])
    assert shown.text.startswith(
        "\n\nQuerySet[Peak]\nfilter country = 'CH'\norder -id\nslice [2:6]\nreads 1 range of index country"
    )
    assert shown.cells(0) == ["591", "588", "585", "582"]
    assert "4 results." in shown.text


def test_a_preview_adds_no_check_to_a_transaction(store: tuple[Database, CountingEngine]):
    db, engine = store
    with db.transaction() as tx:
        query = tx[Peak].filter(country="CH")
        engine.meter.reset()
        shown, listed = Output(query), Output(tx.kv.list(("peaks",)))
        assert engine.meter.reads == 0
        tx.kv.set(("mine",), 1)
    assert "reads 1 range of index country" in shown.text
    assert "the commit of a transaction checks all rows" in shown.text
    assert "the commit of a transaction checks all entries" in listed.text
    assert engine.meter.checks <= 1  # that of the catalogue


def test_a_listing_shows_its_first_entries_and_stays_at_its_place(store: tuple[Database, CountingEngine]):
    db, engine = store
    listing = db.kv.list(("peaks",), reverse=True)
    first = next(listing)
    engine.meter.reset()
    shown = Output(listing)
    assert engine.meter.rows <= 11
    assert shown.rows[0] == ["key", "value", "versionstamp"]
    assert shown.rows[1][0] == "('peaks', 599)"
    assert len(shown.rows) == 11
    assert "prefix ('peaks',)" in shown.text
    assert (first.key, next(listing).key) == (("peaks", 599), ("peaks", 598))


def test_a_closed_store_is_named_instead_of_an_error():
    with Database("memory://", models=[Range]) as db:
        query, listing = db[Range], db.kv.list(())
    assert "Not read: this store is closed" in Output(query).text
    assert "Not read: this store is closed" in Output(listing).text


async def test_an_asynchronous_query_is_described_and_names_the_await():
    async with AsyncDatabase("memory://", models=[Range, Peak]) as db:
        peaks = db[Peak].filter(country="CH")
        shown = Output(peaks)
        assert "filter country = 'CH'\nreads 1 range of index country" in shown.text
        assert "await query[:10].to_list()" in shown.text
        assert "no index serves this query" in Output(db[Peak].filter(text="x")).text
        assert "await query" in Output(db[Peak].group_by("country").aggregate(Count())).text
        assert "async for" in Output(db.kv.list(())).text
    closed = AsyncDatabase("memory://", models=[Range, Peak])
    assert "await query" in Output(closed[Range]).text
