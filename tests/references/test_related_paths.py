"""``with_related`` and ``related`` along a path of foreign keys."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kvmodels import AsyncDatabase, DanglingReferenceError, Database, InvalidArgumentError
from tests.query.engines import watched
from tests.references.monitors import MODELS, Check, Owner, Project, Records, stocked

OWNER = Check.project.to(Project.owner)
LEAD = Check.project.to(Project.lead_id)
BOSS = LEAD.to(Owner.boss)


def expected_of(records: Records, owners: dict[Any, Any], one: Check) -> tuple[Any, ...]:
    found = (records.value(one, path) for path in ("project__owner__id", "project__lead__boss__id"))
    return tuple(None if key is None else owners[key] for key in found)


def test_results_equal_python(monitors: Database):
    records = stocked(monitors, random.Random(3))
    owners = {one.id: one for one in records.objects["Owner"]}
    projects = {one.id: one for one in records.objects["Project"]}
    for status in ("up", "down", "new"):
        query = monitors[Check].filter(status=status)
        chosen = [one for one in records.objects["Check"] if one.status == status]
        plain = query.with_related(OWNER, BOSS)
        expected = [(one, *expected_of(records, owners, one)) for one in chosen]
        assert plain.to_list() == list(plain) == expected
        assert plain.page(size=3).items == expected[:3]
        mixed = query.with_related(Check.project, LEAD, Check.spare_id, OWNER)
        assert mixed.to_list() == [
            (
                one,
                None if one.project is None else projects[one.project],
                None if one.project is None else owners[projects[one.project].lead_id],
                None if one.spare_id is None else projects[one.spare_id],
                expected_of(records, owners, one)[0],
            )
            for one in chosen
        ]
        for one, owner, boss in expected:
            assert monitors[Check].related(one, OWNER) == owner
            assert monitors[Check].related(one, BOSS) == boss


def test_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            owner = await db[Owner].create(id=1, email="a@x", age=3)
            await db[Project].create(id=1, name="p", lead_id=1)
            check = await db[Check].create(id=1, project=1, status="up", created=1)
            assert await db[Check].with_related(LEAD, OWNER).to_list() == [(check, owner, None)]
            assert await db[Check].related(check, LEAD) == owner

    asyncio.run(run())


def test_each_level_is_one_request_and_the_plan_says_so():
    db, engine = watched(MODELS)
    stocked(db, random.Random(1), checks=100)
    query = db[Check].filter(status="up")
    query.to_list()
    engine.meter.reset()
    query.to_list()
    alone = engine.meter.reads
    engine.meter.reset()
    query.with_related(Check.project, OWNER, LEAD).to_list()
    assert engine.meter.reads == alone + 2
    plan = query.with_related(OWNER).explain(analyze=True)
    assert "the targets of project__owner, in one more read for each level and batch" in str(plan)


def test_targets_that_change_in_between_and_dangling_ones():
    db, engine = watched(MODELS)
    db[Owner].bulk_create([Owner(id=n, email=f"{n}@x", age=1) for n in (1, 2)])
    db[Project].bulk_create([Project(id=n, name="p", lead_id=n) for n in (1, 2)])
    db[Check].bulk_create([Check(id=n, project=n, status="up", created=1) for n in (1, 2)])

    def changed() -> None:
        db[Project].patch(1, lead_id=2)
        db[Owner].remove(1)

    def after_the_projects() -> None:
        engine.before_read = changed

    def after_the_records() -> None:
        engine.before_read = after_the_projects

    engine.before_read = after_the_records
    found = db[Check].filter(status="up").with_related(Check.project, LEAD).to_list()
    assert [(check.id, project and project.lead_id, lead and lead.id) for check, project, lead in found] == [
        (1, 2, 2),
        (2, 2, 2),
    ]
    db.kv.unsafe().delete(("owners", 2))
    with pytest.raises(DanglingReferenceError):
        db[Check].filter(status="up").with_related(LEAD).to_list()


def test_wrong_paths_are_refused(db_of_monitors: Database):
    checks: Any = db_of_monitors[Check]
    for key in (Check.project.to(Project.name), BOSS.to(Owner.boss), Project.owner, OWNER.to(Owner.age), "project"):
        with pytest.raises(InvalidArgumentError, match="foreign key"):
            checks.with_related(key)
        with pytest.raises(InvalidArgumentError, match="foreign key"):
            checks.related(checks.get(1), key)
    projects: Any = db_of_monitors[Owner]
    with pytest.raises(InvalidArgumentError, match="foreign key"):
        projects.fetch_referrers([projects.get(1)], OWNER, limit=1)
