"""Commits survive killed writers and reopening, and the promise rests on these settings of SQLite."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, ReadRange, ReadResult, to_versionstamp
from kvmodels.engines.contract import Engine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.file_engine import FileOptions
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.file import APPLICATION_ID, FORMAT
from kvmodels.engines.sqlite.store import SqliteStore
from kvmodels.engines.url import open_engine
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put
from tests.engines.kill_writers import COMMITS_AT_MOST
from tests.engines.pragmas import writer_pragmas
from tests.engines.processes import ROOT, run

KILLS = 50
SEED = 20_261_120


@pytest.mark.parametrize(("durability", "synchronous"), [("commit", 2), ("relaxed", 1)])
def test_the_writing_connection_has_the_synchronous_mode_of_the_durability(tmp_path: Path, durability, synchronous):
    engine = SqliteEngine(tmp_path / "store.db", durability=durability)
    for _ in range(2):
        pragmas = writer_pragmas(engine)
        assert (pragmas["synchronous"], pragmas["journal_mode"]) == (synchronous, "wal")
        assert (pragmas["application_id"], pragmas["user_version"]) == (APPLICATION_ID, FORMAT)
        commit(engine, put(b"a"))
    # A fork closes the connection; the one that is opened after it has the same settings.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert writer_pragmas(engine)["synchronous"] == synchronous
    engine.close()


@pytest.mark.parametrize("open_one", [SqliteEngine, LmdbEngine])
def test_review_23_versionstamps_are_never_used_twice_over_reopening(tmp_path: Path, open_one: Callable[..., Engine]):
    now = [5_000]
    path = tmp_path / "store.db"
    seen: list[bytes] = []
    for clock_ms in (5_000, 5_000, 9_000, 1_000, 1_000):
        now[0] = clock_ms
        engine = open_one(path, clock=lambda: now[0])
        opened = engine.read([])
        assert isinstance(opened, ReadResult)
        assert opened.versionstamp >= max(seen, default=b"")
        seen += [commit(engine, put(b"a")), commit(engine)]
        assert seen[-2] > opened.versionstamp
        engine.close()
    assert seen == sorted(set(seen))
    assert int.from_bytes(seen[0][:8], "big") == 5_000_001
    assert int.from_bytes(seen[4][:8], "big") == 9_000_001


def counter_of(path: Path) -> int:
    """The counter that a file holds."""
    with closing(sqlite3.connect(path)) as other:
        return int(other.execute("SELECT version FROM meta").fetchone()[0])


def test_a_file_that_lacks_nothing_is_opened_and_read_without_a_write(tmp_path: Path):
    path, now = tmp_path / "store.db", [5_000]
    engine = SqliteEngine(path, clock=lambda: now[0], change_log=60)
    commit(engine, put(b"a"))
    engine.close()
    before, now[0] = path.read_bytes(), 9_000
    engine = SqliteEngine(path, clock=lambda: now[0])
    assert keys(engine, EVERYTHING) == [b"a"]
    engine.close()
    assert path.read_bytes() == before


def test_the_counter_is_raised_by_the_first_operation_that_is_applied_and_only_by_it(tmp_path: Path):
    path, now = tmp_path / "store.db", [5_000]
    SqliteEngine(path, clock=lambda: now[0]).close()
    now[0] = 9_000
    engine = SqliteEngine(path, clock=lambda: now[0])
    assert isinstance(engine.commit(AtomicWrite((Check(b"a", b"0123456789"),))), Conflict)
    assert counter_of(path) == 5_000_000
    assert commit(engine) == to_versionstamp(9_000_001)
    now[0] = 10_000
    assert commit(engine) == to_versionstamp(9_000_002)
    engine.close()


def numbers_of_two_processes(path: Path) -> list[bytes]:
    """The versionstamps of two stores that have both opened the file before either writes; one clock is slow."""
    SqliteEngine(path, clock=lambda: 1_000).close()
    options = FileOptions("commit", lambda: 9_000, False, 5.0, 60.0, False, 0.05, None)
    stores = [
        SqliteStore(str(path), "url", options),
        SqliteStore(str(path), "url", options._replace(clock=lambda: 5_000)),
    ]
    write = AtomicWrite((), (put(b"a"),))
    found: list[bytes] = []
    try:
        for store in stores:
            store.open()
        for store in (*stores, *stores):
            committed = store.commit(write)
            assert isinstance(committed, Committed)
            found.append(committed.versionstamp)
    finally:
        for store in stores:
            store.close()
    return found


def test_the_counter_is_raised_above_what_others_have_written_since_the_opening(tmp_path: Path):
    found = numbers_of_two_processes(tmp_path / "store.db")
    assert found == sorted(set(found))
    assert found[0] == to_versionstamp(9_000_001)


def test_a_counter_that_is_raised_without_a_look_at_the_present_one_is_convicted(tmp_path: Path, monkeypatch):
    def raise_blindly(connection: sqlite3.Connection, clock: EngineClock) -> int:
        connection.execute("UPDATE meta SET version = ? WHERE id = 0", (clock.counter_floor(),))
        return 0

    monkeypatch.setattr(sqlite_file, "raise_counter", raise_blindly)
    found = numbers_of_two_processes(tmp_path / "store.db")
    assert found != sorted(set(found))


def test_a_resumed_feed_never_meets_a_counter_that_was_not_raised(tmp_path: Path):
    """A power loss or a restore has set the counter back; the cursor of a reader is older than the opening."""
    path, now = tmp_path / "store.db", [5_000]
    engine = SqliteEngine(path, clock=lambda: now[0], change_log=60)
    commit(engine, put(b"a"))
    engine.close()
    cursor, now[0] = to_versionstamp(6_000_000), 9_000
    engine = SqliteEngine(path, clock=lambda: now[0])
    assert engine.changes(EVERYTHING, cursor) == ([], to_versionstamp(9_000_000))
    engine.close()


def test_review_23_a_restored_copy_does_not_repeat_the_numbers_that_were_given_out_after_it(tmp_path: Path):
    path, now = tmp_path / "store.db", [1_000]
    engine = SqliteEngine(path, clock=lambda: now[0])
    commit(engine, put(b"a", b"old"))
    engine.close()
    backup = path.read_bytes()
    now[0] += 1
    engine = SqliteEngine(path, clock=lambda: now[0])
    lost = [commit(engine, put(b"a", b"lost %d" % i)) for i in range(5)]
    engine.close()
    path.write_bytes(backup)
    now[0] += 1
    engine = SqliteEngine(path, clock=lambda: now[0])
    fresh = [commit(engine, put(b"a", b"new %d" % i)) for i in range(5)]
    assert set(lost).isdisjoint(fresh)
    for stamp in lost:
        assert not isinstance(engine.commit(AtomicWrite((Check(b"a", stamp),), ())), Committed)
    engine.close()


def test_review_23_a_named_memory_store_that_is_opened_again_goes_on_above_its_numbers():
    now = [9_000]
    engine = MemoryEngine(url="memory://review-23", clock=lambda: now[0])
    last = commit(engine, put(b"a"))
    engine.close()
    now[0] = 1_000
    engine = MemoryEngine(url="memory://review-23", clock=lambda: now[0])
    assert keys(engine, EVERYTHING) == []
    assert commit(engine) > last
    engine.close()


@pytest.mark.parametrize("open_one", [SqliteEngine, LmdbEngine])
def test_the_clock_does_not_go_back_over_reopening(tmp_path: Path, open_one: Callable[..., Engine]):
    path, now = tmp_path / "store.db", [10_000]
    engine = open_one(path, clock=lambda: now[0])
    commit(engine, put(b"k", expire_at=10_500))
    now[0] = 10_500
    commit(engine)
    engine.close()
    now[0] = 200
    for readonly in (True, False):
        engine = open_one(path, clock=lambda: now[0], readonly=readonly)
        assert get(engine, b"k") is None
        assert keys(engine, ReadRange(b"a", b"z")) == []
        assert keys(engine, ReadRange(b"a", b"z"), ReadRange(b"k")) == []
        assert keys(engine.snapshot(), EVERYTHING) == []
        engine.close()


def test_what_another_process_committed_is_read_at_once(tmp_path: Path):
    path = tmp_path / "store.db"
    engine = SqliteEngine(path)
    run(
        """
        import sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from tests.contract.shorthand import commit, put
        engine = SqliteEngine(sys.argv[1])
        commit(engine, put(b"a"))
        engine.close()
        """,
        path,
    )
    assert keys(engine, EVERYTHING) == [b"a"]
    engine.close()


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("sqlite", 15),
        pytest.param("sqlite", KILLS, marks=pytest.mark.servers),
        pytest.param("lmdb", KILLS // 2, marks=pytest.mark.servers),
    ],
)
def test_killed_writers_lose_nothing_acknowledged(kind: str, kills: int, url_of: Callable[..., str]):
    """Each writer is killed with SIGKILL at a random moment between its first and its last acknowledgement."""
    url = url_of(kind)
    open_engine(url).close()
    rng = random.Random(SEED)
    acknowledged: dict[int, int] = {}
    inside = in_flight = 0
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.kill_writers", url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for writer in range(kills):
            writers.stdin.write("go\n")
            writers.stdin.flush()
            child = int(writers.stdout.readline().removeprefix("writer "))
            wanted = rng.randrange(1, 25)
            for _ in range(wanted):
                acknowledged[writer] = int(writers.stdout.readline())
            time.sleep(rng.random() * 0.002)
            os.kill(child, signal.SIGKILL)
            for line in writers.stdout:
                if line.startswith("ended"):
                    assert line == f"ended {-signal.SIGKILL}\n"
                    break
                acknowledged[writer] = int(line)
            inside += 0 <= acknowledged[writer] < COMMITS_AT_MOST - 1
            in_flight += check_after_kill(url, writer, acknowledged)
    total = sum(last + 1 for last in acknowledged.values())
    print(f"seed {SEED}: {kills} kills, {inside} between first and last acknowledgement,", end=" ")
    print(f"{total} commits acknowledged, {in_flight} more found applied, 0 lost")
    assert inside >= kills * 0.8


def check_after_kill(url: str, writer: int, acknowledged: dict[int, int]) -> int:
    """All that was acknowledged is there, whole; returns 1 if the commit in flight was applied."""
    engine = open_engine(url)
    result = engine.read([ReadRange(b"record/", b"record0"), ReadRange(b"entry/", b"entry0"), ReadRange(b"count")])
    engine.close()
    assert isinstance(result, ReadResult)
    records, entries, (count,) = result.ranges
    assert [(row.key, row.versionstamp) for row in records] == [(row.value, row.versionstamp) for row in entries]
    assert int.from_bytes(count.value, "little") == len(records)
    mine = [row.key for row in records if row.key.startswith(b"record/%03d-" % writer)]
    applied = len(mine) - (acknowledged[writer] + 1)
    assert mine == [b"record/%03d-%06d" % (writer, number) for number in range(len(mine))]
    assert applied in (0, 1)
    return applied
