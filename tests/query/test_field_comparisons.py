"""Comparisons of two fields of one record: ``filter(sold__gte=F("ordered"))``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import product
from typing import Any

import pytest

from kvmodels import (
    Database,
    F,
    Field,
    ForeignKey,
    History,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownFieldError,
)

DAY = date(2026, 1, 1)
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "exact": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


class Shelf(KvModel, collection="shelves"):
    id: PrimaryKey[int]
    least: int = 0
    most: int = 0


class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    shelf: ForeignKey[int, Shelf]
    state: Indexed[str] = Field(default="open")
    ordered: int | None = None
    sold: int | None = None
    begun: date = DAY
    ended: date | None = None
    price: float = 1.0
    tags: list[int] = Field(default_factory=list)
    note: str = ""

    class Meta:
        indexes = (Index("state", "sold", include=("ordered",), name="covering"),)
        history = History(exclude=("note",))


def satisfied(lookup: str, left: Any, right: Any) -> bool:
    """Whether two values satisfy a lookup: None equals None, and has no order."""
    if lookup not in ("exact", "ne") and None in (left, right):
        return False
    return COMPARED[lookup](left, right)


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Database, list[Item]]]:
    """A store with items of all combinations of None and two values."""
    numbers = (None, 0, 1)
    items = [
        Item(id=number, shelf=1, ordered=ordered, sold=sold, ended=None if days is None else DAY + timedelta(days=days))
        for number, (ordered, sold, days) in enumerate(product(numbers, numbers, numbers))
    ]
    with Database("memory://", models=[Shelf, Item]) as db:
        db[Shelf].create(id=1)
        db[Item].bulk_create(items)
        yield db, items


@pytest.mark.parametrize("lookup", [*COMPARED])
def test_a_filter_equals_the_comparison_in_python(lookup: str, filled: tuple[Database, list[Item]]):
    db, items = filled
    wanted = {one.id for one in items if satisfied(lookup, one.sold, one.ordered)}
    dated = {one.id for one in items if satisfied(lookup, one.ended, one.begun)}
    keyed = {one.id for one in items if satisfied(lookup, one.sold, one.id)}
    found = db[Item].filter(state="open")

    def ids(query: Any) -> set[int]:
        return {one.id for one in query}

    kept: dict[str, Any] = {f"sold__{lookup}": F("ordered")}
    assert ids(found.filter(**kept)) == wanted
    assert ids(found.exclude(**kept)) == {one.id for one in items} - wanted
    assert ids(found.using_index("covering").filter(**kept)) == wanted
    assert found.filter(**kept).count() == len(wanted)
    assert ids(found.filter(**{f"ended__{lookup}": F("begun")})) == dated
    assert ids(found.filter(Q(**{f"sold__{lookup}": F("id")}) | Q(**kept))) == wanted | keyed
    with db.transaction() as tx:
        assert ids(tx[Item].filter(state="open", **kept)) == wanted


def test_operators_of_two_fields_are_lookups():
    with Database("memory://", models=[Shelf, Item]) as db:
        db[Shelf].create(id=1)
        db[Item].bulk_create([Item(id=n, shelf=1, ordered=2, sold=n) for n in range(5)])
        found = db[Item].filter(state="open")
        for test in (operator.lt, operator.le, operator.gt, operator.ge):
            assert {one.id for one in found.filter(test(F("sold"), F("ordered")))} == {
                n for n in range(5) if test(n, 2)
            }
        plan = found.filter(F("sold") < F("ordered")).explain()
        assert "sold < ordered" in str(plan)
        assert found.filter(F("sold") < F("ordered")).update(note="late").written == 2


def test_fields_of_a_target_are_compared_with_each_other():
    with Database("memory://", models=[Shelf, Item]) as db:
        db[Shelf].bulk_create([Shelf(id=1, least=1, most=2), Shelf(id=2, least=3, most=2)])
        db[Item].bulk_create([Item(id=n, shelf=n % 2 + 1) for n in range(4)])
        found = db[Item].filter(state="open")
        assert {one.id for one in found.filter(shelf__least__lte=F("most"))} == {0, 2}
        assert {one.id for one in found.exclude(shelf__least__lte=F("most"))} == {1, 3}


@pytest.mark.parametrize(
    ("keywords", "said", "error"),
    [
        ({"sold__lt": F("price")}, "sold is of the type int, price of float", InvalidValueError),
        ({"sold__in": [F("ordered")]}, "wrong type", InvalidValueError),
        ({"sold__range": F("ordered")}, "exact, ne, lt, lte, gt and gte", InvalidValueError),
        ({"tags__contains": F("sold")}, "exact, ne, lt, lte, gt and gte", InvalidValueError),
        ({"sold__lt": F("tags")}, "exact, ne, lt, lte, gt and gte", InvalidValueError),
        ({"sold__lt": F("ordered") + 1}, "declare a computed column for arithmetic", InvalidValueError),
        ({"sold__lt": F("orderd")}, "ordered", UnknownFieldError),
        ({"sold": Item.ordered}, 'another field as F\\("name"\\)', InvalidValueError),
    ],
)
def test_other_operands_are_refused(keywords: dict[str, Any], said: str, error: type[Exception]):
    with Database("memory://", models=[Shelf, Item]) as db, pytest.raises(error, match=said):
        db[Item].filter(state="open", **keywords)


def test_no_index_serves_a_comparison_of_fields_alone():
    with Database("memory://", models=[Shelf, Item]) as db:
        with pytest.raises(NoUsableIndexError, match="No index answers such a comparison of 'sold'"):
            db[Item].filter(sold__lt=F("ordered")).to_list()
        assert db[Item].filter(sold__lt=F("ordered")).allow_scan().to_list() == []
        db[Shelf].create(id=1)
        made = db[Item].create(id=1, shelf=1)
        with pytest.raises(InvalidArgumentError, match="excludes"):
            db[Item].as_of(made.versionstamp or "").filter(state__lt=F("note")).allow_scan().to_list()
    with pytest.raises(ModelDefinitionError, match="comparison that indexes do not support"):

        class _Partial(KvModel, collection="partial"):
            id: PrimaryKey[int]
            a: int
            b: int

            class Meta:
                indexes = (Index("a", where=Q(a__lt=F("b"))),)
