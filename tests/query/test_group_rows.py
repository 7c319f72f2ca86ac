"""Rows of groups with conditions, in an order and as slices: from every source of groups, against Python."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Avg,
    Count,
    Database,
    Field,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Max,
    Min,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    Sum,
    Trunc,
    UnknownFieldError,
    UnknownLookupError,
)

Rows = list[dict[str, Any]]


class Order(KvModel, collection="orders"):
    id: PrimaryKey[int]
    shop: Indexed[str | None] = Field(default=None)
    kind: str
    day: date
    items: int
    price: Decimal | None = None
    weight: float = 0.0
    wait: timedelta = timedelta()

    class Meta:
        indexes = (AggregateIndex("kind", sums=("items",)),)


SHOPS = (None, "a", "b", "c", "d", "e")


def order(n: int) -> Order:
    return Order(
        id=n,
        shop=SHOPS[n * n % 6],
        kind=f"k{n % 7}",
        day=date(2026, 1 + n % 5, 3),
        items=n % 4,
        price=None if n % 3 == 0 else Decimal(n) / 4,
        weight=math.nan if n % 11 == 0 else n / 8,
        wait=timedelta(minutes=n % 9),
    )


ORDERS = [order(n) for n in range(60)]


@pytest.fixture(scope="module")
def orders():
    with Database("memory://", models=[Order]) as db:
        db[Order].bulk_create(ORDERS)
        yield db[Order]


def of_python(field: str) -> Rows:
    groups: dict[Any, list[Order]] = defaultdict(list)
    for one in ORDERS:
        groups[getattr(one, field)].append(one)
    ordered = sorted(groups, key=lambda value: (value is not None, value))
    return [{field: key, "n": len(groups[key]), "items": sum(one.items for one in groups[key])} for key in ordered]


def by_items(row: dict[str, Any]) -> int:
    return -row["items"]


FIELDS = {"kind": "counters", "shop": "index", "items": "memory"}


def grouped(orders: Any, field: str) -> Any:
    query = orders.sort_in_memory(100) if FIELDS[field] == "memory" else orders
    results = {"n": Count(), "items": Sum("items")} if field != "items" else {"n": Count()}
    return query.group_by(field).aggregate(**results)


@pytest.mark.parametrize("field", ["kind", "shop"])
def test_the_top_rows_equal_a_sort_in_python(orders, field):
    rows = of_python(field)
    groups = grouped(orders, field)
    assert groups.explain().source == FIELDS[field]
    assert groups.to_list() == rows
    for start, stop in ((0, 3), (2, 5), (4, 100), (3, 3)):
        assert (
            groups.order_by("-items", field)[start:stop].to_list()
            == sorted(rows, key=lambda row: (-row["items"], row[field] is not None, row[field]))[start:stop]
        )
    assert groups.order_by("-items")[:3].to_list() == sorted(rows, key=by_items)[:3]
    assert groups.order_by("n", f"-{field}")[:1].to_list() == [groups.order_by("n", f"-{field}").first()]


@pytest.mark.parametrize("field", ["kind", "shop"])
@pytest.mark.parametrize(
    ("lookups", "holds"),
    [
        ({"n__gte": 10}, lambda row: row["n"] >= 10),
        ({"n": 9}, lambda row: row["n"] == 9),
        ({"items__gt": 12.5, "n__lt": 20}, lambda row: row["items"] > 12.5 and row["n"] < 20),
        ({"n__in": [8, 10]}, lambda row: row["n"] in (8, 10)),
        ({"n__not_in": [8, 10]}, lambda row: row["n"] not in (8, 10)),
        ({"items__range": (10, Decimal(14))}, lambda row: 10 <= row["items"] <= 14),
        ({"items__isnull": True}, lambda row: False),
        ({"n__ne": 8, "items__lte": 20}, lambda row: row["n"] != 8 and row["items"] <= 20),
    ],
)
def test_conditions_keep_the_rows_that_python_keeps(orders, field, lookups, holds: Callable[[Any], bool]):
    rows = [row for row in of_python(field) if holds(row)]
    groups = grouped(orders, field)
    assert groups.having(**lookups).to_list() == rows
    assert list(groups.having(**lookups)[1:3]) == rows[1:3]
    assert groups.order_by("-items").having(**lookups)[:2].to_list() == sorted(rows, key=by_items)[:2]


def test_conditions_on_fields_of_groups_compare_as_columns_do(orders):
    groups = orders.group_by("shop").aggregate(n=Count(), last=Max("day"), least=Min("price"))
    shops = {one.shop for one in ORDERS}
    assert [row["shop"] for row in groups.having(shop__gt="a")] == sorted(one for one in shops if one and one > "a")
    assert [row["shop"] for row in groups.having(shop=None)] == [None]
    assert [row["shop"] for row in groups.having(shop__isnull=False)] == sorted(one for one in shops if one)
    assert all(row["last"] >= date(2026, 5, 1) for row in groups.having(last__gte="2026-05-01"))
    assert all(row["least"] < 2 for row in groups.having(least__lt="2.0"))


def test_results_of_all_kinds_have_an_order(orders):
    query = orders.group_by("shop").aggregate(
        price=Sum("price"), mean=Avg("weight"), weight=Sum("weight"), wait=Sum("wait"), first=Min("day")
    )
    rows = query.to_list()
    for name in ("price", "wait", "first"):
        present = [row[name] for row in query.order_by(name)[:100]]
        assert present == sorted((row[name] for row in rows), key=lambda value: (value is not None, value)), name
    for name in ("mean", "weight"):
        values = [row[name] for row in query.order_by(f"-{name}")[:100]]
        numbers = [value for value in values if not math.isnan(value)]
        assert numbers == sorted(numbers, reverse=True)
        assert all(map(math.isnan, values[: len(values) - len(numbers)]))
        assert not [row for row in query.having(**{f"{name}__gte": 0}) if math.isnan(row[name])]
    waits = [row["wait"] for row in rows if row["wait"] > timedelta(minutes=20)]
    assert [row["wait"] for row in query.having(wait__gt=timedelta(minutes=20))] == waits


def test_periods_are_ordered_and_compared_by_their_beginnings():
    class Visit(KvModel, collection="visits"):
        id: PrimaryKey[int]
        at: Indexed[date]

    visits = Database("memory://", models=[Visit])[Visit]
    visits.bulk_create([Visit(id=n, at=date(2026, 1 + n % 4, 1 + n)) for n in range(14)])
    months = visits.group_by(Trunc("at", "month")).aggregate(n=Count())
    assert [row["at__month"].month for row in months.order_by("-n", "-at__month")[:3]] == [2, 1, 4]
    assert [row["at__month"].month for row in months.order_by("-at__month")] == [4, 3, 2, 1]
    assert [row["at__month"].month for row in months.having(at__month__gte=date(2026, 3, 9))] == [3, 4]


def test_an_order_by_fields_of_the_groups_is_that_of_an_index(orders):
    groups = orders.group_by("shop").aggregate(n=Count()).order_by("-shop")
    assert groups.explain().limit is None
    assert [row["shop"] for row in groups] == [row["shop"] for row in of_python("shop")][::-1]
    with pytest.raises(NoUsableIndexError):
        orders.group_by("items").aggregate(n=Count()).order_by("-items").to_list()


def test_an_order_without_a_bound_is_refused_and_a_limit_permits_it(orders):
    groups = orders.group_by("kind").aggregate(n=Count())
    for unbounded in (groups.order_by("-n"), groups.order_by("-n")[2:], groups.order_by("-n")[:10_001]):
        with pytest.raises(NoUsableIndexError, match=r"order_by\(\.\.\.\)\[:10\]"):
            unbounded.to_list()
    limited = orders.sort_in_memory(7).group_by("kind").aggregate(n=Count()).order_by("-n", "kind")
    assert len(limited.to_list()) == 7
    with pytest.raises(OperationTooLargeError):
        orders.sort_in_memory(6).group_by("kind").aggregate(n=Count()).order_by("-n").to_list()


def test_a_database_that_allows_scans_sorts_all_groups():
    with Database("memory://", models=[Order], scans="allow") as db:
        db[Order].bulk_create(ORDERS)
        groups = db[Order].group_by("kind").aggregate(n=Count(), items=Sum("items"))
        assert groups.order_by("-items").to_list() == sorted(of_python("kind"), key=by_items)


def test_a_slice_without_an_order_reads_no_further_than_it_needs():
    with Database("memory://", models=[Order]) as db:
        db[Order].bulk_create([order(n).model_copy(update={"shop": f"s{n:04}"}) for n in range(900)])
        groups = db[Order].group_by("shop").aggregate(n=Count())
        part, whole = groups[:2].explain(analyze=True), groups.explain(analyze=True)
        assert part.analysis is not None
        assert whole.analysis is not None
        assert part.analysis.rows < whole.analysis.rows


def test_many_groups_keep_few_rows_in_memory(monkeypatch):
    monkeypatch.setattr("kvmodels.flows.reading.group_rows._MORE_THAN_NEEDED", 5)
    with Database("memory://", models=[Order]) as db:
        db[Order].bulk_create(
            [order(n).model_copy(update={"kind": f"k{n % 97}", "items": n * 31 % 50}) for n in range(700)]
        )
        groups = db[Order].group_by("kind").aggregate(items=Sum("items"))
        assert groups.order_by("-items")[3:9].to_list() == sorted(groups.to_list(), key=by_items)[3:9]


def test_plans_and_reprs_show_what_happens_to_the_rows(orders):
    groups = orders.group_by("kind").aggregate(n=Count()).having(n__gte=2).order_by("-n")[:10]
    assert str(groups.explain()).splitlines()[1:] == [
        "  keeps rows  n__gte",
        "  sorts rows  by -n, and holds 10 of them",
        "  takes rows  [:10]",
    ]
    assert repr(groups).endswith(
        "grouped by kind for n keeps rows n__gte sorts rows by -n, and holds 10 of them takes rows [:10]>"
    )


def test_slices_of_slices_are_relative(orders):
    groups = orders.group_by("kind").aggregate(n=Count())
    rows = groups.to_list()
    assert groups[2:6][1:].to_list() == rows[3:6]
    assert groups[2:6][1:100].to_list() == rows[3:6]
    assert groups[2:][1:3].to_list() == rows[3:5]
    assert groups[5:][:0].to_list() == []
    assert groups.having(n__gt=10**6).first() is None


BAD: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda groups: groups.having(), InvalidArgumentError, "no condition"),
    (lambda groups: groups.having(m__gte=1), UnknownFieldError, "They have: kind, n, low"),
    (lambda groups: groups.having(n__like=1), UnknownLookupError, "There are: exact"),
    (lambda groups: groups.having(n__gte="5"), InvalidValueError, "Compare with a number"),
    (lambda groups: groups.having(n=True), InvalidValueError, "Compare with a number"),
    (lambda groups: groups.having(n__in=5), InvalidValueError, "list"),
    (lambda groups: groups.having(n__range=(1, 2, 3)), InvalidValueError, "two values"),
    (lambda groups: groups.having(n__isnull=1), InvalidValueError, "True or False"),
    (lambda groups: groups.having(low="soon"), InvalidValueError, "low|day"),
    (lambda groups: groups.order_by("m"), UnknownFieldError, "They have"),
    (lambda groups: groups.order_by(Order.kind), InvalidValueError, "names of their keys"),
    (lambda groups: groups[:3].order_by("n"), InvalidArgumentError, "slice last"),
    (lambda groups: groups[:3].having(n=1), InvalidArgumentError, "slice last"),
    (lambda groups: groups[0], InvalidArgumentError, r"first\(\)"),
    (lambda groups: groups[-3:], InvalidArgumentError, "end"),
    (lambda groups: groups[::2], InvalidArgumentError, "step"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_wrong_arguments_are_refused_before_anything_is_read(orders, call, error, text):
    with pytest.raises(error, match=text):
        call(orders.group_by("kind").aggregate(n=Count(), low=Min("day")))


async def test_rows_of_an_asynchronous_query_are_arranged_alike():
    async with AsyncDatabase("memory://", models=[Order]) as db:
        await db[Order].bulk_create(ORDERS)
        groups = db[Order].group_by("kind").aggregate(n=Count(), items=Sum("items"))
        top = groups.having(n__gte=8).order_by("-items")[:3]
        wanted = sorted((row for row in of_python("kind") if row["n"] >= 8), key=by_items)[:3]
        assert await top.to_list() == wanted == [row async for row in top]
        assert await top.first() == wanted[0]
