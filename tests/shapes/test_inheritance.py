"""Abstract bases, mixins and generic classes: what a class gets of them, over verbs, kinds of index and queries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, computed_field, field_validator

from kvmodels import (
    ULID,
    AggregateIndex,
    AutoNowAdd,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    KvModel,
    ModelDefinitionError,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    Version,
)
from kvmodels.schema.compile.schema import schema_of

T = TypeVar("T")
U = TypeVar("U")


class Place(BaseModel):
    city: str
    zip: str | None = None


class Base(KvModel, abstract=True):
    """Every kind of index, in an abstract class."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    name: Annotated[str, Unique(key=str.casefold)]
    group: Indexed[str] = Field(default="g")
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    place: Place | None = None
    rank: int = 0
    created_at: datetime = AutoNowAdd()

    class Meta:
        indexes = (
            Index("group", "-rank", where=Q(rank__gt=0), include=("tags",), name="ranked"),
            Index("place.city", nulls="skip", name="city"),
            AggregateIndex("group", sums=("rank",), name="totals"),
        )

    @property
    def shout(self) -> str:
        return self.name.upper()

    @field_validator("name")
    @classmethod
    def _strip(cls, name: str) -> str:
        return name.strip()


class Person(Base, collection="people"):
    age: Indexed[int] = Field(default=1)

    class Meta:
        indexes = (UniqueConstraint("age", "group"),)


class Dog(Base, collection="dogs"):
    owner: str | None = None


class Puppy(Dog, collection="puppies"):
    """Of a class with records of its own: the fields with their markers, but not the indexes of its Meta."""

    weeks: int = 0


class Counted:
    """A mixin that knows nothing of models."""

    def describe(self) -> str:
        return f"{type(self).__name__} {getattr(self, 'id', None)}"


class Named(BaseModel):
    """A mixin with fields that is a plain pydantic model."""

    model_config = ConfigDict(str_strip_whitespace=True)

    title: Indexed[str]
    subtitle: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def heading(self) -> str:
        return f"{self.title}: {self.subtitle}"


class Revised(KvModel, abstract=True):
    """A mixin with fields and hooks that is an abstract model."""

    revision: int = Version()

    def before_insert(self) -> None:
        super().before_insert()
        self.__dict__["note"] = "made"


class Book(Named, Revised, KvModel, collection="books"):
    id: PrimaryKey[int]
    note: str = ""


class Tool(Counted, Revised, collection="tools"):
    id: PrimaryKey[int]
    note: str = ""


def fill(repository: Any) -> None:
    for number, name in enumerate(("Ada", " Eve ", "ida")):
        repository.create(
            name=name, rank=number, tags=["x", name.strip()], place={"city": f"c{number}"}, group="ab"[number % 2]
        )


@pytest.mark.parametrize("model", [Person, Dog])
def test_a_class_gets_fields_markers_indexes_validators_and_methods_of_its_abstract_base(model: Any):
    with Database("memory://", models=[Person, Dog, Puppy]) as db:
        things: Any = db[model]
        if model is Person:
            for number, name in enumerate(("Ada", " Eve ", "ida")):
                things.create(
                    name=name, rank=number, tags=["x", name.strip()], place={"city": f"c{number}"},
                    group="ab"[number % 2], age=number,
                )  # fmt: skip
        else:
            fill(things)
        assert things.get(name="EVE").shout == "EVE"
        for query, index, expected in (
            (things.filter(group="a", rank__gt=0).order_by("-rank"), "ranked", ["ida"]),
            (things.filter(tags__contains="Ada"), "tags", ["Ada"]),
            (things.filter(place__city="c1"), "city", ["Eve"]),
            (things.filter(group="b"), "group", ["Eve"]),
        ):
            assert [one.name for one in query] == expected
            assert query.explain().index == index
        assert list(things.group_by("group").aggregate(n=Count())) == [{"group": "a", "n": 2}, {"group": "b", "n": 1}]
        assert things.first().created_at.year > 2000
        with pytest.raises(UniqueViolationError):
            things.create(name="ADA", age=9) if model is Person else things.create(name="ADA")
        ada = things.get(name="ada")
        assert things.patch(ada.id, rank=5).rank == 5
        assert things.rename(ada.id, ULID()).name == "Ada"
        assert things.remove(things.get(name="ida"))
        assert things.count() == 2
        assert db.check().ok


def test_classes_of_one_base_share_nothing_in_the_store():
    with Database("memory://", models=[Person, Dog]) as db:
        fill(db[Dog])
        db[Person].create(name="Ada", group="z")
        assert (db[Dog].count(), db[Person].count()) == (3, 1)
        assert "age_group" in schema_of(Person).indexes
        assert "age_group" not in schema_of(Dog).indexes
    with pytest.raises(ModelDefinitionError, match="abstract model has no records"):
        Database("memory://", models=[Base])


def test_a_class_of_a_class_with_records_has_its_fields_and_a_collection_of_its_own():
    assert {"name", "group", "tags"} <= schema_of(Puppy).indexes.keys()
    assert "ranked" in schema_of(Puppy).indexes
    with Database("memory://", models=[Dog, Puppy]) as db:
        db[Puppy].create(name="Rex", weeks=8)
        assert db[Dog].count() == 0
        assert db[Puppy].get(name="rex").weeks == 8
        assert db.check().ok


def test_mixins_with_and_without_fields():
    with Database("memory://", models=[Book, Tool]) as db:
        book = db[Book].create(id=1, title="  Notes ", subtitle="x")
        assert (book.title, book.heading, book.note, book.revision) == ("Notes", "Notes: x", "made", 1)
        assert db[Book].filter(title="Notes").explain().index == "title"
        assert "heading" not in db.kv.get(("books", 1)).value
        assert db[Book].patch(1, title="Other").revision == 2
        assert db[Book].filter(title="Other").count() == 1
        tool = db[Tool].create(id=1)
        assert (tool.describe(), tool.note) == ("Tool 1", "made")
        assert db.check().ok


class Box(KvModel, Generic[T]):
    id: PrimaryKey[int]
    value: Indexed[T]
    others: list[T] = Field(default_factory=list)


class Pair(KvModel, Generic[T, U], abstract=True):
    id: PrimaryKey[int]
    left: Unique[T]
    right: U

    class Meta:
        indexes = (Index("right", "-left", name="both"),)


class IntPair(Pair[int, str], collection="int_pairs"):
    more: Indexed[bool] = Field(default=False)


@pytest.mark.parametrize(
    ("model", "values"),
    [(Box[int], [3, -1, 2]), (Box[str], ["c", "a", "b"]), (Box[bytes], [b"b", b"a"])],
)
def test_a_parametrised_generic_class_is_a_model_of_its_own(model: Any, values: list[Any]):
    with Database("memory://", models=[model]) as db:
        boxes: Any = db[model]
        for number, value in enumerate(values):
            boxes.create(id=number, value=value, others=[value])
        assert [box.value for box in boxes.order_by("value")] == sorted(values)
        for value in values:
            assert boxes.filter(value=value).first().others == [value]
        assert boxes.count() == len(values)
        assert db.check().ok


def test_generic_classes_of_different_parameters_have_different_collections():
    assert {schema_of(Box[int]).collection, schema_of(Box[str]).collection} == {"box_int", "box_str"}
    with Database("memory://", models=[Box[int], Box[str]]) as db:
        db[Box[int]].create(id=1, value=5)
        assert db[Box[str]].count() == 0
        with pytest.raises(ModelDefinitionError):
            schema_of(Box)


def test_a_class_of_a_parametrised_abstract_generic_has_its_indexes():
    with Database("memory://", models=[IntPair]) as db:
        pairs = db[IntPair]
        for number in range(4):
            pairs.create(id=number, left=number, right="ab"[number % 2])
        assert [pair.left for pair in pairs.filter(right="a").order_by("-left")] == [2, 0]
        assert pairs.filter(right="a").order_by("-left").explain().index == "both"
        with pytest.raises(UniqueViolationError):
            pairs.create(id=9, left=1, right="x")
        assert pairs.rename(1, 7).left == 1
        assert pairs.get(left=1).id == 7
        assert db.check().ok
