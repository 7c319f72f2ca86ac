"""The asynchronous form in event loops: lost answers, cancelled commits, loops that end, and what shares a call."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from kvmodels import AsyncDatabase, AsyncTransaction, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    SuffixFollow,
    point,
    row_of,
)
from kvmodels.engines.contract import SMALL_READ
from kvmodels.engines.postgres.commits import CallAnswer
from kvmodels.engines.postgres.connection import Call
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.native.engine import PostgresAsyncEngine
from kvmodels.engines.postgres.native.pace import GroupPace
from kvmodels.errors import (
    ClosedError,
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    KeyTooLargeError,
    SnapshotLostError,
)
from kvmodels.runtime.event_loop import aclose
from tests.contract.shorthand import EVERYTHING, number, put
from tests.postgres.databases import Databases
from tests.postgres.proxy import Fault, Proxy, proxy_of
from tests.postgres.server import PostgresServer

TASKS = 64
SEED = 20_261_124

pytestmark = pytest.mark.servers


def add(key: bytes = b"n") -> AtomicWrite:
    return AtomicWrite((), (Arithmetic("sum", key, 1),))


def write(*mutations) -> AtomicWrite:
    return AtomicWrite((), mutations)


class Requests:
    """The calls that the proxy has seen, and the faults that are left, by the name of the function that is called."""

    def __init__(self, **plans: list[Fault]) -> None:
        self.seen: list[bytes] = []
        self._left = {name.encode() + b"_1": list(faults) for name, faults in plans.items()}

    def __call__(self, request: bytes) -> Fault:
        self.seen.append(request)
        for name, faults in self._left.items():
            if name in request and faults:
                return faults.pop(0)
        return None

    def calls(self, name: bytes) -> int:
        return sum(request.count(name) for request in self.seen)


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with proxy_of(postgres_server.folder) as one:
        yield one


@pytest.fixture
async def engine(proxy: Proxy, databases: Databases) -> AsyncIterator[PostgresEngine]:
    opened = PostgresEngine(proxy.url(databases.url()), prepare=False, busy_timeout=30)
    yield opened
    proxy.plan = lambda request: None
    await aclose(opened)


@pytest.fixture
def admin(databases: Databases) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"{databases.url()}-admin", autocommit=True) as one:
        yield one


async def notes_of_cancelled(task: asyncio.Task) -> list[str]:
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return getattr(caught.value, "__notes__", [])


def is_sent(form: PostgresAsyncEngine) -> bool:
    """Whether a call is under way, and nothing waits to be sent."""
    queue = form._transport._queue
    return bool(queue._under_way) and not queue._waiting


# Lost answers


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
async def test_a_lost_commit_is_resolved(engine: PostgresEngine, proxy: Proxy, fault: Fault):
    proxy.plan = Requests(commit=[fault], resolve=["lose_answer", "lose_request"])
    assert isinstance(await engine.native().commit(add()), Committed)
    assert len(proxy.lost) == 3
    assert number(engine, b"n") == 1


async def test_a_conflict_whose_answer_is_lost_is_a_conflict(engine: PostgresEngine, proxy: Proxy):
    await engine.native().commit(write(put(b"k")))
    proxy.plan = Requests(commit=["lose_answer"])
    refused = await engine.native().commit(AtomicWrite((Check(b"k", None),), (put(b"k", b"2"),)))
    assert refused == Conflict((0,))


async def test_a_commit_that_the_store_has_forgotten_is_unknown(
    engine: PostgresEngine, proxy: Proxy, admin: psycopg.Connection
):
    await engine.native().commit(write(put(b"k")))

    def plan(request: bytes) -> Fault:
        if b"commit_1" not in request:
            return None
        admin.execute("UPDATE kvmodels.meta SET forgotten = 1::int8 << 62")
        proxy.plan = lambda _: None
        return "lose_request"

    proxy.plan = plan
    with pytest.raises(CommitUnknownError):
        await engine.native().commit(write(put(b"k", b"2")))


async def test_a_lost_read_is_repeated(engine: PostgresEngine, proxy: Proxy):
    form = engine.native()
    await form.commit(write(put(b"a"), put(b"b")))
    proxy.plan = Requests(read=["lose_answer"])
    found = await asyncio.gather(*(form.read([point(key)]) for key in (b"a", b"b", b"c")))
    assert [len(one.ranges[0]) for one in found if isinstance(one, ReadResult)] == [1, 1, 0]
    proxy.plan = Requests(read=["lose_request"])
    assert len((await form.read([EVERYTHING])).ranges[0]) == 2  # type: ignore[union-attr]
    proxy.plan = Requests(read=["lose_answer", "lose_answer"])
    with pytest.raises(EngineTimeoutError):
        await form.read([point(b"a")])


async def test_answers_are_lost_under_tasks(engine: PostgresEngine, proxy: Proxy):
    chance = random.Random(SEED)

    def plan(request: bytes) -> Fault:
        if b"_1(" not in request or chance.random() > 0.1:
            return None
        return "lose_answer" if chance.random() < 0.7 else "lose_request"

    proxy.plan = plan
    form = engine.native()

    async def work() -> int:
        return sum([isinstance(await form.commit(add()), Committed) for _ in range(5)])

    done = await asyncio.gather(*(work() for _ in range(TASKS)))
    proxy.plan = lambda request: None
    assert number(engine, b"n") == sum(done) == 5 * TASKS
    print(f"seed {SEED}: {len(proxy.lost)} lost")
    assert proxy.lost


async def test_all_connections_are_terminated_under_tasks(databases: Databases, admin: psycopg.Connection):
    engine = PostgresEngine(databases.url(), busy_timeout=30)
    form = engine.native()
    left = iter(range(10 * TASKS))
    killed: list[tuple] = []

    async def work() -> None:
        for at in left:
            assert isinstance(await form.commit(add()), Committed)
            if at % 100 == 50:
                killed.extend(
                    admin.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND application_name !~ '-admin$'"
                    ).fetchall()
                )

    await asyncio.gather(*(work() for _ in range(TASKS)))
    assert killed
    assert number(engine, b"n") == 10 * TASKS
    await aclose(engine)


async def test_an_error_at_the_end_of_a_commit_is_not_a_success(engine: PostgresEngine, admin: psycopg.Connection):
    """The rows of the answer come before the transaction ends: a commit is answered when the server is ready again."""
    admin.execute(
        "CREATE FUNCTION kvmodels.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'at the end'; END$$;"
        "CREATE CONSTRAINT TRIGGER refused AFTER INSERT ON kvmodels.kv DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION kvmodels.refuse()"
    )
    try:
        with pytest.raises(EngineError):
            await engine.native().commit(write(put(b"k")))
    finally:
        admin.execute("DROP FUNCTION kvmodels.refuse CASCADE")
    found = await engine.native().read([point(b"k")])
    assert isinstance(found, ReadResult)
    assert found.ranges == [[]]


async def test_a_warning_during_a_commit_counts_as_a_lost_answer(
    engine: PostgresEngine, proxy: Proxy, admin: psycopg.Connection
):
    admin.execute(
        "CREATE FUNCTION kvmodels.warn() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE WARNING 'as a cancelled wait for a standby'; RETURN NEW; END$$"
    )
    admin.execute("CREATE TRIGGER warn BEFORE INSERT ON kvmodels.kv FOR EACH ROW EXECUTE FUNCTION kvmodels.warn()")
    try:
        proxy.plan = requests = Requests()
        await engine.native().commit(write(put(b"k")))
        assert (requests.calls(b"commit_1"), requests.calls(b"resolve_1")) == (1, 1)
    finally:
        admin.execute("DROP FUNCTION kvmodels.warn CASCADE")


# Halves


class Halves(GroupPace):
    """Sends eight operations at once, whatever was measured."""

    def answered(self, flush_s: float | None, active: int) -> None:
        self.half = 8


async def halved(engine: PostgresEngine) -> PostgresAsyncEngine:
    """The form of the engine, whose connection is open, with groups of eight."""
    form = engine.native()
    form._transport._queue._pace = Halves()
    await form.commit(add())
    return form


async def test_each_operation_of_two_halves_gets_its_own_outcome(engine: PostgresEngine, proxy: Proxy):
    form = await halved(engine)
    requests = proxy.plan = Requests()
    every_other = [AtomicWrite((Check(b"n" if at % 2 else b"m", None),), (put(b"p%d" % at),)) for at in range(16)]
    outcomes = await asyncio.gather(*map(form.commit, every_other))
    assert [type(outcome) for outcome in outcomes] == [Committed, Conflict] * 8
    assert len({outcome.versionstamp for outcome in outcomes if isinstance(outcome, Committed)}) == 8
    assert requests.calls(b"commit_1") == 2


@pytest.mark.parametrize("faults", [["lose_answer"], ["lose_request"], [None, "lose_answer"], ["lose_answer"] * 2])
async def test_halves_whose_answers_are_lost_are_applied_once(
    engine: PostgresEngine, proxy: Proxy, faults: list[Fault]
):
    form = await halved(engine)
    proxy.plan = Requests(commit=faults)
    outcomes = await asyncio.gather(*(form.commit(add()) for _ in range(4 * 8)))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert number(engine, b"n") == 1 + 4 * 8


# Cancelling


async def test_a_cancelled_commit_that_was_not_sent_is_withdrawn(engine: PostgresEngine, admin: psycopg.Connection):
    form = engine.native()
    await form.commit(write(put(b"k")))
    with admin.transaction():
        admin.execute("LOCK TABLE kvmodels.gate IN EXCLUSIVE MODE")
        first = asyncio.create_task(form.commit(add()))
        while not is_sent(form):
            await asyncio.sleep(0)
        second = asyncio.create_task(form.commit(add(b"m")))
        await asyncio.sleep(0)
        second.cancel()
        assert await notes_of_cancelled(second) == ["the commit was not applied: it had not been started"]
    assert isinstance(await first, Committed)
    found = await form.read([point(b"n"), point(b"m")])
    assert isinstance(found, ReadResult)
    assert [len(rows) for rows in found.ranges] == [1, 0]


@pytest.mark.parametrize("fault", [None, "lose_answer", "lose_request"])
async def test_a_cancelled_commit_that_was_sent_is_awaited(engine: PostgresEngine, proxy: Proxy, fault: Fault):
    form = engine.native()
    await form.commit(write(put(b"k")))
    loop, sent = asyncio.get_running_loop(), asyncio.Event()

    def plan(request: bytes) -> Fault:
        if b"commit_1" not in request:
            return None
        proxy.plan = lambda _: None
        loop.call_soon_threadsafe(sent.set)
        return fault

    proxy.plan = plan
    task = asyncio.create_task(form.commit(add()))
    await sent.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert await notes_of_cancelled(task) == ["the commit was applied"]
    assert number(engine, b"n") == 1


async def test_cancelled_tasks_learn_what_became_of_their_commits(engine: PostgresEngine, proxy: Proxy):
    chance = random.Random(SEED)
    proxy.plan = lambda request: "lose_answer" if b"commit_1" in request and chance.random() < 0.2 else None
    form = engine.native()
    applied = cancelled = 0
    for _ in range(10):
        tasks = [asyncio.create_task(form.commit(add())) for _ in range(TASKS)]
        await asyncio.sleep(chance.random() / 100)
        for task in chance.sample(tasks, TASKS // 2):
            task.cancel()
        for task in tasks:
            try:
                applied += isinstance(await task, Committed)
            except asyncio.CancelledError as error:
                cancelled += 1
                (note,) = error.__notes__
                assert note in ("the commit was applied", "the commit was not applied: it had not been started")
                applied += note == "the commit was applied"
    proxy.plan = lambda request: None
    assert cancelled
    assert number(engine, b"n") == applied


# What shares a call


async def test_keys_of_one_turn_share_a_statement_and_commits_that_wait_share_a_call(
    engine: PostgresEngine, proxy: Proxy
):
    form = engine.native()
    first = await form.commit(write(*(put(b"k%02d" % at) for at in range(TASKS))))
    assert isinstance(first, Committed)
    await form.read([point(b"k00")])  # opens a connection
    proxy.plan = requests = Requests()
    holding, failing = Guard(b"k00", first.versionstamp), Guard(b"k00", None)
    found = await asyncio.gather(*(form.read([point(b"k%02d" % at)], holding) for at in range(TASKS)))
    assert [one.ranges[0][0].key for one in found if isinstance(one, ReadResult)] == [
        b"k%02d" % at for at in range(TASKS)
    ]
    assert requests.calls(b"read_1") == 1
    proxy.plan = requests = Requests()
    kept, failed, expired = await asyncio.gather(
        form.read([point(b"k01")], holding),
        form.read([point(b"k02")], failing),
        form.read([point(b"k03")], holding, include_expired=True),
    )
    assert isinstance(kept, ReadResult)
    assert isinstance(expired, ReadResult)
    assert failed == GuardFailed(first.versionstamp)
    assert requests.calls(b"read_1") == 3
    proxy.plan = requests = Requests()
    outcomes = await asyncio.gather(*(form.commit(add()) for _ in range(TASKS)))
    assert len({one.versionstamp for one in outcomes if isinstance(one, Committed)}) == TASKS
    assert requests.calls(b"commit_1") == 1
    assert number(engine, b"n") == TASKS


async def test_pages_of_one_turn_share_a_statement(engine: PostgresEngine, proxy: Proxy):
    form = engine.native()
    puts = [put(b"%b%02d" % (kind, at), b"%d" % at) for kind in (b"e", b"r", b"s") for at in range(SMALL_READ // 2)]
    await form.commit(write(*puts))
    half = ReadRange(b"e", b"f", SMALL_READ // 2)
    await form.read([half], follow=SuffixFollow(b"r", 1))  # opens a connection

    async def values(pages: list[tuple[ReadRange, SuffixFollow]]) -> tuple[list[list[bytes]], int]:
        proxy.plan = requests = Requests()
        found = await asyncio.gather(*(form.read([page], follow=follow) for page, follow in pages))
        got = [
            [row_of(row).key for part in one.followed for row in part] for one in found if isinstance(one, ReadResult)
        ]
        return got, requests.calls(b"read_1")

    few, follow, other = ReadRange(b"e01", b"e03", 9), SuffixFollow(b"r", 1), SuffixFollow(b"s", 1)
    assert await values([(few, follow)] * 8) == ([[b"r01", b"r02"]] * 8, 1)
    assert await values([(few, follow), (few, other)]) == ([[b"r01", b"r02"], [b"s01", b"s02"]], 2)
    assert (await values([(half, follow)] * 2))[1] == 1
    assert (await values([(half, follow)] * 2 + [(few, follow)]))[1] == 2


@pytest.mark.parametrize("cancelled", [False, True])
async def test_pages_whose_answer_is_lost_are_read_again(engine: PostgresEngine, proxy: Proxy, *, cancelled: bool):
    form = engine.native()
    await form.commit(write(*(put(b"%b%d" % (kind, at)) for kind in (b"e", b"r") for at in range(4))))
    page, follow = ReadRange(b"e", b"f", 9), SuffixFollow(b"r", 1)
    await form.read([page], follow=follow)  # opens a connection
    proxy.plan = Requests(read=["lose_answer"])
    tasks = [asyncio.create_task(form.read([page], follow=follow)) for _ in range(4)]
    await asyncio.sleep(0)
    if cancelled:
        tasks[0].cancel()
    found = await asyncio.gather(*tasks[1:])
    assert [len(one.ranges[0]) for one in found if isinstance(one, ReadResult)] == [4] * 3
    assert len(proxy.lost) == 1
    if cancelled:
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
    else:
        assert isinstance(await tasks[0], ReadResult)


async def test_reads_of_a_turn_whose_task_is_cancelled_are_cancelled_and_hold_up_no_later_ones(engine: PostgresEngine):
    form = engine.native()
    await form.read([point(b"k")])  # opens a connection
    reading = asyncio.create_task(form.read([point(b"k")]))
    await asyncio.sleep(0)
    (shared,) = form._transport.reads._tasks
    shared.cancel()
    assert await notes_of_cancelled(reading) == []
    assert isinstance(await form.read([point(b"k")]), ReadResult)


async def test_reads_that_share_a_transaction_with_one_that_fails_are_answered(engine: PostgresEngine, proxy: Proxy):
    form = engine.native()
    await form.read([EVERYTHING._replace(limit=1)])
    link = await form._transport.links.shared()
    proxy.plan = requests = Requests()
    texts = [b"SELECT 1", b"SELECT 2", b"SELECT 9 / 0", b"SELECT 3", b"SELECT 4"]
    answers = await asyncio.gather(*(link.call(Call(text, ()), shared=True) for text in texts), return_exceptions=True)
    assert isinstance(answers.pop(2), psycopg.errors.DivisionByZero)
    assert [one.rows for one in answers if isinstance(one, CallAnswer)] == [[(1,)], [(2,)], [(3,)], [(4,)]]
    assert [requests.calls(text) for text in texts] == [1, 1, 1, 2, 2]
    assert link.load == 0


async def test_one_bad_operation_does_not_fail_its_group(engine: PostgresEngine):
    form = engine.native()
    bad = write(put(random.Random(SEED).randbytes(4_000)))
    outcomes = await asyncio.gather(form.commit(add()), form.commit(bad), form.commit(add()), return_exceptions=True)
    assert [isinstance(one, Committed) for one in outcomes] == [True, False, True]
    assert isinstance(outcomes[1], KeyTooLargeError)


async def test_a_large_read_has_a_connection_of_its_own(engine: PostgresEngine):
    form = engine.native()
    for start in range(0, 5_000, 1_000):
        await form.commit(write(*(put(b"k%05d" % at) for at in range(start, start + 1_000))))
    reading = asyncio.create_task(form.read([EVERYTHING]))
    while not form._transport.links._taken:
        await asyncio.sleep(0)
    (own,) = form._transport.links._taken
    assert isinstance(await form.read([point(b"k00000")]), ReadResult)
    assert own not in form._transport.links._shared
    found = await reading
    assert isinstance(found, ReadResult)
    assert [row.key for row in found.ranges[0]] == [b"k%05d" % at for at in range(5_000)]
    assert form._transport.links._idle == [own]
    abandoned = asyncio.create_task(form.read([EVERYTHING]))
    while not form._transport.links._taken:
        await asyncio.sleep(0)
    abandoned.cancel()
    assert await notes_of_cancelled(abandoned) == []
    assert not form._transport.links._taken


# Loops, processes and the end


def test_a_loop_that_is_closed_with_commits_under_way_harms_nobody(databases: Databases, admin: psycopg.Connection):
    engine = PostgresEngine(databases.url())

    async def begin() -> None:
        form = engine.native()
        await form.commit(add())
        admin.execute("BEGIN; LOCK TABLE kvmodels.gate IN EXCLUSIVE MODE")
        task = asyncio.create_task(form.commit(add()))
        while not is_sent(form):
            await asyncio.sleep(0)
        abandoned.append(task)

    abandoned: list[asyncio.Task] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    abandoned[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    for task in (task for form in engine._forms.values() for task in form._transport._queue._under_way):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    admin.execute("COMMIT")

    async def go_on() -> None:
        await asyncio.gather(*(engine.native().commit(add()) for _ in range(10)))
        assert len(engine._forms) == 1
        await aclose(engine)

    before = 1
    asyncio.run(go_on())
    again = PostgresEngine(databases.url())
    assert number(again, b"n") - before - 10 in (0, 1)
    again.close()


def test_a_loop_that_is_shut_down_finishes_the_commits_that_were_sent(databases: Databases):
    engine = PostgresEngine(databases.url())
    tasks: list[asyncio.Task] = []

    async def begin() -> None:
        form = engine.native()
        await form.commit(add())
        tasks.extend(asyncio.create_task(form.commit(add())) for _ in range(TASKS))
        while not is_sent(form):
            await asyncio.sleep(0)

    asyncio.run(begin())
    applied = 1
    for task in tasks:
        assert task.cancelled()
        with pytest.raises(asyncio.CancelledError) as caught:
            task.result()
        applied += caught.value.__notes__ == ["the commit was applied"]
    assert number(engine, b"n") == applied == 1 + TASKS
    engine.close()


def test_several_loops_share_one_engine(databases: Databases):
    engine = PostgresEngine(databases.url())
    failures: list[BaseException] = []

    async def work() -> None:
        form = engine.native()
        assert form is engine.native()
        await asyncio.gather(*(form.commit(add()) for _ in range(20)))
        await form.aclose()
        with pytest.raises(ClosedError):
            await form.commit(add())

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert number(engine, b"n") == 60
    engine.close()


async def test_closing_the_engine_ends_its_forms_in_their_loops(databases: Databases):
    engine = PostgresEngine(databases.url())
    form = engine.native()
    await form.commit(add())
    link = form._transport.links._writer
    assert link is not None
    engine.close()
    while not link.closed:
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await form.read([EVERYTHING])


async def test_a_forked_child_leaves_the_connections_of_the_parent_alone(databases: Databases):
    engine = PostgresEngine(databases.url())
    form = engine.native()
    await form.commit(add())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            form.read([EVERYTHING]).send(None)
        except ClosedError as error:
            code = 0 if error.reason == "forked" else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    await form.commit(add())
    assert len((await form.read([EVERYTHING])).ranges[0]) == 1  # type: ignore[union-attr]
    await aclose(engine)


# Snapshots


async def test_a_snapshot_that_is_dropped_gives_its_connection_back(databases: Databases):
    engine = PostgresEngine(databases.url(), pool_size=1, busy_timeout=60)
    form = engine.native()
    await form.commit(write(put(b"k")))
    for _ in range(3):
        snapshot = await form.snapshot()
        assert len((await snapshot.read([EVERYTHING])).ranges[0]) == 1
        del snapshot
    await aclose(engine)


def end_snapshots(admin: psycopg.Connection) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state = 'idle in transaction'"
    )


async def test_a_snapshot_whose_connection_ends_is_lost(databases: Databases, admin: psycopg.Connection):
    engine = PostgresEngine(databases.url())
    form = engine.native()
    snapshot = await form.snapshot()
    end_snapshots(admin)
    with pytest.raises(SnapshotLostError):
        await snapshot.read([EVERYTHING])
    await snapshot.aclose()
    await aclose(engine)


# Models


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    code: Unique[str]
    count: int = 0


async def test_64_tasks_count_exactly_and_use_no_thread(databases: Databases):
    patient = RetryPolicy(deadline_s=60)
    async with AsyncDatabase(databases.url(), models=[Visit], busy_timeout=60, retry=patient) as db:
        visits = db[Visit]
        await visits.create(id=1, code="a")
        before = set(threading.enumerate())

        async def visit() -> None:
            for _ in range(3):
                await visits.mutate(1, lambda one: setattr(one, "count", one.count + 1))

        await asyncio.gather(*(visit() for _ in range(TASKS)))
        assert set(threading.enumerate()) <= before
        assert (await visits.get(code="a")).count == 3 * TASKS
        assert (await db.check()).ok


async def test_a_transaction_whose_connection_ends_runs_again(databases: Databases, admin: psycopg.Connection):
    async with AsyncDatabase(databases.url(), models=[Visit]) as db:
        await db[Visit].create(id=1, code="a")
        runs = 0

        @db.transactional()
        async def visit(tx: AsyncTransaction) -> None:
            nonlocal runs
            runs += 1
            one = await tx[Visit].get(1)
            if runs < 3:
                end_snapshots(admin)
            one.count += await tx[Visit].count()
            await tx[Visit].save(one)

        await visit()
        assert (runs, (await db[Visit].get(1)).count) == (3, 1)


async def test_a_transaction_whose_connection_ends_each_time_ends_with_its_error(
    databases: Databases, admin: psycopg.Connection
):
    async with AsyncDatabase(databases.url(), models=[Visit]) as db:
        await db[Visit].create(id=1, code="a")
        runs = 0

        @db.transactional(retries=2)
        async def visit(tx: AsyncTransaction) -> None:
            nonlocal runs
            runs += 1
            await tx[Visit].remove(1)
            end_snapshots(admin)
            await tx[Visit].count()

        with pytest.raises(SnapshotLostError):
            await visit()
        assert (runs, await db[Visit].count()) == (3, 1)


async def test_what_a_model_costs_in_round_trips(proxy: Proxy, databases: Databases):
    async with AsyncDatabase(proxy.url(databases.url()), models=[Visit]) as db:
        visits = db[Visit]
        await visits.bulk_create([Visit(id=at, code=f"c{at}") for at in range(30)])
        for _ in range(2):  # connects, prepares the statements, and learns where values lie
            await visits.get(1)
            await visits.get(code="c1")
            await visits.create(id=100 + _, code=f"{_}")

        async def trips(call) -> int:
            before = proxy.round_trips
            await call
            return proxy.round_trips - before

        assert await trips(visits.get(2)) == 1
        assert await trips(visits.get(code="c2")) == 1
        assert await trips(visits.create(id=200, code="d")) == 1


async def test_a_path_of_a_socket_that_is_absent_is_a_timeout(databases: Databases, tmp_path: Path):
    engine = PostgresEngine(databases.url(), busy_timeout=0.05)
    engine.check_open().server.conninfo = f"host={tmp_path}"
    for call in (engine.native().commit(add()), engine.native().read([ReadRange(b"k")]), engine.native().snapshot()):
        with pytest.raises(EngineTimeoutError):
            await call
    engine.close()
