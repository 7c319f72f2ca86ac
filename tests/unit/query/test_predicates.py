"""From keywords and expressions to the normal form: names, elements, folding, negation, and what is refused."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from kvmodels import Field, InvalidValueError, KvModel, PrimaryKey, UnknownFieldError, UnknownLookupError, col
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.expressions import Expression, MultiFieldRef, Q
from kvmodels.schema.declare.markers import Indexed, MultiIndexed
from kvmodels.schema.filters.parse import negate, parse
from kvmodels.schema.filters.predicate import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Condition,
    Predicate,
    all_of,
    any_of,
    conditions_of,
)


class Street(BaseModel):
    name: str
    number: int | None = None


class Address(BaseModel):
    city: str
    street: Street | None = None
    phones: list[str] = []
    extra: dict[str, int] = {}


def initial(name: str) -> str:
    return name[:1]


def words(name: str) -> list[str]:
    return name.split()


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]
    number: int | None = None
    height: float = 0.0
    opened: datetime | None = None
    data: bytes = b""
    names: MultiIndexed[list[str]] = Field(default_factory=list)
    folded: Annotated[frozenset[str] | None, MultiIndexed(key=str.casefold)] = None
    address: Address | None = None
    others: list[Address] = []
    extra: dict[str, int] = {}
    under__score: int = 0
    range: int = 0

    class Meta:
        indexes = (
            Index("name", key=initial, version=1, name="initial"),
            Index("name", key=words, version=1, name="words"),
        )


class Twice(KvModel, collection="twice"):
    left: PrimaryKey[int]
    right: PrimaryKey[str]


PLACE, TWICE = schema_of(Place), schema_of(Twice)


def normal(*expressions: Any, **lookups: Any) -> Any:
    """The normal form; of one part, the part."""
    parts = parse(PLACE, expressions, lookups)
    return parts[0] if len(parts) == 1 else parts


def element(field: str, lookup: Any, operand: Any) -> Condition:
    return Condition(field, lookup, operand, any=True)


@pytest.mark.parametrize(
    ("lookups", "condition"),
    [
        ({"number": 3}, Condition("number", "exact", 3)),
        ({"number": None}, Condition("number", "isnull", True)),
        ({"number__ne": None}, Condition("number", "isnull", False)),
        ({"number__in": [1, 2, 1, None]}, Condition("number", "in", (1, 2, None))),
        ({"number__in": []}, NEVER),
        ({"number__range": (1, 2)}, Condition("number", "range", (1, 2, "[]"))),
        ({"pk": 3}, Condition("id", "exact", 3)),
        ({"pk__in": [3]}, Condition("id", "in", (3,))),
        ({"name": "ÄB"}, Condition("name", "exact", "äb")),
        ({"name__in": ["A", "a"]}, Condition("name", "in", ("a",))),
        ({"name__startswith": "Ä"}, Condition("name", "startswith", "ä")),
        ({"name__range": ("A", "B")}, Condition("name", "range", ("a", "b", "[]"))),
        ({"name__contains": "SS"}, Condition("name", "contains", "ss")),
        ({"name__icontains": "SS"}, Condition("name", "icontains", "ss")),
        ({"name__endswith": "SS"}, Condition("name", "endswith", "ss")),
        ({"name__iexact": None}, Condition("name", "isnull", True)),
        ({"names__any__iexact": "X"}, element("names", "iexact", "X")),
        ({"data__endswith": b"x"}, Condition("data", "endswith", b"x")),
        ({"name": None}, Condition("name", "isnull", True)),
        ({"data__contains": b"x"}, Condition("data", "contains", b"x")),
        ({"initial": "A"}, Condition("initial", "exact", "A")),
        ({"initial__in": ["A"]}, Condition("initial", "in", ("A",))),
        ({"words__contains": "A"}, element("words", "exact", "A")),
        ({"words__any__startswith": "A"}, element("words", "startswith", "A")),
        ({"names__contains": "x"}, element("names", "exact", "x")),
        ({"names__any": "x"}, element("names", "exact", "x")),
        ({"names__any__exact": "x"}, element("names", "exact", "x")),
        ({"names__any__gte": "x"}, element("names", "gte", "x")),
        ({"names__any__contains": "x"}, element("names", "contains", "x")),
        ({"names__any__not_in": []}, element("names", "not_in", ())),
        ({"names__contains_any": ["x", "y", "x"]}, element("names", "in", ("x", "y"))),
        ({"names__contains_any": []}, NEVER),
        ({"names__contains_all": ["x", "x"]}, element("names", "exact", "x")),
        ({"names__contains_all": ["x", "y"]}, (element("names", "exact", "x"), element("names", "exact", "y"))),
        ({"names__contains_all": []}, ()),
        ({"names": ["x"]}, Condition("names", "exact", ["x"])),
        ({"names__isnull": False}, Condition("names", "isnull", False)),
        ({"folded__contains": "X"}, element("folded", "exact", "x")),
        ({"folded": frozenset({"X"})}, Condition("folded", "exact", frozenset({"x"}))),
        ({"folded": None}, Condition("folded", "isnull", True)),
        ({"address__city": "Rome"}, Condition("address.city", "exact", "Rome")),
        ({"address__street__number__gte": 3}, Condition("address.street.number", "gte", 3)),
        ({"address__street__number": None}, Condition("address.street.number", "isnull", True)),
        ({"address__phones__contains": "1"}, element("address.phones", "exact", "1")),
        ({"others__city__any__startswith": "R"}, element("others.city", "startswith", "R")),
        ({"others__street__number__contains": 3}, element("others.street.number", "exact", 3)),
        ({"address": None}, Condition("address", "isnull", True)),
        ({"extra": {"a": 1}}, Condition("extra", "exact", {"a": 1})),
        ({"under__score": 3}, Condition("under__score", "exact", 3)),
        ({"under__score__gt": 3}, Condition("under__score", "gt", 3)),
        ({"range": 3}, Condition("range", "exact", 3)),
        ({"range__range": (1, 3)}, Condition("range", "range", (1, 3, "[]"))),
    ],
)
def test_keywords_become_conditions_on_what_they_name(lookups: dict[str, Any], condition: Any):
    assert normal(**lookups) == condition
    assert normal(Q(**lookups)) == condition


def test_expressions_become_the_same_conditions_as_keywords():
    place: Any = Place
    assert normal(place.number >= 3) == normal(number__gte=3)
    assert normal(place.names.contains("x")) == normal(names__contains="x")
    assert normal(place.names.any() >= "x") == normal(names__any__gte="x")
    assert normal(place.names.contains_all(["x", "y"])) == normal(names__contains_all=["x", "y"])
    assert normal(place.address.city == "Rome") == normal(address__city="Rome")
    assert normal(place.address.street.name == "x") == normal(address__street__name="x")
    assert normal(place.address.street.number.in_([1])) == normal(address__street__number__in=[1])
    assert normal(place.address.phones.contains("1")) == normal(address__phones__contains="1")
    assert normal(place.others.city.any().startswith("R")) == normal(others__city__any__startswith="R")
    assert normal(place.names == ["x"]) == normal(names=["x"])
    assert isinstance(col(place.folded), MultiFieldRef)


def test_only_fields_of_nested_models_are_attributes_of_a_field():
    place: Any = Place
    for absent in ("citi", "_private", "__wrapped__", "extra_", "name", "model"):
        assert not hasattr(place.address, absent)
    for attribute in ("number", "names", "extra", "opened"):
        assert not hasattr(getattr(place, attribute), "city")
    with pytest.raises(AttributeError, match=r"Place\.address has no field 'citi'"):
        _ = place.address.citi


def test_combinations_are_flat_and_without_negation():
    a, b, c = Condition("number", "gt", 1), Condition("height", "gt", 2.0), Condition("data", "exact", b"x")
    qa, qb, qc = Q(number__gt=1), Q(height__gt=2.0), Q(data=b"x")
    assert normal(qa & (qb & qc)) == (a, b, c)
    assert normal(qa | (qb | qc)) == AnyOf((a, b, c))
    assert normal(qa & (qb | qc)) == (a, AnyOf((b, c)))
    assert normal((qa & qb) | qc) == AnyOf((AllOf((a, b)), c))
    assert normal(qa & qa, number__gt=1) == a
    assert normal(~(qa | qc)) == (a._replace(negated=True), c._replace(lookup="ne"))
    assert normal(~(qa & qc)) == AnyOf((a._replace(negated=True), c._replace(lookup="ne")))
    assert normal(~~qa) == normal(~Q(~qa)) == a
    assert normal(qa | Q(number__in=[])) == a
    assert normal(qa, number__in=[]) == normal(~(qa | Q(names__contains_all=[]))) == NEVER
    assert normal(qa | Q(number__not_in=[])) == ()


def test_values_of_one_column_are_one_list():
    assert normal(Q(number=1) | Q(number=2) | Q(number__in=[2, 3])) == Condition("number", "in", (1, 2, 3))
    assert normal(Q(number=1) | Q(number=None)) == Condition("number", "in", (1, None))
    assert normal(Q(names__contains="x") | Q(names__contains="y")) == element("names", "in", ("x", "y"))
    assert normal(Q(number=1) | Q(height=1.0)) == AnyOf(
        (Condition("number", "exact", 1), Condition("height", "exact", 1.0))
    )
    assert normal(Q(extra={"a": 1}) | Q(extra={"b": 1})) == Condition("extra", "in", ({"a": 1}, {"b": 1}))
    assert normal(Q(names=["x"]) | Q(names__contains="x")) == AnyOf(
        (Condition("names", "exact", ["x"]), element("names", "exact", "x"))
    )


@pytest.mark.parametrize("field", ["number", "name", "names", "address__city", "others__city"])
def test_none_asked_for_twice_is_one_question_for_none(field: str):
    is_none = Q(**{f"{field}__isnull": True})
    assert normal(is_none | is_none) == normal(is_none)


def test_a_q_without_conditions_says_nothing():
    assert parse(PLACE, (Q(), ~Q(), Q(Q()), Q() & Q(), Q() | ~Q()), {}) == ()
    assert normal(Q() | Q(number=1)) == normal(Q() & Q(number=1)) == normal(Q(Q(), number=1)) == normal(number=1)
    assert normal(reduce(or_, (Q(number=number) for number in range(3)), Q())) == normal(number__in=[0, 1, 2])


def test_thousands_of_alternatives_are_no_deep_tree():
    many = reduce(or_, (Q(number=number, height=1.0) for number in range(3_000)))
    found = normal(many)
    assert isinstance(found, AnyOf)
    assert len(found.parts) == 3_000
    assert normal(reduce(or_, (Q(number=number) for number in range(3_000)))).operand == tuple(range(3_000))


@pytest.mark.parametrize(
    ("lookups", "opposite"),
    [
        ({"number": 3}, Condition("number", "ne", 3)),
        ({"number__ne": 3}, Condition("number", "exact", 3)),
        ({"number__in": [3]}, Condition("number", "not_in", (3,))),
        ({"number": None}, Condition("number", "isnull", False)),
        ({"number__gt": 3}, Condition("number", "gt", 3, negated=True)),
        ({"id__gt": 3}, Condition("id", "lte", 3)),
        ({"name__lt": "A"}, Condition("name", "gte", "a")),
        ({"height__gt": 3.0}, Condition("height", "gt", 3.0, negated=True)),
        ({"name__startswith": "a"}, Condition("name", "startswith", "a", negated=True)),
        ({"id__range": (1, 2)}, Condition("id", "range", (1, 2, "[]"), negated=True)),
        ({"names__contains": "x"}, Condition("names", "exact", "x", any=True, negated=True)),
        ({"names__any__ne": "x"}, Condition("names", "ne", "x", any=True, negated=True)),
        ({"names": ["x"]}, Condition("names", "ne", ["x"])),
        ({"extra__in": [{}]}, Condition("extra", "not_in", ({},))),
    ],
)
def test_an_opposite_is_used_only_where_it_is_exact(lookups: dict[str, Any], opposite: Condition):
    positive = normal(**lookups)
    assert negate(PLACE, positive) == opposite
    assert negate(PLACE, opposite) == positive


def test_composite_keys_are_compared_by_their_columns_or_as_a_list():
    assert parse(TWICE, (), {"pk": (1, "a")}) == (Condition("left", "exact", 1), Condition("right", "exact", "a"))
    assert parse(TWICE, (~Q(pk=(1, "a")),), {}) == (AnyOf((Condition("left", "ne", 1), Condition("right", "ne", "a"))),)
    assert parse(TWICE, (), {"pk__in": [(1, "a"), (1, "a")]}) == (Condition("pk", "in", ((1, "a"),)),)
    assert parse(TWICE, (), {"pk__in": []}) == (NEVER,)
    with pytest.raises(UnknownLookupError):
        parse(TWICE, (), {"pk__gt": (1, "a")})


def test_simplification_keeps_always_and_never():
    some = Condition("number", "gt", 1)
    assert all_of([]) == ALWAYS == any_of([ALWAYS, some])
    assert any_of([]) == NEVER == all_of([NEVER, some])
    assert any_of([some]) == all_of([some]) == some
    assert list(conditions_of(AllOf((some, AnyOf((some, AllOf((some,)))))))) == [some] * 3
    unhashable: Predicate = Condition("extra", "exact", {})
    assert all_of([unhashable, unhashable]) == AllOf((Condition("extra", "exact", {}),) * 2)


@pytest.mark.parametrize(
    ("lookups", "field", "suggestion"),
    [
        ({"numbr": 1}, "numbr", "number"),
        ({"numbr__gt": 1}, "numbr", "number"),
        ({"initail": "A"}, "initail", "initial"),
        ({"address__citi": "x"}, "address.citi", "address.city"),
        ({"address__citi__startswith": "x"}, "address.citi", "address.city"),
        ({"address__street__nam": "x"}, "address.street.nam", "address.street.name"),
        ({"others__citi__contains": "x"}, "others.citi", "others.city"),
        ({"address__extra": {}}, "address.extra", None),
        ({"number__thing__gt": 1}, "number__thing", "number"),
        ({"": 1}, "", None),
        ({"__gt": 1}, "", None),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_one(lookups: dict[str, Any], field: str, suggestion: str | None):
    with pytest.raises(UnknownFieldError) as refused:
        parse(PLACE, (), lookups)
    assert (refused.value.model, refused.value.field, refused.value.suggestion) == ("Place", field, suggestion)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("lookups", "field", "lookup", "suggestion"),
    [
        ({"number__startswith": 1}, "number", "startswith", None),
        ({"number__contains": 1}, "number", "contains", None),
        ({"number__any__gt": 1}, "number", "any__gt", None),
        ({"number__gtt": 1}, "number", "gtt", "gt"),
        ({"name__contains_any": ["x"]}, "name", "contains_any", "contains"),
        ({"names__gt": ["x"]}, "names", "gt", None),
        ({"names__startswith": "x"}, "names", "startswith", None),
        ({"names__any__isnull": True}, "names", "isnull", None),
        ({"names__any__startwith": "x"}, "names", "startwith", "startswith"),
        ({"names__contains_al": ["x"]}, "names", "contains_al", "contains_all"),
        ({"words": ["x"]}, "words", "exact", None),
        ({"others__city": ["x"]}, "others.city", "exact", None),
        ({"extra__contains": "x"}, "extra", "contains", None),
        ({"extra__gt": {}}, "extra", "gt", None),
        ({"number__": 1}, "number", "", None),
    ],
)
def test_lookups_that_a_field_does_not_have_are_refused_with_those_that_it_has(
    lookups: dict[str, Any], field: str, lookup: str, suggestion: str | None
):
    with pytest.raises(UnknownLookupError) as refused:
        parse(PLACE, (), lookups)
    error = refused.value
    assert (error.field, error.lookup, error.suggestion) == (field, lookup, suggestion)
    assert (error.hint or "").startswith("It has: ")


def test_the_lookups_of_elements_are_named_for_fields_with_several_values():
    with pytest.raises(UnknownLookupError) as refused:
        normal(names__startswit="x")
    assert refused.value.hint == "It has: any, contains, contains_all, contains_any, exact, in, isnull, ne, not_in."
    with pytest.raises(UnknownLookupError) as refused:
        normal(MultiFieldRef[int]("number").any() > 1)
    assert refused.value.lookup == "any"


@pytest.mark.parametrize(
    ("lookups", "field"),
    [
        ({"names__contains": None}, "names"),
        ({"names__contains": 3}, "names"),
        ({"names__contains_any": ["x", None]}, "names"),
        ({"names__contains_any": "x"}, "names"),
        ({"names__contains_all": [3]}, "names"),
        ({"names__any__ne": None}, "names"),
        ({"names__any__in": [None]}, "names"),
        ({"names__any__range": ("a", None)}, "names"),
        ({"name__contains": None}, "name"),
        ({"name__contains": 3}, "name"),
        ({"name": 3}, "name"),
        ({"data__contains": "x"}, "data"),
        ({"initial__gt": 3}, "initial"),
        ({"address__city": 3}, "address.city"),
        ({"address__city__in": "Rome"}, "address.city"),
        ({"address__street__number__range": 3}, "address.street.number"),
        ({"address__street__number__isnull": 3}, "address.street.number"),
        ({"opened__gt": datetime(2024, 1, 1)}, "opened"),
    ],
)
def test_operands_that_a_column_cannot_hold_are_refused(lookups: dict[str, Any], field: str):
    with pytest.raises(InvalidValueError) as refused:
        parse(PLACE, (), lookups)
    assert (refused.value.model, refused.value.field) == ("Place", field)
    assert refused.value.hint


def test_hints_show_the_keyword_of_a_path():
    with pytest.raises(InvalidValueError) as refused:
        normal(address__city__in="Rome")
    assert refused.value.hint == "Write address__city__in=[...], with the values in brackets."


def test_a_key_function_that_fails_for_an_operand_is_named():
    def picky(text: str) -> str:
        if not text:
            raise ValueError("empty")
        return text[0]

    class Picky(KvModel):
        id: PrimaryKey[int]
        name: Annotated[str, Indexed(key=picky, version=1)]

    with pytest.raises(InvalidValueError, match="the key function of a field failed for an operand") as refused:
        parse(schema_of(Picky), (), {"name": ""})
    assert (refused.value.model, refused.value.field, refused.value.type) == ("Picky", "name", "ValueError")
    assert parse(schema_of(Picky), (), {"name": None}) == (Condition("name", "isnull", True),)


@pytest.mark.parametrize("wrong", [3, None, "number=3", True, [Q(number=1)], Condition("number", "exact", 3)])
def test_what_is_no_expression_is_refused(wrong: Any):
    for given in (wrong, Q(wrong)):
        with pytest.raises(InvalidValueError, match="this is not an expression"):
            parse(PLACE, (given,), {})


def test_operators_take_expressions_only():
    field: Any = Place.number
    for wrong in (lambda: Q(number=1) & field == 2, lambda: Q(number=1) | field > 2):
        with pytest.raises(InvalidValueError, match="Put parentheses around comparisons") as refused:
            wrong()
        assert refused.value.type == "FieldRef"


def test_an_expression_about_another_model_is_refused():
    other: Any = Twice
    expressions: list[Expression] = [other.left == 1, ~(other.left == 1), Q(other.left == 1) | Q(number=1)]
    for expression in expressions:
        with pytest.raises(UnknownFieldError, match="another model"):
            parse(PLACE, (expression,), {})


def test_fields_and_expressions_are_copied_and_sent_to_other_processes():
    place: Any = Place
    for made in (place.address.city, place.names, place.names.any(), place.address):
        for copied in (copy(made), deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert (type(copied), repr(copied), hash(copied)) == (type(made), repr(made), hash(made))
    for made in (place.address.city == "x", ~Q(names__contains="x"), place.id.desc(), (place.id > 3) | Q(id=1)):
        assert copy(made) == deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


class Priced(KvModel, collection="priced"):
    id: PrimaryKey[int]
    price: Indexed[Decimal]
    rebate: Indexed[Decimal | None] = Field(default=None)


@pytest.mark.parametrize("field", ["price", "rebate"])
def test_a_whole_number_is_an_operand_of_a_decimal_column_and_a_float_is_none(field: str):
    lookups = {f"{field}__lt": 10**30, f"{field}__in": [1, Decimal("2.5")]}
    found = [one for part in parse(schema_of(Priced), (), lookups) for one in conditions_of(part)]
    assert {condition.operand for condition in found} == {Decimal(10**30), (Decimal(1), Decimal("2.5"))}
    for wrong in (1.5, True):
        with pytest.raises(InvalidValueError):
            parse(schema_of(Priced), (), {field: wrong})


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    home: Address | str


def test_a_field_of_a_model_in_a_union_is_said_to_be_beyond_comparison():
    for where in ({"home__city": "Bern"}, {"home__street__name": "x"}):
        with pytest.raises(UnknownFieldError, match="cannot be compared"):
            parse(schema_of(Visit), (), where)


def test_no_primary_key_is_suggested_inside_of_a_nested_model():
    class Trip(KvModel, collection="trips"):
        id: PrimaryKey[int]
        p: Street

    with pytest.raises(UnknownFieldError) as refused:
        parse(schema_of(Trip), (), {"p__pk": 1})
    assert refused.value.suggestion is None


def test_unknown_names_are_not_remembered_and_replace_no_known_one():
    schema = schema_of(Place)
    known = schema.source("address.city")
    for number in range(1_500):
        assert schema.source(f"address.city{number}") is None
    assert schema.source("address.city") is known
