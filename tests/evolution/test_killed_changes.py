"""A build and a migration that are killed again and again, beside writers: every step is applied once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodels import Database, KvModel, Sum
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.evolution import record_pass
from tests.evolution.accounts import Account, NewAccount, Touched, account
from tests.evolution.releases import database
from tests.evolution.residents import FirstResident, Resident, key_of, resident
from tests.evolution.test_building_kinds import answers_are_right
from tests.evolution.test_online_build import (
    LIBRARIES,
    answer,
    nobody_is_left_behind,
    ready,
    start,
    unique_with_duplicates,
)
from tests.killing import KILLS, Story, killed_until_done
from tests.oracle import audit, read_engine, read_store, spec_of

__all__ = ["nobody_is_left_behind"]

RECORDS = 800
RESIDENTS = 60
SIZE = 10


def fill(path: Path) -> None:
    with Database(path, models=[Account], durability="relaxed") as db:
        db[Account].bulk_create([Account(**account(n)) for n in range(RECORDS)])


def applied(model: type[KvModel]) -> Callable[[str, Callable[..., object]], None]:
    """Everything that brings a store to a release, in batches of a few records."""

    def work(path: str, tell: Callable[..., object]) -> None:
        for size in ("FIRST_BATCH", "LARGEST_BATCH"):
            setattr(record_pass, size, SIZE)
        with Database(path, models=[model], durability="relaxed", busy_timeout=60) as db:
            db.apply(progress=tell)

    return work


built_kinds = Story(applied(Resident), 24 * (RESIDENTS // SIZE - 1))  # writers remove some records
migrated = Story(applied(Touched), RECORDS // SIZE)
changed = Story(applied(NewAccount), 3 * RECORDS // SIZE)


@pytest.mark.servers
@KILLS
def test_a_build_of_every_kind_of_index_that_is_killed_again_and_again_beside_writers_is_exact(tmp_path, kills):
    path, rng = tmp_path / "app.db", random.Random(7)
    with Database(path, models=[FirstResident], durability="relaxed") as db:
        for n in range(RESIDENTS):
            park, number = key_of(n)
            db[FirstResident].insert(FirstResident(park=park, number=number, **resident(n, rng)))
    writers = [ready(start("write", path, "kinds", seed, RESIDENTS)) for seed in range(2)]
    killed_until_done(__name__, "built_kinds", path, 7, kills)
    for writer in writers:
        writer.send_signal(signal.SIGTERM)
    assert all(answer(writer)["written"] for writer in writers)
    with Database(path, models=[Resident], durability="relaxed", require_current=True) as db:
        assert db.build_indexes() == ()
        assert audit(read_store(db.kv), [spec_of(Resident)]) == []
        assert db.check().findings == ()
        answers_are_right(db[Resident])


@pytest.mark.servers
def test_builders_of_two_releases_of_the_library_build_one_index_together(tmp_path):
    unique_with_duplicates(tmp_path / "app.db", 3, records=300, writers=2, kills=3, builders=LIBRARIES)


@pytest.mark.servers
@KILLS
def test_a_migration_that_is_killed_again_and_again_beside_writers_rewrites_every_record_once(tmp_path, kills):
    path = tmp_path / "app.db"
    fill(path)
    writers = [ready(start("touch", path, n)) for n in range(2)]
    killed_until_done(__name__, "migrated", path, 3, kills)
    for writer in writers:
        writer.send_signal(signal.SIGTERM)
    added = sum(answer(writer)["added"] for writer in writers)
    assert added > 0
    with Database(path, models=[Touched], require_current=True) as db:
        assert db.plan().is_current
        found = db[Touched].all().to_list()
        assert len(found) == RECORDS
        # One by the upgrade of each record, and what the writers have added.
        assert sum(one.visits for one in found) == sum(range(1, RECORDS + 1)) + added
        for city in ("rome", "oslo"):
            total = sum(one.visits for one in found if one.city == city)
            assert db[Touched].filter(city=city).aggregate(total=Sum("visits"))["total"] == total
        assert {entry.key[1] for entry in db.kv.list(prefix=("__kvmodels__",))} == {"header", "counter"}
        assert db.check().ok
        assert audit(read_store(db.kv), [spec_of(Touched)]) == []


@KILLS
def test_a_change_of_everything_that_is_killed_again_and_again_is_carried_out_once(tmp_path, kills):
    """Builds of new and replaced indexes, drops of their entries, and a migration."""
    path = tmp_path / "app.db"
    fill(path)
    killed_until_done(__name__, "changed", path, 5, kills)
    with Database(path, models=[NewAccount], require_current=True) as db:
        assert db.plan().is_current
        assert [one.visits for one in db[NewAccount].all()] == list(range(1, RECORDS + 1))
        assert db[NewAccount].filter(city="rome").aggregate(total=Sum("visits"))["total"] == sum(range(1, RECORDS, 2))
        assert db[NewAccount].filter(first__startswith="Ada").count() == RECORDS
        assert {entry.key[1] for entry in db.kv.list(prefix=("__kvmodels__",))} == {"header", "counter"}
        assert audit(read_store(db.kv), [spec_of(NewAccount)]) == []
        assert db.check().ok


class Stopped(BaseException):
    """The process was killed here."""


class StoppingEngine(FaultEngine):
    """Stops the process behind its n-th commit, or before it is sent."""

    left = 0
    applied = True

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.left -= 1
        if self.left == 0 and not self.applied:
            raise Stopped
        outcome = super().commit(write)
        if self.left == 0:
            raise Stopped
        return outcome


def commits_until_stopped(engine: Engine, number: int, *, applied: bool) -> bool:
    """Apply everything, and stop at a commit; whether there were so many."""
    stopping = StoppingEngine(engine)
    db = database(stopping, NewAccount)
    stopping.left, stopping.applied = number, applied
    try:
        db.apply()
    except Stopped:
        return True
    return False


@pytest.mark.parametrize("applied", [True, False], ids=["after", "before"])
def test_a_change_that_stops_at_any_of_its_commits_is_carried_out_once(applied):
    number, stopped = 0, True
    while stopped:
        number += 1
        engine = MemoryEngine()
        database(engine, Account)[Account].bulk_create([Account(**account(n)) for n in range(70)])
        stopped = commits_until_stopped(engine, number, applied=applied)
        db = database(engine, NewAccount)
        assert db.apply().complete
        assert [one.visits for one in db[NewAccount].all()] == list(range(1, 71)), number
        assert audit(read_engine(engine), [spec_of(NewAccount)]) == [], number
        assert db.plan().is_current
    assert number > 10
