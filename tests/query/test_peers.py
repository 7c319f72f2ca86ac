"""Defects of other libraries that were reproduced there, as regressions that must not happen here."""

from __future__ import annotations

import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey
from tests.query.models import Person, people


@pytest.fixture
def db() -> Database:
    db = Database("memory://", models=[Person])
    db[Person].bulk_create([Person(**fields) for fields in people(30)])
    return db


def test_K12_a_slice_is_counted_as_a_slice(db: Database):
    assert db[Person].all()[:2].count() == 2
    assert db[Person].all()[28:40].count() == 2
    assert db[Person].filter(color="red")[1:4].count() == 3
    assert db[Person].filter(score__gte=1.0).allow_scan()[:3].count() == 3
    assert db[Person].all()[:0].count() == 0
    assert db[Person].count() == 30


def test_K13_paging_skips_and_repeats_nothing(db: Database):
    pages: list[list[int]] = []
    cursor = None
    while not pages or cursor is not None:
        page = db[Person].all().page(size=2, after=cursor)
        pages.append([person.id for person in page])
        cursor = page.next_cursor
    assert pages == [[number, number + 1] for number in range(0, 30, 2)]


def test_K14_index_order_is_the_order_of_the_values_and_not_of_their_text():
    class Visitor(KvModel, collection="visitors"):
        id: PrimaryKey[int]
        age: Indexed[float]

    with Database("memory://", models=[Visitor]) as db:
        for number, age in enumerate([100, 9, 2.5, -1, 10]):
            db[Visitor].create(id=number, age=age)
        assert [visitor.age for visitor in db[Visitor].order_by("age")] == [-1, 2.5, 9, 10, 100]
        assert [visitor.age for visitor in db[Visitor].filter(age__gte=9.0).order_by("-age")] == [100, 10, 9]


def test_P3_an_index_that_is_not_unique_is_queried_without_the_primary_key(db: Database):
    assert [person.id for person in db[Person].filter(color="red")] == list(range(0, 30, 3))


def test_P6_take_skip_order_are_honoured(db: Database):
    assert [person.id for person in db[Person].order_by("-id")[2:5]] == [27, 26, 25]
    assert [person.id for person in db[Person].filter(color="red").order_by("color", "-id")[1:3]] == [24, 21]
