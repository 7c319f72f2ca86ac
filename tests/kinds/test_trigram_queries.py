"""Lookups of parts of texts find what a scan finds, on every engine and in every form of a query."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from tests.kinds.text_queries import Paper, drawn, papers, text
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 40
SEED = 20261130
QUERIES: dict[str | None, int] = {None: 120, "connect": 30, "connect-own": 30}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 80
"""For every other engine."""


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn conditions, and compare every form of the answer; some records change in between."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Paper]) as db:
        records = papers(chance, RECORDS)
        for record in records:
            db[Paper].insert(record)
        for number in range(queries):
            if number % 20 == 19:
                change(db, records, chance)
            check_filter(db, records, chance, counts)
        assert db.check().ok
    return counts


def change(db: Database, records: list[Paper], chance: Random) -> None:
    """Give a record other texts."""
    key = chance.randrange(RECORDS)
    new: dict[str, Any] = {"title": text(chance), "tags": [text(chance)], "size": chance.randrange(4)}
    records[key] = db[Paper].patch(key, **new)


def check_filter(db: Database, records: list[Paper], chance: Random, counts: Counter[str]) -> None:
    """Compare the answers to one condition."""
    asked = drawn(chance, records)
    wanted = [one.id for one in records if asked.test(one)]
    query = db[Paper].filter(asked.condition)
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


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_lookups_find_what_a_scan_finds(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    """With the further runs of this module in ``make check``, these are 1,200 queries over all engines."""
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/papers"
    server = request.node.callspec.params.get("_server_stores")
    queries = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    counts = check_queries(url, SEED, queries)
    assert counts["found"] > queries // 2
    assert {"scan", "intersect"} & set(counts), counts


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_many_drawn_lookups_find_what_a_scan_finds(seed: int):
    check_queries("memory://", seed, 500)
