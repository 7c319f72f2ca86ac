"""``db.plan(tenants=...)`` and ``db.apply(tenants=...)``: headers in batches, current tenants untouched, resumable."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    FinishedOperation,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    TenantNotFoundError,
    TenantProgress,
    Unique,
    UnsupportedError,
    upgrade,
)
from kvmodels.limits import Limits

NAMES = [f"t{number:02}" for number in range(12)]


class Page(KvModel, collection="pages"):
    """Of the first release."""

    id: PrimaryKey[int]
    title: str


class IndexedPage(KvModel, collection="pages"):
    """Of the second release, with an index more."""

    id: PrimaryKey[int]
    title: Indexed[str]


class UniquePage(KvModel, collection="pages"):
    """Of another second release: two records of some tenants have one title."""

    id: PrimaryKey[int]
    title: Unique[str]


class NumberedPage(KvModel, collection="pages"):
    """Of a release that takes the type of a field away without a plan for its records."""

    id: PrimaryKey[int]
    title: int


class Note(KvModel, collection="notes"):
    """Of the store itself."""

    id: PrimaryKey[int]


class Ended(BaseException):
    """Stands for the kill of a process."""


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Any:
    """A store in memory with tenants of the first release."""
    name = f"memory://{request.node.name}"
    with Database(name, tenant_models=[Page]) as kept:
        for one in NAMES:
            kept.create_tenant(one)
            kept.tenant(one)[Page].create(id=1, title=one)
        yield name


class Counting:
    """Counts the requests of an observed database."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []

    def __call__(self, finished: FinishedOperation) -> None:
        self.requests.append((finished.reads, finished.commits))


def test_all_tenants_are_applied_and_those_that_are_current_cost_no_commit(url: str):
    counting = Counting()
    with Database(url, tenant_models=[IndexedPage], observer=counting) as db:
        plan = db.plan(tenants=True)
        assert (plan.behind, [group.tenants for group in plan.groups]) == (12, [tuple(NAMES)])
        assert db.apply(tenants=NAMES[:2]).applied == ("t00", "t01")
        seen: list[TenantProgress] = []
        report = db.apply(tenants=True, progress=seen.append)
        assert (report.current, report.applied, report.complete) == (2, tuple(NAMES[2:]), True)
        assert [(one.tenant, one.done, one.total) for one in seen if one.step is None] == [
            (name, number + 3, 12) for number, name in enumerate(NAMES[2:])
        ]
        assert {one.step.step for one in seen if one.step is not None} == {"build"}
        counting.requests.clear()
        again = db.apply(tenants=True)
        assert counting.requests == [(2, 0)]
        assert (again.current, again.applied, db.plan(tenants=True).is_current) == (12, (), True)
        assert all(db.tenant(name)[IndexedPage].get(title=name).id == 1 for name in NAMES if name)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_apply_that_is_killed_twice_is_resumed(url: str, concurrency: int):
    with Database(url, tenant_models=[IndexedPage]) as db:
        done: set[str] = set()

        def kill_after_four(progress: TenantProgress) -> None:
            if progress.step is None:
                done.add(progress.tenant)
                if len(done) % 4 == 0:
                    raise Ended

        for _ in range(2):
            with pytest.raises(Ended):
                db.apply(tenants=True, progress=kill_after_four, concurrency=concurrency)
        report = db.apply(tenants=True, concurrency=concurrency)
        assert len(report.applied) + report.current == 12
        assert report.current >= 8 - concurrency
        assert all(db.tenant(name).check().ok and db.tenant(name).plan().is_current for name in NAMES)


def test_headers_are_read_in_batches(url: str):
    counting = Counting()
    with Database(url, tenant_models=[Page], observer=counting, limits=Limits.DENO) as db:
        assert db.apply(tenants=True).current == 12
        # The rows, then ten headers in one read, and two in another.
        assert counting.requests[-1] == (3, 0)


def test_failures_are_collected_by_tenant_and_violations_are_reported(url: str):
    with Database(url, tenant_models=[Page]) as old:
        old.tenant("t03")[Page].create(id=2, title="t03")
    with Database(url, tenant_models=[UniquePage]) as db:
        report = db.apply(tenants=True)
        assert (list(report.incomplete), report.failed, report.complete) == (["t03"], (), False)
        assert [one.key for one in report.incomplete["t03"].builds[0].violations] == [2]
    with Database(url, tenant_models=[NumberedPage]) as db:
        report = db.apply(tenants=True, concurrency=2)
        assert [one.tenant for one in report.failed] == NAMES
        assert {one.kind for one in report.failed} == {"SchemaChangeRefusedError"}
        assert "12 failed: NOT COMPLETE" in str(report)


def test_a_record_that_the_models_refuse_stops_only_its_tenant(url: str):
    class ShortPage(KvModel, collection="pages"):
        id: PrimaryKey[int]
        title: Indexed[str]

        class Meta:
            schema_version: ClassVar = 2

        @upgrade(to=2, touches=("title",))
        @staticmethod
        def shorten(fields: dict[str, Any]) -> dict[str, Any]:
            return {**fields, "title": fields["title"][:1]}

    with Database(url, tenant_models=[Page]) as old:
        old.tenant("t05").kv.unsafe().set(("pages", 9), {"id": 9})
    with Database(url, tenant_models=[ShortPage]) as db:
        report = db.apply(tenants=True)
        assert [one.tenant for one in report.failed] == ["t05"]
        assert len(report.applied) == 11


def test_apply_leaves_tenants_alone_and_counts_those_that_are_behind(url: str):
    with Database(url, models=[Note], tenant_models=[IndexedPage]) as db:
        db.apply(tenants=["t07"])
        report = db.apply()
        assert (report.tenants_behind, "tenants that are behind: 11" in str(report)) == (11, True)
        assert db.tenant("t00").apply().tenants_behind == 0
    with Database(url, models=[Note]) as db:
        assert db.apply().tenants_behind == 0


def test_wrong_arguments_are_refused_before_anything_is_read(url: str):
    with Database(url, tenant_models=[IndexedPage]) as db:
        wrong_tenants: tuple[Any, ...] = ("t00", False, 7, [""], [7])
        for wrong in wrong_tenants:
            for call in (db.plan, db.apply):
                with pytest.raises(InvalidArgumentError):
                    call(tenants=wrong)
        apply: Any = db.apply
        for options in ({"concurrency": 0}, {"allow": ["all"]}, {"sample": -1}, {"throttle": 0}, {"progress": 1}):
            with pytest.raises(InvalidArgumentError):
                apply(tenants=True, **options)
        for call in (db.plan, db.apply):
            with pytest.raises(TenantNotFoundError):
                call(tenants=["t00", "unknown"])
            with pytest.raises(UnsupportedError):
                getattr(db.tenant("t00"), call.__name__)(tenants=True)
    with Database(url) as db, pytest.raises(InvalidArgumentError, match="without models of tenants"):
        db.apply(tenants=True)


def test_a_tenant_that_is_being_removed_is_left_out(url: str):
    def stop(_: object) -> None:
        raise Ended

    with Database(url, tenant_models=[IndexedPage]) as db:
        with pytest.raises(Ended):
            db.remove_tenant("t04", progress=stop)
        assert len(db.apply(tenants=True).applied) == 11


async def test_the_asynchronous_form_applies_several_tenants_at_a_time(url: str):
    async with AsyncDatabase(url, tenant_models=[IndexedPage]) as db:
        assert (await db.plan(tenants=NAMES[:3])).behind == 3
        report = await db.apply(tenants=True, concurrency=4)
        assert (report.applied, (await db.apply()).tenants_behind) == (tuple(NAMES), 0)

        def stop(_: object) -> None:
            raise Ended

        await db.create_tenant("later")
        assert (await db.apply(tenants=True)).current == 13
        await db.tenant("later").drop_index(IndexedPage, "title")
        with pytest.raises(Ended):
            await db.apply(tenants=True, progress=stop, concurrency=4)
