"""The asynchronous form of the engine on etcd: cancellations, several event loops, many tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import AsyncDatabase, KvModel, PrimaryKey, Unique
from kvmodels.core.operations import AtomicWrite, Committed
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.etcd.protocol.exchange import TXN, EtcdCall
from kvmodels.engines.etcd.protocol.transport import EtcdLoopTransport
from kvmodels.errors import ClosedError
from tests.contract.shorthand import EVERYTHING, keys, put


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    email: Unique[str]


class HeldAnswers:
    """Holds back the answers of transactions in event loops until they are released.

    Attributes:
        carried_out: is set when the first one was carried out.
        released: lets the answers through.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.carried_out = asyncio.Event()
        self.released = asyncio.Event()
        answered = EtcdLoopTransport._answer

        async def answer(transport: EtcdLoopTransport, step: Any) -> Any:
            found = await answered(transport, step)
            if isinstance(step, EtcdCall) and step.method is TXN:
                self.carried_out.set()
                await self.released.wait()
            return found

        patch.setattr(EtcdLoopTransport, "_answer", answer)


@pytest.fixture
def engine(url_of: Callable[..., str]) -> Iterator[EtcdEngine]:
    opened = EtcdEngine(url_of("etcd"), allow_lossy_server=True)
    yield opened
    opened.close()


async def test_a_commit_that_is_cancelled_is_awaited_and_its_outcome_is_a_note(engine, monkeypatch):
    form = engine.native()
    held = HeldAnswers(monkeypatch)
    task = asyncio.create_task(form.commit(AtomicWrite((), (put(b"k"),))))
    await asyncio.wait_for(held.carried_out.wait(), 60)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    held.released.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__notes__ == ["the commit was applied"]
    assert keys(engine, EVERYTHING) == [b"k"]
    await form.aclose()


async def test_a_read_that_is_cancelled_is_abandoned_at_once(engine, monkeypatch):
    form = engine.native()
    held = HeldAnswers(monkeypatch)
    task = asyncio.create_task(form.read([EVERYTHING]))
    await asyncio.wait_for(held.carried_out.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.released.set()
    assert isinstance(await form.commit(AtomicWrite((), (put(b"k"),))), Committed)
    await form.aclose()


async def test_closing_waits_for_a_commit_that_was_sent(engine, monkeypatch):
    form = engine.native()
    held = HeldAnswers(monkeypatch)
    task = asyncio.create_task(form.commit(AtomicWrite((), (put(b"k"),))))
    await asyncio.wait_for(held.carried_out.wait(), 60)
    closing = asyncio.create_task(form.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    with pytest.raises(ClosedError):
        await form.read([EVERYTHING])
    held.released.set()
    await closing
    assert isinstance(await task, Committed)


def test_every_event_loop_has_its_own_form(engine):
    forms = []

    async def work(key: bytes) -> None:
        form = engine.native()
        assert form is engine.native()
        forms.append(form)
        await form.commit(AtomicWrite((), (put(key),)))
        await form.aclose()

    for key in (b"a", b"b"):
        asyncio.run(work(key))
    assert forms[0] is not forms[1]
    assert keys(engine, EVERYTHING) == [b"a", b"b"]


async def test_many_tasks_write_models_at_once(url_of):
    async with AsyncDatabase(url_of("etcd"), models=[Member], allow_lossy_server=True) as db:
        members = db[Member]
        await asyncio.gather(*(members.create(id=n, email=f"{n % 40}@example.org") for n in range(40)))
        again = await asyncio.gather(
            *(members.create(id=n, email=f"{n % 40}@example.org") for n in range(40, 80)),
            return_exceptions=True,
        )
        assert {type(one).__name__ for one in again} == {"UniqueViolationError"}
        found = await asyncio.gather(*(members.get(email=f"{n}@example.org") for n in range(40)))
        assert [one.id for one in found] == list(range(40))
        assert (await db.check()).ok
