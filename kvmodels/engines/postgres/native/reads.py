"""Reads of the coroutines of one event loop.

Rules of this module: a read that was lost with its connection is repeated once on a new one. Reads of single keys that
are asked for in the same turn of the loop, under the same guard, share a statement and so a snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import psycopg

from kvmodels.core.operations import Guard, GuardFailed, NoFollow, ReadResult, point
from kvmodels.engines.contract import SMALL_READ
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import CallAnswer, another_error
from kvmodels.engines.postgres.connection import Call, Calls, last_answer
from kvmodels.engines.postgres.native.links import LARGE_READS, LoopLinks
from kvmodels.engines.postgres.reads import ReadAnswer, read_once
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.errors import KvModelsError

ResultT = TypeVar("ResultT")

_PLAIN: Final = NoFollow()


class _KeyOptions(NamedTuple):
    """The options that reads of single keys must share to be one statement."""

    guard: Guard | None
    hiding: bool
    plain: bool


_Batch = list[tuple[bytes, asyncio.Future[ReadResult | GuardFailed]]]


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
        self._batches: dict[_KeyOptions, _Batch] = {}
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

    async def read_key(self, key: bytes, guard: Guard | None, *, hiding: bool, plain: bool) -> ReadResult | GuardFailed:
        """Read one key, together with other reads of this turn of the loop. Raises as ``run``."""
        found: asyncio.Future[ReadResult | GuardFailed] = self._loop.create_future()
        options = _KeyOptions(guard, hiding, plain)
        batch = self._batches.get(options)
        if batch is None or len(batch) >= SMALL_READ:
            batch = self._batches[options] = []
            self._loop.call_soon(self._send, options, batch)
        batch.append((key, found))
        self._running += 1
        try:
            return await found
        finally:
            self._running -= 1
            self._ended.set()

    async def aclose(self) -> None:
        """Wait for the reads that are running."""
        while self._running:
            self._ended.clear()
            await self._ended.wait()

    # Single keys

    def _calls_of(self, options: _KeyOptions, batch: _Batch) -> Calls[ReadAnswer]:
        store, (guard, hiding, plain) = self._store, options
        follow = _PLAIN if plain else None
        ranges = [point(key) for key, _ in batch]
        return read_once(store.texts, ranges, store.times(), guard=guard, follow=follow, hiding=hiding)

    def _send(self, options: _KeyOptions, batch: _Batch) -> None:
        if self._batches.get(options) is batch:
            del self._batches[options]
        link = self._links.shared_now()
        if link is None:
            self._repeat(options, batch)
            return
        calls = self._calls_of(options, batch)
        answer: asyncio.Future[CallAnswer] = self._loop.create_future()

        def answered(_: object) -> None:
            failure = answer.exception()
            if failure is None:
                self._deliver(batch, last_answer(calls, answer.result().rows))
            elif isinstance(failure, psycopg.Error) and not errors.is_lost(failure):
                self._fail(batch, errors.translated(failure, self._store.url, self._store.schema))
            else:
                self._repeat(options, batch)

        answer.add_done_callback(answered)
        link.send((next(calls),), answer)

    def _repeat(self, options: _KeyOptions, batch: _Batch) -> None:
        """Read the keys of a batch in a task, which opens a connection."""
        task = self._loop.create_task(self._read_again(options, batch))
        self._repeated.add(task)
        task.add_done_callback(self._repeated.discard)

    async def _read_again(self, options: _KeyOptions, batch: _Batch) -> None:
        try:
            self._deliver(batch, await self._run(lambda: self._calls_of(options, batch)))
        except KvModelsError as error:
            self._fail(batch, error)
        finally:
            for _, found in batch:
                found.cancel()  # the loop is shut down; what was delivered stays

    def _deliver(self, batch: _Batch, answer: ReadAnswer) -> None:
        state, result, _ = answer
        self._store.note(state)
        for at, (_, found) in enumerate(batch):
            if found.done():
                continue
            if isinstance(result, GuardFailed):
                found.set_result(result)
            else:
                found.set_result(ReadResult([result.ranges[at]], [], result.versionstamp))

    def _fail(self, batch: _Batch, error: KvModelsError) -> None:
        for _, found in batch:
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
