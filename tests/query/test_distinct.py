"""Distinct values: against Python, and from value to value where an index has them side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    MultiIndexed,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    UniqueConstraint,
)
from tests.query.engines import watched


class Town(KvModel, collection="towns"):
    id: PrimaryKey[int]
    country: Indexed[str]
    kind: str | None = None
    level: int = 0
    name: Annotated[str, Indexed(key=str.casefold)] = ""
    price: Decimal = Decimal(0)
    real: float = 0.0
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    moment: Indexed[datetime | None] = Field(default=None)

    class Meta:
        indexes = (
            Index("country", "kind", "-level", name="compound"),
            Index("-level", "country", name="falling"),
            Index("price"),
            UniqueConstraint("real", "id", name="unique_real"),
        )


COLUMNS = {
    "country": st.sampled_from(["", "CH", "CH\0", "IT"]),
    "kind": st.sampled_from([None, "city", "town"]),
    "level": st.integers(0, 3),
    "name": st.sampled_from(["rome", "Rome", "ROME", "oslo"]),
    "price": st.sampled_from([Decimal("1"), Decimal("1.0"), Decimal("2.50")]),
    "real": st.sampled_from([0.0, -0.0, 1.5]),
    "tags": st.lists(st.sampled_from("ab"), max_size=2),
    "moment": st.sampled_from(
        [None, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))]
    ),
}


def filled(rows: list[dict[str, Any]]) -> Any:
    db = Database("memory://", models=[Town])
    db[Town].bulk_create([Town(id=number, **fields) for number, fields in enumerate(rows)])
    return db[Town]


def told_apart(rows: list[Any]) -> list[Any]:
    found: list[Any] = []
    for row in rows:
        if row not in found:
            found.append(row)
    return found


def rank(value: Any) -> Any:
    return (value is not None, value)


def rank_at(at: int) -> Any:
    return lambda values: rank(values[at])


SIDE_BY_SIDE = [
    (("country",), ()),
    (("country",), ("-country",)),
    (("country", "kind"), ()),
    (("country", "kind"), ("-country", "-kind")),
    (("country", "kind", "level"), ("country", "kind", "-level")),
    (("kind", "country"), ("country", "kind")),
    (("level",), ()),
    (("level", "country"), ("-level", "country")),
    (("price",), ()),
    (("real",), ()),
    (("moment",), ("-moment",)),
]


@given(
    st.lists(st.fixed_dictionaries(COLUMNS), max_size=25),
    st.sampled_from(SIDE_BY_SIDE),
    st.booleans(),
    st.integers(0, 4),
    st.none() | st.integers(0, 6),
)
def test_values_that_lie_side_by_side_equal_those_of_python(rows, asked_for, reverse, start, stop):
    fields, order = asked_for
    asked = filled(rows).values_list(*fields).distinct().order_by(*order)
    expected = told_apart([tuple(row[field] for field in fields) for row in rows])
    for column in reversed(order or fields):
        at = fields.index(column.removeprefix("-"))
        expected.sort(key=rank_at(at), reverse=column.startswith("-"))
    if reverse:
        asked = asked.reverse()
        expected.reverse()
    assert asked.to_list() == list(asked) == expected
    assert asked.count() == len(expected)
    assert asked.exists() is bool(expected)
    assert asked.first() == (expected[0] if expected else None)
    assert asked.last() == (expected[-1] if expected else None)
    stop = None if stop is None else max(start, stop)
    assert asked[start:stop].to_list() == expected[start:stop]
    assert asked[start:stop].count() == len(expected[start:stop])


@pytest.mark.parametrize("fields", [("kind", "country"), ("country", "kind", "level"), ("kind",)])
def test_values_that_no_index_has_side_by_side_in_their_order_are_refused(fields):
    asked = filled([{"country": "CH", "kind": "x"}]).values_list(*fields).distinct()
    with pytest.raises(NoUsableIndexError) as refused:
        asked.to_list()
    assert "sort_in_memory" in str(refused.value.hint)
    assert refused.value.order == fields
    assert asked.sort_in_memory(limit=1).count() == 1


@given(
    st.lists(st.fixed_dictionaries(COLUMNS), max_size=25),
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["country", None]),
)
def test_any_values_are_told_apart_in_memory(rows, fields, filtered):
    towns = filled(rows)
    kept = [row for row in rows if filtered is None or row[filtered] == "CH"]
    asked = towns.filter(**({} if filtered is None else {filtered: "CH"})).values_list(*fields).distinct()
    found = asked.sort_in_memory(limit=100).to_list()
    expected = told_apart([tuple(row[field] for field in fields) for row in kept])
    assert len(found) == len(expected) == asked.sort_in_memory(100).count()
    assert all(row in expected for row in found)
    assert told_apart(found) == found
    if set(fields) <= {"country", "level", "real"}:
        assert found == sorted(expected)


def test_folded_values_are_told_apart_as_they_are():
    towns = filled([{"country": "IT", "name": name} for name in ("Rome", "rome", "Rome", "ROME", "rome")])
    names = towns.values_list("name", flat=True).distinct()
    with pytest.raises(NoUsableIndexError):
        names.to_list()
    assert sorted(names.sort_in_memory(10)) == ["ROME", "Rome", "rome"]


def test_folded_values_come_in_the_order_of_what_the_fold_gives():
    towns = filled([{"country": "IT", "name": name} for name in ("b", "A", "C", "É", "a", "ß", "B")])
    names = towns.values_list("name", flat=True).distinct().sort_in_memory(10)
    assert [name.casefold() for name in names] == ["a", "a", "b", "b", "c", "ss", "é"]
    assert [name.casefold() for name in names.reverse()] == ["é", "ss", "c", "b", "b", "a", "a"]


def test_values_behind_bound_columns():
    towns = filled([{"country": c, "kind": k} for c in ("CH", "IT") for k in ("x", None, "x", "y")])
    kinds = towns.filter(country="IT").values_list("kind", flat=True).distinct()
    assert kinds.to_list() == [None, "x", "y"]
    assert kinds.explain().index == "compound"
    assert kinds.exclude(kind=None).to_list() == ["x", "y"]
    assert kinds.order_by("-kind").to_list() == ["y", "x", None]


def test_distinct_makes_no_difference_for_objects_and_for_values_with_the_primary_key():
    towns = filled([{"country": "CH"}, {"country": "CH"}])
    assert towns.distinct().count() == towns.filter(country="CH").distinct().count() == 2
    assert towns.values("country", "id").distinct().to_list() == [
        {"country": "CH", "id": 0},
        {"country": "CH", "id": 1},
    ]
    assert towns.values().distinct().page(size=1).has_more


def test_what_distinct_refuses():
    towns = filled([{"country": "CH"}])
    with pytest.raises(InvalidArgumentError):
        towns.all()[:3].distinct()
    with pytest.raises(InvalidArgumentError) as refused:
        towns.values("country").distinct().order_by("level").to_list()
    assert refused.value.argument == "order_by"
    with pytest.raises(InvalidArgumentError):
        towns.values("country").distinct().page(size=3)
    with pytest.raises(NoUsableIndexError) as unindexed:
        towns.values("kind").distinct().to_list()
    assert str(unindexed.value.hint).startswith('Add Index("kind") to')


def test_no_more_values_are_held_than_permitted():
    towns = filled([{"country": "CH", "kind": str(number % 7)} for number in range(30)])
    kinds = towns.values("kind").distinct()
    assert kinds.sort_in_memory(limit=7).count() == 7
    with pytest.raises(OperationTooLargeError) as refused:
        kinds.sort_in_memory(limit=6).to_list()
    assert (refused.value.limit, refused.value.maximum) == ("sort_in_memory", 6)


# --- what is read -------------------------------------------------------------------------------------------------


def test_few_values_of_many_records_cost_few_rows():
    db, engine = watched([Town])
    db[Town].bulk_create(
        [Town(id=n, country=("CH", "FR", "IT", "DE")[n % 4], kind=str(n % 3), level=n % 2) for n in range(2_000)]
    )
    countries = db[Town].values_list("country", flat=True).distinct()
    for asked, expected, most in (
        (countries, ["CH", "DE", "FR", "IT"], 20),
        (countries.reverse(), ["IT", "FR", "DE", "CH"], 20),
        (countries[:1], ["CH"], 2),
        (db[Town].filter(country="CH").values_list("kind", flat=True).distinct(), ["0", "1", "2"], 16),
        (db[Town].filter(country__in=["CH", "IT"]).values_list("country", flat=True).distinct(), ["CH", "IT"], 12),
    ):
        engine.meter.reset()
        assert asked.to_list() == expected
        assert engine.meter.rows <= most
        assert engine.meter.followed == 0
    analysis = countries.explain(analyze=True).analysis
    assert analysis is not None
    assert analysis.results == 4


def test_many_values_cost_few_reads():
    db, engine = watched([Town])
    db[Town].bulk_create([Town(id=n, country=f"{n:04}") for n in range(2_000)])
    engine.meter.reset()
    assert db[Town].values("country").distinct().count() == 2_000
    assert engine.meter.reads < 20
    assert engine.meter.rows < 2_100


def test_values_of_which_some_are_tested():
    db, _ = watched([Town])
    rows = [Town(id=n, country=("CH", "FR", "IT")[n % 3], level=n % 5, tags=["a"] if n % 5 else []) for n in range(300)]
    db[Town].bulk_create(rows)
    asked = db[Town].filter(tags__contains="a").allow_scan().values_list("country", flat=True).distinct()
    assert asked.sort_in_memory(10).to_list() == ["CH", "FR", "IT"]
    levels = db[Town].filter(country__in=["CH", "IT"], price=Decimal(0)).allow_scan()
    assert levels.values_list("country", flat=True).distinct().to_list() == ["CH", "IT"]


@pytest.mark.parametrize("turned", [False, True])
def test_values_that_are_tested_are_read_through_once_and_in_growing_batches(turned: bool):
    """Of each country only the last hundredth, in the order of the keys, passes the test."""
    db, engine = watched([Town])
    db[Town].bulk_create([Town(id=n, country=("CH", "FR", "IT", "DE")[n // 500], level=n % 500) for n in range(2_000)])
    asked = db[Town].filter(level__gte=495).using_index("country").allow_scan()
    countries = asked.values_list("country", flat=True).distinct()
    countries = countries.reverse() if turned else countries
    engine.meter.reset()
    assert countries.to_list() == sorted(["CH", "FR", "IT", "DE"], reverse=turned)
    assert engine.meter.reads < 20
    assert engine.meter.rows <= 2_000 + engine.meter.reads, "a row more with each read, to learn whether there is one"


async def test_the_asynchronous_twin_gives_the_same_distinct_values():
    async with AsyncDatabase("memory://", models=[Town]) as db:
        await db[Town].bulk_create([Town(id=n, country=("CH", "IT")[n % 2]) for n in range(10)])
        countries = db[Town].values_list("country", flat=True).distinct()
        assert await countries.to_list() == [row async for row in countries] == ["CH", "IT"]
        assert (await countries.count(), await countries.last(), await countries[1]) == (2, "IT", "IT")
