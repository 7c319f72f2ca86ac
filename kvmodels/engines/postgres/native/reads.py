"""Reads of the coroutines of one event loop.

Rules of this module: a read that was lost with its connection is repeated once on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.connection import Call, Calls
from kvmodels.engines.postgres.native.links import LARGE_READS, LoopLinks
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.errors import KvModelsError

ResultT = TypeVar("ResultT")


class LoopReads:
    """The reads of one event loop.

    Args:
        store: is read.
        links: its connections.
    """

    def __init__(self, store: PostgresStore, links: LoopLinks) -> None:
        self._store = store
        self._links = links
        self._running = 0
        self._ended = asyncio.Event()

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

    async def aclose(self) -> None:
        """Wait for the reads that are running."""
        while self._running:
            self._ended.clear()
            await self._ended.wait()

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
            return (await (await links.shared()).call(call)).rows
        link = await links.take(LARGE_READS)
        try:
            return (await link.call(call)).rows
        finally:
            links.give_back(LARGE_READS, link)
