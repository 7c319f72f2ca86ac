"""Sums of Decimals in counters: against Python, the values that are refused, builds, declarations."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    Avg,
    Count,
    Database,
    ForeignKey,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Sum,
    describe,
)


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]


class Sale(KvModel, collection="sales"):
    id: PrimaryKey[int]
    shop: ForeignKey[int, Shop]
    price: Decimal
    tip: Decimal | None = None

    class Meta:
        indexes = (AggregateIndex("shop", sums={"price": 2, "tip": 4}),)


@pytest.fixture
def db():
    with Database("memory://", models=[Shop, Sale]) as opened:
        opened[Shop].bulk_create([Shop(id=number) for number in range(4)])
        yield opened


def sale(number: int, dice: random.Random) -> Sale:
    price = Decimal(dice.randrange(-(10**11), 10**11)) / 100
    tip = None if number % 3 == 0 else Decimal(dice.randrange(10**6)).scaleb(-dice.randrange(5))
    return Sale(id=number, shop=number % 3, price=price, tip=tip)


def test_totals_and_groups_equal_those_of_python_after_every_kind_of_write(db):
    dice, sales = random.Random(7), db[Sale]
    records = {number: sale(number, dice) for number in range(30)}
    sales.bulk_create(records.values())
    for number in range(0, 30, 7):
        records[number] = sale(number, dice)
        sales.patch(number, price=records[number].price, tip=records[number].tip)
    for number in range(3, 30, 9):
        del records[number]
        sales.remove(number)
    with db.transaction() as tx:
        records[40] = tx[Sale].create(id=40, shop=1, price=Decimal("1e9"), tip=Decimal("-0.0001"))
        assert tx[Sale].filter(shop=1).aggregate(Sum("price"))["price__sum"] == total(records, "price", 1)
    for shop in range(3):
        found = sales.filter(shop=shop).aggregate(Count(), Sum("price"), Sum("tip"), Avg("price"), Count("tip"))
        mine = [one for one in records.values() if one.shop == shop]
        assert found["price__sum"] == total(records, "price", shop)
        assert found["tip__sum"] == total(records, "tip", shop)
        assert (found["count"], found["tip__count"]) == (len(mine), sum(one.tip is not None for one in mine))
        assert found["price__avg"] == found["price__sum"] / len(mine)
    rows = sales.group_by("shop").aggregate(price=Sum("price"))
    assert rows.explain().source == "counters"
    assert [row["price"] for row in rows] == [total(records, "price", shop) for shop in range(3)]
    top = rows.order_by("-price")[:1].to_list()
    assert top == [max(rows, key=lambda row: row["price"])]
    counted = db[Shop].with_counts(price=Sum("price", key=Sale.shop)).to_list()
    assert [row["price"] for _, row in counted[:3]] == [row["price"] for row in rows]
    assert db.check().ok


def total(records: dict[int, Sale], field: str, shop: int) -> Decimal | None:
    values = [getattr(one, field) for one in records.values() if one.shop == shop]
    present = [value for value in values if value is not None]
    return sum(present, Decimal(0)) if present else None


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("0.001", "more decimal places"),
        ("-1.999", "more decimal places"),
        ("1E-400", "more decimal places"),
        ("92233720368547758.08", "too large"),
        ("-92233720368547758.08", "too large"),
        ("1E+999999", "too large"),
    ],
)
def test_a_value_that_a_sum_cannot_hold_is_refused_before_anything_is_written(db, price, message):
    sales = db[Sale]
    sales.create(id=1, shop=1, price=Decimal(1))
    for write in (
        lambda: sales.create(id=2, shop=1, price=Decimal(price)),
        lambda: sales.bulk_create([Sale(id=3, shop=1, price=Decimal(1)), Sale(id=4, shop=1, price=Decimal(price))]),
        lambda: sales.patch(1, price=Decimal(price)),
    ):
        with pytest.raises(InvalidValueError, match=message) as caught:
            write()
        assert caught.value.field == "price"
    assert sales.filter(shop=1).aggregate(Count(), Sum("price")) == {"count": 1, "price__sum": Decimal(1)}
    assert db.check().ok


@pytest.mark.parametrize("price", ["1.500000", "0E+30", "-0.000", "92233720368547758.07", "1E+3", "0"])
def test_a_value_that_only_looks_longer_is_stored(db, price):
    db[Sale].create(id=1, shop=1, price=Decimal(price))
    assert db[Sale].filter(shop=1).aggregate(Sum("price")) == {"price__sum": Decimal(price)}


def test_a_sum_shows_all_its_places(db):
    db[Sale].create(id=1, shop=1, price=Decimal(3))
    assert str(db[Sale].filter(shop=1).aggregate(Sum("price"))["price__sum"]) == "3.00"


def with_places(places: int) -> type[KvModel]:
    class Bill(KvModel, collection="bills"):
        id: PrimaryKey[int]
        amount: Decimal

        class Meta:
            indexes = (AggregateIndex(sums={"amount": places}, name="all"),)

    return Bill


def test_a_build_lists_stored_values_with_more_places_and_another_number_of_places_is_a_new_index(tmp_path):
    class Bill(KvModel, collection="bills"):
        id: PrimaryKey[int]
        amount: Decimal

    with Database(tmp_path / "store.db", models=[Bill]) as db:
        db[Bill].bulk_create([Bill(id=1, amount=Decimal("1.005")), Bill(id=2, amount=Decimal(2))])
    two, three = with_places(2), with_places(3)
    with Database(tmp_path / "store.db", models=[two]) as db:
        assert not db.apply().complete
        (violation,) = db.violations(two)
        assert (violation.kind, violation.key) == ("not_encodable", 1)
    with Database(tmp_path / "store.db", models=[three]) as db:
        assert [step.rule for step in db.plan().steps] == ["index_changed"]
        assert db.apply().complete
        assert db[three].aggregate(Sum("amount")) == {"amount__sum": Decimal("3.005")}
        assert db.check().ok


def test_the_description_of_an_index_has_the_places():
    (index,) = [one for one in describe(Sale).indexes if one.name == "shop_totals"]
    assert (index.sums, index.options["sums"]) == (("price", "tip"), {"price": 2, "tip": 4})
    assert repr(AggregateIndex("a", sums={"b": 2})) == "AggregateIndex('a', name=None, sums={'b': 2})"


WRONG: list[tuple[Any, str]] = [
    ({"price": 19}, "from 0 to 18"),
    ({"price": -1}, "from 0 to 18"),
    ({"price": True}, "from 0 to 18"),
    ({"price": "2"}, "from 0 to 18"),
    (("price",), r'sums=\{"price": 2\}'),
    ({"price": None}, r'sums=\{"price": 2\}'),
    ({"pieces": 2}, r'sums=\{"pieces": None\}'),
    ({"weight": 2}, "Decimal with places"),
    ({"cost": 2}, "does not exist"),
]


@pytest.mark.parametrize(("sums", "message"), WRONG)
def test_wrong_declarations_are_refused(sums, message):
    with pytest.raises(ModelDefinitionError, match=message):

        class Wrong(KvModel, collection="wrong"):
            id: PrimaryKey[int]
            price: Decimal
            pieces: int
            weight: float

            class Meta:
                indexes = (AggregateIndex(sums=sums),)
