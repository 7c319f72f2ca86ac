"""Transfers that everybody wants to make at once, in tasks, threads and processes; what each crowd has done."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import kvmodels
from kvmodels import AsyncDatabase, AsyncTransaction, Database, KvModelsError, RetryPolicy, Transaction
from kvmodels._support.turns import Turns
from tests.transactions.models import Account

ROOT = Path(kvmodels.__file__).parent.parent
PATIENCE_S = 110
PATIENT = RetryPolicy(deadline_s=PATIENCE_S)
"""The default number of runs, and a deadline that a slow machine does not reach."""


class Crowded(NamedTuple):
    """The outcome of the calls: how many were stored, the errors of the others, and how often functions ran."""

    done: int
    errors: list[BaseException]
    runs: int


def opened(url: str) -> Database:
    """A store of these accounts."""
    return Database(url, models=[Account], durability="relaxed", retry=PATIENT)


def found(db: Database) -> None:
    """The two accounts."""
    db[Account].create(id=1)
    db[Account].create(id=2)


async def in_tasks(url: str, tasks: int, turns: Turns | None = None, retry: RetryPolicy | None = None) -> Crowded:
    """One transfer in each task, with the default number of runs."""
    runs: list[int] = []
    async with AsyncDatabase(url, models=[Account], durability="relaxed", retry=retry or PATIENT) as db:
        await db[Account].create(id=1)
        await db[Account].create(id=2)
        if turns is not None:
            db._core.context.turns = turns

        @db.transactional()
        async def transfer(tx: AsyncTransaction) -> None:
            runs.append(1)
            payer, payee = await tx[Account].get(1), await tx[Account].get(2)
            await asyncio.sleep(0)  # in memory nothing else lets other tasks run
            payer.balance -= 1
            payee.balance += 1
            await tx[Account].save(payer)
            await tx[Account].save(payee)

        answers = await asyncio.gather(*(transfer() for _ in range(tasks)), return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        balances = [account.balance async for account in db[Account]]
    done = tasks - len(errors)
    assert balances == [-done, done]
    return Crowded(done, errors, len(runs))


def in_threads(db: Database, threads: int, each: int) -> Crowded:
    """Transfers one after the other in each thread, with the default number of runs."""
    runs: list[int] = []
    done: list[int] = []
    errors: list[BaseException] = []

    @db.transactional()
    def transfer(tx: Transaction) -> None:
        runs.append(1)
        payer, payee = tx[Account].get(1), tx[Account].get(2)
        payer.balance -= 1
        payee.balance += 1
        tx[Account].save(payer)
        tx[Account].save(payee)

    def work() -> None:
        for _ in range(each):
            try:
                transfer()
            except KvModelsError as error:
                errors.append(error)
            else:
                done.append(1)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return Crowded(len(done), errors, len(runs))


def in_processes(url: str, processes: int, threads: int, each: int) -> list[int]:
    """Threads of several processes; how many transfers each process has stored."""
    arguments = [sys.executable, "-m", "tests.transactions.contention", url, str(threads), str(each)]
    workers = [subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    try:
        reports = [worker.communicate(timeout=PATIENCE_S)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert [worker.returncode for worker in workers] == [0] * processes, reports
    return [int(report) for report in reports]


def main(url: str, threads: str, each: str) -> None:
    """One process of a crowd."""
    with opened(url) as db:
        crowded = in_threads(db, int(threads), int(each))
    assert not crowded.errors, crowded.errors
    print(crowded.done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
