"""The transport of the flows of a PostgreSQL engine in one event loop.

Rules of this module: it chooses the connection of each request, and neither repeats nor translates anything.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

import psycopg

from kvmodels.core.operations import GuardFailed, point
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import Pause
from kvmodels.engines.postgres.connection import Call, last_answer
from kvmodels.engines.postgres.flows import AS_RAISED, Flow, Pinning, RangesRead
from kvmodels.engines.postgres.native.link import Link
from kvmodels.engines.postgres.native.queue import LoopQueue
from kvmodels.engines.postgres.native.reads import LoopReads
from kvmodels.engines.postgres.packing import PackedWrite
from kvmodels.engines.postgres.reads import Reading, read_once
from kvmodels.engines.postgres.snapshot import SNAPSHOTS, UNTRANSLATED, BegunSnapshot, FirstRow, lost_or_refused
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.steps import arun_steps
from kvmodels.errors import KvModelsError

T = TypeVar("T")

_BEGIN: Final = Call(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())


class PostgresLoopTransport:
    """The connections of one event loop, and the queue of its commits.

    Args:
        store: they belong to.

    Attributes:
        links: the connections.
        reads: those that share a statement need no flow.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.links = store.server.links()
        self._closed = False
        self._store = store
        self.reads = LoopReads(store, self.links)
        self._queue = LoopQueue(store, self.links)

    async def run(self, steps: Flow[T]) -> T:
        """Return the result of a flow. Raises what it raises."""
        return await arun_steps(steps, self._answered, AS_RAISED)

    async def aclose(self) -> None:
        """Carry out the commits that wait, then close the connections; idempotent."""
        await self.reads.aclose()
        await self._queue.aclose()
        if not self._closed:
            self._closed = True
            await self.links.aclose()

    def end_snapshot(self, link: Link) -> None:
        """Take the link of a snapshot back."""
        self.links.give_back(SNAPSHOTS, link, in_transaction=True)

    async def _answered(self, request: Any) -> Any:
        if isinstance(request, RangesRead):
            return await self.reads.run(request.calls)
        if isinstance(request, PackedWrite):
            return await self._queue.commit(request)
        if isinstance(request, Reading):
            return await (self._read_pinned(request) if request.pinned else self.reads.run(request.make))
        if isinstance(request, Pause):
            return await asyncio.sleep(request.seconds)
        assert isinstance(request, Pinning)
        return await self._begin_snapshot()

    async def _read_pinned(self, request: Reading) -> Any:
        """Carry out a read in a transaction of one state."""
        link: Link = (await self._begin_snapshot()).connection
        failure: KvModelsError
        try:

            async def rows_of(call: Call) -> list[tuple[Any, ...]]:
                return (await link.call(call)).rows

            return await arun_steps(request.make(), rows_of, UNTRANSLATED)
        except psycopg.Error as error:
            failure = lost_or_refused(error, self._store.url, self._store.schema)
        finally:
            self.end_snapshot(link)
        raise failure

    async def _begin_snapshot(self) -> BegunSnapshot:
        """Begin a transaction of one state, on another connection if the first was lost."""
        failure: KvModelsError | None = None
        for attempt in range(2):
            link = await self.links.take(SNAPSHOTS)
            begun: BegunSnapshot | None = None
            try:
                begun = await self._begun_on(link)
            except psycopg.Error as error:
                failure = errors.translated(error, self._store.url, self._store.schema)
                if not errors.is_lost(error) or attempt:
                    break
            finally:
                if begun is None:
                    self.end_snapshot(link)
            if begun is not None:
                return begun
            self.links.drop()
        assert failure is not None
        raise failure

    async def _begun_on(self, link: Link) -> BegunSnapshot:
        """Begin a transaction on a link, and read the key that the snapshot before has read first."""
        store, key = self._store, self._store.first_key
        ranges = [] if key is None else [point(key)]
        reading = read_once(store.texts, ranges, store.times(), guard=None, follow=None, hiding=False)
        answer = await link.call(_BEGIN, next(reading))
        state, found, _ = last_answer(reading, answer.rows)
        store.note(state)
        if key is None or isinstance(found, GuardFailed):
            return BegunSnapshot(link, state, None)
        rows = found.ranges[0]
        return BegunSnapshot(link, state, FirstRow(key, rows[0] if rows else None))
