"""Locks of files and processes: nothing acknowledged is lost, every wait ends, nothing is left locked."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from kvmodels.core.operations import ReadRange
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.file import IDLE_CONNECTIONS
from kvmodels.errors import EngineTimeoutError, ForeignFileError, SnapshotExpiredError
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.engines.pragmas import writer_pragmas
from tests.engines.processes import finish, run, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextmanager
def held_by_another_connection(path: Path, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """The file as another process has it that is inside a transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(begin)
        yield
        other.rollback()


READ_KEYS = """
import sys
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import EVERYTHING, keys
engine = SqliteEngine(sys.argv[1])
print(*(key.decode() for key in keys(engine, EVERYTHING)))
engine.close()
"""


def test_review_09_looking_at_a_file_that_is_open_loses_no_commit(path: Path):
    """A second opening and a refused opening used to drop the process's locks on the file.

    Then the next process that closed deleted the log, and the first one went on committing to an unlinked file.
    """
    engine = SqliteEngine(path)
    commit(engine, put(b"1"))
    SqliteEngine(path).close()
    foreign = path.with_name("foreign.db")
    foreign.write_text("not a database " * 100)
    with pytest.raises(ForeignFileError):
        SqliteEngine(foreign)
    commit(engine, put(b"2"))
    # The other process opens, reads and closes: were it the last one to hold the file, it would delete the log.
    assert run(READ_KEYS, path) == "1 2\n"
    commit(engine, put(b"3"))
    assert run(READ_KEYS, path) == "1 2 3\n"
    engine.close()
    assert run(READ_KEYS, path) == "1 2 3\n"


def test_review_29_a_child_that_opens_the_file_itself_loses_nothing(path: Path):
    """SQLite keeps locks per process: a child that inherits them thinks that it holds what only the parent holds.

    With connections open across the fork, the parent's closing deletes the log under the child, although the child
    has a connection of its own, and what the child commits then is gone.
    """
    printed = run(
        """
        import os, sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from tests.contract.shorthand import commit, put
        path = sys.argv[1]
        parent = SqliteEngine(path)
        commit(parent, put(b"by parent"))
        parent.read([])
        to_parent, to_child = os.pipe(), os.pipe()
        if os.fork() == 0:
            child = SqliteEngine(path)
            commit(child, put(b"by child 1"))
            os.write(to_parent[1], b"x")
            os.read(to_child[0], 1)
            commit(child, put(b"by child 2"))
            print("log exists:", os.path.exists(path + "-wal"), flush=True)
            os._exit(0)
        os.read(to_parent[0], 1)
        commit(parent, put(b"by parent again"))
        parent.close()
        os.write(to_child[1], b"x")
        os.wait()
        """,
        path,
    )
    assert printed == "log exists: True\n"
    engine = SqliteEngine(path)
    assert keys(engine, EVERYTHING) == [b"by child 1", b"by child 2", b"by parent", b"by parent again"]
    engine.close()


def test_review_29_a_hundred_and_twenty_concurrent_openings_all_succeed(path: Path):
    opener = """
        import sys, threading
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from tests.contract.shorthand import commit, put
        sys.stdin.readline()
        failures = []
        def open_often(thread):
            for n in range(5):
                try:
                    engine = SqliteEngine(sys.argv[1], busy_timeout=30)
                    commit(engine, put(b"%s-%d-%d" % (sys.argv[2].encode(), thread, n)))
                    engine.close()
                except Exception as error:
                    failures.append(error)
        threads = [threading.Thread(target=open_often, args=(n,)) for n in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(failures), *failures)
        """
    processes = [start(opener, path, who) for who in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [finish(process) for process in processes] == ["0\n"] * 4
    engine = SqliteEngine(path)
    assert len(keys(engine, EVERYTHING)) == 120
    engine.close()


def test_a_file_that_lacks_nothing_is_opened_beside_a_writer(path: Path):
    SqliteEngine(path).close()
    with held_by_another_connection(path, "BEGIN EXCLUSIVE"):
        engine = SqliteEngine(path, busy_timeout=0.05)
        assert keys(engine, EVERYTHING) == []
        with pytest.raises(EngineTimeoutError):
            commit(engine)
    commit(engine)
    engine.close()


def test_opening_and_reading_have_the_same_deadline(path: Path):
    SqliteEngine(path).close()
    with held_by_another_connection(path, "BEGIN EXCLUSIVE"), pytest.raises(EngineTimeoutError):
        SqliteEngine(path, busy_timeout=0.05, change_log=60)
    # A file that was left outside WAL mode by a crash while it was made: an exclusive lock keeps readers out.
    with closing(sqlite3.connect(path, timeout=0)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
    reader = SqliteEngine(path, readonly=True, busy_timeout=0.05)
    with held_by_another_connection(path, "BEGIN EXCLUSIVE"):
        for call in (lambda: reader.read([EVERYTHING]), lambda: reader.read([]), reader.snapshot):
            with pytest.raises(EngineTimeoutError):
                call()
    assert keys(reader, EVERYTHING) == []
    reader.close()


def test_a_read_leaves_no_transaction_that_holds_the_log(path: Path):
    """A statement left open would pin the log; a checkpoint that empties it shows that there is none."""
    engine = SqliteEngine(path)
    commit(engine, *(put(b"k%03d" % i) for i in range(100)))
    for ranges in ([EVERYTHING], [EVERYTHING._replace(limit=3)], [ReadRange(b"k001")], [EVERYTHING, EVERYTHING]):
        engine.read(ranges)
    engine.snapshot().close()
    commit(engine, put(b"last"))
    with closing(sqlite3.connect(path, timeout=0)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert path.with_name("store.db-wal").stat().st_size == 0
    engine.close()


def test_a_forgotten_snapshot_stops_holding_the_log_at_its_maximum_age(path: Path):
    now = [1_000_000]
    engine = SqliteEngine(path, clock=lambda: now[0], snapshot_max_age=10)
    commit(engine, put(b"a"))
    snapshot = engine.snapshot()
    commit(engine, put(b"b"))
    with closing(sqlite3.connect(path, timeout=0)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 1
        now[0] += 10_000
        commit(engine, put(b"c"))
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    with pytest.raises(SnapshotExpiredError):
        snapshot.read([EVERYTHING])
    engine.close()


def test_no_more_reading_connections_are_kept_than_the_pool_holds(path: Path):
    engine = SqliteEngine(path)
    barrier = threading.Barrier(40)

    def follow(found):
        barrier.wait(60)
        return []

    threads = [threading.Thread(target=lambda: engine.read([], follow=follow)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # Counted as connections: SQLite keeps the descriptors of closed ones for reuse while the file is locked.
    assert len(engine.check_open().open_readers()) == IDLE_CONNECTIONS
    engine.close()
    open_files = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
    assert [name for name in open_files if name.startswith(str(path))] == []


class FirstBusyConnection(sqlite_file.Connection):
    """Answers every statement with SQLITE_BUSY once, as a file does that others are making."""

    answered: ClassVar[set[tuple[int, str]]] = set()

    def execute(self, sql: str, /, *parameters: Any) -> sqlite3.Cursor:
        call = (id(self), sql)
        if call not in self.answered:
            self.answered.add(call)
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_BUSY, "SQLITE_BUSY"
            raise error
        return super().execute(sql, *parameters)


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_review_29_a_file_that_is_busy_at_any_statement_of_opening_is_waited_for(
    path: Path, durability: Literal["commit", "relaxed"], monkeypatch: pytest.MonkeyPatch
):
    """Only the settings of a connection were not repeated: one opening of thousands met a file being made."""
    monkeypatch.setattr(sqlite_file, "Connection", FirstBusyConnection)
    monkeypatch.setattr(FirstBusyConnection, "answered", set())
    for number in range(2):  # a file that is made, and one that is there
        engine = SqliteEngine(path, durability=durability, change_log=60, busy_timeout=60)
        assert writer_pragmas(engine)["journal_mode"] == "wal"
        assert len(keys(engine, EVERYTHING)) == 0
        with closing(engine.snapshot()) as snapshot:
            assert snapshot.read([EVERYTHING, EVERYTHING]) == engine.read([EVERYTHING, EVERYTHING])
        engine.close()
        seen = {sql for _, sql in FirstBusyConnection.answered}
        assert {"PRAGMA synchronous = FULL", "PRAGMA query_only = ON", "BEGIN IMMEDIATE"} <= seen, number
    readonly = SqliteEngine(path, readonly=True, busy_timeout=60)
    assert keys(readonly, EVERYTHING) == []
    readonly.close()
