"""Milliseconds of processor time of the pages of the admin, in a small and in a large store on SQLite.

``python -m benchmarks.admin`` fills stores of 10,000 and 1,000,000 records, or of the sizes that are given, asks for
each page in turn, and prints the medians as a table. Processor time is that of the whole request, from the application
to the rendered page, and depends less on the load of the machine than the time on the clock.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.testclient import TestClient

from benchmarks.table import table
from kvmodels import Database, Index, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.ext.admin import Admin

SIZES: Final = (10_000, 1_000_000)
ROUNDS: Final = 15
BATCH: Final = 10_000
COUNTRIES: Final = ("CH", "DE", "FR", "IT", "JP", "NL", "UA", "US")
FIRST_DAY: Final = date(2020, 1, 1)


class Customer(KvModel, collection="customers"):
    """The record that the pages show."""

    id: PrimaryKey[int]
    email: Unique[str]
    country: Indexed[str]
    joined: date
    name: str
    note: str = ""

    class Meta:
        """One order for the customers of a country."""

        indexes = (Index("country", "-joined"),)


def customer(number: int) -> Customer:
    """Return the record of a number."""
    return Customer(
        id=number,
        email=f"{number:07}@example.org",
        country=COUNTRIES[number % len(COUNTRIES)],
        joined=FIRST_DAY + timedelta(days=number * 7 % 2_000),
        name=f"Customer {number}",
    )


def paths(records: int) -> dict[str, str]:
    """Return the pages by their titles."""
    middle = records // 2
    listed = "records/customers"
    return {
        "home": "",
        "list, first page": listed,
        "list, from the middle": f"{listed}?id__gte={middle}",
        "list by an index, newest first": f"{listed}?country=UA&order_by=-joined",
        "scan of 500 records": f"{listed}?name__icontains=er+{middle}&order_by=-id",
        "search": f"{listed}?search={middle:07}",
        "record": f"{listed}/record?id={middle}",
        "form of a record": f"{listed}/edit?id={middle}",
        "keys of the collection": "keys?prefix=%5B%22customers%22%5D",
        "keys from the middle": f"keys?prefix=%5B%22customers%22%5D&after=%5B%22customers%22,{middle}%5D",
        "query with its plan": "query?collection=customers&lookups=country%3DUA+order_by%3D-joined",
        "indexes": "indexes",
        "schema": "schema",
        "check": "check",
    }


class Side:
    """One store with its pages, and the measured times of each."""

    def __init__(self, path: Path, records: int) -> None:
        self._db = Database(path, models=[Customer], durability="relaxed")
        for first in range(1, records + 1, BATCH):
            last = min(first + BATCH, records + 1)
            self._db[Customer].bulk_create([customer(number) for number in range(first, last)])
        app = Starlette()
        Admin(self._db, secret_key="benchmark").mount_to(app)
        self._client = TestClient(app)
        self._paths = paths(records)
        self.times: dict[str, list[float]] = {title: [] for title in self._paths}

    def run(self) -> None:
        """Ask for each page once. Raises RuntimeError: a page was not answered."""
        for title, path in self._paths.items():
            began = time.process_time()
            answer = self._client.get(f"/admin/{path}")
            self.times[title].append(time.process_time() - began)
            if answer.status_code != 200:
                raise RuntimeError(f"{path}: {answer.status_code}")

    def close(self) -> None:
        """Close the store."""
        self._client.close()
        self._db.close()


def measure(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return for each page the median milliseconds in the stores of the sizes; the stores take turns."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(Path(folder) / f"{size}.db", size) for size in sizes]
        for side in sides:
            side.run()  # templates are compiled, pages of the files are read
            for taken in side.times.values():
                taken.clear()
        for _ in range(rounds):
            for side in sides:
                side.run()
        for side in sides:
            side.close()
    return {title: [statistics.median(side.times[title]) * 1e3 for side in sides] for title in sides[0].times}


def main() -> None:
    """Print the table; arguments are the numbers of records."""
    sizes = [int(word) for word in sys.argv[1:]] or list(SIZES)
    rows = [[title, *(f"{taken:.1f}" for taken in medians)] for title, medians in measure(sizes).items()]
    print(table(["ms of processor time", *(f"{size:,} records" for size in sizes)], rows))


if __name__ == "__main__":
    main()
