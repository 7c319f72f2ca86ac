"""The costs on the page "No double bookings" are those of the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.memory.engine import MemoryEngine
from tests.kinds.exclusions import Booking

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "no-double-bookings.md").read_text(encoding="utf-8")


class CountingEngine(MemoryEngine):
    """Counts reads, and the checks and mutations of the last commit."""

    counts = [0, 0, 0]

    def read(self, *args: Any, **options: Any) -> Any:
        self.counts[0] += 1
        return super().read(*args, **options)

    def commit(self, write: AtomicWrite) -> Any:
        self.counts[1:] = [len(write.checks), len(write.mutations)]
        return super().commit(write)


@pytest.mark.parametrize(
    ("row", "write"),
    [
        ("`create` | 1 | 3 | 3", lambda bookings: bookings.create(id=2, starts=70, ends=80)),
        ("`patch` of another field | 1 | 2 | 1", lambda bookings: bookings.patch(1, note="x")),
        ("`patch` to a shorter interval | 1 | 2 | 2", lambda bookings: bookings.patch(1, ends=14)),
        ("`patch` to another time | 2 | 3 | 4", lambda bookings: bookings.patch(1, starts=7, ends=9)),
        ("`remove` | 1 | 2 | 2", lambda bookings: bookings.remove(1)),
    ],
)
def test_the_page_has_the_costs_of_a_write(row: str, write: Callable[[Any], object]):
    engine = CountingEngine()
    with Database.from_engine(engine, DatabaseCore([Booking])) as db:
        for key, starts in ((0, 0), (1, 10), (9, 50)):
            db[Booking].create(id=key, starts=starts, ends=starts + 5)
        engine.counts = [0, 0, 0]
        write(db[Booking])
    assert f"| {row} |" in PAGE
    assert engine.counts == [int(number) for number in row.split(" | ")[1:]]
