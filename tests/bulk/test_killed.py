"""Bulk writes on a file whose process is killed by SIGKILL again and again, and gone on for by the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from kvmodels import Count, Database, Sum
from tests.bulk.jobs import JOBS, state
from tests.bulk.models import Thing, filled, memory
from tests.bulk.test_resuming_lists import Part
from tests.killing import KILLS, Story, killed_until_done
from tests.worlds import in_test_servers

COUNT: Final = 240
SIZE: Final = 3

Tell = Callable[..., object]


def job(name: str, batches: int) -> Story:
    def work(path: str, tell: Tell) -> None:
        with Database(path, models=[Thing], durability="relaxed") as db:
            JOBS[name].run(db, batch_size=SIZE, progress=tell)

    return Story(work, batches)


STORIES = {
    "update_walked": ("update, walked", job("update, walked", COUNT // 2 // SIZE)),
    "update_collected": ("update, collected", job("update, collected", COUNT * 6 // 7 // SIZE)),
    "delete_collected": ("delete, collected", job("delete, collected", COUNT * 6 // 7 // SIZE)),
}
update_walked, update_collected, delete_collected = (story for _, story in STORIES.values())


@pytest.mark.servers
@KILLS
@pytest.mark.parametrize("story", ["update_walked", *in_test_servers("update_collected", "delete_collected")])
def test_a_bulk_write_that_is_killed_again_and_again_writes_each_record_once(tmp_path, story, kills):
    path, name = tmp_path / "things.db", STORIES[story][0]
    filled(Database(path, models=[Thing], durability="relaxed"), COUNT).close()
    with memory(COUNT) as twin:
        JOBS[name].run(twin, None)
        expected = state(twin)
    killed_until_done(__name__, story, path, 20, kills)
    with Database(path, models=[Thing]) as db:
        assert state(db) == expected
        assert db.check().ok
        totals = db[Thing].group_by("kind").aggregate(Count(), Sum("n"))
        for row in totals:
            values = [thing.n for thing in db[Thing] if thing.kind == row["kind"]]
            assert (row["count"], row["n__sum"]) == (len(values), sum(values))
        assert JOBS[name].run(db, batch_size=50).resumed
        assert state(db) == expected
        assert db.forget_bulk("job")
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))


def parts(count: int, shelf: int) -> list[Part]:
    return [Part(id=number, code=f"c{number}", shelf=shelf) for number in range(count)]


def create(db: Database, tell: Tell | None = None) -> Any:
    """Half of them are there, and are overwritten."""
    return db[Part].bulk_create(parts(COUNT, 1), on_conflict="update", batch_size=SIZE, resume_id="job", progress=tell)


def update(db: Database, tell: Tell | None = None) -> Any:
    """Records that were not reached are as they were loaded."""
    loaded = db[Part].to_list()
    for part in loaded:
        part.shelf += 10
    return db[Part].bulk_update(loaded, batch_size=SIZE, resume_id="job", progress=tell)


def listed(verb: Callable[..., Any]) -> Story:
    def work(path: str, tell: Tell) -> None:
        with Database(path, models=[Part], durability="relaxed") as db:
            verb(db, tell)

    return Story(work, COUNT // SIZE)


create_list, update_list = listed(create), listed(update)


@pytest.mark.servers
@KILLS
@pytest.mark.parametrize("story", ["create_list", *in_test_servers("update_list")])
def test_a_list_whose_writer_is_killed_again_and_again_is_written_once(tmp_path, story, kills):
    path = tmp_path / "parts.db"
    there = COUNT // 2 if story == "create_list" else COUNT
    with Database(path, models=[Part], durability="relaxed") as db:
        db[Part].bulk_create(parts(there, 0))
    killed_until_done(__name__, story, path, 20, kills)
    with Database(path, models=[Part]) as db:
        # Every write of a record raises its revision.
        found = [(part.id, part.shelf, part.revision) for part in db[Part]]
        if story == "create_list":
            assert found == [(number, 1, 1 + (number < there)) for number in range(COUNT)]
            assert [item.created for item in create(db)] == [number >= there for number in range(COUNT)]
        else:
            assert found == [(number, 10, 2) for number in range(COUNT)]
            assert (update(db).written, update(db).resumed) == (COUNT, True)
        assert [(part.id, part.shelf, part.revision) for part in db[Part]] == found
        assert list(db[Part].group_by("shelf").aggregate(Count())) == [{"shelf": found[0][1], "count": COUNT}]
        assert db.check().ok
