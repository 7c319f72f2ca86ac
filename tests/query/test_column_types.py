"""Every column type answers every lookup as Python compares its values, ascending and descending, indexed and not."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest

from kvmodels import ULID, Database, Field, Index, Indexed, KeyNumber, KvModel, PrimaryKey
from tests.query.models import falling
from tests.query.oracle import holds, ordered


class Color(Enum):
    """Declared in another order than that of its values."""

    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Level(IntEnum):
    HIGH = 10
    LOW = 2


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "bool": (bool, [True, False]),
    "int": (int, [0, 1, -1, 2**70, -(2**70), 255, 256, 10, 9]),
    "number": (Annotated[int, KeyNumber()], [0, 1, -1, 2**53 - 1, 10, 9]),
    "float": (float, [0.0, -0.5, 1e300, -1e300, float("inf"), float("-inf"), 2.5, 10.0]),
    "str": (str, ["", "a", "a\0", "a\0b", "ab", "b", "é", "\uffff", "\U0001f600", "10", "9"]),
    "bytes": (bytes, [b"", b"\0", b"\0\xff", b"a", b"a\xff", b"a\xff\xff", b"\xff", b"\xff\xff"]),
    "uuid": (UUID, [UUID(int=n) for n in (0, 1, 2**64, 2**128 - 1)]),
    "ulid": (ULID, [ULID(n.to_bytes(16, "big")) for n in (0, 1, 2**90, 2**128 - 1)]),
    "date": (date, [date(1, 1, 1), date(999, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "datetime": (
        datetime,
        [
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=5))),
            datetime(800, 1, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ],
    ),
    "time": (time, [time(0), time(0, 0, 0, 1), time(23, 59, 59, 999999), time(12)]),
    "timedelta": (timedelta, [timedelta(0), timedelta(microseconds=-1), timedelta(days=300), timedelta(seconds=1)]),
    "decimal": (Decimal, [Decimal(text) for text in ("0", "-1.5", "1E+50", "1.10", "9", "10", "1E-50", "-1E+50")]),
    "enum": (Color, list(Color)),
    "int_enum": (Level, list(Level)),
    "literal": (Literal["b", "a", "c"], ["a", "b", "c"]),
    "ip4": (IPv4Address, [IPv4Address(n) for n in (0, 9, 256, 2**32 - 1)]),
    "ip6": (IPv6Address, [IPv6Address(n) for n in (0, 9, 2**64, 2**128 - 1)]),
}


def model_of(type_: Any) -> Any:
    class Thing(KvModel, collection="things"):
        id: PrimaryKey[int]
        up: Indexed[type_ | None] = Field(default=None)
        down: falling(type_ | None) = None  # type: ignore[valid-type]
        free: type_ | None = None
        group: int = 0

        class Meta:
            indexes = (Index("group", "up", name="grouped"), Index("up", "group", name="skipping", nulls="skip"))

    return Thing


@pytest.mark.parametrize("name", TYPES)
def test_every_lookup_and_order_equals_python(name):
    type_, values = TYPES[name]
    values = [*values, None]
    with Database("memory://", models=[model := model_of(type_)]) as db:
        things = db[model]
        rows = [
            things.create(id=number, up=value, down=value, free=value, group=number % 2)
            for number, value in enumerate(values + values[:3])
        ]
        lookups = [("isnull", True), ("isnull", False), ("in", values[:2]), ("not_in", [values[0], None])]
        for value in values:
            lookups += [("exact", value), ("ne", value)]
            if value is not None:
                lookups += [(lookup, value) for lookup in ("gt", "gte", "lt", "lte")]
                lookups += [("range", (values[0], value)), ("range", (value, values[0]))]
                lookups += [("startswith", value)] if name in ("str", "bytes") else []
        for lookup, operand in lookups:
            for field in ("up", "down", "free"):
                asked = things.filter(**{f"{field}__{lookup}": operand}).allow_scan()
                plan = asked.explain()
                assert plan.index == (None if field == "free" else field) or not plan.ranges, (field, lookup, operand)
                wanted = ordered([row for row in rows if holds(getattr(row, field), lookup, operand)], plan.order)
                assert asked.to_list() == (wanted if plan.ranges else []), (field, lookup, operand)
                grouped = things.filter(group=1, **{f"up__{lookup}": operand})
                assert {row.id for row in grouped} == {row.id for row in wanted if row.group == 1}
        for field in ("up", "down"):
            assert things.order_by(field).to_list() == ordered(rows, things.order_by(field).explain().order)
            assert things.order_by(f"-{field}").to_list() == things.order_by(field).to_list()[::-1]


def test_text_stands_for_the_value_that_it_is_the_text_of():
    with Database("memory://", models=[model := model_of(UUID)]) as db:
        db[model].create(id=1, up=UUID(int=7))
        assert db[model].filter(up=str(UUID(int=7))).count() == 1
    with Database("memory://", models=[model := model_of(Color)]) as db:
        db[model].create(id=1, up=Color.RED)
        assert db[model].filter(up="red").count() == db[model].filter(up__in=[Color.RED, "blue"]).count() == 1


def test_values_that_no_index_can_hold_are_equal_to_nothing_when_a_scan_meets_them():
    class Reading(KvModel, collection="readings"):
        id: PrimaryKey[int]
        value: float | None = None
        at: datetime | None = None

    with Database("memory://", models=[Reading]) as db:
        db[Reading].create(id=1, value=float("nan"), at=datetime(2024, 1, 1))
        db[Reading].create(id=2, value=1.0, at=datetime(2024, 1, 1, tzinfo=UTC))
        db[Reading].create(id=3)
        asked = db[Reading].allow_scan()
        assert [row.id for row in asked.filter(value__gte=0.0)] == [2]
        assert [row.id for row in asked.filter(value__ne=1.0)] == [1, 3]
        assert [row.id for row in asked.exclude(value__gt=0.0)] == [1, 3]
        assert [row.id for row in asked.filter(value__isnull=False)] == [1, 2]
        assert [row.id for row in asked.filter(at__lt=datetime(2025, 1, 1, tzinfo=UTC))] == [2]
