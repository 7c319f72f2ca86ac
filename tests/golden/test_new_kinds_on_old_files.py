"""Files that were written before there were partial, computed, multi-valued and covering indexes and counters.

A later release that declares them opens such a file, also one with a build or a drop that never ended, and builds:
every entry must come.
"""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import Database, Field, Index, Q, Unique, UniqueConstraint
from kvmodels.query.aggregates import Count, Sum
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.declare.markers import MultiIndexed
from tests.golden.story import START_MS, Column, NewUser, User, database, stages, telling_engine
from tests.oracle import audit, read_engine, spec_of

FILE = Path(__file__).parent / "format_1" / "store.sqlite3"
BEFORE_THE_DEADLINE = START_MS + 1_000
BEHIND_THE_DEADLINE = START_MS + 3_600_000

EVERY_TYPE = (
    "boolean", "key_number", "real", "raw", "uuid", "ulid", "day", "moment", "clock", "span", "amount", "grade",
    "word", "ipv4", "ipv6", "maybe",
)  # fmt: skip


def year(moment: datetime) -> int:
    return moment.year


def letters(text: str) -> list[str]:
    return list(text)


class LaterColumn(Column, collection="columns"):
    """The columns of every type: in conditions, in covering entries, in functions, in groups."""

    class Meta:
        indexes: ClassVar = (
            Index("-integer", include=(*EVERY_TYPE, "text"), name="covering"),
            UniqueConstraint("text", include=EVERY_TYPE, name="covering_slots"),
            Index("text", where=Q(maybe=None) & Q(grade="high"), name="partial"),
            Index("moment", "-amount", where=Q(boolean=False) | Q(real__lt=0), name="of_either"),
            Index("moment", key=year, version=1, name="year"),
            Index("text", key=letters, version=1, name="letter"),
            Index("-year", "letter", "span", name="year_letter"),
            AggregateIndex("grade", sums=("key_number", "span", "maybe"), name="per_grade"),
            AggregateIndex("letter", "ipv6", "amount", name="per_letter"),
            AggregateIndex(sums=("maybe",), where=Q(maybe__isnull=False), name="known"),
        )


class Address(BaseModel):
    city: str
    zips: list[str] = Field(default_factory=list)


def initial(login: str) -> str:
    return login[:1].upper()


class LaterUser(NewUser, collection="users"):
    """Two fields are folded or listed from here on, and there is a new one, which no record stores yet."""

    email: Annotated[str, Unique(key=str.upper)]
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    address: Address | None = None

    class Meta:
        indexes: ClassVar = (
            *User.Meta.indexes,
            Index("address.city", name="place"),
            Index("address.zips", "-age", nulls="skip", name="zips"),
            UniqueConstraint("tags", where=~Q(color="blue"), name="tag_slots"),
            Index("tags", "-color", store="record", name="tag_copies"),
            Index("login", key=initial, version=1, name="initial"),
            Index("initial", "address.city", include=("color", "address"), name="initial_place"),
            AggregateIndex("color", sums=("age",), name="per_color"),
            AggregateIndex("tags", "initial", name="per_tag"),
        )


SPECS = [spec_of(LaterColumn), spec_of(LaterUser)]


def exact(db: Database) -> None:
    assert audit(read_engine(db._engine), SPECS) == []
    assert db.check().findings == ()


def violations(reports: Any) -> dict[str, dict[Any, str]]:
    return {
        report.index: {found.key: found.kind for found in report.violations} for report in reports if report.violations
    }


def has_everything(db: Database) -> None:
    """The indexes that nothing stands in the way of answer as the records say."""
    columns, users = db[LaterColumn].all().to_list(), db[LaterUser].all().to_list()
    found = db[LaterColumn]
    for one in columns:
        assert found.filter(year=one.moment.year, letter__contains=one.text[:1]).explain().index == "year_letter"
        assert found.get(text=one.text) == one
        (held,) = found.filter(integer=one.integer, text=one.text).values(*EVERY_TYPE)
        assert held == {name: getattr(one, name) for name in EVERY_TYPE}
    high = {one.text for one in found.filter(maybe=None, grade="high")}
    assert high == {one.text for one in columns if one.maybe is None}
    (grade,) = found.group_by("grade").aggregate(n=Count(), keys=Sum("key_number"), span=Sum("span"))
    assert grade["n"] == len(columns)
    assert grade["keys"] == sum(one.key_number for one in columns)
    assert grade["span"] == sum((one.span for one in columns), timedelta(0))
    for user in users:
        assert db[LaterUser].get(email=user.email.lower()).id == user.id
        assert user.id in [near.id for near in db[LaterUser].filter(initial=initial(user.login), address__city=None)]
        for tag in user.tags:
            assert user.id in [near.id for near in db[LaterUser].filter(tags__contains=tag)]
    assert [user.id for user in db[LaterUser].filter(address__city=None)] == [user.id for user in users]


def colors_are_counted(db: Database) -> None:
    users = db[LaterUser].all().to_list()
    rows = list(db[LaterUser].group_by("color").aggregate(n=Count()))
    assert {row["color"]: row["n"] for row in rows} == Counter(user.color for user in users)


def built_and_settled(db: Database, wait: Any) -> None:
    """Everything is built; what was listed is settled; then the store is written on."""
    found = violations(db.build_indexes())
    exact(db)
    assert {name: kinds for name, kinds in found.items() if name != "nick"} == {
        "per_color": {3: "expires"},
        "per_tag": {3: "expires"},
    }
    has_everything(db)
    users = db[LaterUser]
    wait()
    for n, key in enumerate(found["nick"]):
        if users.get_or_none(key) is not None:
            users.patch(key, nick=f"settled-{n}")
    exact(db)
    assert violations(db.build_indexes()) == {}
    exact(db)
    has_everything(db)
    colors_are_counted(db)
    users.patch(1, address=Address(city="Rome", zips=["1", "2", "1"]), tags=["c", "b"], email="Ada@y.org")
    users.patch(2, color="green", age=7)
    users.create(id=20, email="x@x.org", login="ada2", color="red", nick="x", desk="X", tags=["d"])
    db[LaterColumn].patch(("a", 1), maybe=5, text="plain", boolean=False)
    db[LaterColumn].remove(("b", -1))
    exact(db)
    colors_are_counted(db)
    assert [user.id for user in users.filter(address__zips__contains="2", age__gt=1)] == [1]
    assert users.get(email="ADA@Y.ORG").id == 1


def test_every_new_kind_is_built_on_the_file_of_an_older_release(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FILE, path)
    now = [BEFORE_THE_DEADLINE]
    with Database(path, models=[LaterColumn, LaterUser], clock=lambda: now[0], durability="relaxed") as db:
        built_and_settled(db, lambda: now.__setitem__(0, BEHIND_THE_DEADLINE))


STAGES = ("1_empty", "2_records", "3_half_a_build", "4_built_with_violations", "5_half_a_drop", "6_rebuilt")


@pytest.mark.servers
@pytest.mark.parametrize("stage", STAGES)
def test_every_new_kind_is_built_where_an_older_release_stopped(stage):
    engine = telling_engine()
    for reached in stages(engine):
        if reached == stage:
            break
    db = database(engine, LaterColumn, LaterUser, tokens="later")
    if stage == "1_empty":
        assert db.build_indexes() == ()
        db[LaterUser].create(id=1, email="a@x.org", login="ada", color="red", tags=["a"])
        exact(db)
        return
    built_and_settled(db, lambda: db[LaterUser].remove(3))
