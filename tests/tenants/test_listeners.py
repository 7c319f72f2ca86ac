"""One listener handles the messages of all tenants: at least once, in turns, and with no work while none is ready."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from queue import Queue
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    UnsupportedError,
)
from tests.tenants.models import TENANT_MODELS, User

PATIENCE_S = 60
NOT_BUSY: Counter[str] = Counter()


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request, url_of):
    """A store that is shared by every handle of this test."""
    return url_of(request.param, "tenants")


@pytest.fixture(autouse=True)
def silence(caplog):
    caplog.set_level(logging.CRITICAL, "kvmodels.queue")


def test_each_message_reaches_the_handler_with_the_database_of_its_tenant(url):
    handled: Queue[Any] = Queue()
    failed: list[str] = []

    def handle(tenant: Database, message: Any) -> None:
        if message == "twice" and message not in failed:
            failed.append(message)
            raise ValueError(message)
        if message == "never":
            raise ValueError(message)
        tenant[User].create(id=1 + tenant[User].count(), email=message, color="red")
        handled.put((tenant.tenant_name, message))

    with Database(url, tenant_models=TENANT_MODELS) as one, Database(url, tenant_models=TENANT_MODELS) as two:
        for name in ("acme", "initech"):
            one.create_tenant(name)
        acme = one.tenant("acme")
        acme.kv.enqueue("later", delay=0.01)
        acme.kv.enqueue("twice", backoff_schedule=[0.01])
        acme.kv.enqueue("never", backoff_schedule=[], keys_if_undelivered=[("dead",)])
        with acme.transaction() as tx:
            tx.kv.enqueue("in a transaction")
        with one.listen_tenants(handle):
            two.tenant("initech").kv.atomic().set(("n",), 1).enqueue("atomic").commit()
            two.create_tenant("new")
            two.tenant("new").kv.enqueue("created later")
            seen = {handled.get(timeout=PATIENCE_S) for _ in range(5)}
            assert any(entry.value == "never" for (entry,) in acme.kv.watch([("dead",)], timeout=PATIENCE_S))
        assert seen == {
            ("acme", "later"),
            ("acme", "twice"),
            ("acme", "in a transaction"),
            ("initech", "atomic"),
            ("new", "created later"),
        }
        assert [letter.keys for letter in acme.kv.dead_letters()] == [(("dead",),)]
        assert one.tenant("new")[User].count() == 1
        assert one.kv.count(("__kvmodels__", "announced")) == 0


async def test_tasks_handle_the_messages_of_all_tenants_too(url):
    handled: asyncio.Queue[Any] = asyncio.Queue()

    async def handle(tenant: AsyncDatabase, message: Any) -> None:
        await tenant[User].create(id=message, email=str(message), color="red")
        await handled.put((tenant.tenant_name, message))

    async with AsyncDatabase(url, tenant_models=TENANT_MODELS) as db:
        async with db.listen_tenants(handle, concurrency=3):
            for number in range(12):
                await db.tenant(f"t{number % 4}", create=True).kv.enqueue(number)
            seen = {await asyncio.wait_for(handled.get(), PATIENCE_S) for _ in range(12)}
        assert seen == {(f"t{number % 4}", number) for number in range(12)}
        assert await db.tenant("t1")[User].count() == 3
        assert await db.kv.count(("__kvmodels__", "announced")) == 0


def test_a_tenant_with_many_messages_delays_the_others_by_one_at_a_time(url):
    handled: Queue[Any] = Queue()
    with Database(url, tenant_models=TENANT_MODELS) as db:
        for name, messages in (("busy", 30), ("small", 3), ("single", 1)):
            db.create_tenant(name)
            operation = db.tenant(name).kv.atomic()
            for _ in range(messages):
                operation = operation.enqueue(name)
            operation.commit()
        with db.listen_tenants(lambda tenant, _: handled.put(tenant.tenant_name)):
            order = [handled.get(timeout=PATIENCE_S) for _ in range(34)]
    assert sorted(order[:3]) == ["busy", "single", "small"]
    assert sorted(order[3:7]) == ["busy", "busy", "small", "small"]


def test_a_damaged_queue_of_one_tenant_does_not_stop_the_others():
    handled: Queue[Any] = Queue()
    with Database("memory://", tenant_models=TENANT_MODELS) as db:
        bad, good = db.tenant("bad", create=True), db.tenant("good", create=True)
        bad.kv.unsafe().set(("__kvmodels__", "queue", 0, "id"), "no message")
        bad.kv.unsafe().set(("__kvmodels__", "queue", 0, b"no", "key"), "no message")
        good.kv.enqueue("hello")
        with db.listen_tenants(lambda tenant, message: handled.put((tenant.tenant_name, message))):
            assert handled.get(timeout=PATIENCE_S) == ("good", "hello")


def test_what_cannot_listen_to_tenants_is_refused():
    with Database("memory://", tenant_models=TENANT_MODELS) as db, Database("memory://") as without:
        with pytest.raises(UnsupportedError):
            db.tenant("acme", create=True).listen_tenants(print)
        with pytest.raises(InvalidArgumentError, match="opened without"):
            without.listen_tenants(print)
        with pytest.raises(InvalidArgumentError, match="concurrency"):
            db.listen_tenants(print, concurrency=0)

        async def handle(*_: Any) -> None: ...

        with pytest.raises(InvalidArgumentError, match="async"):
            db.listen_tenants(handle)
