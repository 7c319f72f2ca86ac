"""Writes of single records that everybody wants to change: all succeed, with few conflicts; counts, and no times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, KvModel, PrimaryKey, RetryPolicy
from kvmodels._support.turns import SHORT_LAPSE_S, Ticket, Turns
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import RetriesExhaustedError
from tests.passing_engine import PassingEngine
from tests.transactions.contention import PATIENCE_S

PATIENT = RetryPolicy(deadline_s=PATIENCE_S)
TASKS = 300


class Counter(KvModel, collection="counters"):
    id: PrimaryKey[int]
    n: int = 0


class Busy(PassingEngine):
    """Is called in threads, so that others write between a read and its commit; counts conflicts.

    Attributes:
        before_commit: called before each commit.
    """

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.conflicts = 0
        self.before_commit: Callable[[], object] = bool

    @property
    def traits(self):
        return replace(super().traits, blocking=True)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.before_commit()
        outcome = self.inner.commit(write)
        self.conflicts += isinstance(outcome, Conflict)
        return outcome


def increase(record: Counter) -> None:
    record.n += 1


VERBS: dict[str, Callable[[Any, int], Any]] = {
    "patch": lambda counters, number: counters.patch(1, n=number),
    "mutate": lambda counters, number: counters.mutate(1, increase),
    "update_or_create": lambda counters, number: counters.update_or_create(id=1, defaults={"n": number}),
}


def everlasting(db: Database | AsyncDatabase) -> None:
    """Turns that never lapse, so that a slow machine causes no conflicts."""
    db._core.context.turns = Turns(lambda: 0.0)


async def in_tasks(verb: str, tasks: int = TASKS, retry: RetryPolicy = PATIENT) -> tuple[int, list[Any], int]:
    engine = Busy()
    async with AsyncDatabase.from_engine(engine, DatabaseCore([Counter], retry=retry)) as db:
        everlasting(db)
        await db[Counter].create(id=1)
        done = await asyncio.gather(
            *(VERBS[verb](db[Counter], number) for number in range(tasks)), return_exceptions=True
        )
        return (
            engine.conflicts,
            [one for one in done if isinstance(one, BaseException)],
            (await db[Counter].get(1)).n,
        )


@pytest.mark.parametrize("verb", VERBS)
async def test_all_tasks_that_change_one_record_succeed_with_few_conflicts(verb: str):
    conflicts, errors, n = await in_tasks(verb)
    assert errors == []
    # Each loses its first attempt at most, and takes at most one turn in vain because of the first attempt of another.
    assert conflicts <= 2 * TASKS
    assert verb != "mutate" or n == TASKS


def test_all_threads_that_change_one_record_succeed_with_few_conflicts():
    engine = Busy()
    db = Database.from_engine(engine, DatabaseCore([Counter], retry=PATIENT))
    everlasting(db)
    db[Counter].create(id=1)
    together = threading.Barrier(16)
    errors: list[BaseException] = []

    def change() -> None:
        try:
            together.wait()
            for _ in range(5):
                db[Counter].mutate(1, increase)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=change) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, db[Counter].get(1).n) == ([], 80)
    assert engine.conflicts <= 160
    assert db._core.context.turns.queues == {}


async def test_turns_that_are_given_to_all_are_convicted(monkeypatch: pytest.MonkeyPatch):
    def join(self: Turns, ticket: Ticket, keys: object) -> None:
        ticket.granted = True

    monkeypatch.setattr(Turns, "join", join)
    conflicts, errors, _ = await in_tasks("mutate", 60, RetryPolicy(deadline_s=PATIENCE_S, cap_s=0.0))
    assert errors or conflicts > 120


# --- one writer -------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Busy:
    return Busy()


@pytest.fixture
def db(engine: Busy) -> Database:
    db = Database.from_engine(engine, DatabaseCore([Counter], retry=PATIENT))
    everlasting(db)
    for number in (1, 2):
        db[Counter].create(id=number)
    return db


def beaten(db: Database, engine: Busy, times: int = 1) -> None:
    """Have another process write the record before the next commits."""
    other = Database.from_engine(engine.inner, DatabaseCore([Counter]))
    left = [None] * times

    def write() -> None:
        if left:
            left.pop()
            other[Counter].mutate(1, increase)

    engine.before_commit = write


def test_a_write_without_conflict_takes_no_turn(monkeypatch: pytest.MonkeyPatch, db: Database):
    monkeypatch.setattr(Turns, "ticket", None)
    db[Counter].patch(1, n=1)
    db[Counter].mutate(1, increase)
    one = db[Counter].get(1)
    db[Counter].save(one)
    db[Counter].update_or_create(id=1, defaults={"n": 5})
    db[Counter].remove(1)


def test_a_writer_that_takes_no_turns_delays_nobody_for_long(db: Database, engine: Busy):
    beaten(db, engine, times=5)
    db[Counter].mutate(1, increase)
    assert (db[Counter].get(1).n, engine.conflicts) == (6, 5)
    assert db._core.context.turns.queues == {}


def test_an_upsert_that_gives_up_names_the_record_that_it_lost(engine: Busy):
    db = Database.from_engine(engine, DatabaseCore([Counter], retry=RetryPolicy(attempts=3, deadline_s=PATIENCE_S)))
    db[Counter].create(id=1)
    beaten(db, engine, times=9)
    with pytest.raises(RetriesExhaustedError, match="in every attempt") as caught:
        db[Counter].update_or_create(id=1, defaults={"n": 5})
    assert (caught.value.attempts, caught.value.failed_checks) == (3, (("counters", 1),))
    assert db._core.context.turns.queues == {}


def test_hooks_after_the_commit_run_without_the_turn(db: Database, engine: Busy):
    beaten(db, engine)
    turns, queues = db._core.context.turns, list[int]()

    def change(record: Counter) -> None:
        queues.append(len(turns.queues))
        increase(record)

    db.signals.after_update.connect(lambda *_: queues.append(len(turns.queues)), Counter)
    db[Counter].mutate(1, change)
    assert queues == [0, 1, 0]


def test_a_function_that_writes_the_record_itself_does_not_wait_for_its_own_turn(
    monkeypatch: pytest.MonkeyPatch, db: Database, engine: Busy
):
    monkeypatch.setattr(Ticket, "wait", None)
    beaten(db, engine)
    calls: list[int] = []

    def change(record: Counter) -> None:
        calls.append(record.n)
        if len(calls) == 2:
            db[Counter].patch(1, n=7)
        record.n += 1

    db[Counter].mutate(1, change)
    assert (calls, db[Counter].get(1).n) == ([0, 1, 7], 8)


def test_an_error_gives_the_turn_back(db: Database, engine: Busy):
    beaten(db, engine)
    calls: list[int] = []

    def change(record: Counter) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db[Counter].mutate(1, change)
    assert db._core.context.turns.queues == {}


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


def test_a_header_that_changes_is_no_key_to_wait_for(monkeypatch: pytest.MonkeyPatch, db: Database, engine: Busy):
    """A release that declares another collection changes the header between a read and its commit."""
    monkeypatch.setattr(Turns, "ticket", None)

    def declare() -> None:
        engine.before_commit = bool
        Database.from_engine(engine.inner, DatabaseCore([Counter, Other]))

    engine.before_commit = declare
    db[Counter].patch(1, n=3)
    assert (db[Counter].get(1).n, engine.conflicts) == (3, 1)


def test_a_write_does_not_wait_for_a_thread_that_has_not_noticed_its_turn(
    monkeypatch: pytest.MonkeyPatch, db: Database
):
    monkeypatch.setattr(Ticket, "wait", None)
    turns = db._core.context.turns
    sleeper = turns.ticket()
    with sleeper.alive:
        layout = db._core.context.layouts["counters"]
        sleeper.join([layout.key(layout.pack((1,)))])
        sleeper.asleep = True
        db[Counter].patch(1, n=3)
    assert db[Counter].get(1).n == 3


class OnServer(Busy):
    """A server that loses no answers, as PostgreSQL: what it has lost is resolved by its engine."""

    @property
    def traits(self):
        return replace(super().traits, remote=True)


def test_a_write_to_a_server_waits_for_a_thread_that_has_not_noticed_its_turn(monkeypatch: pytest.MonkeyPatch):
    db = Database.from_engine(OnServer(), DatabaseCore([Counter], retry=PATIENT))
    db[Counter].create(id=1)
    waits: list[Ticket] = []
    monkeypatch.setattr(Ticket, "wait", lambda self, _: waits.append(self))
    turns = db._core.context.turns
    sleeper = turns.ticket()
    with sleeper.alive:
        layout = db._core.context.layouts["counters"]
        sleeper.join([layout.key(layout.pack((1,)))])
        sleeper.asleep = True
        db[Counter].patch(1, n=3)
    assert len(waits) == 1
    assert db[Counter].get(1).n == 3


@pytest.mark.fast_kinds
@pytest.mark.parametrize("loses", [False, True])
def test_a_thread_that_is_passed_is_kept_waiting_for_one_attempt(
    monkeypatch: pytest.MonkeyPatch, db: Database, engine: Busy, loses: bool
):
    everlasting(db)
    turns = db._core.context.turns
    sleeper = turns.ticket()
    kept: list[bool] = []

    def before_commit() -> None:
        kept.append(sleeper.passed_by == threading.get_ident())
        if loses:
            engine.before_commit = bool
            Database.from_engine(engine.inner, DatabaseCore([Counter]))[Counter].patch(1, n=7)

    def wait(self: Ticket, _: float) -> bool:
        kept.append(sleeper.passed_by != 0)
        sleeper.leave()
        return self.look()

    monkeypatch.setattr(Ticket, "wait", wait)
    with sleeper.alive:
        layout = db._core.context.layouts["counters"]
        sleeper.join([layout.key(layout.pack((1,)))])
        sleeper.asleep = True
        engine.before_commit = before_commit
        db[Counter].patch(1, n=3)
    assert kept == ([True, False] if loses else [True])
    assert sleeper.passed_by == 0
    assert db[Counter].get(1).n == 3


def test_a_turn_that_nobody_gives_back_delays_a_newcomer_by_one_turn_at_most(
    monkeypatch: pytest.MonkeyPatch, db: Database
):
    waited: list[float] = []
    monkeypatch.setattr(Ticket, "wait", lambda self, seconds: waited.append(seconds))
    turns = db._core.context.turns
    holder = turns.ticket()
    with holder.alive:
        layout = db._core.context.layouts["counters"]
        holder.join([layout.key(layout.pack((1,)))])
        db[Counter].patch(1, n=3)
        db[Counter].patch(2, n=3)
    assert waited == [SHORT_LAPSE_S]
