"""The key-value API, synchronous: ``open_kv`` and ``Kv``.

Rules of this module: a method runs one flow of ``kvmodels.flows.keyvalue`` and decides nothing. Names, signatures
and behaviour are those of ``kvmodels.kv_async``, which a test compares.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from kvmodels.drivers import run
from kvmodels.engines.base import Engine
from kvmodels.flows.keyvalue import Listing, StoreFormat, commit_operation, get_entries, get_entry, listing
from kvmodels.keys import Key
from kvmodels.kv_atomic import AtomicBuilder
from kvmodels.kv_opening import Durability, Opening, store_format
from kvmodels.limits import Limits
from kvmodels.operations import CommitResult, Entry

__all__ = ["AtomicOperation", "Kv", "KvListIterator", "open_kv"]


def open_kv(
    url: str | os.PathLike[str] = "memory://",
    *,
    codec: str = "msgpack",
    limits: Limits | None = None,
    durability: Durability = "commit",
    clock: Callable[[], int] | None = None,
    readonly: bool = False,
    **engine_options: Any,
) -> Kv:
    """Open an ordered key-value store.

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
        The store; close it, or use it in a ``with`` statement.

    Raises:
        InvalidArgumentError: an unknown scheme, codec or option.
        EngineError: the file cannot be opened, such as ForeignFileError.

    Examples:
        >>> with open_kv() as kv:
        ...     done = kv.set(("users", 1), {"name": "Ada"})
        ...     entry = kv.get(("users", 1))
        >>> entry.value, entry.versionstamp == done.versionstamp
        ({'name': 'Ada'}, True)
    """
    form = store_format(codec)
    opening = Opening.of_url(
        url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
    )
    return Kv(opening.open(), form)


class Kv:
    """An ordered key-value store; made by ``open_kv``.

    A key is a tuple of ``bytes``, ``str``, ``int``, ``float`` and ``bool``; ``True``, ``1`` and ``1.0`` are three
    different keys. On an engine whose answers can be lost, a write is sent once and may end in CommitUnknownError.
    May be used from any number of threads.

    Args:
        engine: where it is stored; closing the Kv closes it.
        form: how keys and values are packed, and which first key parts are reserved.
    """

    __slots__ = ("_engine", "_form")

    def __init__(self, engine: Engine, form: StoreFormat) -> None:
        self._engine = engine
        self._form = form

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
            >>> with open_kv() as kv:
            ...     kv.get(("nobody",))
            Entry(key=('nobody',), value=None, versionstamp=None, expires_at=None)
        """
        return run(self._engine, get_entry(self._form, self._engine.limits, key))

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
        return run(self._engine, get_entries(self._form, self._engine.limits, keys))

    def set(self, key: Key, value: Any, *, expire_in: float | timedelta | None = None) -> CommitResult:
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
        return self.atomic().set(key, value, expire_in=expire_in).commit()

    def delete(self, key: Key) -> None:
        """Remove a key, if it is there: one commit.

        Args:
            key: the key, not empty.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            CommitUnknownError: the answer was lost; the key may be removed.
        """
        self.atomic().delete(key).commit()

    def list(
        self,
        prefix: Key | None = None,
        *,
        start: Key | None = None,
        end: Key | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> KvListIterator:
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
            An iterator of entries; nothing is read before its first item.

        Raises:
            InvalidArgumentError: a selector or option that makes no sense.
            InvalidKeyError: a selector that is not a key.

        Examples:
            >>> with open_kv() as kv:
            ...     for name in ("Ada", "Bob", "Cleo"):
            ...         _ = kv.set(("users", name), len(name))
            ...     [entry.key[-1] for entry in kv.list(("users",), reverse=True, limit=2)]
            ['Cleo', 'Bob']
        """
        selected = listing(self._form, prefix=prefix, start=start, end=end, limit=limit, reverse=reverse)
        return KvListIterator(self._engine, selected)

    def atomic(self) -> AtomicOperation:
        """Begin an atomic operation: checks and mutations that are applied all or not at all.

        Returns:
            An operation without parts, which is used once; nothing is sent before its ``commit``.

        Examples:
            >>> with open_kv() as kv:
            ...     entry = kv.get(("hits",))
            ...     first = kv.atomic().check(entry).sum(("hits",), 1).commit()
            ...     again = kv.atomic().check(entry).sum(("hits",), 1).commit()
            >>> first.ok, again.ok, again.failed_checks
            (True, False, (('hits',),))
        """
        return AtomicOperation(self._engine, self._form)

    def unsafe(self) -> Kv:
        """The same store without reserved keys.

        Writing to keys of models by it voids the guarantee that indexes and records agree.

        Returns:
            A view; closing it closes the store.
        """
        return Kv(self._engine, self._form.unreserved())

    def close(self) -> None:
        """Wait for running calls and close the store, for ``unsafe()`` views as well; idempotent."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Kv {self._engine.url}>"


class AtomicOperation(AtomicBuilder):
    """Checks and mutations that are applied all or not at all; made by ``Kv.atomic``."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine, form: StoreFormat) -> None:
        super().__init__(form)
        self._engine = engine

    def commit(self) -> CommitResult:
        """Apply the operation: one commit, sent once.

        Returns:
            The result: true and the versionstamp, or false and the keys whose checks failed; then nothing was applied.

        Raises:
            KeyTooLargeError, ValueTooLargeError, OperationTooLargeError: a limit; nothing was sent.
            InvalidValueError: a sum, min or max met a value that is no ``KvU64``; nothing was applied.
            InvalidArgumentError: the operation was committed before.
            CommitUnknownError: the answer was lost; the operation may have been applied.
        """
        return run(self._engine, commit_operation(self._engine.limits, self._take()))


class KvListIterator(Iterator[Entry]):
    """The entries of ``Kv.list``, fetched in batches as they are asked for."""

    __slots__ = ("_engine", "_listing")

    def __init__(self, engine: Engine, selected: Listing) -> None:
        self._engine = engine
        self._listing = selected

    def __next__(self) -> Entry:
        entry = self._listing.take()
        if entry is None:
            run(self._engine, self._listing.fetch(self._engine.limits))
            entry = self._listing.take()
        if entry is None:
            raise StopIteration
        return entry
