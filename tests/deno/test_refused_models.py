"""Writes that ``deno/kvmodels.ts`` refuses on the real Deno, each with its code, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AwareDatetime

from kvmodels import (
    AggregateIndex,
    Database,
    Encrypted,
    ForeignKey,
    History,
    Index,
    Indexed,
    KeyRing,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    RankIndex,
    SearchIndex,
    TrigramIndex,
    Unique,
    UniqueConstraint,
)
from tests.deno.runtime import run_script
from tests.deno.stores import to_deno
from tests.kinds.weekdays import WeekdayIndex, register

register()

SCRIPT = Path(__file__).with_name("refuse_models.ts")


def half(size: int) -> int:
    return size // 2


class Computed(KvModel, collection="computed"):
    id: PrimaryKey[int]
    size: int

    class Meta:
        indexes = (Index("size", key=half, version=1, name="half"),)


class Lowered(KvModel, collection="lowered"):
    id: PrimaryKey[int]
    name: Annotated[str, Unique(key=str.lower)]
    size: int = 0


class Counted(KvModel, collection="counted"):
    id: PrimaryKey[int]
    size: int

    class Meta:
        indexes = (AggregateIndex("size"),)


class Covered(KvModel, collection="covered"):
    id: PrimaryKey[int]
    name: str
    size: int = 0

    class Meta:
        indexes = (UniqueConstraint("name", include=("size",)),)


class Opened(KvModel, collection="opened"):
    """Its index has a kind that only this process knows."""

    id: PrimaryKey[int]
    size: int

    class Meta:
        indexes = (WeekdayIndex("size", name="days"),)


class Ranked(KvModel, collection="ranked"):
    id: PrimaryKey[int]
    size: int

    class Meta:
        indexes = (RankIndex("-size", low=0, high=9, levels=1, name="board"),)


class Parted(KvModel, collection="parted"):
    id: PrimaryKey[int]
    name: str
    size: int = 0

    class Meta:
        indexes = (TrigramIndex("name", name="parts"),)


class Searched(KvModel, collection="searched"):
    id: PrimaryKey[int]
    name: str
    size: int = 0

    class Meta:
        indexes = (SearchIndex("name", name="words"),)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    size: int = 0


class Contract(KvModel, collection="contracts"):
    id: PrimaryKey[int]
    size: int = 0

    class Meta:
        history = History()


class Letter(KvModel, collection="letters"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    size: int = 0


class Plain(KvModel, collection="plain"):
    id: PrimaryKey[int]
    name: Annotated[str, Unique(key=str.casefold)]
    size: Indexed[int]
    tags: MultiIndexed[list[str]]
    at: Indexed[AwareDatetime]
    note: Any = None


MODELS: list[type[KvModel]] = [
    Computed, Lowered, Counted, Covered, Opened, Ranked, Parted, Searched, Author, Book, Contract, Letter,
    Plain,
]  # fmt: skip
UNKEPT = ("computed", "lowered", "counted", "covered", "opened", "ranked", "parted", "searched")

UNSUPPORTED = {f"{name} {call}": "unsupported_index" for name in UNKEPT for call in ("insert", "patch", "remove")}
INVALID = (
    "text for a number", "fraction", "null", "number for a text", "lone surrogate", "unfoldable", "no array",
    "other elements", "local time", "invalid date", "undefined inside", "function",
    "surrogate inside", "key of text",
)  # fmt: skip
BUILDING = ("write_only", "pending", "disabled")
UNKNOWN = (
    "item", "item of the listing", "state", "on_delete", "columns", "column codec", "direction", "nullable",
    "part of a column", "place", "unique", "nulls", "store", "where", "include", "sums", "places", "reference",
)  # fmt: skip
SECTIONS = ("section", "column type")
EXPECTED = {
    **UNSUPPORTED,
    **dict.fromkeys(INVALID, "invalid_value"),
    **{f"{name} read": "ok" for name in (*UNKEPT, "books")},
    **{f"books {call}": "has_references" for call in ("insert", "patch", "remove")},
    **{f"contracts {call}": "newer_format" for call in ("insert", "patch", "remove")},
    "contracts read": "ok",
    **{f"letters {call}": "newer_format" for call in ("insert", "patch", "remove")},
    "letters read": "ok",
    "authors insert": "ok",
    "authors patch": "ok",
    "authors remove": "referenced",
    "insert again": "already_exists",
    "same name": "unique_violation",
    "missing field": "missing_field",
    "optional field": "ok",
    "optional but indexed": "missing_field",
    "no primary key": "missing_field",
    "unknown field": "unknown_field",
    "own field": "unknown_field",
    "too many values": "too_many_entries",
    "too many entries": "too_many_entries",
    "many entries": "ok",
    "stale patch": "stale_record",
    "stale replace": "stale_record",
    "stale remove": "stale_record",
    "remove of nothing": "stale_record",
    "patch of nothing": "not_found",
    "replace of nothing": "not_found",
    "another key": "invalid_argument",
    "key of two parts": "invalid_argument",
    "no collection": "unknown_collection",
    "no index": "unknown_index",
    "no aggregate": "unknown_index",
    "getBy of some index": "invalid_argument",
    "more values": "invalid_argument",
    "another prefix": "invalid_argument",
    "startsWith and end": "invalid_argument",
    "startsWith of numbers": "invalid_argument",
    "limit": "invalid_argument",
    **{f"{state} write": "building" for state in BUILDING},
    **{f"{state} list": "index_not_readable" for state in BUILDING},
    **{f"{state} get": "ok" for state in BUILDING},
    "beside a dropped index": "ok",
    "unknown type": "unsupported_index",
    "older record": "not_migrated",
    "removal of an older record": "not_migrated",
    "index of an upgraded field": "index_not_readable",
    "index of another field": "ok",
    "newer format": "newer_format",
    "unknown section of the store": "newer_format",
    **{f"unknown {name}, {call}": "unsupported_index" for name in UNKNOWN for call in ("patch", "remove", "list")},
    **{f"unknown {name}, {call}": "newer_format" for name in SECTIONS for call in ("patch", "remove")},
    **{f"unknown {name}, list": "ok" for name in SECTIONS},
    **{f"unknown {name}, {call}": "ok" for name in (*UNKNOWN, *SECTIONS) for call in ("get", "other index")},
    "target of an unknown reference": "unsupported_index",
    "load": "loading",
    "one attempt": "retries_exhausted",
    "changed header, insert": "ok",
    "changed header, then a build": "building",
    "another key in the record": "damaged_record",
    "no header": "no_catalogue",
}


@pytest.mark.servers
def test_deno_refuses_what_it_cannot_keep(tmp_path):
    file = tmp_path / "kv.sqlite3"
    with Database(models=MODELS, codec="v8", keys=KeyRing({1: bytes(32)})) as db:
        db[Computed].create(id=1, size=4)
        db[Lowered].create(id=1, name="A")
        db[Counted].create(id=1, size=4)
        db[Covered].create(id=1, name="a")
        db[Opened].create(id=1, size=4)
        db[Ranked].create(id=1, size=4)
        db[Parted].create(id=1, name="Ada Lovelace")
        db[Searched].create(id=1, name="Ada Lovelace")
        db[Author].create(id=1, name="Ada")
        db[Book].create(id=1, author=1)
        db[Contract].create(id=1, size=4)
        db[Letter].create(id=1, name="Ada")
        to_deno(db, file)
    found = json.loads(run_script(SCRIPT, file))
    assert found["codes"] == EXPECTED
    assert found["details"]["same name"] == {"collection": "plain", "index": "name", "key": [2], "existingKey": [1]}
    assert found["details"]["text for a number"] == {"collection": "plain", "field": "size", "key": [3]}
    assert found["details"]["opened patch"] == {"collection": "opened", "index": "days"}
    assert found["details"]["ranked patch"] == {"collection": "ranked", "index": "board"}
    assert found["details"]["parted patch"] == {"collection": "parted", "index": "parts"}
    assert found["details"]["computed patch"] == {"collection": "computed", "index": "half"}
