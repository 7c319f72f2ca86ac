"""Indexes over odd shapes: optional models in lists, lists in optional models, None in tuples, Enums, unusual numbers.

Vectors are of two lengths, and one is of zeros, so that an index refuses some of them.

Each index has a second definition under its name, which a later release declares. A class that has any of them is made
by ``release``; ``SPEC`` is what the oracle has to know of all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel

from kvmodels import Field, KvModel, PrimaryKey, Q, Unique, Vector, VectorIndex
from kvmodels.schema.declare.declarations import AggregateIndex, DeclaredIndex, Index, UniqueConstraint
from kvmodels.schema.declare.markers import MultiIndexed
from tests.oracle import CollectionSpec, spec_of


class Colour(Enum):
    RED = "r"
    GREEN = "g"


class Leaf(BaseModel):
    kind: str | None = None
    weight: int = 0
    tags: list[str] = Field(default_factory=list)


class Branch(BaseModel):
    leaf: Leaf | None = None
    leaves: list[Leaf] | None = None
    amount: int | None = None


def first(text: str) -> str:
    """Fails on what nobody expected."""
    if text == "bad":
        raise ValueError(text)
    return text[:1]


def words(text: str) -> list[str]:
    return text.split("-")


def with_year(text: str, day: date) -> str | None:
    return f"{text}{day.year}" if text else None


class Shape(KvModel, abstract=True):
    park: PrimaryKey[int]
    name: PrimaryKey[str]
    handle: Annotated[str, Unique(key=str.lower)]
    text: str = ""
    other: str | None = None
    number: int | None = None
    items: tuple[str | None, ...] = ()
    numbers: set[int] | None = None
    names: Annotated[list[str], MultiIndexed(key=str.casefold)] = Field(default_factory=list)
    owners: list[str] | None = None
    branch: Branch | None = None
    branches: list[Branch] = Field(default_factory=list)
    colour: Colour = Colour.RED
    colours: list[Colour] = Field(default_factory=list)
    price: Decimal = Decimal("1.0")
    day: date | None = None
    ratio: float = 0.0
    anything: Any = None
    look: Vector | None = None


POSITIVE = Q(number__gt=0)
INDEXES: Mapping[str, tuple[DeclaredIndex, ...]] = {
    "items": (Index("items", name="items"), Index("items", "text", name="items")),
    "covering": (
        Index("-items", "-number", include=("branch", "anything"), name="covering"),
        Index("-items", include=("anything", "price", "ratio"), name="covering"),
    ),
    "numbers": (Index("numbers", "other", nulls="skip", name="numbers"), Index("numbers", name="numbers")),
    "owners": (
        UniqueConstraint("owners", name="owners"),
        UniqueConstraint("owners", where=Q(colour="g"), max_fan_out=2, name="owners"),
    ),
    "slots": (
        UniqueConstraint(
            "owners",
            "colour",
            where=POSITIVE | Q(other=None),
            nulls="skip",
            include=("anything", "branches"),
            name="slots",
        ),
        Index("owners", "colour", name="slots"),
    ),
    "equal": (
        UniqueConstraint("other", "branch.leaf.kind", nulls="equal", where=Q(text__startswith="x"), name="equal"),
        Index("branch.leaf.kind", name="equal"),
    ),
    "kinds": (
        Index("branch.leaves.kind", "branch.amount", nulls="skip", name="kinds"),
        AggregateIndex("branch.leaves.kind", name="kinds"),
    ),
    "tags": (
        Index("branches.leaf.tags", "text", max_fan_out=4, name="tags"),
        Index("branches.leaf.tags", "text", where=~POSITIVE, max_fan_out=2, name="tags"),
    ),
    "deep": (Index("branches.leaves.tags", store="record", name="deep"), Index("branches.leaves.tags", name="deep")),
    "first": (Index("text", key=first, version=1, name="first"),),
    "word": (Index("text", key=words, version=1, include=("text",), name="word"),),
    "year": (UniqueConstraint("text", "day", key=with_year, version=1, include=("ratio",), name="year"),),
    "first_word": (
        Index("colour", "-first", "word", where=Q(first__ne="a"), name="first_word"),
        Index("colour", "word", name="first_word"),
    ),
    "colours": (Index("colours", "price", name="colours"), AggregateIndex("colours", sums=("number",), name="colours")),
    "prices": (
        Index("-price", "ratio", where=~Q(day=None) & Q(ratio__gte=0), name="prices"),
        Index("price", name="prices"),
    ),
    "sums": (
        AggregateIndex("colour", sums=("number", "branch.amount"), name="sums"),
        AggregateIndex("colour", sums=("branch.amount",), name="sums"),
    ),
    "groups": (
        AggregateIndex("items", "other", sums=("number",), where=~Q(number=None), max_fan_out=3, name="groups"),
        AggregateIndex("items", sums=("number",), where=~Q(number=None), max_fan_out=2, name="groups"),
    ),
    "of_words": (AggregateIndex("word", "day", name="of_words"), AggregateIndex("word", "first", name="of_words")),
    "total": (
        AggregateIndex(sums=("number",), where=Q(branch__leaf__kind__isnull=False), name="total"),
        Index("number", name="total"),
    ),
    "look": (
        VectorIndex("look", dim=2, store="int8", group="colours", name="look"),
        VectorIndex("look", dim=3, metric="l2", where=POSITIVE, name="look"),
    ),
}
"""By name, the definition of the first release that has it, and that of a later one."""

NEEDS: Mapping[str, tuple[str, ...]] = {"first_word": ("first", "word"), "of_words": ("first", "word")}
"""Indexes over computed columns, which other indexes name."""


def release(names: Iterable[str], changed: Iterable[str]) -> type[Shape]:
    """A release with these indexes, some of them with their second definition."""
    wanted = {name for chosen in names for name in (chosen, *NEEDS.get(chosen, ()))}
    second = frozenset(changed)
    declared = tuple(versions[-1 if name in second else 0] for name, versions in INDEXES.items() if name in wanted)

    class Release(Shape, collection="shapes"):
        class Meta:
            indexes = declared

    return Release


def _every_definition() -> CollectionSpec:
    one, other = (spec_of(release(INDEXES, changed)) for changed in ((), INDEXES))
    return replace(one, indexes=tuple(dict.fromkeys((*one.indexes, *other.indexes))))


SPEC = _every_definition()


def _leaf(rng: random.Random) -> Leaf | None:
    tags = rng.choices("pqr", k=rng.randrange(3))
    return rng.choice([None, Leaf(kind=rng.choice([None, "k1", "k2"]), weight=rng.randrange(3), tags=tags)])


def _branch(rng: random.Random) -> Branch | None:
    leaves = [leaf for leaf in (_leaf(rng) for _ in range(3)) if leaf is not None]
    amount = rng.choice([None, 0, -3, 2**40 + 1, -(2**33)])
    return rng.choice([None, Branch(leaf=_leaf(rng), leaves=rng.choice([None, [], leaves]), amount=amount)])


def values(rng: random.Random, n: int) -> dict[str, Any]:
    """Return the values of the n-th record; unique values are mostly those of n."""
    return {
        "handle": rng.choice([f"{n}", f"{n}A", f"{n}a", f"{n}", "Shared", "sHARED"]),
        "text": rng.choice(["", "x", "xa-b", "a-a", "b-", "q", "q", "bad"]),
        "other": rng.choice([None, "", "o1", "o2"]),
        "number": rng.choice([None, 0, 5, -7, 2**62, -(2**62)]),
        "items": tuple(rng.choices([None, "a", "b", "c", "d"], k=rng.randrange(5))),
        "numbers": rng.choice([None, set(), {1, 2}, {3}]),
        "names": rng.choices(["A", "a", "ß", "ss"], k=rng.randrange(4)),
        "owners": rng.choice([None, [], [f"{n}"], [f"{n}", "s1"], ["s1", "s2", "s2"], [f"{n}x", f"{n}y", f"{n}z"]]),
        "branch": _branch(rng),
        "branches": [branch for branch in (_branch(rng) for _ in range(rng.randrange(3))) if branch is not None],
        "colour": rng.choice(list(Colour)),
        "colours": rng.choices(list(Colour), k=rng.randrange(3)),
        "price": rng.choice([Decimal("1.0"), Decimal("1.00"), Decimal("-2"), Decimal("1e5")]),
        "day": rng.choice([None, date(2020, 1, 1), date(2021, 5, 5)]),
        "ratio": rng.choice([0.0, -0.0, 1.5, -1.5]),
        "anything": rng.choice([None, 1, 1.0, True, [1, {"a": [2]}], {"x": {1, 2}}, b"z"]),
        "look": rng.choice([None, None, Vector([1, 2]), Vector([-2, 1]), Vector([0, 1, 3]), Vector([0, 0])]),
    }
