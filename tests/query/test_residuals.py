"""Conditions that no index answers are tested on records, whatever their operands are, and plans show them apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels import Database, Field, Index, KvModel, PrimaryKey, Q


class Parcel(KvModel, collection="parcels"):
    """An index of two columns, and fields that no index holds: one of them has values that cannot be hashed."""

    id: PrimaryKey[int]
    town: int
    street: int = 0
    weight: float = 0.0
    labels: list[str] = Field(default_factory=list)
    sizes: dict[str, int] = Field(default_factory=dict)

    class Meta:
        indexes = (Index("town", "street"),)


EITHER = Q(town=1, street=2) | Q(town=3, street=4)


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database("memory://", models=[Parcel]) as db:
        for number in range(40):
            db[Parcel].create(
                id=number,
                town=number % 5,
                street=number % 3 + 2,
                weight=float(number % 2),
                labels=["x"] * (number // 8 % 3),
                sizes={"a": number % 2},
            )
        yield db


@pytest.mark.parametrize(
    ("tested", "text"),
    [
        ({"labels": ["x"]}, "labels = ['x']"),
        ({"labels__in": [["x"], []]}, "labels in (['x'], [])"),
        ({"sizes": {"a": 1}}, "sizes = {'a': 1}"),
        ({"weight": 1.0}, "weight = 1.0"),
    ],
)
def test_alternatives_that_one_index_answers_are_read_and_the_rest_is_tested(
    db: Database, tested: dict[str, Any], text: str
):
    asked = db[Parcel].filter(EITHER, **tested)
    plan = asked.explain()
    assert (plan.combine, plan.index, len(plan.ranges)) == ("scan", "town_street", 2)
    assert plan.residual == (text,)
    assert all(text not in bound for bound in plan.bound)
    (name, operand), *_ = tested.items()

    def holds(one: Parcel) -> bool:
        value = getattr(one, name.removesuffix("__in"))
        return value in operand if name.endswith("__in") else bool(value == operand)

    wanted = [one for one in db[Parcel].all() if (one.town, one.street) in {(1, 2), (3, 4)} and holds(one)]
    assert wanted
    assert sorted(one.id for one in asked) == sorted(one.id for one in wanted)
    assert asked.count() == len(wanted)


@pytest.mark.parametrize("order", ["street", "-street", "town"])
def test_a_list_may_hold_none_for_a_column_that_never_does(db: Database, order: str):
    asked = db[Parcel].filter(town__in=[1, None, 3, 1]).order_by(order)
    assert asked.explain().combine == ("scan" if order == "town" else "merge")
    assert {one.town for one in asked} == {1, 3}
    assert asked.count() == 16
    assert db[Parcel].filter(town__in=[None]).order_by(order).to_list() == []
