"""Bulk writes over an engine whose answers get lost: nothing is written twice, nothing is left out."""

from __future__ import annotations

import pytest

from kvmodels import F
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import EngineError
from tests.bulk.jobs import JOBS, opened, state
from tests.bulk.models import Thing, filled

FAULTS = ("lose_answer", "lose_request", "repeat", "land_before_next", "land_after_next", "hold")


@pytest.mark.parametrize("resume_id", [None, "job"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["update, walked", "update, collected", "delete, collected"])
def test_a_lost_answer_changes_nothing(name: str, fault: str, resume_id: str | None):
    job = JOBS[name]
    commits = 0
    while True:
        store = MemoryEngine()
        db = filled(opened(store), 8)
        before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
        engine = FaultEngine(store, plan=[*[None] * commits, fault])  # type: ignore[list-item]
        result = job.run(opened(engine), resume_id, batch_size=3)
        engine.deliver_late()
        assert state(db) == job.expected(before, chosen), commits
        assert (result.matched, result.written) == (len(chosen), len(chosen)), commits
        assert db.check().ok
        if not engine.injected[fault]:
            break
        commits += 1
    assert commits > 1


@pytest.mark.parametrize("name", JOBS)
def test_a_refusal_is_an_error_after_which_it_goes_on(name: str):
    job = JOBS[name]
    store = MemoryEngine()
    db = filled(opened(store), 12)
    before, chosen = db[Thing].to_list(), [thing.id for thing in job.query(db[Thing].all())]
    refusals, notes = 0, list[str]()
    while True:
        try:
            result = job.run(opened(FaultEngine(store, plan=[None, None, "refuse"])), batch_size=2)
            break
        except EngineError as error:
            refusals += 1
            notes += result_notes(error)
    assert refusals >= 1
    assert all("were committed before this was raised" in note for note in notes)
    assert state(db) == job.expected(before, chosen)
    assert (result.written, result.resumed) == (len(chosen), True)


def result_notes(error: Exception) -> list[str]:
    """Return the notes of an error."""
    return list(getattr(error, "__notes__", ()))


@pytest.mark.parametrize("fault", FAULTS)
def test_forgetting_survives_a_lost_answer(fault: str):
    for commits in range(4):
        store = MemoryEngine()
        db = filled(opened(store), 8)
        query = db[Thing].filter(n__gte=0)
        query.update(label=F("kind") // 2, on_error="collect", resume_id="job")
        engine = FaultEngine(store, plan=[*[None] * commits, fault])  # type: ignore[list-item]
        other = opened(engine)
        assert other.forget_bulk("job")
        engine.deliver_late()
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_upsert_and_loaded_objects_survive_a_lost_answer(fault: str):
    for commits in range(3):
        store = MemoryEngine()
        db = filled(opened(store), 4)
        engine = FaultEngine(store, plan=[*[None] * commits, fault])  # type: ignore[list-item]
        things = opened(engine)[Thing]
        for _ in range(2):
            things.update_or_create(id=9, defaults={"n": F("n") + 1}, create_defaults={"n": 1})
        loaded = [thing for thing in things if thing.id < 4]
        for thing in loaded:
            thing.n += 10
        assert things.bulk_update(loaded, batch_size=2).written == 4
        engine.deliver_late()
        assert [thing.n for thing in db[Thing]] == [10, 11, 12, 13, 2], commits
        assert db.check().ok
