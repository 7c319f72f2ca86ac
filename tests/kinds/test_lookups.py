"""Lookups of kinds give what Python gives: drawn filters, orders, slices, pages, counts, transactions, bulk writes."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Count, Database, Max, Min, NoUsableIndexError, Q, Sum
from tests.kinds.places import Drawn, Shop, beside_a_lookup, both_kinds, is_band, shop


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    with both_kinds():
        yield


ENGINES = ["memory://", "sqlite", "lmdb"]
ORDERS: list[tuple[str, ...]] = [(), (), ("id",), ("-id",), ("low",), ("-low", "id"), ("city", "low"), ("note",)]


@pytest.fixture(params=ENGINES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    name: str = request.param
    path = {"sqlite": f"sqlite:///{tmp_path}/a.db", "lmdb": f"lmdb:///{tmp_path}/a"}.get(name, name)
    with Database(path, models=[Shop]) as db:
        chance = Random(7)
        db[Shop].bulk_create([Shop(**shop(chance, key)) for key in range(40)], batch_size=3)
        yield db


def in_order(records: list[Any], order: tuple[str, ...]) -> list[Any]:
    """Return records in an order, None first, ties by primary key in the direction of the last column."""
    found = sorted(records, key=lambda one: one.id)
    for name in reversed(order):
        field = name.removeprefix("-")
        found.sort(key=lambda one: ((value := getattr(one, field)) is not None, value), reverse=name.startswith("-"))
    return found


def require_equal(query: Any, expected: list[Any], order: tuple[str, ...]) -> None:
    """Compare all ways to read a query with the records that Python finds."""
    keys = [one.id for one in expected]
    got = [one.id for one in query]
    assert sorted(got) == sorted(keys)
    if order:
        names = [name.removeprefix("-") for name in order]
        found = {one.id: tuple(getattr(one, name) for name in names) for one in expected}
        assert [found[key] for key in got] == [
            tuple(getattr(one, n) for n in names) for one in in_order(expected, order)
        ]
    assert query.count() == len(keys)
    assert query.exists() is bool(keys)
    assert [one.id for one in query[1:4]] == got[1:4]
    pages, cursor = [], None
    while True:
        page = query.page(size=5, after=cursor)
        pages += [one.id for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == got


def ask(repository: Any, chance: Random, filtered: Drawn) -> tuple[Any, tuple[str, ...]]:
    """Return a query in a drawn order, with the permissions that it needs."""
    order = chance.choice(ORDERS)
    query = repository.filter(filtered.filter).order_by(*order)
    try:
        query.explain()
    except NoUsableIndexError:
        query = query.sort_in_memory(1000) if chance.random() < 0.5 or order == ("note",) else query
        query = query.allow_scan()
        try:
            query.explain()
        except NoUsableIndexError:
            query = query.sort_in_memory(1000)
    return query, order


@pytest.mark.parametrize("seed", range(2))
def test_drawn_filters_find_what_python_finds(db: Database, seed: int):
    assert through_kinds(db, Random(seed), 30) > 15


def through_kinds(db: Database, chance: Random, queries: int) -> int:
    """Compare drawn queries with Python; return how many of them were read through an index of a kind."""
    records = list(db[Shop].all())
    found = 0
    for _ in range(queries):
        filtered = beside_a_lookup(chance)
        query, order = ask(db[Shop], chance, filtered)
        found += bool({"days", "days_of_city", "band", "city_band"}.intersection(query.explain().indexes))
        require_equal(query, [one for one in records if filtered.test(one)], order)
    return found


def test_totals_groups_and_distinct_values_of_a_lookup_are_those_of_python(db: Database):
    shops = db[Shop]
    records: list[Any] = list(shops.all())
    asked: list[tuple[Any, Any]] = [
        (Q(band__begins=(3, 29)), lambda one: is_band(one) and 3 <= one.low <= 29),
        (Q(band__holds=20), lambda one: is_band(one) and one.low <= 20 < one.high),
        (Q(open_on__on=2), lambda one: (one.open_on or 0) >> 2 & 1),
        # The counters of the cities know nothing of weekdays.
        (Q(open_on__on=2, city="a"), lambda one: (one.open_on or 0) >> 2 & 1 and one.city == "a"),
        (Q(open_on__on=2) | Q(open_on__on=6), lambda one: (one.open_on or 0) & 68),
    ]
    for filtered, test in asked:
        found = [one for one in records if test(one)]
        lows = [one.low for one in found if one.low is not None]
        query = shops.filter(filtered).sort_in_memory(1000)
        totals = query.aggregate(n=Count(), total=Sum("low"), least=Min("low"), most=Max("low"))
        assert totals == {"n": len(found), "total": sum(lows), "least": min(lows), "most": max(lows)}
        assert sorted(query.exclude(low=None).values_list("low", flat=True).distinct()) == sorted(set(lows))
        groups = {group["city"]: group["n"] for group in query.group_by("city").aggregate(n=Count())}
        assert groups == collections.Counter(one.city for one in found)


def test_a_transaction_finds_by_its_own_writes(db: Database):
    chance = Random(11)
    for _ in range(4):
        with db.transaction() as tx:
            shops = tx[Shop]
            for key in chance.sample(range(50), 2):
                if chance.random() < 0.3:
                    shops.remove(key)
                else:
                    shops.bulk_create([Shop(**shop(chance, key))], on_conflict="update")
            records = list(shops.all())
            for _ in range(8):
                filtered = beside_a_lookup(chance)
                query, _ = ask(shops, chance, filtered)
                wanted = sorted(one.id for one in records if filtered.test(one))
                assert sorted(one.id for one in query) == wanted
                assert query.count() == len(wanted)


def test_bulk_writes_change_what_a_lookup_finds(db: Database):
    shops = db[Shop]
    before = {one.id: one for one in shops.all()}
    open_on_friday = [key for key, one in before.items() if (one.open_on or 0) >> 4 & 1]
    assert shops.filter(open_on__on=4).update(note="z").written == len(open_on_friday)
    assert sorted(one.id for one in shops.all() if one.note == "z") == open_on_friday
    # The update moves records out of the ranges that it reads.
    held = [
        key for key, one in before.items() if one.low is not None and one.high is not None and one.low <= 20 < one.high
    ]
    assert shops.filter(band__holds=20).update(low=300, high=301).written == len(held)
    assert not shops.filter(band__holds=20).exists()
    assert sorted(one.id for one in shops.filter(band__holds=300)) == held
    assert shops.filter(band__holds=300).delete().written == len(held)
    assert sorted(one.id for one in shops.all()) == sorted(set(before) - set(held))
    assert db.check().ok


def test_a_page_beside_writers_has_each_record_that_stays(db: Database):
    shops, chance = db[Shop], Random(5)
    for order in ((), ("low",), ("-id",)):
        query = shops.filter(band__begins=(0, 39)).order_by(*order).sort_in_memory(1000)
        start = {one.id: one for one in query}
        moved = set(chance.sample(sorted(start), min(4, len(start) // 2)))
        found, cursor = [], None
        while True:
            page = query.page(size=3, after=cursor)
            found += [one.id for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            for key in moved:
                low = chance.randrange(40)
                shops.patch(key, low=low, high=low + chance.choice([1, 30, 200]))
        kept = [key for key in found if key not in moved]
        assert sorted(kept) == sorted(set(start) - moved)
        assert len(kept) == len(set(kept))


async def test_the_asynchronous_facade_has_the_lookups():
    async with AsyncDatabase("memory://", models=[Shop]) as db:
        shops = db[Shop]
        await shops.bulk_create(
            [Shop(id=key, city="a", open_on=key, low=key, high=key + 3) for key in range(9)], batch_size=1
        )
        assert [one.id async for one in shops.filter(open_on__on=2)] == [4, 5, 6, 7]
        assert [one.id async for one in shops.filter(band__holds=4).order_by("-low")] == [4, 3, 2]
        assert await shops.filter(Q(band__holds=4) & ~Q(open_on__on=2)).count() == 2
        page = await shops.filter(band__holds=4).order_by("low").page(size=2)
        assert [one.id for one in page.items] == [2, 3]
