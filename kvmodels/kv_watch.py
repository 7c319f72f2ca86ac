"""Watching through the key-value API, synchronous.

Rules of this module: a method runs one flow of ``kvmodels.flows.watch`` and decides nothing. Names, signatures and
behaviour are those of ``kvmodels.kv_watch_async``, which a test compares.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from kvmodels.drivers import run
from kvmodels.engines.base import Engine
from kvmodels.flows import watch as watch_flows
from kvmodels.keys import Key
from kvmodels.kv_reading import KvReading
from kvmodels.operations import Entry

__all__ = ["KvWatchIterator", "KvWatching"]


class KvWatching(KvReading):
    """What a store says of its changes."""

    __slots__ = ()

    def watch(
        self,
        keys: Iterable[Key] | None = None,
        *,
        prefix: Key | None = None,
        since: str | None = None,
        timeout: float | None = None,
    ) -> KvWatchIterator:
        """Follow keys, or everything below a prefix.

        A watch of keys delivers all of them, absent ones as absent: at once, and then whenever one was written
        (with the same value too), was deleted or has expired. Each delivery is one snapshot. Changes that come
        faster than they are taken are coalesced; the last state of every key is always delivered.

        A watch of a prefix needs ``open_kv(change_log=...)``. Without ``since`` it first delivers what is there, in
        batches of 500; then, as with ``since``, the keys that changed, each with what it holds now, in the order of
        the commits. A key may be delivered twice with the same state, never with an older one.

        A commit of this process is seen at once, one of another process within ``poll_interval`` of the engine.

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
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     changes = kv.watch([("a",), ("b",)], timeout=0)
            ...     first = next(changes)
            ...     _ = kv.set(("b",), 1)
            ...     second = next(changes)
            ...     rest = list(changes)
            >>> [entry.value for entry in first], [entry.value for entry in second], rest
            ([None, None], [None, 1], [])
        """
        watch = watch_flows.watching(self._form, time.monotonic, keys=keys, prefix=prefix, since=since, timeout=timeout)
        return KvWatchIterator(self._engine, watch)


class KvWatchIterator(Iterator[list[Entry]]):
    """What ``watch`` delivers; between two items nothing is open and nothing is queued."""

    __slots__ = ("_engine", "_watch")

    def __init__(self, engine: Engine, watch: watch_flows.Watch) -> None:
        self._engine = engine
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to go on with a prefix later.

        None before the first item, and of a prefix as long as the state of the beginning is being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another thread ends within a second."""
        self._watch.end()

    def __next__(self) -> list[Entry]:
        entries = run(self._engine, self._watch.following(self._engine.limits))
        if entries is None:
            raise StopIteration
        return entries
