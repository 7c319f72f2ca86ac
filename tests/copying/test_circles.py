"""Loads of records that refer to each other in circles, over collections and beyond the size of a batch."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Database,
    Field,
    ForeignKey,
    KvModel,
    Limits,
    MultiIndexed,
    OperationTooLargeError,
    PrimaryKey,
    ReferenceViolationError,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.transfer.circles import ReferenceGraph
from tests.limited_engine import LimitedEngine
from tests.passing_engine import RecordingEngine


class Employee(KvModel, collection="employees"):
    id: PrimaryKey[int]
    department: ForeignKey[int, Department]
    email: Unique[str | None] = Field(default=None)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = [AggregateIndex("department")]


class Department(KvModel, collection="departments"):
    id: PrimaryKey[int]
    head: ForeignKey[int | None, Employee] = Field(default=None)
    site: ForeignKey[int | None, Site] = Field(default=None)


class Site(KvModel, collection="sites"):
    id: PrimaryKey[int]


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    friend: ForeignKey[int | None, "Person"] = Field(default=None)  # noqa: UP037


MODELS: list[type[KvModel]] = [Employee, Department, Site, Person]
RING = 900


def company(db: Database, number: int, *, site: int | None = None) -> None:
    """A department, its head, and two employees that nothing refers to."""
    with db.transaction() as tx:
        tx[Department].create(id=number, head=10 * number, site=site)
        for n in range(3):
            tx[Employee].create(id=10 * number + n, department=number, email=f"{10 * number + n}@x", tags=["a", str(n)])


def ring(db: Database, size: int) -> None:
    with db.transaction() as tx:
        tx[Person].bulk_create([Person(id=n, friend=(n + 1) % size) for n in range(size)])


def dump_of(db: Database, *models: type[KvModel]) -> io.StringIO:
    file = io.StringIO()
    db.dump(file, *models)
    file.seek(0)
    return file


def records(db: Database) -> list[Any]:
    return [record for model in MODELS for record in db[model].all()]


@pytest.fixture
def source():
    with Database(models=MODELS) as db:
        yield db


@pytest.fixture
def target():
    with Database(models=MODELS) as db:
        yield db
        assert db.check().ok


@pytest.mark.servers
@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:", "lmdb"])
def test_circles_over_collections_and_a_ring_above_the_size_of_a_batch_are_loaded(source, url, url_of):
    source[Site].create(id=7)
    for number in range(1, 40):
        company(source, number, site=7 if number % 2 else None)
    ring(source, RING)
    with Database(url_of(url) if url == "lmdb" else url, models=MODELS) as db:
        told: list[int] = []
        result = db.load(dump_of(source), progress=told.append)
        assert (result.written, result.skipped, result.failures) == (len(records(source)), 0, 0)
        assert told[-1] == result.written
        assert records(db) == records(source)
        assert db[Employee].filter(department=3).count() == 3
        assert db.check().ok


async def test_circles_are_loaded_by_the_asynchronous_api(source):
    company(source, 1)
    async with AsyncDatabase(models=MODELS) as db:
        assert (await db.load(dump_of(source))).written == 4


def test_a_circle_waits_for_the_target_of_a_later_line(source, target):
    """The department of the circle refers to a site, whose line follows."""
    source[Site].create(id=1)
    company(source, 1, site=1)
    lines = dump_of(source).read().splitlines(keepends=True)
    first, *middle, last = lines
    moved = io.StringIO("".join([first, *reversed(middle), last]))
    assert target.load(moved).written == 5
    assert records(target) == records(source)


def test_a_circle_whose_other_target_is_missing_is_refused_with_the_record(source, target):
    source[Site].create(id=1)
    company(source, 1, site=1)
    file = dump_of(source, Employee, Department)
    with pytest.raises(ReferenceViolationError) as caught:
        target.load(file)
    assert (caught.value.model, caught.value.field, caught.value.committed) == ("Department", "site", 0)
    file.seek(0)
    result = target.load(file, on_conflict="ignore")
    assert (result.written, result.failures) == (0, 4)
    target[Site].create(id=1)
    file.seek(0)
    assert target.load(file, on_conflict="ignore").written == 4


@pytest.mark.parametrize("kept", [(1, None), (None, 10)])
def test_stored_records_of_a_circle_are_kept_or_replaced(source, target, kept):
    company(source, 1)
    department, employee = kept
    if department:
        target[Department].create(id=1)
    if employee:
        target[Department].create(id=9)
        target[Employee].create(id=10, department=9)
    file = dump_of(source)
    assert target.load(file, on_conflict="ignore").skipped == 1
    assert target[Employee].filter(department=1).count() == (3 if department else 2)
    file.seek(0)
    assert target.load(file, on_conflict="update").written == 4
    assert target[Department].get(1).head == 10
    assert [one.department for one in target[Employee].all()] == [1, 1, 1]


def test_a_taken_unique_value_in_a_circle_is_listed_and_its_circle_is_left_out(source, target):
    company(source, 1)
    company(source, 2)
    target[Department].create(id=50)
    target[Employee].create(id=500, department=50, email="10@x")
    file = dump_of(source)
    result = target.load(file, on_conflict="ignore")
    assert (result.written, result.failures) == (4, 4)
    first, *others = result.failed
    assert (first.key, first.kind) == (10, "UniqueViolationError")
    assert {one.kind for one in others} == {"ReferenceViolationError"}
    with pytest.raises(UniqueViolationError) as caught:
        file.seek(0)
        target.load(file, on_conflict="update")
    assert (caught.value.key, caught.value.existing_key) == (10, 500)


def test_a_circle_that_no_commit_can_hold_is_refused_before_the_first_write(source):
    ring(source, 30)
    source[Site].create(id=1)
    for size, fits in [(30 + 2, True), (30 + 1, False)]:
        engine = RecordingEngine(LimitedEngine(MemoryEngine(), replace(Limits.EMBEDDED, max_checks=size)))
        with Database.from_engine(engine, DatabaseCore(MODELS)) as db:
            engine.writes.clear()
            if fits:
                assert db.load(dump_of(source)).written == 31
                continue
            with pytest.raises(OperationTooLargeError, match="30 records") as caught:
                db.load(dump_of(source), on_conflict="ignore")
            assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_checks", size + 1, size)
            assert not engine.writes


def test_the_announced_size_of_a_circle_is_that_of_its_commit(source):
    """Neither more nor less than a record, so that no circle is refused that would fit."""
    for number in range(1, 4):
        company(source, number)
    engine = RecordingEngine(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore(MODELS)) as db:
        db.load(dump_of(source))
        writes = [write for write in engine.writes if len(write.mutations) > 8]
        for write in writes:
            limits = replace(Limits.EMBEDDED, max_mutations=len(write.mutations) + 2, max_checks=len(write.checks) + 1)
            other = LimitedEngine(MemoryEngine(), limits)
            with Database.from_engine(other, DatabaseCore(MODELS)) as two:
                assert two.load(dump_of(source)).written == 12


def test_another_writer_removes_a_target_of_a_circle_before_its_commit(source):
    source[Site].create(id=1)
    company(source, 1, site=1)
    calls = iter(range(100))
    with Database(models=MODELS) as db:
        db[Site].create(id=1)

        def interrupt(_: int) -> None:
            if next(calls) == 0:
                db[Site].remove(1)

        file = dump_of(source)
        result = db.load(file, on_conflict="ignore", progress=interrupt)
        assert db.check().ok
        assert result.written + result.failures + result.skipped == 5


def brute_force(targets: dict[bytes, tuple[bytes, ...]]) -> set[frozenset[bytes]]:
    reached = {key: set(found) for key, found in targets.items()}
    for middle in targets:
        for key in targets:
            if middle in reached[key]:
                reached[key] |= reached[middle]
    together = {key: frozenset(o for o in targets if o in reached[key] and key in reached[o]) for key in targets}
    return {group for group in together.values() if len(group) > 1}


def test_circles_of_random_graphs_are_those_of_brute_force():
    draw = random.Random(11)
    for _ in range(300):
        size = draw.randint(1, 12)
        keys = [str(n).encode() for n in range(size)]
        targets = {
            key: tuple({draw.choice([*keys, b"outside"]) for _ in range(draw.randint(1, 2))})
            for key in keys
            if draw.random() < 0.9
        }
        graph = ReferenceGraph()
        for key, found in targets.items():
            graph.add(key, found)
        groups: dict[int, set[bytes]] = {}
        for key, number in graph.circles().items():
            groups.setdefault(number, set()).add(key)
        assert {frozenset(group) for group in groups.values()} == brute_force(targets)
