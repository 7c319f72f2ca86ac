"""A warm call of a tenant costs little more than one of the store, and its tasks share the commits of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodels import AsyncDatabase, Database, Limits, TenantRemovedError
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite, Conflict, ReadRange, point
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.part.engine import PartEngine
from kvmodels.engines.part.gate import Gate
from kvmodels.engines.shared.group_commit import Group
from tests.passing_engine import CountingEngine
from tests.tenants.models import TENANT_MODELS, User
from tools import trace_calls
from tools.trace_calls import WARM_RUNS, instructions

LIMITS = {
    "get(key)": 1.5,
    "get(email=)": 1.5,
    "list of 100": 1.15,
    "page of 100": 1.1,
    "bulk_create": 1.1,
    "create": 1.15,
    "patch": 1.2,
    "kv.atomic().set().commit()": 1.25,
}
"""The most instructions of a call of a tenant, as a multiple of those in the store itself."""

MANY = 100


def calls_of(db: Database) -> dict[str, Callable[[], object]]:
    """Return the calls, over 20 users and ``MANY`` of one colour."""
    calls, users = trace_calls.calls(db), db[trace_calls.User]
    keys = range(100_000, 100_000 + MANY)
    users.bulk_create([trace_calls.User(id=key, email=f"{key}@x", color="many", name="n") for key in keys])
    calls["list of 100"] = lambda: list(users.filter(color="many").order_by("id")[:MANY])
    calls["page of 100"] = lambda: list(users.all()[:MANY])
    return {name: call for name, call in calls.items() if name in LIMITS}


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_a_warm_call_of_a_tenant_costs_little_more_than_in_the_store(tmp_path: Path, url: str):
    urls = [url, url] if url == "memory://" else [f"{tmp_path}/store.db", f"{tmp_path}/tenants.db"]
    with (
        Database(urls[0], models=[trace_calls.User]) as store,
        Database(urls[1], tenant_models=[trace_calls.User]) as tenants,
    ):
        tenants.create_tenant("acme")
        counted: list[dict[str, int]] = []
        for db in (store, tenants.tenant("acme")):
            counts = {}
            for name, call in calls_of(db).items():
                for _ in range(WARM_RUNS):
                    call()
                counts[name] = instructions(call)
            counted.append(counts)
    assert counted[0].keys() == LIMITS.keys()
    ratios = {name: counted[1][name] / counted[0][name] for name in LIMITS}
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio > LIMITS[name]} == {}


def test_reads_of_a_tenant_make_no_more_requests_than_in_the_store():
    def requests(*, tenant: bool) -> dict[str, int]:
        engine, stored = CountingEngine(MemoryEngine()), DatabaseCore(TENANT_MODELS)
        db = Database.from_engine(engine, DatabaseCore([], tenant_models=TENANT_MODELS) if tenant else stored)
        if tenant:
            Database.from_engine(engine, DatabaseCore([], tenant_models=TENANT_MODELS)).create_tenant("acme")
            db = db.tenant("acme")
        found = {}
        for name, call in {
            "first raw read": lambda: db.kv.get(("a",)),
            # A database reads its header when it is opened, a tenant with its first use of a model.
            "header": lambda: db[User].get_or_none(2),
            "get": lambda: db[User].get_or_none(1),
            "by email": lambda: db[User].get_or_none(email="1"),
            "list": lambda: list(db[User].filter(color="red")),
            "raw read": lambda: db.kv.get(("a",)),
        }.items():
            before = engine.meter.reads
            call()
            found[name] = engine.meter.reads - before
        del found["header"]
        return found

    assert requests(tenant=True) == requests(tenant=False)


@pytest.mark.parametrize("folder", ["sqlite", "lmdb"])
async def test_tasks_of_several_tenants_share_the_transactions_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
):
    sizes: list[int] = []
    real = Group.run

    def run(self: Group, transaction: object) -> bool:
        applied = real(self, transaction)  # type: ignore[arg-type]
        sizes.append(len(self.members))
        return applied

    url = f"{tmp_path}/store.db" if folder == "sqlite" else f"lmdb:///{tmp_path}/store.lmdb"
    async with AsyncDatabase(url, tenant_models=TENANT_MODELS) as db:
        for name in "abcd":
            await db.create_tenant(name)
        tenants = [db.tenant(name) for name in "abcd"]
        for tenant in tenants:
            await tenant[User].count()
        monkeypatch.setattr(Group, "run", run)
        await asyncio.gather(
            *(tenants[at % 4][User].create(id=at, email=f"{at}", color="red") for at in range(32)),
            *(tenants[at % 4].kv.set(("raw", at), at) for at in range(32)),
        )
        assert sum(sizes) >= 64
        assert max(sizes) > 16
        assert [await tenant[User].count() for tenant in tenants] == [8] * 4
        await asyncio.gather(*(tenants[at % 4][User].remove(at) for at in range(32)))
        assert [await tenant[User].count() for tenant in tenants] == [0] * 4


async def test_a_queued_commit_whose_row_has_changed_is_refused_or_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with AsyncDatabase(f"{tmp_path}/store.db", tenant_models=TENANT_MODELS) as db:
        await db.create_tenant("acme")
        acme = db.tenant("acme")
        await acme.kv.set(("raw", 1), 1)
        engine = acme._engine
        assert isinstance(engine, PartEngine)
        seen: list[AtomicWrite] = []
        real = PartEngine._own

        def own(self: PartEngine, write: AtomicWrite, conflict: Conflict) -> Conflict | None:
            seen.append(write)
            return real(self, write, conflict)

        monkeypatch.setattr(PartEngine, "_own", own)
        known = engine.gate.check
        assert known is not None
        engine.gate.check = known._replace(versionstamp=bytes(10))
        assert (await acme.kv.atomic().set(("raw", 2), 2).commit()).ok
        assert len(seen) == 1
        engine.gate.check = known._replace(versionstamp=bytes(10))
        taken = await acme.kv.atomic().check(("raw", 2), None).set(("raw", 2), 3).commit()
        assert not taken.ok
        assert await db.remove_tenant("acme")
        with pytest.raises(TenantRemovedError):
            await acme.kv.set(("raw", 3), 3)
        with pytest.raises(TenantRemovedError):
            await acme[User].create(id=1, email="1", color="red")


def test_a_first_list_of_as_many_rows_as_one_read_takes_reads_the_row_of_the_tenant_apart():
    limits = Limits.DENO
    whole = ReadRange(b"a", b"b", limits.max_read_entries)
    assert not Gate.fits([whole], limits)
    assert not Gate.fits([point(b"a")] * (limits.max_ranges - 1), limits)
    assert not Gate.fits([ReadRange(b"a", b"b")], limits)
    assert Gate.fits([point(b"a")] * (limits.max_ranges - 2), limits)
    assert Gate.fits([whole._replace(limit=100)], limits)
