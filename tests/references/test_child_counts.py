"""Numbers of the records that refer to each result equal a Python program over all records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Count,
    Database,
    Exists,
    Field,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Limits,
    Max,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    Sum,
    UnknownFieldError,
    col,
)
from kvmodels.engines.memory.engine import MemoryEngine
from tests.limited_engine import LimitedEngine
from tests.query.engines import watched
from tests.references import monitors
from tests.references.monitors import Check, Owner, Project


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]
    name: Indexed[str] = Field(default="")


class Room(KvModel, collection="rooms"):
    id: PrimaryKey[int]
    team: ForeignKey[int, Team]


class Job(KvModel, collection="jobs"):
    id: PrimaryKey[int]
    room: ForeignKey[int | None, Room] = Field(default=None)
    backup: ForeignKey[int | None, Room] = Field(default=None)
    status: str
    size: int
    note: str = ""

    class Meta:
        indexes = (
            Index("room", "status", "size"),
            AggregateIndex("backup", sums=("size",)),
            AggregateIndex("backup", "status", sums=("size",)),
        )


MODELS = (Team, Room, Job)
NUMBERS: dict[str, tuple[Any, Callable[[list[Job], int], Any]]] = {
    "all": (Count(Job.room), lambda jobs, room: sum(job.room == room for job in jobs)),
    "up": (
        Count(Job.room, filter=Q(status="up")),
        lambda jobs, room: sum(job.room == room and job.status == "up" for job in jobs),
    ),
    "large": (
        Count(Job.room, filter=Q(status="up", size__gte=5)),
        lambda jobs, room: sum(job.room == room and job.status == "up" and job.size >= 5 for job in jobs),
    ),
    "any": (
        Exists(Job.room, filter=Q(status="down")),
        lambda jobs, room: any(job.room == room and job.status == "down" for job in jobs),
    ),
    "backups": (Count(Job.backup), lambda jobs, room: sum(job.backup == room for job in jobs)),
    "has_backup": (Exists(Job.backup), lambda jobs, room: any(job.backup == room for job in jobs)),
    "sizes": (
        Sum("size", key=Job.backup),
        lambda jobs, room: (
            sum(job.size for job in jobs if job.backup == room) if any(job.backup == room for job in jobs) else None
        ),
    ),
    "sizes_up": (
        Sum(col(Job.size), key=Job.backup, filter=Q(status__in=["up", "new"])),
        lambda jobs, room: (
            sum(job.size for job in jobs if job.backup == room and job.status in ("up", "new"))
            if any(job.backup == room and job.status in ("up", "new") for job in jobs)
            else None
        ),
    ),
    "of_one": (Count(Job.room, filter=Q(room=1)), lambda jobs, room: sum(job.room == room == 1 for job in jobs)),
}


def stock(db: Any, drawn: random.Random, rooms: int = 6, jobs: int = 40) -> list[Job]:
    db[Team].bulk_create([Team(id=number, name=f"t{number}") for number in range(2)])
    db[Room].bulk_create([Room(id=number, team=number % 2) for number in range(rooms)], batch_size=8)
    stored = [
        Job(
            id=number,
            room=drawn.choice([None, *range(rooms - 1)]),
            backup=drawn.choice([None, *range(rooms - 1)]),
            status=drawn.choice(["up", "down", "new"]),
            size=drawn.randrange(10),
        )
        for number in range(jobs)
    ]
    db[Job].bulk_create(stored, batch_size=4)
    return stored


def check_all(db: Any, jobs: list[Job]) -> None:
    counted = db[Room].with_counts(**{label: function for label, (function, _) in NUMBERS.items()})
    expected = [
        (room, {label: number(jobs, room.id) for label, (_, number) in NUMBERS.items()}) for room in db[Room].all()
    ]
    assert counted.to_list() == list(counted) == expected
    assert counted.filter(pk__gte=2).to_list() == expected[2:]
    assert counted.first() == expected[0]
    assert counted[1:3].to_list() == expected[1:3]
    page = counted.page(size=2)
    assert page.items == expected[:2]
    assert counted.page(size=2, after=page.next_cursor).items == expected[2:4]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "no snapshots", "nine ranges"])
def test_numbers_equal_python(kind: str, tmp_path: Any):
    if kind in ("memory", "sqlite"):
        db = Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        check_all(db, stock(db, random.Random(3)))


def test_a_transaction_counts_its_own_writes():
    with Database("memory://", models=MODELS) as db:
        stock(db, random.Random(5), jobs=20)
        with db.transaction() as tx:
            tx[Job].patch(3, room=1, status="up")
            tx[Job].create(id=90, room=2, backup=2, status="up", size=7)
            tx[Job].remove(5)
            with tx.unchecked():  # a commit may check fewer reads than these
                check_all(tx, list(tx[Job].all()))


def test_a_writer_of_a_counted_record_conflicts_with_a_transaction():
    with Database("memory://", models=MODELS) as db:
        stock(db, random.Random(5), rooms=2, jobs=0)
        db[Job].create(id=50, room=0, status="up", size=1)
        attempts = 0

        @db.transactional()
        def close(tx: Any) -> int:
            nonlocal attempts
            attempts += 1
            ((_, numbers),) = tx[Room].filter(pk=0).with_counts(jobs=Count(Job.room)).to_list()
            if attempts == 1:
                db[Job].patch(50, room=None)
            tx[Team].patch(0, name=str(numbers["jobs"]))
            return int(numbers["jobs"])

        assert (close(), attempts) == (0, 2)


def test_async_results_and_paths_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            team = await db[Team].create(id=1, name="a")
            room = await db[Room].create(id=1, team=1)
            await db[Job].create(id=1, room=1, status="up", size=2)
            counted = db[Room].filter(team__name="a").with_related(Room.team).with_counts(jobs=Count(Job.room))
            assert await counted.to_list() == [((room, team), {"jobs": 1})] == [row async for row in counted]
            assert await counted.count() == 1

    asyncio.run(run())


COUNTED: dict[str, Any] = {
    "all": Count(Job.room),
    "up": Count(Job.room, filter=Q(status="up")),
    "any": Exists(Job.room),
}
TOTALS: dict[str, Any] = {
    "backups": Count(Job.backup),
    "sizes": Sum("size", key=Job.backup),
    "used": Exists(Job.backup),
}


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("numbers", "more"), [(COUNTED, 1), (TOTALS, 1), (COUNTED | TOTALS, 2)])
def test_all_numbers_of_a_page_take_one_request_for_counters_and_one_for_entries(numbers: Any, more: int):
    db, engine = watched(MODELS)
    jobs = stock(db, random.Random(1), rooms=20, jobs=300)
    query = db[Room].with_related(Room.team)
    engine.meter.reset()
    query.page(size=20)
    without = engine.meter.reads
    items = query.with_counts(**numbers).page(size=20).items
    assert engine.meter.reads == without + without + more
    assert [row.get("all", row.get("backups")) for _, row in items] == [
        sum((job.room if "all" in numbers else job.backup) == room.id for job in jobs) for (room, _), _ in items
    ]


@pytest.mark.fast_kinds
def test_a_transaction_reads_all_numbers_of_a_page_in_one_request():
    db, engine = watched(MODELS, snapshots=False)
    stock(db, random.Random(1), rooms=20, jobs=60)
    expected = db[Room].with_counts(**COUNTED, **TOTALS).page(size=20).items
    with db.transaction() as tx, tx.unchecked():
        engine.meter.reset()
        tx[Room].all().page(size=20)
        without = engine.meter.reads
        assert tx[Room].with_counts(**COUNTED, **TOTALS).page(size=20).items == expected
        assert engine.meter.reads == without + without + 1  # the same page, and its numbers


def test_more_rows_than_one_read_takes_are_counted_in_a_transaction():
    few = LimitedEngine(MemoryEngine(), replace(Limits.EMBEDDED, max_ranges=9, max_read_entries=40))
    db, _ = watched(MODELS, engine=few, snapshots=False)
    db[Room].create(id=1, team=db[Team].create(id=1))
    db[Job].bulk_create([Job(id=n, room=1, status="up", size=n % 7) for n in range(90)], batch_size=3)
    with db.transaction() as tx, tx.unchecked():
        assert tx[Room].with_counts(**COUNTED).to_list() == [(Room(id=1, team=1), {"all": 90, "up": 90, "any": True})]


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("ranges", "requests"), [(None, 1 + 1 + 1 + 1), (9, 1 + 3 + 3 + 3)])
def test_a_page_with_two_levels_and_a_number_takes_a_request_for_each(ranges: int | None, requests: int):
    db, engine = watched(monitors.MODELS, max_ranges=ranges)
    owners = [Owner(id=n, email=f"{n}@x", age=1, boss=n - 20 if n >= 20 else None) for n in range(40)]
    db[Owner].bulk_create(owners, batch_size=4)
    db[Project].bulk_create([Project(id=n, name="p", owner=20 + n, lead_id=0) for n in range(20)], batch_size=3)
    db[Check].bulk_create([Check(id=n, project=n % 20, status="up", created=n) for n in range(60)], batch_size=3)
    bosses = db[Project].with_related(Project.owner, Project.owner.to(Owner.boss)).with_counts(n=Count(Check.project))
    engine.meter.reset()
    found = bosses.page(size=20).items
    assert [(project.id, owner and owner.id, boss and boss.id, row) for (project, owner, boss), row in found] == [
        (n, 20 + n, n, {"n": 3}) for n in range(20)
    ]
    assert engine.meter.reads == requests


def test_the_plan_shows_the_numbers():
    with Database("memory://", models=MODELS) as db:
        db[Room].create(id=1, team=db[Team].create(id=1))
        db[Job].bulk_create([Job(id=at, room=1, status="up", size=at) for at in range(5)])
        plan = db[Room].with_counts(jobs=Count(Job.room), more=Exists(Job.backup)).explain(analyze=True)
        assert "jobs, the records with Job.room\n" in str(plan)
        assert "from counters in one more request for each batch" in str(plan)
        assert plan.analysis is not None
        assert (plan.analysis.batches, plan.analysis.rows, plan.analysis.counted) == (3, 1, 5)


class Bare(KvModel, collection="jobs"):
    id: PrimaryKey[int]
    room: ForeignKey[int, Room]
    size: int
    note: str = ""


def indexed(line: str) -> Any:
    """The model with the index of a line that an error names."""
    added = eval(line, {"Index": Index, "AggregateIndex": AggregateIndex})

    class WithIndex(Bare, collection="jobs"):
        class Meta:
            indexes = (added,)

    return WithIndex


@pytest.mark.parametrize(
    ("number", "line", "expected"),
    [
        (lambda key: Count(key, filter=Q(note="a")), 'Index("room", "note")', 2),
        (lambda key: Exists(key, filter=Q(note="c")), 'Index("room", "note")', False),
        (lambda key: Sum("size", key=key), 'AggregateIndex("room", sums=("size",))', 6),
        (lambda key: Sum("size", key=key, filter=Q(note="a")), 'AggregateIndex("room", "note", sums=("size",))', 3),
    ],
)
def test_a_number_without_an_index_is_refused_and_the_named_line_serves(number: Any, line: str, expected: Any):
    def counted(model: Any) -> Any:
        with Database("memory://", models=[Team, Room, model]) as db:
            db[Room].create(id=1, team=db[Team].create(id=1))
            for at in range(1, 4):
                db[model].create(id=at, room=1, size=at, note="aab"[at - 1])
            return db[Room].with_counts(number=number(model.room)).to_list()

    with pytest.raises(NoUsableIndexError) as caught:
        counted(Bare)
    assert caught.value.hint == f"Add {line} to the indexes of Bare.Meta, for the number 'number'."
    assert counted(indexed(line)) == [(Room(id=1, team=1), {"number": expected})]


def test_filters_and_orders_by_a_number_are_refused_with_a_hint():
    with Database("memory://", models=MODELS) as db:
        counted = db[Room].with_counts(jobs=Count(Job.room))
        calls: list[Callable[[], object]] = [
            lambda: counted.filter(jobs__gt=3),
            lambda: counted.exclude(jobs=3),
            lambda: counted.filter(Q(jobs=3) | Q(pk=1)),
            lambda: counted.order_by("-jobs"),
        ]
        for call in calls:
            with pytest.raises(InvalidArgumentError, match="Keep it in a field with an index"):
                call()
        with pytest.raises(UnknownFieldError):
            counted.filter(colour=3)


def test_bad_numbers_are_refused_before_a_read():
    with Database("memory://", models=MODELS) as db:
        rooms: Any = db[Room]
        counted = rooms.with_counts(jobs=Count(Job.room))
        calls: list[tuple[type[Exception], Callable[[], object]]] = [
            (InvalidArgumentError, rooms.with_counts),
            (InvalidValueError, lambda: rooms.with_counts(jobs=Max("size"))),
            (InvalidArgumentError, lambda: rooms.with_counts(jobs=Count())),
            (InvalidArgumentError, lambda: rooms.with_counts(jobs=Count(Room.team))),
            (InvalidArgumentError, lambda: rooms.with_counts(jobs=Sum("size"))),
            (InvalidArgumentError, lambda: rooms.with_counts(team=Count(Job.room))),
            (UnknownFieldError, lambda: rooms.with_counts(jobs=Count(Job.room, filter=Q(colour=1)))),
            (UnknownFieldError, lambda: rooms.with_counts(jobs=Sum("colour", key=Job.room))),
            (InvalidArgumentError, lambda: rooms.values("id").with_counts(jobs=Count(Job.room))),
            (InvalidArgumentError, lambda: counted.values("id")),
            (InvalidArgumentError, lambda: counted.with_counts(jobs=Count(Job.room))),
            (InvalidArgumentError, lambda: counted.with_related(Room.team)),
            (InvalidArgumentError, lambda: rooms.aggregate(Count(filter=Q(pk=1)))),
        ]
        for error, call in calls:
            with pytest.raises(error):
                call()
