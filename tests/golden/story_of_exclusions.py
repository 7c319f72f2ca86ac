"""The story of exclusion constraints, in format 1.

``python -m tests.golden.story_of_exclusions FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

from kvmodels import ExclusionConstraint, KvModel, PrimaryKey, Q
from tests.golden.story import TellingEngine, database, write_files


class Booking(KvModel, collection="bookings"):
    """Moments in rooms, and whole numbers without a group."""

    id: PrimaryKey[int]
    room: str | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    cancelled: bool = False
    first: int | None = None
    after: int | None = None

    class Meta:
        indexes: ClassVar = (
            ExclusionConstraint("starts", "ends", group="room", where=Q(cancelled=False), name="no_overlap"),
            ExclusionConstraint("first", "after", name="numbers"),
        )


NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))

RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "room": "A", "starts": NINE, "ends": NINE + timedelta(hours=1), "first": -5, "after": 7},
    {"id": 2, "starts": NINE, "first": 7, "after": 8},
    {"id": 3, "room": "A", "starts": NINE, "cancelled": True, "first": -(2**63), "after": -5},
    {"id": 4, "room": "A", "starts": (NINE + timedelta(hours=1)).astimezone(EAST), "first": 2**63 - 2},
    {"id": 5, "room": "B", "starts": NINE, "ends": NINE + timedelta(microseconds=1)},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Booking)
    for record in RECORDS:
        db[Booking].create(**record)
    yield "1_records"
    db[Booking].patch(1, ends=NINE + timedelta(minutes=30))
    db[Booking].patch(4, starts=NINE + timedelta(minutes=30), ends=NINE + timedelta(hours=3))
    db[Booking].patch(2, room="B", starts=NINE + timedelta(hours=1))
    db[Booking].remove(5)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
