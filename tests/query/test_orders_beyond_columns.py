"""Orders, extremes, groups and distinct values of fields without an index, whose values no column could hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Count, Database, Field, InvalidValueError, KvModel, Max, Min, PrimaryKey
from tests.query.walks import backward, forward


class Reading(KvModel, collection="beyond_readings"):
    id: PrimaryKey[int]
    at: datetime | None = None
    hour: time | None = None
    price: Decimal | None = Field(default=None, allow_inf_nan=True)
    size: int | None = None
    host: IPv6Address | None = None
    ratio: float | None = None
    note: str = ""


EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12, seconds=-1))
OFFSETS = st.sampled_from([UTC, EAST, WEST, timezone(timedelta(seconds=5))])
DIGITS = st.integers(-(10**130), 10**130) | st.integers(-20, 20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "naive": st.datetimes(),
    "aware": st.datetimes(timezones=OFFSETS)
    | st.sampled_from([at.replace(tzinfo=zone) for at in (datetime.min, datetime.max) for zone in (EAST, WEST, UTC)]),
    "naive times": st.times().map(lambda at: at.replace(fold=0)),
    "aware times": st.times(timezones=OFFSETS),
    "decimals": st.builds(
        lambda digits, exponent: Decimal(f"{digits}e{exponent}"),  # exact: scaleb() may overflow the context
        st.integers(-99, 99),
        st.integers(-7_000, 7_000) | st.sampled_from([-6145, -6144, 6143, 6144, -(10**6), 10**6]),
    )
    | DIGITS.map(Decimal)
    | st.sampled_from([Decimal("Infinity"), Decimal("-Infinity"), Decimal("-0"), Decimal("1e999999999999999999")]),
    "ints": st.integers() | st.integers(-(1 << 2100), 1 << 2100).map(lambda number: number << 50),
    "hosts": st.builds(
        lambda number, scope: IPv6Address(f"{IPv6Address(number)}{scope}"),
        st.integers(0, 3),
        st.sampled_from(["", "%a", "%eth0"]),
    ),
}
FIELD_OF = {
    "naive": "at",
    "aware": "at",
    "naive times": "hour",
    "aware times": "hour",
    "decimals": "price",
    "ints": "size",
    "hosts": "host",
}


def rank(value: Any) -> Any:
    """Return the value that Python compares; the scope of an address, which it leaves out, comes after the address."""
    return (int(value), value.scope_id or "") if isinstance(value, IPv6Address) else value


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_values_that_no_column_holds_are_ordered_as_python_orders_them(kind: str, data: st.DataObject):
    field = FIELD_OF[kind]
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=6))
    with Database("memory://", models=[Reading]) as db:
        readings = db[Reading]
        readings.bulk_create([Reading.model_validate({"id": n, field: value}) for n, value in enumerate(values)])
        readings.create(id=100)  # None is below every value
        numbers = sorted(range(len(values)), key=lambda n: rank(values[n]))
        ascending = readings.order_by(field, "id").sort_in_memory()
        assert [one.id for one in ascending] == [100, *numbers]
        descending = readings.order_by(f"-{field}", "-id").sort_in_memory()
        assert [one.id for one in descending] == [*reversed(numbers), 100]
        pages = [one.id for page in forward(ascending, 2) for one in page]
        assert pages == [100, *numbers]
        found = readings.aggregate(least=Min(field), most=Max(field))
        assert (rank(found["least"]), rank(found["most"])) == (rank(values[numbers[0]]), rank(values[numbers[-1]]))
        rows = list(readings.all().sort_in_memory(100).group_by(field).aggregate(Count()))
        ranks = sorted({rank(value) for value in values})
        assert [rank(row[field]) for row in rows if row[field] is not None] == ranks
        assert sum(row["count"] for row in rows) == len(values) + 1
        distinct = readings.order_by(field).values_list(field).distinct().sort_in_memory(100)
        assert [rank(value) for (value,) in distinct if value is not None] == ranks


MIXED: dict[str, list[Any]] = {
    "at": [datetime(2026, 1, 1), datetime(2025, 1, 1, tzinfo=UTC)],
    "hour": [time(1), time(2, tzinfo=UTC)],
}


@pytest.mark.parametrize("field", MIXED)
def test_values_with_and_without_a_time_zone_are_not_put_into_one_order(field: str):
    with Database("memory://", models=[Reading]) as db:
        readings = db[Reading]
        readings.bulk_create(
            [Reading.model_validate({"id": n, field: value}) for n, value in enumerate([*MIXED[field], None])]
        )
        asked: dict[str, Callable[[], Any]] = {
            "order_by": lambda: readings.order_by(field).sort_in_memory().to_list(),
            "descending": lambda: readings.order_by(f"-{field}").sort_in_memory().first(),
            "page": lambda: readings.order_by(field).sort_in_memory().page(size=1),
            "min": lambda: readings.aggregate(Min(field)),
            "max": lambda: readings.aggregate(Max(field)),
            "groups": lambda: list(readings.order_by(field).sort_in_memory(9).group_by(field).aggregate(Count())),
            "distinct": lambda: readings.order_by(field).values_list(field).distinct().sort_in_memory(9).to_list(),
        }
        for name, ask in asked.items():
            with pytest.raises(InvalidValueError, match="with and without a time zone") as caught:
                ask()
            assert (caught.value.field, bool(caught.value.hint)) == (field, True), name
        # Without an order of its own nothing must be compared: kinds come one behind the other.
        rows = list(readings.all().sort_in_memory(9).group_by(field).aggregate(Count()))
        assert [row["count"] for row in rows] == [1, 1, 1]
        assert len(readings.all().values_list(field).distinct().sort_in_memory(9).to_list()) == 3
        # One kind at a time has an order.
        for left_out, first in ((0, 1), (1, 0)):
            one_kind = readings.filter(id__ne=left_out).allow_scan().order_by(f"-{field}").sort_in_memory()
            assert [one.id for one in one_kind] == [first, 2]


def test_a_page_back_and_nan_keep_their_places():
    with Database("memory://", models=[Reading]) as db:
        readings = db[Reading]
        prices = [Decimal("NaN"), Decimal("1e7000"), Decimal(1), Decimal("-Infinity"), Decimal("sNaN"), None]
        ratios = [float("nan"), float("inf"), 1.0, float("-inf"), float("nan"), None]
        readings.bulk_create(
            [
                Reading(id=n, price=price, ratio=ratio)
                for n, (price, ratio) in enumerate(zip(prices, ratios, strict=True))
            ]
        )
        for field in ("price", "ratio"):
            asked = readings.order_by(field).sort_in_memory()
            assert [one.id for one in asked] == [5, 3, 2, 1, 0, 4]
            assert [one.id for one in asked.reverse()] == [4, 0, 1, 2, 3, 5]
            pages = [[one.id for one in page] for page in backward(asked, 2)]
            assert [number for page in pages for number in page] == [0, 4, 2, 1, 5, 3]
        assert readings.aggregate(Min("price"), Max("ratio")) == {
            "price__min": Decimal("-Infinity"),
            "ratio__max": float("inf"),
        }
