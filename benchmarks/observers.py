"""Microseconds of a get and an insert without an observer, with counters, and with OpenTelemetry without a provider.

``python -m benchmarks.observers`` runs all of them in turn, in memory and on SQLite, and shows the medians, and the
number of bytecode instructions of one call, which does not depend on the load of the machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

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

    def instructions(self) -> tuple[int, int]:
        """Return the numbers of bytecode instructions of a get and of an insert in this thread."""
        repository = self._db[ObservedRecord]
        return _instructions(lambda: repository.get(7)), _instructions(self._insert_one)

    def _insert_one(self) -> None:
        self._next += 1
        self._db[ObservedRecord].insert(record(self._next))

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def _instructions(call: Callable[[], object]) -> int:
    """Return the number of bytecode instructions that one call executes."""
    number = 0

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal number
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        number += event == "opcode"
        return count

    call()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(None)
    return number


def measure(rounds: int = ROUNDS, calls: int = CALLS) -> list[tuple[str, str, float, float, tuple[int, int]]]:
    """Return engine, observer, and the median microseconds and the instructions of a get and an insert, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            (engine, name): Side(url(Path(folder), name), observe)
            for engine, url in _URLS.items()
            for name, observe in OBSERVERS.items()
        }
        for _ in range(rounds):
            for side in sides.values():
                side.run(calls)
        counted = {place: side.instructions() for place, side in sides.items()}
        for side in sides.values():
            side.close()
    return [
        (*place, statistics.median(side.gets) * 1e6, statistics.median(side.inserts) * 1e6, counted[place])
        for place, side in sides.items()
    ]


_URLS: Final[dict[str, Callable[[Path, str], str]]] = {
    "memory": lambda _, __: "memory://",
    "sqlite": lambda folder, name: str(folder / f"{name}.db"),
}


def main() -> None:
    """Print the table; a first argument is the number of rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for engine, name, get, insert, (get_steps, insert_steps) in measure(rounds):
        steps = f"instructions {get_steps:5,} and {insert_steps:6,}"
        print(f"{engine:<8}{name:<28}get {get:6.1f} us   insert {insert:6.1f} us   {steps}")


if __name__ == "__main__":
    main()
