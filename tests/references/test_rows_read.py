"""Nothing is walked without permission: rows stay below a bound of the results and the ranges, whatever does not match.

Queries for numbers of referring records, first referring records, and the forms within one record are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvmodels import AggregateIndex, Count, Exists, F, Field, ForeignKey, Index, KvModel, PrimaryKey, Q, Sum, Trunc, col
from tests.query.engines import watched


class Room(KvModel, collection="rooms"):
    id: PrimaryKey[int]


class Job(KvModel, collection="jobs"):
    id: PrimaryKey[int]
    room: ForeignKey[int | None, Room] = Field(default=None)
    status: str
    size: int | None
    least: int
    at: datetime
    note: str = ""

    class Meta:
        indexes = (
            Index("room", "status", "size"),
            Index("room", "-at"),
            Index("status", "size"),
            Index("status", "at"),
            AggregateIndex("room", "status", sums=("size",)),
        )


ROOMS, JOBS = 6, 30
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS: dict[str, Any] = {
    "all": Count(Job.room),
    "up": Count(Job.room, filter=Q(status="up")),
    "large": Count(Job.room, filter=Q(status="up", size__gte=3)),
    "any": Exists(Job.room, filter=Q(status="up", size__gte=3)),
    "sizes": Sum("size", key=Job.room),
}
FORMS: list[Callable[[Any, random.Random], object]] = [
    lambda db, drawn: db[Room].with_counts(**dict(drawn.sample(sorted(NUMBERS.items()), 3))).page(size=3),
    lambda db, drawn: db[Room].with_counts(large=NUMBERS["large"]).to_list(),
    lambda db, drawn: db[Room].fetch_referrers(db[Room].all()[:3], Job.room, limit=drawn.randrange(1, 5)),
    lambda db, drawn: db[Room].fetch_referrers(
        db[Room].all()[:3], Job.room, limit=2, order_by="-at", filter=drawn.choice([None, Q(note="a")])
    ),
    lambda db, drawn: db[Room].fetch_referrers(
        db[Room].all()[2:], Job.room, limit=2, filter=Q(status="up"), order_by=col(Job.size).asc(nulls_last=True)
    ),
    lambda db, drawn: placed(db, drawn).to_list(),
    lambda db, drawn: placed(db, drawn).first(),
    lambda db, drawn: placed(db, drawn).page(size=4),
    lambda db, drawn: placed(db, drawn)[3:5].to_list(),
    lambda db, drawn: (
        (db[Job].filter(status="up").group_by(Trunc("at", drawn.choice(["day", "month"]), tz="Asia/Tokyo")))
        .aggregate(Count(), Sum("size"))
        .to_list()
    ),
    lambda db, drawn: db[Job].filter(status="up").aggregate(Count(), n=Count(distinct="size")),
    lambda db, drawn: db[Job].filter(status="up", size__gte=F("least")).to_list(),
    lambda db, drawn: db[Job].filter(status="up", size__lt=F("least")).count(),
]


def placed(db: Any, drawn: random.Random) -> Any:
    order = drawn.choice([F("size").asc(nulls_last=True), F("size").desc(nulls_first=True)])
    return db[Job].filter(status="up").order_by(order)


@pytest.mark.parametrize("others", [100, pytest.param(100_000, marks=pytest.mark.soak)])
def test_nothing_is_walked_without_permission(others: int):
    db, engine = watched([Room, Job])
    db[Room].bulk_create([Room(id=at) for at in range(ROOMS)])
    drawn = random.Random(3)
    jobs = [
        Job(
            id=at,
            room=at % ROOMS,
            status=drawn.choice(["up", "down"]),
            size=drawn.choice([None, *range(6)]),
            least=3,
            at=BEGIN + timedelta(days=at),
            note=drawn.choice("ab"),
        )
        for at in range(JOBS)
    ]
    jobs += [Job(id=JOBS + at, status="other", size=at, least=0, at=BEGIN) for at in range(others)]
    db[Job].bulk_create(jobs, batch_size=500)
    for form in FORMS * 4:
        engine.meter.reset()
        form(db, drawn)
        meter = engine.meter
        # At most the jobs of the filter's range as entries and records, and three numbers of each room.
        assert meter.rows + meter.followed + meter.counted <= 2 * JOBS + ROOMS + 3 * (JOBS + 3 * ROOMS)
        if meter.counted == 0:
            assert meter.rows + meter.followed <= 2 * (JOBS + ROOMS) + 2 * 3 * ROOMS
