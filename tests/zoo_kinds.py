"""Models with every kind of index: partial, computed, folded, nested, multi-valued, covering, counters, and special.

The special ones are of weekdays, places, intervals, trigrams, words, exclusions and ranks. ``Resident`` has them all.
``Guest`` has all but those with counters, which no record with a deadline may have.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any

from pydantic import BaseModel

from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import Field, Indexed, MultiIndexed, PrimaryKey, Unique
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.kinds.exclusion import ExclusionConstraint
from kvmodels.schema.kinds.geo import GeoIndex
from kvmodels.schema.kinds.interval import IntervalIndex
from kvmodels.schema.kinds.rank import RankIndex
from kvmodels.schema.kinds.search import SearchIndex
from kvmodels.schema.kinds.trigram import TrigramIndex
from kvmodels.schema.kinds.vector import VectorIndex
from kvmodels.schema.vectors.vector import Vector
from tests.kinds.weekdays import WeekdayIndex, register

register()


class Habitat(BaseModel):
    """Where somebody lives."""

    zone: str
    climate: str | None = None


class Meal(BaseModel):
    """A present that a person gets."""

    food: str
    grams: int = 0


def initial(name: str) -> str:
    """The first letter, for a register."""
    return name[:1].upper()


def words(name: str) -> list[str]:
    """The words of a name; a word may be there twice."""
    return name.casefold().split()


def birthday(born: date, species: str) -> str:
    """A column that is made of two fields."""
    return f"{species}/{born.month:02}-{born.day:02}"


class ResidentFields(KvModel, abstract=True):
    park: PrimaryKey[str]
    number: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]
    handle: Annotated[str | None, Unique(key=str.lower)] = None
    species: str
    age: int = 0
    weight: int | None = None
    stay: timedelta = timedelta(0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    chips: frozenset[str] | None = None
    born: date | None = None
    habitat: Habitat | None = None
    meals: list[Meal] = Field(default_factory=list)
    ward: str | None = None
    nick: Annotated[str | None, Indexed(nulls="skip", include=("age", "note"))] = None
    note: str = ""
    visits: int | None = None
    spot: GeoPoint | None = None
    arrives: date | None = None
    leaves: date | None = None
    looks: Vector | None = None


GROWN = Q(age__gt=0)
ENTRIES = (
    Index("species", "-age", where=GROWN, include=("note",), name="grown"),
    UniqueConstraint("ward", where=Q(species="lynx") & ~Q(ward=None), name="lynx_ward"),
    UniqueConstraint("species", "ward", include=("note", "tags"), name="berth"),
    Index("habitat.zone"),
    Index("habitat.climate", "-age", nulls="skip", name="climate"),
    Index("meals.food", name="food"),
    Index("tags", "-age", name="by_tag"),
    Index("tags", store="record", where=Q(name="ADA") | Q(age__in=[3, 5]), name="shown"),
    UniqueConstraint("chips", name="chip"),
    Index("name", key=initial, version=1, name="initial"),
    Index("species", "-initial", name="species_initial"),
    Index("name", key=words, version=2, name="word"),
    UniqueConstraint("born", "species", key=birthday, version=1, nulls="skip", name="birthday"),
    WeekdayIndex("visits", group=("species",), where=GROWN, name="visited"),
    GeoIndex("spot", group="species", where=GROWN, name="located"),
    IntervalIndex("arrives", "leaves", group="species", name="presence"),
    TrigramIndex("habitat.zone", group="species", where=GROWN, name="zoned"),
    ExclusionConstraint("arrives", "leaves", group=("park", "number"), where=GROWN, name="one_stay"),
    SearchIndex("note", "tags", group="species", where=GROWN, rank=False, name="noted"),
    VectorIndex("looks", dim=3, store="int8", group=("species", "tags"), where=GROWN, name="alike"),
    VectorIndex("looks", dim=3, metric="l2", name="nearby"),
)
COUNTERS = (
    AggregateIndex("species", sums=("age", "weight"), name="per_species"),
    AggregateIndex("tags", sums=("weight",), name="per_tag"),
    AggregateIndex(sums=("stay",), where=GROWN, name="stays"),
    AggregateIndex("habitat.zone", "initial"),
    AggregateIndex("name", name="namesakes"),
    RankIndex("-weight", group="tags", where=GROWN, low=-10, high=100, levels=2, name="podium"),
    RankIndex("stay", group=("species", "ward"), low=timedelta(0), high=timedelta(days=4), name="longest"),
    SearchIndex("name", "habitat.climate", "note", weights={"name": 2}, group="tags", name="text"),
)


class Resident(ResidentFields, collection="residents"):
    """Every kind of index, with a composite primary key."""

    class Meta:
        indexes = (*ENTRIES, *COUNTERS)


class Guest(ResidentFields, collection="guests"):
    """Every kind of index of entries, so that records may have deadlines."""

    class Meta:
        indexes = ENTRIES


FULL: dict[str, Any] = {
    "name": "Ada Ada Lovelace", "handle": "ADA", "species": "lynx", "age": 3, "weight": -7,
    "stay": timedelta(days=2, microseconds=1), "tags": ["shy", "old", "shy"], "chips": frozenset({"c1", "c2"}),
    "born": date(2020, 2, 29), "habitat": Habitat(zone="rock", climate="dry"),
    "meals": [Meal(food="hay"), Meal(food="fish", grams=3), Meal(food="hay")], "ward": "w1", "nick": "A", "note": "x",
    "visits": 0b0000101, "spot": GeoPoint(lat=-45, lon=90), "arrives": date(2024, 1, 1), "leaves": date(2024, 1, 9),
    "looks": Vector([0.25, -2, 0.1]),
}  # fmt: skip
"""A record with every value, several of some, and some twice."""

BARE: dict[str, Any] = {"name": "Bo", "species": "ibex"}
"""A record with None, or nothing, wherever that is allowed."""

OTHER: dict[str, Any] = {
    "name": "cy young", "handle": "cy", "species": "ibex", "age": 5, "weight": 2**40 + 5, "stay": -timedelta(hours=1),
    "tags": ["wild", "old"], "chips": frozenset({"c3"}), "born": date(2021, 1, 1), "habitat": Habitat(zone="lake"),
    "meals": [Meal(food="leaf")], "ward": "w2", "nick": "C", "note": "y",
    "visits": 0b1000001, "spot": GeoPoint(lat=90, lon=-180), "arrives": date(2024, 1, 9),
    "looks": Vector([0, 0, 7]),
}  # fmt: skip
