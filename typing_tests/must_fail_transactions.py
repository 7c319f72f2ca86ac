"""Mistakes with transactions that both checkers notice."""

from kvmodels import AsyncDatabase, Database, KvModel, PrimaryKey, Transaction


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    balance: int = 0


def mistaken(db: Database, other: AsyncDatabase) -> None:
    @db.transactional()
    def pay(tx: Transaction, source: int, *, amount: int = 1) -> Account:
        return tx[Account].patch(source, balance=amount)

    pay("ada")  # mypy: arg-type / pyright: reportArgumentType
    pay(1, 2)  # mypy: call-arg / pyright: reportCallIssue

    with db.transaction() as tx:
        pay(tx, 1)  # mypy: call-arg, arg-type / pyright: reportCallIssue
        tx.guard(1)  # mypy: arg-type / pyright: reportArgumentType
        tx.repository(int)  # mypy: type-var / pyright: reportArgumentType

    with other.transaction():  # mypy: attr-defined / pyright: reportGeneralTypeIssues
        pass

    class Bank:
        def pay(self, tx: Transaction, source: int) -> Account:
            return tx[Account].get(source)

    db.transactional()(Bank().pay)(1)
    db.transactional()(Bank.pay)  # mypy: arg-type / pyright: reportArgumentType
