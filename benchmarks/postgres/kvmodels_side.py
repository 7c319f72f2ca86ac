"""kvmodels, with its default options."""

from __future__ import annotations

from benchmarks.postgres.sessions import CONTENDED, PAGE, SCHEMA, Operations, city, email, fields
from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique


class Person(KvModel, collection="people"):
    """The record of the comparison."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]
    name: str
    visits: int


def visit(person: Person) -> None:
    """Count one visit."""
    person.visits += 1


def threads(url: str) -> Operations:
    """Return the operations of a thread."""
    db = Database(url, models=[Person], schema=SCHEMA.format(library="kvmodels"))
    people = db[Person]
    return Operations(
        get=people.get,
        unique_get=lambda number: people.get(email=email(number)),
        page=lambda number: people.filter(city=city(number))[:PAGE].to_list(),
        insert=lambda number: people.insert(Person(**fields(number))),
        update=lambda number: people.patch(number, name=f"Ada {number}"),
        contended_update=lambda _: people.mutate(CONTENDED, visit),
        close=db.close,
    )


async def tasks(url: str) -> Operations:
    """Return the operations of a task."""
    db = await AsyncDatabase(url, models=[Person], schema=SCHEMA.format(library="kvmodels")).open()
    people = db[Person]
    return Operations(
        get=people.get,
        unique_get=lambda number: people.get(email=email(number)),
        page=lambda number: people.filter(city=city(number))[:PAGE].to_list(),
        insert=lambda number: people.insert(Person(**fields(number))),
        update=lambda number: people.patch(number, name=f"Ada {number}"),
        contended_update=lambda _: people.mutate(CONTENDED, visit),
        close=db.close,
    )


def fill(url: str, schema: str, numbers: range) -> None:
    """Make the store, with records of these numbers."""
    with Database(url, models=[Person], schema=schema) as db:
        for start in range(numbers.start, numbers.stop, 1_000):
            some = range(start, min(start + 1_000, numbers.stop))
            db[Person].bulk_create([Person(**fields(number)) for number in some])
