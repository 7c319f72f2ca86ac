"""Lookups of an exclusion constraint find what a comparison of values finds, with every engine and form of a query."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from tests.kinds.exclusion_queries import calendar, drawn, ordered_values
from tests.kinds.exclusions import Booking, copy_of
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 60


class Undone(Exception):
    """Ends a transaction without a commit."""


SEED = 20261129
QUERIES = 60


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn conditions, and compare every form of the answer; every second time in a transaction."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Booking]) as db:
        for one in calendar(chance, RECORDS):
            db[Booking].bulk_create([one], on_conflict="ignore")
        records = [copy_of(one) for one in db[Booking].all().allow_scan()]
        counts["stored"] = len(records)
        for number in range(queries):
            if number % 2:
                with suppress(Undone), db.transaction() as tx:
                    check_query(tx[Booking], changed(tx, records, chance), chance, counts)
                    raise Undone
            else:
                check_query(db[Booking], records, chance, counts)
    return counts


def changed(tx: Any, records: list[Booking], chance: Random) -> list[Booking]:
    """Move, add and remove bookings in a transaction, so that some of them overlap before its commit."""
    after = {one.id: one for one in records}
    for one in chance.sample(records, 4):
        if one.id % 3 == 0:
            tx[Booking].remove(one.id)
            del after[one.id]
        elif one.starts is not None:
            start, end = one.starts + chance.randint(-9, 9), None
            if one.ends is not None:
                end = start + chance.randint(1, 12)
            tx[Booking].patch(one.id, starts=start, ends=end)
            after[one.id] = copy_of(one, starts=start, ends=end)
    for key in range(RECORDS, RECORDS + 3):
        start = chance.randint(-20, 20)
        one = Booking(id=key, room=chance.choice(("A", "B")), starts=start, ends=start + chance.randint(1, 9))
        tx[Booking].insert(one)
        after[key] = copy_of(one)
    return list(after.values())


def check_query(bookings: Any, records: list[Booking], chance: Random, counts: Counter[str]) -> None:
    """Compare one drawn query in every form."""
    asked = drawn(chance)
    wanted = sorted(one.id for one in records if asked.test(one))
    query = bookings.filter(asked.condition)
    if not asked.indexed:
        query = query.allow_scan()
    plan = query.explain()
    counts[plan.combine] += 1
    counts["found"] += len(wanted)
    counts["used"] += asked.indexed
    assert not (asked.indexed and plan.full_scan), asked.condition
    assert sorted(one.id for one in query) == wanted, (asked.condition, plan)
    assert query.count() == len(wanted), asked.condition
    order = chance.choice(["starts", "-starts", "id"])
    ordered = query.order_by(order).sort_in_memory(RECORDS + 3)
    found = [(one.id, getattr(one, order.removeprefix("-"))) for one in ordered]
    places = ordered_values([one for one in records if one.id in wanted], order)
    assert [value for _, value in found] == places, (asked.condition, order, ordered.explain())
    assert sorted(key for key, _ in found) == wanted
    assert [one.id for one in ordered.reverse()] == [key for key, _ in reversed(found)]
    assert [one.id for one in ordered[1:4]] == [key for key, _ in found[1:4]]
    assert query.exists() is bool(wanted)
    assert sorted(query.values("starts", "ends"), key=repr) == sorted(
        ({"starts": one.starts, "ends": one.ends} for one in records if one.id in wanted), key=repr
    )
    assert pages(query) == wanted, asked.condition


def pages(query: Any) -> list[int]:
    """The keys on all pages, checked on the way back."""
    seen: list[list[int]] = []
    cursor, page = None, None
    while page is None or cursor is not None:
        page = query.page(size=3, after=cursor)
        seen.append([one.id for one in page])
        cursor = page.next_cursor
    for before in seen[-2::-1]:
        page = query.page(size=3, before=page.previous_cursor)
        assert [one.id for one in page] == before
    return sorted(key for some in seen for key in some)


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_queries_find_what_a_comparison_finds(engine: str, quick_folder: Path):
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/bookings"
    counts = check_queries(url, SEED, QUERIES)
    assert counts["found"] > QUERIES
    assert counts["used"] > QUERIES / 4
    assert {"scan", "merge"} <= set(counts), counts


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_twenty_thousand_drawn_queries_find_what_a_comparison_finds(seed: int):
    check_queries("memory://", seed, 200)
