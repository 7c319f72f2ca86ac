"""``db.watch_tenants``: the records of all tenants from one walk of the log, present ones first, then changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    ChangedRecord,
    Database,
    DecodeError,
    InvalidArgumentError,
    TenantModelError,
    UnsupportedError,
)
from kvmodels.flows.kv import watch as watching
from tests.tenants.models import TENANT_MODELS, Account, User


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}
    return urls[request.param]


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, models=[Account], tenant_models=TENANT_MODELS, change_log=3600) as database:
        yield database


def told(batches: Any) -> list[tuple[Any, Any, Any]]:
    """Return tenant, key and email of each delivery."""
    changes: list[tuple[Any, ChangedRecord[Any]]] = [one for batch in batches for one in batch]
    return [(db.tenant_name, one.key, one.record and one.record.email) for db, one in changes]


def add(db: Database, name: str, number: int) -> None:
    db.tenant(name, create=True)[User].create(id=number, email=f"{name} {number}", color="red")


def test_present_records_come_first_then_changes_of_all_tenants_in_their_order(db, monkeypatch):
    monkeypatch.setattr(watching, "BATCH", 3)
    db[Account].create(id=1, email="of the store")
    db.create_tenant("empty")
    for number in range(5):
        add(db, "acme", number)
    add(db, "initech", 7)
    watch = db.watch_tenants(User, timeout=0)
    listed = [next(watch), next(watch), next(watch)]
    assert told(listed) == [*(("acme", number, f"acme {number}") for number in range(5)), ("initech", 7, "initech 7")]
    add(db, "new", 1)
    db.tenant("acme")[User].patch(2, email="changed")
    db.tenant("acme").kv.set(("note",), 1)
    db.tenant("initech")[User].remove(7)
    db[Account].create(id=2, email="also of the store")
    seen = told(watch)
    assert sorted(seen) == [("acme", 2, "changed"), ("initech", 7, None), ("new", 1, "new 1")]
    assert watch.versionstamp is not None
    add(db, "acme", 9)
    assert told(db.watch_tenants(User, since=watch.versionstamp, timeout=0)) == [("acme", 9, "acme 9")]


def test_the_removal_of_a_tenant_is_that_of_its_records_and_a_later_life_is_seen(db, url):
    add(db, "acme", 1)
    watch = db.watch_tenants(User, timeout=0)
    assert told([next(watch)]) == [("acme", 1, "acme 1")]
    position = watch.versionstamp
    assert position is not None
    db.remove_tenant("acme")
    assert told(db.watch_tenants(User, since=position, timeout=0)) == [("acme", 1, None)]
    if not url.startswith("memory"):
        with Database(url, tenant_models=TENANT_MODELS, change_log=3600) as other:
            add(other, "acme", 1)
        assert told(db.watch_tenants(User, since=position, timeout=0)) == [("acme", 1, "acme 1")]


async def test_tasks_watch_all_tenants_too(url):
    async with AsyncDatabase(url, tenant_models=TENANT_MODELS, change_log=3600) as db:
        watch = db.watch_tenants(User, timeout=0)
        assert await anext(watch) == []
        for name in ("acme", "initech"):
            await db.tenant(name, create=True)[User].create(id=1, email=name, color="red")
        found = [one async for one in watch]
        assert told(found) == [("acme", 1, "acme"), ("initech", 1, "initech")]
        assert isinstance(found[0][0][0], AsyncDatabase)
        assert await found[0][0][0][User].count() == 1


def test_after_an_error_the_changes_are_delivered_again(db):
    add(db, "acme", 1)
    watch = db.watch_tenants(User, timeout=0)
    next(watch)
    acme = db.tenant("acme")
    acme.kv.unsafe().set(("users", 2), "no record")
    with pytest.raises(DecodeError):
        told(watch)
    acme.kv.unsafe().delete(("users", 2))
    add(db, "initech", 3)
    assert sorted(told(watch)) == [("acme", 2, None), ("initech", 3, "initech 3")]


def test_what_cannot_be_watched_for_all_tenants_is_refused(db, tmp_path):
    with pytest.raises(TenantModelError):
        db.watch_tenants(Account)
    with pytest.raises(UnsupportedError):
        db.tenant("acme", create=True).watch_tenants(User)
    with pytest.raises(InvalidArgumentError):
        db.watch_tenants(User, since="yesterday")
    with Database("memory://") as without, pytest.raises(InvalidArgumentError, match="opened without"):
        without.watch_tenants(User)
    with Database(tmp_path / "b.db", tenant_models=TENANT_MODELS) as unlogged, pytest.raises(UnsupportedError):
        next(unlogged.watch_tenants(User, timeout=0))
