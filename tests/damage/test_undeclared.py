"""Checks of collections that the program declares no model for, and the pace of a check."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    SchemaProgress,
    Unique,
    UniqueConstraint,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.flows.evolution.throttle import Pace
from kvmodels.runtime.sync import run
from tests.query.engines import watched


class Boat(KvModel, collection="boats"):
    harbour: PrimaryKey[str]
    number: PrimaryKey[int]
    name: Unique[str]
    sail: str = Field(default="white")
    length: Indexed[float | None] = Field(default=None)
    crew: MultiIndexed[list[str]] = Field(default_factory=list[str])

    class Meta:
        indexes = (
            Index("sail", "-length", include=("name",)),
            Index("name", key=str.casefold, name="folded"),
            Index("name", where=Q(sail="red"), name="red", store="record"),
            UniqueConstraint("harbour", "sail", "number"),
            AggregateIndex("sail"),
        )


NO_MODEL = "boats: no model of this program declares it, so its records were not read as objects"
NOT_COUNTED = "boats.sail_totals: counters are counted again only for a declared model"


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def stores(request: pytest.FixtureRequest, url_of: Any):
    url = url_of(request.param)
    with Database(url, models=[Boat], durability="relaxed") as declared, Database(url, durability="relaxed") as other:
        for number in range(12):
            sail = "red" if number % 3 else "white"
            declared[Boat].create(
                harbour="Ostende",
                number=number,
                name=f"Boat {number}",
                sail=sail,
                length=number / 2,
                crew=["Ann", "Bo"],
            )
        declared[Boat].create(harbour="Genoa", number=1, name="Lone")
        yield declared, other


def test_collections_without_a_model_are_compared_and_what_was_not_is_listed(stores: tuple[Database, Database]):
    declared, other = stores
    report = other.check()
    assert (report.ok, report.findings) == (True, ())
    assert report.unchecked == (NO_MODEL, NOT_COUNTED)
    entries = 13 + 13 + 24 + 13 + 13 + 8 + 13
    assert report.scanned == 13 + entries
    assert declared.check().unchecked == ()
    assert declared.check(Boat).unchecked == ()


ENTRIES = [
    ("boats_by_name", "Boat 4"),
    ("boats_by_length", 2.0, "Ostende", 4),
    ("boats_by_crew", "Bo", "Ostende", 4),
    ("boats_by_folded", "boat 4", "Ostende", 4),
    ("boats_by_red", "Boat 4", "Ostende", 4),
    ("boats_by_harbour_sail_number", "Ostende", "red", 4),
]


@pytest.mark.parametrize("key", ENTRIES, ids=lambda key: key[0])
def test_a_damaged_entry_of_a_collection_without_a_model_is_found_and_left_to_its_program(
    stores: tuple[Database, Database], key: tuple[Any, ...]
):
    declared, other = stores
    entry = other.kv.get(key)
    assert entry.versionstamp is not None
    other.kv.unsafe().delete(key)
    (found,) = other.check(repair=True).findings
    assert (found.kind, found.key, found.primary_key) == ("missing", key, ("Ostende", 4))
    assert (found.repaired, found.index) == (False, key[0].removeprefix("boats_by_"))
    assert found.hint == "Run db.check(repair=True) in a program that declares the model of this collection."
    other.kv.unsafe().set(key, "damaged")
    (found,) = other.check().findings
    assert (found.kind, found.key, found.repaired) == ("dangling", key, False)
    assert declared.check(repair=True).ok
    assert other.check().ok


def test_foreign_keys_and_rows_that_are_no_documents_are_found_without_a_model(stores: tuple[Database, Database]):
    _, other = stores
    raw = other.kv.unsafe()
    raw.set(("boats", 7), {"number": 7})
    raw.set(("boats", "Genoa", 2), 5)
    raw.set(("boats", "Genoa", 3), {"harbour": "Genoa", "number": 4})
    raw.set(("boats_by_name", "Ghost", "x", "y"), b"")
    raw.set(("boats_by_length", 9.5, "Genoa", 9), b"")
    report = other.check(repair="all")
    assert {(one.kind, one.key) for one in report.findings} == {
        ("foreign", ("boats", 7)),
        ("undecodable", ("boats", "Genoa", 2)),
        ("undecodable", ("boats", "Genoa", 3)),
        ("foreign", ("boats_by_name", "Ghost", "x", "y")),
        ("dangling", ("boats_by_length", 9.5, "Genoa", 9)),
    }
    assert report.repaired == ()
    declare = "in a program that declares the model of this collection."
    assert {one.key: one.hint for one in report.findings} == {
        ("boats", 7): f'Run db.check(repair="all") {declare}',
        ("boats", "Genoa", 2): f'Run db.check(repair="all") {declare}',
        ("boats", "Genoa", 3): "Another program wrote it: remove it with repository.remove(key).",
        ("boats_by_name", "Ghost", "x", "y"): f'Run db.check(repair="all") {declare}',
        ("boats_by_length", 9.5, "Genoa", 9): f"Run db.check(repair=True) {declare}",
    }


def test_a_record_that_lacks_a_column_is_not_compared_without_its_model(stores: tuple[Database, Database]):
    declared, other = stores
    key = ("boats", "Genoa", 1)
    stored = other.kv.get(key).value
    other.kv.unsafe().set(key, {name: value for name, value in stored.items() if name != "length"})
    report = other.check()
    assert report.findings == ()
    assert report.unchecked[-1] == "boats: records that do not store a column of an index were not compared with it"
    assert declared.check(repair=True).ok


def test_indexes_that_are_not_complete_and_columns_of_unknown_types_are_listed(stores: tuple[Database, Database]):
    _, other = stores
    header = ("__kvmodels__", "header")
    value = other.kv.get(header).value
    indexes = value["collections"]["boats"]["indexes"]
    by_name = {index["name"]: index for index in indexes}
    by_name["length"]["signature"]["columns"][0][1] = "quaternion"
    by_name["crew"]["state"] = "pending"
    other.kv.unsafe().set(header, value)
    report = other.check()
    assert report.ok
    assert set(report.unchecked) == {
        NO_MODEL,
        NOT_COUNTED,
        "boats.length: its description is unknown to this release of kvmodels; check it with a newer one",
        "boats.crew: it is not complete; a program that declares its model finishes it",
    }
    value["collections"]["boats"]["primary_key"][0][1] = "quaternion"
    other.kv.unsafe().set(header, value)
    unread = "boats: the store has a primary key with a column that this release does not know"
    assert other.check().unchecked == (unread,)


def test_a_check_reads_every_row_once_and_counted_records_twice():
    db, engine = watched([Boat])
    for number in range(20):
        db[Boat].create(harbour="Genoa", number=number, name=f"Boat {number}")
    engine.meter.reset()
    report = db.check()
    headers, counted = 2, 20 + 1  # counters are counted in a snapshot, which the meter does not see
    assert report.ok
    assert report.scanned == 20 + 20 * 5 + counted
    assert engine.meter.rows == report.scanned - counted + headers
    assert engine.meter.followed == 0


def test_a_record_that_is_changed_during_a_check_is_no_finding():
    db, _ = watched([Boat])
    for number in range(20):
        db[Boat].create(harbour="Genoa", number=number, name=f"Boat {number}")

    def rename(progress: SchemaProgress) -> None:
        if (progress.step, progress.index) == ("check", None) and not renamed:
            renamed.append(db[Boat].patch(("Genoa", 7), name="Renamed"))

    renamed: list[Any] = []
    report = db.check(progress=rename)
    assert (report.ok, report.findings, len(renamed)) == (True, (), 1)


def test_a_check_tells_its_progress_and_keeps_to_a_throttle():
    db, engine = watched([Boat])
    for number in range(30):
        db[Boat].create(harbour="Genoa", number=number, name=f"Boat {number}")
    told: list[SchemaProgress] = []
    db.check(Boat, progress=told.append)
    assert [(one.step, one.collection, one.index, one.scanned, one.written) for one in told] == [
        ("check", "boats", None, 30, None),
        ("check", "boats", "name", 30, None),
        ("check", "boats", "length", 30, None),
        ("check", "boats", "sail_length", 30, None),
        ("check", "boats", "folded", 30, None),
        ("check", "boats", "harbour_sail_number", 30, None),
        ("check", "boats", None, 30, None),
        ("check", "boats", "sail_totals", 1, None),
    ]
    core = DatabaseCore([Boat])
    run(engine, core.open(engine))
    pauses: list[float] = []
    checking = core.check(Boat, False, Pace(None, 10))
    report = run(engine, checking, sleep=pauses.append)
    assert report.scanned == 30 * 6
    assert pauses == [1.0] * 18


def test_a_check_of_an_async_database_takes_the_same_arguments():
    async def check() -> list[SchemaProgress]:
        told: list[SchemaProgress] = []
        async with AsyncDatabase("memory://", models=[Boat]) as db:
            await db[Boat].create(harbour="Genoa", number=1, name="Lone")
            assert (await db.check(progress=told.append, throttle=1e9)).ok
            with pytest.raises(InvalidArgumentError) as caught:
                await db.check(throttle=0)
            assert caught.value.argument == "throttle"
        return told

    assert [one.scanned for one in asyncio.run(check())] == [1] * 8


def test_what_a_listener_raises_ends_the_check():
    db, _ = watched([Boat])
    db[Boat].create(harbour="Genoa", number=1, name="Lone")

    def stop(progress: SchemaProgress) -> None:
        raise KeyError(progress.collection)

    with pytest.raises(KeyError, match="boats"):
        db.check(progress=stop)
    with pytest.raises(InvalidArgumentError):
        db.check(throttle=-1)
