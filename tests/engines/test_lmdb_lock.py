"""The rules that keep threads and processes apart on LMDB; without each of them a schedule goes wrong."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import ReadRange
from kvmodels.engines.lmdb import lock as lmdb_lock
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.lmdb.file import translated
from kvmodels.engines.lmdb.lock import WriterLock
from kvmodels.engines.lmdb.store import LmdbStore
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import EngineError, EngineTimeoutError
from tests.contract.shorthand import EVERYTHING, commit, put

GROWTH = tuple(put(b"k%04d" % n, b"v" * 10_000) for n in range(100))


@pytest.fixture
def engine(quick_folder: Path) -> Iterator[LmdbEngine]:
    opened = LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", map_size=1 << 18)
    commit(opened, put(b"a"))
    yield opened
    opened.close()


def backoff(seconds: float) -> Backoff:
    return Backoff(seconds, lambda error: translated(error, "url", "data"))


class HeldBackoff(Backoff):
    """Who waits with it stays in its first wait until it is told to look again."""

    __slots__ = ("look_again", "waits")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waits, self.look_again = threading.Event(), threading.Event()

    def wait(self, error: Exception) -> None:
        self.waits.set()
        assert self.look_again.wait(60)
        super().wait(error)


def back_at_once(folder: Path) -> bool:
    """Whether a process that releases the lock has it back before one that has been waiting for it."""
    mine, other = WriterLock(str(folder / "writer.lock")), WriterLock(str(folder / "writer.lock"))
    mine.acquire(backoff(0))
    held = HeldBackoff(60, lambda error: translated(error, "url", "data"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.acquire, held)
        assert held.waits.wait(60)
        with pytest.raises(EngineTimeoutError):
            WriterLock(str(folder / "writer.lock")).acquire(backoff(0.02))
        mine.release()
        try:
            mine.acquire(backoff(0))
        except EngineTimeoutError:
            won = False
        else:
            won = True
            mine.release()
        held.look_again.set()
        waiting.result(30)
    other.release()
    mine.acquire(backoff(0))
    mine.release()
    for one in (mine, other):
        one.close()
    return won


def test_who_releases_the_lock_waits_behind_who_waited_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_lock, "PASSING_S", 0.0)
    assert not back_at_once(tmp_path)


def test_who_releases_the_lock_goes_past_who_has_not_waited_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_lock, "PASSING_S", 60.0)
    assert back_at_once(tmp_path)


def test_who_has_waited_long_is_passed_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_lock, "PASSING_S", 0.005)
    mine, other = WriterLock(str(tmp_path / "writer.lock")), WriterLock(str(tmp_path / "writer.lock"))
    mine.acquire(backoff(0))
    held = HeldBackoff(60, lambda error: translated(error, "url", "data"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.acquire, held)
        assert held.waits.wait(60)
        time.sleep(0.01)
        held.waits.clear()
        held.look_again.set()
        assert held.waits.wait(60)
        mine.release()
        with pytest.raises(EngineTimeoutError):
            mine.acquire(backoff(0))
        waiting.result(30)
    other.release()
    for one in (mine, other):
        one.close()


def test_without_turns_who_releases_the_lock_has_it_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wait_for = lmdb_lock._wait_for

    def without_turns(file: int, one: Backoff) -> None:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            wait_for(file, one)

    monkeypatch.setattr(lmdb_lock, "PASSING_S", 0.0)
    monkeypatch.setattr(lmdb_lock, "_wait_for", without_turns)
    assert back_at_once(tmp_path)


def test_a_lock_is_held_by_nobody_after_a_deadline_and_after_closing(tmp_path: Path):
    mine, other = WriterLock(str(tmp_path / "writer.lock")), WriterLock(str(tmp_path / "writer.lock"))
    mine.release()  # nothing happens
    mine.acquire(backoff(0))
    with pytest.raises(EngineTimeoutError):
        other.acquire(backoff(0.01))
    other.release()
    mine.close()
    other.acquire(backoff(0))
    other.release()
    other.close()


def read_while_the_map_grows(engine: LmdbEngine) -> list[list[bytes]]:
    """The keys of a read that stops in the middle until the map is being made larger, or is."""
    inside, release = threading.Event(), threading.Event()

    def follow(found: Any) -> list[ReadRange]:
        inside.set()
        release.wait(60)
        return [ReadRange(b"a")]

    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(engine.read, [EVERYTHING], follow=follow)
        inside.wait(60)
        size = engine.check_open()._map_size
        growing = pool.submit(commit, engine, *GROWTH)
        while engine.check_open()._opened is not None and engine.check_open()._map_size == size:
            pass
        while not growing.done() and engine.check_open()._opened is not None:
            pass
        release.set()
        growing.result(30)
        result: Any = reading.result(30)
    return [[row.key for row in one] for one in (*result.ranges, *result.followed)]


def test_a_map_is_made_larger_when_no_read_runs(engine):
    assert read_while_the_map_grows(engine) == [[b"a"], [b"a"]]


def test_without_waiting_for_readers_a_read_loses_its_transaction(engine, monkeypatch):
    monkeypatch.setattr(LmdbStore, "_wait_for_readers", lambda store: None)
    with pytest.raises(EngineError, match="could not carry out"):
        read_while_the_map_grows(engine)


def test_without_expiring_snapshots_one_reads_from_a_transaction_that_is_gone(engine, monkeypatch):
    snapshot = engine.snapshot()
    monkeypatch.setattr(LmdbStore, "expire_snapshots", lambda store, now: None)
    commit(engine, *GROWTH)
    with pytest.raises(EngineError, match="could not carry out"):
        snapshot.read([EVERYTHING])
    snapshot.close()
