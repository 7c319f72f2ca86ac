"""Blocks that are open in a function that is not running: suspended generators, and blocks that are never left."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    AsyncTransaction,
    ClosedError,
    Database,
    InvalidArgumentError,
    Transaction,
    TransactionConflictError,
    TransactionSuspendedError,
)
from kvmodels.api._async.transaction import AsyncTransactionBlock
from kvmodels.api._sync.transaction import TransactionBlock
from tests.transactions.models import MODELS, Account, opened


@pytest.fixture
def db():
    with opened() as database:
        database[Account].bulk_create([Account(id=1, balance=10), Account(id=2, balance=20)])
        yield database


@pytest.fixture
async def adb():
    async with AsyncDatabase("memory://", models=MODELS) as database:
        await database[Account].bulk_create([Account(id=1, balance=10), Account(id=2, balance=20)])
        yield database


def balances(db: Database) -> dict[int, int]:
    return {account.id: account.balance for account in db[Account]}


def deposit(db: Database, number: int, amount: int) -> Transaction:
    """A service function with a transaction of its own, or that of its caller."""
    with db.transaction() as tx:
        account = tx[Account].get(number)
        account.balance += amount
        tx[Account].save(account)
        return tx


async def deposit_later(db: AsyncDatabase, number: int, amount: int) -> AsyncTransaction:
    async with db.transaction() as tx:
        account = await tx[Account].get(number)
        account.balance += amount
        await tx[Account].save(account)
        return tx


# --- generators ---------------------------------------------------------------------------------------------------


def suspended_in_a_block(db: Database) -> Generator[Transaction, None, None]:
    with db.transaction() as tx:
        tx[Account].patch(2, balance=0)
        yield tx


async def suspended_in_an_async_block(db: AsyncDatabase) -> AsyncGenerator[AsyncTransaction, None]:
    async with db.transaction() as tx:
        await tx[Account].patch(2, balance=0)
        yield tx


def test_a_suspended_generator_does_not_swallow_the_transactions_of_its_thread(db):
    generator = suspended_in_a_block(db)
    tx = next(generator)
    for _ in range(2):
        with pytest.raises(TransactionSuspendedError) as caught:
            deposit(db, 1, 5)
    assert isinstance(caught.value, InvalidArgumentError)
    assert "tx" in str(caught.value.hint)
    assert caught.value.began_at.startswith(f"{__file__}:")
    assert pickle.loads(pickle.dumps(caught.value)).began_at == caught.value.began_at
    assert not tx._session.flows.ended, "the error ends nothing"
    tx[Account].patch(1, balance=11)
    assert next(generator, None) is None
    assert balances(db) == {1: 11, 2: 0}
    deposit(db, 1, 5)
    assert balances(db) == {1: 16, 2: 0}


async def test_a_suspended_async_generator_does_not_swallow_the_transactions_of_its_task(adb):
    generator = suspended_in_an_async_block(adb)
    await anext(generator)
    with pytest.raises(TransactionSuspendedError) as caught:
        await deposit_later(adb, 1, 5)
    assert caught.value.began_at.startswith(f"{__file__}:")
    assert await anext(generator, None) is None
    await deposit_later(adb, 1, 5)
    assert [account.balance async for account in adb[Account]] == [15, 0]


def test_a_decorated_function_is_refused_beside_a_suspended_generator(db):
    @db.transactional()
    def pay(tx, number):
        tx[Account].patch(number, balance=0)

    generator = suspended_in_a_block(db)
    next(generator)
    with pytest.raises(TransactionSuspendedError):
        pay(1)
    generator.close()
    pay(1)
    assert balances(db) == {1: 0, 2: 20}


def test_a_context_manager_that_yields_its_transaction_is_used_through_what_it_yields(db):
    @contextmanager
    def unit_of_work() -> Iterator[Transaction]:
        with db.transaction() as tx:
            deposit(db, 1, 1)  # called inside of the block, so it joins
            yield tx

    with unit_of_work() as tx:
        with pytest.raises(TransactionSuspendedError, match="yielded"):
            deposit(db, 1, 5)
        tx[Account].patch(2, balance=21)
    assert balances(db) == {1: 11, 2: 21}


async def test_a_dependency_with_yield_is_used_through_what_it_yields(adb):
    """As FastAPI does: an exit stack enters the dependency, and the handler runs in the same task."""

    @asynccontextmanager
    async def transaction() -> AsyncIterator[AsyncTransaction]:
        async with adb.transaction() as tx:
            yield tx

    async def handler(tx: AsyncTransaction) -> None:
        await tx[Account].patch(1, balance=11)
        await deposit_later(adb, 2, 5)

    with pytest.raises(TransactionSuspendedError):
        async with AsyncExitStack() as stack:
            await handler(await stack.enter_async_context(transaction()))
    assert [account.balance async for account in adb[Account]] == [10, 20], "the error has left the dependency"


def test_a_generator_joins_while_it_runs_and_may_stay_suspended(db):
    """The block that is joined is that of its consumer, which is running."""
    with db.transaction() as tx:
        generator = suspended_in_a_block(db)
        assert next(generator) is tx
        assert deposit(db, 1, 5) is tx
        assert next(generator, None) is None
    assert balances(db) == {1: 15, 2: 0}


def test_a_generator_that_outlives_the_transaction_that_it_has_joined_begins_no_other_one(db):
    def depositing() -> Iterator[None]:
        with db.transaction():
            deposit(db, 1, 5)
            yield
            deposit(db, 2, 5)

    with db.transaction():
        generator = depositing()
        next(generator)
    deposit(db, 1, 1)
    with pytest.raises(ClosedError, match="ended"):
        next(generator)
    assert balances(db) == {1: 16, 2: 20}, "what belonged together was not committed apart"
    deposit(db, 1, 1)


async def test_an_async_generator_that_outlives_the_transaction_that_it_has_joined_begins_no_other_one(adb):
    async def depositing() -> AsyncIterator[None]:
        async with adb.transaction():
            await deposit_later(adb, 1, 5)
            yield
            await deposit_later(adb, 2, 5)

    async with adb.transaction():
        generator = depositing()
        await anext(generator)
    with pytest.raises(ClosedError, match="ended"):
        await anext(generator)
    assert [account.balance async for account in adb[Account]] == [15, 20]


def test_an_inner_block_that_was_entered_by_hand_and_lost_does_not_end_the_outer_one(db):
    with db.transaction() as tx:
        assert db.transaction().__enter__() is tx
        tx[Account].patch(1, balance=1)
    assert balances(db) == {1: 1, 2: 20}


def test_a_generator_that_was_closed_or_collected_is_in_nobodys_way(db):
    generator = suspended_in_a_block(db)
    next(generator)
    generator.close()
    deposit(db, 1, 1)
    generator = suspended_in_a_block(db)
    next(generator)
    del generator
    deposit(db, 1, 1)
    assert balances(db) == {1: 12, 2: 20}


async def test_an_async_generator_that_was_collected_is_in_nobodys_way(adb):
    generator = suspended_in_an_async_block(adb)
    tx = await anext(generator)
    del generator
    while not tx._session.flows.ended:  # the event loop closes it in a task
        await asyncio.sleep(0)
    await deposit_later(adb, 1, 1)
    assert [account.balance async for account in adb[Account]] == [11, 20]


# --- what is called or awaited from the block joins ---------------------------------------------------------------


def test_functions_that_are_called_inside_join_however_they_are_called(db):
    with db.transaction() as tx:
        assert deposit(db, 1, 1) is tx
        assert max([1, 1], key=lambda amount: deposit(db, 1, amount) is tx) == 1
        assert [deposit(db, number, 1) for number in (1, 2)] == [tx, tx]
        assert copy_context().run(deposit, db, 1, 1) is tx
        generator = (deposit(db, 2, amount) for amount in [1])
        assert next(generator) is tx
    assert balances(db) == {1: 15, 2: 22}


def test_a_block_that_an_exit_stack_enters_belongs_to_the_function_with_the_stack(db):
    with ExitStack() as stack:
        tx = stack.enter_context(db.transaction())
        assert deposit(db, 1, 5) is tx
        assert balances(db) == {1: 10, 2: 20}
    assert balances(db) == {1: 15, 2: 20}


async def test_coroutines_that_are_awaited_inside_join(adb):
    async def through(depth: int) -> AsyncTransaction:
        await asyncio.sleep(0)
        return await (through(depth - 1) if depth else deposit_later(adb, 1, 5))

    async with AsyncExitStack() as stack:
        tx = await stack.enter_async_context(adb.transaction())
        assert await through(3) is tx
        async with asyncio.timeout(60):
            assert await deposit_later(adb, 2, 5) is tx
    assert [account.balance async for account in adb[Account]] == [15, 25]


async def test_tasks_and_threads_that_are_started_inside_begin_their_own(adb, db):
    async with adb.transaction() as tx:
        found = [*await asyncio.gather(deposit_later(adb, 1, 5), deposit_later(adb, 2, 5))]
        async with asyncio.TaskGroup() as group:
            found.append(await group.create_task(deposit_later(adb, 1, 5)))
        assert tx not in found
    assert [account.balance async for account in adb[Account]] == [20, 25], "each was committed by itself"
    with db.transaction() as own:
        other = await asyncio.to_thread(deposit, db, 1, 5)
        context = copy_context()
        thread = threading.Thread(target=context.run, args=(deposit, db, 2, 5))
        thread.start()
        thread.join()
        assert other is not own
    assert balances(db) == {1: 15, 2: 25}


def test_a_thread_with_the_context_of_another_one_that_has_ended_begins_its_own(db):
    """The identifier of a thread is used again, and a block of the first one may still be open."""
    kept: list[Any] = []

    def first() -> None:
        generator = suspended_in_a_block(db)
        kept.extend((generator, next(generator), copy_context()))

    for target in (first, lambda: kept[2].run(deposit, db, 1, 5)):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert balances(db) == {1: 15, 2: 20}
    kept[0].close()


# --- blocks that are never left -----------------------------------------------------------------------------------


def test_a_block_that_was_entered_by_hand_and_lost_is_rolled_back_with_a_warning(db):
    with pytest.warns(ResourceWarning, match="never left"):
        tx = db.transaction().__enter__()
    for use in (lambda: tx[Account].patch(1, balance=0), tx._session.flows.unchecked):
        with pytest.raises(ClosedError):
            use()
    deposit(db, 1, 5)
    assert balances(db) == {1: 15, 2: 20}


@pytest.mark.parametrize("block", [TransactionBlock, AsyncTransactionBlock])
def test_a_block_whose_constructor_was_interrupted_is_forgotten_without_an_error(block):
    lost: Any = block.__new__(block)
    lost.__del__()


@pytest.mark.usefixtures("few_objects")
def test_a_block_that_a_function_has_left_open_is_refused_and_after_its_collection_forgotten(db):
    def enter() -> Transaction:
        block = db.transaction()
        return block.__enter__()

    gc.disable()
    try:
        tx = enter()
        tx[Account].patch(1, balance=0)
        with pytest.raises(TransactionSuspendedError) as caught:
            deposit(db, 1, 5)
        assert caught.value.began_at.startswith(f"{__file__}:")
        del caught
        with pytest.warns(ResourceWarning, match="never left"):
            gc.collect()
    finally:
        gc.enable()
    with pytest.raises(ClosedError):
        tx[Account].get(1)
    deposit(db, 1, 5)
    assert balances(db) == {1: 15, 2: 20}


def test_a_block_that_is_kept_open_by_an_object_is_refused_until_it_is_left(db):
    class UnitOfWork:
        def begin(self) -> None:
            self.block = db.transaction()
            self.tx = self.block.__enter__()

        def end(self) -> None:
            self.block.__exit__(None, None, None)

    work = UnitOfWork()
    work.begin()
    with pytest.raises(TransactionSuspendedError):
        deposit(db, 1, 5)
    work.tx[Account].patch(2, balance=0)
    work.end()
    deposit(db, 1, 5)
    assert balances(db) == {1: 15, 2: 0}


async def test_an_async_block_that_was_entered_by_hand_and_lost_is_rolled_back_with_a_warning(adb):
    with pytest.warns(ResourceWarning, match="never left"):
        tx = await adb.transaction().__aenter__()
    with pytest.raises(ClosedError):
        await tx[Account].get(1)
    await deposit_later(adb, 1, 5)
    assert [account.balance async for account in adb[Account]] == [15, 20]


@pytest.mark.usefixtures("few_objects")
def test_a_block_that_was_left_keeps_nothing_alive(db):
    def blocks() -> int:
        return sum(type(one).__name__ in ("TransactionBlock", "OpenBlock") for one in gc.get_objects())

    gc.disable()
    try:
        before = blocks()
        deposit(db, 1, 1)
        with pytest.raises(KeyError), db.transaction():
            raise KeyError
        assert blocks() == before, "a cycle would keep the frames of the caller until the next collection"
    finally:
        gc.enable()


# --- unchecked blocks ---------------------------------------------------------------------------------------------


def read_unchecked(tx: Transaction) -> Generator[Account, None, None]:
    with tx.unchecked():
        yield from tx[Account].all().order_by("id")


async def read_unchecked_later(tx: AsyncTransaction) -> AsyncGenerator[Account, None]:
    with tx.unchecked():
        async for account in tx[Account].all().order_by("id"):
            yield account


def test_what_is_read_beside_a_generator_that_is_suspended_in_an_unchecked_block_is_refused(db):
    with db.transaction() as tx:
        accounts = read_unchecked(tx)
        assert next(accounts).id == 1
        with pytest.raises(TransactionSuspendedError) as caught:
            tx[Account].get(1)
        assert caught.value.began_at.startswith(f"{__file__}:")
        assert "unchecked()" in str(caught.value.hint)
        assert next(accounts).id == 2, "what the generator itself reads is in the block"
        with tx.unchecked():
            assert tx[Account].get(2).balance == 20, "and so is this"
        accounts.close()
        assert tx[Account].get(1).balance == 10


async def test_what_is_read_beside_an_async_generator_in_an_unchecked_block_is_refused(adb):
    async with adb.transaction() as tx:
        accounts = read_unchecked_later(tx)
        assert (await anext(accounts)).id == 1
        with pytest.raises(TransactionSuspendedError):
            await tx[Account].get(1)
        with pytest.raises(TransactionSuspendedError):
            await asyncio.create_task(tx[Account].get(1))
        await accounts.aclose()
        assert (await tx[Account].get(1)).balance == 10


def test_an_unchecked_block_that_a_context_manager_enters_for_its_caller_is_refused(db):
    @contextmanager
    def relaxed(tx: Transaction) -> Iterator[None]:
        with tx.unchecked():
            yield

    with db.transaction() as tx:
        with relaxed(tx), pytest.raises(TransactionSuspendedError, match="unchecked"):
            tx[Account].get(1)
        with ExitStack() as stack:
            stack.enter_context(tx.unchecked())
            tx[Account].get(2)
        tx[Account].create(id=3)
        db[Account].patch(2, balance=0)  # no conflict
    assert balances(db) == {1: 10, 2: 0, 3: 0}


@pytest.mark.usefixtures("few_objects")
def test_an_unchecked_block_that_was_lost_takes_no_checks_from_later_reads(db):
    def lose(tx: Transaction) -> None:
        tx.unchecked().__enter__()

    generator: list[Iterator[Account]] = []
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        lose(tx)
        generator.append(read_unchecked(tx))
        next(generator[0])
        generator.clear()
        gc.collect()
        tx[Account].get(1)
        tx[Account].create(id=3)
        db[Account].patch(1, balance=0)
    assert balances(db) == {1: 0, 2: 20}


async def test_tasks_that_are_started_in_an_unchecked_block_read_unchecked(adb):
    async with adb.transaction() as tx:
        with tx.unchecked():
            await asyncio.gather(tx[Account].get(1), tx[Account].get(2))
        await tx[Account].create(id=3)
        await adb[Account].patch(1, balance=0)  # no conflict
    assert [account.balance async for account in adb[Account]] == [0, 20, 0]
