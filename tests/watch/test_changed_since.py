"""``users.changed_since()`` and ``users.watch(resume=)``: positions that can be stored, also during the first scan."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    KvModel,
    Position,
    PrimaryKey,
    ResumeExpiredError,
)


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]
    on: bool = False


class Pet(KvModel, collection="pets", discriminator="kind"):
    id: PrimaryKey[int]


class Cat(Pet):
    kind: Literal["cat"] = "cat"


class Dog(Pet):
    kind: Literal["dog"] = "dog"


MODELS = (Lamp, Pet)

SEED = 20261129


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = {"memory": "memory://", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}[request.param]
    with Database(url, models=MODELS, change_log=3600) as database:
        yield database


class Copy:
    """A copy of the lamps that is kept by the feed: records and position, changed together."""

    def __init__(self, step: Callable[[Position | None, int], Any]) -> None:
        self.records: dict[int, Lamp] = {}
        self.position: str | None = None
        self._step = step

    def pull(self, limit: int) -> bool:
        """Apply one page, as a program that was started again would; return whether there is more."""
        page = self._step(None if self.position is None else Position.parse(self.position), limit)
        for key, record, _ in page:
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        self.position = str(page.position)
        return page.has_more

    def pull_all(self) -> None:
        while self.pull(50):
            pass


def write(db: Database, random: Random) -> None:
    key = random.randrange(40)
    if random.random() < 0.6:
        db[Lamp].save(Lamp(id=key, on=random.random() < 0.5), force=True)
    else:
        db[Lamp].filter(id=key).delete()


def stored(db: Database) -> dict[int, Lamp]:
    return {lamp.id: lamp for lamp in db[Lamp].all().allow_scan()}


def test_a_copy_that_is_pulled_beside_writers_equals_the_store(db: Database):
    random = Random(SEED)
    for _ in range(3):
        copy = Copy(lambda position, limit: db[Lamp].changed_since(position, limit=limit))
        for _ in range(60):
            write(db, random)
            if random.random() < 0.4:
                copy.pull(random.choice([1, 3, 8]))
        copy.pull_all()
        assert copy.records == stored(db), SEED
        assert not copy.pull(50)
        assert copy.records == stored(db), SEED


def test_a_step_whose_changes_end_before_its_records_returns_the_records_later(db: Database):
    lamps = db[Lamp]
    lamps.bulk_create([Lamp(id=number) for number in range(6)])
    first = lamps.changed_since(limit=2)
    for number in range(6):
        lamps.patch(number % 2, on=bool(number % 3))
        lamps.patch(5, on=bool(number % 2))
    pages = [first]
    while pages[-1].has_more:
        pages.append(lamps.changed_since(pages[-1].position, limit=2))
    copy = {one.key: one.record for page in pages for one in page}
    assert copy == stored(db)
    assert [one.key for one in pages[1]][:2] == [0, 1], "changes come before further records"


def test_a_record_that_was_removed_during_the_scan_is_returned_as_removed(db: Database):
    db[Lamp].bulk_create([Lamp(id=number) for number in range(5)])
    first = db[Lamp].changed_since(limit=2)
    db[Lamp].remove(0)
    db[Lamp].remove(4)
    rest = db[Lamp].changed_since(str(first.position))
    assert [(one.key, one.record is None) for one in rest] == [(0, True), (4, True), (2, False), (3, False)]


def test_a_watch_resumes_in_the_middle_of_its_first_scan(db: Database):
    db[Lamp].bulk_create([Lamp(id=number) for number in range(1_001)], batch_size=50)
    watch = db[Lamp].watch(resume=Position.BEGINNING, timeout=0)
    assert watch.position is None
    assert len(next(watch)) == 500
    assert watch.versionstamp is None
    assert watch.position is not None
    db[Lamp].remove(3)
    resumed = db[Lamp].watch(resume=str(watch.position), timeout=0)
    keys = [one.key for batch in resumed for one in batch]
    assert keys == [3, *range(500, 1_001)]
    assert resumed.versionstamp is not None
    db[Lamp].patch(7, on=True)
    assert [one.key for one in db[Lamp].changed_since(resumed.position)] == [7]


async def test_an_async_watch_that_resumes_waits_for_the_next_change():
    async with AsyncDatabase("memory://", models=MODELS, change_log=60) as db:
        watch = db[Lamp].watch(resume=Position.BEGINNING)
        assert await anext(watch) == []
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await db[Lamp].create(id=1)
        assert [one.key for one in await waiting] == [1]
        page = await db[Lamp].changed_since(watch.position)
        assert (page.changes, page.has_more) == ([], False)


def test_one_class_of_a_collection_is_told_of_changes_of_others_as_removals(db: Database):
    db[Pet].bulk_create([Cat(id=1), Dog(id=2)])
    first = db[Cat].changed_since()
    assert [(one.key, one.record) for one in first] == [(1, Cat(id=1))]
    db[Pet].save(Dog(id=1), force=True)
    assert [(one.key, one.record) for one in db[Cat].changed_since(first.position)] == [(1, None)]


# --- positions ------------------------------------------------------------------------------------------------


def test_the_position_of_another_store_is_refused(db: Database):
    db[Lamp].create(id=1)
    position = db[Lamp].changed_since().position
    with Database("memory://", models=MODELS, change_log=60) as other:
        with pytest.raises(ResumeExpiredError, match="another store") as info:
            other[Lamp].changed_since(position)
        assert info.value.since == position.versionstamp
        with pytest.raises(ResumeExpiredError, match="another store"):
            next(other[Lamp].watch(resume=position))


def test_a_position_beyond_the_last_commit_is_refused(db: Database):
    position = db[Lamp].changed_since().position
    with pytest.raises(ResumeExpiredError, match="not reached"):
        db[Lamp].changed_since(dataclasses.replace(position, versionstamp="f" * 20))


def test_the_text_of_a_position_is_read_back():
    for one in (Position.BEGINNING, Position("ab1", "0" * 16, "1" * 20), Position("ab1", "0" * 16, "1" * 20, "0261")):
        assert Position.parse(str(one)) == one


@pytest.mark.parametrize("value", ["", "1.a", 7, "0" * 20, Position("a", "b", "c"), "1.ab.0.0", b"beginning"])
def test_a_value_that_is_no_position_is_refused(db: Database, value: Any):
    for call in (db[Lamp].changed_since, lambda one: db[Lamp].watch(resume=one)):
        with pytest.raises(InvalidArgumentError, match="not a position"):
            call(value)


def test_a_position_of_another_collection_is_refused(db: Database):
    position = db[Lamp].changed_since().position
    with pytest.raises(InvalidArgumentError, match="other collections"):
        db[Pet].changed_since(position)
    with pytest.raises(InvalidArgumentError, match="not a position"):
        db[Lamp].changed_since(dataclasses.replace(position, cursor="ff"))
    with pytest.raises(InvalidArgumentError, match="since= or resume="):
        db[Lamp].watch(since="0" * 20, resume=position)
    with pytest.raises(InvalidArgumentError, match="limit"):
        db[Lamp].changed_since(limit=0)
