"""The story of indexes of intervals, in format 1.

``python -m tests.golden.story_of_intervals FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar

from kvmodels import IntervalIndex, KeyNumber, KvModel, PrimaryKey, Q
from tests.golden.story import TellingEngine, database, write_files


class Booking(KvModel, collection="bookings"):
    """An interval of every type of ends."""

    id: PrimaryKey[int]
    room: str | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    first: int = 0
    after: int = 1
    day: date = date(2026, 1, 1)
    last: date | None = None
    since: timedelta = timedelta(0)
    until: timedelta = timedelta(microseconds=1)
    low: Annotated[int, KeyNumber()] = 0
    high: Annotated[int, KeyNumber()] = 1

    class Meta:
        indexes: ClassVar = (
            IntervalIndex("starts", "ends", group="room", name="calendar"),
            IntervalIndex("first", "after", name="numbers"),
            IntervalIndex("day", "last", where=Q(first__gte=0), name="days"),
            IntervalIndex("since", "until", name="spans"),
            IntervalIndex("low", "high", name="safe"),
        )


NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))
LEAST, GREATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "room": "A", "starts": NINE, "ends": NINE + timedelta(hours=1), "first": -5, "after": 250},
    {"id": 2, "starts": NINE, "first": 7, "after": 8, "day": date(2026, 2, 28), "last": date(2026, 3, 1)},
    {"id": 3, "room": "A", "first": -(2**63), "after": 2**63 - 1, "since": timedelta.min, "until": timedelta.max},
    {"id": 4, "room": "B", "starts": LEAST, "ends": GREATEST, "day": date.min, "last": date.max},
    {"id": 5, "room": "B", "starts": NINE.astimezone(EAST), "ends": NINE + timedelta(microseconds=1)},
    {"id": 6, "room": "B", "low": -(2**53) + 1, "high": 2**53 - 1},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Booking)
    db[Booking].bulk_create([Booking(**record) for record in RECORDS])
    yield "1_records"
    db[Booking].patch(1, ends=NINE + timedelta(hours=3))
    db[Booking].patch(2, ends=NINE + timedelta(hours=1), room="B", last=None)
    db[Booking].patch(6, first=-1)
    db[Booking].remove(4)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
