"""Ranked queries return on every engine what a sort of all records by their distance would: slices, pages, numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from kvmodels import AsyncDatabase, Database, DoesNotExist, ForeignKey, Hit, Indexed, KvModel, PrimaryKey
from tests.kinds.lines import END, LineIndex, lines
from tests.kinds.ranked import FILTERS, Found, pairs, ranked, stall_model, stalls

COUNT = 50
QUERIES = 40
"""So many are drawn for each engine."""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with lines():
        yield


def filled(count: int = COUNT) -> tuple[Database, list[Any]]:
    records = stalls(count)
    db = Database("memory://", models=[stall_model()])
    db[stall_model()].bulk_create(records, batch_size=3)
    return db, records


def in_pages(query: Any, size: int) -> Found:
    """Return all hits in pages, after walking the pages back as well."""
    pages = [query.page(size)]
    while pages[-1].has_more:
        assert len(pages[-1]) == size
        pages.append(query.page(size, after=pages[-1].next_cursor))
    assert pages[-1].next_cursor is None
    page = pages[-1]
    for earlier in reversed(pages[:-1]):
        page = query.page(size, before=page.previous_cursor)
        assert (pairs(page), page.has_more) == (pairs(earlier), True)
        assert pairs(query.page(size, after=page.previous_cursor)) == pairs(earlier)
    assert not page.has_previous
    return [pair for page in pages for pair in pairs(page)]


def check_drawn(db: Database, records: list[Any], seed: int, queries: int = QUERIES) -> None:
    chance = random.Random(seed)
    for _ in range(queries):
        name = chance.choice([*FILTERS])
        narrow, holds = FILTERS[name]
        origin = chance.choice([0, chance.randint(-80, 80), chance.choice([-END, END])])
        within = chance.choice([None, None, 0, 7, 25.5, 3 * END])
        start, stop = chance.choice([0, 0, 3, 50]), chance.choice([None, 1, 10, 40])
        size = chance.choice([4, 17, 100])
        wanted = ranked(records, origin, holds, within)
        query = narrow(db[stall_model()].nearest("at", origin, within_m=within))
        drawn = (seed, name, origin, within, start, stop, size)
        match chance.randrange(5):
            case 0:
                assert pairs(query) == wanted, drawn
            case 1:
                stop = None if stop is None else start + stop
                assert pairs(query[start:stop].to_list()) == wanted[start:stop], drawn
                assert query[start:stop].count() == len(wanted[start:stop]), drawn
            case 2:
                assert in_pages(query, size) == wanted, drawn
            case 3:
                assert (query.count(), query.exists()) == (len(wanted), bool(wanted)), drawn
            case _:
                first = query.first()
                assert ([] if first is None else pairs([first])) == wanted[:1], drawn


def test_drawn_queries_return_what_python_sorts():
    db, records = filled()
    with db:
        check_drawn(db, records, seed=1)


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_keeps_the_order_wherever_it_is_called(name: str):
    db, records = filled()
    narrow, holds = FILTERS[name]
    with db:
        shops = db[stall_model()]
        wanted = ranked(records, 5, holds)
        assert pairs(narrow(shops.all()).nearest("at", 5)) == wanted
        assert pairs(narrow(shops.nearest("at", 5))) == wanted
        assert narrow(shops.nearest("at", 5)).count() == len(wanted)


def test_hits_are_named_tuples_and_ties_are_in_the_order_of_the_primary_key():
    model = stall_model()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=key, at=at) for key, at in ((4, 2), (3, -2), (9, 2), (1, 7), (2, None))])
        hits = db[model].nearest("at", 0).to_list()
        assert pairs(hits) == [(3, 2.0), (4, 2.0), (9, 2.0), (1, 7.0)]
        (record, distance), hit = hits[0], hits[1]
        assert isinstance(hit, Hit)
        assert (record.id, distance, hit.record.at, hit.distance) == (3, 2.0, 2, 2.0)


def test_the_greatest_distance_counts():
    model = stall_model()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=at, at=at) for at in range(8)])
        near = db[model].nearest("at", 0, within_m=5)
        assert pairs(near)[-1] == (5, 5.0)
        assert (near.count(), near.page(3).has_more, len(near[3:].to_list())) == (6, True, 3)
        assert pairs(db[model].nearest("at", 0, within_m=0)) == [(0, 0.0)]
        assert pairs(db[model].nearest("at", 0, within_m=0.5)) == [(0, 0.0)]


def test_a_position_is_a_hit_or_does_not_exist():
    db, records = filled(12)
    with db:
        near = db[stall_model()].nearest("at", 0)
        wanted = ranked(records, 0)
        assert pairs([near[2]]) == wanted[2:3]
        with pytest.raises(DoesNotExist):
            near[len(wanted)]
        with pytest.raises(stall_model().DoesNotExist):
            near[50]
        assert near[3:3].to_list() == []
        assert (near[3:3].count(), near[3:3].exists(), near[3:3].first()) == (0, False, None)
        assert pairs(near[2:9][1:3]) == wanted[3:5]


def test_an_operand_may_be_a_query():
    class Street(KvModel, collection="streets"):
        name: PrimaryKey[str]
        length: Indexed[int]

    class House(KvModel, collection="houses"):
        id: PrimaryKey[int]
        at: int
        street: ForeignKey[str, Street]

        class Meta:
            indexes: ClassVar = (LineIndex("at"), LineIndex("at", group=("street",), name="by_street"))

    with Database("memory://", models=[Street, House]) as db:
        for number, name in enumerate("abc"):
            db[Street].create(name=name, length=number)
        houses = [House(id=at, at=at, street="abc"[at % 3]) for at in range(18)]
        db[House].bulk_create(houses, batch_size=3)
        near = db[House].nearest("at", 8).filter(House.street.in_(db[Street].filter(length__gte=1)))
        wanted = ranked(houses, 8, lambda one: one.street != "a")
        assert (pairs(near), near.count(), near.exists()) == (wanted, len(wanted), True)
        assert in_pages(near, 4) == wanted
        assert pairs([near.first(), near[1]]) == wanted[:2]
        plan = near.explain(analyze=True)
        assert plan.analysis is not None
        assert (plan.index, len(plan.semi_joins), plan.analysis.results) == ("by_street", 1, len(wanted))


def test_a_transaction_finds_what_it_has_written():
    db, records = filled(12)
    model = stall_model()
    with db:
        gone, moved = ranked(records, 0)[0][0], ranked(records, 0)[1][0]
        with db.transaction() as tx:
            near = tx[model].nearest("at", 0)
            assert pairs(near[:3]) == ranked(records, 0)[:3]
            tx[model].remove(gone)
            tx[model].patch(moved, at=59)
            tx[model].create(id=100, at=0, kind="b")
            tx[model].create(id=101, at=1, kind="a")
            present = list(tx[model].all())
            assert pairs(near) == ranked(present, 0)
            assert pairs(near.filter(kind="b")[:2]) == ranked(present, 0, lambda one: one.kind == "b")[:2]
            assert (near.count(), near.exists()) == (len(ranked(present, 0)), True)
            tx[model].patch(101, at=3)  # in the same ten, so that only the value of its entry changes
            present = list(tx[model].all())
            assert in_pages(near, 5) == ranked(present, 0)
        assert pairs(db[model].nearest("at", 0)) == ranked(present, 0)


def test_after_random_writes_the_nearest_are_those_of_the_stored_records():
    chance, model = random.Random(20261129), stall_model()
    with Database("memory://", models=[model]) as db:
        stored = db[model]
        for step in range(48):
            key, place = chance.randrange(12), chance.choice([None, chance.randint(-40, 40)])
            match chance.randrange(4):
                case 0:
                    stored.filter(id=key).delete()
                case 1:
                    stored.filter(id=key).update(at=place, kind=chance.choice("ab"))
                case 2:
                    with db.transaction() as tx:
                        tx[model].bulk_create([model(id=key, at=place)], on_conflict="update")
                case _:
                    stored.bulk_create([model(id=key, at=place, tags=["x"])], on_conflict="update")
            if step % 6 == 5:
                records, origin = list(stored.all()), chance.randint(-40, 40)
                for narrow, holds in (FILTERS["nothing"], FILTERS["two groups"], FILTERS["one value of several"]):
                    query = narrow(stored.nearest("at", origin))
                    wanted = ranked(records, origin, holds)
                    assert (pairs(query), query.count()) == (wanted, len(wanted))
        assert db.check().ok


async def test_the_same_methods_are_coroutines():
    records = stalls(40)
    model = stall_model()
    async with AsyncDatabase("memory://", models=[model]) as db:
        await db[model].bulk_create(records, batch_size=3)
        near = db[model].filter(kind="b").nearest("at", 4)
        wanted = ranked(records, 4, lambda one: one.kind == "b")
        assert pairs([hit async for hit in near]) == wanted
        assert pairs(await near[1:4].to_list()) == wanted[1:4]
        assert pairs([await near.first(), await near[1]]) == wanted[:2]
        assert (await near.count(), await near.exists()) == (len(wanted), True)
        page = await near.page(2)
        rest = await near.page(50, after=page.next_cursor)
        assert pairs([*page, *rest]) == wanted
        assert (await near.explain()).index == "by_kind"
        with pytest.raises(DoesNotExist):
            await near[len(wanted)]
