"""Computed columns and folded fields: when their functions are called, what is stored, and what is refused."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, field_validator

from kvmodels.errors import InvalidValueError, KvModelsError, ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.markers import Field, Indexed, MultiIndexed, PrimaryKey, Unique
from kvmodels.schema.instances import ObjectState, set_state


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Address(BaseModel):
    city: str
    zip: str | None = None


def initial(name: str) -> str:
    return name[:1].upper()


def words(text: str) -> set[str]:
    return set(text.split())


def size_of(names: list[str]) -> Size | None:
    return Size.LARGE if len(names) > 1 else Size.SMALL if names else None


def joined(city: str, name: str) -> str:
    return f"{city}/{name}"


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    name: Annotated[str, Unique(key=str.casefold)]
    nick: Annotated[str | None, Indexed(key=initial, version=2)] = Field(default=None)
    names: Annotated[list[str], MultiIndexed(key=str.casefold)] = Field(default_factory=list)
    sizes: Annotated[set[Size] | None, MultiIndexed(key=lambda size: size, version=1)] = Field(default=None)
    address: Address | None = None

    class Meta:
        indexes = (
            Index("name", key=initial, version=1, name="initial"),
            Index("name", key=words, version=1, name="words"),
            Index("names", key=size_of, version=4, name="size"),
            Index("address.city", "name", key=joined, version=1, name="joined"),
        )


def place(**values: Any) -> Place:
    return Place(**{"id": 1, "name": "Groß Dölln", **values})


def stored(instance: KvModel) -> dict[str, Any]:
    computed: dict[str, Any] = schema_of(type(instance)).prepare(instance).document["$kv"]["c"]
    return computed


def test_the_document_stores_what_the_functions_make_of_the_values():
    full = place(
        nick="gd",
        names=["Zürich", "ZÜRICH", "Bâle"],
        sizes={Size.LARGE, Size.SMALL},
        address=Address(city="Bonn"),
    )
    assert stored(full) == {
        "name~casefold": "gross dölln",
        "nick~2": "G",
        "names~casefold": ["bâle", "zürich"],
        "sizes~1": [1, 2],
        "initial(name)~1": "G",
        "words(name)~1": ["Dölln", "Groß"],
        "size(names)~4": 2,
        "joined(address.city,name)~1": "Bonn/Groß Dölln",
    }


def test_a_function_is_never_given_none():
    empty = stored(place())
    assert (empty["nick~2"], empty["sizes~1"]) == (None, None)
    assert (empty["joined(address.city,name)~1"], empty["size(names)~4"]) == (None, None)
    assert empty["names~casefold"] == []


def test_fields_are_stored_as_they_are_beside_their_folded_values():
    document = schema_of(Place).prepare(place(names=["B", "a"])).document
    assert (document["name"], document["names"]) == ("Groß Dölln", ["B", "a"])


def test_a_read_gives_the_object_without_what_was_computed():
    schema = schema_of(Place)
    before = place(address=Address(city="Bonn"))
    after, unknown = schema.decode(schema.prepare(before).document, (1,))
    assert (after, unknown) == (before, {})


def test_values_are_made_anew_by_every_write_and_never_carried_along():
    schema = schema_of(Place)
    document = schema.prepare(place()).document
    document["$kv"]["c"]["old~1"] = "x"
    document["$kv"]["x"] = 5
    loaded, unknown = schema.decode(document, (1,))
    assert unknown == {"$kv": {"x": 5}}
    set_state(loaded, ObjectState(bytes(10), b"", 4, None, (1,), unknown))
    loaded.name = "A"
    again = schema.prepare(loaded).document["$kv"]
    assert again["x"] == 5
    assert again["c"]["name~casefold"] == "a"
    assert "old~1" not in again["c"]


def test_the_library_s_own_data_hold_the_version_first():
    class Versioned(KvModel):
        id: PrimaryKey[int]
        name: Annotated[str, Indexed(key=str.upper)]

        class Meta:
            schema_version = 3

    document = schema_of(Versioned).prepare(Versioned(id=1, name="a")).document
    assert list(document) == ["id", "name", "$kv"]
    assert list(document["$kv"].items()) == [("v", 3), ("c", {"name~upper": "A"})]


def test_functions_take_validated_values():
    class Stripped(KvModel):
        id: PrimaryKey[int]
        name: Annotated[str, Indexed(key=str.upper)]

        @field_validator("name")
        @classmethod
        def strip(cls, value: str) -> str:
            return value.strip()

    thing = Stripped(id=1, name="a")
    thing.name = "  b "
    assert stored(thing) == {"name~upper": "B"}


def test_a_model_without_computed_columns_stores_no_data_of_the_library():
    class Plain(KvModel):
        id: PrimaryKey[int]

    assert schema_of(Plain).prepare(Plain(id=1)).document == {"id": 1}
    assert schema_of(Plain).computed == {}


# --- functions that fail ----------------------------------------------------------------------------------------------


def failing(error: BaseException) -> Any:
    def fails(value: Any) -> str:
        raise error

    return fails


def model_with(function: Any, returns: Any = str) -> type[Any]:
    class Broken(KvModel):
        id: PrimaryKey[int]
        name: str = "x"

        class Meta:
            indexes = (Index("name", key=function, version=1, returns=returns, name="made"),)

    return Broken


@pytest.mark.parametrize("error", [ValueError("v"), KeyError(1), ZeroDivisionError(), KvModelsError("k")])
def test_a_function_that_raises_is_an_invalid_value_of_its_column(error):
    model = model_with(failing(error))
    with pytest.raises(InvalidValueError, match="the function of a computed column failed") as caught:
        schema_of(model).prepare(model(id=1))
    assert (caught.value.model, caught.value.field, caught.value.type) == ("Broken", "made", type(error).__name__)
    assert caught.value.__cause__ is error


def test_what_interrupts_the_program_passes():
    model = model_with(failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        schema_of(model).prepare(model(id=1))


@pytest.mark.parametrize(
    ("result", "returns"),
    [
        (5, str),
        ("x", int),
        (None, str),
        (True, int),
        ("\ud800", str),
        (float("nan"), float),
        ("x", list[str]),
        ([1], list[str]),
        ({"a": 1}, list[str]),
        (None, list[str]),
        (3, Size),
        (Colour.RED, str),
        (Level.LOW, int),
        ([Colour.RED], list[str]),
    ],
)
def test_a_result_that_the_column_cannot_hold_names_model_and_column(result, returns):
    model = model_with(lambda _: result, returns)
    with pytest.raises(InvalidValueError) as caught:
        schema_of(model).prepare(model(id=1))
    assert (caught.value.model, caught.value.field) == ("Broken", "made")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("result", "returns", "expected"),
    [
        (None, str | None, None),
        (None, list[str] | None, None),
        ([], list[str], []),
        (("b", "a", "b"), tuple[str, ...], ["a", "b"]),
        (["a", None], list[str], ["a"]),
        (Size.LARGE, Size, 2),
        ([-1, 3, -1, 0], list[int], [-1, 0, 3]),
        (bytearray(b"x"), bytes, b"x"),
        (Colour.RED, Colour, "red"),
    ],
)
def test_a_result_is_stored_in_the_form_of_its_column(result, returns, expected):
    model = model_with(lambda _: result, returns)
    assert stored(model(id=1)) == {"made(name)~1": expected}


def test_a_number_is_stored_as_its_column_has_it():
    (made,) = stored(model_with(lambda _: 3, float)(id=1)).values()
    assert (type(made), made) == (float, 3.0)


def last_of(names: list[str]) -> str:
    return names.pop()


def sorted_names(names: list[str]) -> list[str]:
    names.sort()
    return names


def moved(address: Address) -> str:
    address.city = address.city.upper()
    return address.city


class Changing(KvModel, collection="changing"):
    id: PrimaryKey[int]
    names: list[str]
    address: Address

    class Meta:
        indexes = (
            Index("names", key=last_of, version=1, name="last"),
            Index("names", key=sorted_names, version=1, name="sorted"),
            Index("address", key=moved, version=1, name="moved"),
        )


def test_a_function_that_changes_its_argument_changes_neither_the_object_nor_what_is_stored():
    thing = Changing(id=1, names=["c", "a", "b"], address=Address(city="Bonn"))
    document = schema_of(Changing).prepare(thing).document
    assert document.pop("$kv") == {
        "c": {"last(names)~1": "b", "sorted(names)~1": ["a", "b", "c"], "moved(address)~1": "BONN"}
    }
    assert document == {"id": 1, "names": ["c", "a", "b"], "address": {"city": "Bonn", "zip": None}}
    assert thing == Changing(id=1, names=["c", "a", "b"], address=Address(city="Bonn"))


def test_a_folded_value_is_of_the_type_of_its_field():
    class Folded(KvModel):
        id: PrimaryKey[int]
        name: Annotated[str, Indexed(key=lambda name: 5 if name else "", version=1)]
        names: Annotated[list[str], MultiIndexed(key=lambda name: None, version=1)] = Field(default_factory=list)

    schema = schema_of(Folded)
    for thing, field in ((Folded(id=1, name="x"), "name"), (Folded(id=1, name="", names=["x"]), "names")):
        with pytest.raises(InvalidValueError) as caught:
            schema.prepare(thing)
        assert (caught.value.model, caught.value.field) == ("Folded", field)


# --- what a function takes --------------------------------------------------------------------------------------------


def of_two(first: str, second: str) -> str:
    return first + second


def of_none() -> str:
    return ""


def by_name(*, name: str) -> str:
    return name


def with_default(name: str, width: int = 3) -> str:
    return name[:width]


@pytest.mark.parametrize(
    "function", [of_two, of_none, by_name, partial(of_two, "a", "b")], ids=["two", "none", "by name", "partial"]
)
def test_a_function_that_cannot_take_the_values_of_its_fields_is_refused_with_the_class(function):
    with pytest.raises(ModelDefinitionError, match="does not take the values of its fields") as caught:
        model_with(function)
    assert (caught.value.model, caught.value.field, caught.value.suggestion) == ("Broken", "made", "name")
    with pytest.raises(ModelDefinitionError, match="does not take the values of its fields"):

        class Folded(KvModel):
            id: PrimaryKey[int]
            name: Annotated[str, Indexed(key=function, version=1)]


@pytest.mark.parametrize("function", [with_default, partial(of_two, "a"), str.strip, str, lambda *names: names[0]])
def test_a_function_with_a_default_or_a_builtin_without_a_signature_is_taken(function):
    assert stored(model_with(function)(id=1))["made(name)~1"] in ("x", "ax")
