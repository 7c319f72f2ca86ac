"""Threads, and processes that are killed, on one calendar: no state of the store has an overlap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kvmodels import Database, ExclusionViolationError, KvModel, PrimaryKey
from kvmodels.flows.evolution import record_pass
from tests.killing import Story, killed_until_done
from tests.kinds.exclusion_crowd import THREADS, Counts, faults_of, in_threads, opened, write_all
from tests.kinds.exclusions import Booking
from tests.oracle import Fault
from tests.source_tree import REPOSITORY
from tests.worlds import in_test_servers, in_the_soak

THREADED = pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb", *in_test_servers("postgres", "etcd")])
SHARED = pytest.mark.parametrize("engine", ["sqlite", *in_test_servers("lmdb", "postgres", "etcd")])
WRITES = pytest.mark.parametrize("writes", [25, *in_the_soak(1_000)])


@THREADED
@WRITES
def test_eight_threads_never_book_twice(url_of: Callable[..., str], engine: str, writes: int):
    with opened(url_of(engine)) as db:
        counts: list[Counts] = []
        found: list[Fault] = []
        in_threads(
            THREADS,
            lambda number: counts.append(write_all(db, f"thread {number}", writes)),
            lambda: found.extend(faults_of(db)),
        )
        assert found == []
        assert faults_of(db) == []
        assert db.check().ok
        assert sum(one.done for one in counts) > THREADS
        assert sum(one.refused for one in counts) > THREADS


@pytest.mark.servers
@SHARED
@WRITES
def test_four_processes_of_which_eight_are_killed_never_book_twice(
    url_of: Callable[..., str], engine: str, writes: int
):
    url, kills = url_of(engine), 8
    with opened(url) as db:
        command = [sys.executable, "-m", "tests.kinds.exclusion_crowd", url, str(writes), str(kills)]
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as crowd:
            assert crowd.stdout is not None
            for line in crowd.stdout:
                assert line == "killed\n"
                kills -= 1
                assert faults_of(db) == []
        assert (crowd.returncode, kills) == (0, 0)
        assert faults_of(db) == []
        assert db.check().ok
        assert db[Booking].all().allow_scan().count() > 0


# --- a build ----------------------------------------------------------------------------------------------------------


class OldBooking(KvModel, collection="bookings"):
    """The release before."""

    id: PrimaryKey[int]
    room: str | None = "A"
    starts: int | None = None
    ends: int | None = None
    cancelled: bool = False
    note: str = ""


STORED, SIZE = 500, 10
DOUBLE = range(0, STORED, 50)
"""The bookings that last until the end of the one after them."""


def _apply(path: str, tell: Callable[..., object]) -> None:
    for size in ("FIRST_BATCH", "LARGEST_BATCH"):
        setattr(record_pass, size, SIZE)
    with Database(path, models=[Booking], durability="relaxed", busy_timeout=60) as db:
        db.apply(progress=tell)


built = Story(_apply, 400 // SIZE)


@pytest.mark.servers
def test_a_build_that_is_killed_eight_times_beside_writers_lists_what_overlaps(tmp_path: Path):
    path = tmp_path / "store.db"
    with Database(path, models=[OldBooking], durability="relaxed") as db:
        db[OldBooking].bulk_create(
            OldBooking(id=key, starts=10 * key, ends=10 * key + (18 if key in DOUBLE else 8)) for key in range(STORED)
        )
    done = False

    def work(number: int) -> None:
        chance, written = Random(number), 0
        with Database(path, models=[Booking], durability="relaxed", busy_timeout=60) as db:
            while not done:
                key = chance.randrange(STORED)
                if key in DOUBLE or key - 1 in DOUBLE:
                    db[Booking].patch(key, note=f"looked at by {number}")
                else:
                    start = 10 * key + chance.randrange(3)
                    db[Booking].patch(key, starts=start, ends=start + chance.randint(1, 5))
                written += 1
        assert written > 0

    def kill() -> None:
        nonlocal done
        try:
            killed_until_done(__name__, "built", path, 17, 8)
        finally:
            done = True

    in_threads(3, lambda number: work(number) if number else kill())
    with Database(path, models=[Booking], durability="relaxed") as db:
        listed = db.violations(Booking)
        assert {one.kind for one in listed} == {"overlap"}
        pairs = {frozenset((one.key, one.holder)) for one in listed}
        assert pairs == {frozenset((key, key + 1)) for key in DOUBLE}
        with pytest.raises(ExclusionViolationError):
            db[Booking].create(id=STORED, starts=0, ends=5)
        for one in listed:
            db[Booking].remove(one.key)
        assert db.apply().complete
        assert faults_of(db) == []
        assert db.check().ok
