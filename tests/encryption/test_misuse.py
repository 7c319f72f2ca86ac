"""Every place that an encrypted field cannot have is refused when the class is created."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    AutoNow,
    Blob,
    Encrypted,
    ExclusionConstraint,
    Field,
    ForeignKey,
    GeoIndex,
    Index,
    Indexed,
    IntervalIndex,
    InvalidArgumentError,
    KeyRing,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Q,
    RankIndex,
    SearchIndex,
    TrigramIndex,
    Unique,
    UniqueConstraint,
)
from kvmodels.schema.compile.polymorphic import collection_schema
from tests.encryption.models import Patient


def declared(**annotations: Any) -> type[Any]:
    """A class with an encrypted field ``secret``, and further annotations or options of ``Meta``."""
    meta = {name: annotations.pop(name) for name in ("indexes",) if name in annotations}
    namespace = {
        "__module__": __name__,
        "__qualname__": "Declared",
        "__annotations__": {
            "id": PrimaryKey[int],
            "group": str,
            "when": datetime,
            "number": int,
            "secret": Encrypted[str],
            "low": Encrypted[int],
            **annotations,
        },
        "Meta": type("Meta", (), {**meta, "__qualname__": "Declared.Meta"}),
    }
    kind: Any = type(KvModel)
    made: type[Any] = kind("Declared", (KvModel,), namespace, collection="declared")
    return made


def lowered(value: str) -> str:
    return value.lower()


MARKED = {
    "a primary key": {"secret": Annotated[Encrypted[str], PrimaryKey()]},
    "a foreign key": {"secret": Annotated[Encrypted[int], ForeignKey(Patient)]},
    "an order": {"secret": Annotated[Encrypted[str], Indexed(descending=True)]},
    "a copy of the record": {"secret": Annotated[Encrypted[str], Unique(store="record")]},
    "a condition on itself": {"secret": Annotated[Encrypted[str], Indexed(where=Q(secret="x"))]},
    "included fields": {"group": Annotated[str, Indexed(include=("secret",))]},
    "a part of a type": {"secret": list[Encrypted[str]]},
}


@pytest.mark.parametrize("fields", MARKED.values(), ids=MARKED)
def test_a_marker_that_needs_the_plain_value_is_refused(fields: dict[str, Any]):
    with pytest.raises(ModelDefinitionError) as caught:
        declared(**fields)
    assert caught.value.hint


META = [
    Index("-secret"),
    Index("group", "secret", store="record"),
    Index("group", include=("secret",)),
    Index("group", where=Q(secret="x")),
    Index("group", where=~Q(secret="x") & Q(number__gt=1)),
    Index("secret", key=lowered, name="lowered", version=1, returns=str),
    UniqueConstraint("group", "-secret"),
    AggregateIndex("secret"),
    AggregateIndex("group", sums=("low",)),
    RankIndex("low", low=0, high=9, name="board"),
    RankIndex("number", group="secret", low=0, high=9, name="board"),
    SearchIndex("secret"),
    SearchIndex("group", group="secret", name="texts"),
    TrigramIndex("secret"),
    GeoIndex("secret"),
    IntervalIndex("low", "number", name="spans"),
    ExclusionConstraint("low", "number", group="secret", name="apart"),
]


@pytest.mark.parametrize("index", META, ids=lambda index: repr(index).partition(" at 0x")[0])
def test_an_index_that_needs_the_plain_value_is_refused(index: Any):
    with pytest.raises(ModelDefinitionError) as caught:
        declared(indexes=(index,))
    assert caught.value.hint
    assert caught.value.field in ("secret", "low")


def test_a_field_that_the_library_sets_is_refused():
    with pytest.raises(ModelDefinitionError, match="sets is encrypted"):

        class Timed(KvModel, collection="timed"):
            id: PrimaryKey[int]
            at: Encrypted[datetime] = AutoNow()


def test_a_blob_is_refused():
    with pytest.raises(ModelDefinitionError):
        declared(scan=Encrypted[Blob])


def test_a_part_of_a_nested_model_is_refused():
    class Inner(BaseModel):
        street: Encrypted[str]

    with pytest.raises(ModelDefinitionError, match="a part of a field is encrypted"):
        declared(inner=Inner)


def test_the_discriminator_is_refused():
    class Animal(KvModel, collection="animals", discriminator="kind"):
        id: PrimaryKey[int]

    with pytest.raises(ModelDefinitionError, match="discriminator is encrypted"):

        class Cat(Animal):
            kind: Encrypted[Literal["cat"]] = Field(default="cat")

        collection_schema(Animal)


@pytest.mark.parametrize("keys", [{}, {0: bytes(32)}, {1: bytes(31)}, {1: "x" * 32}, {"1": bytes(32)}, None])
def test_keys_of_a_wrong_form_are_refused_without_showing_them(keys: Any):
    with pytest.raises(InvalidArgumentError) as caught:
        KeyRing(keys)
    assert "xxx" not in str(caught.value)


@pytest.mark.parametrize(
    "index_key", [0, -1, True, "1", (), (1, 1), (2, 1, 2), (1, "2"), (1, True), (0,), [2, 1], None, ((1, 2),)]
)
def test_an_index_key_of_a_wrong_form_is_refused(index_key: Any):
    with pytest.raises(ModelDefinitionError, match=r"index_key=\(2, 1\)"):
        Encrypted(index_key=index_key)


def test_two_classes_of_a_collection_with_different_index_keys_are_refused():
    class Base(KvModel, collection="animals", discriminator="kind"):
        id: PrimaryKey[int]
        kind: str

    class Cat(Base):
        kind: Literal["cat"] = "cat"
        chip: Annotated[str, Encrypted(index_key=(2, 1)), Indexed()]

    class Dog(Base):
        kind: Literal["dog"] = "dog"
        chip: Annotated[Encrypted[str], Indexed()]

    with pytest.raises(ModelDefinitionError, match="different index keys"):
        collection_schema(Base)
