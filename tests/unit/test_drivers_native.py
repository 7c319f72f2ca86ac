"""The asynchronous driver on an engine with an asynchronous form: no thread is used, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

from kvmodels import AsyncDatabase, KvModel, PrimaryKey, Unique, open_async_kv
from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, Guard, GuardFailed, Set, point
from kvmodels.engines import url as opening
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, InvalidValueError
from kvmodels.flows.effects import commit, count_rows, now, read, sleep, wait_for_commit
from kvmodels.runtime.event_loop import aclose, apin, arelease, arun
from tests.native_engine import NativeEngine, native


class Account(KvModel):
    number: Annotated[int, PrimaryKey()]
    email: Annotated[str, Unique()]


def put(key, value=b"v", *checks):
    return AtomicWrite(checks, (Set(key, value, 3),))


async def notes_of_cancelled(task):
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return getattr(caught.value, "__notes__", [])


@pytest.fixture
def engine():
    return NativeEngine(MemoryEngine())


async def test_every_request_of_a_flow_is_carried_out_by_the_asynchronous_form(engine):
    def everything():
        first: Any = yield from commit(put(b"k"))
        refused = yield from commit(put(b"k", b"w", Check(b"k", None)))
        found = yield from read([point(b"k")], Guard(b"k", first.versionstamp))
        absent = yield from read([point(b"k")], Guard(b"k", None))
        counted = yield from count_rows([point(b"k"), point(b"l")])
        yield from sleep(0)
        return first, refused, found, absent, counted, (yield from now()), (yield from wait_for_commit(b"", 0))

    before = threading.active_count()
    answers: Any = await arun(engine, everything())
    first, refused, found, absent, counted, moment, stamp = answers
    assert isinstance(first, Committed)
    assert refused == Conflict((0,))
    assert found.ranges[0][0].value == b"v"
    assert absent == GuardFailed(first.versionstamp)
    assert counted.numbers == [1, 0]
    assert (moment > 0, stamp) == (True, first.versionstamp)
    assert engine.calls == ["commit", "commit", "read", "read", "count", "wait_for_commit"]
    assert threading.active_count() == before


async def test_an_error_of_the_asynchronous_form_is_thrown_into_the_flow(engine):
    engine.inner.close()

    def handled():
        with pytest.raises(ClosedError):
            yield from commit(put(b"k"))
        return "handled"

    assert await arun(engine, handled()) == "handled"
    with pytest.raises(ClosedError):
        await arun(engine, read([point(b"k")]))


async def test_a_snapshot_of_the_asynchronous_form_is_read_and_closed(engine):
    await arun(engine, commit(put(b"k", b"old")))
    pinned = await apin(engine)
    await arun(engine, commit(put(b"k", b"new")))
    found = await arun(engine, read([point(b"k")]), snapshot=pinned)
    counted: Any = await arun(engine, count_rows([point(b"k")]), snapshot=pinned)
    await arelease(engine, pinned)
    assert (found.ranges[0][0].value, counted.numbers) == (b"old", [1])
    assert engine.calls[-3:] == ["snapshot.read", "snapshot.count", "snapshot.aclose"]


async def test_a_cancelled_commit_says_whether_it_was_applied(engine):
    early = asyncio.create_task(arun(engine, commit(put(b"early"))))
    await asyncio.sleep(0)
    early.cancel()
    assert await notes_of_cancelled(early) == ["the commit was not applied: it had not been started"]
    late = asyncio.create_task(arun(engine, commit(put(b"late"))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late.cancel()
    assert any("was applied" in note for note in await notes_of_cancelled(late))
    found = engine.inner.read([point(b"early"), point(b"late")]).ranges
    assert [len(rows) for rows in found] == [0, 1]


async def test_closing_ends_the_asynchronous_form_and_then_the_engine(engine):
    await arun(engine, commit(put(b"k")))
    await aclose(engine)
    await aclose(engine)
    assert engine.calls == ["commit", "aclose", "aclose"]
    with pytest.raises(ClosedError):
        engine.inner.read([point(b"k")])


async def test_models_transactions_snapshots_and_watches_use_the_asynchronous_form(monkeypatch):
    monkeypatch.setattr(opening, "memory", SimpleNamespace(MemoryEngine=native(MemoryEngine)))
    async with AsyncDatabase("memory://", models=[Account]) as db:
        accounts = db[Account]
        await accounts.create(number=1, email="a@example.org")
        assert await accounts.get(1) == await accounts.get(email="a@example.org")
        async with db.transaction() as tx:
            found = await tx[Account].get(1)
            found.email = "b@example.org"
            await tx[Account].save(found)
        await asyncio.gather(*(accounts.create(number=n, email=f"{n}@example.org") for n in range(2, 9)))
        assert await accounts.filter(number__gt=2).count() == 6
        assert (await db.check()).ok
        with pytest.raises(InvalidValueError):
            await db.kv.atomic().set(("n",), "text").sum(("n",), 1).commit()
    async with open_async_kv() as kv:
        await kv.set(("k",), 1)
        async with kv.snapshot() as state:
            await kv.set(("k",), 2)
            assert (await state.get(("k",))).value == 1
        async for entries in kv.watch([("k",)]):
            assert entries[0].value == 2
            break
