"""Lookups of places and ranked queries find what brute force finds, on every engine and in every form of a query."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from tests.geo.queries import Shop, drawn, point, ranked, shops
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 60
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 150, "connect": 50, "connect-own": 50}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 100
"""For every other engine."""


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn conditions and rankings, and compare every form of the answer."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Shop]) as db:
        records = shops(chance, RECORDS)
        for batch in range(0, RECORDS, 5):
            db[Shop].bulk_create(records[batch : batch + 5])
        for number in range(queries):
            check = check_ranked if number % 3 == 0 else check_filter
            check(db, records, chance, counts)
    return counts


def check_filter(db: Database, records: list[Shop], chance: Random, counts: Counter[str]) -> None:
    """Compare the answers to one condition."""
    asked = drawn(chance)
    wanted = [one.id for one in records if asked.test(one)]
    query = db[Shop].filter(asked.condition)
    if not asked.indexed:
        query = query.allow_scan()
    plan = query.explain()
    counts[plan.combine] += 1
    counts["found"] += len(wanted)
    assert not (asked.indexed and plan.full_scan), asked.condition
    assert sorted(one.id for one in query) == wanted, asked.condition
    assert query.count() == len(wanted), asked.condition
    assert query.exists() is bool(wanted)
    ordered = query.order_by("-id").sort_in_memory(RECORDS)
    assert [one.id for one in ordered[1:4]] == wanted[::-1][1:4]
    seen, cursor = list[int](), None
    while True:
        page = query.page(size=7, after=cursor)
        seen += [one.id for one in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == wanted


def check_ranked(db: Database, records: list[Shop], chance: Random, counts: Counter[str]) -> None:
    """Compare the answers to one ranked query: order, distances, slices, number and pages."""
    asked = ranked(chance)
    expected = asked.expected(records)
    query = db[Shop].nearest("location", point(asked.origin), **asked.options)
    if asked.condition is not None:
        query = query.filter(asked.condition)
    counts["ranked"] += 1
    counts["ranked found"] += len(expected)
    start, stop = sorted(chance.sample(range(RECORDS), 2))
    assert [(hit.distance, hit.record.id) for hit in query[:stop]] == expected[:stop]
    assert [(hit.distance, hit.record.id) for hit in query[start:stop]] == expected[start:stop]
    assert [hit.record.id for hit in query] == [key for _, key in expected]
    assert query.count() == len(expected)
    assert query.exists() is bool(expected)
    size = chance.choice([1, 4, 13]) if chance.random() < 0.5 else RECORDS
    seen, cursor = list[Any](), None
    for _ in range(RECORDS + 1):
        page = query.page(size, after=cursor)
        assert len(page) == size or page.next_cursor is None, "a page is full, or the last one"
        seen += [(hit.distance, hit.record.id) for hit in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == expected
    assert all(one < other for one, other in pairwise(seen))


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_queries_find_what_brute_force_finds(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    """With the further runs of this module in ``make check``, these are 1,500 queries over all engines."""
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/shops"
    server = request.node.callspec.params.get("_server_stores")
    queries = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    counts = check_queries(url, SEED, queries)
    assert counts["found"] > queries
    assert counts["ranked found"] > queries
    assert {"scan", "concatenate"} & set(counts), counts
