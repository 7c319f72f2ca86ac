"""Numbers of different values equal a Python program, from an index with equal values side by side, or in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    Max,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownFieldError,
    col,
)
from tests.query.engines import watched


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]


class Order(KvModel, collection="orders"):
    id: PrimaryKey[int]
    shop: ForeignKey[int, Shop]
    country: Indexed[str | None]
    status: str
    note: str = ""

    class Meta:
        indexes = (Index("status", "country"), Index("status", "shop"))


MODELS = (Shop, Order)


def stock(db: Any, drawn: random.Random, number: int) -> list[Order]:
    db[Shop].bulk_create([Shop(id=at) for at in range(3)])
    orders = [
        Order(
            id=at,
            shop=at % 3,
            country=drawn.choice([None, "a", "b", "c"]),
            status=drawn.choice(["new", "done"]),
            note=drawn.choice("xy"),
        )
        for at in range(number)
    ]
    db[Order].bulk_create(orders, batch_size=5)
    return orders


@pytest.mark.parametrize("kind", ["memory", "sqlite", "no snapshots", "nine ranges"])
def test_numbers_equal_python(kind: str, tmp_path: Any):
    if kind in ("memory", "sqlite"):
        db = Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        orders = stock(db, random.Random(2), 30)
        different = len({one.country for one in orders} - {None})
        new = [one for one in orders if one.status == "new"]
        assert db[Order].aggregate(Count(distinct="country")) == {"country__distinct": different}
        assert db[Order].filter(status="new").aggregate(
            Count(), n=Count(distinct=col(Order.country)), shops=Count(distinct=Order.shop), last=Max("pk")
        ) == {
            "count": len(new),
            "n": len({one.country for one in new} - {None}),
            "shops": len({one.shop for one in new}),
            "last": max(one.id for one in new),
        }
        held = db[Order].filter(note="x").allow_scan().sort_in_memory().aggregate(n=Count(distinct="status"))
        assert held == {"n": len({one.status for one in orders if one.note == "x"})}
        with db.transaction() as tx, tx.unchecked():
            tx[Order].patch(3, country="new")
            assert tx[Order].aggregate(n=Count(distinct="country")) == {"n": different + 1}


def test_values_are_skipped_in_the_index_and_the_plan_says_so():
    db, engine = watched(MODELS)
    db[Shop].create(id=0)
    db[Order].bulk_create(
        [Order(id=at, shop=0, country="ab"[at % 2], status="new") for at in range(400)], batch_size=50
    )
    engine.meter.reset()
    assert db[Order].aggregate(n=Count(distinct="country")) == {"n": 2}
    assert engine.meter.rows + engine.meter.followed < 20
    plan = db[Order].explain_aggregate(Count(), n=Count(distinct="country"), analyze=True)
    assert "different values for n\n  Order: 1 range of index country" in str(plan)
    assert plan.analysis is not None


class Bare(KvModel, collection="orders"):
    id: PrimaryKey[int]
    status: str
    country: str


def test_values_without_an_index_are_refused_and_the_named_line_serves():
    with Database("memory://", models=[Bare]) as db, pytest.raises(NoUsableIndexError) as caught:
        db[Bare].filter(status="new").allow_scan().aggregate(n=Count(distinct="country"))
    line = 'Index("status", "country")'
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"Add {line} to the indexes of Bare.Meta, or call .sort_in_memory(")

    class WithIndex(Bare, collection="orders"):
        class Meta:
            indexes = (eval(line),)

    with Database("memory://", models=[WithIndex]) as db:
        db[WithIndex].create(id=1, status="new", country="a")
        assert db[WithIndex].filter(status="new").aggregate(n=Count(distinct="country")) == {"n": 1}


def test_async_results_and_refusals():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            assert await db[Order].aggregate(n=Count(distinct="country")) == {"n": 0}

    asyncio.run(run())
    with Database("memory://", models=MODELS) as db:
        orders: Any = db[Order]
        calls: list[Callable[[], object]] = [
            lambda: orders.aggregate(Count("id", distinct="country")),
            lambda: orders.group_by("status").aggregate(Count(distinct="country")),
            lambda: orders.all()[:3].aggregate(Count(distinct="country")),
            lambda: db[Shop].with_counts(n=Count(Order.shop, distinct="country", filter=Q(status="new"))),
        ]
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
        with pytest.raises(UnknownFieldError):
            orders.aggregate(Count(distinct="county"))
