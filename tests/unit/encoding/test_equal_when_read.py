"""Members of sets and keys of dicts that differ in Python, and would be equal when they are read, are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest

from kvmodels import Database, Field, InvalidValueError, KvModel, PrimaryKey, Stored, open_kv

BERLIN = ZoneInfo("Europe/Berlin")
IN_UTC = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
REPEATED = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
SECOND = REPEATED.replace(fold=1)
SKIPPED = datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)
AFTER_SKIPPED = datetime(2024, 3, 31, 3, 30, tzinfo=BERLIN)

COLLIDING: list[Any] = [
    {IN_UTC, REPEATED},
    {SKIPPED, AFTER_SKIPPED},
    {SECOND, SECOND.astimezone(UTC)},
    {(IN_UTC, 1), (REPEATED, 1)},
    {frozenset({IN_UTC}), frozenset({REPEATED})},
    {IN_UTC: 1, REPEATED: 2},
    {(1, (IN_UTC,)): 1, (1, (REPEATED,)): 2},
    [{"inner": {IN_UTC, REPEATED}}],
    {"inner": [{IN_UTC: 1, REPEATED: 2}]},
]
DISTINCT: list[Any] = [
    {REPEATED, SECOND.astimezone(UTC)},
    {REPEATED: 1, SECOND.astimezone(UTC): 2},
    {IN_UTC, IN_UTC + timedelta(hours=1), datetime(2024, 10, 27, tzinfo=timezone(timedelta(hours=3)))},
    {(REPEATED, 1), (IN_UTC, 2)},
    REPEATED,
    [REPEATED, IN_UTC],
    {"a": REPEATED},
]


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_values_whose_members_or_keys_become_equal_are_refused_before_the_write(codec):
    with open_kv("memory://", codec=codec) as kv:
        for value in COLLIDING:
            with pytest.raises(InvalidValueError, match="equal when they are read") as caught:
                kv.set(("k",), value)
            assert str(caught.value.path).startswith("$")
            assert caught.value.type in {"set", "dict"}
        assert kv.count(()) == 0
        for value in DISTINCT:
            kv.set(("k",), value)
            found = kv.get(("k",)).value
            assert isinstance(value, datetime) or len(found) == len(value)


def test_shared_containers_are_tested_too():
    with open_kv("memory://") as kv:
        keys = {IN_UTC: 1, REPEATED: 2}
        with pytest.raises(InvalidValueError) as caught:
            kv.set(("k",), {"first": keys, "second": keys})
        assert (caught.value.path, caught.value.type) == ("$.first", "dict")


class Diary(KvModel, collection="diaries"):
    id: PrimaryKey[int]
    at: set[datetime] = Field(default_factory=set)
    notes: dict[datetime, str] = Field(default_factory=dict)
    parts: list[frozenset[datetime | int]] = Field(default_factory=list)
    folded: set[Annotated[str, Stored(str, str.lower)]] = Field(default_factory=set)
    anything: Any = None


@pytest.mark.parametrize(
    "fields",
    [
        {"at": {IN_UTC, REPEATED}},
        {"notes": {IN_UTC: "a", REPEATED: "b"}},
        {"parts": [frozenset({IN_UTC, REPEATED, 1})]},
        {"folded": {"A", "a"}},
        {"anything": {IN_UTC, REPEATED}},
        {"anything": {"x": {IN_UTC: 1, REPEATED: 2}}},
    ],
)
def test_fields_whose_members_become_equal_are_refused_with_the_field(fields):
    with Database("memory://", models=[Diary]) as db:
        with pytest.raises(InvalidValueError) as caught:
            db[Diary].create(id=1, **fields)
        assert [caught.value.field] == list(fields)
        db[Diary].create(id=1, at={REPEATED, SECOND.astimezone(UTC)}, folded={"a", "b"})
        assert (len(db[Diary].get(1).at), len(db[Diary].get(1).folded)) == (2, 2)
