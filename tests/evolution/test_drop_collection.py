"""A dropped collection leaves nothing in the store, and cannot be used while it is being dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, cast

import pytest

from kvmodels import (
    AUTO,
    CASCADE,
    AggregateIndex,
    AsyncDatabase,
    CatalogueFullError,
    Database,
    Field,
    ForeignKey,
    InvalidArgumentError,
    KvModel,
    Limits,
    MultiIndexed,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
)

HEADER = ("__kvmodels__", "header")


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int] = Field(default=AUTO)
    name: Unique[str]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: Annotated[ForeignKey[int, Author], CASCADE]
    tags: MultiIndexed[list[str]]
    year: int = 0

    class Meta:
        indexes = (AggregateIndex("year", name="years"),)


def fill(db: Database) -> None:
    for number in range(3):
        author = db[Author].create(name=f"a{number}")
        db[Book].bulk_create(
            [Book(id=10 * number + n, author=author.id, tags=["x", "y"], year=n % 3) for n in range(10)]
        )


def test_a_dropped_collection_leaves_no_row(opened):
    fill(opened(Author, Book))
    other = opened()
    seen: list[Any] = []
    assert other.drop_collection("books", progress=seen.append)
    assert seen[-1].collection == "books"
    assert other.drop_collection("books") is False
    assert [one.name for one in other.collections()] == ["authors"]
    assert other.stats().other.rows == 0
    assert other.drop_collection("authors")
    assert [entry.key for entry in other.kv.unsafe().list(())] == [HEADER]
    assert opened(Author, Book)[Author].create(name="a0").id == 1


def test_a_collection_that_a_model_or_a_foreign_key_uses_is_not_dropped(opened):
    db = opened(Author, Book)
    fill(db)
    with pytest.raises(InvalidArgumentError):
        db.drop_collection("books")
    other = opened()
    with pytest.raises(SchemaMismatchError) as caught:
        other.drop_collection("authors")
    assert (caught.value.collection, caught.value.index) == ("books", "author")
    with pytest.raises(InvalidArgumentError):
        other.drop_collection(cast("Any", Author))
    assert (db[Author].count(), db[Book].count()) == (3, 30)
    assert db.check().ok


def test_an_interrupted_drop_is_finished_and_nobody_uses_the_collection_meanwhile(opened):
    user = opened(Author, Book)
    fill(user)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    other = opened()
    with pytest.raises(KeyboardInterrupt):
        other.drop_collection("books", progress=stop)
    for db in (user, opened(Author, Book)):
        with pytest.raises(SchemaMismatchError, match="being dropped"):
            db[Book].create(id=99, author=1, tags=[])
        with pytest.raises(SchemaMismatchError, match="being dropped"):
            db[Book].filter(author=1).to_list()
        assert [step.rule for step in db.plan(Book).steps] == ["collection_dropping"]
        with pytest.raises(SchemaChangeRefusedError):
            db.apply()
    assert user[Author].remove(3)  # the foreign key protects nothing any more
    assert other.drop_collection("books")
    assert other.stats().other.rows == 0
    with pytest.raises(SchemaMismatchError):
        user[Book].create(id=1, author=1, tags=[])  # it was opened with the collection that is gone
    again = opened(Author, Book)
    again[Book].create(id=1, author=1, tags=["x"])
    again.check(repair=True)  # the guard of the author that was removed meanwhile
    assert again.check().ok


def test_a_copy_of_a_store_leaves_out_a_collection_that_is_being_dropped(opened, tmp_path):
    fill(opened(Author, Book))
    other = opened()

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        other.drop_collection("books", progress=stop)
    with open(tmp_path / "dump", "w+", encoding="utf-8") as file:
        other.kv.dump(file)
        file.seek(0)
        copy = Database(models=[])
        copy.kv.load(file)
    assert [one.name for one in copy.collections()] == ["authors"]
    assert not [entry for entry in copy.kv.unsafe().list(()) if str(entry.key[0]).startswith("books")]


def model(number: int) -> type[KvModel]:
    """Return a class of a collection with many fields, whose description takes some hundred bytes."""
    fields: dict[str, Any] = {f"field_{number}_{n}": (int, 0) for n in range(12)}
    annotations = {"id": PrimaryKey[int], **{name: kind for name, (kind, _) in fields.items()}}
    values = {name: default for name, (_, default) in fields.items()}
    body = {"__annotations__": annotations, "__module__": __name__, "__qualname__": f"M{number}", **values}
    return cast("type[KvModel]", cast("Any", type(KvModel))(f"M{number}", (KvModel,), body, collection=f"m{number}"))


def test_a_full_catalogue_says_so_and_has_room_after_a_drop(opened):
    small = replace(Limits.DENO, max_value_bytes=2_000)
    opened(model(1), limits=small)
    with pytest.raises(CatalogueFullError) as caught:
        opened(*map(model, range(1, 9)), limits=small)
    assert (caught.value.maximum, caught.value.collections) == (2_000, 8)
    assert caught.value.size > 2_000
    for number in range(2, 5):
        with pytest.raises(CatalogueFullError):
            opened(*map(model, range(number, number + 4)), limits=small)
    db = opened(limits=small)
    assert db.drop_collection("m1")
    assert [one.name for one in opened(model(9), limits=small).collections()] == ["m9"]


async def test_the_asynchronous_form_drops_too():
    async with AsyncDatabase("memory://dropped", models=[Author, Book]) as db:
        await db[Author].create(name="a")
        async with AsyncDatabase("memory://dropped") as other:
            assert await other.drop_collection("books")
            assert await other.drop_collection("authors")
            assert await other.collections() == ()
