"""Other processes take no turns, so a transaction or write that they beat again and again takes the writer's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from kvmodels import (
    AsyncDatabase,
    AsyncTransaction,
    Database,
    KvModel,
    RetriesExhaustedError,
    RetryPolicy,
    Transaction,
)
from kvmodels.core.operations import Check, Row
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.flows.effects import Commit, steps_of
from kvmodels.flows.transaction import commit as rerunning
from kvmodels.flows.writing import cascade as cascading
from kvmodels.flows.writing import contention as contending
from kvmodels.flows.writing import given_keys, records
from kvmodels.runtime.sync import perform, release_writes
from tests.transactions.models import Account, Note, Ticket
from tests.transactions.rival import Rival
from tests.worlds import in_test_servers

FILES = pytest.mark.parametrize("engine", ["sqlite", *in_test_servers("lmdb")])
POLICY = RetryPolicy(attempts=12, initial_s=0, deadline_s=600)
BEATEN = 2
"""Runs that the other process beats: the one without a turn, and the first one with it."""


@pytest.fixture(autouse=True)
def a_machine_of_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run counts as slow, and no defeat by another process as long ago, whatever else the machine does."""
    monkeypatch.setattr(rerunning, "QUICK_S", 3600.0)
    monkeypatch.setattr(contending, "QUICK_S", 3600.0)
    monkeypatch.setattr(contending, "OUTSIDERS_S", 3600.0)


@pytest.fixture(scope="module")
def rival() -> Iterator[Rival]:
    """The other process."""
    other = Rival()
    yield other
    other.end()


def opened(url: str, *models: type[KvModel]) -> Database:
    db = Database(url, models=models or [Account], durability="relaxed", retry=POLICY)
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
def test_a_transaction_that_another_process_beats_in_each_run_is_stored_in_the_end(url_of, rival, engine):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        beaten(db, rival)
        assert rival.answers == ["written"] * BEATEN + ["busy"]
        assert db[Account].get(1).balance == 100 * (BEATEN - 1) + 1
        assert rival.write() == "written", "the place ends with the commit"


@FILES
async def test_a_task_that_another_process_beats_in_each_run_is_stored_in_the_end(url_of, rival, engine):
    url = url_of(engine)
    opened(url).close()
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=POLICY) as db:
        with rival.opened(url):

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
def test_the_place_is_left_when_the_function_fails(url_of, rival, engine):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        with pytest.raises(ZeroDivisionError):
            beaten(db, rival, fails=True)
        assert rival.answers[-1] == "busy"
        assert rival.write() == "written"
        db[Account].patch(1, balance=7)
        assert db[Account].get(1).balance == 7


@FILES
async def test_the_place_is_left_when_the_task_is_cancelled(url_of, rival, engine):
    url = url_of(engine)
    opened(url).close()
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=POLICY) as db:
        with rival.opened(url):
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
def test_other_writes_of_the_process_pass_while_the_place_is_held(url_of, rival, engine):
    """They end the place, and so the rival is faster again; nobody waits for the other."""
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        with pytest.raises(RetriesExhaustedError) as caught:
            beaten(db, rival, between=5)
        assert caught.value.attempts == POLICY.attempts
        assert rival.answers == ["written"] * POLICY.attempts
        assert db[Account].get(2).balance == 5


def test_a_slow_function_keeps_no_other_process_waiting(monkeypatch, url_of, rival):
    monkeypatch.setattr(rerunning, "QUICK_S", 0.0)
    url = url_of("sqlite")
    with opened(url) as db, rival.opened(url):
        with pytest.raises(RetriesExhaustedError):
            beaten(db, rival)
        assert rival.answers == ["written"] * POLICY.attempts


# --- writes without a transaction ------------------------------------------------------------------------------------


def increase(record: Account) -> None:
    record.balance += 1


WRITES: dict[str, Callable[[Any], Any]] = {
    "remove": lambda accounts: accounts.remove(1),
    "remove_cascade": lambda accounts: accounts.remove_cascade(1, resume_id="1"),
    "delete_one": lambda accounts: accounts.filter(id=1).delete(),
    "delete_many": lambda accounts: accounts.filter(id__in=[1, 2]).delete(),
    "patch": lambda accounts: accounts.patch(1, balance=1),
    "update_many": lambda accounts: accounts.filter(id__in=[1, 2]).update(balance=1),
    "mutate": lambda accounts: accounts.mutate(1, increase),
    "update_or_create": lambda accounts: accounts.update_or_create(id=1, defaults={"balance": 1}),
}
LOST = 3
"""Attempts of a write that the other process beats: the one without a turn, and two with it."""


def interrupted(db: Database | AsyncDatabase, rival: Rival) -> list[str]:
    """Have the other process write before each write of the account 1, after it was read; return its answers."""

    def write(record: Account) -> None:
        if record.id == 1:
            rival.write()

    db.signals.before_remove.connect(write, Account)
    db.signals.before_update.connect(lambda _, record: write(record), Account)
    return rival.answers


@pytest.mark.parametrize("write", WRITES)
@FILES
def test_a_write_that_another_process_beats_in_each_attempt_is_stored_in_the_end(url_of, rival, engine, write):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        answers = interrupted(db, rival)
        WRITES[write](db[Account])
        assert answers == ["written"] * LOST + ["busy"]
        left = [one.balance % 100 for one in db[Account].filter(id=1)]
        assert left == ([] if "remove" in write or "delete" in write else [1])
        assert db._core.context.turns.queues == {}
        db[Account].update_or_create(id=1, defaults={"balance": 5})
        assert rival.write() == "written"


@FILES
async def test_a_task_whose_removal_another_process_beats_removes_in_the_end(url_of, rival, engine):
    url = url_of(engine)
    opened(url).close()
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=POLICY) as db:
        with rival.opened(url):
            answers = interrupted(db, rival)
            assert await db[Account].remove(1)
            assert answers == ["written"] * LOST + ["busy"]
            await db[Account].create(id=1)
            assert rival.write() == "written"


@FILES
def test_a_removal_succeeds_although_another_process_replaces_what_goes_with_it(
    monkeypatch: pytest.MonkeyPatch, url_of, rival, engine
):
    """No check fails: the entries name a record that is gone when it is read, so the attempt ends before its commit."""
    url = url_of(engine)
    with opened(url, Account, Note) as db, rival.opened(url, notes=True):
        db[Note].create(id=-1, account=1)
        entries_read = cascading.Cascade._read_entries

        def read(self: cascading.Cascade, spans: Any) -> Any:
            found = yield from entries_read(self, spans)
            rival.write("note")
            return found

        monkeypatch.setattr(cascading.Cascade, "_read_entries", read)
        assert db[Account].remove(1)
        assert rival.answers == ["written"] * LOST + ["busy"]
        assert db[Note].count() == 0


@FILES
@pytest.mark.parametrize("joined", [False, True])
def test_keys_that_another_process_reserves_in_each_attempt_are_reserved_in_the_end(
    monkeypatch: pytest.MonkeyPatch, url_of, rival, engine, joined
):
    url = url_of(engine)
    with opened(url, Account, Ticket) as db, rival.opened(url):
        check = given_keys.counter_check

        def late(key: bytes, row: Row | None) -> Check:
            rival.write("counter")
            return check(key, row)

        monkeypatch.setattr(given_keys, "counter_check", late)
        if joined:
            with db.transaction() as tx:
                assert tx[Ticket].create().id == 100 * (LOST - 1) + 1
        else:
            assert db[Ticket].create().id == 100 * (LOST - 1) + 1
        assert rival.answers == ["written"] * LOST + ["busy"]
        assert rival.write("counter") == "written", "the place ends with the reservation of keys"


@FILES
def test_the_place_is_left_when_a_removal_fails(url_of, rival, engine):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):

        def write(_: Account) -> None:
            if rival.write() == "busy":
                raise ZeroDivisionError

        db.signals.before_remove.connect(write, Account)
        with pytest.raises(ZeroDivisionError):
            db[Account].remove(1)
        assert rival.answers == ["written"] * LOST + ["busy"]
        assert rival.write() == "written"


@FILES
def test_the_place_is_left_when_a_removal_is_closed_before_its_commit(url_of, rival, engine):
    """As it is when its task is cancelled, at any of its requests."""
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        answers = interrupted(db, rival)
        flow = steps_of(records.remove(db._core.context, db._core.schemas["accounts"], 1))
        request = flow.send(None)
        while answers[-1:] != ["busy"]:
            request = flow.send(perform(db._engine, request))
        assert isinstance(request, Commit)
        assert rival.write() == "busy"
        flow.close()
        assert rival.write() == "written"
        db[Account].patch(1, balance=7)


def test_a_slow_write_keeps_no_other_process_waiting(monkeypatch: pytest.MonkeyPatch, url_of, rival):
    monkeypatch.setattr(contending, "QUICK_S", 0.0)
    url = url_of("sqlite")
    with opened(url) as db, rival.opened(url):
        answers = interrupted(db, rival)
        with pytest.raises(RetriesExhaustedError):
            db[Account].remove(1)
        assert set(answers) == {"written"}


# --- the reservation of a store ---------------------------------------------------------------------------------------


def reserve(db: Database) -> bool:
    reserve_writes = db._engine.capabilities.writes.reserve
    assert reserve_writes is not None
    return reserve_writes(1)


@FILES
def test_only_one_of_a_process_has_the_reservation(url_of, rival, engine):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        rival.write()
        assert reserve(db)
        assert not reserve(db)
        assert rival.write() == "busy"
        release_writes(db._engine)
        release_writes(db._engine)
        assert rival.write() == "written"


@FILES
def test_the_place_is_taken_again_after_the_store_was_opened_again(url_of, rival, engine):
    url = url_of(engine)
    with opened(url) as db, rival.opened(url):
        assert reserve(db)
        store = cast("Any", db._engine).check_open()
        store.before_fork()
        store.after_fork_in_parent()
        assert rival.write() == "written", "closing the file ends the place"
        assert reserve(db)
        assert rival.write() == "busy"
        release_writes(db._engine)
        assert rival.write() == "written"


def test_the_place_is_taken_again_after_an_environment_was_lost(url_of, rival):
    """As one is whose map could not be made larger; whoever opens it again releases the writer's lock."""
    url = url_of("lmdb")
    with opened(url) as db, rival.opened(url):
        assert reserve(db)
        store = cast("Any", db._engine).check_open()
        lost, store._opened = store._opened, None
        lost.environment.close()
        assert db[Account].get(1).balance == 0
        assert rival.write() == "written"
        assert reserve(db)
        assert rival.write() == "busy"


@FILES
def test_a_store_is_closed_with_the_writes_reserved(url_of, rival, engine):
    url = url_of(engine)
    db = opened(url)
    with rival.opened(url):
        rival.write()
        assert reserve(db)
        db.close()
        assert rival.write() == "written"


def test_a_private_database_in_memory_reserves_nothing():
    with Database("sqlite://:memory:", models=[Account]) as db:
        assert not reserve(db)


def test_a_failing_function_convicts_a_place_that_is_not_left(monkeypatch, url_of, rival):
    monkeypatch.setattr(SqliteEngine, "release_writes", lambda self: None)
    url = url_of("sqlite")
    with opened(url) as db, rival.opened(url):
        with pytest.raises(ZeroDivisionError):
            beaten(db, rival, fails=True)
        assert rival.write() == "busy"
