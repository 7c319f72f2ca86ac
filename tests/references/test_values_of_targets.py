"""Values of fields of targets equal a Python program over all records."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    DanglingReferenceError,
    Database,
    InvalidArgumentError,
    UnknownFieldError,
)
from tests.query.engines import watched
from tests.references.monitors import MODELS, Check, Owner, Project, Records, stocked
from tests.references.test_paths import PATHS

NAMES = [*PATHS, "status", "id", "project", "project__labels", "project__lead__boss__age"]


@dataclass
class Line:
    id: int
    project__name: str | None


def check_some(checks: Any, records: Records, drawn: random.Random, times: int) -> None:
    """Draw queries for values, and compare each with Python."""
    for _ in range(times):
        names, low = drawn.sample(NAMES, drawn.randrange(1, 5)), drawn.randrange(30)
        query = checks.filter(id__gte=low).order_by("id")
        expected = [
            {name: records.value(one, name) for name in names} for one in records.objects["Check"] if one.id >= low
        ]
        assert query.values(*names).to_list() == list(query.values(*names)) == expected
        tuples = query.values_list(*names)
        assert tuples[2:7].to_list() == [tuple(values.values()) for values in expected][2:7]
        page = tuples.page(size=4)
        assert page.items == [tuple(values.values()) for values in expected[:4]]
        assert tuples.count() == len(expected)


def test_drawn_values_equal_python():
    with Database("memory://", models=MODELS) as db:
        drawn = random.Random(1)
        check_some(db[Check], stocked(db, drawn), drawn, 60)


def test_values_are_the_same_on_each_engine(monitors: Database):
    drawn = random.Random(2)
    check_some(monitors[Check], stocked(monitors, drawn, checks=30), drawn, 5)


def test_a_transaction_reads_values_that_it_has_written():
    with Database("memory://", models=MODELS) as db:
        drawn = random.Random(3)
        stocked(db, drawn)
        with db.transaction() as tx:
            tx[Project].patch(2, name="new", owner=1)
            tx[Owner].patch(1, age=77)
            tx[Check].patch(3, project=2)
            records = Records({model.__name__: list(tx[model].all()) for model in MODELS})
            check_some(tx[Check], records, drawn, 10)


def test_async_values_and_objects_of_a_class():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Owner].create(id=1, email="a@x", age=3)
            await db[Project].create(id=1, name="p", lead_id=1)
            await db[Check].create(id=1, project=1, status="up", created=1)
            checks = db[Check].filter(pk=1)
            assert await checks.values_list("project__lead__email", flat=True).to_list() == ["a@x"]
            assert [one async for one in checks.only(Line)] == [Line(1, "p")]
            assert await checks.values_list(Check.project.to(Project.name), Check.id).first() == ("p", 1)

    asyncio.run(run())


def test_each_level_of_a_batch_is_one_request():
    db, engine = watched(MODELS)
    stocked(db, random.Random(1), checks=100)
    query = db[Check].filter(status="up")
    query.to_list()
    engine.meter.reset()
    query.to_list()
    alone = engine.meter.reads
    engine.meter.reset()
    query.values("id", "project__name", "spare__name", "project__owner__age").to_list()
    assert engine.meter.reads == alone + 2


def test_the_plan_names_the_foreign_keys(db_of_monitors: Database):
    plan = db_of_monitors[Check].filter(status="up").values("project__owner__age", "id").explain(analyze=True)
    assert plan.related == ("project", "project__owner")
    assert "the targets of project, project__owner, in one more read for each level and batch" in str(plan)


def test_a_result_whose_target_was_removed_in_between_is_left_out():
    db, engine = watched(MODELS)
    db[Owner].create(id=1, email="a@x", age=1)
    db[Project].bulk_create([Project(id=n, name="p", lead_id=1) for n in (1, 2)])
    db[Check].bulk_create([Check(id=n, project=n, status="up", created=1) for n in (1, 2)])

    def removed() -> None:
        db[Check].remove(1)
        db[Project].remove(1)

    def after_the_records() -> None:
        engine.before_read = removed

    engine.before_read = after_the_records
    assert db[Check].filter(status="up").values("id", "project__name").to_list() == [{"id": 2, "project__name": "p"}]


def test_a_dangling_reference_is_an_error_or_none():
    with Database("memory://", models=MODELS) as db:
        db[Owner].create(id=1, email="a@x", age=1)
        db[Project].bulk_create([Project(id=n, name="p", lead_id=1) for n in (1, 2)])
        db[Check].create(id=1, project=1, status="up", created=1)
        db.kv.unsafe().delete(("projects", 1))
        assert db[Check].filter(pk=1).values("project__name").to_list() == [{"project__name": None}]
        db.kv.unsafe().delete(("owners", 1))
        with pytest.raises(DanglingReferenceError):
            db[Project].filter(pk=2).values("lead__age").to_list()


@pytest.mark.parametrize("name", ["project__nam", "project__owner__ag", "spare__nam", "project__name__x"])
def test_a_wrong_path_is_an_error_when_the_query_is_built(db_of_monitors: Database, name: str):
    with pytest.raises(UnknownFieldError):
        db_of_monitors[Check].values(name)


def test_paths_that_cannot_be_selected_are_refused(db_of_monitors: Database):
    checks = db_of_monitors[Check]
    with pytest.raises(InvalidArgumentError, match="distinct"):
        checks.values("project__name").distinct()
    with pytest.raises(InvalidArgumentError, match="distinct"):
        checks.distinct().values("project__name")
    with pytest.raises(InvalidArgumentError, match="foreign keys"):
        checks.values("project__owner__boss__boss__age")
    with pytest.raises(UnknownFieldError, match="Group by 'project'"):
        checks.group_by("project__name")
