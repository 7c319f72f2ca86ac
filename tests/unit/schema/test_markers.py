"""Markers are Annotated metadata; what is wrong in itself is refused where it is written."""

from typing import Annotated, Any

import pytest

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.declarations import Index, UniqueConstraint
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique


def test_the_bracket_form_is_the_annotated_form():
    pairs: list[tuple[Any, Any]] = [
        (Unique[str], Annotated[str, Unique()]),
        (Indexed[int | None], Annotated[int | None, Indexed()]),
        (PrimaryKey[int], Annotated[int, PrimaryKey()]),
    ]
    for bracket, annotated in pairs:
        assert bracket == annotated


def test_markers_compare_by_their_options():
    assert Indexed(name="a") == Indexed(name="a")
    assert hash(Indexed(name="a")) == hash(Indexed(name="a"))
    assert Indexed(descending=True) != Indexed()
    assert Unique() != Indexed()
    assert Index("a", "-b") == Index("a", "-b")
    assert Index("a") != UniqueConstraint("a")
    assert repr(Unique(nulls="skip")) == "Unique(name=None, nulls='skip', store=None)"


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Unique(nulls="none"),  # type: ignore[arg-type]
        lambda: Unique(store="copy"),  # type: ignore[arg-type]
        lambda: Indexed(nulls="equal"),  # type: ignore[arg-type]
        lambda: Index("a", nulls="equal"),  # type: ignore[arg-type]
        lambda: UniqueConstraint("a", nulls="some"),  # type: ignore[arg-type]
    ],
)
def test_an_option_with_a_wrong_value_is_refused(declare):
    with pytest.raises(ModelDefinitionError, match="an index option has a value that it does not take") as caught:
        declare()
    assert caught.value.hint


@pytest.mark.parametrize("fields", [(), (1,), (None,), ("a", 2)])
def test_an_index_needs_names_of_fields(fields):
    for kind in (Index, UniqueConstraint):
        with pytest.raises(ModelDefinitionError, match="needs the names of one or more fields"):
            kind(*fields)


@pytest.mark.parametrize("fields", [("a", "a"), ("a", "-a")])
def test_an_index_names_a_field_once(fields):
    with pytest.raises(ModelDefinitionError, match="names a field twice") as caught:
        Index(*fields)
    assert caught.value.field == "a"


def test_stored_needs_two_functions():
    with pytest.raises(ModelDefinitionError, match="cannot be called"):
        Stored(str, None)  # type: ignore[arg-type]


def test_field_passes_every_pydantic_option_through():
    info = Field(default=3, ge=1, description="d", alias="a", exclude=True, json_schema_extra={"x": 1})
    assert (info.default, info.description, info.alias, info.exclude) == (3, "d", "a", True)
    assert Field(default_factory=list).default_factory is list
    assert Field().is_required()


def test_an_unknown_option_of_field_is_refused_with_a_suggestion():
    with pytest.raises(ModelDefinitionError, match="an option of Field does not exist") as caught:
        Field(default_factori=list)
    assert (caught.value.option, caught.value.suggestion) == ("default_factori", "default_factory")


def test_a_marker_as_a_class_attribute_says_where_it_belongs():
    class Holder:
        email: Any = Unique()

    assert Holder.email == Unique()
    with pytest.raises(ModelDefinitionError, match="a marker is the value of a class attribute"):
        Holder().email = "x"
