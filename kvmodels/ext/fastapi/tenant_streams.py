"""Changed records of a tenant for event streams, from one walk of the change log for all streams of an event loop.

Rules of this module: a stream reads with a watch of its own until it has reached the position of the shared walk. From
then on it gets the changes of its tenant after its own position, which it compares with the versionstamp of each
change: so nothing is lost or repeated where it joins. Records are made in the context of the stream's own tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from itertools import chain
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

from anyio import CapacityLimiter, to_thread

from kvmodels.api._async.history import AsyncRecordWatchIterator
from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._sync.history import RecordWatchIterator
from kvmodels.api._sync.repository import Repository
from kvmodels.api.core import ObservedModel
from kvmodels.api.opening import Opening
from kvmodels.core.operations import Change
from kvmodels.errors import ClosedError
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv.record_watch import (
    ChangedRecord,
    TenantChanges,
    TenantChangesWatch,
    after_position,
    changed_records,
)
from kvmodels.runtime import event_loop, sync
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")

AnyRepository: TypeAlias = "AsyncRepository[Any] | Repository[Any]"

MOST_WAITING: Final = 2_000
"""The number of changes that wait for a stream whose client reads slowly; with more, the stream reads them itself."""

_hubs: Final[dict[tuple[asyncio.AbstractEventLoop, Opening, str, bool], _Hub]] = {}
"""By event loop, store, collection, and whether the database is asynchronous."""


class _Batch(NamedTuple):
    """Changes of a tenant, and the position of the shared walk after them."""

    through: str
    changes: list[Change]
    of_catalogue: bool


class _Member:
    """One stream at a hub.

    Attributes:
        tenant: the name of its tenant.
        is_behind: whether changes were left out because too many were waiting.
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.is_behind = False
        self._waiting: deque[_Batch] = deque()
        self._size = 0
        self._end: Literal["ended", "failed"] | None = None
        self._arrived = asyncio.Event()

    def give(self, batch: _Batch) -> None:
        """Have a batch wait for the stream, unless it is behind."""
        if not self.is_behind:
            self._waiting.append(batch)
            self._size += len(batch.changes)
            if self._size > MOST_WAITING:
                self.forget()
                self.is_behind = True
        self._arrived.set()

    def forget(self) -> None:
        """Forget the changes that wait, and take further ones."""
        self._waiting.clear()
        self._size = 0
        self.is_behind = False

    def end(self, how: Literal["ended", "failed"]) -> None:
        """Have the stream end, or go back to a watch of its own, after the changes that wait."""
        self._end = self._end or how
        self._arrived.set()

    async def next(self) -> _Batch | Literal["ended", "failed", "behind"]:
        """Return the next changes, or why there are none."""
        while not self._waiting:
            if self.is_behind:
                return "behind"
            if self._end is not None:
                return self._end
            self._arrived.clear()
            await self._arrived.wait()
        batch = self._waiting.popleft()
        self._size -= len(batch.changes)
        return batch


class _Hub:
    """The shared walk of one collection, which ends with its last stream.

    Attributes:
        position: every change up to it was given to the streams.
    """

    def __init__(self, opening: Opening, schema: ModelSchema, since: str, *, in_threads: bool) -> None:
        self.position = since
        self._opening = opening
        self._watch = TenantChangesWatch(schema, time.monotonic, since)
        self._in_threads = in_threads
        self._members: dict[str, list[_Member]] = {}
        self._task: asyncio.Task[None] | None = None
        self._key = asyncio.get_running_loop(), opening, schema.collection, in_threads

    @classmethod
    def joined(
        cls, opening: Opening, schema: ModelSchema, since: str, tenant: str, *, in_threads: bool
    ) -> tuple[_Hub, _Member]:
        """Return the hub of a collection with a new stream; it begins at ``since`` if this is the first one."""
        hub = _hubs.get((asyncio.get_running_loop(), opening, schema.collection, in_threads))
        if hub is None:
            hub = cls(opening, schema, since, in_threads=in_threads)
            _hubs[hub._key] = hub
            hub._task = asyncio.get_running_loop().create_task(hub._run(), name="kvmodels event streams")
        member = _Member(tenant)
        hub._members.setdefault(tenant, []).append(member)
        return hub, member

    def leave(self, member: _Member) -> None:
        """Forget a stream, and end with the last one."""
        member.end("ended")
        of_tenant = self._members.get(member.tenant, [])
        if member in of_tenant:
            of_tenant.remove(member)
        if not of_tenant:
            self._members.pop(member.tenant, None)
        if not self._members and self._task is not None:
            self._forget()
            self._watch.end()
            self._task.cancel()

    def _forget(self) -> None:
        if _hubs.get(self._key) is self:
            del _hubs[self._key]

    async def _run(self) -> None:
        how: Literal["ended", "failed"] = "failed"
        try:
            while (found := await self._next()) is not None:
                self.position = self._watch.versionstamp
                for tenant, changes, of_catalogue in found:
                    for member in self._members.get(tenant, ()):
                        member.give(_Batch(self.position, changes, of_catalogue))
            how = "ended"
        except ClosedError:
            how = "ended"
        except Exception:  # noqa: BLE001 - each stream meets it again in its own watch, and tells its client
            how = "failed"
        finally:
            self._forget()
            for member in chain.from_iterable(self._members.values()):
                member.end(how)

    async def _next(self) -> list[TenantChanges] | None:
        engine = self._opening.open()  # it is open: a stream has read from it
        flow = self._watch.following(engine.limits, engine.capabilities.traits)
        if self._in_threads:
            return await in_stream_thread(sync.run, engine, flow)
        await asyncio.sleep(0)  # an engine in memory answers at once while changes come
        return await event_loop.arun(engine, flow)


class TenantStream:
    """The changed records of a tenant, with the methods of ``users.watch(since=...)``."""

    def __init__(self, repository: AnyRepository, runner: ObservedModel, part: tuple[Opening, str], since: str | None):
        self._repository = repository
        self._runner = runner
        self._store, self._tenant = part
        self._own: AsyncRecordWatchIterator[Any] | RecordWatchIterator[Any] | None
        self._own = repository.watch(since=since, timeout=0)
        self._reached = since
        self._joined: tuple[_Hub, _Member] | None = None
        self._must_reach = ""
        self._is_alone = False
        self._ended = False
        self._loop = asyncio.get_running_loop()

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; None while the present records are being delivered."""
        return self._reached if self._own is None else self._own.versionstamp

    def close(self) -> None:
        """End the iteration; from any thread and from a handler of signals."""
        self._ended = True
        if self._own is not None:
            self._own.close()
        if self._joined is not None:
            hub, member = self._joined
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(hub.leave, member)

    async def next(self) -> list[ChangedRecord[Any]] | None:
        """Return the next changes; None at the end."""
        while not self._ended:
            if self._own is not None:
                found = await next_of(self._own)
                if found is not None or self._is_alone:
                    return found
                if not self._join(self._own.versionstamp):
                    return None
            else:
                found = await self._shared()
                if found:
                    return found
        return None

    def _join(self, reached: str | None) -> bool:
        """Use the shared walk where the own watch has ended; False if that has seen the end of the store."""
        if reached is None:
            return False
        self._own, self._reached = None, reached
        if self._joined is None:
            in_threads = isinstance(self._repository, Repository)
            self._joined = _Hub.joined(self._store, self._runner.schema, reached, self._tenant, in_threads=in_threads)
            self._must_reach = self._joined[0].position
        if reached < self._must_reach:  # the shared walk gives later changes only
            self._catch_up()
        return True

    def _catch_up(self, timeout: float | None = 0) -> None:
        self._own = self._repository.watch(since=self._reached, timeout=timeout)

    async def _shared(self) -> list[ChangedRecord[Any]] | None:
        """Return changes of the shared walk; None if there were none, or the way to read them has changed."""
        assert self._joined is not None  # see ``_join``
        assert self._reached is not None
        hub, member = self._joined
        batch = await member.next()
        if batch == "ended":
            self._ended = True
        elif batch == "failed":
            self._reached = max(self._reached, hub.position)
            self._is_alone = True
            self._catch_up(None)
        elif batch == "behind":
            member.forget()
            self._must_reach = hub.position
            self._catch_up()
        else:
            return await self._changed(batch, self._reached)
        return None

    async def _changed(self, batch: _Batch, reached: str) -> list[ChangedRecord[Any]] | None:
        """Return the records of a batch that have changed after a position. Raises TenantRemovedError."""
        if batch.of_catalogue:
            await self._run(reload_header(self._context))  # raises after the end of the tenant
        rows = after_position(batch.changes, reached)
        found = await self._run(changed_records(self._context, self._runner.schema, rows)) if rows else None
        self._reached = max(reached, batch.through)
        return cast("list[ChangedRecord[Any]] | None", found)

    @property
    def _context(self) -> Context:
        context: Context = cast("Any", self._runner).context
        return context

    async def _run(self, flow: Flow[Any]) -> Any:
        runner = cast("Any", self._runner)
        if isinstance(self._repository, Repository):
            return await in_stream_thread(runner.run_part, flow, None)
        return await runner.run_part(flow, None)


def stream_of(
    repository: AnyRepository, since: str | None
) -> TenantStream | AsyncRecordWatchIterator[Any] | RecordWatchIterator[Any]:
    """Return the changed records of a repository; of a tenant, with the walk that its streams share."""
    runner: object = repository._runner  # pyright: ignore[reportPrivateUsage]
    part = runner.part_of if isinstance(runner, ObservedModel) else None
    own_watch = type(repository).watch not in (AsyncRepository[Any].watch, Repository[Any].watch)
    if part is None or own_watch or not isinstance(runner, ObservedModel):
        return repository.watch(since=since)
    return TenantStream(repository, runner, part, since)


async def next_of(
    watch: TenantStream | AsyncRecordWatchIterator[Any] | RecordWatchIterator[Any],
) -> list[ChangedRecord[Any]] | None:
    """Return the next changes of a stream; None at its end."""
    if isinstance(watch, TenantStream):
        return await watch.next()
    if isinstance(watch, AsyncRecordWatchIterator):
        return await anext(watch, None)
    return await in_stream_thread(next, watch, None)


async def in_stream_thread(function: Callable[..., T], *args: Any) -> T:
    """Return the result of a function that may wait for hours, from a thread.

    It is not one of the threads of endpoints. It leaves the thread when the watch is closed.
    """
    return await to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=CapacityLimiter(inf))
