"""Inserts of several processes by the time of a flush: ``python -m benchmarks.postgres flushes [SECONDS] [ROUNDS]``.

It needs gcc and Debian's PostgreSQL 15 (``.ci/servers`` installs both), and starts a server of its own, whose data are
in memory and whose flushes are made longer by a preloaded library. The columns take turns in each round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.postgres.sessions import SCHEMA
from benchmarks.postgres.worker import Kind, Side
from kvmodels import Database

PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")
IN_MEMORY: Final = Path("/dev/shm")
START_S: Final = 30

SLOWER_MS: Final = (0, 2, 10)
PROCESSES: Final = (1, 4, 8)
SECONDS: Final = 2.0
ROUNDS: Final = 5
TASKS: Final = 64


class Writers(NamedTuple):
    """One column: a library, its callers in each process, and the setting of the store of kvmodels."""

    title: str
    library: str
    kind: Kind = "threads"
    callers: int = 1
    durable_reads: bool = False


COLUMNS: Final = (
    Writers("kvmodels, durable reads", "kvmodels", durable_reads=True),
    Writers("kvmodels", "kvmodels"),
    Writers("kvmodels, 64 tasks", "kvmodels", "tasks", TASKS),
    Writers("django", "django"),
    Writers("psycopg", "psycopg"),
)


def _owner() -> list[str]:
    """Return the beginning of a command that runs as another user for root, whose server PostgreSQL refuses to be."""
    return [] if os.geteuid() else ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@contextmanager
def slow_server(slower_ms: int) -> Iterator[str]:
    """Start a server whose flushes take so much longer, and return its URL."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        folder = Path(name)
        library = folder / "slow_flush.so"
        source = Path(__file__).with_name("slow_flush.c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        folder.chmod(0o777)
        plain = {"PATH": os.environ["PATH"], "HOME": name}
        options = ["-D", str(folder / "data"), "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run([*_owner(), PROGRAMS / "initdb", *options], check=True, stdout=subprocess.DEVNULL, env=plain)
        settings = ["listen_addresses=", f"unix_socket_directories={name}", "max_connections=200", "max_wal_size=4GB"]
        server = subprocess.Popen(
            [*_owner(), PROGRAMS / "postgres", "-D", folder / "data", *(f"--{one}" for one in settings)],
            env={**plain, "LD_PRELOAD": str(library), "SLOW_US": str(slower_ms * 1_000)},
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + START_S
            while subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", name], check=False).returncode:
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.1)
            yield f"postgresql://postgres@/postgres?host={name}"
        finally:
            server.terminate()
            server.wait()


def rates_of(url: str, processes: int, seconds: float, rounds: int) -> list[float]:
    """Return the median of each column, in inserts a second of so many processes."""
    environment = {**os.environ, "KVMODELS_BENCHMARK_URL": url}
    sides = [Side(column.library, column.kind, processes, environment) for column in COLUMNS]
    rates = [list[float]() for _ in COLUMNS]
    for number in range(rounds + 1):
        for column, side, found in zip(COLUMNS, sides, rates, strict=True):
            if column.library == "kvmodels":
                schema = SCHEMA.format(library="kvmodels")
                Database(url, schema=schema, durable_reads=column.durable_reads).close()
            result = side.run("insert", column.callers, seconds if number else seconds / 2)
            if number:  # the first round warms up
                found.append(result.done / result.seconds)
    for side in sides:
        side.end()
    return [statistics.median(found) for found in rates]


def compare(stores: Callable[[str], AbstractContextManager[None]], seconds: float, rounds: int) -> None:
    """Print the table; ``stores``: makes the records of every side on a server."""
    print("| flush | processes | " + " | ".join(column.title for column in COLUMNS) + " |")
    print("| --- | --- |" + " --- |" * len(COLUMNS), flush=True)
    for slower_ms in SLOWER_MS:
        with slow_server(slower_ms) as url, stores(url):
            for processes in PROCESSES:
                cells = [
                    f"{rate:,.0f} ({processes * column.callers * 1_000 / rate:,.1f} ms)"
                    for column, rate in zip(COLUMNS, rates_of(url, processes, seconds, rounds), strict=True)
                ]
                print(f"| {slower_ms} ms longer | {processes} | " + " | ".join(cells) + " |", flush=True)
