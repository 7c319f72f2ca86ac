"""Errors of ``mutate`` for functions that do not change an object as they should."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, InvalidValueError, RetriesExhaustedError, RetryPolicy
from tests.zoo import Account, Animal


async def rename(account: Any) -> None:
    account.note = "new"


class Renaming:
    """An object whose call is a coroutine."""

    async def __call__(self, account: Any) -> None:
        account.note = "new"


ANIMAL = Animal(park="east", number=1, species="lynx", name="Ada", weight=1)
WRONG = [
    (rename, "coroutine"),
    (Renaming(), "coroutine"),
    (lambda account: account.note, "str"),
    (lambda account: {"note": "new"}, "dict"),
    (lambda account: ANIMAL, "Animal"),
    (lambda account: False, "bool"),
]
NAMES = ["async function", "async callable", "field", "mapping", "other model", "flag"]


def refused(error: InvalidValueError, kind: str) -> None:
    assert (error.model, error.type) == ("Account", kind)
    assert "the mutate() callback must return" in error.message
    for said in ("in place", "return", "None", "not async"):
        assert said in str(error.hint)


@pytest.mark.parametrize(("function", "kind"), WRONG, ids=NAMES)
@pytest.mark.filterwarnings("error")
def test_a_function_that_returns_something_else_is_named_and_nothing_is_written(function, kind):
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1, note="old")
        with pytest.raises(InvalidValueError) as caught:
            db[Account].mutate(1, function)
        refused(caught.value, kind)
        assert db[Account].get(1).note == "old"


@pytest.mark.parametrize(("function", "kind"), WRONG, ids=NAMES)
@pytest.mark.filterwarnings("error")
def test_the_asynchronous_repository_says_the_same(function, kind):
    async def ask() -> None:
        async with AsyncDatabase("memory://", models=[Account]) as db:
            await db[Account].create(id=1, note="old")
            with pytest.raises(InvalidValueError) as caught:
                await db[Account].mutate(1, function)
            refused(caught.value, kind)
            assert (await db[Account].get(1)).note == "old"

    asyncio.run(ask())


def test_an_object_of_another_class_that_is_stored_is_still_told_to_use_its_own_repository():
    with Database("memory://", models=[Account]) as db, pytest.raises(InvalidValueError) as caught:
        db[Account].save(ANIMAL)  # type: ignore[arg-type]
    assert "belongs to another repository" in str(caught.value.hint)


def test_a_function_that_writes_its_own_record_is_named_as_a_cause_of_the_conflicts():
    with Database("memory://", models=[Account], retry=RetryPolicy(attempts=3)) as db:
        accounts = db[Account]
        accounts.create(id=1, note="old")

        def change(account: Account) -> None:
            accounts.patch(1, note=account.note + "!")

        with pytest.raises(RetriesExhaustedError, match="change the object that it gets instead"):
            accounts.mutate(1, change)
