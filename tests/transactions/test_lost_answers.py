"""Answers to the commit of a transaction that are lost, late or given twice: it happens once, or its error is true."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    CommitUnknownError,
    Database,
    EngineError,
    KvU64,
    RetriesExhaustedError,
    RetryPolicy,
    TransactionConflictError,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.faults import COMMIT_FAULTS, FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.transactions.models import MODELS, Account, Member

QUICK = RetryPolicy(attempts=20, deadline_s=1.0, initial_s=0.0, cap_s=0.0)


class Faults:
    """A plan that a test fills while the database is open."""

    def __init__(self) -> None:
        self.coming: list[Any] = []
        self.always: Any = None

    def __call__(self, write: Any) -> Any:
        return self.coming.pop(0) if self.coming else self.always


def core() -> DatabaseCore:
    """With a clock that goes on by 20 ms whenever it is asked, so that deadlines do not depend on the machine."""
    looks = count()
    return DatabaseCore(MODELS, retry=QUICK, monotonic=lambda: next(looks) * 0.02)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    faults = Faults()
    inner = MemoryEngine() if request.param == "memory" else SqliteEngine(tmp_path / "app.db", durability="relaxed")
    with Database.from_engine(FaultEngine(inner, plan=faults), core()) as db:
        db[Account].create(id=1, balance=10)
        db[Account].create(id=2, balance=20)
        yield db, faults


def pay(db: Database, amount: int = 3) -> Any:
    """Two records, a counter and a message in one commit."""
    with db.transaction() as tx:
        one, two = tx[Account].get(1), tx[Account].get(2)
        one.balance, two.balance = one.balance - amount, two.balance + amount
        tx[Account].save(one)
        tx[Account].save(two)
        tx.kv.sum(("paid",), amount)
        tx.kv.enqueue(amount)
    assert one.versionstamp == two.versionstamp == tx.versionstamp
    return tx


def state(db: Database) -> tuple[int, int, Any, int]:
    paid = db.kv.get(("paid",)).value
    return db[Account].get(1).balance, db[Account].get(2).balance, paid, db.kv.count(("__kvmodels__", "queue"))


PAID = (7, 23, KvU64(3), 1)
UNPAID = (10, 20, None, 0)


@pytest.mark.parametrize("fault", sorted(COMMIT_FAULTS - {"refuse", "delay"}))
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_transaction_happens_exactly_once_whatever_becomes_of_its_answers(store, fault, times):
    db, faults = store
    faults.coming = [fault] * times
    tx = pay(db)
    assert state(db) == PAID
    assert db[Account].get(1).versionstamp == tx.versionstamp
    if fault == "hold":
        db._engine.deliver_late()
    assert state(db) == PAID, "what arrives late changes nothing"
    assert db.check().ok


def test_a_commit_that_certainly_did_not_arrive_is_an_error_and_objects_stay_as_they_were(store):
    db, faults = store
    faults.coming = ["refuse"]
    with pytest.raises(EngineError):
        pay(db)
    assert state(db) == UNPAID


def test_review_08_a_commit_that_is_under_way_cannot_land_after_a_conflict_was_reported(store):
    """The first delivery is held back; what the transaction has read changes; its conflict must stay true."""
    db, faults = store
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx[Account].patch(1, balance=0)
        tx.kv.sum(("paid",), 1)
        faults.coming = ["hold", None]
        tx.on_commit(lambda: pytest.fail("nothing was committed"))
        original = db._core.context.random

        def meanwhile() -> float:
            """Called between the attempts, when the pause is drawn."""
            db._core.context.random = original
            db[Account].patch(1, balance=11)
            return original()

        db._core.context.random = meanwhile
    assert db._core.context.random is original
    db._engine.deliver_late()
    assert db[Account].get(1).balance == 11
    assert db.kv.get(("paid",)).value is None


@pytest.mark.parametrize("goes", [False, True])
def test_review_08_a_unique_value_that_is_taken_meanwhile_stays_with_its_owner(store, goes):
    """Also when the owner goes: then nothing but the token is in the way of what is still under way."""
    db, faults = store
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx[Member].create(id=1, email="mine")
        faults.coming = ["hold", None]
        original = db._core.context.random

        def meanwhile() -> float:
            db._core.context.random = original
            db[Member].create(id=2, email="mine")
            return original()

        db._core.context.random = meanwhile
    if goes:
        db[Member].remove(2)
    db._engine.deliver_late()
    assert [(member.id, member.email) for member in db[Member]] == ([] if goes else [(2, "mine")])
    if goes:
        return
    with pytest.raises(UniqueViolationError), db.transaction() as tx:
        tx[Member].create(id=1, email="mine")


def test_when_every_answer_is_lost_the_token_tells_the_outcome(store):
    db, faults = store
    faults.always = "lose_answer"
    with pytest.raises(CommitUnknownError) as caught:
        pay(db)
    faults.always = None
    assert caught.value.token is not None
    assert db.outcome(caught.value.token) is True
    assert state(db) == PAID


def test_when_no_request_arrives_the_outcome_is_unknown_and_then_no(store):
    db, faults = store
    faults.always = "lose_request"
    loaded = db[Account].get(1)
    with pytest.raises(CommitUnknownError) as caught, db.transaction() as tx:
        loaded.balance = 5
        tx[Account].save(loaded)
    faults.always = None
    assert caught.value.token is not None
    assert db.outcome(caught.value.token) is False
    assert state(db) == UNPAID
    loaded.balance = 6
    db[Account].save(loaded)
    assert db[Account].get(1).balance == 6


def test_a_transaction_that_never_arrived_and_was_burned_is_reported_as_not_written(store):
    db, faults = store
    faults.coming = ["lose_request"] * 20
    with pytest.raises(RetriesExhaustedError) as caught:
        pay(db)
    assert caught.value.attempts <= 20
    assert state(db) == UNPAID


def test_a_decorated_function_is_not_run_again_for_a_lost_answer(store):
    db, faults = store
    runs = []

    @db.transactional()
    def add(tx):
        runs.append(1)
        tx.kv.sum(("paid",), 1)
        return tx[Account].patch(1, balance=tx[Account].get(1).balance + 1)

    faults.coming = ["lose_answer", "lose_answer"]
    assert add().balance == 11
    assert runs == [1]
    assert db.kv.get(("paid",)).value == KvU64(1)


async def test_cancelling_the_commit_leaves_a_note_with_the_token(tmp_path):
    engine = FaultEngine(SqliteEngine(tmp_path / "app.db"), delay=lambda: None)
    db = AsyncDatabase.from_engine(engine, core())
    async with db:
        await db[Account].create(id=1)
        task: asyncio.Task[Any] | None = None

        def cancelling() -> None:
            assert task is not None
            loop.call_soon_threadsafe(task.cancel)

        loop = asyncio.get_running_loop()
        engine._delay = cancelling
        engine._commit_fault = lambda write: "delay"

        async def pay_once() -> None:
            async with db.transaction() as tx:
                await tx[Account].patch(1, balance=5)

        task = asyncio.create_task(pay_once())
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        engine._commit_fault = lambda write: None
        notes = " ".join(caught.value.__notes__)
        assert "applied" in notes
        assert "db.outcome(" in notes
        assert (await db[Account].get(1)).balance == (5 if "the commit was applied" in notes else 0)
