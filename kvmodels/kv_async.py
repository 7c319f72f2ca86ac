"""The key-value API, asynchronous: ``open_async_kv`` and ``AsyncKv``.

Rules of this module: a method runs one flow of ``kvmodels.flows.keyvalue`` and decides nothing. Names, signatures
and behaviour are those of ``kvmodels.kv``, which a test compares; only the store is opened later, at the first
``await``, because opening waits for a disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from kvmodels.drivers_async import aclose, arun
from kvmodels.flows import keyvalue
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key, SetKey
from kvmodels.kv_atomic import AtomicBuilder
from kvmodels.kv_copying_async import AsyncKvCopying
from kvmodels.kv_opening import Durability, Opening, store_format
from kvmodels.kv_queue_async import astop_listeners
from kvmodels.kv_reading_async import AsyncKvReading, AsyncKvSnapshot, opened
from kvmodels.kv_services_async import AsyncKvServices
from kvmodels.kv_watch_async import AsyncKvWatching
from kvmodels.limits import Limits
from kvmodels.operations import CommitResult
from kvmodels.public_path import show_public_path

__all__ = ["AsyncAtomicOperation", "AsyncKv", "open_async_kv"]


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
            ``sqlite:////absolute``, ``sqlite://:memory:``, ``lmdb:///relative`` or ``lmdb:////absolute`` (needs the
            extra ``lmdb``).
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


class AsyncKv(AsyncKvCopying, AsyncKvServices, AsyncKvWatching, AsyncKvReading):
    """An ordered key-value store; made by ``open_async_kv``.

    A key is a tuple of ``bytes``, ``str``, ``int``, ``float`` and ``bool``; ``True``, ``1`` and ``1.0`` are three
    different keys. On an engine whose answers can be lost, a write is sent once and may end in CommitUnknownError.
    May be used by any number of tasks. Cancelling a write withdraws it if it has not been started; a started one
    is awaited, and a note of the CancelledError says whether it was applied.

    Args:
        opening: the engine, open or to be opened; closing the AsyncKv closes it.
        form: how keys and values are packed, and which first key parts are reserved.
    """

    __slots__ = ()

    async def set(self, key: SetKey, value: Any, *, expire_in: float | timedelta | None = None) -> CommitResult:
        """Store a value, whatever is there: one commit.

        Args:
            key: the key, not empty; its last part may be ``COMMIT_VERSIONSTAMP``.
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

    def atomic(self) -> AsyncAtomicOperation:
        """Begin an atomic operation: checks and mutations that are applied all or not at all.

        Returns:
            An operation without parts, which is used once; nothing is sent before its ``commit``.

        Examples:
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

    def snapshot(self) -> AsyncKvSnapshot:
        """Pin the present state, to read it in several steps while others write.

        Returns:
            The state, to read from: that at ``async with``, ``open()`` or the first read. Close it soon.

        Examples:
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         await kv.set(("a",), 1)
            ...         async with kv.snapshot() as state:
            ...             await kv.set(("b",), 2)
            ...             return [entry.key async for entry in state.list(())], await kv.count(())
            >>> asyncio.run(main())
            ([('a',)], 2)
        """
        return AsyncKvSnapshot(self._opening, self._form)

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
        engine = await opened(self._opening)
        engine.now_ms()  # a closed engine does not tell the time

    async def close(self) -> None:
        """Stop its listeners, wait for running handlers and calls, and close the store; idempotent.

        It is closed for views such as ``unsafe()`` and for namespaces as well.
        """
        engine = self._opening.engine
        if engine is None:
            await asyncio.to_thread(self._opening.close)
        else:
            await astop_listeners(engine)
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
            InvalidValueError: a sum, min or max met a value that it cannot be applied to; nothing was applied.
            InvalidArgumentError: the operation was committed before.
            CommitUnknownError: the answer was lost; the operation may have been applied.
        """
        pending = self._take()
        engine = await opened(self._opening)
        limits = self._form.limits_within(engine.limits)
        return await arun(engine, keyvalue.commit_operation(self._form, limits, pending))


show_public_path(AsyncKv, open_async_kv)
