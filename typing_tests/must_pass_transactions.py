"""Transactions and decorated functions keep their types; every line is accepted, with the type that is asserted."""

from collections.abc import Coroutine
from typing import Any, assert_type

from kvmodels import AsyncDatabase, AsyncTransaction, Database, Indexed, KvModel, PrimaryKey, Transaction


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    owner: Indexed[str]
    balance: int = 0


def in_a_block(db: Database) -> None:
    with db.transaction() as tx:
        assert_type(tx, Transaction)
        assert_type(tx[Account].get(1), Account)
        assert_type(tx[Account].filter(Account.owner == "ada").first(), Account | None)
        assert_type(tx.repository(Account).create(id=1, owner="ada"), Account)
        assert_type(tx.kv.get(("k", 1)).versionstamp, str | None)
        tx.kv.check(("k", 1), None)
        tx.kv.check(tx.kv.get(("k", 1)))
        tx.guard("account", 1, "ada")
        tx.on_commit(lambda: print("committed"))
        with tx.unchecked():
            assert_type([account.balance for account in tx[Account].all()], list[int])
    assert_type(tx.versionstamp, str | None)


async def in_an_asynchronous_block(db: AsyncDatabase) -> None:
    async with db.transaction() as tx:
        assert_type(tx, AsyncTransaction)
        assert_type(await tx[Account].get(1), Account)
        assert_type([account.id async for account in tx[Account].all()], list[int])
        await tx.guard("account", 1)
        await tx.kv.sum(("n",), 1)


def decorated(db: Database) -> None:
    @db.transactional()
    def pay(tx: Transaction, source: int, *, amount: int = 1) -> Account:
        return tx[Account].patch(source, balance=tx[Account].get(source).balance - amount)

    assert_type(pay(1), Account)
    assert_type(pay(1, amount=2), Account)

    @db.transactional(retries=3)
    def total(tx: Transaction) -> int:
        return sum(account.balance for account in tx[Account].all())

    assert_type(total(), int)


async def decorated_and_awaited(db: AsyncDatabase) -> None:
    @db.transactional()
    async def pay(tx: AsyncTransaction, source: int, *, amount: int = 1) -> Account:
        account = await tx[Account].get(source)
        account.balance -= amount
        return await tx[Account].save(account)

    paying: Coroutine[Any, Any, Account] = pay(1, amount=2)
    assert_type(await paying, Account)
