"""``db.check(tenants=...)``: reports by tenant, repair, failures that stop no other tenant, and pace."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Database,
    FinishedOperation,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    TenantModelError,
    TenantNotFoundError,
    TenantProgress,
    UnsupportedError,
)

NAMES = ("acme", "hooli", "initech")


class Page(KvModel, collection="pages"):
    """A model with entries and counters."""

    id: PrimaryKey[int]
    title: Indexed[str]

    class Meta:
        indexes: ClassVar = [AggregateIndex("title", name="titles")]


class Note(KvModel, collection="notes"):
    """Of the store itself."""

    id: PrimaryKey[int]


class Ended(BaseException):
    """Stands for the kill of a process."""


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Any:
    """A store in memory with three tenants; an entry of the second one is missing."""
    name = f"memory://{request.node.name}"
    with Database(name, models=[Note], tenant_models=[Page]) as kept:
        for one in NAMES:
            kept.create_tenant(one)
            kept.tenant(one)[Page].create(id=1, title=one)
        kept.tenant("hooli").kv.unsafe().delete(("pages_by_title", "hooli", 1))
        yield name


@pytest.fixture
def db(url: str) -> Any:
    """The store, opened again."""
    with Database(url, models=[Note], tenant_models=[Page]) as opened:
        yield opened


@pytest.mark.parametrize("concurrency", [1, 3])
def test_all_tenants_are_checked_and_reports_with_findings_are_kept(db: Database, concurrency: int):
    report = db.check(tenants=True, concurrency=concurrency)
    assert (report.ok, report.checked, list(report.reports), report.failed) == (False, 3, ["hooli"], ())
    assert [one.primary_key for one in report.reports["hooli"].missing] == [1]
    assert report.scanned == sum(db.tenant(name).check().scanned for name in NAMES)
    assert db.check().unchecked == ("tenants: db.check(tenants=True) checks them",)


def test_repair_is_done_in_the_tenant(db: Database):
    repaired = db.check(Page, repair=True, tenants=["hooli", "acme"])
    assert (repaired.ok, [one.repaired for one in repaired.reports["hooli"].findings]) == (True, [True])
    assert str(db.check(tenants=True)).startswith("ok: 3 checked, ")


def test_a_tenant_that_cannot_be_checked_stops_no_other(db: Database):
    db.tenant("acme").kv.unsafe().set(("__kvmodels__", "header"), {"format": 99})
    report = db.check(tenants=True)
    assert (report.ok, report.checked, [one.tenant for one in report.failed]) == (False, 2, ["acme"])
    assert f"acme: {report.failed[0].message}" in str(report).splitlines()


def test_a_tenant_that_is_being_removed_is_left_out_and_named(db: Database):
    def stop(_: object) -> None:
        raise Ended

    with pytest.raises(Ended):
        db.remove_tenant("hooli", progress=stop)
    report = db.check(tenants=True)
    assert (report.checked, [(one.name, one.state) for one in report.unchecked]) == (2, [("hooli", "removing")])
    assert str(report).endswith("hooli: not checked, its state is removing")


def test_progress_names_the_tenants_so_that_a_check_can_be_continued(db: Database):
    done: list[str] = []

    def kill_after_the_first(progress: TenantProgress) -> None:
        if progress.step is None:
            done.append(progress.tenant)
            assert (progress.done, progress.total) == (1, 3)
            raise Ended

    with pytest.raises(Ended):
        db.check(tenants=True, progress=kill_after_the_first)
    assert done == ["acme"]
    seen: list[TenantProgress] = []
    left = db.check(tenants=[name for name in NAMES if name not in done], progress=seen.append, throttle=1e6)
    assert (left.checked, list(left.reports)) == (2, ["hooli"])
    assert {one.step.step for one in seen if one.step is not None} == {"check"}


def test_wrong_arguments_are_refused_before_anything_is_read(url: str):
    finished: list[FinishedOperation] = []
    with Database(url, models=[Note], tenant_models=[Page], observer=finished.append) as db:
        check: Any = db.check
        finished.clear()
        wrong: tuple[dict[str, Any], ...] = (
            *({"tenants": value} for value in ("acme", False, 7, [""], [7])),
            *({"tenants": True, **one} for one in ({"concurrency": 0}, {"throttle": 0}, {"repair": "some"})),
            *({"tenants": True, **one} for one in ({"progress": 1}, {"model": Note})),
            {"concurrency": 0},
        )
        for options in wrong:
            with pytest.raises((InvalidArgumentError, TenantModelError)):
                check(**options)
        with pytest.raises(UnsupportedError):
            db.tenant("acme").check(tenants=True)
        assert finished == []
        with pytest.raises(TenantNotFoundError):
            db.check(tenants=["acme", "unknown"])
    with Database(url) as db, pytest.raises(InvalidArgumentError, match="without models of tenants"):
        db.check(tenants=True)


async def test_the_asynchronous_form_checks_several_tenants_at_a_time(url: str):
    async with AsyncDatabase(url, models=[Note], tenant_models=[Page]) as db:
        report = await db.check(tenants=True, repair=True, concurrency=2)
        assert (report.ok, list(report.reports)) == (True, ["hooli"])
        assert (await db.check(tenants=True)).reports == {}
