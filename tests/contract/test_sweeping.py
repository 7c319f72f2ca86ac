"""Sweeping removes what has expired, nothing else, and shows as a commit; engines do it by themselves."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

import pytest

from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    ReadRange,
    ReadResult,
    Row,
    Set,
    point,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ClosedError, InvalidArgumentError, InvalidValueError, KvModelsError, ReadOnlyError
from tests.contract.conftest import Clock
from tests.worlds import SERVER_NAMES, SERVERS, server_options

EVERYTHING = ReadRange(b"", b"\xff")


def rows(engine: Engine, *, include_expired: bool = False) -> list[Row]:
    found = engine.read([EVERYTHING], include_expired=include_expired)
    assert isinstance(found, ReadResult)
    return found.ranges[0]


def keys(engine: Engine, *, include_expired: bool = False) -> list[bytes]:
    return [row.key for row in rows(engine, include_expired=include_expired)]


def put(engine: Engine, key: bytes, expire_at: int | None = None, value: bytes = b"v") -> bytes:
    done = engine.commit(AtomicWrite(mutations=(Set(key, value, 3, expire_at),)))
    assert isinstance(done, Committed)
    return done.versionstamp


def test_sweeping_removes_what_has_expired_and_nothing_else(engine, clock):
    put(engine, b"for ever")
    put(engine, b"later", clock.now + 1_001)
    put(engine, b"now", clock.now + 1_000)
    put(engine, b"sooner", clock.now + 1)
    clock.now += 1_000
    assert engine.sweep(10) == 2
    assert keys(engine, include_expired=True) == [b"for ever", b"later"]
    assert engine.sweep(10) == 0


def test_a_sweep_is_a_commit_and_an_empty_one_is_none(engine, clock):
    before = put(engine, b"k", clock.now + 1)
    assert engine.sweep(10) == 0
    assert engine.wait_for_commit(b"", 0) == before
    clock.now += 1
    assert engine.sweep(10) == 1
    assert engine.wait_for_commit(b"", 0) > before


def test_a_sweep_removes_at_most_as_many_rows_as_asked_the_oldest_deadlines_first(engine, clock):
    for number in range(10):
        put(engine, b"%d" % number, clock.now + 10 - number)
    clock.now += 10
    assert engine.sweep(3) == 3
    assert keys(engine, include_expired=True) == [b"%d" % number for number in range(7)]
    assert [engine.sweep(4), engine.sweep(4), engine.sweep(4)] == [4, 3, 0]


def test_a_row_that_was_written_again_is_not_swept(engine, clock):
    deadline = clock.now + 5
    for key in (b"extended", b"cleared", b"deleted", b"rewritten after expiry"):
        put(engine, key, deadline)
    put(engine, b"extended", deadline + 1_000)
    put(engine, b"cleared")
    engine.commit(AtomicWrite(mutations=(Delete(b"deleted"),)))
    clock.now = deadline
    put(engine, b"rewritten after expiry")
    assert engine.sweep(10) == 0
    assert keys(engine) == [b"cleared", b"extended", b"rewritten after expiry"]


def test_review_11_a_physical_check_of_an_expired_row_fails_once_it_is_swept(engine, clock):
    stamp = put(engine, b"slot", clock.now + 1)
    clock.now += 1
    takeover = AtomicWrite((Check(b"slot", stamp, physical=True),), (Set(b"slot", b"mine", 3),))
    engine.sweep(10)
    assert engine.commit(takeover) == Conflict((0,))
    assert isinstance(engine.commit(AtomicWrite((Check(b"slot", None, physical=True),), takeover.mutations)), Committed)


def test_review_11_the_clock_never_goes_back(engine, clock):
    put(engine, b"k", clock.now + 10)
    clock.now += 10
    assert keys(engine) == []
    assert engine.sweep(10) == 1
    put(engine, b"young", clock.now + 10)
    clock.now -= 10_000
    assert keys(engine) == [b"young"]
    assert engine.now_ms() >= clock.now + 10_000


def test_a_snapshot_keeps_what_is_swept(engine, clock):
    put(engine, b"k", clock.now + 10)
    snapshot = engine.snapshot()
    clock.now += 10
    assert engine.sweep(10) == 1
    assert [row.key for row in snapshot.read([EVERYTHING]).ranges[0]] == [b"k"]
    snapshot.close()


def test_the_sweep_agrees_with_a_mapping_for_random_histories(engine, clock):
    chance = random.Random(20_240_611)
    model: dict[bytes, int | None] = {}
    for _ in range(400):
        key = b"%d" % chance.randrange(20)
        kind = chance.randrange(6)
        if kind <= 2:
            expire_at = clock.now + chance.randrange(40) if chance.random() < 0.7 else None
            put(engine, key, expire_at)
            model[key] = expire_at
        elif kind == 3:
            engine.commit(AtomicWrite(mutations=(Delete(key),)))
            model.pop(key, None)
        elif kind == 4:
            clock.now += chance.randrange(10)
        else:
            limit = chance.randrange(1, 5)
            expired = sorted((at, key) for key, at in model.items() if at is not None and at <= clock.now)
            swept = engine.sweep(limit)
            assert swept == min(limit, len(expired))
            left = set(keys(engine, include_expired=True))
            gone = model.keys() - left
            assert len(gone) == swept
            assert all(model.pop(key) in [at for at, _ in expired[:swept]] for key in gone)
        assert set(keys(engine, include_expired=True)) == model.keys()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "all", None])
def test_the_number_of_rows_to_sweep_is_a_positive_integer(engine, limit):
    with pytest.raises(InvalidArgumentError):
        engine.sweep(limit)


def test_a_store_for_reading_only_does_not_sweep(tmp_path):
    SqliteEngine(tmp_path / "store.db").close()
    LmdbEngine(tmp_path / "store.lmdb").close()
    for engine in (
        SqliteEngine(tmp_path / "store.db", readonly=True),
        LmdbEngine(tmp_path / "store.lmdb", readonly=True),
        MemoryEngine(readonly=True),
    ):
        with pytest.raises(ReadOnlyError):
            engine.sweep(1)
        engine.close()
        with pytest.raises(ClosedError):
            engine.sweep(1)


# In the background, which needs the clock of the system


@pytest.fixture(params=["memory", "sqlite-file", "sqlite-memory", "lmdb", *SERVERS])
def open_live(request, tmp_path, quick_folder, url_of) -> Callable[[], Engine]:
    def open_one() -> Engine:
        if request.param == "memory":
            return MemoryEngine()
        if request.param in SERVER_NAMES:
            return PostgresEngine(url_of(request.param), **server_options(request.param))
        if request.param == "lmdb":
            return LmdbEngine(quick_folder / "live.lmdb", durability="relaxed")
        path = ":memory:" if request.param == "sqlite-memory" else tmp_path / "live.db"
        return SqliteEngine(path, durability="relaxed")

    return open_one


def swept(engine: Engine, left: list[bytes]) -> bool:
    """Whether the background sweep leaves these keys within a minute."""
    end = time.monotonic() + 60
    while keys(engine, include_expired=True) != left:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_M8_half_a_second_is_neither_zero_nor_for_ever(open_live):
    engine = open_live()
    deadline = engine.now_ms() + 500
    put(engine, b"k", deadline)
    assert keys(engine) == [b"k"] or engine.now_ms() >= deadline
    assert swept(engine, [])
    assert engine.now_ms() >= deadline
    engine.close()


def test_an_engine_sweeps_in_bounded_batches_by_itself(open_live):
    engine = open_live()
    put(engine, b"for ever")
    deadline = engine.now_ms() + 20
    before = engine.commit(AtomicWrite(mutations=tuple(Set(b"%04d" % n, b"", 3, deadline) for n in range(1_700))))
    assert swept(engine, [b"for ever"])
    assert isinstance(before, Committed)
    after = engine.wait_for_commit(b"", 0)
    assert int.from_bytes(after, "big") - int.from_bytes(before.versionstamp, "big") >= 4 << 16
    engine.close()


def test_nothing_runs_while_nothing_expires(background_threads, open_live):
    engine = open_live()
    put(engine, b"k")
    assert background_threads() == []
    put(engine, b"k", engine.now_ms() + 5)
    assert swept(engine, [])
    engine.close()
    assert background_threads() == []


def test_a_deadline_that_comes_sooner_wakes_the_sweeper(background_threads, open_live):
    engine = open_live()
    put(engine, b"late", engine.now_ms() + 3_600_000)
    assert background_threads() == ["kvmodels-sweep"]
    put(engine, b"early", engine.now_ms() + 5)
    assert swept(engine, [b"late"])
    engine.close()


def test_a_passed_in_clock_is_never_swept_in_the_background(background_threads, engine, clock):
    put(engine, b"k", clock.now + 1)
    clock.now += 10
    assert background_threads() == []
    assert keys(engine, include_expired=True) == [b"k"]


@pytest.mark.parametrize("kind", [SqliteEngine, LmdbEngine])
def test_a_file_is_swept_when_it_is_opened_again(tmp_path, kind):
    past = Clock(1_000)
    engine = kind(tmp_path / "store.db", clock=past)
    put(engine, b"k", 2_000)
    put(engine, b"for ever")
    engine.close()
    engine = kind(tmp_path / "store.db")
    assert swept(engine, [b"for ever"])
    engine.close()


def test_writers_and_the_sweeper_do_not_disturb_each_other(open_live):
    engine = open_live()
    errors: list[KvModelsError] = []

    def write(name: bytes) -> None:
        chance = random.Random(name)
        try:
            for number in range(150):
                key = b"%s%d" % (name, number % 7)
                put(engine, key, engine.now_ms() + chance.randrange(4), b"%d" % number)
                put(engine, key, None, b"last %d" % number)
                found = engine.read([point(key)])
                assert isinstance(found, ReadResult)
                assert [row.value for row in found.ranges[0]] == [b"last %d" % number]
        except (KvModelsError, InvalidValueError) as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(keys(engine, include_expired=True)) == 14
    engine.close()


@pytest.mark.parametrize("kind", [SqliteEngine, LmdbEngine])
def test_a_fork_in_the_middle_of_everything_leaves_both_processes_at_work(background_threads, tmp_path, kind):
    engine = kind(tmp_path / "store.db", durability="relaxed", poll_interval=0.001)
    put(engine, b"late", engine.now_ms() + 3_600_000)
    unsubscribe = engine.subscribe(lambda: None)
    deadline = engine.now_ms() + 300
    engine.commit(AtomicWrite(mutations=tuple(Set(b"%04d" % n, b"", 3, deadline) for n in range(600))))
    child = os.fork()
    if child == 0:
        # In the child nothing but the outcome may be said: the test run goes on in the parent.
        code = 1
        try:
            engine.sweep(1)
        except ClosedError:
            own = kind(tmp_path / "store.db", durability="relaxed")
            put(own, b"child", own.now_ms() + 3_600_000)
            own.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert swept(engine, [b"child", b"late"])
    unsubscribe()
    engine.close()
    assert background_threads() == []
