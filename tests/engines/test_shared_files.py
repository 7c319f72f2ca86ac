"""Several processes and threads on one file of SQLite, or on one folder of LMDB: every wait ends, nothing is lost."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvmodels.core.operations import ReadRange
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import EngineTimeoutError, SnapshotExpiredError
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.engines.deadlines import seconds_until_all_have_given_up
from tests.engines.processes import finish, start


@contextmanager
def held_file(path: Path) -> Iterator[None]:
    """A file of SQLite as another process has it that is inside a write transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


@contextmanager
def held_folder(path: Path) -> Iterator[None]:
    """A folder of LMDB as another process has it that is inside a write transaction."""
    with open(path / "writer.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Store(NamedTuple):
    """A place for a store, the engine that opens it, and a write transaction of another process."""

    engine: Callable[..., Any]
    path: Path
    held: Callable[[Path], AbstractContextManager[None]]

    def open(self, **options: Any) -> Any:
        return self.engine(self.path, **options)


@pytest.fixture(params=["sqlite", "lmdb"])
def store(request: pytest.FixtureRequest, quick_folder: Path, tmp_path: Path) -> Store:
    if request.param == "lmdb":
        return Store(LmdbEngine, quick_folder / "store.lmdb", held_folder)
    return Store(SqliteEngine, tmp_path / "store.db", held_file)


def test_a_commit_gives_up_at_the_busy_deadline_and_works_afterwards(store: Store):
    engine = store.open(busy_timeout=0.1)
    before = time.monotonic()
    with store.held(store.path):
        with pytest.raises(EngineTimeoutError) as caught:
            commit(engine, put(b"a"))
        assert time.monotonic() - before >= 0.1
        assert "busy_timeout" in str(caught.value.hint)
        assert keys(engine, EVERYTHING) == [], "a reader waits for no writer"
        with pytest.raises(EngineTimeoutError):
            engine.sweep(1)
    commit(engine, put(b"b"))
    assert keys(engine, EVERYTHING) == [b"b"]
    engine.close()


def test_a_commit_waits_for_another_process_that_is_done_in_time(store: Store):
    engine = store.open(busy_timeout=60)
    thread = threading.Thread(target=lambda: commit(engine, put(b"a")))
    with store.held(store.path):
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join(60)
    assert keys(engine, EVERYTHING) == [b"a"]
    engine.close()


def test_threads_that_wait_in_line_do_not_wait_one_deadline_each(store: Store, monkeypatch: pytest.MonkeyPatch):
    engine = store.open(busy_timeout=0.3)
    with store.held(store.path):
        assert seconds_until_all_have_given_up(engine, monkeypatch) == pytest.approx(0.3)
    monkeypatch.undo()
    engine.close()


@pytest.mark.servers
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_forks_beside_busy_threads_disturb_neither_reads_nor_commits(store: Store):
    engine = store.open(durability="relaxed")
    stop, errors, committed = threading.Event(), [], [0, 0]

    def work(who: int):
        try:
            while not stop.is_set():
                commit(engine, put(b"%d-%06d" % (who, committed[who])))
                committed[who] += 1
                engine.read([EVERYTHING._replace(limit=5), ReadRange(b"0")])
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    snapshot = engine.snapshot()
    for _ in range(8):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    while min(committed) == 0 and not errors:
        time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(keys(engine, EVERYTHING)) == sum(committed)
    with pytest.raises(SnapshotExpiredError):
        snapshot.read([EVERYTHING])
    engine.close()


OPENER = """
import sys
from {module} import {name} as Engine
from tests.contract.shorthand import commit, put
sys.stdin.readline()
for n in range(10):
    engine = Engine(f"{{sys.argv[1]}}{{n}}", durability="relaxed")
    commit(engine, put(sys.argv[2].encode()))
    engine.close()
"""


def test_two_processes_that_make_one_store_at_the_same_time_both_succeed(store: Store):
    opener = OPENER.format(module=store.engine.__module__, name=store.engine.__name__)
    processes = [start(opener, store.path, who) for who in ("one", "two")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    for n in range(10):
        engine = store.engine(f"{store.path}{n}")
        assert keys(engine, EVERYTHING) == [b"one", b"two"]
        engine.close()
