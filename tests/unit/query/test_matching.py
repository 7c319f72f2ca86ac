"""Tests of stored documents equal the same filter in plain Python, for random filters over random records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from math import isnan
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from kvmodels import DecodeError, Field, Index, Indexed, KvModel, PrimaryKey
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.query.matching import Matcher, matcher
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import MultiIndexed
from kvmodels.schema.filters.parse import negate, parse
from kvmodels.schema.filters.predicate import AllOf, AnyOf, Condition, Predicate, all_of


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Street(BaseModel):
    name: str | None = None


class Address(BaseModel):
    city: str
    street: Street | None = None
    floors: list[int] = []


def initial(name: str) -> str:
    return name[:1]


def words(alias: str) -> list[str]:
    return alias.split()


class Place(KvModel, collection="places"):
    """Every kind of source, next to fields that no column can hold."""

    id: PrimaryKey[int]
    key: PrimaryKey[str]
    name: Annotated[str, Indexed(key=str.casefold)]
    alias: Annotated[str | None, Indexed(key=str.casefold)] = None
    number: int | None = None
    height: float | None = None
    at: datetime | None = None
    amount: Decimal = Decimal(0)
    color: Color | None = None
    data: bytes = b""
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    labels: Annotated[frozenset[str] | None, MultiIndexed(key=str.casefold)] = None
    scores: tuple[int, ...] = ()
    address: Address | None = None
    others: list[Address] = []
    extra: dict[str, int] = {}
    pair: tuple[int, str] = (0, "")
    secret: SecretStr = SecretStr("")

    class Meta:
        indexes = (
            Index("name", key=initial, version=1, name="initial"),
            Index("alias", key=words, version=1, name="words"),
        )


SCHEMA = schema_of(Place)
TEXT = st.sampled_from(["", "a", "A", "ab", "Ab", "b", "ß", "a\0", "a b", "b A"])
NUMBER = st.integers(-2, 3)
TIMES = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
AMOUNT = st.sampled_from([Decimal(text) for text in ("-1", "0", "1.0", "1", "1.50", "2")])
COLOR = st.sampled_from(Color)
DATA = st.sampled_from([b"", b"a", b"a\xff", b"ab", b"\xff"])

streets = st.builds(Street, name=st.none() | TEXT)
addresses = st.builds(Address, city=TEXT, street=st.none() | streets, floors=st.lists(NUMBER, max_size=2))
places = st.builds(
    Place,
    id=NUMBER,
    key=TEXT,
    name=TEXT,
    alias=st.none() | TEXT,
    number=st.none() | NUMBER,
    height=st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5, float("nan"), float("inf")]),
    at=st.sampled_from([None, datetime(2024, 1, 2), *TIMES, datetime(2024, 1, 1)]),
    amount=AMOUNT,
    color=st.none() | COLOR,
    data=DATA,
    tags=st.lists(TEXT, max_size=3),
    labels=st.none() | st.frozensets(TEXT, max_size=2),
    scores=st.lists(NUMBER, max_size=2).map(tuple),
    address=st.none() | addresses,
    others=st.lists(addresses, max_size=2),
    extra=st.dictionaries(st.sampled_from("xy"), NUMBER, max_size=1),
    pair=st.tuples(NUMBER, TEXT),
    secret=TEXT.map(SecretStr),
)


class Column(NamedTuple):
    """The meaning of a name in plain Python: the value or values of an object, and their operands."""

    value: Callable[[Place], Any]
    operands: st.SearchStrategy[Any]
    text: bool = False
    many: bool = False
    ordered: bool = True
    fold: Callable[[Any], Any] = lambda value: value
    whole: st.SearchStrategy[Any] | None = None


def floors(place: Place) -> list[int] | None:
    return None if place.address is None else place.address.floors


COLUMNS: dict[str, Column] = {
    "id": Column(lambda p: p.id, NUMBER),
    "name": Column(lambda p: p.name, TEXT, text=True, fold=str.casefold),
    "alias": Column(lambda p: p.alias, TEXT, text=True, fold=str.casefold),
    "number": Column(lambda p: p.number, NUMBER),
    "height": Column(lambda p: p.height, st.sampled_from([-0.0, 0.0, 1.5, 2.0])),
    "at": Column(lambda p: p.at, st.sampled_from(TIMES)),
    "amount": Column(lambda p: p.amount, AMOUNT),
    "color": Column(lambda p: p.color, COLOR, fold=lambda color: color.value),
    "data": Column(lambda p: p.data, DATA, text=True),
    "initial": Column(lambda p: p.name[:1], TEXT, text=True),
    "words": Column(lambda p: None if p.alias is None else p.alias.split(), TEXT, text=True, many=True),
    "tags": Column(lambda p: p.tags, TEXT, text=True, many=True, whole=st.lists(TEXT, max_size=2)),
    "labels": Column(
        lambda p: p.labels, TEXT, text=True, many=True, fold=str.casefold, whole=st.frozensets(TEXT, max_size=2)
    ),
    "scores": Column(lambda p: p.scores, NUMBER, many=True, whole=st.lists(NUMBER, max_size=2).map(tuple)),
    "address__city": Column(lambda p: p.address and p.address.city, TEXT, text=True),
    "address__street__name": Column(
        lambda p: p.address and p.address.street and p.address.street.name, TEXT, text=True
    ),
    "address__floors": Column(floors, NUMBER, many=True),
    "others__city": Column(lambda p: [other.city for other in p.others], TEXT, text=True, many=True),
    "others__floors": Column(lambda p: [floor for other in p.others for floor in other.floors], NUMBER, many=True),
    "others__street__name": Column(
        lambda p: [o.street.name for o in p.others if o.street and o.street.name is not None],
        TEXT,
        text=True,
        many=True,
    ),
    "address": Column(lambda p: p.address, addresses, ordered=False),
    "extra": Column(lambda p: p.extra, st.dictionaries(st.sampled_from("xy"), NUMBER, max_size=1), ordered=False),
    "pair": Column(lambda p: p.pair, st.tuples(NUMBER, TEXT), ordered=False),
    "secret": Column(lambda p: p.secret, TEXT.map(SecretStr), ordered=False),
}


class Leaf(NamedTuple):
    name: str
    lookup: str
    operand: Any


class Node(NamedTuple):
    """``and``, ``or``, ``not`` or ``Q`` of further trees."""

    kind: str
    parts: tuple[Any, ...]


@st.composite
def leaves(draw: st.DrawFn) -> Leaf:
    if draw(st.integers(0, 20)) == 0:
        keys = st.tuples(NUMBER, TEXT)
        lookup = draw(st.sampled_from(["exact", "in", "not_in"]))
        return Leaf("pk", lookup, draw(keys if lookup == "exact" else st.lists(keys, max_size=3)))
    name = draw(st.sampled_from([*sorted(COLUMNS), "height", "at", "height", "at"]))  # what may have no order
    column = COLUMNS[name]
    whole = not column.ordered or (column.many and column.whole is not None and draw(st.booleans()))
    element = column.many and not whole
    if draw(st.integers(0, 9)) == 0:
        return Leaf(name, "isnull", draw(st.booleans()))
    lookups = ["exact", "exact", "ne", "in", "not_in"]
    operands = column.operands if column.whole is None or not whole else column.whole
    if not whole:
        lookups += ["gt", "gte", "lt", "lte", "range", *(["startswith", "endswith", "contains"] if column.text else [])]
    if element and draw(st.booleans()):
        lookup = draw(st.sampled_from(["contains", "contains_any", "contains_all"]))
        return Leaf(name, lookup, draw(operands if lookup == "contains" else st.lists(operands, max_size=3)))
    lookup = draw(st.sampled_from(lookups))
    nullable = operands if element else st.none() | operands
    operand = draw(
        {
            "in": st.lists(nullable, max_size=3),
            "not_in": st.lists(nullable, max_size=3),
            "range": st.tuples(operands, operands),
            "exact": nullable,
            "ne": nullable,
        }.get(lookup, operands)
    )
    return Leaf(name, f"any__{lookup}" if element else lookup, operand)


trees: st.SearchStrategy[Any] = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(Node, st.sampled_from(["and", "or"]), st.tuples(inner, inner)),
        st.builds(Node, st.just("Q"), st.lists(inner, max_size=2).map(tuple)),
        st.builds(Node, st.just("not"), st.tuples(inner)),
    ),
    max_leaves=6,
)


def expression(tree: Any) -> Any:
    if isinstance(tree, Leaf):
        return Q(**{f"{tree.name}__{tree.lookup}": tree.operand})
    parts = [expression(part) for part in tree.parts]
    if tree.kind == "and":
        return parts[0] & parts[1]
    if tree.kind == "or":
        return parts[0] | parts[1]
    return ~parts[0] if tree.kind == "not" else Q(*parts)


def holds(tree: Any, place: Place) -> bool | None:
    """Return the condition of a tree on a place; None if there is none, as for ``Q()``."""
    if isinstance(tree, Leaf):
        return leaf_holds(tree, place)
    said = [answer for part in tree.parts if (answer := holds(part, place)) is not None]
    if not said:
        return None
    if tree.kind == "not":
        return not said[0]
    return any(said) if tree.kind == "or" else all(said)


def leaf_holds(leaf: Leaf, place: Place) -> bool:
    name, lookup, operand = leaf
    if name == "pk":
        key = (place.id, place.key)
        return key == operand if lookup == "exact" else (key in operand) is (lookup == "in")
    column = COLUMNS[name]
    value = column.value(place)
    if lookup == "isnull":
        return (value is None) is operand
    if not column.many:
        return compared(column, value, lookup, operand)
    held = [] if value is None else [column.fold(item) for item in value]
    if lookup == "contains":
        return column.fold(operand) in held
    if lookup == "contains_any":
        return any(column.fold(one) in held for one in operand)
    if lookup == "contains_all":
        return all(column.fold(one) in held for one in operand)
    if lookup.startswith("any__"):
        return any(compared(column, item, lookup.removeprefix("any__"), operand) for item in value or ())
    return compared(column, value, lookup, operand)


def folded(column: Column, value: Any) -> Any:
    if column.many and isinstance(value, list | tuple | frozenset):
        kind: Any = type(value)
        return kind(map(column.fold, value))
    return None if value is None else column.fold(value)


def compared(column: Column, value: Any, lookup: str, operand: Any) -> bool:
    if column.ordered and has_no_order(value):
        return lookup in ("ne", "not_in")
    value = folded(column, value)
    if lookup in ("in", "not_in"):
        return (value in [folded(column, one) for one in operand]) is (lookup == "in")
    if lookup == "range":
        low, high = (folded(column, one) for one in operand)
        return value is not None and low <= value <= high
    operand = folded(column, operand)
    if lookup in ("exact", "ne"):
        return (value == operand) is (lookup == "exact")
    if value is None:
        return False
    if lookup == "startswith":
        return bool(value[: len(operand)] == operand)
    answers = {
        "endswith": lambda: value.endswith(operand),
        "contains": lambda: operand in value,
        "gt": lambda: value > operand,
        "gte": lambda: value >= operand,
        "lt": lambda: value < operand,
        "lte": lambda: value <= operand,
    }
    return bool(answers[lookup]())


def has_no_order(value: Any) -> bool:
    """Values that a field can hold and its column cannot."""
    if isinstance(value, float):
        return isnan(value)
    return isinstance(value, datetime) and value.tzinfo is None


def stored(place: Place) -> dict[str, Any]:
    """The document as a store gives it back."""
    codec = MsgpackCodec()
    document: dict[str, Any] = codec.decode(*codec.encode(SCHEMA.prepare(place).document))
    return document


def answer(test: Matcher, place: Place, counts: Counter[str]) -> bool:
    """Of the document, unless it holds something without an order; and the same of the object."""
    document = stored(place)
    before = deepcopy(document)
    of_object = test.on_object(place)
    try:
        of_document = test.on_document(document)
    except KeyError:
        counts["object"] += 1
        assert any(has_no_order(value) for value in (place.height, place.at))
        return of_object
    assert document == before, "a test changes nothing"
    assert of_document is of_object
    counts["document"] += 1
    return of_document


def equals_python(examples: int) -> None:
    counts = Counter[str]()

    @settings(max_examples=examples)
    @given(trees, st.lists(places, min_size=1, max_size=4))
    def check(tree: Any, records: list[Place]) -> None:
        where = parse(SCHEMA, (expression(tree),), {})
        in_normal_form(all_of(where))
        test, opposite = Matcher(SCHEMA, where), Matcher(SCHEMA, (negate(SCHEMA, all_of(where)),))
        for place in records:
            expected = holds(tree, place)
            assert answer(test, place, counts) is (expected is not False)
            assert answer(opposite, place, counts) is (expected is False)
            counts["matching"] += expected is True

    check()
    print(dict(counts))
    assert counts["document"] > counts["object"] > 0
    assert counts["matching"] > examples / 4


def test_every_filter_of_stored_documents_equals_python():
    equals_python(200)


@pytest.mark.soak
def test_many_more_filters_of_stored_documents_equal_python():
    equals_python(20_000)


def in_normal_form(predicate: Predicate) -> None:
    """No part of a kind inside of the same kind, nothing that always or never holds below the top, no doubles."""
    if isinstance(predicate, Condition):
        assert not (predicate.lookup in ("exact", "ne") and predicate.operand is None)
        return
    for part in predicate.parts:
        assert type(part) is not type(predicate)
        assert isinstance(part, Condition) or len(part.parts) > 1 or (len(predicate.parts) == 1 and not part.parts)
        in_normal_form(part)
    if predicate.parts:
        assert isinstance(predicate, AllOf | AnyOf)


# --- single cases ---------------------------------------------------------------------------------------------------


def a_place(**fields: Any) -> Place:
    return Place(**{"id": 1, "key": "k", "name": "Ab", **fields})


def test_there_is_no_matcher_of_nothing():
    assert matcher(SCHEMA, ()) is None
    assert matcher(SCHEMA, parse(SCHEMA, (Q(),), {})) is None


def test_a_document_that_lacks_a_value_is_left_to_the_object():
    test = Matcher(SCHEMA, parse(SCHEMA, (), {"initial": "A", "number": None}))
    document = stored(a_place())
    assert test.on_document(document)
    for path in (("number",), ("$kv",), ("$kv", "c"), ("$kv", "c", SCHEMA.computed["initial"].stored_as)):
        lacking = deepcopy(document)
        inside = lacking
        for name in path[:-1]:
            inside = inside[name]
        del inside[path[-1]]
        with pytest.raises(KeyError):
            test.on_document(lacking)
    assert test.on_object(a_place())


def test_a_part_of_a_document_is_enough_for_what_it_holds():
    covered = {name: stored(a_place(number=3, extra={"x": 1}))[name] for name in ("number", "extra")}
    assert Matcher(SCHEMA, parse(SCHEMA, (), {"number": 3, "extra": {"x": 1}})).on_document(covered)
    assert not Matcher(SCHEMA, parse(SCHEMA, (), {"number": 4, "name": "x"})).on_document(covered)
    with pytest.raises(KeyError):
        Matcher(SCHEMA, parse(SCHEMA, (), {"number": 3, "name": "x"})).on_document(covered)


@pytest.mark.parametrize(
    ("damage", "lookups"),
    [
        ({"number": "three"}, {"number": 3}),
        ({"tags": "ab"}, {"tags__contains": "a"}),
        ({"tags": [1]}, {"tags__any__contains": "a"}),
        ({"address": "Rome"}, {"address__city": "Rome"}),
        ({"address": {"town": "Rome"}}, {"address__city": "Rome"}),
        ({"address": {"town": "Rome"}}, {"address": None}),
        ({"data": 3}, {"data__contains": b"a"}),
        ({"pair": [1]}, {"pair": (1, "")}),
        ({"at": "yesterday"}, {"at__gt": TIMES[0]}),
        ({"id": "x"}, {"pk__in": [(1, "k")]}),
    ],
)
def test_a_value_that_is_not_of_its_field_is_left_to_the_object(damage: dict[str, Any], lookups: dict[str, Any]):
    test = Matcher(SCHEMA, parse(SCHEMA, (), lookups))
    document = {**stored(a_place()), **damage}
    with pytest.raises(KeyError):
        test.on_document(document)
    with pytest.raises(DecodeError):
        SCHEMA.decode(document, (1, "k"))


def test_computed_values_are_those_that_are_stored():
    document = stored(a_place(name="Straße"))
    assert Matcher(SCHEMA, parse(SCHEMA, (), {"name": "STRASSE"})).on_document(document)
    document["$kv"]["c"]["name~casefold"] = "other"
    assert Matcher(SCHEMA, parse(SCHEMA, (), {"name": "Other"})).on_document(document)
    assert not Matcher(SCHEMA, parse(SCHEMA, (), {"name": "Straße"})).on_document(document)


def test_a_value_in_another_form_that_its_field_still_reads_is_left_to_the_object():
    document = {**stored(a_place()), "number": 3.0, "data": "ab"}
    test = Matcher(SCHEMA, parse(SCHEMA, (), {"number": 3, "data__contains": b"a"}))
    with pytest.raises(KeyError):
        test.on_document(document)
    assert test.on_object(SCHEMA.decode(document, (1, "k"))[0])
