"""The asynchronous transaction: what the synchronous one does, and tasks, cancellation, awaited callbacks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    ClosedError,
    InvalidArgumentError,
    RetriesExhaustedError,
    TransactionAbortedError,
    TransactionConflictError,
)
from tests.transactions.models import MODELS, Account, Member


@pytest.fixture(params=["memory", "sqlite"])
async def db(request, tmp_path):
    url = "memory://" if request.param == "memory" else str(tmp_path / "store.db")
    async with AsyncDatabase(url, models=MODELS) as database:
        await database[Account].create(id=1, balance=10)
        await database[Account].create(id=2, balance=20)
        yield database
        assert (await database.check()).ok


async def balances(db: AsyncDatabase) -> dict[int, int]:
    return {account.id: account.balance async for account in db[Account]}


async def test_reads_and_writes_are_one_commit(db):
    await db[Member].create(id=1, email="one")
    await db[Member].create(id=2, email="two")
    called: list[Any] = []

    async def later() -> None:
        called.append(await balances(db))

    async with db.transaction() as tx:
        await tx.guard("members")
        one = await tx[Member].get(1)
        one.email = "two"
        await tx[Member].save(one)
        await tx[Member].patch(2, email="one")
        assert (await tx[Member].get(email="two")).id == 1
        assert [member.id async for member in tx[Member].filter(city="x")] == [1, 2]
        await tx.kv.sum(("n",), 2)
        await tx.kv.set(("k", 1), "v")
        assert [entry.value async for entry in tx.kv.list(("k",))] == ["v"]
        assert [entry.value for entry in await tx.kv.get_many([("k", 1), ("k", 2)])] == ["v", None]
        await tx.kv.check(("k", 2), None)
        await tx.kv.enqueue("message")
        with tx.unchecked():
            await tx[Account].get(1)
        tx.on_commit(lambda: called.append("plain"))
        tx.on_commit(later)
        assert one.versionstamp is None
    assert one.versionstamp == tx.versionstamp
    assert called == ["plain", {1: 10, 2: 20}]
    assert (await db[Member].get(email="one")).id == 2
    assert "ended" in repr(tx)
    with pytest.raises(ClosedError):
        await tx[Member].get(1)


async def test_an_exception_and_a_conflict_write_nothing(db):
    with pytest.raises(KeyError):
        async with db.transaction() as tx:
            await tx[Account].patch(1, balance=0)
            raise KeyError
    with pytest.raises(TransactionConflictError) as caught:
        async with db.transaction() as tx:
            await tx[Account].patch(1, balance=0)
            await db[Account].patch(1, balance=11)
    assert caught.value.failed_checks == (("accounts", 1),)
    assert await balances(db) == {1: 11, 2: 20}


async def test_inner_blocks_join_and_an_exception_that_leaves_one_aborts_all(db):
    with pytest.raises(TransactionAbortedError):
        async with db.transaction() as tx:
            with pytest.raises(KeyError):
                async with db.transaction() as inner:
                    assert inner is tx
                    await inner[Account].patch(1, balance=0)
                    raise KeyError
    assert await balances(db) == {1: 10, 2: 20}


async def test_a_function_is_run_again_after_a_conflict_and_given_up_in_the_end(db):
    runs: list[int] = []

    @db.transactional(retries=3)
    async def pay(tx, number, *, amount, disturbances):
        runs.append(number)
        account = await tx[Account].get(number)
        if len(runs) <= disturbances:
            await db[Account].patch(number, balance=account.balance + 100)
        account.balance -= amount
        return await tx[Account].save(account)

    assert (await pay(1, amount=4, disturbances=3)).balance == 306
    runs.clear()
    with pytest.raises(RetriesExhaustedError) as caught:
        await pay(1, amount=4, disturbances=9)
    assert (caught.value.attempts, len(runs)) == (4, 4)
    with pytest.raises(InvalidArgumentError, match="coroutine"):
        db.transactional()(lambda tx: None)


async def test_tasks_of_one_transaction_take_turns(db):
    async with db.transaction() as tx:
        await asyncio.gather(*(tx[Account].create(id=number) for number in range(10, 30)))
        assert await tx[Account].count() == 22
    assert await db[Account].count() == 22


async def test_a_task_that_is_started_inside_begins_its_own(db):
    seen: list[Any] = []

    async def separate() -> None:
        async with db.transaction() as tx:
            seen.append(tx)
            await tx[Account].create(id=3)

    async with db.transaction() as tx:
        await asyncio.create_task(separate())
        assert await tx[Account].get_or_none(3) is None, "it reads from an earlier state"
    assert seen[0] is not tx
    assert await db[Account].count() == 3


async def test_a_task_that_outlives_the_transaction_does_not_join_it(db):
    go = asyncio.Event()

    async def later() -> bool:
        await go.wait()
        async with db.transaction() as mine:
            await mine[Account].patch(1, balance=5)
            return mine is not tx

    async with db.transaction() as tx:
        task = asyncio.create_task(later())
    go.set()
    assert await task
    assert (await balances(db))[1] == 5


async def test_many_tasks_move_money(db):
    @db.transactional(retries=100)
    async def move(tx, amount):
        one, two = await tx[Account].get(1), await tx[Account].get(2)
        one.balance, two.balance = one.balance - amount, two.balance + amount
        await tx[Account].save(one)
        await tx[Account].save(two)

    await asyncio.gather(*(move(amount) for amount in range(1, 9)))
    assert await balances(db) == {1: 10 - 36, 2: 20 + 36}


async def test_cancelling_the_body_writes_nothing_and_lets_the_snapshot_go(db):
    entered = asyncio.Event()

    async def wait_inside() -> None:
        async with db.transaction() as tx:
            await tx[Account].patch(1, balance=0)
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(wait_inside())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await balances(db) == {1: 10, 2: 20}
    async with db.transaction() as tx:
        await tx[Account].patch(1, balance=1)
    assert (await balances(db))[1] == 1


async def test_what_an_awaited_callback_raises_goes_on_with_a_note(db):
    called: list[int] = []

    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        async with db.transaction() as tx:
            await tx[Account].patch(1, balance=0)
            tx.on_commit(fail)
            tx.on_commit(lambda: called.append(1))
    assert "committed" in "".join(caught.value.__notes__)
    assert called == [1]
    assert (await balances(db))[1] == 0


async def test_a_database_that_is_not_open_begins_no_transaction():
    db = AsyncDatabase("memory://", models=MODELS)

    @db.transactional()
    async def use(tx):
        return await tx[Account].count()

    with pytest.raises(ClosedError):
        async with db.transaction():
            pass
    with pytest.raises(ClosedError):
        await use()
    async with db:
        assert await use() == 0


async def test_what_one_task_reads_unchecked_leaves_the_checks_of_another_alone(db):
    inside, read = asyncio.Event(), asyncio.Event()
    started: list[asyncio.Task[Any]] = []

    async def careless(tx: Any) -> None:
        with tx.unchecked():
            await tx[Account].get(1)
            started.append(asyncio.create_task(outlives(tx)))
            inside.set()
            await read.wait()

    async def careful(tx: Any) -> None:
        await inside.wait()
        await tx[Account].get(2)
        read.set()

    async def outlives(tx: Any) -> None:
        await read.wait()
        await asyncio.sleep(0.01)
        await tx[Account].get_or_none(3)

    failed: list[Any] = []
    for disturbed in (1, 2, 3):
        started.clear()
        inside.clear()
        read.clear()
        try:
            async with db.transaction() as tx:
                await asyncio.gather(careless(tx), careful(tx))
                await started[0]
                await db[Account].save(Account(id=disturbed), force=True)
                await tx.kv.set(("disturbed", disturbed), 0)
        except TransactionConflictError as conflict:
            failed.extend(conflict.failed_checks)
    assert failed == [("accounts", 2), ("accounts", 3)]
    assert [entry.key async for entry in db.kv.list(("disturbed",))] == [("disturbed", 1)]
