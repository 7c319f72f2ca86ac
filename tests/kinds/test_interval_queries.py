"""Lookups of intervals find what a comparison of values finds, with every engine and in every form of a query."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from tests.kinds.interval_queries import Stay, drawn, stays
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 50
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 150, "connect": 50, "connect-own": 50}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 100
"""For every other engine."""


def expected_order(records: list[Stay], order: str) -> list[Stay]:
    """The records in an order, with the primary key as the last column; None is below every moment."""
    name, turned = order.removeprefix("-"), order.startswith("-")

    def place(one: Stay) -> tuple[bool, Any]:
        value = getattr(one, name)
        return (value is not None, value if value is not None else 0)

    by_key = sorted(records, key=lambda one: one.id)
    return sorted(by_key, key=place, reverse=turned)


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn conditions, and compare every form of the answer."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Stay]) as db:
        records = stays(chance, RECORDS)
        for one in records:
            db[Stay].insert(one)
        for number in range(queries):
            asked = drawn(chance)
            wanted = sorted(one.id for one in records if asked.test(one))
            query = db[Stay].filter(asked.condition)
            if not asked.indexed:
                query = query.allow_scan()
            plan = query.explain()
            counts[plan.combine] += 1
            counts["scans"] += plan.full_scan
            counts["found"] += len(wanted)
            assert not (asked.indexed and plan.full_scan), (number, asked.condition)
            assert sorted(one.id for one in query) == wanted, (number, asked.condition)
            assert query.count() == len(wanted), (number, asked.condition)
            if number % 4 == 0:
                check_forms(query, records, wanted, chance)
    return counts


def check_forms(query: Any, records: list[Stay], wanted: list[int], chance: Random) -> None:
    """Compare orders, slices and pages of one query."""
    order = chance.choice(["starts", "-starts", "id", "first"])
    ordered = query.order_by(order).sort_in_memory(RECORDS)
    found = ordered.to_list()
    places = [one.id for one in expected_order([one for one in records if one.id in wanted], order)]
    key = order.removeprefix("-")
    assert [getattr(one, key) for one in found] == [getattr(records[place], key) for place in places]
    assert sorted(one.id for one in found) == wanted
    assert [one.id for one in ordered[1:4]] == [one.id for one in found[1:4]]
    assert query.exists() is bool(wanted)
    seen, cursor = [], None
    while True:
        page = query.page(size=7, after=cursor)
        seen += [one.id for one in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == wanted


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_queries_find_what_a_comparison_finds(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    """With the further runs of this module in ``make check``, these are 1,500 queries over all engines."""
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/stays"
    server = request.node.callspec.params.get("_server_stores")
    queries = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    counts = check_queries(url, SEED, queries)
    assert counts["found"] > queries
    assert {"scan", "merge"} <= set(counts), counts


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_twenty_thousand_drawn_queries_find_what_a_comparison_finds(seed: int):
    check_queries("memory://", seed, 200)
