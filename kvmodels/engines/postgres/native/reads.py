"""Reads of the coroutines of one event loop.

Rules of this module: a read that was lost with its connection is repeated once on a new one. Reads of single keys that
are asked for in the same turn of the loop, under the same guard, share a statement and so a snapshot; so do pages of
entries with their records, because half of what the server does for a page is the same for several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg

from kvmodels.core.operations import Follow, Guard, GuardFailed, ReadRange, ReadResult, SuffixFollow, as_plain_rows
from kvmodels.engines.contract import SMALL_READ, is_small
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import another_error
from kvmodels.engines.postgres.connection import Call, Calls
from kvmodels.engines.postgres.native.links import LARGE_READS, LoopLinks
from kvmodels.engines.postgres.reads import SharedAnswer, read_keys, read_pages
from kvmodels.engines.postgres.snapshot import UNTRANSLATED, is_one_key
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.steps import arun_steps
from kvmodels.errors import KvModelsError

ResultT = TypeVar("ResultT")


class _SharedOptions(NamedTuple):
    """The options that reads must have in common to share a statement.

    Attributes:
        guard: of all of them.
        hiding: whether expired rows are left out.
        plain: whether rows of keys may be plain tuples.
        prefix: of the keys of the rows behind entries; None for reads of keys.
    """

    guard: Guard | None
    hiding: bool
    plain: bool = False
    prefix: bytes | None = None


class _SharedReads:
    """Reads that share a statement: the range and the rest of the follow-up read of each, and who waits for it."""

    __slots__ = ("follows", "found", "options", "ranges", "rows")

    def __init__(self, options: _SharedOptions) -> None:
        self.options = options
        self.ranges: list[ReadRange] = []
        self.follows: list[SuffixFollow] = []
        self.found: list[asyncio.Future[ReadResult | GuardFailed]] = []
        self.rows = 0

    def calls(self, store: PostgresStore) -> Calls[SharedAnswer]:
        """Return the calls that carry the reads out."""
        guard, hiding, plain, prefix = self.options
        if prefix is None:
            return read_keys(store.texts, self.ranges, store.times(), guard=guard, hiding=hiding, plain=plain)
        return read_pages(store.texts, self.ranges, self.follows, store.times(), guard=guard, hiding=hiding)


class LoopReads:
    """The reads of one event loop.

    Args:
        store: is read.
        links: its connections.
    """

    def __init__(self, store: PostgresStore, links: LoopLinks) -> None:
        self._store = store
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._batches: dict[_SharedOptions, _SharedReads] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def joined(
        self, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None, *, hiding: bool
    ) -> asyncio.Future[ReadResult | GuardFailed] | None:
        """Read with others of this turn of the loop; None for a read that cannot share a statement.

        The result is that of ``Engine.read``, or EngineTimeoutError, DecodeError.
        """
        plain = follow is as_plain_rows
        if is_one_key(ranges, None if plain else follow):
            batch = self._batch(_SharedOptions(guard, hiding, plain=plain), 1)
        elif isinstance(follow, SuffixFollow) and len(ranges) == 1 and ranges[0].end is not None and is_small(ranges):
            batch = self._batch(_SharedOptions(guard, hiding, prefix=follow.prefix), ranges[0].limit or 1)
            batch.follows.append(follow)
        else:
            return None
        found: asyncio.Future[ReadResult | GuardFailed] = self._loop.create_future()
        batch.ranges.append(ranges[0])
        batch.found.append(found)
        return found

    async def aclose(self) -> None:
        """Wait for the reads that share a statement."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def run(self, make: Callable[[], Calls[ResultT]]) -> ResultT:
        """Carry out the calls of a read, and new ones once more if a connection was lost.

        Raises:
            EngineTimeoutError, DecodeError; and what the read raises.
        """
        failure: KvModelsError | None = None
        for attempt in range(2):
            try:
                return await arun_steps(make(), self._rows_of, UNTRANSLATED)
            except psycopg.Error as error:
                failure = errors.translated(error, self._store.url, self._store.schema)
                if not errors.is_lost(error) or attempt:
                    break
            self._links.drop()
        assert failure is not None
        raise failure

    async def _rows_of(self, call: Call) -> list[tuple[Any, ...]]:
        links = self._links
        if call.small:
            return (await (await links.shared()).call(call, shared=True)).rows
        link = await links.take(LARGE_READS)
        try:
            return (await link.call(call)).rows
        finally:
            links.give_back(LARGE_READS, link)

    # Reads that share a statement

    def _batch(self, options: _SharedOptions, rows: int) -> _SharedReads:
        """Return the batch for a read of so many rows, which is sent when the turn of the loop is over."""
        batch = self._batches.get(options)
        if batch is None or batch.rows + rows > SMALL_READ:
            batch = self._batches[options] = _SharedReads(options)
            task = self._loop.create_task(self._carry_out(batch))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, batch))
        batch.rows += rows
        return batch

    async def _carry_out(self, batch: _SharedReads) -> None:
        self._forget(batch)
        try:
            state, results = await self.run(lambda: batch.calls(self._store))
        except KvModelsError as error:
            for found in batch.found:
                if not found.done():
                    found.set_exception(another_error(error))
            return
        self._store.note(state)
        for at, found in enumerate(batch.found):
            if not found.done():
                found.set_result(results if isinstance(results, GuardFailed) else results[at])

    def _forget(self, batch: _SharedReads) -> None:
        if self._batches.get(batch.options) is batch:
            del self._batches[batch.options]

    def _ended(self, batch: _SharedReads, task: asyncio.Task[None]) -> None:
        """Cancel what a cancelled task has left, as in a loop that is shut down."""
        self._tasks.discard(task)
        self._forget(batch)
        for found in batch.found:
            found.cancel()
