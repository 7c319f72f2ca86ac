"""An index that has no row, or several rows, for some records is not taken for one that has one row of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    Database,
    Field,
    Index,
    KvModel,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UniqueConstraint,
)


class Crate(KvModel, collection="crates"):
    """Each index over ``row`` leaves out something, but for the last one."""

    id: PrimaryKey[int]
    row: int = 0
    mass: int | None = None
    seal: int | None = None
    marks: MultiIndexed[list[str] | None] = Field(default=None)

    class Meta:
        indexes = (
            Index("row", "marks", name="by_marks"),
            Index("row", "mass", nulls="skip", name="known"),
            Index("row", where=Q(mass__gt=2), name="heavy"),
            UniqueConstraint("seal"),
            UniqueConstraint("row", "seal", nulls="skip", name="sealed"),
            AggregateIndex("marks"),
            Index("row", name="complete"),
        )


RECORDS = [
    Crate(
        id=number,
        row=number % 4,
        mass=(None, 1, 5)[number % 3],
        seal=number if number % 5 == 0 else None,
        marks=(None, [], ["a"], ["a", "b"], ["b", "b"])[number % 5],
    )
    for number in range(60)
]


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database("memory://", models=[Crate]) as db:
        db[Crate].bulk_create(RECORDS)
        yield db


Ask = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("ask", "holds", "index"),
    [
        (lambda q: q.filter(row=1), lambda c: c.row == 1, "complete"),
        (lambda q: q.filter(row__in=[1, 2]), lambda c: c.row in (1, 2), "complete"),
        (lambda q: q.filter(row__gte=2), lambda c: c.row >= 2, "complete"),
        (lambda q: q.order_by("row"), lambda c: True, "complete"),
        (lambda q: q.filter(row=1, mass=None), lambda c: c.row == 1 and c.mass is None, "complete"),
        (lambda q: q.filter(row=1).exclude(mass=5), lambda c: c.row == 1 and c.mass != 5, "complete"),
        (lambda q: q.filter(row=1, mass=5), lambda c: c.row == 1 and c.mass == 5, "known"),
        (lambda q: q.filter(row=1, mass__ne=None), lambda c: c.row == 1 and c.mass is not None, "known"),
        (lambda q: q.filter(row=1, mass__gte=2), lambda c: c.row == 1 and (c.mass or 0) >= 2, "known"),
        (
            lambda q: q.filter(row=1, marks__contains="a"),
            lambda c: c.row == 1 and "a" in (c.marks or []),
            "by_marks",
        ),
        (
            lambda q: q.filter(row=1, marks__any__gte="a"),
            lambda c: c.row == 1 and bool(c.marks),
            "by_marks",
        ),
        (lambda q: q.filter(row=1, marks=None), lambda c: c.row == 1 and c.marks is None, "by_marks"),
        (lambda q: q.filter(row=1, marks=[]), lambda c: c.row == 1 and c.marks == [], "complete"),
        (
            lambda q: q.filter(row=1).exclude(marks__contains="a"),
            lambda c: c.row == 1 and c.id % 5 not in (2, 3),
            "complete",
        ),
        (lambda q: q.filter(row=1, marks__isnull=False), lambda c: c.row == 1 and c.marks is not None, "complete"),
        (lambda q: q.filter(row=1, marks__any__not_in=[]), lambda c: c.row == 1 and bool(c.marks), "complete"),
        (lambda q: q.filter(row=1, seal=None), lambda c: c.row == 1 and c.seal is None, None),
        (lambda q: q.filter(seal=None), lambda c: c.seal is None, "seal"),
    ],
)
def test_no_record_is_missing_and_none_comes_twice(db: Database, ask: Ask, holds: Callable[[Crate], bool], index: str):
    asked = ask(db[Crate].all())
    if index is not None:
        assert asked.explain().index == index
    wanted = sorted(one.id for one in RECORDS if holds(one))
    assert wanted
    assert sorted(one.id for one in asked) == wanted
    assert sorted(one.id for one in asked.reverse()) == wanted
    assert asked.count() == len(wanted)
    assert sorted(row["id"] for row in asked.values("id")) == wanted


@pytest.mark.parametrize("name", ["by_marks", "known", "heavy", "sealed"])
def test_an_index_that_lacks_records_is_refused_even_if_it_is_asked_for(db: Database, name: str):
    with pytest.raises(NoUsableIndexError):
        db[Crate].filter(row=1).using_index(name).to_list()
    with pytest.raises(NoUsableIndexError):
        db[Crate].order_by("row").allow_scan().using_index(name).to_list()


def test_several_records_without_a_unique_value_come_in_the_order_that_is_asked_for(db: Database):
    without = db[Crate].filter(seal=None)
    assert [one.id for one in without.order_by("-id")] == [one.id for one in RECORDS[::-1] if one.seal is None]
    with pytest.raises(NoUsableIndexError):
        without.order_by("mass").to_list()
    assert db[Crate].filter(seal=5).order_by("mass").explain().index == "seal", "one row is in any order"
    with pytest.raises(Crate.MultipleObjectsReturned):
        db[Crate].get(seal=None)


def test_counters_of_elements_do_not_count_records(db: Database):
    assert db[Crate].count() == 60
    assert db[Crate].filter(marks__contains="b").count() == 24
    assert db[Crate].filter(marks__contains_any=["a", "b"]).count() == 36
    assert db[Crate].filter(marks__any__gte="a").count() == 36
    assert db[Crate].filter(marks=None).count() == 12
