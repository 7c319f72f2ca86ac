"""``db.check()`` compares the announcements of messages with the messages of all tenants, and mends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Limits
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import ANNOUNCED
from kvmodels.engines.memory.engine import MemoryEngine
from tests.passing_engine import PassingEngine
from tests.tenants.models import TENANT_MODELS
from tests.tenants.test_announcements import announced, opened, queued

MANY = 25
"""More than the messages of a tenant that are read at first."""


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls = {"memory": "memory://announced", "sqlite": f"{tmp_path}/a.db", "lmdb": f"lmdb:///{tmp_path}/a"}
    return urls[request.param]


def filled(db: Database) -> None:
    for name, number in (("acme", MANY), ("initech", 1)):
        db.create_tenant(name)
        for message in range(number):
            db.tenant(name).kv.enqueue(message, delay=600)
    db.create_tenant("empty")


def keys(db: Database, prefix: tuple[Any, ...]) -> list[Any]:
    return [entry.key for entry in db.kv.unsafe().list(prefix)]


def test_a_lost_announcement_and_one_without_a_message_are_found_and_mended(url: str):
    with Database(url, tenant_models=TENANT_MODELS) as db:
        filled(db)
        assert db.check().ok
        before = keys(db, ("__kvmodels__", "announced"))
        raw = db.kv.unsafe()
        acme, initech = keys(db, ("__kvmodels__", "tenant", "acme", "__kvmodels__", "queue"))[-1], before[-1]
        raw.delete(("__kvmodels__", "announced", *acme[-2:], "acme"))
        [message] = keys(db, ("__kvmodels__", "tenant", "initech", "__kvmodels__", "queue"))
        raw.delete(message)
        raw.set(("__kvmodels__", "announced", 7, "x", "gone"), True)
        raw.set(("__kvmodels__", "announced", "no announcement"), True)
        assert initech[-1] == "initech"
        found = db.check()
        assert [(one.kind, one.key[2:], one.repaired) for one in found.findings] == [
            ("dangling", ("no announcement",), False),
            ("dangling", (7, "x", "gone"), False),
            ("dangling", initech[2:], False),
            ("missing", (*acme[-2:], "acme"), False),
        ]
        assert "dangling __kvmodels__.announced" in str(found)
        assert [one.repaired for one in db.check(repair=True).findings] == [True] * 4
        assert db.check().findings == ()
        assert keys(db, ("__kvmodels__", "announced")) == before[:-1]
        db.remove_tenant("acme")
        assert keys(db, ("__kvmodels__", "announced")) == []


async def test_an_asynchronous_check_mends_them_too():
    async with AsyncDatabase("memory://", tenant_models=TENANT_MODELS, limits=Limits.DENO) as db:
        await db.create_tenant("acme")
        await db.tenant("acme").kv.enqueue("message")
        [entry] = [one async for one in db.kv.list(("__kvmodels__", "announced"))]
        await db.kv.unsafe().delete(entry.key)
        assert [one.kind for one in (await db.check(repair=True)).findings] == ["missing"]
        assert [one.key async for one in db.kv.list(("__kvmodels__", "announced"))] == [entry.key]


class MovesMessages(PassingEngine):
    """Removes the first message of the queue after each read of the announcements, or of messages."""

    moves = False

    def read(self, ranges: Any, *arguments: Any, **options: Any) -> Any:
        found: Any = self.inner.read(ranges, *arguments, **options)
        some = [row.key for rows in found.ranges for row in rows] if self.moves else []
        if some and (some[0].startswith(ANNOUNCED) or b"queue" in some[0]):
            self.moves = False
            name, ready_ms, message = announced(self.inner)[0]
            part = opened(self.inner).tenant(str(name)).kv.unsafe()
            part.delete(("__kvmodels__", "queue", ready_ms, message))
            part.set(("__kvmodels__", "queue", 9, message), "moved")
            self.moves = True
        return found


def test_messages_that_listeners_move_meanwhile_are_no_findings():
    engine = MovesMessages(MemoryEngine())
    db = Database.from_engine(engine, DatabaseCore([], tenant_models=TENANT_MODELS))
    filled(db)
    engine.moves = True
    report = db.check(repair=True)
    engine.moves = False
    assert report.findings == ()
    assert announced(engine.inner) == queued(engine.inner)
