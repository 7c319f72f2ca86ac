"""``Changes`` of tenants: the streams of a process share one walk of the log, and each gets its changes once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, DecodeError, ResumeExpiredError
from kvmodels.api import tenancy
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.ext.fastapi import Changes, tenant_streams
from tests.tenants.models import TENANT_MODELS, Account, User

NAMES = ("acme", "initech", "umbrella")


def user(number: int, color: str = "red") -> User:
    return User(id=number, email=str(number), color=color)


class Client:
    """Reads a stream in a task, and keeps what it has got: event, key and version, and the last position."""

    def __init__(self, repository: Any, since: str | None = None) -> None:
        self.got: list[tuple[str, Any, str | None]] = []
        self.position = since
        self._arrived, self.reads = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self._events = Changes(since, None).of(repository)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        sent: Any
        async for sent in self._events:
            if sent.raw_data is not None:
                event = json.loads(sent.raw_data)
                self.got.append((event["event"], event["key"], event["version"]))
            self.position = sent.id or self.position
            self._arrived.set()
            await self.reads.wait()

    @property
    def keys(self) -> list[tuple[str, Any]]:
        return [(event, key) for event, key, _ in self.got]

    async def until(self, *events: tuple[str, Any]) -> None:
        """Wait until these events have arrived."""
        async with asyncio.timeout(60):
            while not {*events} <= {*self.keys}:
                self._arrived.clear()
                await self._arrived.wait()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def members() -> list[Any]:
    """Return the streams that share the one walk of the test."""
    return [one for hub in tenant_streams._hubs.values() for some in hub._members.values() for one in some]


async def joined(streams: int) -> None:
    """Wait until so many streams share a walk."""
    await until(lambda: len(members()) == streams)
    assert len(tenant_streams._hubs) == 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
async def db() -> AsyncIterator[AsyncDatabase]:
    async with AsyncDatabase("memory://", models=[Account], tenant_models=TENANT_MODELS, change_log=3600) as db:
        for name in NAMES:
            await db.create_tenant(name)
        yield db
    assert tenant_streams._hubs == {}


async def position_of(db: AsyncDatabase) -> str:
    """Return a position after everything that was written."""
    await db[Account].filter(id=0).delete()
    stamp = (await db[Account].create(id=0, email="x")).versionstamp
    assert stamp is not None
    return stamp


async def test_streams_of_several_tenants_share_one_walk_of_the_log(db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch):
    walks: list[bytes] = []
    changes = MemoryEngine.changes

    def counted(self: MemoryEngine, one: Any, after: bytes) -> Any:
        walks.append(after)
        return changes(self, one, after)

    clients = [Client(db.tenant(name)[User]) for name in NAMES for _ in range(4)]
    await joined(12)
    monkeypatch.setattr(MemoryEngine, "changes", counted)
    for number in range(10):
        for name in NAMES:
            await db.tenant(name)[User].insert(user(number))
        for client in clients:
            await client.until(("changed", number))
    assert len(walks) < 30 * 4, "12 watches would have read the log 360 times"
    for client in clients:
        assert client.keys == [("reset", None), *(("changed", number) for number in range(10))]
        await client.close()
    await until(lambda: not tenant_streams._hubs)


@pytest.mark.parametrize(
    ("engine", "world"),
    [
        ("memory", "async"),
        ("memory", "sync"),
        ("sqlite", "async"),
        ("lmdb", "sync"),
        *[pytest.param("postgres", world, marks=pytest.mark.servers) for world in ("async", "sync")],
        pytest.param("etcd34", "async", marks=pytest.mark.servers),
    ],
)
async def test_each_client_gets_each_change_of_its_tenant_once_whenever_it_joins(
    url_of: Callable[[str], str], engine: str, world: str
):
    url = url_of(engine)
    log: dict[str, Any] = {} if engine == "etcd34" else {"change_log": 3600}
    kind: Any = AsyncDatabase if world == "async" else Database
    drawn = random.Random(7)
    async with AsyncDatabase(url, models=[Account], tenant_models=TENANT_MODELS, **log) as db:
        used = kind(url, tenant_models=TENANT_MODELS, **log)
        if world == "async":
            await used.open()
        for name in NAMES:
            await db.create_tenant(name)
        since = await position_of(db)
        clients: list[tuple[str, Client]] = []
        for number in range(60):
            for name in NAMES[:2]:
                users = db.tenant(name)[User]
                await users.insert(user(number))
                if number % 3 == 2:
                    await users.remove(number - 2)
                    await users.patch(number - 1, color="blue")
                if number % 5 == 0:
                    clients.append((name, Client(used.tenant(name)[User], since)))
                if drawn.random() < 0.5:
                    await asyncio.sleep(drawn.random() / 1_000)
        for name in NAMES:
            await db.tenant(name)[User].insert(user(1_000))
        for name, client in clients:
            await client.until(("changed", 1_000))
            assert len(set(client.got)) == len(client.got), "no change comes twice"
            removed = [key for event, key in client.keys if event == "removed"]
            assert removed == list(range(0, 60, 3))
            present = {(one.id, one.versionstamp) async for one in db.tenant(name)[User].allow_scan()}
            last = {key: version for event, key, version in client.got if event == "changed" and key not in removed}
            assert set(last.items()) == present
            await client.close()
        await until(lambda: not tenant_streams._hubs)
        closed = used.close()
        if world == "async":
            await closed


class Gate:
    """Holds the shared walk back before each of its reads, and streams before they join it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.walk, self.joins = asyncio.Event(), asyncio.Event()
        self.waiting = 0
        read, look = tenant_streams._Hub._next, tenant_streams.next_of

        async def gated(hub: Any) -> Any:
            self.waiting += 1
            await self.walk.wait()
            self.waiting -= 1
            return await read(hub)

        async def joining(watch: Any) -> Any:
            found = await look(watch)
            if found is None:
                self.waiting += 1
                await self.joins.wait()
                self.waiting -= 1
            return found

        monkeypatch.setattr(tenant_streams._Hub, "_next", gated)
        monkeypatch.setattr(tenant_streams, "next_of", joining)


async def test_a_stream_that_is_ahead_of_the_shared_walk_gets_nothing_again(
    db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
):
    users, since = db.tenant("acme")[User], await position_of(db)
    await users.insert(user(1))
    gate = Gate(monkeypatch)
    gate.joins.set()
    first = Client(users, since)
    await until(lambda: gate.waiting == 1)
    await users.insert(user(2))
    await users.remove(1)
    second = Client(users, since)
    await second.until(("removed", 1))
    await joined(2)
    await users.insert(user(3))
    await users.remove(2)
    gate.walk.set()
    for client in (first, second):
        await client.until(("removed", 2))
    assert first.keys == [("changed", 1), ("removed", 1), ("changed", 3), ("removed", 2)]
    assert second.keys == [("changed", 2), ("removed", 1), ("changed", 3), ("removed", 2)]
    for client in (first, second):
        await client.close()
    await until(lambda: not tenant_streams._hubs)


async def test_a_stream_that_the_shared_walk_has_passed_misses_nothing(
    db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
):
    users, since = db.tenant("acme")[User], await position_of(db)
    gate = Gate(monkeypatch)
    gate.joins.set()
    gate.walk.set()
    first = Client(users, since)
    await joined(1)
    gate.joins.clear()
    second = Client(users, since)
    await until(lambda: gate.waiting == 1)
    await users.insert(user(1))
    await first.until(("changed", 1))
    gate.joins.set()
    await users.insert(user(2))
    for client in (first, second):
        await client.until(("changed", 2))
        assert client.keys == [("changed", 1), ("changed", 2)]
        await client.close()
    await until(lambda: not tenant_streams._hubs)


@pytest.mark.parametrize("error", [DecodeError("damaged"), ResumeExpiredError("expired")])
async def test_a_walk_that_fails_sends_each_stream_back_to_a_watch_of_its_own(
    db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    since = await position_of(db)
    clients = [Client(db.tenant(name)[User], since) for name in NAMES[:2]]
    await joined(2)
    for name in NAMES[:2]:
        await db.tenant(name)[User].insert(user(1))
    for client in clients:
        await client.until(("changed", 1))

    async def failing(_: object) -> None:
        raise error

    monkeypatch.setattr(tenant_streams._Hub, "_next", failing)
    for name in NAMES[:2]:
        await db.tenant(name)[User].insert(user(2))
        await db.tenant(name)[User].insert(user(3))
    for client in clients:
        await client.until(("changed", 3))
        assert client.keys == [("changed", 1), ("changed", 2), ("changed", 3)]
    assert tenant_streams._hubs == {}
    for client in clients:
        await client.close()


async def test_changes_that_wait_for_a_slow_client_are_bounded(db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tenant_streams, "MOST_WAITING", 2)
    users, since = db.tenant("acme")[User], await position_of(db)
    slow, fast = Client(users, since), Client(users, since)
    await joined(2)
    slow.reads.clear()
    for number in range(7):
        await users.insert(user(number))
        await fast.until(("changed", number))
    assert sorted(one.is_behind for one in members()) == [False, True]
    slow.reads.set()
    await slow.until(("changed", 6))
    await until(lambda: not any(one.is_behind for one in members()))
    await users.insert(user(7))
    for client in (slow, fast):
        await client.until(("changed", 7))
        assert client.keys == [("changed", number) for number in range(8)]
        await client.close()
    await until(lambda: not tenant_streams._hubs)


@pytest.mark.parametrize("knows", [True, False])
async def test_the_streams_of_a_removed_tenant_end_and_never_show_a_later_life(
    db: AsyncDatabase, monkeypatch: pytest.MonkeyPatch, knows: bool
):
    if not knows:  # as if another process removed it
        monkeypatch.setattr(tenancy, "end_lives", lambda *_: None)
    users = db.tenant("acme")[User]
    await users.insert(user(1))
    first, other = Client(users), Client(db.tenant("initech")[User])
    await joined(2)
    gate = Gate(monkeypatch)
    gate.joins.set()
    await users.patch(1, color="blue")
    await first.until(("changed", 1))
    await db.remove_tenant("acme")
    await db.create_tenant("acme")
    await db.tenant("acme")[User].insert(user(2))
    await db.tenant("initech")[User].insert(user(3))
    gate.walk.set()
    await other.until(("changed", 3))
    async with asyncio.timeout(60):
        await first.task
    assert ("changed", 2) not in first.keys
    assert first.task.exception() is None
    again = Client(db.tenant("acme")[User])
    await again.until(("changed", 2))
    for client in (other, again):
        await client.close()
    await until(lambda: not tenant_streams._hubs)


async def test_streams_end_with_the_database():
    db = await AsyncDatabase("memory://", tenant_models=TENANT_MODELS, change_log=60).open()
    await db.create_tenant("acme")
    clients = [Client(db.tenant("acme")[User]) for _ in range(2)]
    await joined(2)
    await db.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*(client.task for client in clients))
    assert tenant_streams._hubs == {}
