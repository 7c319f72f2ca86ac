"""Reads of the coroutines of one event loop.

Rules of this module: a read that was lost with its connection is repeated once on a new one. Reads of single keys that
are asked for in the same turn of the loop, under the same guard, share a statement and so a snapshot; so do pages of
entries with their records, because half of what the server does for a page is the same for several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import psycopg

from kvmodels.core.operations import Guard, GuardFailed, ReadRange, ReadResult, SuffixFollow
from kvmodels.engines.contract import SMALL_READ
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import CallAnswer, another_error
from kvmodels.engines.postgres.connection import Call, Calls, last_answer
from kvmodels.engines.postgres.native.links import LARGE_READS, LoopLinks
from kvmodels.engines.postgres.reads import SharedAnswer, read_keys, read_pages
from kvmodels.engines.postgres.store import PostgresStore
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
        self._running = 0
        self._ended = asyncio.Event()
        self._batches: dict[_SharedOptions, _SharedReads] = {}
        self._repeated: set[asyncio.Task[None]] = set()

    async def run(self, make: Callable[[], Calls[ResultT]]) -> ResultT:
        """Carry out the calls of a read, and new ones once more if a connection was lost.

        Raises:
            EngineTimeoutError, DecodeError; and what the read raises.
        """
        self._running += 1
        try:
            return await self._run(make)
        finally:
            self._running -= 1
            self._ended.set()

    async def read_key(
        self, one: ReadRange, guard: Guard | None, *, hiding: bool, plain: bool
    ) -> ReadResult | GuardFailed:
        """Read one key, together with other reads of this turn of the loop. Raises as ``run``."""
        batch = self._joined(_SharedOptions(guard, hiding, plain=plain), 1)
        return await self._result(batch, one)

    async def read_page(
        self, one: ReadRange, follow: SuffixFollow, guard: Guard | None, *, hiding: bool
    ) -> ReadResult | GuardFailed:
        """Read the entries of a small range that has an end, and the rows behind them, with others of this turn.

        Raises as ``run``.
        """
        batch = self._joined(_SharedOptions(guard, hiding, prefix=follow.prefix), one.limit or 1)
        batch.follows.append(follow)
        return await self._result(batch, one)

    async def aclose(self) -> None:
        """Wait for the reads that are running."""
        while self._running:
            self._ended.clear()
            await self._ended.wait()

    # Reads that share a statement

    def _joined(self, options: _SharedOptions, rows: int) -> _SharedReads:
        """Return the batch for a read of so many rows, which is sent when the turn of the loop is over."""
        batch = self._batches.get(options)
        if batch is None or batch.rows + rows > SMALL_READ:
            batch = self._batches[options] = _SharedReads(options)
            self._loop.call_soon(self._send, batch)
        batch.rows += rows
        return batch

    async def _result(self, batch: _SharedReads, one: ReadRange) -> ReadResult | GuardFailed:
        found: asyncio.Future[ReadResult | GuardFailed] = self._loop.create_future()
        batch.ranges.append(one)
        batch.found.append(found)
        self._running += 1
        try:
            return await found
        finally:
            self._running -= 1
            self._ended.set()

    def _send(self, batch: _SharedReads) -> None:
        if self._batches.get(batch.options) is batch:
            del self._batches[batch.options]
        link = self._links.shared_now()
        if link is None:
            self._repeat(batch)
            return
        calls = batch.calls(self._store)
        answer: asyncio.Future[CallAnswer] = self._loop.create_future()

        def answered(_: object) -> None:
            failure = answer.exception()
            if failure is None:
                self._deliver(batch, last_answer(calls, answer.result().rows))
            elif isinstance(failure, psycopg.Error) and not errors.is_lost(failure):
                self._fail(batch, errors.translated(failure, self._store.url, self._store.schema))
            else:
                self._repeat(batch)

        answer.add_done_callback(answered)
        link.send((next(calls),), answer)

    def _repeat(self, batch: _SharedReads) -> None:
        """Carry a batch out in a task, which opens a connection."""
        task = self._loop.create_task(self._read_again(batch))
        self._repeated.add(task)
        task.add_done_callback(self._repeated.discard)

    async def _read_again(self, batch: _SharedReads) -> None:
        try:
            self._deliver(batch, await self._run(lambda: batch.calls(self._store)))
        except KvModelsError as error:
            self._fail(batch, error)
        finally:
            for found in batch.found:
                found.cancel()  # the loop is shut down; what was delivered stays

    def _deliver(self, batch: _SharedReads, answer: SharedAnswer) -> None:
        state, results = answer
        self._store.note(state)
        for at, found in enumerate(batch.found):
            if not found.done():
                found.set_result(results if isinstance(results, GuardFailed) else results[at])

    def _fail(self, batch: _SharedReads, error: KvModelsError) -> None:
        for found in batch.found:
            if not found.done():
                found.set_exception(another_error(error))

    # Calls

    async def _run(self, make: Callable[[], Calls[ResultT]]) -> ResultT:
        failure: KvModelsError | None = None
        for attempt in range(2):
            try:
                return await self._carry_out(make())
            except psycopg.Error as error:
                failure = errors.translated(error, self._store.url, self._store.schema)
                if not errors.is_lost(error) or attempt:
                    break
            self._links.drop()
        assert failure is not None
        raise failure

    async def _carry_out(self, calls: Calls[ResultT]) -> ResultT:
        try:
            call = next(calls)
            while True:
                call = calls.send(await self._rows_of(call))
        except StopIteration as done:
            result: ResultT = done.value
            return result

    async def _rows_of(self, call: Call) -> list[tuple[Any, ...]]:
        links = self._links
        if call.small:
            return (await (await links.shared()).call(call, shared=True)).rows
        link = await links.take(LARGE_READS)
        try:
            return (await link.call(call)).rows
        finally:
            links.give_back(LARGE_READS, link)
