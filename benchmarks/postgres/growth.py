"""The cost of get and page with 10,000 and 1,000,000 records, and of writes beside a snapshot 20,000 commits old.

Rules of this module: the sizes take turns, with the same number of calls in each turn, and the median of the rounds is
shown. The snapshot is a transaction that has read and stays open.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

import psycopg

from benchmarks.postgres.kvmodels_side import Person, fill, visit
from benchmarks.postgres.sessions import PAGE, city, fields
from kvmodels import AsyncDatabase, Database

SIZES: Final = (10_000, 1_000_000)
SCHEMA: Final = "benchmark_of_{size}"
CALLS: Final = 500
ROUNDS: Final = 5
AGE: Final = 20_000
"""Commits since the snapshot was opened."""
WRITERS: Final = 64


def rates(db: Database, size: int, number: int) -> tuple[float, float]:
    """Return how many gets and pages a second one caller reads."""
    people = db[Person]
    keys = [1 + (number * 7_919 + at * 104_729) % (size - 1) for at in range(CALLS)]
    begun = time.perf_counter()
    for key in keys:
        assert people.get(key).id == key
    between = time.perf_counter()
    for key in keys:
        assert len(people.filter(city=city(key))[:PAGE].to_list()) == PAGE
    return CALLS / (between - begun), CALLS / (time.perf_counter() - between)


def compare(url: str) -> None:
    """Print the rates of both sizes, and those beside an old snapshot."""
    schemas = [SCHEMA.format(size=size) for size in SIZES]
    with psycopg.connect(url, autocommit=True) as admin:
        try:
            for size, schema in zip(SIZES, schemas, strict=True):
                fill(url, schema, range(size))
            admin.execute("VACUUM ANALYZE")
            _compare_sizes(url, schemas)
            asyncio.run(_compare_ages(url, schemas[0]))
        finally:
            admin.execute(f"DROP SCHEMA IF EXISTS {', '.join(schemas)} CASCADE".encode())


def _compare_sizes(url: str, schemas: list[str]) -> None:
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    for number in range(ROUNDS):
        for size, schema in zip(SIZES, schemas, strict=True):
            with Database(url, models=[Person], schema=schema) as db:
                rates(db, size, number)  # connects and prepares
                found[size].append(rates(db, size, number + ROUNDS))
    for at, row in enumerate(("get", "page of 20")):
        small, large = (statistics.median([pair[at] for pair in found[size]]) for size in SIZES)
        print(f"| {row} | {small:,.0f} | {large:,.0f} | {small / large:.2f} |", flush=True)


async def _commits(db: AsyncDatabase, first: int, number: int) -> float:
    """Return how many commits a second the writers complete: half insert, half change a record."""
    people, numbers = db[Person], iter(range(first, first + number))

    async def work() -> None:
        for one in numbers:
            await (people.insert(Person(**fields(one))) if one % 2 else people.mutate(one % 1_000, visit))

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(WRITERS)))
    return number / (time.perf_counter() - begun)


async def _compare_ages(url: str, schema: str) -> None:
    first = 100_000_000
    async with AsyncDatabase(url, models=[Person], schema=schema) as db:
        with psycopg.connect(url) as snapshot:
            snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot.execute(f"SELECT count(*) FROM {schema}.commits".encode())
            young = [await _commits(db, first + number * 400, 400) for number in range(10)]
            await _commits(db, first + 10_000, AGE)
            old = [await _commits(db, first + 100_000 + number * 400, 400) for number in range(10)]
    before, after = statistics.median(young), statistics.median(old)
    print(f"| commits beside a snapshot | {before:,.0f} | {after:,.0f} | {before / after:.2f} |")
