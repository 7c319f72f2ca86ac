"""Interrupts and cancellation at each step of a repository write: whole or absent, no lock, no transaction left."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Field, Indexed, KvModel, PrimaryKey, Unique
from tests.engines.processes import finish, start

# Python itself swallows an exception that a signal raises inside of a finalizer or of the callback of a weak reference,
# and pytest reports that.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")


class Account(KvModel, collection="accounts"):
    """Every change of ``n`` changes a slot, an entry and a copy."""

    id: PrimaryKey[int]
    n: int
    slot: Unique[str]
    parity: Indexed[str]
    note: str = Field(default="")


def values(n: int) -> dict[str, Any]:
    return {"n": n, "slot": f"slot-{n}", "parity": "even" if n % 2 == 0 else "odd"}


def change_to(n: int) -> Callable[[Account], None]:
    def change(account: Account) -> None:
        for name, value in values(n).items():
            setattr(account, name, value)

    return change


def require_whole(db: Database, path: Path | None) -> None:
    """The store is clean, and nobody holds its write lock."""
    report = db.check()
    assert report.ok, report
    if path is not None:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.rollback()


def interrupted(seconds: float, call: Callable[[], Any]) -> bool:
    """Whether a real signal after some seconds came before the end of the call: KeyboardInterrupt, wherever that is.

    Raising from a trace function at each line was rejected: it also raises between the body of a ``with`` and its
    ``__exit__``, where the interpreter takes no signals.
    """

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False


STEPS: dict[str, Callable[[Any, int], Any]] = {
    "create": lambda users, n: users.create(id=n, **values(n)),
    "mutate": lambda users, n: users.mutate(0, change_to(n)),
    "patch": lambda users, n: users.patch(0, **values(n)),
    "save": lambda users, n: users.save(users.get(0).model_copy(update=values(n))),
    "remove": lambda users, n: users.remove(n - 1),
    "bulk_create": lambda users, n: users.bulk_create([Account(id=n, **values(n)), Account(id=-n, **values(-n))]),
}

RECORDS_AFTER = {"create": 1, "remove": -1, "bulk_create": 2}


def interrupt_everywhere(url: str | Path, verb: str, moments: int) -> int:
    """Interrupt one verb a little later in each round; how many rounds were interrupted."""
    path = url if isinstance(url, Path) else None
    interrupts = 0
    with Database(url, models=[Account], durability="relaxed") as db:
        accounts = db[Account]
        accounts.create(id=0, **values(0))
        for n in range(1, moments + 1):
            if verb == "remove":
                accounts.save(Account(id=n - 1, **values(n - 1)), force=True)
            count, before = accounts.count(), accounts.get_or_none(0)
            interrupts += interrupted(1e-6 + LONGEST_S[path is None] * n / moments, partial(STEPS[verb], accounts, n))
            require_whole(db, path)
            assert accounts.count() in (count, count + RECORDS_AFTER.get(verb, 0))
            after = accounts.get_or_none(0)
            if verb not in RECORDS_AFTER:
                assert before is not None
                assert after is not None
                assert {**before.model_dump(), **values(after.n)} == after.model_dump()
                assert after.n in (before.n, n)
            if verb in ("create", "bulk_create"):
                # Each round checks the whole store, which is to stay small.
                accounts.remove(n)
                accounts.remove(-n)
    return interrupts


LONGEST_S = {False: 0.001, True: 0.000_3}
"""A write takes less, on SQLite and in memory; the last rounds are not interrupted."""


@pytest.mark.parametrize("verb", STEPS)
def test_review_22_an_interrupt_at_any_moment_of_a_write_leaves_it_whole_or_absent(tmp_path, verb):
    interrupts = interrupt_everywhere(tmp_path / "app.db", verb, 80)
    print(f"{verb}: {interrupts} of 80 writes interrupted")
    assert interrupts >= 5
    with Database(tmp_path / "app.db", models=[Account]) as db:
        assert db.check().ok
        assert db[Account].save(Account(id=-99, **values(-99)), force=True).pk == -99


@pytest.mark.parametrize("verb", STEPS)
def test_an_interrupt_at_any_moment_of_a_write_in_memory_leaves_it_whole_or_absent(verb):
    assert interrupt_everywhere("memory://", verb, 80) >= 5


@pytest.mark.soak
@pytest.mark.parametrize("verb", STEPS)
def test_an_interrupt_at_very_many_moments_of_a_write(tmp_path, verb):
    print(f"{verb}: {interrupt_everywhere(tmp_path / 'app.db', verb, 2_000)} of 2,000 on SQLite")
    print(f"{verb}: {interrupt_everywhere('memory://', verb, 2_000)} of 2,000 in memory")


INTERRUPTED_WRITER = """
    import json, signal, sys
    from kvmodels import Database
    from tests.robustness.test_interrupts import Account, change_to, values
    # A shell starts jobs in the background with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    acknowledged, interrupted, n = 0, 0, 0
    with Database(sys.argv[1], models=[Account], durability="relaxed") as db:
        db[Account].create(id=0, **values(0))
        while interrupted < int(sys.argv[2]):
            try:
                # From here on every signal is caught, and only one comes until the next of these lines.
                print("working", flush=True)
                while True:
                    n += 1
                    db[Account].mutate(0, change_to(n))
                    db[Account].create(id=n, **values(1_000_000 + n))
                    acknowledged = n
            except KeyboardInterrupt:
                interrupted += 1
        clean = db.check().ok
    print(json.dumps([acknowledged, interrupted, clean]), flush=True)
"""


def real_signals(path: Path, count: int, seed: int) -> None:
    writer = start(INTERRUPTED_WRITER, path, count)
    assert writer.stdout is not None
    moments = random.Random(seed)
    for _ in range(count):
        assert writer.stdout.readline() == "working\n"
        # Sleep a moment of the writer's work, so that the signals fall on different steps of it.
        signal_after = moments.uniform(0, 0.003)
        asyncio.run(asyncio.sleep(signal_after))
        writer.send_signal(signal.SIGINT)
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.rollback()
    # Not communicate() for this: it does not see what readline() has read ahead.
    acknowledged, interrupted, clean = json.loads(writer.stdout.readline())
    finish(writer)
    print(f"seed {seed}: {interrupted} interrupts, {acknowledged} rounds acknowledged")
    assert interrupted == count
    assert clean
    with Database(path, models=[Account]) as db:
        assert db.check().ok
        assert db[Account].get(0).n >= acknowledged
        assert acknowledged == 0 or db[Account].get(acknowledged).n == 1_000_000 + acknowledged
        db[Account].create(id=-1, **values(-1))


@pytest.mark.servers
def test_review_22_real_signals_at_many_moments_leave_a_clean_file(tmp_path):
    real_signals(tmp_path / "app.db", 40, seed=20_260_705)


@pytest.mark.soak
def test_real_signals_at_very_many_moments_leave_a_clean_file(tmp_path):
    for seed in range(10):
        real_signals(tmp_path / f"{seed}.db", 100, seed)


async def turns_for(seconds: float) -> None:
    """Let the loop turn for a while. Not a sleep: that takes a millisecond at least, and a commit may take less."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        await asyncio.sleep(0)


async def cancel_at_each_step(url: str | Path, verb: str, moments: int) -> tuple[int, int]:
    """Cancel one verb after more and more turns of the loop, then after longer and longer times."""
    cancelled = finished = 0
    with Database(url, models=[Account], durability="relaxed") as judge:
        async with AsyncDatabase(url, models=[Account], durability="relaxed") as db:
            accounts = db[Account]
            await accounts.create(id=0, **values(0))
            for n in range(1, moments + 1):
                if verb == "remove":
                    await accounts.save(Account(id=n - 1, **values(n - 1)), force=True)
                count, before = judge[Account].count(), judge[Account].get_or_none(0)
                task = asyncio.ensure_future(ASYNC_STEPS[verb](accounts, n))
                if n <= moments // 2:
                    for _ in range(n):
                        await asyncio.sleep(0)
                else:
                    await turns_for((n - moments // 2) * 0.000_015)
                task.cancel()
                try:
                    await task
                    finished += 1
                except asyncio.CancelledError:
                    cancelled += 1
                require_whole(judge, url if isinstance(url, Path) else None)
                assert judge[Account].count() in (count, count + RECORDS_AFTER.get(verb, 0))
                after = judge[Account].get_or_none(0)
                assert verb in RECORDS_AFTER or (before and after and after.n in (before.n, n))
    return cancelled, finished


async def save_changed(accounts: Any, n: int) -> Any:
    found = await accounts.get(0)
    return await accounts.save(found.model_copy(update=values(n)))


ASYNC_STEPS = {**STEPS, "save": save_changed}


@pytest.mark.parametrize("verb", STEPS)
async def test_review_22_cancelling_an_asynchronous_write_at_any_step_leaves_it_whole_or_absent(tmp_path, verb):
    cancelled, finished = await cancel_at_each_step(tmp_path / "app.db", verb, 40)
    print(f"{verb}: {cancelled} cancelled, {finished} finished before")
    assert cancelled > 0, "the first ones are cancelled before they can have come to their commit"


@pytest.mark.parametrize("verb", STEPS)
async def test_cancelling_an_asynchronous_write_in_memory_leaves_it_whole_or_absent(verb):
    await cancel_at_each_step(f"memory://cancel-{verb}", verb, 20)


async def test_a_caller_learns_from_the_cancellation_whether_its_write_was_applied(tmp_path):
    """Cancelled while the commit is on its way: the object keeps its state, or has the new one; never half."""
    notes: set[str] = set()
    async with AsyncDatabase(tmp_path / "app.db", models=[Account], durability="relaxed") as db:
        account = await db[Account].create(id=0, **values(0))
        for n in range(1, 60):
            before = (account.n, account.versionstamp)
            account.n = n
            task = asyncio.ensure_future(db[Account].save(account))
            await turns_for(n * 0.000_01)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                notes.update(getattr(error, "__notes__", []))
                assert account.versionstamp == before[1]
                await db[Account].refresh(account)
                assert account.n in (before[0], n)
        assert (await db.check()).ok
    print(f"notes seen: {sorted(notes)}")
