"""Reading through the key-value API, synchronous: what a store and a snapshot of it have in common.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.kv_reading_async``, which a test compares.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from types import TracebackType
from typing import Literal, Self

from kvmodels.drivers import run
from kvmodels.engines.base import Engine, Snapshot
from kvmodels.flows import keyvalue
from kvmodels.flows import listing as listings
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key
from kvmodels.limits import Limits
from kvmodels.operations import Entry, format_versionstamp

__all__ = ["KvListIterator", "KvReading", "KvSnapshot"]


class KvReading:
    """The reads of a store: each sees the state at its moment, or all of them that of a snapshot.

    Args:
        engine: where it is stored.
        form: how keys and values are packed.
        snapshot: what is read instead of the present state.
    """

    __slots__ = ("_engine", "_form", "_snapshot")

    def __init__(self, engine: Engine, form: StoreFormat, snapshot: Snapshot | None = None) -> None:
        self._engine = engine
        self._form = form
        self._snapshot = snapshot

    def get(self, key: Key) -> Entry:
        """Read one key: one read of one row.

        Args:
            key: the key; the empty key is always absent.

        Returns:
            The entry; its value and versionstamp are None when the key is absent or expired.

        Raises:
            InvalidKeyError, KeyTooLargeError: not a key, or too long.
            DecodeError: what is stored cannot be read.

        Examples:
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     kv.get(("nobody",))
            Entry(key=('nobody',), value=None, versionstamp=None, expires_at=None)
        """
        return run(self._engine, keyvalue.get_entry(self._form, self._limits, key), snapshot=self._snapshot)

    def get_many(self, keys: Iterable[Key]) -> builtins.list[Entry]:
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
        return run(self._engine, keyvalue.get_entries(self._form, self._limits, keys), snapshot=self._snapshot)

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
    ) -> KvListIterator:
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
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     for name in ("Ada", "Bob", "Cleo"):
            ...         _ = kv.set(("users", name), len(name))
            ...     page = kv.list(("users",), reverse=True, limit=2)
            ...     [entry.key[-1] for entry in page]
            ...     [entry.key[-1] for entry in kv.list(("users",), reverse=True, cursor=page.cursor)]
            ['Cleo', 'Bob']
            ['Ada']
        """
        selection = listings.select(self._form, prefix=prefix, start=start, end=end)
        options = listings.ListOptions(limit, reverse, cursor, batch_size, consistency, keys_only)
        return KvListIterator(self._fetch, listings.Listing(self._form, selection, options))

    def count(self, prefix: Key | None = None, *, start: Key | None = None, end: Key | None = None) -> int:
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
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     _ = kv.atomic().set(("users", 1), "Ada").set(("users", 2), "Bob").commit()
            ...     kv.count(("users",)), kv.count(("users",), start=("users", 2))
            (2, 1)
        """
        counting = listings.count_entries(
            listings.select(self._form, prefix=prefix, start=start, end=end), self._limits
        )
        with self._pinned() as snapshot:
            return run(self._engine, counting, snapshot=snapshot)

    @property
    def _limits(self) -> Limits:
        return self._form.limits_within(self._engine.limits)

    def _pinned(self) -> AbstractContextManager[Snapshot | None]:
        if self._snapshot is not None or not self._engine.traits.snapshots:
            return nullcontext(self._snapshot)
        return closing(self._engine.snapshot())

    def _fetch(self, listing: listings.Listing) -> bool:
        return run(self._engine, listing.fetch(self._limits), snapshot=self._snapshot)


class KvSnapshot(KvReading):
    """A state of a store that stays as it is while others write; made by ``Kv.snapshot``.

    Close it soon, or use it in a ``with`` statement: it holds a connection of SQLite and keeps its log from being
    shortened, and memory keeps every row that is replaced meanwhile. After the option ``snapshot_max_age`` (60
    seconds) its reads raise SnapshotExpiredError.

    Args:
        engine: where the store is.
        form: how keys and values are packed.
        snapshot: the state; closed with this object.
    """

    __slots__ = ("_state", "_versionstamp")

    def __init__(self, engine: Engine, form: StoreFormat, snapshot: Snapshot) -> None:
        super().__init__(engine, form, snapshot)
        self._state = snapshot
        self._versionstamp = format_versionstamp(snapshot.versionstamp)

    @property
    def versionstamp(self) -> str:
        """The versionstamp of the last commit that the snapshot contains: 20 hexadecimal digits.

        Raises:
            ClosedError: only of an asynchronous snapshot: it was not taken yet.
        """
        return self._versionstamp

    def close(self) -> None:
        """Let the engine forget the state; idempotent."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<KvSnapshot of {self._engine.url}>"


class KvListIterator(Iterator[Entry]):
    """The entries of ``list``, fetched in batches as they are asked for."""

    __slots__ = ("_fetch", "_listing")

    def __init__(self, fetch: Callable[[listings.Listing], bool], listing: listings.Listing) -> None:
        self._fetch = fetch
        self._listing = listing

    @property
    def cursor(self) -> str:
        """Where another listing goes on: behind the last entry, or ``""`` behind the end.

        It holds the key parts that the selector leaves open, in base64url, exactly as Deno's. At the ``limit`` it is
        that of the last entry, even if nothing follows.

        Raises:
            InvalidArgumentError: before the first entry, unless the listing began with a cursor.
        """
        return self._listing.cursor

    def __next__(self) -> Entry:
        while (entry := self._listing.take()) is None:
            if not self._fetch(self._listing):
                raise StopIteration
        return entry
