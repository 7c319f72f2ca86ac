"""Annotations as text: classes to come, the class itself, classes of a function; and generics."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.markers import Indexed, PrimaryKey

V = TypeVar("V")


class Early(KvModel):
    id: PrimaryKey[int]
    later: Later | None = None


class Later(BaseModel):
    n: int


class Tree(KvModel):
    id: PrimaryKey[int]
    parent: Tree | None = None
    children: list[Tree] = []


class Box(KvModel, Generic[V]):
    id: PrimaryKey[int]
    value: Indexed[V]

    class Meta:
        indexes = (Index("value", "-id"),)


class Shelf(KvModel, Generic[V], abstract=True):
    value: V


class Cat(KvModel):
    kind: Literal["cat"] = "cat"
    id: PrimaryKey[int]


class Dog(KvModel):
    kind: Literal["dog"] = "dog"
    id: PrimaryKey[int]


def test_a_class_to_come_is_compiled_at_first_use():
    early = Early(id=1, later=Later(n=2))
    schema = schema_of(Early)
    assert schema.prepare(early).document == {"id": 1, "later": {"n": 2}}
    assert schema.decode({"id": 1, "later": {"n": 2}}, (1,))[0] == early
    assert schema_of(Early) is schema


def test_a_class_that_never_comes_is_named():
    class Lost(KvModel):
        id: PrimaryKey[int]
        other: NeverDefined  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ModelDefinitionError, match="an annotation names a class that does not exist") as caught:
        schema_of(Lost)
    assert (caught.value.model, caught.value.option) == ("Lost", "NeverDefined")


def test_a_model_may_contain_itself():
    tree = Tree(id=1, parent=Tree(id=0), children=[Tree(id=2, children=[Tree(id=3)])])
    schema = schema_of(Tree)
    document = schema.prepare(tree).document
    assert document["parent"] == {"id": 0, "parent": None, "children": []}
    assert schema.decode(document, (1,))[0] == tree


def test_annotations_may_name_classes_of_the_function():
    class Inner(BaseModel):
        n: int

    class Outer(KvModel):
        id: PrimaryKey[int]
        inner: Inner

    assert schema_of(Outer).prepare(Outer(id=1, inner=Inner(n=2))).document == {"id": 1, "inner": {"n": 2}}


def test_a_parametrised_generic_is_a_model_of_its_own():
    integers, texts = schema_of(Box[int]), schema_of(Box[str])
    assert (integers.collection, texts.collection) == ("box_int", "box_str")
    assert integers.column_codecs["value"].name == "int"
    assert list(texts.indexes) == ["value", "value_id"]
    box: Any = Box[int]
    assert (box.value > 3).operand == 3
    assert schema_of(Box[int]).prepare(Box[int](id=1, value=2)).document == {"id": 1, "value": 2}


def test_a_generic_without_its_parameter_holds_any_value_but_cannot_index_it():
    class Loose(KvModel, Generic[V]):
        id: PrimaryKey[int]
        value: V

    assert schema_of(Loose).prepare(Loose(id=1, value=[1])).document == {"id": 1, "value": [1]}
    with pytest.raises(ModelDefinitionError, match="cannot be in a key or index"):
        schema_of(Box)


def test_parametrising_an_abstract_generic_gives_an_abstract_class():
    class Numbers(Shelf[int], collection="numbers"):
        id: PrimaryKey[int]

    assert schema_of(Numbers).collection == "numbers"
    with pytest.raises(ModelDefinitionError, match="abstract"):
        schema_of(Shelf[int])


def test_discriminated_unions_of_models_work_in_pydantic():
    pets = TypeAdapter(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert isinstance(pets.validate_python({"kind": "dog", "id": 1}), Dog)
