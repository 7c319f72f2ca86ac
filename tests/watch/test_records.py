"""``users.watch()``: objects of the present state, then each record that changes, resumed by versionstamps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from kvmodels import (
    AsyncDatabase,
    ChangedRecord,
    ClosedError,
    Database,
    DecodeError,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    ResumeExpiredError,
    Unique,
    UnsupportedError,
)


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]
    name: Unique[str]
    on: bool = False


class Place(KvModel, collection="places"):
    row: PrimaryKey[str]
    seat: PrimaryKey[int]


class Pet(KvModel, collection="pets", discriminator="kind"):
    id: PrimaryKey[int]


class Cat(Pet):
    kind: Literal["cat"] = "cat"


class Dog(Pet):
    kind: Literal["dog"] = "dog"


MODELS = (Lamp, Place, Pet)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = {"memory": "memory://", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}[request.param]
    with Database(url, models=MODELS, change_log=3600) as database:
        yield database


def told(batches: list[list[ChangedRecord[Any]]]) -> list[tuple[Any, Any]]:
    return [(one.key, one.record) for batch in batches for one in batch]


def test_the_present_records_come_first_and_then_what_changes(db: Database):
    lamps = db[Lamp]
    lamps.bulk_create([Lamp(id=1, name="a"), Lamp(id=2, name="b")])
    watch = lamps.watch(timeout=0)
    assert watch.versionstamp is None
    assert told([next(watch)]) == [(1, Lamp(id=1, name="a")), (2, Lamp(id=2, name="b"))]
    lamps.patch(1, name="c")
    lamps.patch(1, on=True)
    lamps.remove(2)
    lamps.create(id=3, name="b")
    changed = told(list(watch))
    assert dict(changed) == {1: Lamp(id=1, name="c", on=True), 2: None, 3: Lamp(id=3, name="b")}
    assert [key for key, _ in changed] == [1, 2, 3], "in the order of the last commits, and no index entries"


def test_a_delivered_object_can_be_saved_and_has_its_version(db: Database):
    made = db[Lamp].create(id=1, name="a")
    (first,) = next(db[Lamp].watch(timeout=0))
    assert first.record is not None
    assert first.versionstamp == first.record.versionstamp == made.versionstamp
    first.record.on = True
    assert db[Lamp].save(first.record).on


def test_a_watch_resumes_after_a_versionstamp(db: Database):
    lamps = db[Lamp]
    position = lamps.create(id=1, name="a").versionstamp
    lamps.create(id=2, name="b")
    lamps.remove(1)
    watch = lamps.watch(since=position, timeout=0)
    assert told(list(watch)) == [(2, Lamp(id=2, name="b")), (1, None)]
    lamps.patch(2, on=True)
    assert told(list(lamps.watch(since=watch.versionstamp, timeout=0))) == [(2, Lamp(id=2, name="b", on=True))]


def test_the_batches_of_many_records_hold_each_of_them(db: Database):
    db[Lamp].bulk_create([Lamp(id=number, name=str(number)) for number in range(1_001)])
    watch = db[Lamp].watch(timeout=0)
    batches = list(watch)
    assert [len(batch) for batch in batches] == [500, 500, 1]
    db[Place].create(row="a", seat=1)
    assert list(db[Lamp].watch(since=watch.versionstamp, timeout=0)) == [], "of another model"


def test_a_composite_key_is_a_tuple(db: Database):
    db[Place].create(row="a", seat=1)
    watch = db[Place].watch(timeout=0)
    assert [one.key for one in next(watch)] == [("a", 1)]
    db[Place].remove(("a", 1))
    assert told(list(watch)) == [(("a", 1), None)]


def test_one_class_of_a_collection_is_told_of_others_as_of_removals(db: Database):
    db[Pet].bulk_create([Cat(id=1), Dog(id=2)])
    watch, all_of_them = db[Cat].watch(timeout=0), db[Pet].watch(timeout=0)
    assert told([next(watch)]) == [(1, Cat(id=1))]
    assert told([next(all_of_them)]) == [(1, Cat(id=1)), (2, Dog(id=2))]
    db[Pet].save(Dog(id=1), force=True)
    assert told(list(watch)) == [(1, None)]
    assert told(list(all_of_them)) == [(1, Dog(id=1))]


def test_another_process_of_the_same_file_is_heard(tmp_path: Path):
    path = str(tmp_path / "a.db")
    with Database(path, models=MODELS, change_log=60) as one, Database(path, models=MODELS) as other:
        watch = one[Lamp].watch(timeout=60)
        assert next(watch) == []
        other[Lamp].create(id=1, name="a")
        assert told([next(watch)]) == [(1, Lamp(id=1, name="a"))]


async def test_a_task_waits_for_the_next_change():
    async with AsyncDatabase("memory://", models=MODELS, change_log=60) as db:
        watch = db[Lamp].watch()
        assert await anext(watch) == []
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await db[Lamp].create(id=1, name="a")
        assert told([await waiting]) == [(1, Lamp(id=1, name="a"))]
        watch.close()
        assert [batch async for batch in watch] == []


def test_a_record_that_cannot_be_read_is_delivered_again_after_its_repair(tmp_path: Path):
    class Bulb(KvModel, collection="lamps"):
        id: PrimaryKey[int]
        name: Unique[str]
        on: str

    url = f"memory://{tmp_path.name}-bulbs"
    with Database(url, models=[Lamp], change_log=60) as db, Database(url, models=[Bulb]) as other:
        watch = db[Lamp].watch(timeout=0)
        next(watch)
        other[Bulb].create(id=1, name="a", on="bright")
        for _ in range(2):
            with pytest.raises(DecodeError):
                next(watch)
        other[Bulb].patch(1, on="yes")
        assert told(list(watch)) == [(1, Lamp(id=1, name="a", on=True))]


def test_what_cannot_be_watched_is_refused(db: Database):
    with pytest.raises(InvalidArgumentError, match="versionstamp"):
        db[Lamp].watch(since="x")
    with pytest.raises(InvalidArgumentError, match="timeout"):
        db[Lamp].watch(timeout=-1)
    with db.transaction() as tx, pytest.raises(InvalidArgumentError, match="in a transaction"):
        next(tx[Lamp].watch(timeout=0))
    with pytest.raises(ResumeExpiredError):
        next(db[Lamp].watch(since="0" * 20))
    with Database("memory://", models=MODELS) as other, pytest.raises(UnsupportedError):
        next(other[Lamp].watch())


def test_a_watch_ends_with_its_database():
    db = Database("memory://", models=MODELS, change_log=60)
    watch = db[Lamp].watch()
    next(watch)
    db.close()
    assert list(watch) == []
    with pytest.raises(ClosedError):
        next(db[Lamp].watch())
