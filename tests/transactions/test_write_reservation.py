"""Other processes take no turns, so a transaction that they beat again and again takes the writer's place."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kvmodels import AsyncDatabase, AsyncTransaction, Database, RetriesExhaustedError, RetryPolicy, Transaction
from kvmodels.engines.contract import WriteReserver
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.flows.transaction import rerun as rerunning
from tests.transactions.models import Account
from tests.transactions.rival import Rival, rival_of

FILES = pytest.mark.parametrize("engine", ["sqlite", "lmdb"])
POLICY = RetryPolicy(attempts=12, initial_s=0, deadline_s=600)
BEATEN = 2
"""Runs that the other process beats: the one without a turn, and the first one with it."""


@pytest.fixture(autouse=True)
def a_machine_of_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run counts as slow, and no defeat by another process as long ago, whatever else the machine does."""
    monkeypatch.setattr(rerunning, "QUICK_S", 3600.0)
    monkeypatch.setattr(rerunning, "OUTSIDERS_S", 3600.0)


def opened(url: str) -> Database:
    db = Database(url, models=[Account], durability="relaxed", retry=POLICY)
    db[Account].create(id=1)
    db[Account].create(id=2)
    return db


def beaten(db: Database, rival: Rival, *, fails: bool = False, between: int | None = None) -> None:
    """A transaction whose account another process writes in each run, if it can."""

    @db.transactional()
    def increment(tx: Transaction) -> None:
        account = tx[Account].get(1)
        if between is not None:
            db[Account].patch(2, balance=between)
        if rival.write() == "busy" and fails:
            raise ZeroDivisionError
        account.balance += 1
        tx[Account].save(account)

    increment()


@FILES
def test_a_transaction_that_another_process_beats_in_each_run_is_stored_in_the_end(url_of, engine):
    url = url_of(engine)
    with opened(url) as db, rival_of(url) as rival:
        beaten(db, rival)
        assert rival.answers == ["written"] * BEATEN + ["busy"]
        assert db[Account].get(1).balance == 100 * (BEATEN - 1) + 1
        assert rival.write() == "written", "the place ends with the commit"


@FILES
async def test_a_task_that_another_process_beats_in_each_run_is_stored_in_the_end(url_of, engine):
    url = url_of(engine)
    opened(url).close()
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=POLICY) as db:
        with rival_of(url) as rival:

            @db.transactional()
            async def increment(tx: AsyncTransaction) -> None:
                account = await tx[Account].get(1)
                rival.write()
                account.balance += 1
                await tx[Account].save(account)

            await increment()
            assert rival.answers == ["written"] * BEATEN + ["busy"]
            assert rival.write() == "written"


@FILES
def test_the_place_is_left_when_the_function_fails(url_of, engine):
    url = url_of(engine)
    with opened(url) as db, rival_of(url) as rival:
        with pytest.raises(ZeroDivisionError):
            beaten(db, rival, fails=True)
        assert rival.answers[-1] == "busy"
        assert rival.write() == "written"
        db[Account].patch(1, balance=7)
        assert db[Account].get(1).balance == 7


@FILES
async def test_the_place_is_left_when_the_task_is_cancelled(url_of, engine):
    url = url_of(engine)
    opened(url).close()
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=POLICY) as db:
        with rival_of(url) as rival:
            has_place = asyncio.Event()

            @db.transactional()
            async def increment(tx: AsyncTransaction) -> None:
                account = await tx[Account].get(1)
                if rival.write() == "busy":
                    has_place.set()
                    await asyncio.Event().wait()
                account.balance += 1
                await tx[Account].save(account)

            task = asyncio.create_task(increment())
            await has_place.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await db[Account].patch(2, balance=1)  # behind the leaving, in the thread for commits
            assert rival.write() == "written"


@FILES
def test_other_writes_of_the_process_pass_while_the_place_is_held(url_of, engine):
    """They end the place, and so the rival is faster again; nobody waits for the other."""
    url = url_of(engine)
    with opened(url) as db, rival_of(url) as rival:
        with pytest.raises(RetriesExhaustedError) as caught:
            beaten(db, rival, between=5)
        assert caught.value.attempts == POLICY.attempts
        assert rival.answers == ["written"] * POLICY.attempts
        assert db[Account].get(2).balance == 5


def test_a_slow_function_keeps_no_other_process_waiting(monkeypatch, url_of):
    monkeypatch.setattr(rerunning, "QUICK_S", 0.0)
    url = url_of("sqlite")
    with opened(url) as db, rival_of(url) as rival:
        with pytest.raises(RetriesExhaustedError):
            beaten(db, rival)
        assert rival.answers == ["written"] * POLICY.attempts


def reserver_of(db: Database) -> WriteReserver:
    found = db._engine.capabilities.write_reserver
    assert found is not None
    return found


@FILES
def test_only_one_of_a_process_has_the_reservation(url_of, engine):
    url = url_of(engine)
    with opened(url) as db, rival_of(url) as rival:
        place = reserver_of(db)
        rival.write()
        assert place.reserve_writes(1)
        assert not place.reserve_writes(1)
        assert rival.write() == "busy"
        place.release_writes()
        place.release_writes()
        assert rival.write() == "written"


@FILES
def test_the_place_is_taken_again_after_the_store_was_opened_again(url_of, engine):
    url = url_of(engine)
    with opened(url) as db, rival_of(url) as rival:
        place = reserver_of(db)
        assert place.reserve_writes(1)
        store = cast("Any", db._engine).check_open()
        store.before_fork()
        store.after_fork_in_parent()
        assert rival.write() == "written", "closing the file ends the place"
        assert place.reserve_writes(1)
        assert rival.write() == "busy"
        place.release_writes()
        assert rival.write() == "written"


def test_the_place_is_taken_again_after_an_environment_was_lost(url_of):
    """As one is whose map could not be made larger; whoever opens it again releases the writer's lock."""
    url = url_of("lmdb")
    with opened(url) as db, rival_of(url) as rival:
        place = reserver_of(db)
        assert place.reserve_writes(1)
        store = cast("Any", db._engine).check_open()
        lost, store._opened = store._opened, None
        lost.environment.close()
        assert db[Account].get(1).balance == 0
        assert rival.write() == "written"
        assert place.reserve_writes(1)
        assert rival.write() == "busy"


@FILES
def test_a_store_is_closed_with_the_writes_reserved(url_of, engine):
    url = url_of(engine)
    db = opened(url)
    with rival_of(url) as rival:
        rival.write()
        assert reserver_of(db).reserve_writes(1)
        db.close()
        assert rival.write() == "written"


def test_a_private_database_in_memory_reserves_nothing():
    with Database("sqlite://:memory:", models=[Account]) as db:
        assert not reserver_of(db).reserve_writes(1)


def test_a_failing_function_convicts_a_place_that_is_not_left(monkeypatch, url_of):
    monkeypatch.setattr(SqliteEngine, "release_writes", lambda self: None)
    url = url_of("sqlite")
    with opened(url) as db, rival_of(url) as rival:
        with pytest.raises(ZeroDivisionError):
            beaten(db, rival, fails=True)
        assert rival.write() == "busy"
