"""One collection of two releases with every newer kind of index: some that both keep, some that the later one builds.

Its records never expire, because some of its indexes are counters.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import Field, Indexed, MultiIndexed, PrimaryKey, Unique
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.kinds.geo import GeoIndex
from kvmodels.schema.kinds.interval import IntervalIndex
from kvmodels.schema.kinds.rank import RankIndex
from kvmodels.schema.kinds.search import SearchIndex
from kvmodels.schema.kinds.trigram import TrigramIndex
from tests.kinds.weekdays import WeekdayIndex, register

register()


class Home(BaseModel):
    street: str
    floor: int | None = None


def label(team: str, zone: str) -> str:
    """A column made of two fields."""
    return f"{zone}/{team}"


def parts(note: str) -> list[str]:
    """A column with several values, some of them twice."""
    return note.split()


class MemberFields(KvModel, abstract=True):
    id: PrimaryKey[str]
    email: Annotated[str | None, Unique(key=str.lower)] = None
    city: Indexed[str] = Field(default="x")
    zone: Indexed[str] = Field(default="n")
    team: str = "red"
    hits: int = 0
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    badges: list[str] = Field(default_factory=list)
    home: Home | None = None
    note: str = ""
    shift: int | None = None
    spot: GeoPoint | None = None
    since: int | None = None
    until: int | None = None


KEPT = (
    Index("team", where=Q(zone="n"), include=("note",), name="north"),
    UniqueConstraint("badges", include=("team",)),
    Index("team", "zone", key=label, version=1, name="label"),
    AggregateIndex("city", sums=("hits",), name="per_city"),
    AggregateIndex("tags", name="per_tag"),
    RankIndex("-hits", group="city", low=0, high=15, levels=2, name="board"),
    WeekdayIndex("shift", group=("city",), name="shifts"),
    GeoIndex("spot", group="city", name="spots"),
    IntervalIndex("since", "until", group="tags", name="terms"),
    TrigramIndex("note", group="city", name="pieces"),
    SearchIndex("note", "badges", group="city", name="text"),
)


class OldMember(MemberFields, collection="people"):
    """The release that is running."""

    class Meta:
        indexes = KEPT


class Member(MemberFields, collection="people"):
    """The next release: a field more, and more indexes of every kind, to be built beside readers and writers."""

    rank: int | None = None

    class Meta:
        indexes = (
            *KEPT,
            Index("tags", "-hits", name="by_tag"),
            Index("home.street", include=("home", "rank"), name="street"),
            Index("note", key=parts, version=1, name="part", max_fan_out=3),
            UniqueConstraint("home.floor", where=Q(zone="n"), nulls="skip", include=("note", "rank"), name="floor"),
            AggregateIndex("zone", sums=("rank", "hits"), where=Q(city__in=["x", "y"]), name="per_zone"),
            AggregateIndex("part", name="per_part", max_fan_out=3),
            RankIndex("rank", group="tags", where=Q(zone="n"), low=-1, high=2, levels=1, name="northern_board"),
            GeoIndex("spot", where=Q(zone="n"), name="northern"),
            IntervalIndex("since", "until", name="ever"),
            TrigramIndex("note", where=Q(zone="n"), name="northern_pieces"),
            SearchIndex("note", "team", where=Q(zone="n"), name="northern_text"),
        )


LATE = (
    "by_tag", "street", "part", "floor", "per_zone", "per_part", "northern_board",
    "northern", "ever", "northern_pieces", "northern_text",
)  # fmt: skip
