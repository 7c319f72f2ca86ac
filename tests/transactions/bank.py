"""Transfers between accounts, in any number of threads and processes; what auditors see while they run."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterable

from kvmodels import Database, RetriesExhaustedError, RetryPolicy, Transaction, TransactionConflictError
from tests.transactions.models import Account

ACCOUNTS = 20
OPENING_BALANCE = 100
TOTAL = ACCOUNTS * OPENING_BALANCE
PATIENT = RetryPolicy(deadline_s=60)


def opened(url: str) -> Database:
    """A bank that exists."""
    return Database(url, models=[Account], retry=PATIENT, durability="relaxed")


def found(db: Database) -> None:
    """Every account gets its opening balance."""
    accounts = [Account(id=number, balance=OPENING_BALANCE) for number in range(ACCOUNTS)]
    db[Account].bulk_create(accounts, batch_size=5)  # fits the 10 checks of denokv


def transfer_many(db: Database, seed: int, rounds: int) -> int:
    """Move random amounts; an account is never overdrawn. Returns how many transfers were carried out."""
    chance = random.Random(seed)

    @db.transactional(retries=10_000)
    def transfer(tx: Transaction, source: int, target: int, amount: int) -> bool:
        payer, payee = tx[Account].get(source), tx[Account].get(target)
        if payer.balance < amount:
            return False
        payer.balance -= amount
        payee.balance += amount
        tx[Account].save(payer)
        tx[Account].save(payee)
        return True

    done = 0
    for _ in range(rounds):
        source, target = chance.sample(range(ACCOUNTS), 2)
        done += transfer(source, target, chance.randint(1, 50))
    return done


def audit(db: Database, *, at_least: int, until: threading.Event) -> list[tuple[int, int]]:
    """(sum, smallest balance) of one state after the other, until others have finished."""
    seen: list[tuple[int, int]] = []
    while len(seen) < at_least or not until.is_set():
        try:
            with db.transaction() as tx:
                balances = [account.balance for account in tx[Account].all()]
        except TransactionConflictError:
            assert not db._engine.capabilities.traits.snapshots
            continue
        seen.append((sum(balances), min(balances)))
    return seen


def in_threads(db: Database, seeds: Iterable[int], rounds: int) -> tuple[int, list[tuple[int, int]]]:
    """Transfers in one thread for each seed, beside an auditor; transfers carried out and what was audited."""
    done: list[int] = []
    audited: list[tuple[int, int]] = []
    failures: list[BaseException] = []
    finished = threading.Event()

    def work(seed: int) -> None:
        try:
            done.append(transfer_many(db, seed, rounds))
        except RetriesExhaustedError as error:
            failures.append(error)

    writers = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    auditor = threading.Thread(target=lambda: audited.extend(audit(db, at_least=3, until=finished)))
    for thread in (*writers, auditor):
        thread.start()
    for thread in writers:
        thread.join()
    finished.set()
    auditor.join()
    assert not failures, failures
    return sum(done), audited


def main(path: str, first_seed: str, threads: str, rounds: str) -> None:
    """One process of several threads."""
    with opened(path) as db:
        seeds = range(int(first_seed), int(first_seed) + int(threads))
        done, audited = in_threads(db, seeds, int(rounds))
    print(done, *{total for total, _ in audited}, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
