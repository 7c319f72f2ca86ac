"""Calls a second of one caller on every engine: ``python -m benchmarks.engines [ROUNDS]``.

It starts the servers that the tests use, on this machine: PostgreSQL 18, etcd 3.4.23 with one and with three nodes, and
``kvmodels serve`` on a store in SQLite for KV Connect. All of them wait for the disk in each commit, except memory. In
each round the engines take turns, row by row; the medians of the rounds are shown, as a table of the documentation.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from tests.etcd.server import free_port, own_cluster
from tests.postgres.server import own_server

ROUNDS: Final = 5
ROUND_S: Final = 0.5
RECORDS: Final = 1_000
BATCH: Final = 10
ACCESS_TOKEN: Final = "the-token-of-the-benchmark"
SERVER_S: Final = 60
"""Seconds that a call may take, the first of which waits until the server listens."""

Call = Callable[[int], object]


class EnginePerson(KvModel, collection="people"):
    """The record of the benchmark."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]


def person(number: int) -> EnginePerson:
    """Return the record of a number."""
    return EnginePerson(id=number, email=f"{number}@example.org", city=f"city {number % 25}")


def rows_of(db: Database) -> dict[str, Call]:
    """Return the calls that are measured, each of a number that rises."""
    people = db[EnginePerson]
    return {
        "get": lambda n: people.get(n % RECORDS),
        "get by a unique value": lambda n: people.get(email=f"{n % RECORDS}@example.org"),
        "insert": lambda n: people.insert(person(RECORDS + n)),
    }


def filled(url: str, **options: Any) -> Database:
    """Return a new store with records in it."""
    db = Database(url, models=[EnginePerson], **options)
    for first in range(0, RECORDS, BATCH):
        db[EnginePerson].bulk_create([person(number) for number in range(first, first + BATCH)])
    return db


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run ``kvmodels serve`` on a new store, and give its URL."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "kvmodels", "serve", str(folder / "served.db"), "--create", "--addr", address]
    process = subprocess.Popen(
        [*command, "--allow-model-writes"],
        env={**os.environ, "DENO_KV_ACCESS_TOKEN": ACCESS_TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def stores() -> Iterator[dict[str, Database]]:
    """Make a store of each engine, and end their servers afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(own_server("postgres"))
        one, three = (stack.enter_context(own_cluster(size)) for size in (1, 3))
        connect = stack.enter_context(served(folder))
        made = {
            "memory": filled("memory://"),
            "SQLite": filled(str(folder / "app.db")),
            "LMDB": filled(f"lmdb:////{folder / 'app.lmdb'}"),
            "PostgreSQL": filled(postgres.url),
            "etcd, one node": filled(one.url("app")),
            "etcd, three nodes": filled(three.url("app")),
            "KV Connect": filled(connect, access_token=ACCESS_TOKEN, busy_timeout=SERVER_S),
        }
        for db in made.values():
            stack.callback(db.close)
        yield made


def rate(call: Call, numbers: Iterator[int], seconds: float) -> float:
    """Return how many calls are made in a second."""
    begun = now = time.perf_counter()
    done = 0
    while now < begun + seconds:
        call(next(numbers))
        done += 1
        now = time.perf_counter()
    return done / (now - begun)


def measure(rounds: int) -> None:
    """Print the table."""
    with stores() as made:
        rows = {engine: rows_of(db) for engine, db in made.items()}
        print("| | " + " | ".join(made) + " |\n| --- |" + " --- |" * len(made), flush=True)
        for row in next(iter(rows.values())):
            numbers = {engine: itertools.count() for engine in made}
            rates: dict[str, list[float]] = {engine: [] for engine in made}
            for number in range(rounds + 1):
                for engine in made:
                    found = rate(rows[engine][row], numbers[engine], ROUND_S)
                    if number:  # the first round warms up
                        rates[engine].append(found)
            medians = [statistics.median(found) for found in rates.values()]
            print(f"| {row} | " + " | ".join(f"{median:,.0f}" for median in medians) + " |", flush=True)
        assert all(db.check().ok for db in made.values())


if __name__ == "__main__":
    measure(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
