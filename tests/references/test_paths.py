"""Filters along paths of foreign keys equal a Python program over all records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    InvalidArgumentError,
    Max,
    NoUsableIndexError,
    OperationTooLargeError,
    Q,
    QuerySet,
    UnknownFieldError,
    UnknownLookupError,
    col,
)
from kvmodels.flows.reading.semi_join import MOST_KEYS
from tests.query.engines import watched
from tests.references.monitors import MODELS, Check, Owner, Project, Records, stocked
from tests.worlds import in_the_soak

Test = Callable[[Any], bool]

PATHS: dict[str, list[Any]] = {
    "project__name": ["p", "q", "r"],
    "project__owner__email": ["o0@x", "o1@x", "o4@x"],
    "project__owner__age": [0, 1, 2, 3],
    "project__owner__boss__age": [0, 1, 2, 3],
    "project__owner__nick": ["a", "b", None],
    "project__lead__age": [0, 1, 2],
    "project__owner": [0, 1, 2, None],
    "project__id": [0, 3, 5],
    "spare__name": ["p", "q"],
    "spare_id__owner__nick": ["a", None],
}
OWN: dict[str, list[Any]] = {
    "status": ["up", "down", "new"],
    "created": [3, 10, 20],
    "id": [1, 7],
    "project": [1, None],
}


def compared(path: str, operands: list[Any], drawn: random.Random) -> tuple[Q, Callable[[Any], bool]]:
    """Return a drawn condition, and its test of the value."""
    operand = drawn.choice(operands)
    lookup = drawn.choice(["exact", "exact", "ne", "in", "not_in", "isnull", "gte", "lt"])
    if lookup == "isnull":
        wanted = drawn.random() < 0.5
        return Q(**{f"{path}__isnull": wanted}), lambda value: (value is None) is wanted
    if lookup in ("in", "not_in"):
        some = drawn.sample(operands, drawn.randrange(1, len(operands)))
        return Q(**{f"{path}__{lookup}": some}), lambda value: (value in some) is (lookup == "in")
    if lookup in ("gte", "lt") and operand is not None:
        is_less = lookup == "lt"
        return Q(**{f"{path}__{lookup}": operand}), lambda value: value is not None and (value < operand) is is_less
    wanted = lookup != "ne"
    return Q(**{f"{path}__{'exact' if wanted else 'ne'}": operand}), lambda value: (value == operand) is wanted


def condition(records: Records, drawn: random.Random, depth: int = 2) -> tuple[Q, Test]:
    kind = drawn.random()
    if depth and kind < 0.15:
        (one, tests), (other, also) = condition(records, drawn, depth - 1), condition(records, drawn, depth - 1)
        return Q(one | other), lambda record: tests(record) or also(record)
    if depth and kind < 0.3:
        one, tests = condition(records, drawn, depth - 1)
        return Q(~one), lambda record: not tests(record)
    path = drawn.choice(list(PATHS if drawn.random() < 0.6 else OWN))
    q, test = compared(path, (PATHS | OWN)[path], drawn)
    return q, lambda record: test(records.value(record, path))


def served(query: QuerySet[Check], run: Callable[[QuerySet[Check]], Any]) -> Any:
    """Run a query, after an error with the permission that the error names."""
    try:
        return run(query)
    except NoUsableIndexError as error:
        named = str(error)
    assert "allow_scan()" in named, named
    return run(query.allow_scan())


def check_one(checks: Any, records: Records, stored: list[Check], drawn: random.Random) -> None:
    """Draw one query and compare its results."""
    drawn_conditions = [condition(records, drawn) for _ in range(drawn.randrange(1, 4))]
    query = checks.filter(*(q for q, _ in drawn_conditions))
    expected = [one for one in stored if all(test(one) for _, test in drawn_conditions)]
    way = drawn.randrange(7)
    if way == 0:
        assert served(query, lambda one: one.count()) == len(expected)
    elif way == 1:
        assert served(query, lambda one: one.exists()) is bool(expected)
    elif way == 2:
        expected.sort(key=lambda one: (one.created, one.id))
        start, stop = drawn.randrange(3), drawn.randrange(3, 9)
        found = served(query, lambda one: one.order_by("created", "id").sort_in_memory()[start:stop].to_list())
        assert found == expected[start:stop]
    elif way == 3:
        totals = served(query, lambda one: one.aggregate(Count(), Max("created")))
        assert totals == {"count": len(expected), "created__max": max((one.created for one in expected), default=None)}
    elif way == 4:
        assert served(query, pages) == [one.id for one in sorted(expected, key=lambda one: one.id)]
    elif way == 5:
        found = served(query, lambda one: set(one.values_list("status", flat=True).distinct().sort_in_memory()))
        assert found == {one.status for one in expected}
    else:
        assert sorted(one.id for one in served(query, list)) == [one.id for one in expected]


def pages(query: Any) -> list[int]:
    page = query.order_by("id").sort_in_memory().page(size=5)
    found = [one.id for one in page.items]
    while page.next_cursor is not None:
        page = query.order_by("id").sort_in_memory().page(size=5, after=page.next_cursor)
        found += [one.id for one in page.items]
    return found


@pytest.mark.parametrize("seed", [0, *in_the_soak(*range(1, 50))])
def test_drawn_filters_equal_python(seed: int):
    drawn = random.Random(seed)
    with Database("memory://", models=MODELS) as db:
        records = stocked(db, drawn)
        for _ in range(200):
            check_one(db[Check], records, records.objects["Check"], drawn)


def test_drawn_filters_in_a_transaction_see_its_own_writes():
    drawn = random.Random(11)
    with Database("memory://", models=MODELS) as db:
        stocked(db, drawn, checks=20)
        with db.transaction() as tx:
            tx[Owner].patch(1, age=9, nick="b")
            tx[Project].patch(2, name="q", owner=1)
            tx[Check].patch(3, project=2)
            tx[Check].create(id=90, project=2, status="up", created=4)
            tx[Check].remove(5)
            with tx.unchecked():  # a commit may check fewer reads than these
                records = Records({model.__name__: list(tx[model].all()) for model in MODELS})
                for _ in range(60):
                    check_one(tx[Check], records, records.objects["Check"], drawn)


def test_results_are_the_same_on_each_engine(monitors: Database):
    records, drawn = stocked(monitors, random.Random(3), checks=30), random.Random(4)
    for _ in range(15):
        check_one(monitors[Check], records, records.objects["Check"], drawn)


def test_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Owner].create(id=1, email="a@x", age=3)
            await db[Project].create(id=1, name="p", owner=1, lead_id=1)
            check = await db[Check].create(id=1, project=1, status="up", created=1)
            tested = db[Check].filter(project__owner__age=3, status="up")
            first = db[Check].filter(project__owner__email="a@x")
            assert await tested.to_list() == await first.to_list() == [one async for one in first] == [check]
            assert await db[Check].filter(~Q(project__name="p"), status="up").count() == 0

    asyncio.run(run())


# --- how they are read --------------------------------------------------------------------------------------------


def test_targets_of_a_batch_are_read_in_one_request_for_each_level():
    db, engine = watched(MODELS)
    stocked(db, random.Random(1), checks=200)
    plain = db[Check].filter(status="up")
    paths = plain.filter(project__owner__nick="a", spare__name="p")
    assert len(plain.to_list()) > len(paths.to_list())
    engine.meter.reset()
    plain.to_list()
    without = engine.meter.reads
    engine.meter.reset()
    paths.to_list()
    assert engine.meter.reads == without + 2


def test_a_unique_field_of_the_target_is_read_first():
    db, engine = watched(MODELS)
    stocked(db, random.Random(1), checks=200)
    query = db[Check].filter(status="up", project__lead__email="o1@x")
    assert "targets" in str(query.explain())
    first = db[Project].filter(name="p", lead__email="o1@x")
    assert first.explain().semi_joins == ("lead_id in at most 1,000 keys, read first from Owner: 1 key of index email",)
    first.to_list()
    engine.meter.reset()
    first.to_list()
    assert engine.meter.rows <= 2 * 8 + 1


def test_the_plan_shows_each_read_in_order(db_of_monitors: Database):
    checks = db_of_monitors[Check]
    db_of_monitors[Owner].patch(1, age=50)
    assert checks.filter(project__lead__age=50).explain().semi_joins == (
        "lead_id in at most 1,000 keys, read first from Owner: 1 range of index age",
        "project in at most 1,000 keys, read first from Project: 1 range of index lead_id",
    )
    plan = checks.filter(status="up", project__owner__age=3).explain(analyze=True)
    assert "request for each level and batch, to test project refers to a record of Project with" in str(plan)
    assert plan.semi_joins == ()


def test_more_keys_than_allowed_are_refused_and_the_named_line_serves(db_of_monitors: Database):
    db = db_of_monitors
    db[Project].bulk_create([Project(id=n, name="w", lead_id=1) for n in range(100, 101 + MOST_KEYS)], batch_size=100)
    check = db[Check].create(id=900, project=100, status="rare", created=1)
    query = db[Check].filter(project__name="w")
    with pytest.raises(OperationTooLargeError) as caught:
        query.to_list()
    assert 'using_index("pk").allow_scan()' in str(caught.value)
    assert query.using_index("pk").allow_scan().to_list() == [check]
    assert query.filter(pk=900).to_list() == query.filter(status="rare").to_list() == [check]


@pytest.mark.parametrize("others", [100, pytest.param(100_000, marks=pytest.mark.soak)])
def test_nothing_is_walked_without_permission(others: int):
    db, engine = watched(MODELS)
    stocked(db, random.Random(7))
    db[Check].bulk_create(
        [Check(id=1000 + n, project=None, status="other", created=900) for n in range(others)], batch_size=500
    )
    drawn = random.Random(8)
    for _ in range(40):
        paths = [path for path in drawn.sample(list(PATHS), 2) if path != "project__id"]
        query = db[Check].filter(*(compared(path, PATHS[path], drawn)[0] for path in paths), created__lt=31)
        by_target = query.order_by(drawn.choice(["project__name", "-project__owner__email"])).sort_in_memory()
        rows = query.values_list("id", "project__owner__email", "spare__name")
        runs: list[Callable[[], object]] = [
            query.to_list,
            query.count,
            by_target.to_list,
            by_target.first,
            rows.to_list,
        ]
        runs.append(partial(by_target.page, size=3))
        run = drawn.choice(runs)
        engine.meter.reset()
        run()
        # The filter's range, its records, and at most twice the targets of three levels: to test, and for the result.
        assert engine.meter.rows + engine.meter.followed <= 2 * 40 + 2 * (8 + 5 + 5)


# --- writes -------------------------------------------------------------------------------------------------------


def test_updates_and_removals_along_a_path(db_of_monitors: Database):
    db = db_of_monitors
    ids = [one.id for one in db[Check].filter(status="up") if one.project is not None]
    assert db[Check].filter(status="up", project__lead__age__gte=0).update(created=77).written == len(ids)
    assert [one.id for one in db[Check].filter(created=77)] == ids
    assert db[Check].filter(project__name__in=["p", "q", "r"], created=77).delete().written == len(ids)
    with pytest.raises(InvalidArgumentError, match="path"):
        db[Check].filter(project__name="p", status="new").delete(resume_id="nightly")


def test_an_update_leaves_out_a_record_that_now_refers_to_another_target():
    db, engine = watched(MODELS)
    db[Owner].create(id=1, email="a@x", age=1)
    db[Project].bulk_create([Project(id=1, name="p", lead_id=1), Project(id=2, name="q", lead_id=1)])
    db[Check].create(id=1, project=1, status="up", created=1)

    def after_the_first_read() -> None:
        engine.before_read = lambda: db[Check].patch(1, project=2)  # before the targets are read

    engine.before_read = after_the_first_read
    assert db[Check].filter(status="up", project__name="p").update(created=5).written == 0
    assert db[Check].get(1).created == 1


def test_a_writer_of_a_tested_target_conflicts_with_a_transaction():
    with Database("memory://", models=MODELS) as db:
        db[Owner].create(id=1, email="a@x", age=1)
        db[Project].create(id=1, name="p", lead_id=1)
        db[Check].create(id=1, project=1, status="up", created=1)
        runs: list[int] = []

        @db.transactional()
        def work(tx: Any) -> None:
            found = tx[Check].filter(status="up", project__name="p").count()
            if not runs:
                db[Project].patch(1, name="q")
            runs.append(found)
            tx[Check].patch(1, created=found + 10)

        work()
        assert runs == [1, 0]
        assert db[Check].get(1).created == 10


# --- names --------------------------------------------------------------------------------------------------------


def test_typed_paths_are_the_same_conditions(db_of_monitors: Database):
    checks = db_of_monitors[Check]
    by_name = checks.filter(Check.project.to(Project.name) == "p")
    assert by_name.to_list() == checks.filter(project__name="p").to_list()
    nick = Check.project.to(Project.owner).to(col(Owner.nick))
    assert (
        checks.filter(nick == None).allow_scan().count()  # noqa: E711
        == checks.filter(project__owner__nick=None).allow_scan().count()
    )
    label = Check.project.to(Project.labels)  # type: ignore[call-overload]
    assert checks.filter(label.contains("x"), status="up").count() == sum(
        one.project is not None and "x" in db_of_monitors[Project].get(one.project).labels
        for one in checks.filter(status="up")
    )
    owners: Any = Check.project
    for wrong in (Owner.age, Check.status, "name"):
        with pytest.raises(InvalidArgumentError, match="target"):
            owners.to(wrong)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("project__nam", UnknownLookupError),
        ("project__nam__gte", UnknownFieldError),
        ("spare__nam", UnknownFieldError),
        ("project__owner__ag", UnknownLookupError),
        ("project__lead__ag", UnknownFieldError),
        ("project__name__containz", UnknownLookupError),
        ("project__owner__boss__boss__age", InvalidArgumentError),
    ],
)
def test_a_wrong_path_is_an_error_when_the_query_is_built(db_of_monitors: Database, name: str, error: type[Exception]):
    with pytest.raises(error) as caught:
        db_of_monitors[Check].filter(**{name: 1})
    assert "name" in str(caught.value) or "age" in str(caught.value) or "in_" in str(caught.value)
