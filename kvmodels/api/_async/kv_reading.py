"""The reads that a store and its snapshots share, such as ``get`` and ``list``, with the iterators that they return.

Rules of this module: a method runs one flow and decides nothing. An engine is opened, and a snapshot taken, where it is
first read, because both wait for a disk.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Literal, Self

from kvmodels.api._async._compat import Mutex, StoreSnapshot, engine_of, open_eagerly, pin, pinned, release, run
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_other_with
from kvmodels.core.keys import Key
from kvmodels.core.operations import Entry, format_versionstamp
from kvmodels.engines.contract import Engine
from kvmodels.errors import ClosedError
from kvmodels.flows.kv import operations as keyvalue
from kvmodels.flows.kv import operations as listings
from kvmodels.flows.kv import watch as watch_flows
from kvmodels.flows.kv.store_format import StoreFormat


class AsyncKvReading:
    """The reads of a store: each sees the state at its moment, or all of them that of a snapshot.

    Args:
        opening: the engine, open or to be opened.
        form: how keys and values are packed.
    """

    __slots__ = ("_form", "_opening")

    def __init__(self, opening: Opening, form: StoreFormat) -> None:
        self._opening = opening
        self._form = form

    async def get(self, key: Key) -> Entry:
        """Read one key: one read of one row.

        Args:
            key: the key; the empty key is always absent.

        Returns:
            The entry; its value and versionstamp are None when the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: not a key, or too long.
            DecodeError: what is stored cannot be read.

        Examples:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     await kv.get(("nobody",))
            Entry(key=('nobody',), value=None, versionstamp=None, expires_at=None)
        """
        engine, snapshot = await self._source()
        limits = self._form.limits_within(engine.limits)
        return await run(engine, keyvalue.get_entry(self._form, limits, key), snapshot=snapshot)

    async def get_many(self, keys: Iterable[Key]) -> builtins.list[Entry]:
        """Read several keys in one snapshot: one read of as many rows.

        Args:
            keys: the keys, in any order, with or without repetition.

        Returns:
            One entry for each key, in their order.

        Raises:
            InvalidKeyError, KeyTooLargeError: not a key, or too long.
            OperationTooLargeError: more keys than the engine reads at once.
            DecodeError: what is stored cannot be read.
        """
        engine, snapshot = await self._source()
        limits = self._form.limits_within(engine.limits)
        return await run(engine, keyvalue.get_entries(self._form, limits, keys), snapshot=snapshot)

    def list(
        self,
        prefix: Key | None = None,
        *,
        start: Key | None = None,
        end: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
        cursor: str | None = None,
        batch_size: int | None = None,
        consistency: Literal["strong", "eventual"] = "strong",
        keys_only: bool = False,
    ) -> AsyncKvListIterator:
        """Iterate over a range of keys in key order, in batches.

        On a store each batch is its own snapshot, and between batches nothing stays open; on a snapshot all of them
        see its state. Give ``prefix``, ``prefix`` with ``start`` or ``end``, or ``start`` and ``end``.

        Args:
            prefix: list keys that begin with these parts and have more; ``()`` lists everything.
            start: the first key, included; it need not exist.
            end: the key after the last, excluded; it need not exist.
            limit: the largest number of entries, 1 or more; None for all.
            reverse: the same keys in descending order.
            cursor: go on behind the entry where another listing of the same selector had this ``cursor``; it may go
                in the other direction. None or ``""``: from the beginning.
            batch_size: entries that are fetched at once, 1 or more; None for ``limit`` or 100, at most 500.
            consistency: ``"eventual"`` allows an answer from a replica that lags behind. An engine without replicas,
                as in memory and on SQLite, reads the last commit in either case.
            keys_only: leave the values where they are: entries have the value None, and nothing is decoded.

        Returns:
            An iterator of entries with a ``cursor``; nothing is read before its first item.

        Raises:
            InvalidArgumentError: a selector or option that makes no sense.
            InvalidCursorError: no cursor, or one that is outside the selector.
            InvalidKeyError: a selector that is not a key.
            OperationTooLargeError: at the first item: a ``batch_size`` above what the engine reads at once.

        Examples:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     for name in ("Ada", "Bob", "Cleo"):
            ...         _ = await kv.set(("users", name), len(name))
            ...     page = kv.list(("users",), reverse=True, limit=2)
            ...     [entry.key[-1] async for entry in page]
            ...     [entry.key[-1] async for entry in kv.list(("users",), reverse=True, cursor=page.cursor)]
            ['Cleo', 'Bob']
            ['Ada']
        """
        selection = listings.select(self._form, prefix=prefix, start=start, end=end)
        options = listings.ListOptions(limit, reverse, cursor, batch_size, consistency, keys_only)
        return AsyncKvListIterator(self._fetch, listings.Listing(self._form, selection, options))

    async def count(self, prefix: Key | None = None, *, start: Key | None = None, end: Key | None = None) -> int:
        """Count the keys of a range in one snapshot: one read of keys, without values, for each thousand.

        Args:
            prefix: count keys that begin with these parts and have more; ``()`` counts everything.
            start: the first key, included.
            end: the key after the last, excluded.

        Returns:
            The number of keys that ``list`` would return.

        Raises:
            InvalidArgumentError, InvalidKeyError: as for ``list``.
            SnapshotExpiredError: it took longer than the engine keeps a snapshot.

        Examples:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.atomic().set(("users", 1), "Ada").set(("users", 2), "Bob").commit()
            ...     await kv.count(("users",)), await kv.count(("users",), start=("users", 2))
            (2, 1)
        """
        selection = listings.select(self._form, prefix=prefix, start=start, end=end)
        engine, snapshot = await self._source()
        counting = listings.count_entries(selection, self._form.limits_within(engine.limits))
        if snapshot is not None:
            return await run(engine, counting, snapshot=snapshot)
        async with pinned(engine) as state:
            return await run(engine, counting, snapshot=state)

    async def _source(self) -> tuple[Engine, StoreSnapshot | None]:
        """The engine, and the snapshot that is read instead of its present state."""
        return await engine_of(self._opening), None

    async def _fetch(self, listing: listings.Listing) -> bool:
        # async only
        # An engine in memory waits for nothing: without this a long listing would keep other tasks from running.
        await asyncio.sleep(0)
        # end async only
        engine, snapshot = await self._source()
        return await run(engine, listing.fetch(self._form.limits_within(engine.limits)), snapshot=snapshot)


class AsyncKvSnapshot(AsyncKvReading):
    """A state of a store that stays as it is while others write; made by ``Kv.snapshot``.

    ``snapshot`` takes it; asynchronously ``async with``, ``open()`` or the first read does.
    Close it soon, or use it in a ``with`` statement: it holds a connection of SQLite and keeps its log from being
    shortened, and memory keeps every row that is replaced meanwhile. After the option ``snapshot_max_age`` (60
    seconds) its reads raise SnapshotExpiredError.

    Args:
        opening: the engine, open or to be opened.
        form: how keys and values are packed.
    """

    __slots__ = ("_closed", "_lock", "_state", "_versionstamp")

    def __init__(self, opening: Opening, form: StoreFormat) -> None:
        super().__init__(opening, form)
        self._lock = Mutex()
        self._state: StoreSnapshot | None = None
        self._versionstamp: str | None = None
        self._closed = False
        open_eagerly(self._source)

    @property
    def versionstamp(self) -> str:
        """The versionstamp of the last commit that the snapshot contains: 20 hexadecimal digits.

        Raises:
            ClosedError: only of an asynchronous snapshot: it was not taken yet.
        """
        if self._versionstamp is None:
            raise self._not_open("this snapshot is not open yet")
        return self._versionstamp

    # async only
    async def open(self) -> None:
        """Take the snapshot now; idempotent. Without it, ``async with`` or the first read takes it.

        Raises:
            ClosedError: the snapshot or its store is closed.
            EngineError: the engine cannot take it.
        """
        await self._source()

    # end async only
    async def close(self) -> None:
        """Let the engine forget the state; idempotent."""
        self._closed = True
        async with self._lock:
            state, self._state = self._state, None
        if state is not None:
            await release(await engine_of(self._opening), state)

    async def __aenter__(self) -> Self:
        # async only
        await self.open()
        # end async only
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        engine = self._opening.engine
        return f"<AsyncKvSnapshot of {'a store that is not open' if engine is None else engine.url}>"

    async def _source(self) -> tuple[Engine, StoreSnapshot | None]:
        engine = await engine_of(self._opening)
        async with self._lock:
            if self._closed:
                raise self._not_open("this snapshot is closed")
            if self._state is None:
                self._state = await pin(engine)
                self._versionstamp = format_versionstamp(self._state.versionstamp)
            return engine, self._state

    def _not_open(self, message: str) -> ClosedError:
        engine = self._opening.engine
        return ClosedError(
            message,
            url=None if engine is None else engine.url,
            hint="Read it inside of the block that it is made for: `async with kv.snapshot() as state:`.",
        )


class AsyncKvListIterator(AsyncIterator[Entry]):
    """The entries of ``list``, fetched in batches as they are asked for."""

    __slots__ = ("_fetch", "_listing")

    def __init__(self, fetch: Callable[[listings.Listing], Awaitable[bool]], listing: listings.Listing) -> None:
        self._fetch = fetch
        self._listing = listing

    @property
    def cursor(self) -> str:
        """Where another listing resumes: after the last entry, or ``""`` after the end.

        It holds the key parts that the selector leaves open, in base64url, exactly as Deno's. At the ``limit`` it is
        that of the last entry, even if nothing follows.

        Raises:
            InvalidArgumentError: before the first entry, unless the listing began with a cursor.
        """
        return self._listing.cursor

    async def __anext__(self) -> Entry:
        while (entry := self._listing.take()) is None:
            if not await self._fetch(self._listing):
                raise StopAsyncIteration
        return entry


class AsyncKvWatchIterator(AsyncIterator[list[Entry]]):
    """The entries of watched keys, each time they change; between two items nothing is open and nothing is queued."""

    __slots__ = ("_opening", "_watch")

    def __init__(self, opening: Opening, watch: watch_flows.Watch) -> None:
        self._opening = opening
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to resume a watch of a prefix.

        None before the first item, and of a prefix as long as the state of the beginning is being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another thread or task ends within a second."""
        self._watch.end()

    async def __anext__(self) -> list[Entry]:
        engine = await engine_of(self._opening)
        # async only
        # An engine in memory answers at once while changes come: without this, other tasks would not run.
        await asyncio.sleep(0)
        # end async only
        entries = await run(engine, self._watch.following(engine.limits, engine.capabilities.traits))
        if entries is None:
            raise StopAsyncIteration
        return entries


refuse_other_with(AsyncKvSnapshot)
