"""One collection as two releases declare it: the later one has two more indexes, to be built over what is there."""

from __future__ import annotations

from typing import Annotated

from kvmodels import Field, Index, Indexed, KvModel, PrimaryKey, Unique


class ThingFields(KvModel, abstract=True):
    id: PrimaryKey[int]
    code: Unique[str | None] = Field(default=None)
    group: Indexed[str] = Field(default="x")
    rank: int = 0
    note: Annotated[str | None, Indexed(store="record", nulls="skip")] = None


class EarlyThing(ThingFields, collection="things"):
    serial: str | None = None
    shelf: str = "s"

    class Meta:
        indexes = (Index("group", "-rank"),)


class LateThing(ThingFields, collection="things"):
    serial: Unique[str | None] = Field(default=None)
    shelf: Annotated[str, Indexed(store="record", descending=True)] = "s"

    class Meta:
        indexes = (Index("group", "-rank"),)
