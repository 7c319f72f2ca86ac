"""Foreign keys of classes that share a collection, and of classes that derive from one with another collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from kvmodels import Database, Field, ForeignKey, InvalidValueError, KvModel, PrimaryKey, ReferenceViolationError


class Person(KvModel, collection="persons"):
    id: PrimaryKey[int]
    partner_id: ForeignKey[int | None, "Person"] = Field(default=None)  # noqa: UP037


class Clerk(Person, collection="clerks"):
    """A class with records of its own."""

    desk: int = 0


class Animal(KvModel, collection="animals", discriminator="kind"):
    id: PrimaryKey[int]
    mother_id: ForeignKey[int | None, "Animal"] = Field(default=None)  # noqa: UP037


class Dog(Animal):
    kind: Literal["dog"] = "dog"


class Cat(Animal):
    kind: Literal["cat"] = "cat"


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Clerk, Person, Animal]) as opened:
        yield opened
        assert opened.check().ok


def test_a_self_reference_follows_a_rename_by_the_repository_of_its_class(db: Database):
    db[Dog].create(id=1, mother_id=1)
    assert db[Dog].rename(1, 2).mother_id == 2
    assert db[Animal].rename(2, 3).mother_id == 3
    assert db[Dog].remove(3)


def test_a_rename_keeps_a_reference_to_a_record_of_another_collection_with_the_same_key(db: Database):
    db[Person].create(id=1)
    db[Clerk].create(id=1, partner_id=1)
    assert db[Clerk].rename(1, 2).partner_id == 1


def test_an_object_of_a_derived_class_with_its_own_collection_is_refused(db: Database):
    db[Person].create(id=1)
    clerk = db[Clerk].create(id=1)
    calls: list[Any] = [
        lambda: db[Person].create(id=2, partner_id=clerk),
        lambda: db[Person].patch(1, partner_id=clerk),
        lambda: db[Person].filter(partner_id=clerk).count(),
    ]
    for call in calls:
        with pytest.raises(InvalidValueError) as caught:
            call()
        assert (caught.value.field, caught.value.type) == ("partner_id", "Clerk")
    assert db[Clerk].create(id=3, partner_id=db[Person].get(1)).partner_id == 1


def test_an_object_of_each_class_of_the_collection_is_taken(db: Database):
    dog = db[Dog].create(id=1)
    cat = db[Cat].create(id=2, mother_id=dog)
    assert db[Dog].create(id=3, mother_id=cat).mother_id == 2
    assert db[Animal].filter(mother_id=cat).count() == 1
    assert db[Cat].related(cat, Cat.mother_id) == dog
    with pytest.raises(ReferenceViolationError):
        db[Cat].create(id=4, mother_id=Dog(id=9))


def test_the_referrers_are_those_of_the_class_and_not_of_one_that_derives_from_it(db: Database):
    first = db[Person].create(id=1)
    second = db[Person].create(id=2, partner_id=first)
    clerk = db[Clerk].create(id=7, partner_id=first)
    assert db[Person].fetch_referrers([first], Person.partner_id, limit=5) == {1: [second]}
    assert db[Person].fetch_referrers([first], Clerk.partner_id, limit=5) == {1: [clerk]}
