"""Faults of a foreign key are found when the class is created, or when the database is opened."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from kvmodels import Database, Field, ForeignKey, Indexed, KvModel, ModelDefinitionError, PrimaryKey, Unique, Upgrade
from tests.references.models import Author, Book, Category


def refused(*models: type[KvModel]) -> ModelDefinitionError:
    """The error of opening a database."""
    with pytest.raises(ModelDefinitionError) as caught:
        Database("memory://", models=models)
    return caught.value


def test_a_foreign_key_is_an_index_of_its_field():
    with Database("memory://", models=[Author, Book]) as db:
        db[Author].create(id=1)
        db[Book].create(id=1, author_id=1)
        assert "index author_id" in str(db[Book].filter(author_id=1).explain())
    assert repr(Book.author_id) == "Book.author_id"
    marker: Any = ForeignKey
    assert marker[int, "Author"] == Annotated[int, ForeignKey("Author")]
    assert repr(ForeignKey(Author)) == "ForeignKey('Author')"


def test_the_target_must_be_a_class_or_a_name():
    wrong: Any = 7
    with pytest.raises(ModelDefinitionError, match="neither a model class"):
        ForeignKey(wrong)
    marker: Any = ForeignKey
    with pytest.raises(ModelDefinitionError, match="has no target"):
        marker[int]


def test_a_name_is_looked_for_among_the_models_of_the_database():
    class Song(KvModel, collection="songs"):
        id: PrimaryKey[int]
        author: ForeignKey[int, "Autor"]  # type: ignore[name-defined]  # noqa: F821, UP037

    error = refused(Song, Author)
    assert (error.field, error.option, error.suggestion) == ("author", "Autor", "Author")


def test_the_key_has_the_type_of_the_primary_key():
    class Song(KvModel, collection="songs"):
        id: PrimaryKey[int]
        author: ForeignKey[str, Author]

    assert "another type" in refused(Song, Author).message


def test_a_target_has_one_key_and_stays():
    class Pair(KvModel, collection="pairs"):
        one: PrimaryKey[int]
        two: PrimaryKey[int]

    class OfPair(KvModel, collection="of_pairs"):
        id: PrimaryKey[int]
        pair: ForeignKey[int, Pair]

    class Brief(KvModel, collection="briefs"):
        id: PrimaryKey[int]

        class Meta:
            ttl = 60

    class OfBrief(KvModel, collection="of_briefs"):
        id: PrimaryKey[int]
        brief: ForeignKey[int, Brief]

    assert "several fields" in refused(OfPair, Pair).message
    assert "expire" in refused(OfBrief, Brief).message


def test_a_class_of_several_is_neither_a_target_nor_has_a_key_of_its_own():
    class Animal(KvModel, collection="animals", discriminator="kind"):
        id: PrimaryKey[int]
        kind: str

    class Dog(Animal):
        kind: Literal["dog"] = "dog"

    class Walk(KvModel, collection="walks"):
        id: PrimaryKey[int]
        dog: ForeignKey[int, Dog]

    class Stroll(KvModel, collection="strolls"):
        id: PrimaryKey[int]
        animal: ForeignKey[int, Animal]

    assert "one class of several" in refused(Walk, Animal).message
    with Database("memory://", models=[Stroll, Animal]) as db:
        db[Animal].insert(Dog(id=1))
        db[Stroll].create(id=1, animal=1)

    class Cat(Animal):
        kind: Literal["cat"] = "cat"
        owner: ForeignKey[int | None, Author] = Field(default=None)

    assert "some classes of a collection" in refused(Animal, Author).message
    del Cat


def test_a_foreign_key_has_no_other_index_and_no_condition():
    with pytest.raises(ModelDefinitionError, match="a second index on its field"):

        class Song(KvModel, collection="songs"):
            id: PrimaryKey[int]
            author: Annotated[ForeignKey[int, Author], Indexed()]

    with pytest.raises(ModelDefinitionError, match="treats None as a value"):

        class Hymn(KvModel, collection="hymns"):
            id: PrimaryKey[int]
            author: Annotated[ForeignKey[int | None, Author], Unique(nulls="equal")] = Field(default=None)

    with pytest.raises(ModelDefinitionError, match="an option that it does not take"):

        class Aria(KvModel, collection="arias"):
            id: PrimaryKey[int]
            author: Annotated[ForeignKey[int, Author], Unique(store="record")]


def test_an_upgrade_touches_no_foreign_key():
    with pytest.raises(ModelDefinitionError, match="touches a foreign key"):

        class Song(KvModel, collection="songs"):
            id: PrimaryKey[int]
            author: ForeignKey[int, Author]

            class Meta:
                schema_version = 2
                upgrades = (Upgrade(2, lambda document: document, touches=("author",)),)


def test_a_target_need_not_be_among_the_models_of_the_database():
    with Database("memory://", models=[Category]) as db:
        db[Category].create(id="a")
        db[Category].create(id="b", parent="a")
        assert db.check().ok


def test_a_class_that_is_declared_again_is_the_target_of_the_keys_declared_after_it():
    for _ in range(2):

        class Team(KvModel, collection="teams"):
            id: PrimaryKey[int]

        class Player(KvModel, collection="players"):
            id: PrimaryKey[int]
            team_id: ForeignKey[int, Team]

        with Database("memory://", models=[Team, Player]) as db:
            assert db[Player].create(id=1, team_id=db[Team].create(id=7)).team_id == 7
