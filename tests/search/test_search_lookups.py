"""The lookup of words finds what the words of all records say, with every engine and in every form of a query."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kvmodels import Database, Q
from tests.search.queries import ORGS, Note, drawn, notes
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS

RECORDS = 40
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 80, "connect": 50, "connect-own": 50}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 60
"""For every other engine."""


def check_queries(url: str, seed: int, queries: int) -> Counter[str]:
    """Ask a store for drawn searches beside other conditions, and compare every form of the answer."""
    chance = Random(seed)
    print(f"seed {seed}")
    counts = Counter[str]()
    with Database(url, models=[Note]) as db:
        records = notes(chance, RECORDS)
        for one in records:
            db[Note].insert(one)
        repository = db[Note]
        for number in range(queries):
            asked, org = drawn(chance), chance.choice(ORGS)
            match number % 4:
                case 0:
                    query = repository.filter(by_text__search=asked.text)
                    found = [one for one in records if asked.test(one)]
                case 1:
                    query = repository.filter(in_org__search=asked.text, org=org)
                    found = [one for one in records if asked.test(one) and one.org == org]
                case 2:
                    query = repository.filter(Q(by_text__search=asked.text) | Q(id=3), size__gte=1)
                    found = [one for one in records if (asked.test(one) or one.id == 3) and one.size >= 1]
                case _:
                    query = repository.filter(~Q(by_text__search=asked.text)).allow_scan()
                    found = [one for one in records if not asked.test(one)]
            wanted = sorted(one.id for one in found)
            counts["found"] += len(wanted)
            counts["scans"] += query.explain().full_scan
            assert sorted(one.id for one in query) == wanted, (number, asked.text)
            assert query.count() == len(wanted), (number, asked.text)
            assert query.exists() is bool(wanted), (number, asked.text)
        assert counts["scans"] <= queries // 4
        assert db.check().ok
    return counts


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_searches_find_what_the_words_say(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/notes"
    server = request.node.callspec.params.get("_server_stores")
    queries = QUERIES.get(server, OTHERS) if engine == "memory" else OTHERS
    counts = check_queries(url, SEED, queries)
    assert counts["found"] > queries


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_twenty_thousand_drawn_searches_find_what_the_words_say(seed: int):
    check_queries("memory://", seed, 200)
