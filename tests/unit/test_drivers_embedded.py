"""The asynchronous driver on embedded engines: no thread for a task that waits, none for a read that does not."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvmodels import AsyncDatabase, KvModel, PrimaryKey, Unique, open_async_kv
from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Set,
    point,
)
from kvmodels.engines.contract import SMALL_READ
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.shared.group_commit import Group, GroupCommitter
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ClosedError, InvalidValueError
from kvmodels.flows.effects import AnyFlow, Flow, Lookup, OneLookup, commit, read, steps_of
from kvmodels.runtime import event_loop as drivers_async
from kvmodels.runtime import threads as drivers_threads
from kvmodels.runtime.event_loop import aclose, apin, arelease, arun
from kvmodels.runtime.sync import run
from kvmodels.runtime.threads import READS_AT_ONCE, EngineThreads, threads_of
from tests.engines.test_sqlite_full_disk import FailingConnection, failing

TASKS = 1_000


@pytest.fixture(params=["sqlite", "sqlite-memory", "lmdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, quick_folder: Path) -> Iterator[Any]:
    opened: SqliteEngine | LmdbEngine
    options: dict[str, Any] = {"clock": lambda: 1_700_000_000_000}  # and so nothing is swept meanwhile
    if request.param == "lmdb":
        opened = LmdbEngine(quick_folder / "store.lmdb", **options)
    else:
        opened = SqliteEngine(":memory:" if request.param == "sqlite-memory" else tmp_path / "store.db", **options)
    yield opened
    opened.close()


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of operations in every transaction of a group, as they go."""
    sizes: list[int] = []
    original = Group.run

    def counted(self: Group, transaction: Any) -> bool:
        applied = original(self, transaction)
        sizes.append(len(self.members))
        return applied

    monkeypatch.setattr(Group, "run", counted)
    return sizes


def put(key: bytes, value: bytes = b"v", *checks: Check) -> AtomicWrite:
    return AtomicWrite(checks, (Set(key, value, 3),))


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


# --- commits --------------------------------------------------------------------------------------------------------


async def test_a_thousand_tasks_wait_for_their_commits_without_a_thread_each(engine, transactions: list[int]):
    """The gain is not measured but counted: one fsync for a transaction."""
    before = threading.active_count()
    most = 0

    async def task(number: int) -> Committed | Conflict:
        nonlocal most
        outcome = await arun(engine, commit(put(b"k%04d" % number)))
        most = max(most, threading.active_count())
        return outcome

    outcomes = await asyncio.gather(*(task(number) for number in range(TASKS)))
    assert most <= before + 1
    stamps = [outcome.versionstamp for outcome in outcomes if isinstance(outcome, Committed)]
    assert stamps == sorted(set(stamps)), "in the order in which they came"
    assert len(stamps) == TASKS
    print(f"{TASKS} commits in {len(transactions)} transactions: {transactions}")
    assert len(transactions) <= TASKS / 10
    assert len(engine.read([ReadRange(b"k", b"l")]).ranges[0]) == TASKS


async def test_tasks_that_share_a_transaction_get_answers_of_their_own(engine):
    def flow(number: int) -> Flow[Any]:
        if number % 3 == 0:
            return commit(put(b"slot", b"%d" % number, Check(b"slot", None)))
        return commit(AtomicWrite((), (Arithmetic("sum", b"text" if number % 3 == 1 else b"n", 1),)))

    await arun(engine, commit(put(b"text")))
    outcomes = await asyncio.gather(*(arun(engine, flow(number)) for number in range(30)), return_exceptions=True)
    assert isinstance(outcomes[0], Committed)
    assert outcomes[3::3] == [Conflict((0,))] * 9
    assert [type(outcome) for outcome in outcomes[1::3]] == [InvalidValueError] * 10
    assert len({id(outcome) for outcome in outcomes[1::3]}) == 10
    assert all(isinstance(outcome, Committed) for outcome in outcomes[2::3])
    assert engine.read([point(b"n")]).ranges[0][0].value == (10).to_bytes(8, "little")


async def test_counters_of_tasks_and_threads_at_once_are_exact(engine):
    async def task() -> None:
        for _ in range(10):
            await arun(engine, commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),))))

    def thread() -> None:
        for _ in range(20):
            engine.commit(AtomicWrite((), (Arithmetic("sum", b"n", 1),)))

    threads = [threading.Thread(target=thread) for _ in range(3)]
    for one in threads:
        one.start()
    await asyncio.gather(*(task() for _ in range(20)))
    for one in threads:
        await asyncio.to_thread(one.join, 30)
    assert engine.read([point(b"n")]).ranges[0][0].value == (260).to_bytes(8, "little")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_cancelling_a_task_in_the_queue_withdraws_its_commit(engine):
    store = engine.check_open()
    with store.write_lock:
        first = asyncio.create_task(arun(engine, commit(put(b"first"))))
        await until(store.write_lock.locked)
        await until(lambda: not store.commits.waiting and store.commits._turn.locked())
        queued = asyncio.create_task(arun(engine, commit(put(b"queued"))))
        await until(lambda: store.commits.waiting)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await queued
    assert notes(caught.value) == ["the commit was not applied: it had not been started"]
    assert isinstance(await first, Committed)
    await arun(engine, commit(put(b"last")))
    assert [row.key for row in engine.read([ReadRange(b"a", b"z")]).ranges[0]] == [b"first", b"last"]


@pytest.mark.parametrize(
    ("write", "note"),
    [
        (put(b"k"), "the commit was applied"),
        (put(b"k", b"v", Check(b"k", bytes(10))), "the commit was not applied: a check failed"),
        (AtomicWrite((), (Arithmetic("sum", b"text", 1),)), "the commit was not applied: [KV502]"),
    ],
    ids=["applied", "conflict", "refused"],
)
async def test_cancelling_a_task_whose_commit_has_been_started_waits_for_it(engine, write: AtomicWrite, note: str):
    await arun(engine, commit(put(b"text")))
    store = engine.check_open()
    events: list[str] = []

    def flow() -> Flow[None]:
        try:
            yield from commit(write)
            events.append("went on")
        finally:
            events.append("finally")

    with store.write_lock:
        task = asyncio.create_task(arun(engine, flow()))
        await until(lambda: store.commits._turn.locked() and not store.commits.waiting)
        for _ in range(2):  # the second one does not break the waiting either
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert len(notes(caught.value)) == 1
    assert notes(caught.value)[0].startswith(note)
    assert events == ["finally"]
    assert isinstance(await arun(engine, commit(put(b"again"))), Committed)


@pytest.mark.parametrize("rounds", range(6))
async def test_cancellation_after_any_number_of_loop_rounds_leaves_each_commit_whole_or_absent(engine, rounds: int):
    tasks = [
        asyncio.create_task(arun(engine, commit(AtomicWrite((), (Set(b"a%d" % n, b"v", 3), Set(b"b%d" % n, b"v", 3))))))
        for n in range(20)
    ]
    for _ in range(rounds):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks)
    outcomes: list[Any] = []
    for task in tasks:
        try:
            outcomes.append(await task)
        except asyncio.CancelledError as cancelled:  # gather() would make a new one, without the notes
            outcomes.append(cancelled)
    found = {row.key: row.versionstamp for row in engine.read([ReadRange(b"a", b"c")]).ranges[0]}
    for n, outcome in enumerate(outcomes):
        assert found.get(b"a%d" % n) == found.get(b"b%d" % n)
        if isinstance(outcome, Committed):
            assert found[b"a%d" % n] == outcome.versionstamp
        elif isinstance(outcome, asyncio.CancelledError) and notes(outcome):
            assert notes(outcome)[0].startswith("the commit was applied") == (b"a%d" % n in found)
        else:
            assert b"a%d" % n not in found, "cancelled before it began"


async def test_closing_carries_out_what_waits_and_refuses_what_comes_later(engine):
    tasks = [asyncio.create_task(arun(engine, commit(put(b"k%d" % n)))) for n in range(20)]
    await asyncio.sleep(0)
    late: list[BaseException] = []
    await aclose(engine)
    try:
        await arun(engine, commit(put(b"late")))
    except ClosedError as error:
        late.append(error)
    assert all(isinstance(outcome, Committed) for outcome in await asyncio.gather(*tasks))
    assert len(late) == 1


async def test_a_closing_that_overtakes_the_queue_is_convicted(engine, monkeypatch: pytest.MonkeyPatch):
    """The control: the operations were put into the queue first, and the thread had not been told of them."""
    monkeypatch.setattr(drivers_async, "closing_threads", threads_of)
    tasks = [asyncio.create_task(arun(engine, commit(put(b"k%d" % n)))) for n in range(3)]
    await asyncio.sleep(0)
    await aclose(engine)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3


def test_one_engine_serves_one_loop_after_another_and_two_at_once(engine):
    for n in range(3):
        assert isinstance(asyncio.run(arun(engine, commit(put(b"k%d" % n)))), Committed)
    outcomes: list[Any] = []

    async def several(who: int) -> None:
        outcomes.extend(await asyncio.gather(*(arun(engine, commit(put(b"t%d-%d" % (who, n)))) for n in range(10))))

    threads = [threading.Thread(target=lambda who=who: asyncio.run(several(who))) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(outcomes)) == 40


@pytest.mark.usefixtures("few_objects")
def test_an_engine_has_its_own_lanes_until_it_is_closed_and_nothing_keeps_them_then(tmp_path: Path):
    """Also the engine that was asked for last, which is remembered."""
    first, second = (SqliteEngine(tmp_path / name) for name in ("a.db", "b.db"))
    threads = threads_of(first)
    for _ in range(3):  # in turns, and one after the other
        assert threads_of(first) is threads
        assert threads_of(first) is not threads_of(second)
        assert threads_of(second) is threads_of(second)
    asyncio.run(arun(first, commit(put(b"k"))))
    assert threads_of(first) is threads
    asyncio.run(aclose(first))
    assert threads_of(first) is not threads
    gone: list[Callable[[], object]] = [*map(weakref.ref, (threads, threads_of(second), second))]
    second.close()
    del threads, second
    gc.collect()
    assert [one() for one in gone] == [None, None, None]
    first.close()


def test_a_loop_that_ends_before_its_answer_disturbs_nobody(engine):
    store = engine.check_open()

    async def leave() -> None:
        task = asyncio.ensure_future(arun(engine, commit(put(b"left"))))
        await until(lambda: store.commits._turn.locked() and not store.commits.waiting)
        loop = asyncio.get_running_loop()
        loop.stop()
        del task

    loop = asyncio.new_event_loop()
    with store.write_lock:
        abandoned = loop.create_task(leave())
        loop.run_forever()
    engine.commit(put(b"after"))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), abandoned, return_exceptions=True))
    loop.close()
    assert [row.key for row in engine.read([ReadRange(b"a", b"z")]).ranges[0]] == [b"after", b"left"]


class LateCommitter:
    """Somebody puts an operation into the queue at the last moment, when the leader has seen that it is empty."""

    def __init__(self, threads: EngineThreads) -> None:
        self.threads = threads
        self.led = 0
        self.waiting = False

    def lead(self) -> None:
        self.led += 1
        if self.led == 1:
            self.threads.lead(self)


def flag_is_lowered_at_the_end(self: EngineThreads, committer: GroupCommitter) -> None:
    committer.lead()
    self._leads = False


def one_late_operation() -> bool:
    threads = EngineThreads()
    committer = LateCommitter(threads)
    threads.lead(committer)
    for _ in range(3):  # the one thread has come to the end of what was given to it before
        threads.commits.submit(bool).result(30)
    threads.commits.shutdown()
    return committer.led == 2


def test_an_operation_that_comes_when_the_leader_is_about_to_go_is_carried_out(monkeypatch: pytest.MonkeyPatch):
    assert one_late_operation()
    monkeypatch.setattr(EngineThreads, "_lead", flag_is_lowered_at_the_end)
    assert not one_late_operation()


class InterruptedCommitter:
    """The thread is interrupted once, as some libraries end threads; what it had is in the queue again."""

    def __init__(self) -> None:
        self.led = 0
        self.waiting = True
        self.done = threading.Event()

    def lead(self) -> None:
        self.led += 1
        if self.led == 1:
            raise SystemExit
        self.waiting = False
        self.done.set()


def test_the_thread_that_leads_comes_back_after_an_interrupt():
    threads, committer = EngineThreads(), InterruptedCommitter()
    threads.lead(committer)
    assert committer.done.wait(60)
    threads.commits.shutdown()
    assert committer.led == 2


# --- reads ----------------------------------------------------------------------------------------------------------


def test_which_engines_are_embedded(engine):
    able = engine.capabilities
    assert (able.writes.submit, able.immediate.read) == (engine.submit, engine.read_at_once)
    for other in (MemoryEngine(), FaultEngine(engine)):  # one waits for nothing, one loses answers
        assert (other.capabilities.writes.submit, other.capabilities.immediate.read) == (None, None)


@pytest.fixture
def filled(engine) -> Any:
    engine.commit(AtomicWrite((), tuple(Set(b"k%04d" % n, b"v%d" % n, 3, None if n % 7 else 1) for n in range(500))))
    return engine


def pointers(found: list[list[Any]]) -> list[ReadRange]:
    return [point(row.key) for row in found[0]]


async def test_small_reads_use_no_thread_and_large_ones_do(filled):
    await arun(filled, read([point(b"k0000")]))  # opens a connection, in a thread
    threads = threads_of(filled)
    asked: list[object] = []

    class Watched:
        def submit(self, *arguments: Any) -> Any:
            asked.append(arguments)
            return original.submit(*arguments)

    original, threads.reads = threads.reads, Watched()  # type: ignore[assignment]
    small: list[Flow[Any]] = [
        read([point(b"k0001")]),
        read([point(b"k%04d" % n) for n in range(SMALL_READ)]),
        read([ReadRange(b"k", b"l", SMALL_READ - 1), point(b"k0001")], Guard(b"none", None)),
        read([ReadRange(b"k", b"l", 50)], follow=pointers),
        read([]),
    ]
    for flow in small:
        await arun(filled, flow)
    assert asked == []
    large: list[Flow[Any]] = [
        read([ReadRange(b"k", b"l")]),
        read([ReadRange(b"k", b"l", SMALL_READ + 1)]),
        read([ReadRange(b"k", b"l", 1)], follow=lambda found: [ReadRange(b"k", b"l")]),
    ]
    for count, flow in enumerate(large, 1):
        await arun(filled, flow)
        assert len(asked) == count
    threads.reads = original


def random_read(rng: random.Random) -> tuple[list[ReadRange], Guard | None, bool, Follow | None]:
    ranges: list[ReadRange] = []
    for _ in range(rng.randrange(4)):
        low, high = sorted(b"k%04d" % rng.randrange(520) for _ in range(2))
        one = (
            ReadRange(low)
            if rng.random() < 0.3
            else ReadRange(low, high, rng.choice((0, 3, 60, 200)), rng.random() < 0.5)
        )
        ranges.append(one._replace(keys_only=rng.random() < 0.2))
    guard = rng.choice((None, Guard(b"none", None), Guard(b"k0001", None)))
    follow = pointers if ranges and rng.random() < 0.4 else None
    return ranges, guard, rng.random() < 0.3, follow


def test_what_is_read_at_once_is_what_is_read(filled):
    rng = random.Random(20_261_121)
    at_once = 0
    snapshot = filled.snapshot()
    for _ in range(400):
        ranges, guard, include_expired, follow = random_read(rng)
        expected = filled.read(ranges, guard, include_expired=include_expired, follow=follow)
        found = filled.read_at_once(ranges, guard, include_expired=include_expired, follow=follow)
        assert found is None or found == expected
        at_once += found is not None
        seen = snapshot.read_at_once(ranges, include_expired=include_expired, follow=follow)
        assert seen is None or seen == snapshot.read(ranges, include_expired=include_expired, follow=follow)
        assert isinstance(found, (ReadResult, GuardFailed)) or found is None
    snapshot.close()
    print(f"{at_once} of 400 reads at once")
    assert 200 < at_once < 400


def test_a_read_that_would_wait_is_not_done_at_once(tmp_path: Path):
    """No connection is open yet; another thread uses the only one; the snapshot is in use."""
    engine = SqliteEngine(tmp_path / "store.db")
    one = [point(b"k")]
    store = engine.check_open()
    held = store.borrow_at_once()
    assert engine.read_at_once(one) is None
    assert engine.snapshot_at_once() is None
    for connection in held:
        store.give_back(connection)
    engine.read(one)
    assert engine.read_at_once(one) is not None
    snapshot = engine.snapshot_at_once()
    assert snapshot is not None
    with snapshot._lock:
        assert snapshot.read_at_once(one) is None
        assert not snapshot.close_at_once()
    assert snapshot.read_at_once(one) is not None
    assert snapshot.close_at_once()
    engine.close()
    memory = SqliteEngine(":memory:")
    with memory.check_open().write_lock:
        assert memory.read_at_once(one) is None
    assert memory.read_at_once(one) is not None
    assert memory.snapshot_at_once() is None, "it copies the database"
    memory.close()
    with pytest.raises(ClosedError):
        memory.read_at_once(one)


def test_a_busy_or_broken_connection_is_left_to_a_read_that_can_wait(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db")
    engine.commit(put(b"k"))
    engine.read([point(b"k")])
    store = engine.check_open()
    (connection,) = store.borrow_at_once()
    busy: Any = FailingConnection(connection, "", failing(sqlite3.SQLITE_BUSY, "SQLITE_BUSY"), carried_out=False)
    store.give_back(busy)
    assert engine.read_at_once([point(b"k")]) is None
    assert engine.snapshot_at_once() is None
    assert store.borrow_at_once() == [busy]
    store.give_back(connection)
    assert engine.read_at_once([point(b"k")]) is not None
    engine.close()


class Values(Lookup[Any]):
    """Looks up the value of a row."""

    def __init__(self, *, alone: bool = True) -> None:
        self.load = (lambda row, _: row[1]) if alone else None

    def otherwise(self, asked: str) -> Flow[str]:
        raise AssertionError("nothing was guessed")

    def answer(self, found: ReadResult, key: bytes, asked: str) -> bytes | str:
        rows = found.ranges[0]
        return rows[0].value if rows else self.absent(asked)

    def absent(self, asked: str) -> str:
        return asked


def one_row(key: bytes = b"k0001") -> OneLookup[Any]:
    return OneLookup(Values(), key, "nothing")


def test_one_row_is_the_same_in_both_drivers_and_as_a_read(filled):
    for key in (b"k0001", b"nowhere"):
        read_plainly = filled.read([point(key)]).ranges[0]
        expected = read_plainly[0].value if read_plainly else "nothing"
        for asked in (
            one_row(key),
            OneLookup(Values(alone=False), key, "nothing"),
            one_row(key).one_request(),
            steps_of(one_row(key)),
        ):
            assert asyncio.run(arun(filled, asked)) == expected
        for asked in (
            one_row(key),
            OneLookup(Values(alone=False), key, "nothing"),
            one_row(key).one_request(),
            steps_of(one_row(key)),
        ):
            assert run(filled, asked) == expected
        with closing(filled.snapshot()) as snapshot:
            assert run(filled, one_row(key), snapshot=snapshot) == expected
            assert asyncio.run(arun(filled, one_row(key), snapshot=snapshot)) == expected


READS = pytest.mark.parametrize("asked", [lambda: read([point(b"k0001")]), one_row], ids=["read", "row"])


@READS
async def test_a_series_of_reads_lets_other_tasks_have_their_turn(filled, asked: Callable[[], AnyFlow[Any]]):
    await arun(filled, asked())
    turns = 0

    async def ticker() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(ticker())
    await asyncio.sleep(0)
    turns = 0
    for _ in range(20 * READS_AT_ONCE):
        await arun(filled, asked())
    other.cancel()
    assert turns >= 18


@READS
async def test_without_turns_a_series_of_reads_keeps_the_loop(
    filled, asked: Callable[[], AnyFlow[Any]], monkeypatch: pytest.MonkeyPatch
):
    """The control of the test above."""
    await arun(filled, asked())
    monkeypatch.setattr(drivers_threads, "READS_AT_ONCE", 10**9)
    turns = 0

    async def ticker() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(ticker())
    await asyncio.sleep(0)
    turns = 0
    for _ in range(20 * READS_AT_ONCE):
        await arun(filled, asked())
    other.cancel()
    assert turns == 0


async def test_snapshots_are_pinned_read_and_closed_without_a_thread(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db")
    engine.commit(put(b"k"))
    engine.read([])
    threads_of(engine).reads = None  # type: ignore[assignment]  # asked for a thread, it would raise
    snapshot = await apin(engine)
    engine.commit(put(b"k", b"later"))
    found = await arun(engine, read([point(b"k")]), snapshot=snapshot)
    assert found.ranges[0][0].value == b"v"
    await arelease(engine, snapshot)
    engine.close()


# --- through the whole library --------------------------------------------------------------------------------------


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: Unique[str]
    visits: int = 0


def visit(account: Account) -> None:
    account.visits += 1


@pytest.mark.parametrize("kind", ["sqlite", "lmdb"])
async def test_many_tasks_use_a_database(kind: str, url_of: Callable[..., str], transactions: list[int]):
    async with AsyncDatabase(url_of(kind), models=[Account]) as db:
        accounts = db[Account]
        transactions.clear()
        await asyncio.gather(*(accounts.create(id=n, email=f"{n}@x.org") for n in range(300)))
        print(f"300 records in {len(transactions)} transactions")
        assert len(transactions) < 150, "how many come together depends on how busy the machine is; some do"
        twice = await asyncio.gather(
            *(accounts.create(id=1_000 + n, email="same@x.org") for n in range(20)), return_exceptions=True
        )
        assert sum(isinstance(one, Account) for one in twice) == 1
        await asyncio.gather(*(accounts.mutate(7, visit) for _ in range(30)))
        assert (await accounts.get(email="7@x.org")).visits == 30
        report = await db.check()
        assert report.ok


@pytest.mark.parametrize("kind", ["sqlite", "lmdb"])
async def test_a_queue_and_a_watch_learn_of_commits_that_share_a_transaction(kind: str, url_of: Callable[..., str]):
    async with open_async_kv(url_of(kind)) as kv:
        seen: list[Any] = []

        async def look() -> None:
            async for entries in kv.watch(keys=[("last",)]):
                seen.append(entries[0].value)
                if entries[0].value == "end":
                    return

        watching = asyncio.create_task(look())
        await until(lambda: seen == [None])
        handled: asyncio.Queue[Any] = asyncio.Queue()
        async with kv.listen(handled.put):
            await asyncio.gather(*(kv.enqueue(n) for n in range(20)), kv.set(("last",), "end"))
            messages = [await asyncio.wait_for(handled.get(), 60) for _ in range(20)]
        await asyncio.wait_for(watching, 60)
        assert sorted(messages) == list(range(20))
