"""One collection as two releases declare it: the later one has more indexes, to be built over what is there.

The bits of a rank are taken for weekdays, by an index of a kind that the tests register. Places, intervals, parts of
notes, their words and vectors are indexed in groups by both releases, and without a group by the later one. Statistics
of words are left to ``cards.py``, because things may expire.
"""

from __future__ import annotations

from typing import Annotated

from kvmodels import (
    Field,
    GeoIndex,
    GeoPoint,
    Index,
    Indexed,
    IntervalIndex,
    KvModel,
    PrimaryKey,
    SearchIndex,
    TrigramIndex,
    Unique,
    Vector,
    VectorIndex,
)
from tests.kinds.weekdays import WeekdayIndex, register

register()


class ThingFields(KvModel, abstract=True):
    id: PrimaryKey[int]
    code: Unique[str | None] = Field(default=None)
    group: Indexed[str] = Field(default="x")
    rank: int = 0
    note: Annotated[str | None, Indexed(store="record", nulls="skip")] = None
    spot: GeoPoint | None = None
    since: int | None = None
    until: int | None = None
    look: Vector | None = None


KEPT = (
    Index("group", "-rank"),
    WeekdayIndex("rank", group=("group",), name="days_in_group"),
    GeoIndex("spot", group="group", name="spots"),
    IntervalIndex("since", "until", group="group", name="term"),
    TrigramIndex("note", group="group", name="pieces"),
    SearchIndex("note", group="group", rank=False, name="words"),
    VectorIndex("look", dim=2, store="int8", group="group", name="looks"),
)


class EarlyThing(ThingFields, collection="things"):
    serial: str | None = None
    shelf: str = "s"

    class Meta:
        indexes = KEPT


class LateThing(ThingFields, collection="things"):
    serial: Unique[str | None] = Field(default=None)
    shelf: Annotated[str, Indexed(store="record", descending=True)] = "s"

    class Meta:
        indexes = (
            *KEPT,
            WeekdayIndex("rank", name="days"),
            GeoIndex("spot", name="everywhere"),
            IntervalIndex("since", "until", name="whenever"),
            TrigramIndex("note", name="anything"),
            SearchIndex("note", "shelf", rank=False, name="any_words"),
            VectorIndex("look", dim=2, metric="l2", store="float16", name="nearby"),
        )
