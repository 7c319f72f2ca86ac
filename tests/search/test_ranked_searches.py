"""Ranked searches have the scores of BM25 over all records, with every engine and in every form of a query."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import (
    Database,
    SearchHit,
)
from tests.search.queries import ORGS, Note, drawn, notes, scores
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 40
SEED = 20261130
QUERIES: dict[str | None, int] = {None: 60, "connect": 40, "connect-own": 40}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 50
"""For every other engine."""
WEIGHTS = {"title": 3.0}


def check_hits(hits: list[SearchHit[Note]], wanted: dict[int, float]) -> None:
    """Compare hits with the scores of records by their primary keys."""
    assert {hit.record.id: hit.score for hit in hits} == pytest.approx(wanted)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.record.id))


def pages(query: Any, size: int) -> list[int]:
    """The primary keys on all pages, forward; each page leads back to the one before."""
    found: list[int] = []
    before: list[int] = []
    cursor = None
    while True:
        page = query.page(size, after=cursor)
        ids = [hit.record.id for hit in page]
        if before:
            back = query.page(size, before=page.previous_cursor) if page.previous_cursor else None
            assert back is None or [hit.record.id for hit in back] == before
        found, before, cursor = found + ids, ids, page.next_cursor
        if cursor is None:
            return found


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn searches, and compare every form of the answer."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Note]) as db:
        records = notes(chance, RECORDS)
        for one in records:
            db[Note].insert(one)
        for number in range(queries):
            asked, org = drawn(chance), chance.choice(ORGS)
            if number % 3 == 0:
                query = db[Note].search("by_text", asked.text)
                wanted = scores(records, asked, WEIGHTS)
            else:
                query = db[Note].filter(org=org).search("in_org", asked.text)
                wanted = scores([one for one in records if one.org == org], asked, {})
            if number % 2:
                query = query.filter(size__gte=2)
                wanted = {key: score for key, score in wanted.items() if records[key].size >= 2}
            hits = query.to_list()
            check_hits(hits, wanted)
            counts["found"] += len(hits)
            ids = [hit.record.id for hit in hits]
            assert query.count() == len(ids), asked.text
            assert query.exists() is bool(ids)
            assert [hit.record.id for hit in query[1:4]] == ids[1:4]
            if number % 4 == 0:
                assert pages(query, 3) == ids
    return counts


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_scores_are_those_of_the_formula(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/notes"
    server = request.node.callspec.params.get("_server_stores")
    queries = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    assert check_queries(url, SEED, queries)["found"] > queries


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_the_scores_of_twenty_thousand_searches_are_those_of_the_formula(seed: int):
    check_queries("memory://", seed, 200)
