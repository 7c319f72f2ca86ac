"""The models of these tests: people, and a later release of the model with more indexes."""

from __future__ import annotations

from kvmodels import AggregateIndex, Index, Indexed, KvModel, PrimaryKey, Unique


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    age: int = 0


class PersonByAge(KvModel, collection="people"):
    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    age: int = 0

    class Meta:
        indexes = (Index("city", "age"), AggregateIndex("city", sums=("age",)))


def people(numbers: range) -> list[Person]:
    return [Person(id=n, email=f"{n}@x", city=("Oslo", "Rome", "Bern")[n % 3], age=n) for n in numbers]
