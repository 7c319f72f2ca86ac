"""Ranked queries by vectors return what numpy finds over all records, on every engine and with every store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.query.plans import found_of
from tests.vectors.queries import METRICS, STORES, Doc, check_answer, docs, drawn, expected, vector
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 40
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 60, "connect": 20, "connect-own": 20}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 40


def check_queries(db: Database, records: list[Doc], chance: Random, queries: int) -> Counter[str]:
    """Ask a store drawn queries, and compare slices, numbers and the existence of results."""
    counts = Counter[str]()
    for _ in range(queries):
        asked = drawn(chance, records)
        wanted = expected(asked, records)
        query = db[Doc].similar(asked.by, asked.origin)
        if asked.condition is not None:
            query = query.filter(asked.condition)
        start, stop = sorted(chance.sample(range(min(len(records), 900)), 2))
        stop = chance.choice([1, 3, stop])
        start = min(start, stop)
        check_answer(asked, query[:stop].to_list(), wanted[:stop], records)
        last = query[:stop].to_list()[start:]
        assert [(hit.distance, hit.record.id) for hit in query[start:stop]] == [
            (hit.distance, hit.record.id) for hit in last
        ]
        assert query.exists() is bool(wanted)
        assert query.count() == len(wanted)
        counts[asked.by] += 1
        counts["found"] += len(wanted)
        counts["with keys"] += found_of(query[:1].explain()) is not None
    return counts


def filled(db: Database, chance: Random, number: int) -> list[Doc]:
    """Store records in batches that every engine takes, and return them."""
    records = docs(chance, number)
    size = 3 if number <= RECORDS else 500
    for batch in range(0, number, size):
        db[Doc].bulk_create(records[batch : batch + size])
    return records


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_queries_find_what_numpy_finds(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    """With the further runs of this module, these are about 300 queries over all engines; the soak draws 2,000."""
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/docs"
    server = request.node.callspec.params.get("_server_stores")
    chance = Random(SEED)
    print(f"seed {SEED}")
    with Database(url, models=[Doc]) as db:
        records = filled(db, chance, RECORDS)
        counts = check_queries(db, records, chance, QUERIES.get(server, OTHERS))
        check_stores(db, records, chance, 3)
    assert counts["found"] > counts["with keys"] > 3


def check_stores(db: Database, records: list[Doc], chance: Random, origins: int) -> None:
    """Require the very same results of every store."""
    for _ in range(origins):
        origin = vector(chance, [one.embedding for one in records if one.embedding is not None])
        for metric in METRICS:
            hits: list[Any] = [db[Doc].similar(f"{metric}_{store}", origin)[:12].to_list() for store in STORES]
            assert hits[0] == hits[1] == hits[2]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_drawn_queries_over_many_records_find_what_numpy_finds(seed: int):
    chance = Random(seed)
    with Database("memory://", models=[Doc]) as db:
        records = filled(db, chance, 2_000)
        counts = check_queries(db, records, chance, 500)
        check_stores(db, records, chance, 100)
    assert counts["with keys"] > 100
