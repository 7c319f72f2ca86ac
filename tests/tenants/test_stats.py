"""``db.stats(tenants=...)``: rows and bytes by tenant, from one walk."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    FinishedOperation,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    SchemaProgress,
    TenantNotFoundError,
    UnsupportedError,
)
from kvmodels.limits import Limits


class Page(KvModel, collection="pages"):
    """A record with an entry."""

    id: PrimaryKey[int]
    title: Indexed[str]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Any:
    """A store in memory with an empty tenant, a small one and one of many rows; the store has keys of its own."""
    name = f"memory://{request.node.name}"
    with Database(name, tenant_models=[Page]) as kept:
        for one in ("empty", "many", "small"):
            kept.create_tenant(one)
        kept.tenant("many")[Page].bulk_create([Page(id=number, title="x") for number in range(300)])
        kept.tenant("small")[Page].create(id=1, title="y")
        kept.tenant("small").kv.set(("raw",), 1, expire_in=60)
        kept.tenant("small").kv.enqueue("later", delay=60)
        kept.kv.set(("own",), 1)
        yield name


def test_the_rows_of_each_tenant_are_counted_by_one_walk(url: str):
    finished: list[FinishedOperation] = []
    with Database(url, tenant_models=[Page], observer=finished.append) as db:
        found = db.stats(tenants=True)
        # 605 rows in batches of 500.
        assert (finished[-1].verb, finished[-1].reads) == ("stats", 2)
        assert {name: rows.rows for name, rows in found.tenants.items()} == {"empty": 1, "many": 601, "small": 5}
        assert (found.tenants["small"].expiring, found.total.rows, found.total.exact) == (1, 607, True)
        for name, rows in found.tenants.items():
            own = db.tenant(name).stats(exact=True)
            parts = (own.library, own.other, *(one.total for one in own.collections))
            assert rows.rows == sum(part.rows for part in parts) + own.queue_later
        assert str(found).splitlines()[0].startswith("empty: 1 row, ")
    with Database(url) as undeclared:
        assert undeclared.stats(tenants=True) == found


def test_some_tenants_are_walked_alone_and_at_a_pace(url: str):
    seen: list[SchemaProgress] = []
    with Database(url, tenant_models=[Page]) as db:
        found = db.stats(tenants=["small", "many"], progress=seen.append, throttle=1e6)
        assert {name: rows.rows for name, rows in found.tenants.items()} == {"small": 5, "many": 601}
        assert found.tenants.items() <= db.stats(tenants=True).tenants.items()
    assert [(one.collection, one.scanned, one.total) for one in seen] == [
        ("small", 5, 5),
        ("many", 500, 601),
        ("many", 601, 601),
    ]


def test_wrong_arguments_of_statistics_by_tenant_are_refused(url: str):
    with Database(url, tenant_models=[Page]) as db:
        stats: Any = db.stats
        for wrong in ({"tenants": "small"}, {"tenants": False}, {"tenants": True, "throttle": 0}, {"tenants": [""]}):
            with pytest.raises(InvalidArgumentError):
                stats(**wrong)
        with pytest.raises(TenantNotFoundError):
            db.stats(tenants=["small", "unknown"])
        with pytest.raises(UnsupportedError):
            db.tenant("small").stats(tenants=True)
    with Database("memory://") as empty:
        assert (empty.stats(tenants=True).tenants, str(empty.stats(tenants=True))) == ({}, "there are no tenants")


async def test_the_asynchronous_form_counts_in_the_batches_of_the_limits(url: str):
    async with AsyncDatabase(url, limits=Limits.DENO) as db:
        assert (await db.stats(tenants=True)).total.rows == 607
