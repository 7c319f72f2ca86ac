"""Group commit on the engines that have files: interrupts, failures, kills, forks, and several processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, ReadRange, ReadResult
from kvmodels.engines.contract import QueuedCommit
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.shared.group_commit import Group, Member
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import (
    ClosedError,
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    InvalidValueError,
    StorageFullError,
)
from tests.contract.shorthand import EVERYTHING, commit, keys, number, put, rows
from tests.engines.kill_groups import COMMITS_AT_MOST, THREADS, open_engine
from tests.engines.ledger import Bell
from tests.engines.processes import ROOT, finish, run, start
from tests.engines.test_interrupts import InterruptingConnection, alarm
from tests.engines.test_sqlite_full_disk import FailingConnection, failing

__all__ = ["alarm"]

FileEngine: TypeAlias = SqliteEngine | LmdbEngine
KINDS = ("sqlite", "lmdb")
KILLS = 12
SEED = 20_261_121


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(kind: str, tmp_path: Path, quick_folder: Path) -> Path:
    return tmp_path / "store.db" if kind == "sqlite" else quick_folder / "store.lmdb"


@pytest.fixture
def engine(kind: str, path: Path) -> Iterator[FileEngine]:
    opened = open_engine(kind, str(path))
    yield opened
    opened.close()


def add(name: bytes, *checks: Check) -> AtomicWrite:
    return AtomicWrite(checks, (Arithmetic("sum", name, 1),))


def submit(engine: FileEngine, *writes: AtomicWrite) -> list[QueuedCommit]:
    return [engine.submit(write, Bell()) for write in writes]


def lead(engine: FileEngine) -> None:
    engine.check_open().commits.lead()


def stamps(members: list[QueuedCommit]) -> list[int]:
    """The versions of members that were committed."""
    found: list[int] = []
    for member in members:
        assert isinstance(member.outcome, Committed)
        found.append(int.from_bytes(member.outcome.versionstamp[:8], "big"))
    return found


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


# --- what a group means ---------------------------------------------------------------------------------------------


def test_each_operation_has_a_versionstamp_of_its_own_and_a_refused_one_uses_none(engine: FileEngine, transactions):
    before = int.from_bytes(commit(engine, put(b"text"))[:8], "big")
    transactions.clear()
    members = submit(engine, add(b"a"), add(b"text"), add(b"b", Check(b"a", None)), add(b"b"), add(b"c"), add(b"text"))
    lead(engine)
    assert transactions == [6]
    assert [type(member.outcome) for member in members] == [
        Committed,
        InvalidValueError,
        Conflict,
        Committed,
        Committed,
        InvalidValueError,
    ]
    applied = [members[position] for position in (0, 3, 4)]
    assert stamps(applied) == [before + 1, before + 2, before + 3]
    assert {row.key: row.versionstamp for row in rows(engine, EVERYTHING) if row.key != b"text"} == {
        key: member.outcome.versionstamp
        for key, member in zip((b"a", b"b", b"c"), applied, strict=True)
        if isinstance(member.outcome, Committed)
    }
    present = engine.read([])
    assert isinstance(present, ReadResult)
    assert int.from_bytes(present.versionstamp[:8], "big") == before + 3
    assert int.from_bytes(commit(engine)[:8], "big") == before + 4


def test_a_group_in_which_all_are_refused_leaves_no_trace(engine: FileEngine):
    before = commit(engine, put(b"text"))
    members = submit(engine, add(b"text"), add(b"b", Check(b"text", None)))
    lead(engine)
    assert [type(member.outcome) for member in members] == [InvalidValueError, Conflict]
    present = engine.read([])
    assert isinstance(present, ReadResult)
    assert present.versionstamp == before


def test_the_change_log_knows_each_operation_of_a_group(kind: str, path: Path):
    engine = (SqliteEngine if kind == "sqlite" else LmdbEngine)(path, change_log=3600)
    before = commit(engine)
    members = submit(engine, add(b"a"), add(b"b"), add(b"a"))
    lead(engine)
    changes = engine.changes(ReadRange(b"a", b"z"), before).changes
    versions = [int.from_bytes(change.versionstamp[:8], "big") for change in changes]
    assert [change.key for change in changes] == [b"b", b"a"]
    assert versions == stamps(members)[1:]
    engine.close()


def test_whoever_waits_for_a_commit_is_woken_when_the_whole_group_is_there(engine: FileEngine):
    commit(engine)
    seen: list[list[bytes]] = []
    unsubscribe = engine.subscribe(lambda: seen.append(keys(engine, ReadRange(b"a", b"z"))))
    submit(engine, add(b"a"), add(b"b"), add(b"c"))
    lead(engine)
    unsubscribe()
    assert seen == [[b"a", b"b", b"c"]]


def test_a_waiting_thread_is_woken_by_an_operation_that_another_thread_carries_out(engine: FileEngine):
    before = commit(engine)
    woken: list[bytes] = []
    waiting = threading.Thread(target=lambda: woken.append(engine.wait_for_commit(before, 60)))
    waiting.start()
    members = submit(engine, add(b"a"))
    lead(engine)
    waiting.join(60)
    assert [member.outcome for member in members] == [Committed(woken[0])]


# --- interrupts and failures ----------------------------------------------------------------------------------------


class OthersCome(InterruptingConnection):
    """Before the first statement of the leader, others put their operations behind its own."""

    def __init__(self, inner: Any, position: int, others: list[Member], *, done: bool) -> None:
        super().__init__(inner, position, done=done)
        self.others = others

    def execute(self, *arguments):
        if self.others:
            self.others[0].committer._queue.extend(self.others)
            self.others = []
        return super().execute(*arguments)


@pytest.mark.parametrize("done", [False, True])
def test_review_22_each_statement_of_a_group_can_be_interrupted_and_all_others_are_applied_once(
    tmp_path: Path, done: bool
):
    """Five operations: one before the leader's own, three behind it, one of them refused."""
    engine = SqliteEngine(tmp_path / "store.db")
    commit(engine, put(b"text"))
    store = engine.check_open()
    connection = store.writer
    assert connection is not None
    position, owns = 0, 0
    for position in range(1, 100):
        first = submit(engine, add(b"first"))
        behind = [
            Member(write, store.commits, store.backoff())
            for write in (add(b"behind"), add(b"text"), add(b"behind", Check(b"text", None)), add(b"behind"))
        ]
        store.writer = OthersCome(connection, position, behind, done=done)  # type: ignore[assignment]
        interrupted = False
        try:
            engine.commit(add(b"own"))
            owns += 1
        except KeyboardInterrupt as caught:
            interrupted = True
            owns += caught.__notes__ == ["the commit was applied"]
        assert not connection.in_transaction
        store.writer = connection
        lead(engine)
        assert [type(member.outcome) for member in (*first, *behind)] == [
            Committed,
            Committed,
            InvalidValueError,
            Conflict,
            Committed,
        ]
        assert number(engine, b"first") == position
        assert number(engine, b"behind") == 2 * position
        assert (number(engine, b"own") if owns else 0) == owns
        if not interrupted:
            break
    assert position > 12
    assert owns == (1 if not done else 2)
    engine.close()


def test_review_22_interrupts_at_any_moment_of_one_thread_hurt_no_other(engine: FileEngine, kind: str, alarm):
    """The timer goes off a little later in each round, while two other threads commit all the time."""
    commit(engine, Arithmetic("sum", b"own", 0))
    stop, counts, errors, given_up = threading.Event(), [0, 0], [], [0, 0]

    def work(who: int) -> None:
        try:
            while not stop.is_set():
                try:
                    commit(engine, Arithmetic("sum", b"%d" % who, 1))
                    counts[who] += 1
                except EngineError as error:
                    # On a busy machine the interrupted thread may lead several times before this one runs again.
                    if "every thread that began to write the commit was interrupted" not in str(error):
                        raise
                    given_up[who] += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    applied = unclear = interrupted = 0
    for step in range(250):
        done = False
        try:
            alarm(1e-6 + step * (4e-6 if kind == "sqlite" else 0.5e-6))
            engine.commit(add(b"own"))
            done = True
            alarm(0)
        except KeyboardInterrupt as caught:
            alarm(0)
            interrupted += 1
            told = getattr(caught, "__notes__", [])
            done = done or told == ["the commit was applied"]
            unclear += not done and not told  # it came before the call, or behind it
        applied += done
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []
    assert [number(engine, b"0"), number(engine, b"1")] == counts
    assert applied <= number(engine, b"own") <= applied + unclear
    print(f"{interrupted} of 250 interrupted, {applied} applied, {unclear} unclear, beside {sum(counts)} others")
    print(f"{sum(given_up)} of the others were given up after several interrupts, and not written")
    assert interrupted >= 10


@pytest.mark.parametrize("carried_out", [False, True])
def test_review_22_after_an_io_error_in_commit_each_operation_of_the_group_is_unknown_and_no_other(
    tmp_path: Path, carried_out: bool
):
    engine = SqliteEngine(tmp_path / "store.db")
    commit(engine, put(b"text"))
    store = engine.check_open()
    error = failing(10, "SQLITE_IOERR")
    store.writer = FailingConnection(store.writer, "COMMIT", error, carried_out=carried_out)  # type: ignore[assignment, arg-type]
    members = submit(engine, add(b"a"), add(b"text"), add(b"a", Check(b"a", None)), add(b"b"))
    lead(engine)
    assert [type(member.outcome) for member in members] == [
        CommitUnknownError,
        ClosedError,
        ClosedError,
        CommitUnknownError,
    ]
    with pytest.raises(ClosedError):
        commit(engine)
    engine.close()
    engine = SqliteEngine(tmp_path / "store.db")
    assert keys(engine, EVERYTHING) == ([b"a", b"b", b"text"] if carried_out else [b"text"])
    engine.close()


def test_a_statement_that_fails_in_one_operation_leaves_the_others_of_its_group_whole(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db")
    commit(engine)
    too_large = AtomicWrite((), (put(b"large-1"), put(b"large", b"x" * 1_000_000)))
    connection = engine.check_open().writer
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 40").fetchall()
    members = submit(engine, add(b"a"), too_large, add(b"b"), add(b"c", Check(b"large-1", None)))
    lead(engine)
    assert [type(member.outcome) for member in members] == [Committed, StorageFullError, Committed, Committed]
    assert keys(engine, EVERYTHING) == [b"a", b"b", b"c"]
    engine.close()


def test_a_full_disk_refuses_the_operation_that_does_not_fit_and_no_other(kind: str, path: Path):
    """RLIMIT_FSIZE, in a process of its own; an operation that does not fit waits among those of four threads.

    LMDB takes what was written in part for an I/O error.
    """
    printed = run(
        """
        import resource, signal, sys, threading
        from kvmodels.errors import EngineError
        from tests.contract.shorthand import EVERYTHING, commit, keys, put
        from tests.engines.kill_groups import open_engine
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        engine = open_engine(sys.argv[1], sys.argv[2])
        commit(engine, put(b"a"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, hard))
        refused = []

        def small(who):
            for n in range(30):
                commit(engine, put(b"small-%d-%03d" % (who, n)))

        def large():
            for n in range(10):
                try:
                    commit(engine, *(put(b"large-%d-%d" % (n, i), b"x" * 1_000_000) for i in range(8)))
                except EngineError:
                    refused.append(n)

        threads = [threading.Thread(target=small, args=(who,)) for who in range(4)] + [threading.Thread(target=large)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(len(refused), len(keys(engine, EVERYTHING)))
        engine.close()
        """,
        kind,
        path,
    )
    assert printed == "10 121\n"


@contextmanager
def held_by_another_process(kind: str, path: Path) -> Iterator[None]:
    """Another process is in the middle of a commit, until the end of the block."""
    code = """
        import sys
        from tests.engines.kill_groups import open_engine
        from tests.contract.shorthand import put
        from kvmodels.core.operations import Apply, AtomicWrite
        engine = open_engine(sys.argv[1], sys.argv[2])

        def wait(stored):
            print("inside", flush=True)
            sys.stdin.readline()
            return b"v", 3

        engine.commit(AtomicWrite((), (Apply(b"held", wait, 1),)))
        engine.close()
        """
    process = start(code, kind, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    yield
    finish(process, "go\n")


def test_each_operation_waits_for_another_process_until_its_own_deadline(kind: str, path: Path):
    engine = open_engine(kind, str(path), busy_timeout=0.2)
    commit(engine)
    with held_by_another_process(kind, path):
        early = submit(engine, add(b"a"), add(b"a"))
        time.sleep(0.1)
        late = submit(engine, add(b"a"))
        lead(engine)
        assert [type(member.outcome) for member in (*early, *late)] == [EngineTimeoutError] * 3
    members = submit(engine, add(b"b"), add(b"b"))
    lead(engine)
    assert [type(member.outcome) for member in members] == [Committed, Committed]
    assert number(engine, b"b") == 2
    engine.close()


# --- threads, processes, forks, kills -------------------------------------------------------------------------------


def test_threads_share_transactions_and_every_increment_is_there(engine: FileEngine, transactions: list[int]):
    """Each increments a counter of all by reading it and checking what it read, and one by a sum."""
    refused = [0] * 6

    def work(who: int) -> None:
        for _ in range(25):
            while True:
                found = rows(engine, ReadRange(b"checked"))
                present = int(found[0].value) if found else 0
                check = Check(b"checked", found[0].versionstamp if found else None)
                mutations = (put(b"checked", b"%d" % (present + 1)), Arithmetic("sum", b"sum", 1))
                if isinstance(engine.commit(AtomicWrite((check,), mutations)), Committed):
                    break
                refused[who] += 1
            commit(engine, Arithmetic("sum", b"sum", 1))

    rounds = 0
    while rounds < 20 and not (transactions and max(transactions) > 1 and sum(refused)):  # until threads have met
        rounds += 1
        threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert rows(engine, ReadRange(b"checked"))[0].value == b"%d" % (150 * rounds)
    assert number(engine, b"sum") == 300 * rounds
    print(f"{sum(transactions)} operations in {len(transactions)} transactions, {sum(refused)} refused")
    assert max(transactions) > 1
    assert sum(refused) > 0


def test_threads_of_several_processes_share_a_file_and_every_increment_is_there(kind: str, path: Path):
    code = """
        import sys, threading
        from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, ReadRange
        from tests.contract.shorthand import commit, put, rows
        from tests.engines.kill_groups import open_engine
        engine = open_engine(sys.argv[1], sys.argv[2], busy_timeout=60)
        sys.stdin.readline()

        def work():
            for n in range(10):
                while True:
                    found = rows(engine, ReadRange(b"checked"))
                    check = Check(b"checked", found[0].versionstamp if found else None)
                    present = int(found[0].value) if found else 0
                    change = put(b"checked", b"%d" % (present + 1))
                    if isinstance(engine.commit(AtomicWrite((check,), (change,))), Committed):
                        break
                commit(engine, Arithmetic("sum", b"sum", 1))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.close()
        """
    processes = [start(code, kind, path) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    engine = open_engine(kind, str(path))
    assert rows(engine, ReadRange(b"checked"))[0].value == b"60"
    assert number(engine, b"sum") == 60
    engine.close()


def test_a_fork_beside_threads_that_wait_for_a_group_disturbs_none(engine: FileEngine):
    threads = [threading.Thread(target=lambda: [commit(engine, Arithmetic("sum", b"n", 1)) for _ in range(40)])]
    threads += [threading.Thread(target=threads[0]._target) for _ in range(3)]  # type: ignore[attr-defined]
    for thread in threads:
        thread.start()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                engine.submit(add(b"child"), Bell())
            except ClosedError:
                code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join(60)
    assert number(engine, b"n") == 160


def test_what_is_in_the_queue_of_a_store_that_is_closed_is_told_so(kind: str, path: Path):
    engine = open_engine(kind, str(path))
    commit(engine)
    members = submit(engine, add(b"a"), add(b"b"))
    engine.close()
    members[0].committer.lead()
    assert [type(member.outcome) for member in members] == [ClosedError, ClosedError]
    with pytest.raises(ClosedError):
        submit(engine, add(b"c"))


@pytest.mark.servers
def test_killed_in_the_middle_of_a_group_each_operation_is_whole_or_absent_and_none_is_lost(kind: str, path: Path):
    """A process kill: what the system has taken is there. Each of six threads has at most one commit in flight."""
    open_engine(kind, str(path)).close()
    rng = random.Random(SEED)
    acknowledged: dict[tuple[int, int], int] = {}
    in_flight = 0
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.kill_groups", kind, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for writer in range(KILLS):
            writers.stdin.write("go\n")
            writers.stdin.flush()
            child = int(writers.stdout.readline().removeprefix("writer "))
            for _ in range(rng.randrange(5, 60)):
                note(acknowledged, writer, writers.stdout.readline())
            time.sleep(rng.random() * 0.003)
            os.kill(child, signal.SIGKILL)
            for line in writers.stdout:
                if line.startswith("ended"):
                    assert line == f"ended {-signal.SIGKILL}\n"
                    break
                note(acknowledged, writer, line)
            in_flight += check_after_kill(kind, path, writer, acknowledged)
    total = sum(last + 1 for last in acknowledged.values())
    print(f"seed {SEED}: {KILLS} kills, {total} commits acknowledged, {in_flight} more found applied, 0 lost")
    assert max(acknowledged.values()) < COMMITS_AT_MOST - 1


def note(acknowledged: dict[tuple[int, int], int], writer: int, line: str) -> None:
    thread, done = map(int, line.split())
    assert done == acknowledged.get((writer, thread), -1) + 1
    acknowledged[writer, thread] = done


def check_after_kill(kind: str, path: Path, writer: int, acknowledged: dict[tuple[int, int], int]) -> int:
    """All that was acknowledged is there, whole, each under its own versionstamp; how much more there is."""
    engine = open_engine(kind, str(path))
    result = engine.read([ReadRange(b"record/", b"record0"), ReadRange(b"entry/", b"entry0"), ReadRange(b"count")])
    engine.close()
    assert isinstance(result, ReadResult)
    records, entries, (count,) = result.ranges
    assert [(row.key, row.versionstamp) for row in records] == [(row.value, row.versionstamp) for row in entries]
    assert int.from_bytes(count.value, "little") == len(records) == len({row.versionstamp for row in records})
    more = 0
    for thread in range(THREADS):
        mine = [row.key for row in records if row.key.startswith(b"record/%03d-%d-" % (writer, thread))]
        assert mine == [b"record/%03d-%d-%06d" % (writer, thread, one) for one in range(len(mine))]
        unanswered = len(mine) - (acknowledged.get((writer, thread), -1) + 1)
        assert unanswered in (0, 1)
        more += unanswered
    return more
