"""The commit of a transaction checks all that was read, nothing that was not, and guards for the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    Count,
    Database,
    InvalidArgumentError,
    InvalidKeyError,
    Limits,
    OperationTooLargeError,
    Sum,
    TransactionConflictError,
)
from kvmodels.api._sync.transaction import Transaction
from kvmodels.api.core import DatabaseCore
from tests.transactions.models import Account, Member, opened

Read = Callable[[Transaction], object]
Write = Callable[[Database], object]


@pytest.fixture
def db():
    with opened() as database:
        for number in range(1, 6):
            database[Member].create(
                id=number,
                email=f"m{number}",
                city="x" if number < 4 else "y",
                score=10 * number,
                tags=[f"t{number}", "all"],
                team="red" if number < 4 else "blue",
            )
        database.kv.set(("raw", 1), "one")
        yield database


def conflicts(db: Database, read: Read, write: Write) -> bool:
    """Whether a transaction that has read something is refused after a write of others."""
    try:
        with db.transaction() as tx:
            read(tx)
            tx.kv.set(("mine",), 1)
            write(db)
            read(tx)
    except TransactionConflictError:
        return True
    return False


def change(number: int, **values: Any) -> Write:
    return lambda db: db[Member].patch(number, **values)


CONFLICTS: dict[str, tuple[Read, Write]] = {
    "record by key": (lambda tx: tx[Member].get(1), change(1, active=False)),
    "absent record": (lambda tx: tx[Member].get_or_none(9), lambda db: db[Member].create(id=9)),
    "records by keys": (lambda tx: tx[Member].in_bulk([1, 2, 9]), lambda db: db[Member].create(id=9)),
    "record by unique value": (lambda tx: tx[Member].get(email="m1"), change(1, active=False)),
    "free unique value": (lambda tx: tx[Member].get_or_none(email="n"), change(1, email="n")),
    "unique value that moves": (lambda tx: tx[Member].get(email="m1"), change(1, email="n")),
    "row of a walk": (lambda tx: list(tx[Member].all()), change(5, active=False)),
    "row of an index": (lambda tx: list(tx[Member].filter(city="x")), change(3, active=False)),
    "row of an index that leaves it": (lambda tx: list(tx[Member].filter(city="x")), change(3, city="z")),
    "row of a multi-valued index": (lambda tx: list(tx[Member].filter(tags__contains="t2")), change(2, tags=[])),
    "copy": (lambda tx: list(tx[Member].filter(team="blue").order_by("id")), change(4, active=False)),
    "entry that covers": (lambda tx: list(tx[Member].filter(city="y").values("score")), change(4, score=1)),
    "entry that was counted": (lambda tx: tx[Member].filter(city="x").count(), change(3, city="z")),
    "removed record of a count": (lambda tx: tx[Member].filter(city="x").count(), lambda db: db[Member].remove(3)),
    "counter": (lambda tx: tx[Member].filter(team="red").aggregate(Count()), change(1, team="blue")),
    "counter of a new group": (
        lambda tx: tx[Member].filter(team="green").aggregate(Sum("score")),
        lambda db: db[Member].create(id=9, team="green"),
    ),
    "raw key": (lambda tx: tx.kv.get(("raw", 1)), lambda db: db.kv.set(("raw", 1), "one")),
    "absent raw key": (lambda tx: tx.kv.get(("raw", 2)), lambda db: db.kv.set(("raw", 2), "two")),
    "raw keys": (lambda tx: tx.kv.get_many([("raw", 1), ("raw", 2)]), lambda db: db.kv.delete(("raw", 1))),
    "listed raw key": (lambda tx: list(tx.kv.list(("raw",))), lambda db: db.kv.delete(("raw", 1))),
    "record that is patched": (lambda tx: tx[Member].patch(1, active=False), change(1, city="z")),
    "record that is removed": (lambda tx: tx[Member].remove(1) or True, change(1, city="z")),
    "absent record that is removed": (lambda tx: tx[Member].remove(9), lambda db: db[Member].create(id=9)),
    "schema": (lambda tx: tx[Member].get(1), lambda db: db.drop_index(Member, "ranking")),
}

HARMLESS: dict[str, tuple[Read, Write]] = {
    "another record": (lambda tx: tx[Member].get(1), change(2, city="z")),
    "a record beside the index": (lambda tx: list(tx[Member].filter(city="x")), change(4, active=False)),
    "a record that comes into the range": (lambda tx: list(tx[Member].filter(city="x")), change(4, city="x")),
    "a counted record that changes elsewhere": (
        lambda tx: tx[Member].filter(city="x").count(),
        change(3, active=False),
    ),
    "another group": (lambda tx: tx[Member].filter(team="red").aggregate(Count()), change(4, score=0)),
    "another raw key": (lambda tx: tx.kv.get(("raw", 1)), lambda db: db.kv.set(("raw", 2), 2)),
    "a sum on a key that the transaction adds to": (
        lambda tx: tx.kv.sum(("raw", "n"), 1),
        lambda db: db.kv.atomic().sum(("raw", "n"), 1).commit(),
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_review_15_a_write_of_what_was_read_is_a_conflict(db, name):
    assert conflicts(db, *CONFLICTS[name])
    assert db.kv.get(("mine",)).value is None


@pytest.mark.parametrize("name", HARMLESS)
def test_a_write_of_what_was_not_read_is_none(db, name):
    assert not conflicts(db, *HARMLESS[name])
    assert db.kv.get(("mine",)).value == 1


@pytest.mark.parametrize("name", sorted(set(CONFLICTS) - {n for n in CONFLICTS if "that is" in n} - {"schema"}))
def test_review_15_what_is_read_unchecked_is_no_conflict(db, name):
    read, write = CONFLICTS[name]

    def unchecked(tx: Transaction) -> object:
        with tx.unchecked():
            return read(tx)

    assert not conflicts(db, unchecked, write)


def test_records_that_are_written_are_checked_also_when_they_were_read_unchecked(db):
    def read(tx: Transaction) -> object:
        with tx.unchecked():
            member = tx[Member].get(1)
        member.city = "z"
        return tx[Member].save(member) if member.versionstamp else None

    assert conflicts(db, read, change(1, score=5))


def test_unchecked_ends_with_its_block(db):
    def read(tx: Transaction) -> object:
        with tx.unchecked(), tx.unchecked():
            pass
        return tx[Member].get(1)

    assert conflicts(db, read, change(1, score=5))


def test_what_the_transaction_has_written_itself_is_no_conflict(db):
    with db.transaction() as tx:
        tx[Member].patch(1, city="z", email="new", tags=["n"], team="green")
        tx[Member].create(id=9, email="m1")
        tx.kv.set(("raw", 1), 2)
        assert tx[Member].get(email="new").id == 1
        assert tx[Member].get(email="m1").id == 9
        assert [one.id for one in tx[Member].filter(city="z")] == [1]
        assert tx[Member].filter(team="green").aggregate(Count()) == {"count": 1}
        assert tx.kv.get(("raw", 1)).value == 2
    assert db.check().ok


# --- limits -------------------------------------------------------------------------------------------------------


def test_review_15_reading_more_than_a_commit_may_check_is_refused_with_the_limit():
    limits = replace(Limits.EMBEDDED, name="FEW", max_checks=10)
    with opened(limits=limits) as db:
        db[Account].bulk_create([Account(id=n) for n in range(60)], batch_size=10)
        with db.transaction() as tx:
            assert tx[Account].count() == 60, "reading alone needs no checks"
        for wanted in (25, 60):
            with pytest.raises(OperationTooLargeError) as caught, db.transaction() as tx:
                assert len(tx[Account].all()[:wanted].to_list()) == wanted
                tx[Account].patch(1, balance=1)
            error = caught.value
            assert (error.limit, error.maximum, error.limits) == ("max_checks", 10, "FEW")
            assert error.size > 10
            assert "unchecked()" in str(error.hint)
        with pytest.raises(OperationTooLargeError) as caught, db.transaction() as tx:
            for number in range(20):
                tx[Account].patch(number, balance=1)
        assert caught.value.limit == "max_checks"
        assert "Write fewer" in str(caught.value.hint), "to read less would not help"
        with db.transaction() as tx:
            with tx.unchecked():
                assert tx[Account].count() == 60
            tx[Account].patch(1, balance=1)
        assert db[Account].get(1).balance == 1


def test_writing_more_than_an_operation_holds_is_refused_whole():
    limits = replace(Limits.EMBEDDED, name="FEW", max_mutations=5)
    with opened(limits=limits) as db:
        with pytest.raises(OperationTooLargeError) as caught, db.transaction() as tx:
            for number in range(6):
                tx[Account].create(id=number)
        assert caught.value.limit == "max_mutations"
        assert db[Account].count() == 0


# --- guards -------------------------------------------------------------------------------------------------------


def opened_again(db: Database) -> Database:
    """Another handle of the same store, whose transactions join none of the first."""
    return Database.from_engine(db._engine, DatabaseCore([Member, Account]))


@pytest.mark.parametrize(
    ("outer", "inner", "meet"),
    [
        (("room", 1, "a"), ("room", 1, "a"), True),
        (("room", 1, "a"), ("room", 1, "b"), False),
        (("room",), ("room", 1), False),
        (("room",), ("desk",), False),
    ],
)
def test_two_transactions_meet_at_a_guard_and_nowhere_else(db, outer, inner, meet):
    other = opened_again(db)
    refused = pytest.raises(TransactionConflictError) if meet else nullcontext()
    with refused as caught, db.transaction() as tx:
        tx.guard(*outer)
        tx.guard(*outer)
        with other.transaction() as second:
            second.guard(*inner)
    if caught is not None:
        assert caught.value.failed_checks == (("__kvmodels__", "guard", *outer),)
    assert db.check().ok


def test_a_guard_is_taken_again_and_again(db):
    with db.transaction() as tx:
        tx.guard("room")
    for _ in range(3):
        with db.transaction() as tx:
            tx.guard("room")
        assert tx.versionstamp is not None, "a guard alone is a write"


@pytest.mark.parametrize(
    ("name", "parts", "kind"),
    [("", (), InvalidArgumentError), (5, (), InvalidArgumentError), ("a", (None,), InvalidKeyError)],
)
def test_a_wrong_guard_is_refused(db, name, parts, kind):
    with db.transaction() as tx, pytest.raises(kind):
        tx.guard(name, *parts)
