"""When a check says that a counter is wrong, and when it keeps silent because that cannot be known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, KvU64, SnapshotLostError
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.limits import Traits
from tests.passing_engine import PassingEngine
from tests.unit.maintenance.places import Place

COUNTER = ("__kvmodels__", "counter", "places", "per_country", 1, "fr", "count")


class WithoutSnapshots(PassingEngine):
    """An engine that reads one moment at a time; ``between`` is called before each read."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.between: Callable[[], object] = lambda: None

    @property
    def traits(self) -> Traits:
        return replace(super().traits, snapshots=False)

    def read(self, *args: Any, **rest: Any) -> Any:
        self.between()
        return self.inner.read(*args, **rest)


def damaged(engine: Engine) -> Database:
    db = Database.from_engine(engine, DatabaseCore([Place]))
    db[Place].bulk_create([Place(id=n) for n in range(3)])
    db.kv.unsafe().set(COUNTER, KvU64(9))
    return db


def test_without_snapshots_counters_are_compared_if_nothing_was_committed_meanwhile():
    engine = WithoutSnapshots(MemoryEngine())
    db = damaged(engine)
    assert [(one.key, one.expected, one.found) for one in db.check().counters] == [(COUNTER, 3, 9)]
    writer = Database.from_engine(engine.inner, DatabaseCore([Place]))
    engine.between = lambda: writer[Place].patch(1, note="x")
    assert db.check().counters == ()
    engine.between = lambda: None
    assert db.check(repair=True).ok
    assert db.check().findings == ()


def test_beside_writers_a_snapshot_is_counted_so_that_only_damage_is_found():
    engine = MemoryEngine()

    class Between(PassingEngine):
        def snapshot(self) -> Any:
            state = self.inner.snapshot()
            writer[Place].create(id=100, population=5)
            writer[Place].remove(2)
            return state

    writer = Database.from_engine(engine, DatabaseCore([Place]))
    writer[Place].bulk_create([Place(id=n, population=n) for n in range(3)])
    db = Database.from_engine(Between(engine), DatabaseCore([Place]))
    assert db.check().findings == ()
    writer[Place].remove(100)
    writer[Place].create(id=2)
    writer.kv.unsafe().set(COUNTER, KvU64(9))
    assert [(one.expected, one.found) for one in db.check().counters] == [(3, 9)]


def test_a_count_takes_as_long_as_it_takes():
    times = [1_700_000_000_000]

    def clock() -> int:
        times[0] += 100_000
        return times[0]

    db = damaged(MemoryEngine(clock=clock, snapshot_max_age=1))
    assert [(one.key, one.expected, one.found) for one in db.check().counters] == [(COUNTER, 3, 9)]


def test_a_count_whose_snapshot_the_store_has_ended_says_what_to_do():
    class Lost(PassingEngine):
        def snapshot(self) -> Any:
            state = self.inner.snapshot()

            def read(*_: object, **__: object) -> Any:
                raise SnapshotLostError("the connection of this snapshot is lost", reason="no connection")

            return SimpleNamespace(read=read, keep=state.keep, close=state.close)

    db = damaged(Lost(MemoryEngine()))
    with pytest.raises(SnapshotLostError, match="could not be counted") as caught:
        db.check()
    assert "db.check(Model)" in str(caught.value.hint)
    assert caught.value.reason == "no connection"


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_the_asynchronous_check_counts_and_mends_in_the_same_way(engine, url_of):
    url = url_of(engine)
    with Database(url, models=[Place], durability="relaxed") as db:
        db[Place].bulk_create([Place(id=n) for n in range(3)])
        db.kv.unsafe().set(COUNTER, KvU64(9))

        async def check() -> None:
            async with AsyncDatabase(url, models=[Place], durability="relaxed") as other:
                report = await other.check(Place)
                assert [(one.kind, one.expected, one.found) for one in report.findings] == [("counter", 3, 9)]
                assert str(report).startswith(f"NOT OK: {report.scanned} rows scanned; ")
                assert ", 1 counters; 0 repaired\n  counter " in str(report)
                assert (await other.check(repair=True)).ok
                assert (await other.check()).findings == ()

        asyncio.run(check())


def test_a_repair_whose_new_generation_another_change_of_the_header_forestalls_begins_it_again():
    inner = MemoryEngine()
    other = Database.from_engine(inner, DatabaseCore([Place]))
    forestalled: list[bytes] = []

    class Overtaken(PassingEngine):
        def commit(self, write: AtomicWrite) -> Committed | Conflict:
            if not forestalled and any(mutation.key == HEADER_KEY for mutation in write.mutations):
                forestalled.append(HEADER_KEY)
                other.drop_index(Place, "big")
            return self.inner.commit(write)

    other[Place].bulk_create([Place(id=n) for n in range(3)])
    other.kv.unsafe().set(COUNTER, KvU64(9))
    report = Database.from_engine(Overtaken(inner), DatabaseCore([Place])).check(repair=True)
    assert forestalled
    assert report.ok
    assert other.check().findings == ()
