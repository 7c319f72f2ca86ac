"""The spans of a partial index hold exactly the documents for which its condition is true in Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import BaseModel

from kvmodels.catalog.catalogue import IndexState, index_definition, stored_index
from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.errors import InvalidValueError, ModelDefinitionError
from kvmodels.schema.compile.indexes import MOST_ALTERNATIVES, partial_of
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.expressions import Expression, Q
from kvmodels.schema.declare.markers import Indexed, PrimaryKey
from kvmodels.schema.definition.definition import IndexDefinition
from tests.drawing import of_check


class Place(BaseModel):
    zip: str | None


def first(text: str) -> str:
    return text[:1]


class Thing(KvModel, collection="things"):
    id: PrimaryKey[int]
    number: int
    maybe: int | None
    text: str | None
    real: float
    amount: Decimal
    day: date
    flag: bool
    folded: Annotated[str, Indexed(key=str.casefold)]
    place: Place | None

    class Meta:
        indexes = (Index("folded", key=first, version=1, name="first"),)


SCHEMA = schema_of(Thing)

Evaluate = Callable[[Thing], bool]

NUMBERS = st.integers(-2, 2)
TEXTS = st.text("abAB\0ß", max_size=2)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": NUMBERS,
    "maybe": NUMBERS,
    "text": TEXTS,
    "real": st.sampled_from([-0.0, 0.0, 1.5, -1.5, float("inf")]),
    "amount": st.sampled_from([Decimal("1.0"), Decimal(1), Decimal("-2.50"), Decimal(0)]),
    "day": st.dates(date(2024, 1, 1), date(2024, 1, 3)),
    "flag": st.booleans(),
    "folded": TEXTS,
    "place__zip": TEXTS,
    "first": TEXTS,
}
NULLABLE = {"maybe", "text", "place__zip"}


def value_of(thing: Thing, name: str) -> Any:
    if name == "folded":
        return thing.folded.casefold()
    if name == "first":
        return thing.folded[:1]
    if name == "place__zip":
        return None if thing.place is None else thing.place.zip
    return getattr(thing, name)


def operand_of(name: str, operand: Any) -> Any:
    return operand.casefold() if name == "folded" and operand is not None else operand


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Expression, Evaluate]:
    name = draw(st.sampled_from(sorted(VALUES)))
    values = VALUES[name]
    is_text = name in {"text", "folded", "place__zip", "first"}
    lookups = ["exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "isnull", "startswith"]
    lookup = draw(st.sampled_from(lookups if is_text else lookups[:-1]))
    operand: Any
    if lookup in {"in", "not_in"}:
        maybe = st.one_of(st.none(), values) if name in NULLABLE else values
        operand = draw(st.lists(maybe, max_size=3))
    elif lookup == "range":
        operand = (draw(values), draw(values))
    elif lookup == "isnull":
        operand = draw(st.booleans())
    else:
        operand = draw(values)
    return Q(**{f"{name}__{lookup}": operand}), evaluation(name, lookup, operand)


def evaluation(name: str, lookup: str, operand: Any) -> Evaluate:
    if lookup in {"in", "not_in"}:
        held = [operand_of(name, one) for one in operand]
        return lambda thing: (value_of(thing, name) in held) == (lookup == "in")
    if lookup == "isnull":
        return lambda thing: (value_of(thing, name) is None) == operand
    if lookup == "range":
        low, high = operand_of(name, operand[0]), operand_of(name, operand[1])
        return lambda thing: value_of(thing, name) is not None and low <= value_of(thing, name) <= high
    operand = operand_of(name, operand)
    if lookup == "ne":
        return lambda thing: value_of(thing, name) != operand
    tests: dict[str, Callable[[Any], bool]] = {
        "exact": lambda value: value == operand,
        "gt": lambda value: value > operand,
        "gte": lambda value: value >= operand,
        "lt": lambda value: value < operand,
        "lte": lambda value: value <= operand,
        "startswith": lambda value: value.startswith(operand),
    }
    return lambda thing: value_of(thing, name) is not None and tests[lookup](value_of(thing, name))


def combined(
    children: st.SearchStrategy[tuple[Expression, Evaluate]],
) -> st.SearchStrategy[tuple[Expression, Evaluate]]:
    return st.one_of(
        st.tuples(children, children).map(lambda two: (two[0][0] & two[1][0], both(two[0][1], two[1][1]))),
        st.tuples(children, children).map(lambda two: (two[0][0] | two[1][0], either(two[0][1], two[1][1]))),
        children.map(lambda one: (~one[0], negated(one[1]))),
    )


def both(one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda thing: one(thing) and other(thing)


def either(one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda thing: one(thing) or other(thing)


def negated(one: Evaluate) -> Evaluate:
    return lambda thing: not one(thing)


THINGS = st.builds(
    Thing,
    id=st.just(1),
    number=NUMBERS,
    maybe=st.one_of(st.none(), NUMBERS),
    text=st.one_of(st.none(), TEXTS),
    real=VALUES["real"],
    amount=VALUES["amount"],
    day=VALUES["day"],
    flag=st.booleans(),
    folded=TEXTS,
    place=st.one_of(st.none(), st.builds(Place, zip=st.one_of(st.none(), TEXTS))),
)


def layouts(where: Expression) -> list[EntryLayout]:
    """By the declared definition, and by the one that any process has from the catalogue."""
    columns = SCHEMA.indexes["folded"].columns
    declared = IndexDefinition("x", columns, where=partial_of(SCHEMA, where, "Index()"))
    stored = index_definition(stored_index(declared, 1, IndexState.READABLE))
    assert stored.signature() == declared.signature()
    assert stored.hash() == declared.hash()
    return [EntryLayout("things", definition, 1) for definition in (declared, stored)]


def outcome(where: Expression) -> tuple[list[EntryLayout], bool | None]:
    """The layouts; or whether the condition was refused because it always holds, or because it never does."""
    try:
        return layouts(where), None
    except ModelDefinitionError as error:
        return [], {
            "the condition of an index never holds": False,
            "the condition of an index holds for every record": True,
        }[error.message]


@settings(max_examples=of_check(150), deadline=None)
@given(st.recursive(comparisons(), combined, max_leaves=5), st.lists(THINGS, min_size=1, max_size=6))
def test_a_partial_index_holds_exactly_the_documents_of_which_its_condition_is_true(condition, things):
    where, evaluate = condition
    found, always = outcome(where)
    if always is not None:
        assert {evaluate(thing) for thing in things} == {always}
        return
    for thing in things:
        document = SCHEMA.prepare(thing).document
        for layout in found:
            assert layout.covers(document)
            assert bool(layout.keys(document, b"\x15\x01")) is evaluate(thing), (where, thing)


@settings(max_examples=of_check(100), deadline=None)
@given(st.recursive(comparisons(), combined, max_leaves=4))
def test_the_form_of_a_condition_is_sorted_and_without_overlap(condition):
    try:
        partial = partial_of(SCHEMA, condition[0], "Index()")
    except ModelDefinitionError:
        return
    assert 1 <= len(partial.alternatives) <= MOST_ALTERNATIVES
    for tests in partial.alternatives:
        fields = [test.column.field for test in tests]
        assert fields == sorted(set(fields))
        assert fields
        for test in tests:
            edges = [edge for span in test.spans for edge in span]
            assert edges
            assert edges == sorted(set(edges))


def signature(where: Expression) -> Any:
    return partial_of(SCHEMA, where, "Index()").signature()


def test_one_condition_has_one_form_however_it_is_written():
    one = signature(Q(number__in=[1, 2], text="a"))
    assert signature(Q(number__in=[2, 1, 1]) & Q(text="a")) == one
    assert signature((Q(number=1) & Q(text="a")) | (Q(text="a") & Q(number=2))) == one
    assert signature(~(~Q(number=1, text="a") & ~Q(number=2, text="a"))) == one
    assert signature(Q(number__gte=1, number__lte=2, flag=True) | Q(number__range=(1, 2), flag=True)) == signature(
        Q(number__range=(1, 2), flag=True)
    )
    assert signature(Q(number=1) | Q(number=1, text="a")) == signature(Q(number=1))
    assert signature(Q(folded="ÄB")) == signature(Q(folded="äb"))
    assert signature(Q(number=1, text="a") | Q(number=2, text="b")) != one


def test_the_spans_of_a_condition_are_packed_parts():
    assert signature(Q(number__gt=0, text=None)) == [
        [
            [["number", "int", "asc", False], [["14ff", "ff"]]],
            [["text", "str", "asc", True], [["", "0100ff"]]],
        ]
    ]


def test_the_condition_of_a_stored_index_names_the_field_of_a_value_that_it_cannot_test():
    _, stored = layouts(Q(text__gt="a"))
    document = SCHEMA.prepare(
        Thing(
            id=1,
            number=1,
            maybe=1,
            text="b",
            real=1.0,
            amount=Decimal(1),
            day=date(2026, 1, 1),
            flag=True,
            folded="f",
            place=None,
        )
    ).document
    with pytest.raises(InvalidValueError) as refused:
        stored.keys({**document, "text": "\ud800"}, b"")
    assert refused.value.field == "text"
