"""Several processes on one folder: killed, stopped, forked, opening at once; nothing acknowledged is lost."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import lmdb
import pytest

from kvmodels.engines.lmdb import file as lmdb_file
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.errors import ClosedError, CommitUnknownError, EngineTimeoutError, StorageFullError
from tests.contract.shorthand import EVERYTHING, commit, keys, number, put
from tests.engines.processes import finish, run, start


@pytest.fixture
def path(quick_folder: Path) -> Path:
    return quick_folder / "store.lmdb"


@contextmanager
def held_by_another_process(path: Path) -> Iterator[None]:
    """The store as another process has it that is inside a write transaction."""
    with open(path / "writer.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_opening_has_the_same_deadline(path: Path):
    LmdbEngine(path).close()
    with held_by_another_process(path), pytest.raises(EngineTimeoutError):
        LmdbEngine(path, busy_timeout=0.05)
    LmdbEngine(path).close()


WRITING = """
import os, sys
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.core.operations import Arithmetic
from tests.contract.shorthand import commit, number
engine = LmdbEngine(sys.argv[1], durability="relaxed", busy_timeout=float(sys.argv[2]))
print("open", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[3])):
    commit(engine, Arithmetic("sum", b"n", 1), Arithmetic("sum", sys.argv[4].encode(), 1))
    print(n, flush=True)
"""


def test_writers_that_commit_all_the_time_let_each_other_in(path: Path):
    """Who has just released the lock would get it back every time, and the others would meet their deadlines."""
    LmdbEngine(path).close()
    writers = [start(WRITING, path, 20, 100, f"w{name}") for name in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        assert finish(writer).split()[-1] == "99"
    engine = LmdbEngine(path)
    assert [number(engine, name) for name in (b"n", b"w0", b"w1", b"w2")] == [300, 100, 100, 100]
    engine.close()


def test_a_writer_that_is_killed_in_the_middle_of_a_transaction_leaves_nothing_locked(path: Path):
    """The dead process held both locks; LMDB's own is taken over from it."""
    engine = LmdbEngine(path, busy_timeout=30)
    commit(engine, put(b"before"))
    writer = start(
        """
        import sys, time
        from kvmodels.engines.lmdb.engine import LmdbEngine
        from kvmodels.core.operations import Apply
        from tests.contract.shorthand import commit
        def hang(stored):
            print("inside", flush=True)
            time.sleep(600)
            return b"", 3
        commit(LmdbEngine(sys.argv[1]), Apply(b"never", hang, 8))
        """,
        path,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "inside\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    commit(engine, put(b"after"))
    assert keys(engine, EVERYTHING) == [b"after", b"before"]
    engine.close()


def test_readers_that_were_killed_are_forgotten(path: Path):
    """Their slots in the table, and the pages that they hold back, until somebody opens the store or needs them."""
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    reader = start(
        """
        import sys, time
        from kvmodels.engines.lmdb.engine import LmdbEngine
        engines = [LmdbEngine(sys.argv[1])]
        snapshots = [engines[0].snapshot() for _ in range(5)]
        print("reading", flush=True)
        time.sleep(600)
        """,
        path,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "reading\n"
    reader.send_signal(signal.SIGKILL)
    reader.communicate()
    opened = engine.check_open()._opened
    assert opened is not None
    assert opened.environment.readers().count("\n") >= 6
    run(
        """
        import sys
        from kvmodels.engines.lmdb.engine import LmdbEngine
        LmdbEngine(sys.argv[1]).close()
        """,
        path,
    )
    assert opened.environment.readers().count("\n") < 6
    engine.close()


def test_more_reads_at_once_than_the_table_holds_wait_for_each_other(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_file, "MOST_READERS", 4)
    engine = LmdbEngine(path, busy_timeout=0.1)
    commit(engine, put(b"a"))
    snapshots = []
    with pytest.raises(EngineTimeoutError):
        while True:
            snapshots.append(engine.snapshot())
    assert 2 <= len(snapshots) <= 4
    with pytest.raises(EngineTimeoutError):
        keys(engine, EVERYTHING)
    commit(engine, put(b"b"))
    snapshots.pop().close()
    assert keys(engine, EVERYTHING) == [b"a", b"b"]
    engine.close()


def test_a_child_that_opens_the_folder_itself_and_outlives_its_parent_keeps_no_lock(path: Path):
    printed = run(
        """
        import os, sys
        from kvmodels.engines.lmdb.engine import LmdbEngine
        from tests.contract.shorthand import EVERYTHING, commit, keys, number, put
        path = sys.argv[1]
        parent = LmdbEngine(path)
        commit(parent, put(b"by parent"))
        if os.fork() == 0:
            child = LmdbEngine(path)
            commit(child, put(b"by child"))
            print(open("/proc/self/maps").read().count("data.mdb"), flush=True)
            os._exit(0)
        os.wait()
        commit(parent, put(b"by parent again"))
        print(keys(parent, EVERYTHING))
        """,
        path,
    )
    assert printed.splitlines() == ["1", "[b'by child', b'by parent', b'by parent again']"]


def test_a_file_that_may_not_grow_refuses_commits_and_loses_none(path: Path):
    """RLIMIT_FSIZE, in a process of its own: the file hits the limit in the middle of a commit."""
    printed = run(
        """
        import resource, sys
        from kvmodels.engines.lmdb.engine import LmdbEngine
        from kvmodels.errors import StorageFullError
        from tests.contract.shorthand import EVERYTHING, commit, keys, number, put
        engine = LmdbEngine(sys.argv[1], durability="relaxed")
        commit(engine, put(b"before"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        written = refused = 0
        for n in range(100):
            try:
                commit(engine, put(b"k%03d-a" % n, b"x" * 2_000), put(b"k%03d-b" % n, b"x" * 2_000))
                written += 1
            except StorageFullError as error:
                assert error.hint
                refused += 1
                found = len(keys(engine, EVERYTHING))
                assert found == 1 + 2 * written, (found, written)
        assert written and refused
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        commit(engine, put(b"after"))
        assert len(keys(engine, EVERYTHING)) == 2 + 2 * written
        engine.close()
        print("whole")
        """,
        path,
    )
    assert printed == "whole\n"


class Failing:
    """An environment in which something fails; everything else is passed on."""

    def __init__(self, inner: Any, error: lmdb.Error, *, panics: bool) -> None:
        self.inner = inner
        self.error = error
        self.panics = panics
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self, write: bool = False) -> Any:
        if self.failed and self.panics:
            raise lmdb.PanicError("mdb_txn_begin", -30795)
        transaction = self.inner.begin(write=write)
        return FailingTransaction(self, transaction) if write else transaction


class FailingTransaction:
    def __init__(self, environment: Failing, inner: Any) -> None:
        self.environment = environment
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.inner.abort()

    def commit(self) -> None:
        self.environment.failed = True
        self.inner.abort()
        raise self.environment.error


def with_code(error: lmdb.Error, code: int) -> lmdb.Error:
    error.code = code  # type: ignore[misc]  # as the library does
    return error


def fail_in_commit(engine: LmdbEngine, error: lmdb.Error, *, panics: bool) -> Any:
    store = engine.check_open()
    opened = store._opened
    assert opened is not None
    failing: Any = Failing(opened.environment, error, panics=panics)
    store._opened = opened._replace(environment=failing)
    return opened


def test_a_disk_that_fails_while_the_commit_is_made_valid_leaves_it_unknown_and_closes_the_engine(path: Path):
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    opened = fail_in_commit(engine, with_code(lmdb.Error("mdb_txn_commit"), 5), panics=True)
    with pytest.raises(CommitUnknownError):
        commit(engine, put(b"b"))
    for call in (lambda: keys(engine, EVERYTHING), lambda: commit(engine)):
        with pytest.raises(ClosedError) as caught:
            call()
        assert "I/O error" in str(caught.value.reason)
    opened.environment.close()
    engine.close()
    engine = LmdbEngine(path)
    assert keys(engine, EVERYTHING) == [b"a"]
    engine.close()


def test_a_disk_that_is_full_before_the_commit_is_made_valid_is_certain(path: Path):
    engine = LmdbEngine(path)
    opened = fail_in_commit(engine, with_code(lmdb.DiskError("mdb_txn_commit"), 28), panics=False)
    with pytest.raises(StorageFullError):
        commit(engine, put(b"b"))
    engine.check_open()._opened = opened
    assert keys(engine, EVERYTHING) == []
    commit(engine, put(b"a"))
    engine.close()
