"""Microseconds of a get and an insert without an observer, with counters, and with OpenTelemetry without a provider.

``python -m benchmarks.observers`` runs all of them in turn, in memory and on SQLite, and shows the medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvmodels import Database, Indexed, KvModel, OperationCounters, PrimaryKey, QueryLog, Unique
from kvmodels.ext.opentelemetry import instrument

CALLS: Final = 300
ROUNDS: Final = 15
RECORDS: Final = 1_000


class ObservedRecord(KvModel, collection="observed"):
    """The record that is read and inserted."""

    id: PrimaryKey[int]
    email: Unique[str]
    group: Indexed[int]


def record(number: int) -> ObservedRecord:
    """Return the record of a number."""
    return ObservedRecord(id=number, email=f"{number}@example.org", group=number % 10)


def _observe_nothing(_: Database) -> None: ...


OBSERVERS: Final[dict[str, Callable[[Database], object]]] = {
    "none": _observe_nothing,
    "query log, off": lambda db: db.add_observer(QueryLog()),
    "counters": lambda db: db.add_observer(OperationCounters()),
    "OpenTelemetry, no provider": instrument,
}


class Side:
    """One database with one observer, and its measured rounds."""

    def __init__(self, url: str, observe: Callable[[Database], object]) -> None:
        self._db = Database(url, models=[ObservedRecord], durability="relaxed")
        self._next = RECORDS
        self._db[ObservedRecord].bulk_create([record(number) for number in range(RECORDS)])
        observe(self._db)
        self.gets: list[float] = []
        self.inserts: list[float] = []

    def run(self, calls: int) -> None:
        """Measure one round."""
        repository = self._db[ObservedRecord]
        began = time.perf_counter()
        for number in range(calls):
            repository.get(number % RECORDS)
        between = time.perf_counter()
        for number in range(self._next, self._next + calls):
            repository.insert(record(number))
        self._next += calls
        self.gets.append((between - began) / calls)
        self.inserts.append((time.perf_counter() - between) / calls)

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def measure(rounds: int = ROUNDS, calls: int = CALLS) -> list[tuple[str, str, float, float]]:
    """Return engine, observer, and the median microseconds of a get and of an insert; the sides take turns."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            (engine, name): Side(url(Path(folder), name), observe)
            for engine, url in _URLS.items()
            for name, observe in OBSERVERS.items()
        }
        for _ in range(rounds):
            for side in sides.values():
                side.run(calls)
        for side in sides.values():
            side.close()
    return [
        (engine, name, statistics.median(side.gets) * 1e6, statistics.median(side.inserts) * 1e6)
        for (engine, name), side in sides.items()
    ]


_URLS: Final[dict[str, Callable[[Path, str], str]]] = {
    "memory": lambda _, __: "memory://",
    "sqlite": lambda folder, name: str(folder / f"{name}.db"),
}


def main() -> None:
    """Print the table; a first argument is the number of rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for engine, name, get, insert in measure(rounds):
        print(f"{engine:<8}{name:<28}get {get:6.1f} us   insert {insert:6.1f} us")


if __name__ == "__main__":
    main()
