"""Write many records to a Parquet file, beside ``values().to_list()``: ``python -m benchmarks.tables [records]``.

Rules of this module: the growth of memory is that of the whole process, from after the imports and one small file to
the end of the large one, so what pyarrow allocates counts too. The list is made afterwards, because it would raise the
peak.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey

RECORDS = 1_000_000
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Order(KvModel, collection="orders"):
    """An order of a shop, with a field of each common type."""

    id: PrimaryKey[int]
    customer: Indexed[str]
    at: datetime
    price: Decimal = Field(max_digits=8, decimal_places=2)
    quantity: int
    paid: bool


class Figures(NamedTuple):
    """The figures of one file.

    Attributes:
        rows: the records in the file.
        seconds: the time to write it.
        growth: by how much the peak of the memory of the process rose meanwhile, in MB.
        list_seconds: the time of ``values().to_list()``.
    """

    rows: int
    seconds: float
    growth: float
    list_seconds: float


def peak() -> float:
    """Return the peak of the memory of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1_000


def _orders(records: int) -> Iterator[Order]:
    for number in range(records):
        yield Order(
            id=number,
            customer=f"customer {number % 1_000}",
            at=BEGINNING + timedelta(seconds=number),
            price=Decimal(number % 100_000) / 100,
            quantity=number % 7,
            paid=number % 2 == 0,
        )


def measured(records: int) -> Figures:
    """Fill a SQLite file, and return the figures of its Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/orders.db"
        with Database(database, models=[Order]) as db:
            db[Order].bulk_create(_orders(records), batch_size=5_000, results=False)
        with Database(database, models=[Order], readonly=True) as db:
            orders = db[Order]
            orders[:10].to_parquet(io.BytesIO())
            before, start = peak(), time.perf_counter()
            rows = orders.to_parquet(f"{folder}/orders.parquet")
            seconds, growth = time.perf_counter() - start, peak() - before
            start = time.perf_counter()
            orders.values().to_list()
            return Figures(rows, seconds, growth, time.perf_counter() - start)


def shown(figures: Figures) -> str:
    """Return the figures as text."""
    return (
        f"{figures.rows:,} rows in {figures.seconds:.1f} s, {figures.growth:.0f} MB of growth; "
        f"values().to_list() in {figures.list_seconds:.1f} s: {figures.list_seconds / figures.seconds:.2f} of its speed"
    )


if __name__ == "__main__":
    print(shown(measured(int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS)))
