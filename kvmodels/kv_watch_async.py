"""Watching through the key-value API, asynchronous.

Rules of this module: a method runs one flow of ``kvmodels.flows.watch`` and decides nothing. Names, signatures and
behaviour are those of ``kvmodels.kv_watch``, which a test compares.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from kvmodels.drivers_async import arun
from kvmodels.flows import watch as watch_flows
from kvmodels.keys import Key
from kvmodels.kv_opening import Opening
from kvmodels.kv_reading_async import AsyncKvReading, opened
from kvmodels.operations import Entry

__all__ = ["AsyncKvWatchIterator", "AsyncKvWatching"]


class AsyncKvWatching(AsyncKvReading):
    """What a store says of its changes."""

    __slots__ = ()

    def watch(
        self,
        keys: Iterable[Key] | None = None,
        *,
        prefix: Key | None = None,
        since: str | None = None,
        timeout: float | None = None,
    ) -> AsyncKvWatchIterator:
        """Follow keys, or everything below a prefix.

        A watch of keys delivers all of them, absent ones as absent: at once, and then whenever one was written
        (with the same value too), was deleted or has expired. Each delivery is one snapshot. Changes that come
        faster than they are taken are coalesced; the last state of every key is always delivered.

        A watch of a prefix needs ``open_async_kv(change_log=...)``. Without ``since`` it first delivers what is
        there, in batches of 500; then, as with ``since``, the keys that changed, each with what it holds now, in the
        order of the commits. A key may be delivered twice with the same state, never with an older one.

        A commit of this process is seen at once, one of another process within ``poll_interval`` of the engine. A
        task that waits takes no thread.

        Args:
            keys: the keys to follow, in the order of delivery.
            prefix: follow the keys that begin with these parts and have more.
            since: go on after this versionstamp, such as ``watch.versionstamp`` of an earlier watch.
            timeout: seconds without a change after which the iteration ends; None to wait for ever.

        Returns:
            An iterator of lists of entries; it ends when the store is closed.

        Raises:
            InvalidArgumentError: not exactly one of keys and prefix, or an argument that makes no sense.
            InvalidKeyError: not a key.
            UnsupportedError: at the first item: a prefix, and the store keeps no change log.
            ResumeExpiredError: at an item: the change log no longer reaches back.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         async for entries in kv.watch([("a",)], timeout=1):
            ...             if entries[0].value is not None:
            ...                 return entries[0].value
            ...             await kv.set(("a",), 1)
            >>> asyncio.run(main())
            1
        """
        watch = watch_flows.watching(self._form, time.monotonic, keys=keys, prefix=prefix, since=since, timeout=timeout)
        return AsyncKvWatchIterator(self._opening, watch)


class AsyncKvWatchIterator(AsyncIterator[list[Entry]]):
    """What ``watch`` delivers; between two items nothing is open and nothing is queued."""

    __slots__ = ("_opening", "_watch")

    def __init__(self, opening: Opening, watch: watch_flows.Watch) -> None:
        self._opening = opening
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to go on with a prefix later.

        None before the first item, and of a prefix as long as the state of the beginning is being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another task ends within a second."""
        self._watch.end()

    async def __anext__(self) -> list[Entry]:
        engine = await opened(self._opening)
        # An engine in memory answers at once while changes come: without this, other tasks would not run.
        await asyncio.sleep(0)
        entries = await arun(engine, self._watch.following(engine.limits))
        if entries is None:
            raise StopAsyncIteration
        return entries
