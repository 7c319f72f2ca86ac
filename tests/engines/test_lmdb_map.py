"""The map grows by itself: in the process that writes, in those beside it, and with everything that is open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kvmodels import Database, KvModel, PrimaryKey, Transaction
from kvmodels.core.operations import Apply, Arithmetic, AtomicWrite, Committed, ReadRange
from kvmodels.engines.lmdb.engine import DEFAULT_MAP_SIZE, LmdbEngine
from kvmodels.engines.lmdb.file import OpenEnvironment
from kvmodels.errors import SnapshotExpiredError, SnapshotLostError, StorageFullError
from tests.contract.shorthand import EVERYTHING, commit, keys, number, put, rows
from tests.engines.processes import finish, start

SMALL = 1 << 18
VALUE = b"v" * 10_000


@pytest.fixture
def engine(quick_folder: Path) -> Iterator[LmdbEngine]:
    opened = LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", map_size=SMALL)
    yield opened
    opened.close()


def opened_in(engine: LmdbEngine) -> OpenEnvironment:
    opened = engine.check_open()._opened
    assert opened is not None
    return opened


def map_size(engine: LmdbEngine) -> int:
    return opened_in(engine).environment.info()["map_size"]


def test_a_map_that_is_full_grows_and_the_commit_is_carried_out(engine):
    calls: list[object] = []

    def count(stored):
        calls.append(stored)
        return (b"%d" % (int(stored[0]) + 1 if stored else 1), 3)

    for n in range(200):
        commit(engine, put(b"k%03d" % n, VALUE), Arithmetic("sum", b"count", 1), Apply(b"applied", count, 8))
    assert map_size(engine) >= 200 * len(VALUE)
    assert len(calls) > 200, "what met a full map was evaluated again"
    assert number(engine, b"count") == 200
    assert rows(engine, ReadRange(b"applied"))[0].value == b"200"
    assert len(keys(engine, ReadRange(b"k", b"l"))) == 200


def test_one_operation_larger_than_several_maps_is_carried_out(engine):
    before = map_size(engine)
    commit(engine, *(put(b"k%04d" % n, VALUE) for n in range(1_000)))
    assert map_size(engine) >= 32 * before
    assert len(keys(engine, EVERYTHING)) == 1_000


def test_the_size_is_kept_over_reopening_and_grows_from_what_is_asked_for(quick_folder: Path):
    path = quick_folder / "store.lmdb"
    engine = LmdbEngine(path, map_size=SMALL)
    commit(engine, *(put(b"k%04d" % n, VALUE) for n in range(100)))
    engine.close()
    engine = LmdbEngine(path, map_size=SMALL)
    assert len(keys(engine, EVERYTHING)) == 100
    commit(engine, *(put(b"m%04d" % n, VALUE) for n in range(100)))
    engine.close()
    engine = LmdbEngine(path)
    assert map_size(engine) == DEFAULT_MAP_SIZE
    assert (path / "data.mdb").stat().st_size < 10_000_000, "a map is address space and no room on the disk"
    engine.close()


def test_a_snapshot_that_is_open_while_the_map_grows_expires_and_a_new_one_works(engine):
    commit(engine, put(b"a"))
    snapshot = engine.snapshot()
    commit(engine, *(put(b"k%04d" % n, VALUE) for n in range(100)))
    with pytest.raises(SnapshotLostError) as caught:
        snapshot.read([EVERYTHING])
    assert "new snapshot" in str(caught.value.hint)
    snapshot.close()
    with engine.snapshot() as again:
        assert len(again.read([EVERYTHING]).ranges[0]) == 101


class Pile(KvModel, collection="piles"):
    id: PrimaryKey[int]
    stones: int = 0


def test_a_transaction_that_is_open_while_the_map_grows_runs_again(quick_folder: Path):
    with Database(f"lmdb:///{quick_folder}/store.lmdb", models=[Pile], durability="relaxed", map_size=SMALL) as db:
        db[Pile].create(id=1)
        runs = 0

        @db.transactional()
        def add(tx: Transaction) -> None:
            nonlocal runs
            runs += 1
            pile = tx[Pile].get(1)
            if runs == 1:
                for number in range(100):
                    db.kv.set(("other", number), VALUE)
            pile.stones += tx[Pile].count()
            tx[Pile].save(pile)

        add()
        assert (runs, db[Pile].get(1).stones) == (2, 1)


def test_a_block_that_is_open_while_the_map_grows_ends_with_its_error(quick_folder: Path):
    with Database(f"lmdb:///{quick_folder}/store.lmdb", models=[Pile], durability="relaxed", map_size=SMALL) as db:
        with pytest.raises(SnapshotLostError), db.transaction() as tx:
            tx[Pile].create(id=1)
            for number in range(100):
                db.kv.set(("other", number), VALUE)
            tx[Pile].count()
        assert db[Pile].count() == 0


def test_growing_waits_for_reads_that_run_and_holds_back_those_that_come(engine):
    commit(engine, put(b"a"))
    inside, release = threading.Event(), threading.Event()

    def follow(found):
        inside.set()
        release.wait(60)
        return [ReadRange(b"a")]

    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(engine.read, [EVERYTHING], follow=follow)
        inside.wait(60)
        growing = pool.submit(commit, engine, *(put(b"k%04d" % n, VALUE) for n in range(100)))
        while engine.check_open()._opened is not None:
            assert not growing.done()
        late = pool.submit(keys, engine, EVERYTHING)
        assert engine.read_at_once([ReadRange(b"a")]) is None, "an event loop is not held back"
        assert not late.done()
        release.set()
        result = reading.result(30)
        assert [[row.key for row in one] for one in (*result.ranges, *result.followed)] == [[b"a"], [b"a"]]
        growing.result(30)
        assert len(late.result(30)) in (1, 101)


def test_a_group_that_meets_a_full_map_is_carried_out_one_by_one(engine):
    commit(engine, put(b"a"))
    store = engine.check_open()
    with ThreadPoolExecutor(12) as pool:
        with store.write_lock:  # the leader waits, and the others gather behind it
            waiting = [
                pool.submit(engine.commit, AtomicWrite((), (put(b"k%02d" % n, VALUE * 10), Arithmetic("sum", b"n", 1))))
                for n in range(12)
            ]
            while len(store.commits._queue) < 10:
                pass
        outcomes = [one.result(30) for one in waiting]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert len({outcome.versionstamp for outcome in outcomes if isinstance(outcome, Committed)}) == 12
    assert number(engine, b"n") == 12
    assert len(keys(engine, ReadRange(b"k", b"l"))) == 12


GROWING = """
import sys
from kvmodels.engines.lmdb.engine import LmdbEngine
from tests.contract.shorthand import commit, put
engine = LmdbEngine(sys.argv[1], durability="relaxed", map_size=1 << 18)
print("open", flush=True)
for line in sys.stdin:
    name = line.strip().encode()
    for n in range(60):
        commit(engine, put(b"%s%03d" % (name, n), b"v" * 10_000))
    print("done", flush=True)
engine.close()
"""


def test_a_map_that_another_process_has_made_larger_is_taken_over_by_readers_writers_and_snapshots(engine):
    other = start(GROWING, engine.check_open().path)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    uses: list[Any] = [
        lambda: len(keys(engine, EVERYTHING)),
        lambda: commit(engine, put(b"mine")) and len(keys(engine, EVERYTHING)) - 1,
        lambda: len(engine.snapshot().read([EVERYTHING]).ranges[0]) - 1,
    ]
    for number_, use in enumerate(uses, 1):
        size = map_size(engine)
        other.stdin.write(f"round-{number_}-\n" * 2)
        other.stdin.flush()
        for _ in range(2):
            assert other.stdout.readline() == "done\n"
        other.stdin.write(f"again-{number_}-\n")
        other.stdin.flush()
        assert other.stdout.readline() == "done\n"
        assert use() == 120 * number_
        assert map_size(engine) >= size
    finish(other)
    assert map_size(engine) > 1 << 21


def test_an_address_space_that_is_used_up_is_a_typed_error_and_the_store_goes_on(engine, monkeypatch):
    commit(engine, put(b"a"))
    store = engine.check_open()
    monkeypatch.setattr("kvmodels.engines.lmdb.environment.GROWTH", 1 << 44)
    with pytest.raises(StorageFullError) as caught:
        commit(engine, *(put(b"k%04d" % n, VALUE) for n in range(100)))
    assert "address space" in str(caught.value.hint)
    monkeypatch.undo()
    assert keys(engine, EVERYTHING) == [b"a"]
    commit(engine, *(put(b"k%04d" % n, VALUE) for n in range(100)))
    assert len(keys(engine, EVERYTHING)) == 101
    assert store.closed_reason is None


def test_pages_that_a_snapshot_holds_back_are_used_again_at_its_maximum_age(quick_folder: Path):
    """While it is open, the file grows with every commit; when it is over, it does not."""
    now = [1_000_000]
    engine = LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", clock=lambda: now[0], snapshot_max_age=10)
    data = quick_folder / "store.lmdb" / "data.mdb"

    def overwrite() -> int:
        for _ in range(40):
            commit(engine, put(b"k", VALUE * 10))
        return data.stat().st_size

    overwrite()
    before = overwrite()
    snapshot = engine.snapshot()
    held = overwrite()
    assert held > before + 3_000_000
    now[0] += 10_000
    assert overwrite() <= held + 200_000
    with pytest.raises(SnapshotExpiredError):
        snapshot.read([EVERYTHING])
    engine.close()


@pytest.mark.parametrize(("durability", "metasync"), [("commit", True), ("relaxed", False)])
def test_the_environment_has_the_flags_of_the_durability(quick_folder: Path, durability: Any, metasync: bool):
    """Relaxed leaves out the second fsync and never the first: without it LMDB can be damaged by a power loss."""
    engine = LmdbEngine(quick_folder / "store.lmdb", durability=durability)
    flags = opened_in(engine).environment.flags()
    assert (flags["metasync"], flags["sync"], flags["writemap"], flags["lock"]) == (metasync, True, False, True)
    engine.close()


def test_the_second_environment_on_a_folder_that_lmdb_forbids_is_never_opened(engine):
    with pytest.raises(lmdb.Error, match="already open"):
        lmdb.Environment(engine.check_open().path)
    again = LmdbEngine(engine.check_open().path, durability="relaxed", map_size=SMALL)
    assert again.check_open() is engine.check_open()
    again.close()
    commit(engine, put(b"a"))
