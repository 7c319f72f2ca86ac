"""An index build over many records, alone and beside clients: its time, and the latency of gets and of writes.

    python -m benchmarks.builds STORE [--records 200000] [--clients 3] [--seconds 10]

``STORE`` is the URL of a store without this collection. Each client is a process that calls ``get`` and ``patch`` of
random records in turns, first for some seconds without a build, then beside one. Both indexes are plain: the first one
is built alone, the second one beside the clients.

Rules of this module: after each build, the entries of one value are counted, and a wrong number ends the run.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from benchmarks.processes import ROOT
from kvmodels import Database, Indexed, KvModel, PrimaryKey

COLORS: Final = 100
BATCH: Final = 5_000


class OldThing(KvModel, collection="things"):
    """The model before both builds."""

    id: PrimaryKey[int]
    color: str
    shape: str
    name: str
    hits: int = 0


class NewerThing(KvModel, collection="things"):
    """The model that needs the first build."""

    id: PrimaryKey[int]
    color: Indexed[str]
    shape: str
    name: str
    hits: int = 0


class NewestThing(KvModel, collection="things"):
    """The model that needs the second build."""

    id: PrimaryKey[int]
    color: Indexed[str]
    shape: Indexed[str]
    name: str
    hits: int = 0


class Latencies(NamedTuple):
    """Seconds of each get and of each write of a client."""

    gets: list[float]
    writes: list[float]

    def shown(self) -> str:
        """Return the medians and the 99th percentiles in milliseconds."""
        return ", ".join(
            f"{name} {1e3 * statistics.median(took):.2f} / {1e3 * _p99(took):.2f} ms ({len(took)})"
            for name, took in zip(("get", "patch"), self, strict=True)
        )


def _p99(took: Sequence[float]) -> float:
    return sorted(took)[len(took) * 99 // 100]


def opened(store: str, options: dict[str, Any], model: type[KvModel]) -> Database:
    """Return the store, opened with one of the models."""
    return Database(store, models=[model], **options)


def fill(db: Database, records: int) -> None:
    """Store the records."""
    for start in range(0, records, BATCH):
        numbers = range(start, min(start + BATCH, records))
        db[OldThing].bulk_create(
            OldThing(id=n, color=f"color {n % COLORS}", shape=f"shape {n % COLORS}", name=f"thing number {n}")
            for n in numbers
        )


def build(store: str, options: dict[str, Any], model: type[KvModel], records: int) -> float:
    """Apply the release of a model; return the seconds that it took."""
    with opened(store, options, model) as db:
        began = time.perf_counter()
        db.apply()
        took = time.perf_counter() - began
        field = "color" if model is NewerThing else "shape"
        found = db[model].filter(**{field: f"{field} 7"}).count()
        assert found == len(range(7, records, COLORS)), found
    return took


def client(store: str, options: dict[str, Any], records: int) -> None:
    """Get and patch random records from each line of standard input to the next one, and print the latencies."""
    with opened(store, options, NewestThing) as db:
        things, chance = db[NewestThing], random.Random()
        print("ready", flush=True)
        while sys.stdin.readline():
            seen = Latencies([], [])
            while not select.select([sys.stdin], [], [], 0)[0]:
                began = time.perf_counter()
                things.get(chance.randrange(records))
                between = time.perf_counter()
                things.patch(chance.randrange(records), hits=chance.randrange(1_000_000))
                seen.gets.append(between - began)
                seen.writes.append(time.perf_counter() - between)
            sys.stdin.readline()
            print(json.dumps(seen), flush=True)


class Clients:
    """Processes that get and patch records.

    Args:
        arguments: of each client.
        count: how many there are.
    """

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        command = [sys.executable, "-m", "benchmarks.builds", *arguments, "--client"]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(count)
        ]
        self._lines()

    def start(self) -> None:
        """Let all of them run."""
        self._signal()

    def stop(self) -> Latencies:
        """Let all of them stop, and return their latencies."""
        self._signal()
        found = [json.loads(line) for line in self._lines()]
        return Latencies(*([second for one in found for second in one[at]] for at in (0, 1)))

    def _signal(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def _lines(self) -> list[str]:
        lines: list[str] = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("a client has ended")
            lines.append(line)
        return lines

    def close(self) -> None:
        """End all of them."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def measure(arguments: Sequence[str], given: argparse.Namespace, options: dict[str, Any]) -> None:
    """Print the time of both builds, and the latencies of the clients without and beside one."""
    store, records = given.store, given.records
    with opened(store, options, OldThing) as db:
        fill(db, records)
    alone = build(store, options, NewerThing, records)
    print(f"alone: {alone:.2f} s, {1e6 * alone / records:.1f} us for each record", flush=True)
    if not given.clients:
        return
    clients = Clients(arguments, given.clients)
    try:
        clients.start()
        time.sleep(given.seconds)
        print(f"without a build: {clients.stop().shown()}", flush=True)
        clients.start()
        beside = build(store, options, NewestThing, records)
        print(f"beside {given.clients} clients: {beside:.2f} s, {1e6 * beside / records:.1f} us for each record")
        print(f"beside the build: {clients.stop().shown()}", flush=True)
    finally:
        clients.close()


def main(arguments: Sequence[str]) -> None:
    """Measure, or be a client."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.builds", description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--schema", help="of a store on PostgreSQL")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the clients without a build")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    options = {} if given.schema is None else {"schema": given.schema}
    if given.client:
        client(given.store, options, given.records)
    else:
        measure(arguments, given, options)


if __name__ == "__main__":
    main(sys.argv[1:])
