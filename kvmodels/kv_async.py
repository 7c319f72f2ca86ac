"""The key-value API, asynchronous: ``open_async_kv`` and ``AsyncKv``.

Rules of this module: a method runs one flow of ``kvmodels.flows.keyvalue`` and decides nothing. Names, signatures
and behaviour are those of ``kvmodels.kv``, which a test compares; only the store is opened later, at the first
``await``, because opening waits for a disk.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from kvmodels.drivers import aclose, arun
from kvmodels.engines.base import Engine
from kvmodels.flows.keyvalue import Listing, StoreFormat, commit_operation, get_entries, get_entry, listing
from kvmodels.flows.requests import Flow
from kvmodels.keys import Key
from kvmodels.kv_atomic import AtomicBuilder
from kvmodels.kv_opening import Durability, Opening, store_format
from kvmodels.limits import Limits
from kvmodels.operations import CommitResult, Entry

__all__ = ["AsyncAtomicOperation", "AsyncKv", "AsyncKvListIterator", "open_async_kv"]

T = TypeVar("T")


def open_async_kv(
    url: str | os.PathLike[str] = "memory://",
    *,
    codec: str = "msgpack",
    limits: Limits | None = None,
    durability: Durability = "commit",
    clock: Callable[[], int] | None = None,
    readonly: bool = False,
    **engine_options: Any,
) -> AsyncKv:
    """Describe an ordered key-value store; it is opened by ``async with``, ``open()`` or the first call.

    Args:
        url: ``memory://`` (a new store), ``memory://name`` (shared in the process), a path, ``sqlite:///relative``,
            ``sqlite:////absolute`` or ``sqlite://:memory:``.
        codec: how values are packed: ``"msgpack"``, or ``"v8"`` as Deno does; see ``docs/concepts/deno-values.md``.
        limits: sizes that are refused; the smaller of these and the engine's hold.
        durability: ``"commit"``: what was committed survives power loss; ``"relaxed"``: it survives a killed process,
            and after power loss the file is intact and holds the earlier part of it.
        clock: returns milliseconds since the epoch; decides on expiry. None for the system's.
        readonly: every write raises ReadOnlyError.
        engine_options: what the engine takes besides, such as ``busy_timeout`` (seconds) of SQLite.

    Returns:
        The store; close it, or use it in an ``async with`` statement.

    Raises:
        InvalidArgumentError: an unknown codec; an unknown scheme or option when it is opened.
        EngineError: when it is opened: the file cannot be used, such as ForeignFileError.

    Examples:
        >>> import asyncio
        >>> async def main():
        ...     async with open_async_kv() as kv:
        ...         done = await kv.set(("users", 1), {"name": "Ada"})
        ...         entry = await kv.get(("users", 1))
        ...     return entry.value, entry.versionstamp == done.versionstamp
        >>> asyncio.run(main())
        ({'name': 'Ada'}, True)
    """
    form = store_format(codec)
    opening = Opening.of_url(
        url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
    )
    return AsyncKv(opening, form)


class AsyncKv:
    """An ordered key-value store; made by ``open_async_kv``.

    A key is a tuple of ``bytes``, ``str``, ``int``, ``float`` and ``bool``; ``True``, ``1`` and ``1.0`` are three
    different keys. On an engine whose answers can be lost, a write is sent once and may end in CommitUnknownError.
    May be used by any number of tasks. Cancelling a write withdraws it if it has not been started; a started one
    is awaited, and a note of the CancelledError says whether it was applied.

    Args:
        opening: the engine, open or to be opened; closing the AsyncKv closes it.
        form: how keys and values are packed, and which first key parts are reserved.
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
            >>> import asyncio
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         return await kv.get(("nobody",))
            >>> asyncio.run(main())
            Entry(key=('nobody',), value=None, versionstamp=None, expires_at=None)
        """
        return await _perform(self._opening, lambda limits: get_entry(self._form, limits, key))

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
        return await _perform(self._opening, lambda limits: get_entries(self._form, limits, keys))

    async def set(self, key: Key, value: Any, *, expire_in: float | timedelta | None = None) -> CommitResult:
        """Store a value, whatever is there: one commit.

        Args:
            key: the key, not empty.
            value: any value that can be stored.
            expire_in: seconds or a timedelta, 0 or more, exact to the millisecond; None to keep it for ever,
                whatever deadline was there.

        Returns:
            The result with the versionstamp; it is always true.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` makes no sense.
            CommitUnknownError: the answer was lost; the value may be stored.
        """
        return await self.atomic().set(key, value, expire_in=expire_in).commit()

    async def delete(self, key: Key) -> None:
        """Remove a key, if it is there: one commit.

        Args:
            key: the key, not empty.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            CommitUnknownError: the answer was lost; the key may be removed.
        """
        await self.atomic().delete(key).commit()

    def list(
        self,
        prefix: Key | None = None,
        *,
        start: Key | None = None,
        end: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncKvListIterator:
        """Iterate over a range of keys in key order, in batches of ``limit`` or 100, at most 500.

        Each batch is its own snapshot; between batches nothing stays open. Give ``prefix``, ``prefix`` with
        ``start`` or ``end``, or ``start`` and ``end``.

        Args:
            prefix: list keys that begin with these parts and have more; ``()`` lists everything.
            start: the first key, included; it need not exist.
            end: the key after the last, excluded; it need not exist.
            limit: the largest number of entries, 1 or more; None for all.
            reverse: the same keys in descending order.

        Returns:
            An asynchronous iterator of entries; nothing is read before its first item.

        Raises:
            InvalidArgumentError: a selector or option that makes no sense.
            InvalidKeyError: a selector that is not a key.

        Examples:
            >>> import asyncio
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         for name in ("Ada", "Bob", "Cleo"):
            ...             await kv.set(("users", name), len(name))
            ...         return [entry.key[-1] async for entry in kv.list(("users",), reverse=True, limit=2)]
            >>> asyncio.run(main())
            ['Cleo', 'Bob']
        """
        selected = listing(self._form, prefix=prefix, start=start, end=end, limit=limit, reverse=reverse)
        return AsyncKvListIterator(self._opening, selected)

    def atomic(self) -> AsyncAtomicOperation:
        """Begin an atomic operation: checks and mutations that are applied all or not at all.

        Returns:
            An operation without parts, which is used once; nothing is sent before its ``commit``.

        Examples:
            >>> import asyncio
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         entry = await kv.get(("hits",))
            ...         first = await kv.atomic().check(entry).sum(("hits",), 1).commit()
            ...         again = await kv.atomic().check(entry).sum(("hits",), 1).commit()
            ...     return first.ok, again.ok, again.failed_checks
            >>> asyncio.run(main())
            (True, False, (('hits',),))
        """
        return AsyncAtomicOperation(self._opening, self._form)

    def unsafe(self) -> AsyncKv:
        """The same store without reserved keys.

        Writing to keys of models by it voids the guarantee that indexes and records agree.

        Returns:
            A view; closing it closes the store.
        """
        return AsyncKv(self._opening, self._form.unreserved())

    async def open(self) -> None:
        """Open the store now; idempotent. Without it, the first call opens it.

        Raises:
            InvalidArgumentError: an unknown scheme or option.
            EngineError: the file cannot be used, such as ForeignFileError.
            ClosedError: it was closed.
        """
        engine = await _opened(self._opening)
        engine.now_ms()  # a closed engine does not tell the time

    async def close(self) -> None:
        """Wait for running calls and close the store, for ``unsafe()`` views as well; idempotent."""
        engine = self._opening.engine
        if engine is None:
            await asyncio.to_thread(self._opening.close)
        else:
            await aclose(engine)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        engine = self._opening.engine
        return f"<AsyncKv {'not open' if engine is None else engine.url}>"


class AsyncAtomicOperation(AtomicBuilder):
    """Checks and mutations that are applied all or not at all; made by ``AsyncKv.atomic``."""

    __slots__ = ("_opening",)

    def __init__(self, opening: Opening, form: StoreFormat) -> None:
        super().__init__(form)
        self._opening = opening

    async def commit(self) -> CommitResult:
        """Apply the operation: one commit, sent once.

        Returns:
            The result: true and the versionstamp, or false and the keys whose checks failed; then nothing was applied.

        Raises:
            KeyTooLargeError, ValueTooLargeError, OperationTooLargeError: a limit; nothing was sent.
            InvalidValueError: a sum, min or max met a value that is no ``KvU64``; nothing was applied.
            InvalidArgumentError: the operation was committed before.
            CommitUnknownError: the answer was lost; the operation may have been applied.
        """
        pending = self._take()
        return await _perform(self._opening, lambda limits: commit_operation(limits, pending))


class AsyncKvListIterator(AsyncIterator[Entry]):
    """The entries of ``AsyncKv.list``, fetched in batches as they are asked for."""

    __slots__ = ("_listing", "_opening")

    def __init__(self, opening: Opening, selected: Listing) -> None:
        self._opening = opening
        self._listing = selected

    async def __anext__(self) -> Entry:
        entry = self._listing.take()
        if entry is None:
            # An engine in memory waits for nothing: without this a long listing would keep other tasks from running.
            await asyncio.sleep(0)
            await _perform(self._opening, self._listing.fetch)
            entry = self._listing.take()
        if entry is None:
            raise StopAsyncIteration
        return entry


async def _opened(opening: Opening) -> Engine:
    # If the task is cancelled meanwhile, the thread finishes the opening and ``opening`` owns the engine.
    engine = opening.engine
    return await asyncio.to_thread(opening.open) if engine is None else engine


async def _perform(opening: Opening, make_flow: Callable[[Limits], Flow[T]]) -> T:
    engine = await _opened(opening)
    return await arun(engine, make_flow(engine.limits))
