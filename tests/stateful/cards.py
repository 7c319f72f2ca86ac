"""One collection as four releases declare it, and what their upgrade functions do to a dict."""

from __future__ import annotations

from typing import Any, ClassVar

from kvmodels import AggregateIndex, Field, Index, Indexed, KvModel, PrimaryKey, RankIndex, SearchIndex, Unique, Upgrade


def folded(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "code": document["code"].lower()}


def counted(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "hits": document["hits"] + 100}


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in document.items() if name != "note"}, "remark": document["note"] + "!"}


UPGRADES = (
    Upgrade(2, folded, touches=("code",)),
    Upgrade(3, counted, touches=("hits",)),
    Upgrade(4, renamed, touches=("note", "remark")),
)
INDEXES = (
    AggregateIndex("group", sums=("hits",), name="totals"),
    Index("group", "-hits", name="ranking"),
    RankIndex("-hits", group="group", low=0, high=127, levels=2, name="board"),
    SearchIndex("group", name="words"),
)


class Fields(KvModel, abstract=True):
    id: PrimaryKey[int]
    code: Unique[str]
    group: Indexed[str] = Field(default="x")
    hits: Indexed[int] = Field(default=0)


class First(Fields, collection="cards"):
    note: str = ""

    class Meta:
        indexes: ClassVar = INDEXES


class Folded(Fields, collection="cards"):
    note: str = ""

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = UPGRADES[:1]
        indexes: ClassVar = INDEXES


class Counted(Fields, collection="cards"):
    note: str = ""

    class Meta:
        schema_version: ClassVar = 3
        upgrades: ClassVar = UPGRADES[:2]
        indexes: ClassVar = INDEXES


class Renamed(Fields, collection="cards"):
    remark: Indexed[str]

    class Meta:
        schema_version: ClassVar = 4
        upgrades: ClassVar = UPGRADES
        indexes: ClassVar = INDEXES


RELEASES: tuple[Any, ...] = (First, Folded, Counted, Renamed)


def upgraded(fields: dict[str, Any], version: int, to: int) -> dict[str, Any]:
    """The fields of a record of one schema version as another release reads them."""
    for upgrade in UPGRADES[version - 1 : to - 1]:
        fields = upgrade.function(fields)
    return fields
