"""``each_tenant`` calls a function for every tenant; ``tx.kv.mutate`` keeps quotas, own writes included."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    InvalidValueError,
    KvU64,
    UnsupportedError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.limits import Traits
from tests.passing_engine import PassingEngine
from tests.tenants.models import TENANT_MODELS, User

NAMES = [f"t{number}" for number in range(6)]
QUOTA = ("quota", "users")


def filled() -> Database:
    db = Database("memory://", tenant_models=TENANT_MODELS)
    for number, name in enumerate(NAMES):
        db.create_tenant(name)
        tenant = db.tenant(name)
        tenant[User].bulk_create([User(id=one, email=str(one), color="red") for one in range(number)])
    return db


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_each_tenant_is_reported_once_in_the_order_of_the_names(concurrency):
    db = filled()
    found = db.each_tenant(lambda tenant: tenant[User].count(), concurrency=concurrency)
    assert list(found.items()) == [(name, number) for number, name in enumerate(NAMES)]
    assert list(db.each_tenant(lambda tenant: tenant.tenant_name, prefix="t3").values()) == ["t3"]


async def test_tasks_report_at_once_as_many_as_allowed():
    running, most = 0, 0

    async def report(tenant: AsyncDatabase) -> int:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        found = await tenant[User].count()
        running -= 1
        return found

    async with AsyncDatabase("memory://", tenant_models=TENANT_MODELS) as db:
        for name in NAMES:
            await db.create_tenant(name)
        assert await db.each_tenant(report, concurrency=3) == dict.fromkeys(NAMES, 0)
        assert most == 3


def test_a_tenant_that_is_removed_meanwhile_is_left_out_and_an_error_ends_the_report():
    db = filled()

    def remove_next(tenant: Database) -> int:
        if tenant.tenant_name == "t1":
            db.remove_tenant("t2")
        return tenant[User].count()

    assert db.each_tenant(remove_next) == {"t0": 0, "t1": 1, "t3": 3, "t4": 4, "t5": 5}
    asked: list[str | None] = []
    lock = threading.Lock()

    def fail(tenant: Database) -> None:
        with lock:
            asked.append(tenant.tenant_name)
        raise ValueError(tenant.tenant_name)

    with pytest.raises(ValueError, match="t0") as caught:
        db.each_tenant(fail)
    assert caught.value.__notes__ == ["kvmodels: in the tenant 't0'"]
    assert asked == ["t0"]


async def test_what_is_no_function_of_a_tenant_is_refused():
    async def coroutine(_: Any) -> None: ...

    with filled() as db:
        for function in (coroutine, None):
            with pytest.raises(InvalidArgumentError):
                db.each_tenant(function)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            db.each_tenant(lambda tenant: None, concurrency=0)
        with pytest.raises(UnsupportedError):
            db.tenant("t0").each_tenant(lambda tenant: None)
    async with AsyncDatabase("memory://", tenant_models=TENANT_MODELS) as db2:
        with pytest.raises(InvalidArgumentError):
            await db2.each_tenant(lambda tenant: None)  # type: ignore[arg-type, return-value]


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def acme(request, url_of):
    with Database(url_of(request.param, "quotas"), tenant_models=TENANT_MODELS) as db:
        db.create_tenant("acme")
        yield db.tenant("acme")


def add_user(db: Database, number: int, most: int) -> None:
    with db.transaction() as tx:
        tx[User].create(id=number, email=str(number), color="red")
        tx.kv.mutate("sum", QUOTA, 1, maximum=most)


def test_a_creation_above_the_quota_is_refused_whole(acme):
    for number in range(3):
        add_user(acme, number, 3)
    with pytest.raises(InvalidValueError, match="outside its range") as caught:
        add_user(acme, 9, 3)
    assert "acme" not in str(caught.value)
    assert caught.value.key == QUOTA
    assert "4 is above the maximum 3" in str(caught.value)
    assert (acme[User].count(), acme.kv.get(QUOTA).value) == (3, 3)
    with acme.transaction() as tx:
        tx[User].remove(0)
        tx.kv.mutate("sum", QUOTA, -1, minimum=0)
    add_user(acme, 9, 3)
    assert (acme[User].count(), acme.kv.get(QUOTA).value) == (3, 3)


def test_own_writes_count_and_transactions_that_add_do_not_conflict(acme):
    acme.kv.set(QUOTA, 1)
    with acme.transaction() as tx:
        tx.kv.mutate("sum", QUOTA, 1, maximum=3)
        assert tx.kv.get(QUOTA).value == 2
    with pytest.raises(InvalidValueError), acme.transaction() as tx:
        tx.kv.mutate("sum", QUOTA, 1, maximum=3)
        tx.kv.mutate("sum", QUOTA, 1, maximum=3)
    with pytest.raises(InvalidValueError), acme.transaction() as tx:
        tx.kv.set(QUOTA, 3)
        tx.kv.mutate("sum", QUOTA, 1, maximum=3)
    with acme.transaction() as tx:
        tx.kv.mutate("sum", QUOTA, 1, maximum=3)
        acme.kv.atomic().mutate("sum", QUOTA, -1, minimum=0).commit()
    assert acme.kv.get(QUOTA).value == 2
    with acme.transaction() as tx:
        tx.kv.mutate("sum", QUOTA, 9, maximum=5, clamp=True)
        tx.kv.mutate("set", ("name",), "acme")
        tx.kv.mutate("delete", ("other",))
        tx.kv.mutate("max", ("most",), KvU64(7))
    assert [acme.kv.get(key).value for key in (QUOTA, ("name",), ("most",))] == [5, "acme", KvU64(7)]


async def test_a_task_is_refused_above_the_quota_too():
    async with AsyncDatabase("memory://", tenant_models=TENANT_MODELS) as db:
        await db.create_tenant("acme")
        acme = db.tenant("acme")
        for number in range(2):
            async with acme.transaction() as tx:
                await tx[User].create(id=number, email=str(number), color="red")
                await tx.kv.mutate("sum", QUOTA, 1, maximum=2)
        with pytest.raises(InvalidValueError):
            async with acme.transaction() as tx:
                await tx[User].create(id=2, email="2", color="red")
                await tx.kv.mutate("sum", QUOTA, 1, maximum=2)
        assert await acme[User].count() == 2


class WithoutFunctions(PassingEngine):
    """An engine that computes no sums of int."""

    @property
    def traits(self) -> Traits:
        return replace(self.inner.capabilities.traits, functions=False)


def test_a_quota_is_refused_where_the_engine_computes_no_functions():
    db = Database.from_engine(WithoutFunctions(MemoryEngine()), DatabaseCore([], tenant_models=TENANT_MODELS))
    db.create_tenant("acme")
    acme = db.tenant("acme")
    with pytest.raises(UnsupportedError, match="KvU64 only"):
        add_user(acme, 1, 3)
    assert acme[User].count() == 0
