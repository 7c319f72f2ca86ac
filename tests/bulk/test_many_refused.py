"""Bulk writes many of whose records are refused: all are left out at once, not one in each attempt."""

from __future__ import annotations

import io

import pytest

from kvmodels import Database, Field, ForeignKey, KvModel, PrimaryKey, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.memory.engine import MemoryEngine
from tests.passing_engine import RecordingEngine

COUNT = 120
FEW_READS = 12


class Target(KvModel, collection="targets"):
    id: PrimaryKey[int]


class Link(KvModel, collection="links"):
    id: PrimaryKey[int]
    target: ForeignKey[int | None, Target] = Field(default=None)
    before: ForeignKey[int | None, "Link"] = Field(default=None)  # noqa: UP037
    token: Unique[int | None] = Field(default=None)


MODELS = [Target, Link]


@pytest.fixture
def engine():
    return RecordingEngine(MemoryEngine())


@pytest.fixture
def db(engine: RecordingEngine):
    return Database.from_engine(engine, DatabaseCore(MODELS))


def few_reads(engine: RecordingEngine) -> bool:
    reads, engine.meter.reads = engine.meter.reads, 0
    return reads <= FEW_READS


def test_objects_without_targets_are_ignored_in_one_more_attempt(db, engine):
    links = [Link(id=n, target=n) for n in range(COUNT)] + [Link(id=1000)]
    engine.meter.reads = 0
    result = list(db[Link].bulk_create(links, on_conflict="ignore"))
    assert few_reads(engine)
    assert [item.created for item in result] == [False] * COUNT + [True]
    assert len({id(item.error) for item in result}) == COUNT + 1


def test_a_chain_whose_end_is_refused_is_ignored_as_a_whole(db, engine):
    links = [Link(id=n, before=n - 1) for n in range(COUNT, 0, -1)]
    engine.meter.reads = 0
    result = list(db[Link].bulk_create([*links, Link(id=1000)], on_conflict="ignore"))
    assert few_reads(engine)
    errors = [item.error.data for item in result if item.error]
    assert [(data["key"], data["target"]) for data in errors] == [(n, n - 1) for n in range(COUNT, 0, -1)]
    assert db[Link].count() == 1
    assert db.check().ok


def test_a_stored_record_that_is_left_out_remains_a_target(db):
    db[Link].create(id=1)
    links = [Link(id=1, target=99), Link(id=2, before=1)]
    stored = db[Link].get(1)
    stored.target = 99
    assert db[Link].bulk_update([stored], on_error="collect").written == 0
    result = list(db[Link].bulk_create(links, on_conflict="ignore"))
    assert [item.created for item in result] == [False, True]


def test_taken_unique_values_are_collected_in_one_more_attempt(db, engine):
    db[Link].bulk_create([Link(id=n, token=n) for n in range(COUNT)])
    db[Link].bulk_create([Link(id=1000 + n) for n in range(COUNT + 1)])
    links = list(db[Link].filter(id__gte=1000))
    for link in links:
        link.token = link.id - 1000
    engine.meter.reads = 0
    result = db[Link].bulk_update(links, on_error="collect")
    assert few_reads(engine)
    assert (result.written, len(result.failed)) == (1, COUNT)
    assert [failure.error.existing_key for failure in result.failed] == list(range(COUNT))
    assert db.check().ok


class _Removing(RecordingEngine):
    """Removes targets once, before the first commit of links, as another writer does."""

    other: Database | None = None

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        other, self.other = self.other, None
        if other is not None:
            for n in range(COUNT):
                other[Target].remove(n)
        return super().commit(write)


def test_a_load_beside_a_writer_that_removes_targets_makes_few_attempts():
    memory = MemoryEngine()
    engine = _Removing(memory)
    file = io.StringIO()
    two = Database.from_engine(memory, DatabaseCore(MODELS))
    with Database.from_engine(engine, DatabaseCore(MODELS)) as db:
        db[Target].bulk_create([Target(id=n) for n in range(2 * COUNT)])
        db[Link].bulk_create([Link(id=n, target=n) for n in range(2 * COUNT)])
        db.dump(file, Link)
        db[Link].order_by("id").delete()
        file.seek(0)
        engine.meter.reads, engine.other = 0, two
        result = db.load(file, on_conflict="ignore")
        assert (result.written, result.failures) == (COUNT, COUNT)
        assert engine.meter.reads <= 2 * FEW_READS
        assert db.check().ok
