"""Groups by a period equal a Python program, in zones whose clocks go back over the beginning of one, too."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Count,
    Database,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Max,
    NoUsableIndexError,
    PrimaryKey,
    Trunc,
    UnknownFieldError,
    UnknownLookupError,
    col,
)
from tests.query.engines import watched


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    page: str
    at: Indexed[datetime | None]
    day: Indexed[date | None]
    tags: list[str] = []
    seen: datetime | None = None

    class Meta:
        indexes = (Index("page", "-at"), AggregateIndex("page", "at"), AggregateIndex("day", name="days"))


UNITS: Any = ["year", "quarter", "month", "week", "day", "hour"]
CHANGES = [  # a moment near which the clocks of the zone go back, or forward
    ("UTC", datetime(2026, 3, 1, tzinfo=UTC)),
    ("Europe/Zurich", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/St_Johns", datetime(2006, 10, 29, 2, 31, tzinfo=UTC)),  # one minute after midnight, to the day before
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),  # by half an hour
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),  # a day without midnight
    ("Pacific/Kwajalein", datetime(1969, 9, 30, 13, tzinfo=UTC)),  # by 23 hours, over the beginning of a month
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a day without any hour
]


def stock(db: Any, drawn: random.Random, around: datetime, number: int = 28) -> list[Visit]:
    moments = [around + drawn.uniform(-1, 1) * timedelta(days=(50, 1, 0.002)[at % 3]) for at in range(number)]
    visits = [
        Visit(id=at, page=drawn.choice("ab"), at=drawn.choice([moment, moment, moment, None]), day=moment.date())
        for at, moment in enumerate(moments)
    ]
    db[Visit].bulk_create(visits, batch_size=5)
    return visits


def expected(visits: list[Visit], unit: str, tz: str, key: Callable[[Visit], Any] = lambda _: None) -> Counter[Any]:
    """The number of visits of each key and period, which is written as the clocks show its beginning."""

    def shown(at: datetime) -> Any:
        local = at.astimezone(ZoneInfo(tz))
        day = local.date()
        match unit:
            case "hour":
                start = local.replace(minute=0, second=0, microsecond=0)
                return start.isoformat()
            case "week":
                return (day - timedelta(days=day.isoweekday() - 1)).isoformat()
            case "quarter":
                return f"{day.year}-{(day.month - 1) // 3 * 3 + 1:02}-01"
            case _:
                return {"year": f"{day.year}-01-01", "month": f"{day:%Y-%m}-01", "day": day.isoformat()}[unit]

    return Counter((key(one), None if one.at is None else shown(one.at)) for one in visits)


def check(db: Any, visits: list[Visit], unit: Any, tz: str) -> None:
    def shown(start: datetime | None) -> str | None:
        return None if start is None else start.isoformat() if unit == "hour" else start.date().isoformat()

    label = f"at__{unit}"
    by_page = expected(visits, unit, tz, lambda one: one.page)
    for query, key in [
        (db[Visit].group_by(Trunc("at", unit, tz=tz)), lambda _: None),
        (db[Visit].using_index("at").order_by("-at").group_by(Trunc(Visit.at, unit, tz=tz)), lambda _: None),
        (db[Visit].group_by("page", Trunc("at", unit, tz=tz)), lambda row: row["page"]),  # counters
        (db[Visit].order_by("page", "-at").group_by(Trunc("at", unit, tz=tz), "page"), lambda row: row["page"]),
        (db[Visit].sort_in_memory(99).group_by(Trunc("at", unit, tz=tz), "page"), lambda row: row["page"]),
    ]:
        # The second functions are in no counter, and only an order with "-at" is in the index of pages.
        for functions in ([Count()], [Count(), Max("day")]):
            if len(functions) > 1 and "page, at__" in repr(query):
                continue
            rows = query.aggregate(*functions).to_list()
            found = Counter({(key(row), shown(row[label])): row["count"] for row in rows})
            assert len(found) == len(rows)
            assert found == (expected(visits, unit, tz) if key(rows[0]) is None else by_page)
            assert rows == list(query.aggregate(*functions))
    in_order = [row[label] for row in db[Visit].group_by(Trunc("at", unit, tz=tz)).aggregate(Count())]
    assert in_order[0] is None
    instants = [start.astimezone(UTC) for start in in_order[1:]]
    assert instants == sorted(instants)
    backward = db[Visit].order_by("-at").group_by(Trunc("at", unit, tz=tz)).aggregate(Count())
    assert [row[label] for row in backward] == in_order[::-1]


@pytest.mark.parametrize(("tz", "around"), CHANGES)
def test_periods_equal_python(tz: str, around: datetime):
    for at, unit in enumerate(UNITS):
        db, _ = watched([Visit], max_ranges=9)  # eight records at once
        check(db, stock(db, random.Random(at), around), unit, tz)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_periods_of_a_store_and_of_own_writes(kind: str, tmp_path: Any):
    with Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=[Visit]) as db:
        visits = stock(db, random.Random(3), datetime(2026, 10, 25, tzinfo=UTC), 12)
        check(db, visits, "month", "Europe/Zurich")
        with db.transaction() as tx, tx.unchecked():
            tx[Visit].patch(3, at=datetime(2027, 1, 1, tzinfo=UTC))
            tx[Visit].remove(4)
            check(tx, tx[Visit].all().to_list(), "day", "Europe/Zurich")


def test_dates_have_periods_without_a_zone_and_async_rows_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=[Visit]) as db:
            days = [date(2026, 1, 1), date(2026, 1, 31), date(2026, 2, 1), None]
            await db[Visit].bulk_create([Visit(id=at, page="a", at=None, day=day) for at, day in enumerate(days)])
            months = db[Visit].group_by(Trunc(col(Visit.day), "month")).aggregate(Count())
            rows = [
                {"day__month": None, "count": 1},
                {"day__month": date(2026, 1, 1), "count": 2},
                {"day__month": date(2026, 2, 1), "count": 1},
            ]
            assert await months.to_list() == [row async for row in months] == rows
            assert str(await months.explain()) == "Visit: counters of index days, grouped by day__month"

    asyncio.run(run())


def test_the_plan_says_how_many_periods_are_held():
    with Database("memory://", models=[Visit]) as db:
        plain = str(db[Visit].group_by(Trunc("at", "day")).aggregate(Max("day")).explain())
        assert plain.startswith("Visit: records in the order of at__day, one group at a time")
        zone = str(db[Visit].group_by(Trunc("at", "day", tz="Asia/Tokyo")).aggregate(Max("day")).explain())
        assert zone.startswith("Visit: records in the order of at__day, the periods of four days at a time")


class Plain(KvModel, collection="visits"):
    id: PrimaryKey[int]
    page: str
    at: datetime


def test_periods_before_another_column_are_refused_and_the_named_lines_serve():
    at = datetime(2026, 5, 5, tzinfo=UTC)
    with Database("memory://", models=[Plain]) as db:
        db[Plain].create(id=1, page="a", at=at)
        with pytest.raises(NoUsableIndexError) as caught:
            db[Plain].group_by(Trunc("at", "year", tz="Asia/Tokyo"), "page").aggregate(Count()).to_list()
        call, line = 'group_by("page", Trunc("at", "year", tz="Asia/Tokyo"))', 'Index("page", "at")'
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"Write {call}, with the period last. Add {line} to the indexes of Plain")

    class WithIndex(Plain, collection="visits"):
        class Meta:
            indexes = (eval(line),)

    with Database("memory://", models=[WithIndex]) as db:
        db[WithIndex].create(id=1, page="a", at=at)
        (row,) = eval(f"visits.{call}", {"visits": db[WithIndex], "Trunc": Trunc}).aggregate(Count()).to_list()
        assert row == {"page": "a", "at__year": datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), "count": 1}


def test_bad_periods_are_refused_before_a_read():
    with Database("memory://", models=[Visit]) as db:
        unknown: Any = "minute"
        for error, given in [
            (InvalidArgumentError, [Trunc("at", unknown)]),
            (InvalidArgumentError, [Trunc("day", "hour")]),
            (InvalidArgumentError, [Trunc("day", "month", tz="Europe/Zurich")]),
            (InvalidArgumentError, [Trunc("at", "month", tz="Mars/Base")]),
            (InvalidArgumentError, [Trunc("at", "month", tz="../etc/passwd")]),
            (InvalidArgumentError, [Trunc("at", "month", tz=ZoneInfo("UTC"))]),  # type: ignore[arg-type]
            (InvalidArgumentError, [Trunc("at", "month"), Trunc("at", "day")]),
            (UnknownLookupError, [Trunc("page", "month")]),
            (UnknownLookupError, [Trunc("tags", "month")]),
            (UnknownFieldError, [Trunc("hour", "month")]),
        ]:
            with pytest.raises(error):
                db[Visit].group_by(*given)
        db[Visit].create(id=1, page="a", at=None, day=None, seen=datetime(2026, 1, 1))
        with pytest.raises(InvalidValueError, match="naive"):
            db[Visit].sort_in_memory(9).group_by(Trunc("seen", "day")).aggregate(Count()).to_list()
