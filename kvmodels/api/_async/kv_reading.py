"""The reads that a store and its snapshots share, such as ``get`` and ``list``, and their iterators.

Rules of this module: a method runs one flow and contains no decisions. An engine is opened, and a snapshot taken, at
the first read, because both wait for a disk.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Literal, Self, TypeVar

from kvmodels.api._async._compat import (
    Mutex,
    StoreSnapshot,
    engine_of,
    first_entries,
    open_eagerly,
    perform,
    pin,
    pinned,
    release,
)
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_copies, refuse_other_with
from kvmodels.core.keys import Key
from kvmodels.core.operations import Entry, format_versionstamp
from kvmodels.engines.contract import Engine
from kvmodels.errors import ClosedError
from kvmodels.flows.describe import kv_views as notebooks
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import operations as keyvalue
from kvmodels.flows.kv import watch as watch_flows
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits

T = TypeVar("T")


class AsyncKvReading:
    """The read methods of a store and of a snapshot: each call reads the present state, or the state of the snapshot.

    Args:
        opening: the engine, open or to be opened.
        form: the encoding of keys and values.
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
            The entry; its value and versionstamp are None if the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: the key is invalid or too long.
            DecodeError: the stored value cannot be read.

        Examples:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     await kv.get(("nobody",))
            Entry(key=('nobody',), value=None, versionstamp=None, expires_at=None)
        """
        engine, snapshot = await self._source()
        getting = keyvalue.get_entry(self._form, self._form.limits_within(engine.limits), key)
        return await perform(engine, getting, self._opening.observation("get"), snapshot=snapshot)

    async def get_many(self, keys: Iterable[Key]) -> builtins.list[Entry]:
        """Read several keys in one snapshot: one read of as many rows.

        Args:
            keys: the keys, in any order; repetitions are allowed.

        Returns:
            One entry for each key, in their order.

        Raises:
            InvalidKeyError, KeyTooLargeError: a key is invalid or too long.
            OperationTooLargeError: more keys than the engine reads at once.
            DecodeError: a stored value cannot be read.
        """
        return await self._run("get_many", lambda limits: keyvalue.get_entries(self._form, limits, keys))

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

        On a store, each batch is its own snapshot, and nothing stays open between batches; on a snapshot, all batches
        see its state. Pass ``prefix``, ``prefix`` with ``start`` or ``end``, or ``start`` and ``end``.

        Args:
            prefix: list keys that begin with these parts and have more; ``()`` lists everything.
            start: the first key, included; it does not have to exist.
            end: the end of the range, excluded; it does not have to exist.
            limit: the maximum number of entries, 1 or more; None for all.
            reverse: the same keys in descending order.
            cursor: resume after the entry at which another listing of the same selector had this ``cursor``; the
                direction may differ. None or ``""`` starts at the beginning.
            batch_size: entries per request, 1 or more; None for ``limit`` or 100, at most 500.
            consistency: ``"eventual"`` allows an answer from a replica that lags behind. An engine without replicas,
                such as memory and SQLite, reads the last commit in either case.
            keys_only: do not read values: entries have the value None, and nothing is decoded.

        Returns:
            An iterator of entries with a ``cursor``; nothing is read before its first item.

        Raises:
            InvalidArgumentError: a selector or option is invalid.
            InvalidCursorError: the cursor is invalid or outside the selector.
            InvalidKeyError: a part of the selector is not a key.
            OperationTooLargeError: at the first item: ``batch_size`` is above the engine's limit.

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
        selection = keyvalue.select(self._form, prefix=prefix, start=start, end=end)
        options = keyvalue.ListOptions(limit, reverse, cursor, batch_size, consistency, keys_only)
        return AsyncKvListIterator(self._fetch, keyvalue.Listing(self._form, selection, options))

    async def count(self, prefix: Key | None = None, *, start: Key | None = None, end: Key | None = None) -> int:
        """Count the keys of a range in one snapshot: one read of keys without values per thousand.

        Args:
            prefix: count keys that begin with these parts and have more; ``()`` counts everything.
            start: the first key, included.
            end: the end of the range, excluded.

        Returns:
            The number of keys that ``list`` would return.

        Raises:
            InvalidArgumentError, InvalidKeyError: as for ``list``.
            SnapshotExpiredError: the snapshot in which it counts has ended.

        Examples:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.atomic().set(("users", 1), "Ada").set(("users", 2), "Bob").commit()
            ...     await kv.count(("users",)), await kv.count(("users",), start=("users", 2))
            (2, 1)
        """
        selection = keyvalue.select(self._form, prefix=prefix, start=start, end=end)
        engine, snapshot = await self._source()
        counting = keyvalue.count_entries(selection, self._form.limits_within(engine.limits))
        if snapshot is not None:
            return await perform(engine, counting, self._opening.observation("count"), snapshot=snapshot)
        async with pinned(engine) as state:
            return await perform(engine, counting, self._opening.observation("count"), snapshot=state)

    async def _run(self, verb: str, flow: Callable[[Limits], Flow[T]]) -> T:
        """Run the flow of a method to its end, and return its result; ``flow`` gets the limits of the store."""
        engine, snapshot = await self._source()
        limits = self._form.limits_within(engine.limits)
        return await perform(engine, flow(limits), self._opening.observation(verb), snapshot=snapshot)

    async def _source(self) -> tuple[Engine, StoreSnapshot | None]:
        """Return the engine, and the snapshot to read instead of its present state, if any."""
        return await engine_of(self._opening), None

    async def _fetch(self, listing: keyvalue.Listing) -> bool:
        # async only
        # An engine in memory waits for nothing: without this a long listing would keep other tasks from running.
        await asyncio.sleep(0)
        # end async only
        return await self._run("list", listing.fetch)


class AsyncKvSnapshot(AsyncKvReading):
    """A snapshot of a store, which does not change while others write; created by ``Kv.snapshot``.

    ``snapshot`` takes it at once; an asynchronous snapshot is taken by ``async with``, ``open()`` or the first read.
    Close it soon, or use it in a ``with`` statement: on SQLite it holds a connection and prevents the write-ahead log
    from being truncated, and the memory engine keeps every row that is replaced meanwhile. After the time of the option
    ``snapshot_max_age`` (60 seconds), its reads raise SnapshotExpiredError.

    Args:
        opening: the engine, open or to be opened.
        form: the encoding of keys and values.
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
        """The versionstamp of the last commit in the snapshot: 20 hexadecimal digits.

        Raises:
            ClosedError: an asynchronous snapshot was not taken yet.
        """
        if self._versionstamp is None:
            raise self._not_open("this snapshot is not open yet")
        return self._versionstamp

    # async only
    async def open(self) -> None:
        """Take the snapshot now; idempotent. Without it, ``async with`` or the first read takes it.

        Raises:
            ClosedError: the snapshot or its store is closed.
            EngineError: the engine cannot take a snapshot.
        """
        await self._source()

    # end async only
    async def close(self) -> None:
        """Release the snapshot; idempotent."""
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncKvSnapshot of {self._opening.url or 'a store that is not open'}>"

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
        return ClosedError(
            message,
            url=self._opening.url,
            hint="Read it inside of the block that it is made for: `async with kv.snapshot() as state:`.",
        )


class AsyncKvListIterator(AsyncIterator[Entry]):
    """The entries of ``list``, fetched in batches during the iteration."""

    __slots__ = ("_fetch", "_in_transaction", "_listing")

    def __init__(
        self,
        fetch: Callable[[keyvalue.Listing], Awaitable[bool]],
        listing: keyvalue.Listing,
        *,
        in_transaction: bool = False,
    ) -> None:
        self._fetch = fetch
        self._listing = listing
        self._in_transaction = in_transaction

    def _repr_html_(self) -> str:
        if self._in_transaction:
            entries, note = None, notebooks.NOT_IN_TRANSACTION
        else:
            entries, note = first_entries(self._fetch, self._listing)
        return notebooks.listing_view(type(self).__name__, self._listing, entries, note)

    @property
    def cursor(self) -> str:
        """The position where another listing resumes: after the last entry, or ``""`` after the end.

        It encodes the key parts that the selector leaves open in base64url, exactly like Deno's. At the ``limit`` it is
        the position of the last entry, even if no entry follows.

        Raises:
            InvalidArgumentError: called before the first entry, and the listing did not begin with a cursor.
        """
        return self._listing.cursor

    async def __anext__(self) -> Entry:
        while (entry := self._listing.take()) is None:
            if not await self._fetch(self._listing):
                raise StopAsyncIteration
        return entry


class AsyncKvWatchIterator(AsyncIterator[list[Entry]]):
    """The entries of watched keys at each change; between two items nothing is open and nothing is queued."""

    __slots__ = ("_opening", "_watch")

    def __init__(self, opening: Opening, watch: watch_flows.Watch[Entry]) -> None:
        self._opening = opening
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to resume a watch of a prefix.

        None before the first item; for a prefix, also while the initial state is being delivered.
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
        able = engine.capabilities
        following = self._watch.following(
            engine.limits, able.traits, reports_keys=able.server.wait_for_keys is not None
        )
        entries = await perform(engine, following, self._opening.observation("watch"))
        if entries is None:
            raise StopAsyncIteration
        return entries


refuse_copies(AsyncKvReading, AsyncKvListIterator, AsyncKvWatchIterator)
refuse_other_with(AsyncKvSnapshot)
