"""Errors of a transaction that is used wrongly; one commit is one change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    F,
    Field,
    InvalidArgumentError,
    InvalidKeyError,
    KeyTooLargeError,
    KvModel,
    PrimaryKey,
    RetriesExhaustedError,
    RetryPolicy,
    StaleObjectError,
    Transaction,
    UnknownFieldError,
    Version,
)


class Note(KvModel, collection="notes"):
    model_config = {"populate_by_name": True}

    id: PrimaryKey[int]
    text: str = Field(default="", alias="Body")
    n: int = 0
    changed: int = Version()


@pytest.fixture
def db() -> Database:
    made = Database("memory://", models=[Note])
    made[Note].create(id=1)
    return made


def revision(db: Database, key: int) -> int:
    return db[Note].get(key).changed


# --- one commit, one change -----------------------------------------------------------------------------------------


def test_two_writes_of_a_record_in_one_transaction_are_one_change(db: Database):
    with db.transaction() as tx:
        tx[Note].patch(1, n=1)
        tx[Note].patch(1, n=2)
        note = tx[Note].get(1)
        note.n = 3
        assert tx[Note].save(note).changed == 2
        tx[Note].all().update(n=F("n") + 1)
        tx[Note].mutate(1, lambda found: None)
        assert tx[Note].get(1).changed == 2
    assert (revision(db, 1), db[Note].get(1).n) == (2, 4)
    with db.transaction() as tx:
        tx[Note].patch(1, n=1)
    assert revision(db, 1) == 3


def test_a_record_that_a_transaction_makes_and_changes_is_of_version_1(db: Database):
    with db.transaction() as tx:
        note = tx[Note].create(id=2)
        note.n = 1
        tx[Note].save(note)
        tx[Note].bulk_update([note])
        tx[Note].bulk_create([Note(id=2, n=7)], on_conflict="update")
    assert (revision(db, 2), db[Note].get(2).n) == (1, 7)
    assert db[Note].patch(2, n=5).changed == 2


def test_a_record_that_a_transaction_replaces_begins_again(db: Database):
    db[Note].patch(1, n=1)
    with db.transaction() as tx:
        tx[Note].remove(1)
        tx[Note].create(id=1)
        tx[Note].patch(1, n=2)
    assert revision(db, 1) == 1


def test_a_record_that_a_transaction_renames_and_changes_is_changed_once(db: Database):
    with db.transaction() as tx:
        tx[Note].patch(1, n=1)
        tx[Note].rename(1, 9)
        tx[Note].rename(9, 10)
        tx[Note].patch(10, n=2)
    assert revision(db, 10) == 2


def test_a_run_that_is_repeated_counts_once(db: Database):
    runs = []

    @db.transactional()
    def twice(tx: Transaction) -> None:
        runs.append(tx[Note].patch(1, n=1).changed)
        tx[Note].patch(1, n=2)
        if len(runs) == 1:
            db[Note].patch(1, n=9)

    twice()
    assert (runs, revision(db, 1)) == ([2, 3], 3)


# --- errors ---------------------------------------------------------------------------------------------------------


def test_the_second_object_of_a_record_is_told_without_versions_that_nobody_knows(db: Database):
    with db.transaction() as tx, pytest.raises(StaleObjectError, match="Two objects of one record") as caught:
        first, second = tx[Note].get(1), tx[Note].get(1)
        tx[Note].save(first)
        tx[Note].save(second)
    assert caught.value.actual is None
    assert "force" not in str(caught.value)
    with db.transaction() as tx, pytest.raises(StaleObjectError, match="Two objects of one record"):
        second = tx[Note].get(1)
        tx[Note].patch(1, n=2)
        tx[Note].remove(second)


def test_an_object_of_a_transaction_that_failed_is_told_to_be_loaded_again(db: Database):
    kept = []
    with pytest.raises(KeyError), db.transaction() as tx:
        tx[Note].patch(1, n=2)
        kept.append(tx[Note].get(1))
        raise KeyError
    (note,) = kept
    for call in (db[Note].save, db[Note].remove):
        with pytest.raises(StaleObjectError, match="Load it again") as caught:
            call(note)
        assert (caught.value.expected, caught.value.actual) == (None, None)


def test_a_function_that_meets_conflicts_only_is_told_of_its_retries(db: Database):
    @db.transactional(retries=1)
    def hopeless(tx: Transaction) -> None:
        tx[Note].patch(1, n=1)
        db[Note].patch(1, n=2)

    with pytest.raises(RetriesExhaustedError, match=r"transactional\(retries=\)"):
        hopeless()


def test_a_function_whose_deadline_passes_is_told_of_the_deadline():
    db = Database("memory://", models=[Note], retry=RetryPolicy(deadline_s=0))
    db[Note].create(id=1)

    @db.transactional(retries=1_000)
    def slow(tx: Transaction) -> None:
        tx[Note].patch(1, n=1)
        db[Note].patch(1, n=2)

    with pytest.raises(RetriesExhaustedError, match="deadline_s="):
        slow()


@pytest.mark.parametrize("parts", [(object(),), ("a", object()), (1, "b", None)])
def test_a_wrong_part_of_a_guard_is_named_by_its_place(db: Database, parts: tuple[Any, ...]):
    with pytest.raises(InvalidKeyError) as of_key:
        db.kv.get(parts)
    with db.transaction() as tx, pytest.raises(InvalidKeyError) as of_guard:
        tx.guard("room", *parts)
    assert of_guard.value.part == of_key.value.part == len(parts) - 1


def test_a_guard_that_is_too_long_fails_where_it_is_taken(db: Database):
    with db.transaction() as tx:
        with pytest.raises(KeyTooLargeError):
            tx.guard("room", "x" * 3_000)
        tx.guard("room", "x")
        tx[Note].patch(1, n=3)
    assert db[Note].get(1).n == 3


def test_an_alias_in_a_change_is_answered_with_its_field(db: Database):
    for call in (
        lambda: db[Note].patch(1, Body="x"),
        lambda: db[Note].all().update(Body="x"),
        lambda: db[Note].filter(Body="x"),
        lambda: db[Note].update_or_create(id=1, defaults={"Body": "x"}),
    ):
        with pytest.raises(UnknownFieldError) as caught:
            call()
        assert caught.value.suggestion == "text"


# --- methods --------------------------------------------------------------------------------------------------------


def test_a_method_whose_object_would_be_the_transaction_is_refused(db: Database):
    with pytest.raises(InvalidArgumentError, match="bound method"):

        class Bank:
            @db.transactional()  # type: ignore[arg-type]
            def pay(self, tx: Transaction, n: int) -> None:  # type: ignore[misc]
                """Would get the transaction as its object."""

    with pytest.raises(InvalidArgumentError, match="bound method"):

        class AsyncBank:
            @AsyncDatabase("memory://", models=[Note]).transactional()  # type: ignore[arg-type]
            async def pay(self, tx: Transaction, n: int) -> None:  # type: ignore[misc]
                """Would get the transaction as its object."""


def test_a_bound_method_and_a_static_method_can_be_run_in_a_transaction(db: Database):
    class Bank:
        def pay(self, tx: Transaction, n: int) -> int:
            return tx[Note].patch(1, n=n).n

        @staticmethod
        @db.transactional()
        def take(tx: Transaction, n: int) -> int:
            return tx[Note].patch(1, n=n).n

    assert db.transactional()(Bank().pay)(5) == 5
    assert (Bank.take(6), Bank().take(7)) == (6, 7)


def test_a_bound_method_can_be_run_in_a_transaction_asynchronously():
    class Bank:
        async def pay(self, tx: Any, n: int) -> int:
            found: Note = await tx[Note].patch(1, n=n)
            return found.n

    async def tried() -> int:
        async with AsyncDatabase("memory://", models=[Note]) as db:
            await db[Note].create(id=1)
            return await db.transactional()(Bank().pay)(5)

    assert asyncio.run(tried()) == 5
