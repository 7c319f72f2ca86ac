"""A type alias behaves as the type for which it stands: in fields, markers, unions, filters and upgrades of types."""

from __future__ import annotations

import sys
from datetime import date
from typing import Annotated, Any, Literal, Optional, TypeVar, Union

import pydantic
import pytest
from pydantic import BaseModel, BeforeValidator, JsonValue
from typing_extensions import TypeAliasType

from kvmodels import (
    AUTO,
    Database,
    Field,
    ForeignKey,
    Indexed,
    KvModel,
    ModelDefinitionError,
    MultiIndexed,
    PrimaryKey,
    Unique,
)
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.annotations import plain

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
DAY = date(2020, 1, 2)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    born: date = DAY


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


Number = TypeAliasType("Number", int)
Email = TypeAliasType("Email", Annotated[str, pydantic.Field(max_length=10)])
Maybe = TypeAliasType("Maybe", Optional[T], type_params=(T,))  # noqa: UP045 - a type variable at run time
Many = TypeAliasType("Many", list[T], type_params=(T,))
Swapped = TypeAliasType("Swapped", tuple[B, A], type_params=(A, B))
Same = TypeAliasType("Same", T, type_params=(T,))
Pet = TypeAliasType("Pet", Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")])  # noqa: UP007
Id = TypeAliasType("Id", PrimaryKey[int])
Tree = TypeAliasType("Tree", "dict[str, Tree] | date")
Forest = TypeAliasType("Forest", "list[Forest[T] | int] | T", type_params=(T,))
Kennel = TypeAliasType("Kennel", "list[Kennel] | Cat")


@pytest.mark.parametrize(
    ("annotation", "meant"),
    [
        (Email | None, str | None),
        (Maybe[int] | str, int | str | None),
        (Union[int, Annotated[None, "mark"]], int | None),  # noqa: UP007 - the parts of JsonValue are marked
        (Swapped[int, str], tuple[str, int]),
        (Same[Maybe[int]], int | None),
        (Many[Many[int]], list[Many[int]]),
    ],
)
def test_an_alias_is_its_value(annotation: Any, meant: Any):
    found, expected = plain(annotation), plain(meant)
    assert (found.annotation, found.nullable) == (expected.annotation, expected.nullable)


class Owner(KvModel, collection="owners"):
    id: Id = Field(default=AUTO)
    email: Unique[Email]
    age: Indexed[Maybe[Number]] = Field(default=None)
    tags: MultiIndexed[Many[Email]] = Field(default_factory=list)
    pet: Pet | None = None
    data: JsonValue = None
    tree: Tree = DAY


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    owner_id: ForeignKey[Number, Owner]


def test_aliases_in_markers_and_unions_are_stored_found_and_checked():
    with Database("memory://", models=[Owner, Visit]) as db:
        ada = db[Owner].create(email="a@b", tags=["x"], pet=Cat(), data={"a": [None]}, tree={"a": {"b": DAY}})
        db[Owner].create(email="c@d", age=3)
        assert db[Owner].get(email="a@b") == ada
        assert [one.email for one in db[Owner].filter(age=None)] == ["a@b"]
        assert [one.email for one in db[Owner].filter(age__gte=3)] == ["c@d"]
        assert db[Owner].filter(tags__contains="x").count() == 1
        assert db[Owner].filter(pet__kind="cat").allow_scan().count() == 1
        db[Visit].create(id=1, owner_id=ada.id)
        with pytest.raises(pydantic.ValidationError):
            db[Owner].create(email="longer than ten")
        assert db.check().ok


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (JsonValue, {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (Forest[date], [DAY, [1, [DAY]]], ["2020-01-02", [1, ["2020-01-02"]]]),
        (Kennel, [[Cat()]], [[{"kind": "cat", "born": "2020-01-02"}]]),
    ],
    ids=["JsonValue", "generic", "models"],
)
def test_a_recursive_alias_is_stored_at_every_depth(annotation: Any, value: Any, stored: Any):
    class Record(KvModel):
        id: PrimaryKey[int]
        v: annotation

    schema = schema_of(Record)
    document = schema.prepare(Record(id=1, v=value)).document
    assert document["v"] == stored
    assert schema.decode(document, (1,))[0].v == value


def test_a_json_value_may_be_none():
    assert "data" in schema_of(Owner).nullable_fields
    with Database("memory://", models=[Owner]) as db:
        db[Owner].create(email="a@b", data=None)
        db[Owner].create(email="c@d", data=[None])
        assert [one.email for one in db[Owner].filter(data=None).allow_scan()] == ["a@b"]


def test_a_recursive_alias_of_plain_values_costs_nothing_in_writes():
    assert schema_of(Owner).fields["data"].encode is None
    assert schema_of(Owner).fields["tree"].encode is not None


def test_an_alias_whose_names_are_unknown_is_a_definition_error():
    unknown = TypeAliasType("unknown", "list[Nowhere]")  # type: ignore[name-defined]  # noqa: F821
    with pytest.raises(ModelDefinitionError, match="names a type that does not exist") as caught:
        plain(unknown)
    assert (caught.value.option, caught.value.suggestion) == ("unknown", "Nowhere")


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(str, None), (Email, None), (int, "1a"), (list[int], None), (Literal["a"], "b"), (Pet, None), (bytes, 1)],
)
def test_a_default_of_another_type_is_refused_by_the_class(annotation: Any, default: Any):
    with pytest.raises(ModelDefinitionError, match="the default of a field is not a value of its type") as caught:

        class Book(KvModel):
            id: PrimaryKey[int] = Field(default=AUTO)
            description: annotation = default

    assert (caught.value.model, caught.value.field) == ("Book", "description")
    assert (caught.value.hint or "").startswith("Write description: ") is (default is None)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (float, 0),
        (date, "2020-01-02"),
        (JsonValue, None),
        (Maybe[int], None),
        (Any, None),
        (Annotated[str, BeforeValidator(lambda value: value or "")], None),
    ],
)
def test_a_default_that_validation_converts_is_accepted_and_stored(annotation: Any, default: Any):
    class Book(KvModel, collection="books"):
        id: PrimaryKey[int]
        description: annotation = default

    with Database("memory://", models=[Book]) as db:
        db[Book].create(id=1)
        assert db.check().ok


if sys.version_info >= (3, 12):

    def test_the_type_statement_is_an_alias():
        names: dict[str, Any] = {}
        exec("type Pairs[K, V] = dict[K, list[V] | Pairs[K, V]]", names)
        key, value = plain(names["Pairs"][str, int]).annotation.__args__
        assert (key, value.__args__[0]) == (str, list[int])
