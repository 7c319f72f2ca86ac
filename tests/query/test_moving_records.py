"""Loops that change the field of their order: an iteration returns no record twice, and ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any

import pytest

from kvmodels import AsyncDatabase, Database, F, Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Q
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.collection import record_layout
from kvmodels.flows.reading.returned import ReturnedRecords
from kvmodels.schema.compile.schema import schema_of
from tests.query.engines import WatchedEngine
from tests.regressions.stores import opened
from tests.worlds import MEMORY

COUNT = 130
STEP = 1000


class Job(KvModel, collection="jobs"):
    id: PrimaryKey[int]
    run_at: Indexed[int]
    copied: Annotated[int, Indexed(store="record")] = 0
    kind: Indexed[str] = Field(default="a")
    tags: MultiIndexed[list[int]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("kind", "run_at", include=("tags",)), Index("kind", "-copied"))


QUERIES: dict[str, Callable[[Any], QuerySet[Any]]] = {
    "one index": lambda jobs: jobs.filter(run_at__gte=0).order_by("run_at"),
    "entries with records": lambda jobs: jobs.order_by("copied"),
    "descending": lambda jobs: jobs.filter(kind="a").order_by("-copied"),
    "equalities": lambda jobs: jobs.filter(kind="a").order_by("run_at"),
    "merged": lambda jobs: jobs.filter(kind__in=["a", "b"]).order_by("run_at"),
    "tested": lambda jobs: jobs.filter(run_at__gte=0, id__gte=0).order_by("run_at"),
    "concatenated": lambda jobs: jobs.filter(Q(run_at__gte=0) | Q(copied__gte=10**9)),
    "several values": lambda jobs: jobs.filter(tags__any__gte=0),
    "sorted": lambda jobs: jobs.filter(run_at__gte=0).order_by("copied", "kind").sort_in_memory(10**6),
    "no order": lambda jobs: jobs.filter(run_at__gte=0),
}


def filled(jobs: Any, count: int = COUNT) -> None:
    jobs.bulk_create([Job(id=i, run_at=i, copied=i, kind="ab"[i % 5 == 1], tags=[i]) for i in range(count)])


def moved(jobs: Any, asked: Iterable[Any], sign: int = 1) -> list[int]:
    """Return the records of a loop that moves each of them behind the end."""
    seen: list[int] = []
    for one in islice(asked, 5 * COUNT):
        key = one["id"] if isinstance(one, dict) else one.id
        jobs.patch(
            key, run_at=F("run_at") + STEP, copied=F("copied") + sign * STEP, tags=[key + STEP * (len(seen) + 1)]
        )
        seen.append(key)
    return seen


@pytest.mark.parametrize("engine", MEMORY)
@pytest.mark.parametrize("name", QUERIES)
def test_a_loop_that_moves_records_returns_each_once(engine: str, name: str, tmp_path: Any):
    with opened(engine, tmp_path, Job) as db:
        jobs = db[Job]
        filled(jobs)
        query = QUERIES[name](jobs)
        expected = {one.id for one in query}
        sign = -1 if name == "descending" else 1
        forms: list[Any] = [query.iterator(batch_size=20)]
        if name in ("one index", "concatenated"):
            forms += [query, query.values("id"), query[: COUNT // 2]]
        for asked in forms:
            found = moved(jobs, asked, sign)
            assert len(found) == len(set(found))
            assert set(found) <= expected
            assert len(found) in (len(expected), COUNT // 2)
        assert db.check().ok


@pytest.mark.parametrize("name", ["one index", "merged", "equalities", "concatenated"])
def test_a_loop_in_a_transaction_returns_each_record_once(name: str):
    with Database("memory://", models=[Job]) as db:
        filled(db[Job])
        with db.transaction() as tx:
            query = QUERIES[name](tx[Job])
            expected = len(query.to_list())
            found = moved(tx[Job], query.iterator(batch_size=20))
            assert len(found) == len(set(found)) == expected


async def test_an_asynchronous_loop_returns_each_record_once():
    async with AsyncDatabase("memory://", models=[Job]) as db:
        await db[Job].bulk_create([Job(id=i, run_at=i) for i in range(COUNT)])
        found: list[int] = []
        async for one in db[Job].order_by("run_at"):
            await db[Job].patch(one.id, run_at=one.run_at + STEP)
            found.append(one.id)
            if len(found) > COUNT:
                break
        assert found == list(range(COUNT))


def test_a_list_beside_a_writer_has_no_record_twice():
    engine = WatchedEngine()
    core = DatabaseCore([Job])
    with Database.from_engine(engine, core) as db:
        filled(db[Job], 300)
        for query in (db[Job].order_by("run_at"), QUERIES["sorted"](db[Job])):
            query[:1].to_list()

            def move_all() -> None:
                db[Job].filter(run_at__lt=200).update(run_at=F("run_at") + 10**6)

            scan = iter(query.iterator(batch_size=100))
            first = next(scan).id
            engine.before_read = move_all
            found = [first, *(one.id for one in scan)]
            assert len(found) == len(set(found))


def test_the_order_of_the_primary_key_keeps_no_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ReturnedRecords, "_key_of", None)
    with Database("memory://", models=[Job]) as db:
        filled(db[Job], 300)
        assert len(list(db[Job].order_by("id"))) == 300
        assert len(list(db[Job].order_by("-id"))) == 300
        assert len(list(db[Job].filter(kind="b").order_by("id"))) == 60
        assert len(list(db[Job].filter(run_at__lt=50))) == 50  # one batch


def test_a_record_takes_its_key_and_a_hundred_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ReturnedRecords, "_key_of", lambda _, key: key)
    layout = record_layout(schema_of(Job))
    returned = ReturnedRecords(layout)
    for start in range(1, 30_000, 500):
        returned.new_of([layout.pack((start + at,)) for at in range(500)], last=False)
        keys = returned._keys
        used = sys.getsizeof(keys) + sum(map(sys.getsizeof, keys))
        assert used <= sum(map(len, keys)) + 100 * len(keys)
