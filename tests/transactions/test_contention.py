"""Transactions over the same records all finish: counts, and nothing about time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from kvmodels import (
    AsyncDatabase,
    AsyncTransaction,
    Database,
    RetriesExhaustedError,
    RetryPolicy,
    Transaction,
)
from kvmodels._support import turns as module
from kvmodels._support.turns import Ticket, Turns
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite
from kvmodels.flows.transaction import commit as rerunning
from tests.engines.interrupting import cut_short_at
from tests.transactions.contention import PATIENCE_S, found, in_processes, in_tasks, in_threads, opened
from tests.transactions.models import Account, Member
from tests.worlds import ONE_FILE

ENGINES = pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
FILES = pytest.mark.parametrize("engine", ONE_FILE)
QUICK = RetryPolicy(deadline_s=0.05)


def everlasting() -> Turns:
    """Turns that never lapse: whoever waits for one that is not given back waits until his deadline."""
    return Turns(lambda: 0.0)


# --- everybody finishes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "tasks"), [("memory", 300), ("sqlite", 60), ("lmdb", 60)])
async def test_all_tasks_that_transfer_between_two_accounts_succeed_by_default(url_of, engine, tasks):
    # A turn lapses after a second, so that one who waits for others does not keep them waiting; here nobody does.
    done, errors, runs = await in_tasks(url_of(engine), tasks, everlasting())
    assert (done, errors) == (tasks, [])
    assert runs <= 2 * tasks, "a first run, and one with the turn"


@pytest.mark.parametrize(("engine", "threads", "each"), [("memory", 40, 10), ("sqlite", 12, 6), ("lmdb", 12, 6)])
def test_all_threads_that_transfer_between_two_accounts_succeed_by_default(url_of, engine, threads, each):
    with opened(url_of(engine)) as db:
        found(db)
        crowded = in_threads(db, threads, each)
        assert (crowded.done, crowded.errors) == (threads * each, [])
        assert [account.balance for account in db[Account]] == [-crowded.done, crowded.done]


def processes_transfer(url: str, processes: int, threads: int, each: int) -> None:
    with opened(url) as db:
        found(db)
        done = in_processes(url, processes, threads, each)
        assert done == [threads * each] * processes
        assert [account.balance for account in db[Account]] == [-sum(done), sum(done)]


@FILES
@pytest.mark.servers
def test_all_threads_of_all_processes_that_transfer_succeed_by_default(url_of, engine):
    processes_transfer(url_of(engine), processes=2, threads=4, each=5)


@pytest.mark.soak
@ENGINES
async def test_three_hundred_tasks_transfer(url_of, engine):
    crowded = await in_tasks(url_of(engine), 300, everlasting())
    assert (crowded.done, crowded.errors) == (300, [])


@pytest.mark.soak
@ENGINES
def test_forty_threads_transfer(url_of, engine):
    with opened(url_of(engine)) as db:
        found(db)
        crowded = in_threads(db, 40, 25)
        assert (crowded.done, crowded.errors) == (1_000, [])


@pytest.mark.soak
@FILES
def test_four_processes_of_eight_threads_transfer(url_of, engine):
    processes_transfer(url_of(engine), processes=4, threads=8, each=25)


# --- the order, and who waits -----------------------------------------------------------------------------------------


@pytest.fixture
def db():
    with Database("memory://", models=[Account, Member], retry=RetryPolicy(deadline_s=PATIENCE_S)) as db:
        for number in range(1, 6):
            db[Account].create(id=number)
        db._core.context.turns = everlasting()
        yield db


@pytest.fixture
async def adb():
    async with AsyncDatabase("memory://", models=[Account], retry=RetryPolicy(deadline_s=PATIENCE_S)) as db:
        for number in range(1, 6):
            await db[Account].create(id=number)
        db._core.context.turns = everlasting()
        yield db


async def increments_in_order(adb: AsyncDatabase) -> list[int]:
    """Tasks whose first runs all meet, the last of which is stored at once; the order in which they are stored."""
    stored: list[int] = []
    all_have_read = asyncio.Event()
    reading: list[int] = []

    @adb.transactional()
    async def increment(tx: AsyncTransaction, number: int) -> None:
        account = await tx[Account].get(1)
        account.balance += 1
        reading.append(number)
        if len(reading) == 20:
            all_have_read.set()
        await all_have_read.wait()
        await asyncio.sleep(0)
        await tx[Account].save(account)
        tx.on_commit(lambda: stored.append(number))

    await asyncio.gather(*(increment(number) for number in range(20)))
    return stored


IN_ORDER = [19, *range(19)]


async def test_turns_are_taken_in_the_order_of_the_calls(adb):
    assert await increments_in_order(adb) == IN_ORDER
    assert (await adb[Account].get(1)).balance == 20


def conflicting(db: Database, key: int, runs: list[int]) -> Callable[[], None]:
    """A call whose first run is beaten by another writer."""

    @db.transactional()
    def increment(tx: Transaction) -> None:
        account = tx[Account].get(key)
        runs.append(1)
        if len(runs) == 1:
            db[Account].patch(key, balance=100)
        account.balance += 1
        tx[Account].save(account)

    return increment


def held(db: Database | AsyncDatabase, *keys: int) -> Ticket:
    """A turn of another writer for some accounts."""
    ticket = db._core.context.turns.ticket()
    ticket.alive.acquire()
    ticket.join([encode_key(("accounts", key)) for key in keys])
    assert ticket.granted
    return ticket


def test_a_transaction_of_other_keys_waits_for_nobody(db):
    holder = held(db, 2)
    runs: list[int] = []
    conflicting(db, 1, runs)()
    assert (len(runs), holder.granted) == (2, True)


def test_a_transaction_that_only_reads_waits_for_nobody(db):
    held(db, 1)

    @db.transactional()
    def balance(tx: Transaction) -> int:
        return tx[Account].get(1).balance

    assert balance() == 0


def test_a_schema_change_costs_a_run_and_waits_for_nobody(tmp_path):
    runs: list[int] = []
    path = tmp_path / "store.db"
    with Database(path, models=[Member]) as db, Database(path, models=[Member]) as other:
        db[Member].create(id=1)

        @db.transactional()
        def renamed(tx: Transaction) -> None:
            tx[Member].patch(1, team="blue")
            runs.append(1)
            if len(runs) == 1:
                other.drop_index(Member, "ranking")

        renamed()
        assert (len(runs), db[Member].get(1).team) == (2, "blue")


def test_a_block_is_one_attempt_and_waits_for_nobody(db):
    held(db, 1)
    with db.transaction() as tx:
        tx[Account].patch(1, balance=7)
    assert db[Account].get(1).balance == 7


def first_run_beside_a_turn() -> tuple[int, list[str]]:
    """The balance, and how far a function came whose key another transaction has a turn for."""
    reached: list[str] = []
    with Database("memory://", models=[Account], retry=QUICK) as db:
        db[Account].create(id=1)
        held(db, 1)

        @db.transactional()
        def increment(tx: Transaction) -> None:
            account = tx[Account].get(1)
            account.balance += 1
            reached.append("read")
            tx[Account].save(account)
            reached.append("saved")

        with suppress(RetriesExhaustedError):
            increment()
        return db[Account].get(1).balance, reached


def test_a_first_run_leaves_the_keys_to_the_transaction_whose_turn_it_is():
    assert first_run_beside_a_turn() == (0, ["read"]), "it ends where it writes, and waits"


def beside_a_turn(db: Database, function: Callable[[Transaction], object]) -> list[str]:
    """How far the second call of a function comes that meets the turn of another transaction."""
    reached: list[str] = []

    @db.transactional(retries=0)
    def called(tx: Transaction) -> None:
        tx[Account].get(1)
        reached.append("read")
        function(tx)

    called()
    reached.clear()
    held(db, 1)
    with suppress(RetriesExhaustedError):
        called()
    return reached


def test_a_run_ends_where_it_reads_a_key_of_another_turn_if_the_last_run_has_written(db):
    assert beside_a_turn(db, lambda tx: tx[Account].patch(2, balance=7)) == []


def test_a_run_reads_a_key_of_another_turn_if_the_last_run_has_only_read(db):
    assert beside_a_turn(db, lambda tx: None) == ["read"]


def turns_at_the_commit(monkeypatch: pytest.MonkeyPatch, db: Database, change: Callable[[Transaction], object]) -> bool:
    """Whether a function that comes to the first account while another one is being committed waits for it."""
    turns = db._core.context.turns
    taken: list[list[bytes]] = []
    engine = db._engine
    commit = type(engine).commit

    def committing(self: object, write: AtomicWrite) -> object:
        other = turns.ticket()
        with other.alive:
            taken.append(other.taken([encode_key(("accounts", 1))]))
        return commit(engine, write)

    monkeypatch.setattr(type(engine), "commit", committing)
    db.transactional(retries=0)(change)()
    require_free(db)
    return bool(taken[0])


def test_a_commit_has_the_turn_for_the_records_that_it_replaces(monkeypatch, db):
    assert turns_at_the_commit(monkeypatch, db, lambda tx: tx[Account].patch(1, balance=7))


def test_a_commit_has_no_turn_for_records_that_it_has_only_read(monkeypatch, db):
    def change(tx: Transaction) -> None:
        tx[Account].get(1)
        tx[Account].patch(2, balance=7)

    assert not turns_at_the_commit(monkeypatch, db, change)


def test_waiting_for_a_turn_ends_with_the_deadline():
    # Longer than the other writer waits for the turn.
    with Database("memory://", models=[Account], retry=RetryPolicy(deadline_s=2)) as db:
        db[Account].create(id=1)
        db._core.context.turns = everlasting()
        held(db, 1)
        runs: list[int] = []
        with pytest.raises(RetriesExhaustedError, match="every run") as caught:
            conflicting(db, 1, runs)()
        assert caught.value.attempts == 2
        assert "deadline" in str(caught.value.hint)
        assert len(runs) == 1


def test_the_number_of_runs_is_that_of_the_retry_policy():
    policy = RetryPolicy(attempts=7, initial_s=0)
    for retries, most in ((None, 7), (3, 4), (0, 1)):
        with Database("memory://", models=[Account], retry=policy) as db:
            db[Account].create(id=1)
            runs: list[int] = []

            @db.transactional(retries)
            def beaten(tx: Transaction, db: Database = db, runs: list[int] = runs) -> None:
                runs.append(1)
                account = tx[Account].get(1)
                db[Account].patch(1, balance=len(runs))
                tx[Account].save(account)

            with pytest.raises(RetriesExhaustedError) as caught:
                beaten()
            assert (len(runs), caught.value.attempts) == (most, most)
    assert RetryPolicy().attempts == 50


# --- no turn stays behind ---------------------------------------------------------------------------------------------


def require_free(db: Database | AsyncDatabase) -> None:
    """Nobody has a turn any more, and nobody waits."""
    assert not db._core.context.turns.queues


def test_an_exception_of_the_function_gives_the_turn_back(db):
    class InsufficientFundsError(Exception):
        pass

    runs: list[int] = []

    @db.transactional()
    def failing(tx: Transaction) -> None:
        account = tx[Account].get(1)
        runs.append(1)
        if len(runs) == 2:
            raise InsufficientFundsError
        db[Account].patch(1, balance=1)
        tx[Account].save(account)

    with pytest.raises(InsufficientFundsError):
        failing()
    require_free(db)


def test_functions_after_the_commit_run_without_the_turn(db):
    runs: list[int] = []
    seen: list[dict[bytes, list[Ticket]]] = []
    increment = conflicting(db, 1, runs)

    @db.transactional()
    def told(tx: Transaction) -> None:
        increment()
        tx.on_commit(lambda: seen.append(dict(db._core.context.turns.queues)))

    told()
    assert (seen, len(runs)) == ([{}], 2)


def test_a_joined_transaction_takes_its_turn_with_the_outer_one(db):
    inner: list[int] = []
    outer: list[int] = []
    increment = conflicting(db, 1, inner)

    @db.transactional()
    def together(tx: Transaction) -> None:
        outer.append(1)
        increment()
        tx[Account].patch(2, balance=len(outer))

    together()
    assert (len(inner), len(outer)) == (2, 2), "the whole is run again, and the inner function not by itself"
    assert [account.balance for account in db[Account]][:2] == [101, 2]
    require_free(db)


def test_functions_that_conflict_on_other_keys_in_each_run_do_not_wait_for_each_other_for_ever(db):
    """One wants the accounts upwards, the other downwards; every run is beaten on one account more."""
    done: list[list[int]] = []

    def wandering(order: list[int]) -> Callable[[], None]:
        runs: list[int] = []

        @db.transactional()
        def walk(tx: Transaction) -> None:
            runs.append(1)
            accounts = [tx[Account].get(key) for key in order[: len(runs)]]
            if len(runs) < len(order):
                db[Account].patch(order[len(runs) - 1], balance=len(runs))
            both.wait()
            for account in accounts:
                account.balance += 10
                tx[Account].save(account)
            done.append(order[: len(runs)])

        return walk

    both = threading.Event()
    walks = [wandering([1, 2, 3, 4]), wandering([4, 3, 2, 1])]
    threads = [threading.Thread(target=walk) for walk in walks]
    for thread in threads:
        thread.start()
    both.set()
    for thread in threads:
        thread.join()
    assert [1, 2, 3, 4] in done
    assert [4, 3, 2, 1] in done
    require_free(db)


def test_a_function_that_waits_for_another_call_on_its_keys_goes_on_when_its_turn_lapses(monkeypatch, db):
    """A clock that runs fast, so that nobody waits here."""
    monkeypatch.setattr(module, "RECHECK_S", 0.001)
    ticks = iter(range(1_000_000))
    db._core.context.turns = Turns(lambda: next(ticks) * module.LAPSE_S / 4)
    runs: list[int] = []

    @db.transactional()
    def increment(tx: Transaction) -> None:
        account = tx[Account].get(1)
        account.balance += 1
        tx[Account].save(account)

    @db.transactional()
    def waiting(tx: Transaction) -> None:
        runs.append(tx[Account].get(1).balance)
        if len(runs) < 3:
            thread = threading.Thread(target=increment)
            thread.start()
            thread.join()
        tx[Account].patch(1, balance=10)

    waiting()
    assert runs == [0, 1, 2]


async def cancelled_after(adb: AsyncDatabase, pauses: int, victim: int) -> bool:
    """Five increments that meet; one of them is cancelled after some turns of the loop. Whether it was."""

    @adb.transactional()
    async def increment(tx: AsyncTransaction) -> None:
        account = await tx[Account].get(1)
        account.balance += 1
        await asyncio.sleep(0)
        await tx[Account].save(account)
        await asyncio.sleep(0)

    tasks = [asyncio.create_task(increment()) for _ in range(5)]
    for _ in range(pauses):
        await asyncio.sleep(0)
    before = tasks[victim].done()
    tasks[victim].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    others = [answer for number, answer in enumerate(answers) if number != victim]
    assert others == [None] * 4, f"cancelled after {pauses} turns of the loop"
    return not before


@pytest.mark.parametrize("victim", range(5))
async def test_nobody_waits_for_a_task_that_was_cancelled_wherever_that_was(adb, victim):
    pauses = 0
    while await cancelled_after(adb, pauses, victim):
        pauses += 1
        require_free(adb)
    assert pauses > 2


SPARED = "with self._lock"
MODULES = {module.__file__, rerunning.__file__}


def test_an_interrupt_at_any_line_of_a_call_gives_the_turn_back():
    """Lines of everything that has to do with turns: first run, queue, second run, end."""
    line, interrupted = 0, True
    with Database("memory://", models=[Account]) as db:
        while interrupted:
            line += 1
            db[Account].save(Account(id=1), force=True)
            turns = db._core.context.turns = everlasting()
            runs: list[int] = []
            interrupted = cut_short_at(line, MODULES, conflicting(db, 1, runs), spared=SPARED)
            other = held(db, 1)
            assert other.look(), f"interrupted at line {line}"
            other.leave()
            other.alive.release()
            assert not turns.queues
    assert line > 60


# --- mutants ----------------------------------------------------------------------------------------------------------


def turns_stay_behind(patch: pytest.MonkeyPatch) -> None:
    """``leave`` does nothing, and the lock of a ticket says nothing."""
    patch.setattr(Ticket, "leave", lambda self: None)
    real = Turns.ticket

    def kept(self: Turns) -> Ticket:
        ticket = real(self)

        class Always:
            def __enter__(self) -> None: ...
            def __exit__(self, *_: object) -> None: ...
            def locked(self) -> bool:
                return True

        ticket.alive = Always()  # type: ignore[assignment]
        return ticket

    patch.setattr(Turns, "ticket", kept)


def newcomers_go_first(patch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(0, -1_000_000, -1))
    patch.setattr(Turns, "ticket", lambda self: Ticket(self, next(numbers)))


def turns_are_given_to_all(patch: pytest.MonkeyPatch) -> None:
    def join(self: Turns, ticket: Ticket, keys: object) -> None:
        ticket.granted = True

    patch.setattr(Turns, "join", join)


def turns_are_not_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ticket, "taken", lambda self, keys: [])


def commits_take_no_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rerunning.Rerun, "prepared", lambda self, write: None)


def nobody_is_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "RECHECK_S", 60.0)
    patch.setattr(Ticket, "__setattr__", lambda self, name, value: _set_all_but_wake(self, name, value))


def _set_all_but_wake(ticket: Ticket, name: str, value: object) -> None:
    object.__setattr__(ticket, name, (lambda: None) if name == "wake" else value)


MUTANTS = [turns_stay_behind, turns_are_given_to_all, nobody_is_woken]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
async def test_tasks_convict_a_mutant(url_of, monkeypatch, mutant):
    mutant(monkeypatch)
    done, errors, runs = await in_tasks(url_of("memory"), 60, everlasting(), RetryPolicy(deadline_s=0.5, initial_s=0))
    assert errors or runs > 120 or done < 60


async def test_the_order_of_calls_convicts_queues_that_are_not_fair(monkeypatch, adb):
    newcomers_go_first(monkeypatch)
    assert await increments_in_order(adb) != IN_ORDER


def test_a_first_run_convicts_transactions_that_take_turns_away(monkeypatch):
    turns_are_not_left_alone(monkeypatch)
    assert first_run_beside_a_turn() == (1, ["read", "saved"])


def test_a_commit_convicts_transactions_that_take_no_turn_for_it(monkeypatch, db):
    commits_take_no_turn(monkeypatch)
    assert not turns_at_the_commit(monkeypatch, db, lambda tx: tx[Account].patch(1, balance=7))


async def test_cancelled_tasks_convict_turns_that_stay_behind(monkeypatch):
    turns_stay_behind(monkeypatch)
    async with AsyncDatabase("memory://", models=[Account], retry=QUICK) as db:
        await db[Account].create(id=1)
        db._core.context.turns = everlasting()
        with pytest.raises(AssertionError, match="cancelled after"):
            for pauses in range(20):
                await cancelled_after(db, pauses, 1)
