"""Bookings of one room by eight threads: an exclusion constraint against one guard for the room.

    python -m benchmarks.bookings
    python -m benchmarks.bookings --stores memory sqlite --seconds 3 --rounds 3

Two calendars: a spread one of 20 years, where hardly any two bookings overlap, and a full one of 96 hours, where most
requests are refused because their time is taken. The guard is what one writes without the constraint: a transaction
that takes a guard for the room, looks for bookings that overlap by an index on the start, and stores the booking.

Rules of this module: a request counts when it is stored or refused. At the end of a round no two bookings overlap, or
the run ends. Both ways take turns in each round.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kvmodels import (
    Database,
    ExclusionConstraint,
    ExclusionViolationError,
    Index,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    Transaction,
)

STORES: Final = ("memory", "sqlite")
THREADS: Final = 8
SPREAD: Final = 20 * 365 * 24
FULL: Final = 96
LONGEST: Final = 1
"""The guard looks no further back, which is cheaper than any index of time ranges."""
PATIENT: Final = RetryPolicy(attempts=10_000, deadline_s=60)


class Guarded(KvModel, collection="guarded"):
    """A booking that a guard protects; the times are hours."""

    id: PrimaryKey[int]
    room: str
    starts: int
    ends: int

    class Meta:
        """Its index."""

        indexes = (Index("room", "starts"),)


class Excluded(KvModel, collection="excluded"):
    """A booking that the constraint protects."""

    id: PrimaryKey[int]
    room: str
    starts: int
    ends: int

    class Meta:
        """Its index."""

        indexes = (ExclusionConstraint("starts", "ends", group="room", name="no_overlap"),)


class Counted(NamedTuple):
    """The requests of a round: those stored, and those refused because their time was taken."""

    stored: int
    refused: int

    @property
    def answered(self) -> int:
        """All of them."""
        return self.stored + self.refused


Book = Callable[[int, int, int], bool]
"""Books the room from one hour to another under a key; returns whether the time was free."""


def by_constraint(db: Database) -> Book:
    """Return a function that creates a booking."""

    def book(key: int, starts: int, ends: int) -> bool:
        try:
            db[Excluded].create(id=key, room="A", starts=starts, ends=ends)
        except ExclusionViolationError:
            return False
        return True

    return book


def by_guard(db: Database) -> Book:
    """Return a function that takes a guard, looks, and creates a booking."""

    @db.transactional(retries=10_000)
    def book(tx: Transaction, key: int, starts: int, ends: int) -> bool:
        tx.guard("room", "A")
        if tx[Guarded].filter(room="A", starts__gt=starts - LONGEST, starts__lt=ends, ends__gt=starts).exists():
            return False
        tx[Guarded].create(id=key, room="A", starts=starts, ends=ends)
        return True

    return book


def counted(db: Database, model: type[Guarded | Excluded], book: Book, hours: int, seconds: float) -> Counted:
    """Book with all threads for some seconds, and count."""
    results: list[Counted] = []
    ending = time.perf_counter() + seconds

    def work(number: int) -> None:
        chance, stored, refused = random.Random(number), 0, 0
        while time.perf_counter() < ending:
            starts = chance.randrange(hours)
            if book(THREADS * (stored + refused) + number, starts, starts + 1):
                stored += 1
            else:
                refused += 1
        results.append(Counted(stored, refused))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = Counted(sum(one.stored for one in results), sum(one.refused for one in results))
    taken = sorted(one.starts for one in db[model].all().allow_scan())
    if len(taken) != total.stored or any(one == other for one, other in pairwise(taken)):
        raise SystemExit("a room was booked twice")
    return total


def measured(store: str, hours: int, seconds: float, rounds: int) -> None:
    """Print the requests a second of both ways, and their ratio in each round."""
    found: dict[str, list[float]] = {"guard": [], "constraint": []}
    for number in range(rounds):
        for way in sorted(found, reverse=number % 2 == 0):
            with tempfile.TemporaryDirectory() as folder:
                url = "memory://" if store == "memory" else str(Path(folder) / "store.db")
                with Database(url, models=[Guarded, Excluded], durability="relaxed", retry=PATIENT) as db:
                    is_guard = way == "guard"
                    model, book = (Guarded, by_guard(db)) if is_guard else (Excluded, by_constraint(db))
                    total = counted(db, model, book, hours, seconds)
            found[way].append((total.stored if hours == SPREAD else total.answered) / seconds)
    ratios = [other / one for one, other in zip(found["guard"], found["constraint"], strict=True)]
    rates = {way: statistics.median(rates) for way, rates in found.items()}
    calendar = "spread" if hours == SPREAD else "full"
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{store:<8} {calendar:<8} guard {rates['guard']:>8,.0f}  constraint {rates['constraint']:>8,.0f}  {each}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given stores."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bookings", description="Bookings of one room.")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    for store in options.stores:
        for hours in (SPREAD, FULL):
            measured(store, hours, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
