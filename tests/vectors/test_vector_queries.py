"""Ranked queries by vectors return what numpy finds over all records, on every engine and with every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.query.plans import found_of
from tests.vectors.queries import METRICS, STORES, Doc, Drawn, check_answer, docs, drawn, expected, vector
from tests.worlds import MEMORY_AND_IN_TEST_SERVERS, in_the_soak

RECORDS = 40
SEED = 20261129
QUERIES: dict[str | None, int] = {None: 40, "connect": 20, "connect-own": 20}
"""The number of queries for stores in memory here, and for the servers whose reads take longest."""
OTHERS = 40
ENOUGH_CHECKS = 1_000
"""A store that takes fewer checks in a commit takes small batches, and no commit of a transaction with many queries."""
MANY = 100
"""The number of results that are compared with those of each store."""


def ranked(repository: Any, asked: Drawn, by: str) -> Any:
    """The query of an index."""
    query = repository.similar(by, asked.origin)
    return query if asked.condition is None else query.filter(asked.condition)


def places(hits: Iterable[Any]) -> list[tuple[float, int]]:
    """The distance and the key of each result."""
    return [(hit.distance, hit.record.id) for hit in hits]


def check_queries(db: Database, records: list[Doc], chance: Random, queries: int) -> Counter[str]:
    """Ask a store drawn queries, and compare slices, numbers and the existence of results.

    An index of each store without a group, whose records then are tested, has the very same results.
    """
    counts = Counter[str]()
    for _ in range(queries):
        asked = drawn(chance, records)
        wanted = expected(asked, records)
        query = ranked(db[Doc], asked, asked.by)
        start, stop = sorted(chance.sample(range(min(len(records), 900)), 2))
        stop = chance.choice([1, 3, 10, 30, stop])
        start = min(start, stop)
        hits = query[:stop].to_list()
        check_answer(asked, hits, wanted[:stop], records)
        assert places(query[start:stop]) == places(hits[start:])
        for store in STORES:
            others = ranked(db[Doc], asked, f"{asked.metric}_{store}")[: min(stop, MANY)]
            assert places(others) == places(hits[:MANY]), (asked, store)
        assert query.exists() is bool(wanted)
        assert query.count() == len(wanted)
        counts[asked.by] += 1
        counts["found"] += len(wanted)
        counts["with keys"] += found_of(query[:1].explain()) is not None
        counts[share_of(len(wanted), records)] += 1
    return counts


SHARES = (0.002, 0.01, 0.1, 0.99, 1.0)
"""Limits of the share of the records with vectors that a query finds; a query of none counts for no limit."""


def share_of(found: int, records: list[Doc]) -> str:
    """The least limit of the share that was found, as a name of what was counted."""
    share = found / sum(one.embedding is not None for one in records)
    return f"at most {min(limit for limit in SHARES if share <= limit):.1%}" if found else "none"


def url_of(engine: str, folder: Path) -> str:
    """The address of a new store."""
    return "memory://" if engine == "memory" else f"{engine}:///{folder}/docs"


def filled(db: Database, chance: Random, number: int) -> list[Doc]:
    """Store records in batches that every engine takes, and return them."""
    records = docs(chance, number)
    size = 3 if number <= RECORDS or db._engine.limits.max_checks < ENOUGH_CHECKS else 500
    for batch in range(0, number, size):
        db[Doc].bulk_create(records[batch : batch + size])
    return records


@pytest.mark.parametrize("engine", MEMORY_AND_IN_TEST_SERVERS)
def test_drawn_queries_find_what_numpy_finds(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    """With the further runs of this module, these are about 300 queries over all engines; the soak draws 2,000."""
    server = request.node.callspec.params.get("_server_stores")
    chance = Random(SEED)
    print(f"seed {SEED}")
    with Database(url_of(engine, quick_folder), models=[Doc]) as db:
        records = filled(db, chance, RECORDS)
        counts = check_queries(db, records, chance, QUERIES.get(server, OTHERS))
        check_stores(db, records, chance, 3)
    assert counts["found"] > counts["with keys"] > 3


class Undone(Exception):
    """Raised in a transaction that is not to be committed."""


def write_in(transaction: Any, chance: Random, records: dict[int, Doc]) -> None:
    """Write a new record, another vector, other values or the removal of a record, in the store and in a dict."""
    repository, key = transaction[Doc], chance.randrange(RECORDS + 10)
    (other,) = docs(chance, 1)
    values: dict[str, Any] = {"rank": chance.randrange(RECORDS), "size": other.size}
    if key not in records:
        records[key] = other.model_copy(update={"id": key, **values})
        repository.insert(records[key].model_copy())
    elif chance.random() < 0.2:
        del records[key]
        assert repository.remove(key)
    else:
        groups: dict[str, Any] = {"lang": other.lang, "tags": other.tags}
        vectors: list[dict[str, Any]] = [{"embedding": other.embedding}, {"embedding": None}]
        changes = chance.choice([*vectors, groups, values])
        records[key] = records[key].model_copy(update=changes)
        repository.patch(key, **changes)


@pytest.mark.parametrize("rounds", [4, *in_the_soak(60)])
def test_drawn_queries_in_transactions_find_what_numpy_finds(rounds: int):
    """Over the records of the store with the writes of the transaction, of which every other one is undone.

    All are undone where a commit may not check what so many queries have read.
    """
    chance = Random(SEED)
    with Database("memory://", models=[Doc]) as db:
        always = db._engine.limits.max_checks < ENOUGH_CHECKS
        records = {one.id: one for one in filled(db, chance, RECORDS)}
        for number in range(rounds):
            is_undone = always or number % 2 > 0
            changed = dict(records)
            with suppress(Undone), db.transaction() as transaction:
                for _ in range(4):
                    write_in(transaction, chance, changed)
                    asked = drawn(chance, [*changed.values()])
                    wanted = expected(asked, [*changed.values()])
                    for by in {asked.by, f"{asked.metric}_int8"}:
                        query = ranked(transaction[Doc], asked, by)
                        check_answer(asked, query[:8].to_list(), wanted[:8], changed)
                        assert query.count() == len(wanted)
                if is_undone:
                    raise Undone
            records = records if is_undone else changed
        assert {one.id: one for one in db[Doc]} == records
        assert db.check().ok


def check_stores(db: Database, records: list[Doc], chance: Random, origins: int) -> None:
    """Require the very same results of every store."""
    for _ in range(origins):
        origin = vector(chance, [one.embedding for one in records if one.embedding is not None])
        for metric in METRICS:
            hits: list[Any] = [db[Doc].similar(f"{metric}_{store}", origin)[:12].to_list() for store in STORES]
            assert hits[0] == hits[1] == hits[2]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("engine", "seed"), [*(("memory", seed) for seed in range(4)), *(("sqlite", seed) for seed in (4, 5)), ("lmdb", 6)]
)
def test_thousands_of_drawn_queries_over_many_records_find_what_numpy_finds(
    engine: str, seed: int, quick_folder: Path, request: pytest.FixtureRequest
):
    """2,000 in memory here, and a quarter of them on each server and with small limits, where records are fewer."""
    chance = Random(seed)
    parameters = request.node.callspec.params
    is_further = parameters.get("_server_stores") is not None or parameters.get("_store_limits") is not None
    with Database(url_of(engine, quick_folder), models=[Doc]) as db:
        records = filled(db, chance, 600 if is_further else 2_000)
        counts = check_queries(db, records, chance, 125 if is_further else 500)
        check_stores(db, records, chance, 10 if is_further else 100)
    assert counts["with keys"] > 25
    print(dict(counts))
    assert is_further or all(counts[f"at most {share:.1%}"] for share in SHARES), counts
