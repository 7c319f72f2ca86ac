"""kvmodels beside raw psycopg, SQLModel and Django on one server: ``python -m benchmarks.postgres URL [ROUNDS]``.

It makes a schema for each side and drops them in the end. Each column has processes of its own. In each round the
columns take turns, row by row, and the median of the rounds is shown. The answers are checked, and so is the number of
contended updates that were stored. ``python -m benchmarks.postgres growth URL`` prints what is in ``growth.py``, and
``python -m benchmarks.postgres contended URL [SECONDS]`` what is in ``contended.py``. With ``flushes [SECONDS]
[ROUNDS]`` instead of the URL it prints what is in ``flushes.py``, on a server of its own.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg

from benchmarks.postgres import contended, flushes, growth
from benchmarks.postgres.kvmodels_side import fill
from benchmarks.postgres.sessions import CONTENDED, RECORDS, ROWS, SCHEMA, TABLE
from benchmarks.postgres.worker import Kind, Side, serve
from kvmodels import Database

URL_VARIABLE: Final = "KVMODELS_BENCHMARK_URL"
ROUNDS: Final = 5
ROUND_S: Final = 1.0
PROCESSES: Final = 4
TASKS: Final = 64
BY_HAND: Final = ("psycopg", "sqlmodel", "django")


class Column(NamedTuple):
    """One column of a table: a library, what its callers are, and how many there are in how many processes."""

    title: str
    library: str
    kind: Kind
    processes: int = 1
    callers: int = 1


TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "one caller": (
        Column("kvmodels", "kvmodels", "threads"),
        Column("kvmodels, async", "kvmodels", "tasks"),
        *(Column(library, library, "threads") for library in BY_HAND),
    ),
    "64 tasks": tuple(Column(library, library, "tasks", callers=TASKS) for library in ("kvmodels", *BY_HAND)),
    "4 processes": tuple(
        Column(library, library, "threads", processes=PROCESSES) for library in ("kvmodels", *BY_HAND)
    ),
}


@contextmanager
def stores(url: str) -> Iterator[None]:
    """Make the records of every side, and remove them in the end."""
    schemas = [SCHEMA.format(library=library) for library in ("kvmodels", *BY_HAND)]
    with psycopg.connect(url, autocommit=True) as admin:
        try:
            for schema in schemas[1:]:
                admin.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {TABLE}".encode())
                admin.execute(
                    "INSERT INTO people SELECT n, n || '@example.org', 'city ' || n % 100, 'Ada', 0"
                    f" FROM generate_series(0, {RECORDS - 1}) n".encode()
                )
            fill(url, schemas[0], range(RECORDS))
            admin.execute("VACUUM ANALYZE")
            yield
        finally:
            admin.execute(f"DROP SCHEMA IF EXISTS {', '.join(schemas)} CASCADE".encode())


def rates_of(columns: Sequence[Column], environment: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Return for each row the median of each column, in operations a second."""
    sides = [Side(column.library, column.kind, column.processes, environment) for column in columns]
    medians: dict[str, list[float]] = {}
    for row in ROWS:
        rates: list[list[float]] = [[] for _ in columns]
        for number in range(rounds + 1):
            for column, side, found in zip(columns, sides, rates, strict=True):
                before = side.visits()
                result = side.run(row, column.callers, ROUND_S if number else ROUND_S / 2)
                if row == "contended_update":
                    assert side.visits() == before + result.done, f"{column.title} has lost an update"
                if number:  # the first round warms up
                    found.append(result.done / result.seconds)
        medians[row] = [statistics.median(found) for found in rates]
    for side in sides:
        side.end()
    return medians


def compare(url: str, rounds: int) -> None:
    """Print the tables."""
    environment = {**os.environ, URL_VARIABLE: url}
    with stores(url):
        for title, columns in TABLES.items():
            print(f"\n| {title} | " + " | ".join(column.title for column in columns) + " |")
            print("| --- |" + " --- |" * len(columns), flush=True)
            for row, medians in rates_of(columns, environment, rounds).items():
                print(f"| {row.replace('_', ' ')} | " + " | ".join(f"{rate:,.0f}" for rate in medians) + " |")


def compare_contended(url: str, seconds: float) -> None:
    """Print what is in ``contended.py``."""
    os.environ[URL_VARIABLE] = url

    def visits(library: str) -> int:
        schema = SCHEMA.format(library=library)
        if library == "kvmodels":
            with Database(url, models=[contended.Tally], schema=schema) as db:
                return db[contended.Tally].get_or_create(id=CONTENDED)[0].visits
        with psycopg.connect(url) as connection:
            found = connection.execute(f"SELECT visits FROM {schema}.people WHERE id = {CONTENDED}".encode()).fetchone()
        assert found is not None
        return int(found[0])

    with stores(url):
        contended.compare(seconds, visits)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [library, "threads" | "tasks" as kind]:
            serve(library, kind, os.environ[URL_VARIABLE])
        case ["caller", library, seconds]:
            contended.work(library, os.environ[URL_VARIABLE], float(seconds))
        case ["contended", url, *rest]:
            compare_contended(url, float(rest[0]) if rest else contended.SECONDS)
        case ["flushes", *rest]:
            seconds, rounds = (*rest, *map(str, (flushes.SECONDS, flushes.ROUNDS)[len(rest) :]))
            flushes.compare(stores, float(seconds), int(rounds))
        case ["growth", url]:
            growth.compare(url)
        case [url, *rest]:
            compare(url, int(rest[0]) if rest else ROUNDS)
        case _:
            sys.exit(__doc__)
