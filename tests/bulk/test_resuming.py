"""Bulk writes that are killed, resumed, repeated and forgotten: each record is written exactly once."""

from __future__ import annotations

import pytest

from kvmodels import Database, F, Field, Indexed, InvalidArgumentError, KeyTooLargeError, KvModel, PrimaryKey
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.bulk import query_writes
from kvmodels.flows.bulk.options_and_results import BulkProgress
from tests.bulk.jobs import A_FEW_JOBS, JOBS, DyingEngine, Fate, Killed, opened, state
from tests.bulk.models import Thing, filled, memory

COUNT = 12


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(query_writes, "COLLECTED_AT_ONCE", 4)


@pytest.mark.parametrize("fate", ["before", "after"])
@A_FEW_JOBS
@pytest.mark.usefixtures("small_chunks")
def test_a_process_that_dies_at_any_request_is_gone_on_for(name: str, fate: Fate):
    job = JOBS[name]
    at = 0
    alive = False
    while not alive:
        at += 1
        store = MemoryEngine()
        db = filled(opened(store), COUNT)
        before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
        expected = job.expected(before, chosen)
        dying = DyingEngine(store, at, fate)
        try:
            result = job.run(opened(dying), batch_size=3)
            alive = True
        except Killed:
            result = job.run(opened(store), batch_size=3)
        assert state(db) == expected, at
        assert (result.matched, result.written, result.failed) == (len(chosen), len(chosen), ()), at
        again = job.run(opened(store), batch_size=1)
        assert (again.matched, again.written, again.resumed) == (result.matched, result.written, True)
        assert state(db) == expected, at
        assert db.check().ok, at
        assert db.forget_bulk("job")
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk"))), at
        db.close()
    assert at > 6


@pytest.mark.parametrize("fate", ["before", "after"])
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.usefixtures("small_chunks")
def test_processes_that_die_again_and_again_come_to_the_end_together(name: str, fate: Fate):
    job = JOBS[name]
    store = MemoryEngine()
    db = filled(opened(store), 30)
    before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
    deaths = 0
    while True:
        try:
            result = job.run(opened(DyingEngine(store, 12, fate)), batch_size=2)
            break
        except Killed:
            deaths += 1
            assert deaths < 100
    assert deaths >= 1
    assert state(db) == job.expected(before, chosen)
    assert (result.written, result.resumed) == (len(chosen), True)
    assert db.check().ok


@pytest.mark.parametrize("name", JOBS)
def test_without_a_kill_the_id_makes_no_difference(name: str):
    job = JOBS[name]
    plain, named = memory(40), memory(40)
    told: list[BulkProgress] = []
    expected = job.run(plain, None, batch_size=6)
    result = job.run(named, batch_size=6, progress=told.append)
    assert (result.matched, result.written, result.batches) == (expected.matched, expected.written, expected.batches)
    assert not result.resumed
    assert state(plain) == state(named)
    collected = 0 if "walked" in name else result.matched
    assert told[-1] == BulkProgress(result.matched, result.written, result.batches, collected, told[-1].total)
    assert told[-1].total in (None, result.matched)
    assert (told[0].batches, told[0].collected) == ((1, 0) if "walked" in name else (0, collected))


def test_an_id_is_for_one_bulk_write():
    db = memory(20)
    things = db[Thing]
    query = things.filter(kind="a")
    assert query.update(n=F("n") + 1, resume_id="nightly").written == 10
    others = [
        lambda: query.update(n=F("n") + 2, resume_id="nightly"),
        lambda: query.update(n=5, resume_id="nightly"),
        lambda: query.update(label="x", resume_id="nightly"),
        lambda: query.update(n=F("n") + 1, resume_id="nightly", on_error="collect"),
        lambda: query[:5].update(n=F("n") + 1, resume_id="nightly"),
        lambda: query.order_by("-pk").update(n=F("n") + 1, resume_id="nightly"),
        lambda: things.filter(kind="b").update(n=F("n") + 1, resume_id="nightly"),
        lambda: query.delete(resume_id="nightly"),
    ]
    for other in others:
        with pytest.raises(InvalidArgumentError) as raised:
            other()
        assert raised.value.argument == "resume_id"
    again = query.update(n=F("n") + 1, resume_id="nightly", batch_size=3)
    assert (again.written, again.resumed) == (10, True)
    assert [thing.n for thing in query] == [n % 7 + 1 for n in range(0, 20, 2)]
    assert db.forget_bulk("nightly")
    assert not db.forget_bulk("nightly")
    assert query.update(n=F("n") + 2, resume_id="nightly").written == 10
    with pytest.raises(InvalidArgumentError):
        db.forget_bulk("")


def test_an_id_that_is_too_long_for_a_key_is_an_error_before_anything_is_written():
    db = memory(5)
    before = list(db.kv.list(prefix=()))
    for query in (db[Thing].filter(kind="a"), db[Thing].filter(n__gte=0)):
        with pytest.raises(KeyTooLargeError):
            query.update(n=1, resume_id="x" * 3_000)
    assert list(db.kv.list(prefix=())) == before


def test_a_bulk_write_that_is_forgotten_while_it_runs_stops():
    db = memory(20)

    def forget(progress: BulkProgress) -> None:
        if progress.batches == 2:
            db.forget_bulk("job")

    with pytest.raises(InvalidArgumentError) as raised:
        db[Thing].filter(kind="a").update(n=F("n") + 100, batch_size=2, progress=forget, resume_id="job")
    assert "forgotten" in raised.value.message
    assert sum(thing.n >= 100 for thing in db[Thing]) == 4
    assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))


@pytest.mark.parametrize("name", JOBS)
def test_two_processes_with_one_id_share_the_work(name: str):
    job = JOBS[name]
    store = MemoryEngine()
    db, other = filled(opened(store), 40), opened(store)
    before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
    others: list[int] = []

    def meanwhile(progress: BulkProgress) -> None:
        if progress.matched and not others:
            others.append(job.run(other, batch_size=4).written)

    result = job.run(db, batch_size=2, progress=meanwhile)
    assert state(db) == job.expected(before, chosen)
    assert result.written == len(chosen) == others[0]
    assert db.check().ok


def test_collected_failures_are_listed_by_every_later_call():
    db = memory(20)
    query = db[Thing].filter(n__gte=0)
    result = query.update(label=F("kind") // 2, on_error="collect", resume_id="job")
    assert (result.matched, result.written, result.failures) == (20, 0, 20)
    assert all(failure.error is not None for failure in result.failed)
    again = query.update(label=F("kind") // 2, on_error="collect", resume_id="job")
    assert [failure[:3] for failure in again.failed] == [failure[:3] for failure in result.failed]
    assert {(failure.kind, failure.error) for failure in again.failed} == {("InvalidValueError", None)}
    assert again.failed[0].key == 0
    assert db.forget_bulk("job")
    assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))


@pytest.mark.parametrize("name", ["update, walked", "update, collected", "delete, collected"])
def test_a_write_goes_on_when_its_index_was_rebuilt_in_between(name: str):
    job = JOBS[name]
    store = MemoryEngine()
    db = filled(opened(store), 30)
    before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
    with pytest.raises(Killed):
        job.run(opened(DyingEngine(store, 14)), batch_size=2)
    written = sum(db[Thing].get(number).n != before[number].n for number in range(30) if number in state(db))
    assert job.verb == "delete" or 0 < written < len(chosen)
    for index in ("kind", "n", "newest", "of_a", "covering", "copied"):
        db.drop_index(Thing, index)
    db.build_indexes(Thing)
    db = opened(store)
    assert job.run(db, batch_size=5).written == len(chosen)
    assert state(db) == job.expected(before, chosen)
    assert db.check().ok


class Cell(KvModel, collection="cells"):
    row: PrimaryKey[int]
    column: PrimaryKey[str]
    n: Indexed[int] = Field(default=0)


def test_primary_keys_of_several_fields_are_kept_whole():
    with Database("memory://", models=[Cell]) as db:
        cells = db[Cell]
        cells.bulk_create([Cell(row=row, column=column, n=row % 2) for row in range(4) for column in "abc"])
        bad = {"n": 10 // F("n")}
        failed = [(row, column) for row in (0, 2) for column in "abc"]
        for query in (cells.order_by("pk"), cells.order_by("-pk"), cells.filter(n__gte=0)):
            first = query.update(bad, on_error="collect", resume_id="job", batch_size=4)
            again = query.update(bad, on_error="collect", resume_id="job")
            assert [failure.key for failure in first.failed] == [failure.key for failure in again.failed] == failed
            assert (first.written, again.written) == (6, 6)
            db.forget_bulk("job")
            cells.filter(n=10).update(n=1)
        assert cells.filter(n=1).delete(resume_id="other", batch_size=5).written == 6
        assert db.check().ok


def test_a_store_on_disk_remembers_a_bulk_write(tmp_path):
    path = tmp_path / "things.db"
    with filled(Database(path, models=[Thing]), 20) as db, pytest.raises(Killed):

        def die(progress: BulkProgress) -> None:
            if progress.batches == 3:
                raise Killed

        db[Thing].filter(kind="a").update(n=F("n") + 100, batch_size=2, progress=die, resume_id="job")
    with Database(path, models=[Thing]) as db:
        result = db[Thing].filter(kind="a").update(n=F("n") + 100, resume_id="job")
        assert (result.written, result.batches, result.resumed) == (10, 4, True)
        assert [thing.n for thing in db[Thing].filter(kind="a").order_by("pk")] == [
            n % 7 + 100 for n in range(0, 20, 2)
        ]
