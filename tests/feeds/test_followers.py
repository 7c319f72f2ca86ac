"""``db.follow(models, sink)``: a sink equals the store, exactly once, after kills, restores and in a rescan."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    FollowReport,
    InvalidArgumentError,
    ResumeExpiredError,
    UnsupportedError,
)
from tests.feeds.sinks import MODELS, KilledError, ListSink, Note, PositionFirst, Topic, stored, write
from tests.watch.test_prefixes import trim


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = {"memory": "memory://", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}[request.param]
    with Database(url, models=MODELS, change_log=3600) as database:
        yield database


def killed_beside_writers(db: Database, sink: ListSink, kills: int, seed: int) -> int:
    """Write while followers of a sink are killed, the first ones during the first scan; return the kills."""
    random, found = Random(seed), 0
    for _ in range(30):
        write(db, random)
    while found < kills:
        for _ in range(random.randrange(4)):
            write(db, random)
        try:
            db.follow(MODELS, sink, batch_size=random.choice([1, 3, 10])).catch_up()
        except KilledError:
            found += 1
    sink._kill = None
    db.follow(MODELS, sink).catch_up()
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_follower_that_is_killed_again_and_again_leaves_an_equal_sink(db: Database, seed: int):
    sink = ListSink(Random(seed))
    assert killed_beside_writers(db, sink, 50, seed) == 50
    assert sink.held == stored(db), seed
    assert db.follow(MODELS, sink).verify().ok


def test_a_sink_whose_position_is_committed_apart_from_its_data_is_convicted():
    def agrees(seed: int) -> bool:
        with Database("memory://", models=MODELS, change_log=3600) as db:
            sink = PositionFirst(Random(seed))
            killed_beside_writers(db, sink, 10, seed)
            return sink.held == stored(db)

    assert not all(agrees(seed) for seed in range(10))


def test_two_followers_of_a_sink_never_apply_a_batch_twice(db: Database):
    random, sink = Random(1), ListSink()
    followers = [db.follow(MODELS, sink, batch_size=3) for _ in range(2)]
    threads = [threading.Thread(target=follower.run) for follower in followers]
    for thread in threads:
        thread.start()
    for _ in range(80):
        write(db, random)
    last = db[Note].create(id=100)
    assert followers[0].wait_for(str(last.versionstamp), timeout=60)
    for follower in followers:
        follower.stop()
    for thread in threads:
        thread.join(60)
    assert sink.held == stored(db)
    assert sink.batches[0].since is None
    assert all(one.position == other.since for one, other in pairwise(sink.batches)), "each continues the one before"


def test_a_commit_is_waited_for(db: Database):
    sink = ListSink()
    follower = db.follow([Note], sink)
    note = db[Note].create(id=1, text="a")
    assert not follower.wait_for(str(note.versionstamp), timeout=0)
    assert follower.catch_up() == 1
    assert follower.wait_for(str(note.versionstamp))
    assert follower.catch_up() == 0
    with pytest.raises(InvalidArgumentError, match="not a versionstamp"):
        follower.wait_for("1")


async def test_an_async_follower_runs_in_a_task_until_it_is_stopped():
    async with AsyncDatabase("memory://", models=MODELS, change_log=60) as db:
        sink = ListSink()
        follower = db.follow(MODELS, sink)
        running = asyncio.create_task(follower.run())
        note = await db[Note].create(id=1, text="a")
        assert await follower.wait_for(str(note.versionstamp), timeout=60)
        await db[Note].remove(1)
        await db[Topic].create(name="b")
        assert (await follower.verify()).compared == 1
        assert [*sink.held] == [("topics", "b")]
        follower.stop()
        await running


def test_the_differences_of_a_sink_are_found_and_a_rescan_repairs_them(db: Database):
    sink = ListSink()
    db[Note].bulk_create([Note(id=number) for number in range(25)], batch_size=10)
    db[Topic].create(name="a")
    follower = db.follow(MODELS, sink, batch_size=7)
    follower.catch_up()
    wrong = dict(sink.held)
    del wrong["notes", 3]
    wrong["notes", 4] = "0" * 20, None
    wrong["notes", 77] = wrong["old", 1] = wrong["zoo", "z"] = "0" * 20, None
    sink.held = dict(wrong)
    report = follower.verify()
    assert (report.ok, report.compared, report.more) == (False, 26, False)
    assert report == FollowReport(26, [("notes", 3)], [("notes", 77), ("old", 1), ("zoo", "z")], [("notes", 4)])
    assert follower.catch_up(rescan=True) == 5, "equal records are left out"
    assert follower.verify().ok
    assert sink.held == stored(db)


def test_a_rescan_that_was_interrupted_is_continued_by_the_next_run(db: Database):
    sink = ListSink()
    db[Note].bulk_create([Note(id=number) for number in range(25)], batch_size=10)
    follower = db.follow(MODELS, sink, batch_size=4)
    follower.catch_up()
    sink.held["notes", 24] = "0" * 20, None
    sink.held["zoo", 1] = "0" * 20, None
    sink._kill = Random(3)
    with contextlib.suppress(KilledError):
        while True:
            follower.catch_up(rescan=True)
    assert sink.load() is not None
    sink._kill = None
    follower.catch_up()
    if not follower.verify().ok:  # killed before the first batch of the rescan
        follower.catch_up(rescan=True)
    assert sink.held == stored(db)


def test_a_restored_backup_is_told_and_a_rescan_removes_what_it_has_lost(tmp_path: Path):
    path, copy, sink = str(tmp_path / "a.db"), str(tmp_path / "b.db"), ListSink()
    with Database(path, models=MODELS, change_log=3600) as db:
        db[Note].bulk_create([Note(id=1), Note(id=2)])
        db.kv.backup(copy)
        db[Note].create(id=3)
        db[Note].patch(1, text="later")
        db.follow(MODELS, sink).catch_up()
    with Database(copy, models=MODELS, change_log=3600) as db:
        with pytest.raises(ResumeExpiredError, match="another store"):
            db.follow(MODELS, sink).catch_up()
        assert db.follow(MODELS, sink).catch_up(rescan=True) == 2
        assert sink.held == stored(db)


def test_an_expired_log_is_told_and_a_rescan_repairs():
    now, sink = 1_700_000_000_000, ListSink()
    with Database("memory://", models=MODELS, change_log=1, clock=lambda: now) as db:
        db[Note].bulk_create([Note(id=1), Note(id=2)])
        db.follow(MODELS, sink).catch_up()
        db[Note].remove(1)
        now += 2_000
        db[Note].create(id=3)
        trim(db.kv, now - 500)
        with pytest.raises(ResumeExpiredError, match="rescan=True"):
            db.follow(MODELS, sink).run(timeout=0)
        db.follow(MODELS, sink).run(rescan=True, timeout=0)
        assert sink.held == stored(db)


def test_the_position_of_other_models_is_refused_and_a_rescan_takes_the_new_ones(db: Database):
    sink = ListSink()
    db[Note].create(id=1)
    db[Topic].create(name="a")
    db.follow([Note], sink).catch_up()
    with pytest.raises(InvalidArgumentError, match="other collections"):
        db.follow([Topic], sink).catch_up()
    db.follow([Topic], sink).catch_up(rescan=True)
    assert [*sink.held] == [("topics", "a")]


def test_wrong_arguments_and_a_store_without_a_log_are_refused(db: Database):
    for models in ([], [Note, Note], [int]):
        with pytest.raises(InvalidArgumentError):
            db.follow(models, ListSink())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="limit"):
        db.follow([Note], ListSink(), batch_size=0)
    with Database("memory://", models=MODELS) as other, pytest.raises(UnsupportedError, match="change_log"):
        other.follow([Note], ListSink()).catch_up()
