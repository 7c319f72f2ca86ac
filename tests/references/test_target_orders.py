"""Orders by fields of targets equal a Python program over all records: None first, ties by the primary key."""

from __future__ import annotations

import asyncio
import random
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    Field,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidCursorError,
    KvModel,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    Q,
    UnknownFieldError,
    UnknownLookupError,
    col,
)
from tests.query.engines import watched
from tests.references.monitors import MODELS, Check, Owner, Project, Records, stocked

ORDERS = [
    "project__name",
    "project__owner__email",
    "project__owner__boss__age",
    "spare__owner__nick",
    "project__lead_id",
]
OWN = ["status", "created", "project"]
FILTERS: list[tuple[Any, Any]] = [
    (Q(), lambda records, one: True),
    (Q(status="up"), lambda records, one: one.status == "up"),
    (Q(created__gte=9), lambda records, one: one.created >= 9),
    (Q(status="up") & ~Q(project__name="p"), lambda records, one: one.status == "up" and not named_p(records, one)),
]


def named_p(records: Records, one: Check) -> bool:
    return bool(records.value(one, "project__name") == "p")


def drawn_order(drawn: random.Random) -> list[str]:
    columns = [drawn.choice(ORDERS), *drawn.sample([*ORDERS, *OWN], drawn.randrange(3))]
    return [f"{drawn.choice(['', '-'])}{column}" for column in dict.fromkeys(columns)]


def in_order(records: Records, stored: list[Check], order: list[str]) -> list[Check]:
    found = sorted(stored, key=lambda one: one.id)
    for column in reversed(order):
        path, is_descending = column.removeprefix("-"), column.startswith("-")
        values = {one.id: records.value(one, path) for one in found}
        found.sort(key=lambda one, of=values: (of[one.id] is not None, of[one.id] or 0), reverse=is_descending)  # type: ignore[misc]
    return found


def check_one(checks: Any, records: Records, stored: list[Check], drawn: random.Random) -> None:
    order, (condition, test) = drawn_order(drawn), drawn.choice(FILTERS)
    expected = in_order(records, [one for one in stored if test(records, one)], order)
    query = checks.filter(condition).order_by(*order).sort_in_memory()
    way = drawn.randrange(6)
    if way == 0:
        assert query.to_list() == list(query) == query.reverse().to_list()[::-1] == expected
    elif way == 1:
        start, stop = drawn.randrange(4), drawn.randrange(4, 12)
        assert query[start:stop].to_list() == expected[start:stop], order
        assert list(query[start:stop].iterator(batch_size=3)) == expected[start:stop]
    elif way == 2:
        assert (query.first(), query.last()) == (expected[0], expected[-1])
        assert (query.count(), query.exists()) == (len(expected), True)
    elif way == 3:
        rows = [(one.id, records.value(one, "project__name")) for one in expected[:9]]
        assert query[:9].values_list("id", "project__name").to_list() == rows
    elif way == 4:
        pairs = [(one, one.project) for one in expected]
        found = query.with_related(Check.project).to_list()
        assert [(one, None if target is None else target.id) for one, target in found] == pairs
    else:
        check_pages(query, expected, drawn.randrange(3, 9))


def check_pages(query: Any, expected: list[Check], size: int) -> None:
    pages, cursor = [query.page(size=size)], None
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(query.page(size=size, after=cursor))
    assert [one for page in pages for one in page.items] == expected
    if len(pages) > 1:
        assert query.page(size=size, before=pages[1].previous_cursor).items == pages[0].items


@pytest.mark.parametrize("kind", ["memory", "sqlite", "no snapshots", "nine ranges"])
def test_orders_equal_python(kind: str, tmp_path: Any):
    drawn = random.Random(kind)
    if kind in ("memory", "sqlite"):
        db = Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        records = stocked(db, drawn)
        for _ in range(35):
            check_one(db[Check], records, records.objects["Check"], drawn)


def test_a_transaction_orders_its_own_writes():
    drawn = random.Random(3)
    with Database("memory://", models=MODELS) as db:
        stocked(db, drawn, checks=20)
        with db.transaction() as tx, tx.unchecked():  # a commit may check fewer reads than these
            tx[Project].patch(1, name="a")
            tx[Owner].patch(2, email="z@x", nick="c")
            tx[Check].create(id=90, project=1, status="up", created=40)
            stored = list(tx[Check].all())
            own = Records({"Owner": list(tx[Owner].all()), "Project": list(tx[Project].all()), "Check": stored})
            for _ in range(25):
                check_one(tx[Check], own, stored, drawn)


def test_a_writer_of_a_target_conflicts_with_a_transaction_that_ordered_by_it():
    with Database("memory://", models=MODELS) as db:
        stocked(db, random.Random(1), checks=0)
        db[Project].patch(0, name="p")
        db[Project].patch(1, name="q")
        for key in (0, 1):
            db[Check].create(id=key, project=key, status="up", created=1)
        attempts = 0

        @db.transactional()
        def close(tx: Any) -> int:
            nonlocal attempts
            attempts += 1
            first = tx[Check].order_by("project__name").sort_in_memory().first()
            if attempts == 1:
                db[Project].patch(1, name="a")
            tx[Check].patch(first.id, status="down")
            return int(first.id)

        assert (close(), attempts) == (1, 2)


def test_typed_orders_and_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Owner].bulk_create([Owner(id=n, email=f"{9 - n}@x", age=1) for n in range(3)])
            await db[Project].bulk_create([Project(id=n, name="p", owner=n, lead_id=0) for n in range(3)])
            await db[Check].bulk_create(
                [Check(id=n, project=n % 3, status="up", created=n) for n in range(6)], batch_size=3
            )
            path = Check.project.to(Project.owner).to(col(Owner.email))
            for order in (path, path.asc(), "project__owner__email"):
                found = await db[Check].order_by(order).sort_in_memory().to_list()
                assert [one.id for one in found] == [2, 5, 1, 4, 0, 3]
            found = [one async for one in db[Check].order_by(path.desc(), "-id").sort_in_memory()]
            assert [one.id for one in found] == [3, 0, 4, 1, 5, 2]
            by_key = await db[Check].order_by("-project__pk").to_list()  # the index of the key itself has this order
            assert [one.project for one in by_key] == [2, 2, 1, 1, 0, 0]

    asyncio.run(run())


def test_the_targets_of_a_batch_take_one_request_for_each_level():
    db, engine = watched(MODELS)
    stocked(db, random.Random(1))
    engine.meter.reset()
    db[Check].order_by("project__owner__email", "spare__name").sort_in_memory().to_list()
    assert engine.meter.reads == 1 + 2
    db[Check].filter(pk=3).order_by("project__name").to_list()  # one record has any order


class Kind(BaseModel):
    since: date | None = None


def length(title: str) -> int:
    return len(title)


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    title: Annotated[str, Indexed(key=str.casefold)]
    size: float
    kind: Kind = Kind()

    class Meta:
        indexes = (Index("title", key=length, version=1, name="length"),)


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    place: ForeignKey[int | None, Place] = Field(default=None)


def test_values_are_ordered_as_in_an_index():
    with Database("memory://", models=[Place, Visit]) as db:
        sizes = [2.5, float("nan"), -1.0, float("inf")]
        days = [None, date(2026, 1, 2), date(2025, 1, 1), None]
        for at, title in enumerate(["beta", "ALPHA", "alphas", "Be"]):
            db[Place].create(id=at, title=title, size=sizes[at], kind=Kind(since=days[at]))
            db[Visit].create(id=at, place=at)
        db[Visit].create(id=9)

        def keys(*order: str) -> list[int]:
            return [one.id for one in db[Visit].order_by(*order).sort_in_memory().to_list()]

        assert keys("place__title") == [9, 1, 2, 3, 0]
        assert keys("place__size") == [9, 2, 0, 3, 1]
        assert keys("-place__size") == [1, 3, 0, 2, 9]
        assert keys("place__kind.since") == keys("place__kind__since") == [0, 3, 9, 2, 1]
        assert keys("place__length", "-place__title") == [9, 3, 0, 1, 2]


def test_a_target_that_is_removed_in_between_leaves_its_record_out():
    db, engine = watched([Place, Visit])
    db[Place].create(id=1, title="a", size=1)
    db[Visit].bulk_create([Visit(id=1, place=1), Visit(id=2)])

    def remove() -> None:
        other, _ = watched([Place, Visit], engine=engine.inner)
        other[Visit].remove(1)
        other[Place].remove(1)

    def before_the_records() -> None:
        engine.before_read = remove  # before the targets

    engine.before_read = before_the_records
    assert [one.id for one in db[Visit].order_by("place__title").sort_in_memory()] == [2]


def test_an_order_that_is_not_served_is_refused_and_the_named_calls_serve():
    with Database("memory://", models=MODELS) as db:
        records = stocked(db, random.Random(1))
        expected = in_order(records, records.objects["Check"], ["project__name"])
        for query, hint in (
            (db[Check].all(), "Call .sort_in_memory(limit=…) to sort the results."),
            (db[Check].filter(status="up"), "Call .sort_in_memory(limit=…) to sort the results."),
        ):
            with pytest.raises(NoUsableIndexError) as caught:
                query.order_by("project__name").to_list()
            assert caught.value.hint == hint
        assert db[Check].order_by("project__name").sort_in_memory().to_list() == expected
        scan = "call .allow_scan() to read all of 'projects'"
        by_label = db[Project].filter(labels=["x"]).order_by("owner__email")
        for by_email, way in ((by_label, f"{scan} and call .sort_in_memory"), (by_label.sort_in_memory(), scan)):
            with pytest.raises(NoUsableIndexError) as caught:
                by_email.to_list()
            assert way in (caught.value.hint or "").replace("Call", "call")
            assert "owner__email" not in (caught.value.hint or "")
        assert by_label.allow_scan().sort_in_memory().to_list() is not None
        with pytest.raises(OperationTooLargeError):
            db[Check].order_by("project__name").sort_in_memory(limit=3).to_list()


def test_bad_orders_are_refused_by_name():
    with Database("memory://", models=MODELS) as db:
        stocked(db, random.Random(1))
        projects: Any = db[Project]
        for error, call in (
            (UnknownFieldError, lambda: db[Check].order_by("project__nam")),
            (UnknownLookupError, lambda: db[Check].order_by("project__labels")),
            (InvalidArgumentError, lambda: db[Check].order_by("project__owner__boss__boss__age")),
            (InvalidArgumentError, lambda: db[Check].order_by("project__name").group_by("status").aggregate(Count())),
            (InvalidArgumentError, lambda: db[Check].order_by("project__name").values("status").distinct().to_list()),
            (
                InvalidArgumentError,
                lambda: projects.fetch_referrers(list(projects.all()), Check.project, order_by="spare__name", limit=1),
            ),
        ):
            with pytest.raises(error):
                call()
        pages = db[Check].order_by("project__name").sort_in_memory()
        cursor = pages.page(size=2).next_cursor
        with pytest.raises(InvalidCursorError):
            db[Check].order_by("spare__name").sort_in_memory().page(size=2, after=cursor)


def test_the_first_records_in_the_order_are_written():
    with Database("memory://", models=MODELS) as db:
        records = stocked(db, random.Random(4))
        expected = in_order(records, records.objects["Check"], ["-project__name"])[:5]
        changed = db[Check].order_by(Check.project.to(Project.name).desc()).sort_in_memory()[:5].update(status="x")
        assert changed.written == 5
        assert {one.id for one in db[Check].filter(status="x")} == {one.id for one in expected}
        plan = str(db[Check].order_by("project__name").sort_in_memory().explain(analyze=True))
        assert "and their targets read in one more request for each level and batch" in plan
