"""Transfers between two accounts that everybody wants: how many succeed, how often they run, and how fast.

    python -m benchmarks.contention
    python -m benchmarks.contention --stores sqlite floor --crowds tasks threads --durability relaxed

Each crowd is as many tasks, threads or threads of processes, which call the ``transfer`` of the README with its default
settings. The floor is what one would write by hand for SQLite: ``BEGIN IMMEDIATE``, two reads, two writes, ``COMMIT``,
a connection for each thread, with the same journal and the same ``synchronous``; a thread for each of the tasks. It
neither encodes nor validates records, and its threads do not take turns. ``queued`` is the floor in an event loop that
makes all tasks wait for one connection.

Rules of this module: every transfer is counted as done or as given up, and the balances must add up to what was done. A
wrong sum ends the run. The stores of a crowd take turns in each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, NamedTuple

from benchmarks.processes import ROOT
from kvmodels import (
    AsyncDatabase,
    AsyncTransaction,
    Database,
    Indexed,
    KvModel,
    PrimaryKey,
    RetriesExhaustedError,
    Transaction,
)

FLOORS: Final = ("floor", "queued")
STORES: Final = ("memory", "sqlite", "lmdb", *FLOORS)
CROWDS: Final = ("tasks", "threads", "processes")
CROWDS_OF: Final = {"memory": CROWDS[:2], "queued": CROWDS[:1]}
TASKS: Final = 300
THREADS: Final = 40
TRANSFERS: Final = 25
"""Of each thread."""
PROCESSES: Final = 4
THREADS_OF_A_PROCESS: Final = 8
OPENING_BALANCE: Final = 100_000
PATIENCE_S: Final = 600.0


class Account(KvModel, collection="accounts"):
    """The model of the README."""

    id: PrimaryKey[int]
    owner: Indexed[str]
    balance: int = 0


class Outcome(NamedTuple):
    """The results of concurrent writers: transfers stored, transfers given up, runs of the function."""

    done: int
    given_up: int
    runs: int


class Measured(NamedTuple):
    """One crowd on one store in one round."""

    seconds: float
    processor: float
    outcome: Outcome


class Clock:
    """Seconds since it was made, by the wall clock and of the processor."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def taken(self) -> tuple[float, float]:
        """Both times."""
        wall, processor = self._began
        return time.perf_counter() - wall, time.process_time() - processor


Durability = Literal["commit", "relaxed"]


# --- kvmodels -----------------------------------------------------------------------------------------------------


def transfers_of(db: Database, runs: list[int]) -> Callable[[], object]:
    """The function of the README, which also counts its runs."""

    @db.transactional()
    def transfer(tx: Transaction, source: int, target: int, amount: int) -> None:
        runs.append(1)
        payer, payee = tx[Account].get(source), tx[Account].get(target)
        payer.balance -= amount
        payee.balance += amount
        tx[Account].save(payer)
        tx[Account].save(payee)

    return lambda: transfer(1, 2, 1)


def in_threads(transfer: Callable[[], object], threads: int, each: int) -> tuple[int, int]:
    """Call the function in threads; how many calls succeeded, and how many gave up."""
    done: list[int] = []
    given_up: list[int] = []

    def work() -> None:
        for _ in range(each):
            try:
                transfer()
            except RetriesExhaustedError:
                given_up.append(1)
            else:
                done.append(1)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(done), len(given_up)


async def in_tasks(url: str, durability: Durability, tasks: int) -> Measured:
    """The same function in an event loop."""
    runs: list[int] = []
    async with AsyncDatabase(url, models=[Account], durability=durability) as db:
        await set_up(db)

        @db.transactional()
        async def transfer(tx: AsyncTransaction, source: int, target: int, amount: int) -> None:
            runs.append(1)
            payer, payee = await tx[Account].get(source), await tx[Account].get(target)
            payer.balance -= amount
            payee.balance += amount
            await tx[Account].save(payer)
            await tx[Account].save(payee)

        clock = Clock()
        results = await asyncio.gather(*(transfer(1, 2, 1) for _ in range(tasks)), return_exceptions=True)
        taken = clock.taken()
        given_up = [one for one in results if isinstance(one, RetriesExhaustedError)]
        broken = [one for one in results if isinstance(one, BaseException) and one not in given_up]
        if broken:
            raise broken[0]
        balance = (await db[Account].get(2)).balance
    require_sum(balance, tasks - len(given_up))
    return Measured(*taken, Outcome(tasks - len(given_up), len(given_up), len(runs)))


async def set_up(db: AsyncDatabase) -> None:
    """The two accounts."""
    await db[Account].create(id=1, owner="ada", balance=OPENING_BALANCE)
    await db[Account].create(id=2, owner="bob")


def balance_of(url: str, durability: Durability) -> int:
    """Return the balance of the second account."""
    with Database(url, models=[Account], durability=durability) as db:
        return db[Account].get(2).balance


def threads_on(url: str, durability: Durability) -> Measured:
    """Threads of this process."""
    runs: list[int] = []
    with Database(url, models=[Account], durability=durability) as db:
        db[Account].create(id=1, owner="ada", balance=OPENING_BALANCE)
        db[Account].create(id=2, owner="bob")
        transfer = transfers_of(db, runs)
        clock = Clock()
        done, given_up = in_threads(transfer, THREADS, TRANSFERS)
        taken = clock.taken()
        balance = db[Account].get(2).balance
    require_sum(balance, done)
    return Measured(*taken, Outcome(done, given_up, len(runs)))


def require_sum(balance: int, done: int) -> None:
    """Refuse a run whose transfers were lost or stored twice."""
    if balance != done:
        raise SystemExit(f"{done} transfers were reported, and the balance says {balance}")


# --- written by hand ----------------------------------------------------------------------------------------------


def connected(path: str, durability: Durability) -> sqlite3.Connection:
    """A connection with the settings of the engine of kvmodels."""
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'commit' else 'NORMAL'}").fetchall()
    return connection


def transfer_by_hand(connection: sqlite3.Connection) -> None:
    """Two reads and two writes under the lock of the writer."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        payer = connection.execute("SELECT balance FROM accounts WHERE id = 1").fetchone()[0]
        payee = connection.execute("SELECT balance FROM accounts WHERE id = 2").fetchone()[0]
        connection.execute("UPDATE accounts SET balance = ? WHERE id = 1", (payer - 1,))
        connection.execute("UPDATE accounts SET balance = ? WHERE id = 2", (payee + 1,))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def floor_in_threads(path: str, durability: Durability, threads: int, each: int) -> tuple[int, int]:
    """A connection for each thread."""
    local = threading.local()

    def transfer() -> None:
        if not hasattr(local, "connection"):
            local.connection = connected(path, durability)
        transfer_by_hand(local.connection)

    return in_threads(transfer, threads, each)


def floor_set_up(path: str, durability: Durability) -> None:
    """The table, with the two accounts."""
    with closing(connected(path, durability)) as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER)")
        connection.execute("INSERT INTO accounts VALUES (1, 'ada', ?), (2, 'bob', 0)", (OPENING_BALANCE,))


def floor_balance(path: str, durability: Durability) -> int:
    """Return the balance of the second account."""
    with closing(connected(path, durability)) as connection:
        balance: int = connection.execute("SELECT balance FROM accounts WHERE id = 2").fetchone()[0]
    return balance


async def floor_in_tasks(path: str, durability: Durability, tasks: int) -> None:
    """One connection; the tasks queue for it."""
    lock = asyncio.Lock()
    with closing(await asyncio.to_thread(sqlite3_in_any_thread, path, durability)) as connection:

        async def transfer() -> None:
            async with lock:
                await asyncio.to_thread(transfer_by_hand, connection)

        await asyncio.gather(*(transfer() for _ in range(tasks)))


def sqlite3_in_any_thread(path: str, durability: Durability) -> sqlite3.Connection:
    """The same connection, for whichever thread is free."""
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'commit' else 'NORMAL'}").fetchall()
    return connection


# --- crowds -------------------------------------------------------------------------------------------------------


def place_of(store: str, folder: Path) -> str:
    """The URL of a new store, or the path of the file of the floor."""
    if store == "memory":
        return "memory://"
    return f"lmdb:///{folder / 'store'}" if store == "lmdb" else str(folder / "store.db")


def measured(store: str, crowd: str, durability: Durability, folder: Path) -> Measured:
    """One crowd on one new store."""
    place = place_of(store, folder)
    if crowd == "processes":
        return in_processes(store, place, durability)
    if store not in FLOORS:
        return asyncio.run(in_tasks(place, durability, TASKS)) if crowd == "tasks" else threads_on(place, durability)
    floor_set_up(place, durability)
    clock = Clock()
    if store == "queued":
        asyncio.run(floor_in_tasks(place, durability, TASKS))
        done = TASKS
    else:
        threads, each = (TASKS, 1) if crowd == "tasks" else (THREADS, TRANSFERS)
        done, _ = floor_in_threads(place, durability, threads, each)
    taken = clock.taken()
    require_sum(floor_balance(place, durability), done)
    return Measured(*taken, Outcome(done, 0, done))


def in_processes(store: str, place: str, durability: Durability) -> Measured:
    """Threads of several processes, which begin together."""
    if store == "floor":
        floor_set_up(place, durability)
    else:
        with Database(place, models=[Account], durability=durability) as db:
            db[Account].create(id=1, owner="ada", balance=OPENING_BALANCE)
            db[Account].create(id=2, owner="bob")
    command = [sys.executable, "-m", "benchmarks.contention", "--worker", store, place, durability]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()  # it is ready
        began = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        reports = [json.loads(worker.communicate(timeout=PATIENCE_S)[0]) for worker in workers]
        seconds = time.perf_counter() - began
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    *counts, processor = (sum(column) for column in zip(*reports, strict=True))
    outcome = Outcome(*counts)
    require_sum((floor_balance if store == "floor" else balance_of)(place, durability), outcome.done)
    return Measured(seconds, processor, outcome)


def work(store: str, place: str, durability: Durability) -> None:
    """One process of a crowd: its threads begin when it is told to."""
    runs: list[int] = []
    if store == "floor":
        connected(place, durability).close()
        print("ready", flush=True)
        sys.stdin.readline()
        clock = Clock()
        done, given_up = floor_in_threads(place, durability, THREADS_OF_A_PROCESS, TRANSFERS)
    else:
        with Database(place, models=[Account], durability=durability) as db:
            transfer = transfers_of(db, runs)
            db[Account].get(1)
            print("ready", flush=True)
            sys.stdin.readline()
            clock = Clock()
            done, given_up = in_threads(transfer, THREADS_OF_A_PROCESS, TRANSFERS)
    print(json.dumps([done, given_up, len(runs) or done, clock.taken()[1]]), flush=True)


def main(said: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.contention", description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    asked.add_argument("--crowds", nargs="+", choices=CROWDS, default=CROWDS)
    asked.add_argument("--durability", choices=["commit", "relaxed"], default="commit")
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args(said)
    if given.worker:
        work(*given.worker)
        return
    print(f"durability={given.durability!r}, medians of {given.rounds} rounds")
    print(
        f"{'crowd':10} {'store':7} {'done':>6} {'given up':>8} {'runs each':>9} {'per second':>10} {'processor ms':>12}"
    )
    for crowd in given.crowds:
        stores = [store for store in given.stores if crowd in CROWDS_OF.get(store, CROWDS)]
        taken: dict[str, list[Measured]] = {store: [] for store in stores}
        for _ in range(given.rounds):
            for store in stores:
                with tempfile.TemporaryDirectory(prefix="kvmodels-bench-") as folder:
                    taken[store].append(measured(store, crowd, given.durability, Path(folder)))
        for store, rounds in taken.items():
            done = sum(one.outcome.done for one in rounds)
            given_up = sum(one.outcome.given_up for one in rounds)
            runs = sum(one.outcome.runs for one in rounds) / (done + given_up)
            speed = statistics.median(one.outcome.done / one.seconds for one in rounds)
            used = 1_000 * statistics.median(one.processor / one.outcome.done for one in rounds)
            load = os.getloadavg()[0]
            print(
                f"{crowd:10} {store:7} {done:6} {given_up:8} {runs:9.2f} {speed:10.0f} {used:12.2f}  load {load:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
