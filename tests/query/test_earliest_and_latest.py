"""``earliest`` and ``latest`` return the record at one end of an order, or raise DoesNotExist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    Indexed,
    InvalidArgumentError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    UnknownFieldError,
)


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    day: Indexed[int | None] = Field(default=None)
    room: int = 0


VISITS = [Visit(id=1, day=5, room=2), Visit(id=2, day=2, room=1), Visit(id=3, day=5, room=3), Visit(id=4)]


def test_the_ends_of_an_order():
    with Database("memory://", models=[Visit]) as db:
        visits = db[Visit]
        visits.bulk_create(VISITS)
        with_day = visits.filter(day__isnull=False)
        assert visits.earliest("day").id == 4
        assert with_day.earliest("day").id == with_day.latest("-day").id == 2
        assert with_day.latest(Visit.day, Visit.id).id == with_day.latest("day", "id").id == 3
        assert visits.filter(id__gte=1).order_by("-id").earliest("id").id == 1
        assert visits.all().sort_in_memory().latest("room").id == 3
        assert visits.values_list("day", flat=True).latest("day") == 5
        with db.transaction() as tx:
            tx[Visit].create(id=9, day=9)
            assert tx[Visit].latest("day").id == 9


def test_without_a_record_they_raise():
    with Database("memory://", models=[Visit]) as db:
        for call in (db[Visit].earliest, db[Visit].filter(day=3).latest):
            with pytest.raises(Visit.DoesNotExist):
                call("day")


def test_wrong_calls_are_refused():
    with Database("memory://", models=[Visit]) as db:
        visits: Any = db[Visit].all()
        with pytest.raises(InvalidArgumentError, match="order"):
            visits.latest()
        with pytest.raises(InvalidArgumentError, match="earliest"):
            visits[:3].earliest("day")
        with pytest.raises(UnknownFieldError):
            visits.earliest("dai")
        with pytest.raises(NoUsableIndexError, match="room"):
            visits.earliest("room")


def test_async_calls_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=[Visit]) as db:
            await db[Visit].bulk_create(VISITS)
            assert (await db[Visit].filter(day__gte=3).earliest("day", "id")).id == 1
            assert (await db[Visit].latest("id")).id == 4
            with pytest.raises(Visit.DoesNotExist):
                await db[Visit].filter(day=77).latest("day")

    asyncio.run(run())
