"""Operations a second of 64 tasks on a PostgreSQL server, beside pooled psycopg with tables made by hand.

``python -m benchmarks.postgres_tasks postgresql://user@host/database``. It makes a schema for each side, and drops both
in the end. The sides take turns, and the median of the rounds is shown.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg

from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey, Unique

TASKS: Final = 64
CONNECTIONS: Final = 10
RECORDS: Final = 2_000
CITIES: Final = 100
PAGE: Final = 20
ROUND_S: Final = 1.0
ROUNDS: Final = 5

KVMODELS: Final = "kvmodels_tasks"
BY_HAND: Final = "kvmodels_tasks_by_hand"

_TABLE: Final = (
    "CREATE TABLE people (id int8 PRIMARY KEY, email text UNIQUE, city text, name text)",
    "CREATE INDEX ON people (city, id)",
)
_SELECT: Final = "SELECT id, email, city, name FROM people WHERE "

Operation = Callable[[int], Awaitable[object]]


class BenchmarkPerson(KvModel, collection="people"):
    """The record of both sides."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    name: str = "Ada"


def person(number: int) -> BenchmarkPerson:
    """Return the record of a number."""
    return BenchmarkPerson(id=number, email=f"{number}@example.org", city=f"city {number % CITIES}")


class PooledPsycopg:
    """A pool of connections that each carry out one statement at a time."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[psycopg.AsyncConnection[tuple[Any, ...]]] = asyncio.Queue()

    async def open(self, url: str) -> None:
        """Open every connection."""
        for _ in range(CONNECTIONS):
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0)
            await connection.execute(f"SET search_path = {BY_HAND}".encode())
            self._free.put_nowait(connection)

    async def read(self, statement: str, *parameters: object) -> list[BenchmarkPerson]:
        """Return the records of a statement."""
        connection = await self._free.get()
        try:
            rows = await (await connection.execute(statement.encode(), parameters)).fetchall()
        finally:
            self._free.put_nowait(connection)
        return [BenchmarkPerson(id=row[0], email=row[1], city=row[2], name=row[3]) for row in rows]

    async def insert(self, one: BenchmarkPerson) -> None:
        """Insert one record."""
        connection = await self._free.get()
        try:
            await connection.execute(
                "INSERT INTO people VALUES (%s, %s, %s, %s)", (one.id, one.email, one.city, one.name)
            )
        finally:
            self._free.put_nowait(connection)

    async def close(self) -> None:
        """Close every connection."""
        while not self._free.empty():
            await self._free.get_nowait().close()


def by_hand(pool: PooledPsycopg) -> dict[str, Operation]:
    """Return the operations of the tables made by hand."""
    numbers = itertools.count(RECORDS)
    return {
        "get": lambda at: pool.read(f"{_SELECT} id = %s", at % RECORDS),
        "unique get": lambda at: pool.read(f"{_SELECT} email = %s", person(at % RECORDS).email),
        "page": lambda at: pool.read(f"{_SELECT} city = %s ORDER BY id LIMIT {PAGE}", person(at).city),
        "insert": lambda _: pool.insert(person(next(numbers))),
    }


def by_kvmodels(db: AsyncDatabase) -> dict[str, Operation]:
    """Return the operations of this library."""
    people, numbers = db[BenchmarkPerson], itertools.count(RECORDS)

    async def page(at: int) -> list[BenchmarkPerson]:
        return [one async for one in people.filter(city=person(at).city)[:PAGE]]

    return {
        "get": lambda at: people.get(at % RECORDS),
        "unique get": lambda at: people.get(email=person(at % RECORDS).email),
        "page": page,
        "insert": lambda _: people.insert(person(next(numbers))),
    }


async def rate(operation: Operation) -> float:
    """Return how many operations a second all tasks together complete."""
    done, end = 0, time.perf_counter() + ROUND_S

    async def work(at: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await operation(at)
            at += TASKS
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*(work(at) for at in range(TASKS)))
    return done / (time.perf_counter() - begun)


async def measure(url: str) -> None:
    """Print the rates of both sides."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
        await admin.execute(f"CREATE SCHEMA {BY_HAND}; SET search_path = {BY_HAND}".encode())
        try:
            for statement in _TABLE:
                await admin.execute(statement.encode())
            pool = PooledPsycopg()
            await pool.open(url)
            async with AsyncDatabase(url, models=[BenchmarkPerson], schema=KVMODELS) as db:
                await db[BenchmarkPerson].bulk_create([person(number) for number in range(RECORDS)])
                for number in range(RECORDS):
                    await pool.insert(person(number))
                await _compare(by_hand(pool), by_kvmodels(db))
            await pool.close()
        finally:
            await admin.execute(f"DROP SCHEMA IF EXISTS {BY_HAND}, {KVMODELS} CASCADE".encode())


async def _compare(by_hand: dict[str, Operation], by_kvmodels: dict[str, Operation]) -> None:
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name in by_hand:
            for side, operations in (("psycopg", by_hand), ("kvmodels", by_kvmodels)):
                rates.setdefault((name, side), []).append(await rate(operations[name]))
    for name in by_hand:
        psycopg_rate, kvmodels_rate = (statistics.median(rates[name, side]) for side in ("psycopg", "kvmodels"))
        print(f"{name:12} psycopg {psycopg_rate:8,.0f}/s   kvmodels {kvmodels_rate:8,.0f}/s")


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1]))
