"""Queries over every kind of field; every line must be accepted, with the type that is asserted."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypedDict, assert_type

from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    AsyncQuerySet,
    Avg,
    Count,
    Database,
    Expression,
    F,
    Field,
    FieldRef,
    Index,
    Indexed,
    KvModel,
    Max,
    Min,
    MultiFieldRef,
    MultiIndexed,
    Page,
    PrimaryKey,
    Q,
    QuerySet,
    Sum,
    Trunc,
    Unique,
    UniqueConstraint,
    col,
)
from kvmodels.schema.declare.expressions import Comparison, ElementRef, Order


class Kind(StrEnum):
    CITY = "city"
    VILLAGE = "village"


class Address(BaseModel):
    city: str
    zip: str | None = None
    phones: list[str] = []


def initial(name: str) -> str:
    return name[:1]


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    code: Unique[str | None] = Field(default=None)
    name: Indexed[str]
    country: Indexed[str]
    kind: Indexed[Kind]
    data: Indexed[bytes]
    founded: Indexed[datetime | None] = Field(default=None)
    area: Indexed[Decimal]
    names: MultiIndexed[list[str]] = Field(default_factory=list)
    tags: MultiIndexed[set[str]] = Field(default_factory=set)
    years: MultiIndexed[frozenset[int]] = Field(default_factory=frozenset)
    scores: MultiIndexed[tuple[float, ...]] = Field(default=())
    aliases: MultiIndexed[list[str] | None] = Field(default=None)
    nick: Annotated[str, Indexed(key=str.casefold, descending=True, include=("name",))] = ""
    keys: Annotated[list[str], MultiIndexed(key=str.casefold, max_fan_out=10)] = []
    address: Address
    population: int = 0

    class Meta:
        indexes = (
            Index("country", "-population", where=Q(population__gt=0), include=("name",), name="big"),
            Index("address.city", nulls="skip"),
            Index("name", key=initial, version=1, name="initial"),
            UniqueConstraint("country", "address.zip", where=~Q(address__zip=None) & Q(population__gt=1)),
            AggregateIndex("country", sums=("population",)),
            AggregateIndex(sums={"population": None}, name="everyone"),
        )


class Card(BaseModel):
    name: str


@dataclass
class Label:
    name: str


class Row(NamedTuple):
    name: str
    population: int


class Entry(TypedDict):
    name: str


# --- fields and comparisons

assert_type(Place.name, FieldRef[str])
assert_type(Place.code, FieldRef[str | None])
assert_type(Place.names, MultiFieldRef[str])
assert_type(Place.tags, MultiFieldRef[str])
assert_type(Place.years, MultiFieldRef[int])
assert_type(Place.scores, MultiFieldRef[float])
assert_type(Place.aliases, MultiFieldRef[str])
assert_type(Place.names.any(), ElementRef[str])
assert_type(col(Place.nick), FieldRef[str])
assert_type(col(Place.keys), MultiFieldRef[str])
assert_type(col(Place.address.city), FieldRef[str])
assert_type(col(Place.address.zip), FieldRef[str | None])
assert_type(col(Place.address.phones), MultiFieldRef[str])
assert_type(col(Place.population) > 3, Comparison)

expressions: list[Expression] = [
    Place.name == "x",
    Place.name != "x",
    Place.code == None,  # noqa: E711
    Place.kind == Kind.CITY,
    Place.kind.in_([Kind.CITY]),
    Place.founded.not_in([None]),
    Place.area.between(Decimal(1), Decimal(2), bounds="(]"),
    Place.name.startswith("x"),
    Place.code.startswith("x"),
    Place.data.startswith(b"x"),
    Place.name.contains("x"),
    Place.code.contains("x"),
    Place.data.contains(b"x"),
    Place.founded.is_null(False),
    Place.names.contains("x"),
    Place.years.contains_any([1, 2]),
    Place.scores.contains_all({1.5}),
    Place.names.any().startswith("x"),
    Place.years.any() >= 3,
    Place.scores.any().between(1.0, 2.0),
    Place.aliases.is_null(),
    Place.names == ["x"],
    col(Place.address.city) == "x",
    col(Place.address.phones).contains("1"),
    col(Place.address.zip).is_null(),
    Q(name="x", population__gt=3),
    Q(Place.name == "x", Q(kind=Kind.CITY)),
]

assert_type((Place.name == "x") & (Place.area > Decimal(1)), Expression)
assert_type((Place.name == "x") | Q(kind="city"), Expression)
assert_type(~(Place.name == "x"), Expression)
assert_type(Place.area.desc(), Order)
assert_type(Place.founded.asc(nulls_last=True), Order)
assert_type(F("founded").desc(nulls_first=True), Order)


# --- results

with Database("memory://", models=[Place]) as db:
    assert db[Place].filter(*expressions).allow_scan().to_list() == []


def synchronous(db: Database) -> None:
    places = db[Place]
    found = places.filter(Place.names.contains("x") | ~Q(kind="city"), *expressions, population__gt=3)
    assert_type(found, QuerySet[Place])
    assert_type(found.exclude(Place.name == "x").order_by("country", "-population", Place.name, Place.area.desc())[:10], QuerySet[Place])
    assert_type(found[3], Place)
    assert_type(found.first(), Place | None)
    assert_type(found.count(), int)
    assert_type(found.exists(), bool)
    assert_type(found.page(size=10, after=None), Page[Place])
    assert_type(found.page(size=10, before="x").items, list[Place])
    assert_type(found.iterator(batch_size=10), Iterator[Place])
    assert_type(found.values("name", Place.country).to_list(), list[dict[str, Any]])
    assert_type(found.values_list(Place.name, flat=True).to_list(), list[str])
    assert_type(found.values_list(Place.code, flat=True).distinct().to_list(), list[str | None])
    assert_type(found.values_list(Place.name).to_list(), list[tuple[str]])
    assert_type(found.values_list(Place.name, Place.area).to_list(), list[tuple[str, Decimal]])
    assert_type(found.values_list(Place.name, Place.area, Place.kind).first(), tuple[str, Decimal, Kind] | None)
    four = found.values_list(Place.name, Place.area, Place.kind, Place.code)
    assert_type(four.to_list(), list[tuple[str, Decimal, Kind, str | None]])
    five = found.values_list(Place.name, Place.area, Place.kind, Place.code, Place.founded)
    assert_type(five[0], tuple[str, Decimal, Kind, str | None, datetime | None])
    assert_type(found.values_list("name", "area").to_list(), list[Any])
    assert_type(found.values_list(col(Place.population), flat=True)[0], int)
    assert_type(found.only(Card).to_list(), list[Card])
    assert_type(found.only(Label).first(), Label | None)
    assert_type(found.only(Row)[0], Row)
    assert_type(found.only(Entry).page(size=3), Page[Entry])
    assert_type(found.only(Card)[:3], QuerySet[Card])
    assert_type(found.aggregate(n=Count(distinct=Place.country), m=Count(distinct="kind")), dict[str, Any])
    assert_type(found.aggregate(Count(), total=Sum("population"), top=Max(Place.area)), dict[str, Any])
    for group in found.group_by("country", Place.kind).aggregate(Count(), Avg("population"), low=Min("population")):
        assert_type(group, dict[str, Any])
    for group in found.group_by(Trunc("founded", "month")).aggregate(Count()):
        assert_type(group, dict[str, Any])
    for group in found.group_by("country", Trunc(Place.founded, "week", tz="Asia/Tokyo")).aggregate(Count()):
        assert_type(group, dict[str, Any])
    assert_type(found.using_index("name").sort_in_memory(limit=10).allow_scan().reverse(), QuerySet[Place])
    assert_type(found.explain(analyze=True).index, str | None)
    for place in found:
        assert_type(place.names, list[str])
        assert_type(place.years, frozenset[int])
        assert_type(place.scores, tuple[float, ...])
        assert_type(place.aliases, list[str] | None)
        place.tags.add("x")
        place.names = ["x"]
        if place.code is not None:
            assert_type(place.code.upper(), str)


async def asynchronous() -> None:
    async with AsyncDatabase("memory://", models=[Place]) as adb:
        found = adb[Place].filter(Place.years.any() > 3, Q(kind="city") & Q(name="x"))
        assert_type(found, AsyncQuerySet[Place])
        assert_type(await found.first(), Place | None)
        assert_type(await found.only(Card).to_list(), list[Card])
        assert_type(await found.values_list(Place.name, flat=True).to_list(), list[str])
        assert_type(await found.page(size=3), Page[Place])
        assert_type(found.iterator(batch_size=3), AsyncIterator[Place])
        assert_type(await found.aggregate(Count()), dict[str, Any])
        async for group in found.group_by("country").aggregate(Count()):
            assert_type(group, dict[str, Any])
        async for name in found.values_list(Place.name, flat=True):
            assert_type(name, str)
