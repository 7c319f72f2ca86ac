"""Declarations of indexes of every kind, and the error of each wrong one when the class is created."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, RootModel

from kvmodels.core.values import KeyNumber
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.declarations import MAX_FAN_OUT, AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import FieldRef, MultiFieldRef, Q
from kvmodels.schema.declare.markers import Indexed, MultiIndexed, PrimaryKey, Unique


class Address(BaseModel):
    city: str
    zip: str | None = None
    lines: list[str] = Field(default_factory=list)


class Company(BaseModel):
    name: str
    address: Address | None = None
    parent: Company | None = None
    offices: list[Address] = Field(default_factory=list)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str | None = None


class Names(RootModel[list[str]]):
    pass


class Grade(IntEnum):
    LOW = 1
    HIGH = 2


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def initial(name: str) -> str:
    return name[:1].upper()


def words(text: str) -> list[str]:
    return text.split()


def shout(name: str, country: str) -> str:
    return f"{name} {country}".upper()


def no_annotation(name):
    return name


def to_model(name: str) -> Address:
    return Address(city=name)


def unknown_annotation(name: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return name


class Namer:
    def __call__(self, name: str) -> str:
        return name


FIELDS: dict[str, Any] = {
    "name": str,
    "nick": str | None,
    "country": str,
    "population": int,
    "score": float,
    "grade": Grade,
    "time": timedelta,
    "names": list[str],
    "tags": set[int] | None,
    "grid": list[list[int]],
    "address": Address,
    "company": Company | None,
    "homes": list[Address],
    "pet": Annotated[Cat | Dog, Field(discriminator="kind")],
    "root": Names,
    "extra": dict[str, int],
    "money": Annotated[Decimal, Stored(str, Decimal)],
    "colors": list[Color],
}


def declare(*indexes, meta=None, **fields):
    namespace: dict[str, Any] = {"__annotations__": {"id": PrimaryKey[int], **FIELDS, **fields}, "__module__": __name__}
    namespace["__qualname__"] = "Thing"
    options = {"indexes": indexes, **(meta or {})}
    namespace["Meta"] = type("Meta", (), {"__qualname__": "Thing.Meta", "__module__": __name__, **options})
    metaclass: Any = type(KvModel)
    return schema_of(metaclass("Thing", (KvModel,), namespace))


def refused(message, *indexes, **arguments):
    with pytest.raises(ModelDefinitionError, match=message) as caught:
        declare(*indexes, **arguments)
    assert caught.value.hint
    assert caught.value.model == "Thing"
    return caught.value


def only(schema):
    (index,) = schema.indexes.values()
    return index


# --- what a declaration means -----------------------------------------------------------------------------------------


def test_a_field_with_several_values_has_an_entry_for_each():
    for index in (
        only(declare(names=MultiIndexed[list[str]])),
        only(declare(names=Annotated[list[str], MultiIndexed()])),
        only(declare(names=Annotated[list[str], MultiIndexed])),
        only(declare(Index("names"))),
    ):
        assert (index.name, index.fans_out, index.max_fan_out) == ("names", True, MAX_FAN_OUT)
        assert index.signature()["columns"] == [["names", "str", "asc", False, {"path": ["names"], "many": True}]]


@pytest.mark.parametrize(
    ("annotation", "codec", "is_nullable"),
    [
        (list[int], "int", False),
        (set[str], "str", False),
        (frozenset[Color], "str", False),
        (tuple[int, ...], "int", False),
        (list[int] | None, "int", True),
        (list[int | None], "int", False),
        (list[Annotated[int, KeyNumber()]], "number", False),
    ],
)
def test_every_container_of_a_column_type_may_be_indexed(annotation, codec, is_nullable):
    schema = declare(values=Annotated[annotation, MultiIndexed()])
    source = schema.source("values")
    assert source is not None
    assert (source.codec.name, source.nullable, source.many) == (codec, is_nullable, True)
    assert isinstance(schema.model.values, MultiFieldRef)


@pytest.mark.parametrize(
    ("path", "codec", "is_nullable", "many"),
    [
        ("address.city", "str", False, False),
        ("address.zip", "str", True, False),
        ("address.lines", "str", False, True),
        ("company.name", "str", True, False),
        ("company.parent.parent.name", "str", True, False),
        ("company.offices.lines", "str", True, True),
        ("homes.zip", "str", False, True),
        ("homes.lines", "str", False, True),
        ("pet.kind", "str", False, False),
        ("pet.name", "str", True, False),
    ],
)
def test_a_path_leads_through_nested_models(path, codec, is_nullable, many):
    schema = declare(Index(path))
    source, index = schema.source(path), only(schema)
    assert source is not None
    assert schema.source(path) is source
    assert (source.codec.name, source.nullable, source.many) == (codec, is_nullable, many)
    assert index.name == path.replace(".", "_")
    assert index.columns[0].path == tuple(path.split("."))


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "address",
        "address.nothing",
        "address.city.more",
        "address.",
        ".address",
        "",
        ".",
        "name.city",
        "extra.key",
        "root.root",
        "root",
        "grid",
        "money",
        "pet.lives",
        "company." + ".".join(["parent"] * 40) + ".name",
    ],
)
def test_what_cannot_be_a_column_has_no_source(name):
    assert declare().source(name) is None


def test_names_that_were_never_seen_are_answered_without_remembering_them_for_ever():
    schema = declare()
    for number in range(3_000):
        assert schema.source(f"nothing{number}") is None
    endless = ["company." + "parent." * depth + "name" for depth in range(25)]
    assert all(schema.source(name) is not None for name in endless)


def test_a_folded_field_is_compared_and_ordered_by_what_its_function_gives():
    schema = declare(name=Annotated[str, Indexed(key=str.casefold)])
    source = schema.source("name")
    assert source is not None
    assert source.path == ("$kv", "c", "name~casefold")
    assert source.normalise is str.casefold
    assert schema.computed["name"].folds
    assert only(schema).signature()["columns"] == [
        ["name", "str", "asc", False, {"path": ["$kv", "c", "name~casefold"], "many": False}]
    ]


def test_one_marker_folds_a_field_for_every_index_of_it():
    schema = declare(
        Index("country", "name"),
        Index("name", "country", name="other"),
        name=Annotated[str, Indexed(key=str.lower), Unique(name="unique_name")],
    )
    for index in schema.indexes.values():
        assert next(column for column in index.columns if column.field == "name").path[2] == "name~lower"


def test_elements_are_folded_one_by_one():
    schema = declare(names=Annotated[list[str], MultiIndexed(key=initial, version=3)])
    assert (schema.computed["names"].many, schema.computed["names"].stored_as) == (True, "names~3")


def test_a_computed_column_has_the_name_of_its_index_and_may_be_used_in_others():
    schema = declare(
        Index("name", key=initial, version=1, name="initial"),
        UniqueConstraint("country", "-initial", name="both"),
        Index("-name", key=str.casefold, name="folded"),
    )
    assert list(schema.computed) == ["initial", "folded"]
    assert not schema.computed["initial"].folds
    assert schema.indexes["folded"].columns[0].descending
    assert [column.path for column in schema.indexes["both"].columns] == [("country",), ("$kv", "c", "initial(name)~1")]


@pytest.mark.parametrize(
    ("index", "codec", "many", "is_nullable"),
    [
        (Index("name", key=initial, version=1, name="x"), "str", False, False),
        (Index("nick", key=initial, version=1, name="x"), "str", False, True),
        (Index("name", key=words, version=1, name="x"), "str", True, False),
        (Index("name", "country", key=shout, version=1, name="x"), "str", False, False),
        (Index("name", "nick", key=shout, version=1, name="x"), "str", False, True),
        (Index("names", key=len, version=1, returns=int, name="x"), "int", False, False),
        (Index("name", key=no_annotation, version=1, returns=Color | None, name="x"), "str", False, True),
        (Index("name", key=Namer(), version=1, name="x"), "str", False, False),
        (Index("address.zip", key=str.upper, name="x"), "str", False, True),
        (Index("company.address.city", key=initial, version=1, name="x"), "str", False, True),
        (Index("extra", key=len, version=1, returns=int, name="x"), "int", False, False),
    ],
)
def test_the_type_of_a_computed_column_is_what_its_function_returns(index, codec, many, is_nullable):
    source = declare(index).source("x")
    assert source is not None
    assert (source.codec.name, source.many, source.nullable) == (codec, many, is_nullable)


def test_an_aggregate_index_counts_groups_and_sums_fields():
    schema = declare(
        AggregateIndex(),
        AggregateIndex("country", sums=("population", "time"), name="per_country"),
        AggregateIndex("address.city", "names", where=Q(population__gt=0), max_fan_out=5),
    )
    assert list(schema.indexes) == ["totals", "per_country", "address_city_names_totals"]
    totals = schema.indexes["per_country"]
    assert totals.signature()["sums"] == [["population", "int", "asc", False], ["time", "timedelta", "asc", False]]
    assert schema.indexes["totals"].signature() == {
        "columns": [],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "sums": [],
    }
    assert schema.indexes["address_city_names_totals"].max_fan_out == 5


def test_the_sum_of_a_folded_field_is_that_of_its_values():
    schema = declare(AggregateIndex(sums=("population",)), population=Annotated[int, Indexed(key=abs, version=1)])
    totals = schema.indexes["totals"].options
    assert totals is not None
    assert totals.sums[0].path == ("population",)


def test_options_that_decide_on_no_bytes_are_no_part_of_the_identity():
    first, second = only(declare(Index("names"))), only(declare(Index("names", max_fan_out=7)))
    assert first.hash() == second.hash()
    assert second.max_fan_out == 7


def test_options_that_decide_on_bytes_are_part_of_it():
    declared = [
        Index("country", name="x"),
        Index("country", name="x", where=Q(population=1)),
        Index("country", name="x", where=Q(population=2)),
        Index("country", name="x", include=("name",)),
        Index("country", name="x", include=("name", "score")),
        Index("country", key=initial, version=1, name="x"),
        Index("country", key=initial, version=2, name="x"),
        Index("country", key=str.upper, name="x"),
        AggregateIndex("country", name="x"),
        AggregateIndex("country", sums=("population",), name="x"),
    ]
    assert len({only(declare(index)).hash() for index in declared}) == len(declared)


# --- inheritance, generics, forward references ------------------------------------------------------------------------


class Named(KvModel, abstract=True):
    name: Annotated[str, Indexed(key=str.casefold)]

    class Meta:
        indexes = (
            Index("name", key=initial, version=1, name="initial"),
            AggregateIndex("initial"),
        )


def test_an_abstract_parent_passes_every_kind_of_index_on():
    class Person(Named):
        id: PrimaryKey[int]
        tags: MultiIndexed[set[str]]

    assert list(schema_of(Person).indexes) == ["name", "tags", "initial", "initial_totals"]
    assert list(schema_of(Person).computed) == ["name", "initial"]
    assert isinstance(Person.tags, MultiFieldRef)
    assert isinstance(Person.name, FieldRef)


T = TypeVar("T")


class Box(KvModel, Generic[T]):
    id: PrimaryKey[int]
    one: Indexed[T]
    several: MultiIndexed[list[T]]


def test_a_parametrised_generic_has_the_columns_of_its_parameters():
    assert [index.columns[0].codec.name for index in schema_of(Box[int]).indexes.values()] == ["int", "int"]
    assert isinstance(getattr(Box[str], "several"), MultiFieldRef)  # noqa: B009 - mypy takes it for an instance's
    with pytest.raises(ModelDefinitionError, match="cannot be in a key"):
        Box[dict[str, int]]


class Later(KvModel):
    id: PrimaryKey[int]
    home: Home

    class Meta:
        indexes = (Index("home.city"), Index("home.city", key=str.upper, name="upper_city"))


class Home(BaseModel):
    city: str


def test_a_path_into_a_class_that_is_defined_later_is_resolved_when_the_model_is_used():
    assert list(schema_of(Later).indexes) == ["home_city", "upper_city"]


def test_a_model_that_contains_itself_has_as_many_paths_as_are_used():
    class Node(BaseModel):
        name: str
        children: list[Node] = Field(default_factory=list)

    class Tree(KvModel):
        id: PrimaryKey[int]
        root: Node

        class Meta:
            indexes = (Index("root.children.children.name"),)

    source = schema_of(Tree).source("root.children.children.name")
    assert source is not None
    assert source.many


# --- columns that are wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("contry", "country"),
        ("-contry", "country"),
        ("address.citi", "address.city"),
        ("adress.city", "address.city"),
        ("homes.citi", "homes.city"),
        ("company.adress.citty", "company.address.city"),
        ("name.first", None),
        ("zzz", None),
    ],
)
@pytest.mark.parametrize("kind", [Index, UniqueConstraint])
def test_an_unknown_column_is_refused_with_the_nearest_one(kind, name, suggestion):
    error = refused("an index names a field that does not exist", kind(name))
    assert (error.field, error.suggestion) == (name.removeprefix("-"), suggestion)


def test_an_unknown_computed_column_is_refused_with_the_nearest_one():
    indexes = (Index("name", key=initial, version=1, name="initial"), Index("initail"))
    assert refused("an index names a field that does not exist", *indexes).suggestion == "initial"


@pytest.mark.parametrize("name", ["address", "extra", "root", "grid", "money", "company.parent", "pet"])
def test_a_column_of_a_type_that_has_no_order_is_refused(name):
    assert refused("a field of this type cannot be in a key or index", Index(name)).field == name


def test_an_index_has_one_column_with_several_values_at_most():
    error = refused("more than one column with several values", Index("names", "country", "homes.city"))
    assert error.field == "homes.city"
    assert "index names and homes.city separately" in str(error)


@pytest.mark.parametrize("marker", [Indexed, Unique])
def test_a_list_in_a_marker_of_one_value_is_refused_with_the_marker_to_use(marker):
    error = refused("cannot be in a key or index as one value", names=marker[list[str]])
    assert "MultiIndexed" in str(error.hint)


def test_several_values_are_marked_only_where_they_are():
    error = refused("a field marked MultiIndexed has one value", name=MultiIndexed[str])
    assert (error.field, error.hint) == ("name", "Mark it Indexed.")
    refused("a field of this type cannot be in a key or index", grid=MultiIndexed[list[list[int]]])
    refused("a field of this type cannot be in a key or index", pair=MultiIndexed[tuple[int, int]])


def test_a_bound_of_entries_needs_several_values():
    assert "max_fan_out" in str(refused("an index option has no effect here", Index("name", max_fan_out=3)))
    refused("an index option has no effect here", AggregateIndex("name", max_fan_out=3))


@pytest.mark.parametrize("bound", [0, -1, True, 1.5, "3"])
def test_a_bound_of_entries_is_a_number(bound):
    for kind in (Index, UniqueConstraint, AggregateIndex):
        with pytest.raises(ModelDefinitionError, match="a value that it does not take"):
            kind("names", max_fan_out=bound)
    with pytest.raises(ModelDefinitionError, match="a value that it does not take"):
        MultiIndexed(max_fan_out=bound)


# --- functions that are wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [Indexed, Unique, MultiIndexed, partial(Index, "name"), partial(UniqueConstraint, "a")]
)
def test_a_function_and_its_version_belong_together(kind):
    for options, message in (
        ({"key": initial}, "the key of an index has no version"),
        ({"key": 5, "version": 1}, "the key of an index cannot be called"),
        ({"version": 1}, "an index option has no effect here"),
        ({"key": str.casefold, "version": 1}, "an index option has no effect here"),
        ({"key": initial, "version": 0}, "a value that it does not take"),
        ({"key": initial, "version": True}, "a value that it does not take"),
        ({"key": initial, "version": "1"}, "a value that it does not take"),
    ):
        with pytest.raises(ModelDefinitionError, match=message) as caught:
            kind(**options)
        assert caught.value.hint


def test_a_returned_type_without_a_function_has_no_effect():
    with pytest.raises(ModelDefinitionError, match="an index option has no effect here"):
        Index("name", returns=str)


def test_a_field_is_folded_by_one_function():
    both = Annotated[str, Indexed(key=str.casefold), Unique(key=str.upper, name="other")]
    error = refused("a field is folded by two different functions", name=both)
    assert (error.field, error.option) == ("name", "key=str.casefold")
    versions = Annotated[str, Indexed(key=initial, version=1), Unique(key=initial, version=2, name="other")]
    refused("a field is folded by two different functions", name=versions)


def test_a_function_of_texts_folds_texts():
    refused("a function for str folds a field of another type", population=Annotated[int, Indexed(key=str.lower)])
    refused("a function for str folds a field of another type", color=Annotated[Color, Indexed(key=str.lower)])
    refused("a function for str folds a field of another type", Index("population", key=str.lower, name="x"))
    refused("a function for str folds a field of another type", Index("names", key=str.lower, name="x"))
    refused("a function for str folds a field of another type", Index("name", "country", key=str.lower, name="x"))


def test_a_primary_key_is_compared_as_it_is():
    error = refused("a field of the primary key is folded", code=Annotated[str, PrimaryKey(), Unique(key=str.lower)])
    assert error.field == "code"
    with pytest.raises(ModelDefinitionError, match="an index option does not exist") as caught:
        PrimaryKey(key=str.lower)  # type: ignore[arg-type]
    assert "PrimaryKey(key=)" in str(caught.value)


def test_a_computed_column_needs_a_name_of_its_own():
    refused("a computed column has no name", Index("name", key=initial, version=1))
    for taken in ("name", "country", "pk"):
        error = refused("a computed column has the name of a field", Index("name", key=initial, version=1, name=taken))
        assert error.field == taken
    for name in ("a.b", "a b", "1a", "a__b", "-a", ""):
        index = Index("name", key=initial, version=1, name=name)
        refused("the name of a computed column cannot be a keyword", index)


def test_two_computed_columns_of_one_name_are_refused():
    index = partial(Index, "name", version=1, name="x")
    refused("two indexes have one name", index(key=initial), index(key=words))


def test_a_computed_column_is_of_fields_that_exist():
    error = refused("an index names a field that does not exist", Index("nmae", key=initial, version=1, name="x"))
    assert (error.field, error.suggestion) == ("nmae", "name")
    error = refused("an index names a field", Index("address.citi", key=initial, version=1, name="x"))
    assert error.suggestion == "address.city"
    refused("an index names a field that does not exist", Index("homes.city", key=initial, version=1, name="x"))


def test_arguments_of_a_function_have_no_direction():
    refused("has a direction", Index("name", "-country", key=shout, version=1, name="x"))
    refused("has a direction", Index("-name", "country", key=shout, version=1, name="x"))


@pytest.mark.parametrize("key", [no_annotation, unknown_annotation, len, int, partial(initial), lambda name: name])
def test_a_function_must_say_what_it_returns(key):
    error = refused("has no return type", Index("name", key=key, version=1, name="x"))
    assert "returns=str" in str(error)


def test_what_a_function_returns_must_be_a_column():
    refused("cannot be in a key or index", Index("name", key=to_model, version=1, name="x"))
    refused("cannot be in a key or index", Index("name", key=initial, version=1, returns=dict[str, int], name="x"))


# --- conditions that are wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [partial(Index, "name"), Indexed, AggregateIndex])
@pytest.mark.parametrize("where", [True, "population > 0", {"population": 1}, lambda: True])
def test_a_condition_is_an_expression(kind, where):
    with pytest.raises(ModelDefinitionError, match="the condition of an index is not an expression") as caught:
        kind(where=where)
    assert "Q(" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("where", "field", "suggestion"),
    [
        (Q(popultion=1), "popultion", "population"),
        (Q(population__gtt=1), "population", "gt"),
        (Q(population="x"), "population", None),
        (Q(name__startswith=5), "name", None),
        (FieldRef[int]("popultion") > 1, "popultion", "population"),
    ],
)
def test_a_condition_that_the_model_does_not_understand_is_refused(where, field, suggestion):
    error = refused("the condition of an index is not one of its model", Index("country", where=where))
    assert (error.field, error.suggestion) == (field, suggestion)


@pytest.mark.parametrize(
    "where",
    [
        Q(names__contains="x"),
        Q(names__any__gt="x"),
        Q(names__isnull=False),
        Q(homes__city__contains="x"),
        Q(name__contains="x"),
        Q(extra={}),
        ~Q(tags__contains=3),
    ],
)
def test_a_condition_that_no_span_of_values_says_is_refused(where):
    error = refused(
        "the condition of an index has a comparison that indexes do not support", Index("country", where=where)
    )
    assert error.field in {"names", "homes.city", "name", "extra", "tags"}


@pytest.mark.parametrize(
    "where",
    [
        Q(population__gt=5, population__lt=5),
        Q(population=1) & Q(population=2),
        Q(population__in=[]),
        Q(population=None),
        Q(population__range=(5, 1)),
        Q(name="a") & (Q(name="b") | Q(name="c")),
    ],
)
def test_a_condition_that_never_holds_is_refused(where):
    refused("the condition of an index never holds", Index("country", where=where))


@pytest.mark.parametrize(
    "where",
    [
        Q(),
        Q(population=1) | ~Q(population=1),
        Q(population__gt=1) | Q(population__lte=1),
        Q(population__isnull=False),
        Q(nick=None) | ~Q(nick=None),
        Q(nick__gte="a") | Q(nick__lt="a") | Q(nick__isnull=True),
        (Q(name="a") & Q(country="b")) | ~Q(name="a") | ~Q(country="b"),
        Q(flag=True) | Q(flag=False),
        Q(maybe__in=[True, False, None]),
    ],
)
def test_a_condition_that_always_holds_is_refused(where):
    fields = {"flag": bool, "maybe": bool | None}
    error = refused("holds for every record", Index("country", where=where), **fields)
    assert error.hint == "Leave out where=."


@pytest.mark.parametrize(("choices", "is_refused"), [(6, False), (7, True)])
def test_a_condition_of_too_many_combinations_is_refused(choices, is_refused):
    fields = {f"f{number}": int for number in range(2 * choices)}
    pairs = [Q(**{f"f{number}__gt": 1}) | Q(**{f"f{number + 1}__gt": 1}) for number in range(0, 2 * choices, 2)]
    index = Index("country", where=Q(*pairs))
    if is_refused:
        assert "100" in str(refused("too many alternatives", index, **fields).hint)
    else:
        where = only(declare(index, **fields)).where
        assert where is not None
        assert len(where.alternatives) == 2**choices


# --- included fields and sums that are wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["name", ("name", "name"), (1,), {"name"}, None])
def test_included_fields_and_sums_are_tuples_of_names(names):
    for kind in (partial(Index, "country"), Indexed, Unique, MultiIndexed, partial(UniqueConstraint, "a")):
        with pytest.raises(ModelDefinitionError, match="not a tuple of distinct field names") as caught:
            kind(include=names)
        assert "comma" in str(caught.value.hint)
    with pytest.raises(ModelDefinitionError, match="not a tuple of distinct field names"):
        AggregateIndex(sums=names)


def test_an_entry_holds_fields_or_the_record():
    for kind in (partial(Index, "country"), Indexed, Unique, MultiIndexed):
        with pytest.raises(ModelDefinitionError, match="includes fields and stores the whole record"):
            kind(include=("name",), store="record")


def test_an_included_field_exists_and_is_not_there_already():
    error = refused("an index includes a field that does not exist", Index("country", include=("nmae",)))
    assert (error.field, error.suggestion) == ("nmae", "name")
    for path in ("address.city", "address__city", "address.town"):
        error = refused("an index includes a part of a field", Index("country", include=(path,)))
        assert (error.field, error.suggestion) == (path, "address")
        assert 'include=("address",)' in str(error.hint)
    error = refused("an index includes a field that does not exist", Index("country", include=("adress.city",)))
    assert (error.field, error.suggestion) == ("adress.city", "address")
    for name in ("country", "id"):
        error = refused("an index includes a field that its entries have", Index("country", include=(name,)))
        assert error.field == name


def test_a_field_that_its_key_part_does_not_give_back_may_be_included():
    folded = Annotated[str, Indexed(key=str.casefold, include=("name",))]
    assert declare(name=folded).indexes["name"].include == ("name",)
    assert only(declare(Index("score", include=("score",)))).include == ("score",)
    assert only(declare(Index("names", include=("names",)))).include == ("names",)


def test_a_sum_is_of_numbers_that_are_exact():
    error = refused("an index sums a field that does not exist", AggregateIndex(sums=("popultion",)))
    assert (error.field, error.suggestion) == ("popultion", "population")
    for name in ("score", "name", "names", "address", "grade", "extra", "money"):
        error = refused("an index sums a field that has no exact sum", AggregateIndex(sums=(name,)))
        assert error.field == name


def test_counters_of_records_that_expire_are_refused():
    error = refused("a model whose records expire has an aggregate index", AggregateIndex(), meta={"ttl": 60})
    assert "Meta.ttl" in str(error.hint)


def test_groups_have_no_direction():
    with pytest.raises(ModelDefinitionError, match="the fields of this index have no direction"):
        AggregateIndex("-country")


def test_a_group_names_a_column_once():
    with pytest.raises(ModelDefinitionError, match="an index names a field twice"):
        AggregateIndex("country", "country")


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "option", "suggestion"),
    [
        (Indexed, "nul", "nulls"),
        (Unique, "incldue", "include"),
        (MultiIndexed, "max_fanout", "max_fan_out"),
        (partial(Index, "a"), "vresion", "version"),
        (partial(UniqueConstraint, "a"), "unique", None),
        (AggregateIndex, "sum", "sums"),
        (Unique, "descending", None),
        (AggregateIndex, "store", None),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(kind, option, suggestion):
    with pytest.raises(ModelDefinitionError, match="an index option does not exist") as caught:
        kind(**{option: 1})
    assert caught.value.suggestion == suggestion
    assert "Its options are" in str(caught.value.hint)


def test_declarations_show_the_options_that_were_given():
    assert repr(Index("a", include=["b"])) == "Index('a', name=None, nulls='distinct', store=None, include=('b',))"
    assert repr(AggregateIndex("a")) == "AggregateIndex('a', name=None, sums=())"
    assert repr(MultiIndexed(where=Q(a=1))) == "MultiIndexed(name=None, nulls='distinct', store=None, where=Q(a=1))"
    assert Index("a", where=Q(b=1)) == Index("a", where=Q(b=1))
    assert Index("a", where=Q(b=1)) != Index("a", where=Q(b=2))
    assert Index("a", key=initial, version=1, name="x") != Index("a", key=words, version=1, name="x")


def test_a_field_in_the_place_of_an_option_is_shown_and_not_compared():
    field: Any = FieldRef("a")
    assert "returns=" in repr(Index("a", key=initial, version=1, name="x", returns=field))


def test_the_condition_of_an_index_is_kept_as_text_for_people():
    index = only(declare(Index("country", where=Q(population__gt=0))))
    assert index.where is not None
    assert index.where.text == "Q(population__gt=0)"
