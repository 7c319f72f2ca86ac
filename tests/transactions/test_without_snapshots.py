"""Engines without snapshots: what a transaction has read may be of two states, and then it counts for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database, TransactionConflictError
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite
from tests.query.engines import watched
from tests.transactions.models import MODELS, Account, Member


class InsufficientFundsError(Exception):
    """Raised by the body of a transaction, for a reason that it has read."""


@pytest.fixture
def store():
    db, engine = watched(MODELS, snapshots=False)
    db[Account].create(id=1, balance=50)
    db[Account].create(id=2, balance=50)
    yield db, engine
    assert db.check().ok


def move(db: Database, amount: int) -> None:
    """Somebody else moves money: the sum stays."""
    db[Account].patch(1, balance=db[Account].get(1).balance + amount)
    db[Account].patch(2, balance=db[Account].get(2).balance - amount)


def require_funds(tx, engine, meanwhile):
    """The sum of both accounts, read in two reads."""
    first = tx[Account].get(1).balance
    engine.before_read = meanwhile
    total = first + tx[Account].get(2).balance
    if total < 100:
        raise InsufficientFundsError(total)
    return total


def test_review_15_an_exception_that_comes_from_two_states_is_a_conflict(store):
    db, engine = store
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        require_funds(tx, engine, lambda: move(db, 20))
    assert isinstance(caught.value.__context__, InsufficientFundsError)
    assert ("accounts", 1) in caught.value.failed_checks


def test_review_15_a_decorated_function_is_run_again_then(store):
    db, engine = store
    disturbances = [lambda: move(db, 20), lambda: move(db, -5)]

    @db.transactional()
    def total(tx):
        return require_funds(tx, engine, disturbances.pop() if disturbances else None)

    assert total() == 100
    assert disturbances == []


def test_review_15_an_exception_that_is_true_is_passed_on(store):
    db, engine = store
    with pytest.raises(InsufficientFundsError), db.transaction() as tx:
        db[Account].patch(1, balance=0)
        require_funds(tx, engine, None)


def test_a_key_that_is_seen_in_two_versions_ends_the_transaction(store):
    db, _ = store
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx[Account].get(1)
        db[Account].patch(1, balance=1)
        with pytest.raises(TransactionConflictError):
            tx[Account].get(1)
        tx[Account].create(id=3)
    assert db[Account].count() == 2


def test_reading_alone_is_checked_at_the_end_and_the_error_says_that_this_is_the_engine(store):
    db, engine = store
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        tx[Account].get(1)
        engine.before_read = lambda: move(db, 20)
        tx[Account].get(2)
    assert "a transaction that only reads conflicts too" in str(caught.value.hint)


def test_reads_without_checks_are_not_one_state(store):
    db, engine = store
    with db.transaction() as tx, tx.unchecked():
        first = tx[Account].get(1).balance
        engine.before_read = lambda: move(db, 20)
        assert first + tx[Account].get(2).balance == 80


def test_the_hint_of_a_conflict_on_an_engine_with_snapshots_speaks_of_no_reads():
    db, _ = watched(MODELS)
    db[Account].create(id=1, balance=50)
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        tx[Account].get(1)
        db[Account].patch(1, balance=51)
        tx[Account].patch(1, balance=52)
    assert "only reads" not in str(caught.value.hint)


def test_a_schema_change_ends_the_transaction(store):
    db, _ = store
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        assert tx[Member].filter(city="x").to_list() == []
        db.drop_index(Member, "ranking")
        tx[Member].filter(city="x").to_list()
    assert caught.value.failed_checks == (("__kvmodels__", "header"),)


@pytest.mark.parametrize("options", [{"snapshots": False}, {"snapshots": False, "max_ranges": 2}, {"max_ranges": 3}])
def test_own_writes_are_read_and_committed_on_engines_that_can_do_less(options):
    db, engine = watched(MODELS, **options)
    with db.transaction() as tx:
        tx[Member].create(id=1, email="one", tags=["a", "b"], score=3)
        tx[Member].create(id=2, email="two", tags=["b"], score=4)
        tx[Member].patch(1, email="two")
        tx[Member].patch(2, email="one", city="y")
        assert tx[Member].get(email="one").id == 2
        assert [one.id for one in tx[Member].filter(tags__contains="b").order_by("-id")] == [2, 1]
        assert [one.id for one in tx[Member].filter(city="y")] == [2]
        made = tx[Member].bulk_create([Member(id=number, email=f"m{number}") for number in range(10, 20)])
        assert all(item.created for item in made)
        assert len(tx[Member].in_bulk(range(20))) == 12
    assert db[Member].get(email="two").id == 1
    assert db[Member].count() == 12
    assert Database.from_engine(engine.inner, DatabaseCore(MODELS)).check().ok


def test_an_entry_is_checked_beside_its_record_if_that_was_read_in_a_later_state(store):
    db, _ = store
    db[Member].create(id=1, city="x")
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        counted = tx[Member].filter(city="x").count()
        db[Member].patch(1, city="y")
        tx.kv.set(("seen",), [counted, tx[Member].get(1).city])
    assert caught.value.failed_checks == (("members_by_city", "x", 1),)
    assert db.kv.get(("seen",)).value is None


def test_an_entry_needs_no_check_beside_a_record_that_was_the_same_before_and_after(store, monkeypatch):
    db, engine = store
    db[Member].create(id=1, city="x")
    writes: list[AtomicWrite] = []

    def commit(write: AtomicWrite) -> Any:
        writes.append(write)
        return engine.inner.commit(write)

    monkeypatch.setattr(engine, "commit", commit)
    with db.transaction() as tx:
        tx[Member].get(1)
        assert tx[Member].filter(city="x").count() == 1
        tx[Member].get(1)
        tx.kv.set(("seen",), 1)
    assert len(writes[0].checks) == 2, "the header and the record"
