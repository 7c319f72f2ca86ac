"""The key-value API, synchronous: ``open_kv`` and ``Kv``.

Rules of this module: a method runs one flow of ``kvmodels.flows.keyvalue`` and decides nothing. Names, signatures
and behaviour are those of ``kvmodels.kv_async``, which a test compares.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from kvmodels.drivers import run
from kvmodels.engines.base import Engine
from kvmodels.flows import keyvalue
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key, SetKey
from kvmodels.kv_atomic import AtomicBuilder
from kvmodels.kv_copying import KvCopying
from kvmodels.kv_opening import Durability, Opening, store_format
from kvmodels.kv_queue import stop_listeners
from kvmodels.kv_reading import KvReading, KvSnapshot
from kvmodels.kv_services import KvServices
from kvmodels.kv_watch import KvWatching
from kvmodels.limits import Limits
from kvmodels.operations import CommitResult
from kvmodels.public_path import show_public_path

__all__ = ["AtomicOperation", "Kv", "open_kv"]


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


class Kv(KvCopying, KvServices, KvWatching, KvReading):
    """An ordered key-value store; made by ``open_kv``.

    A key is a tuple of ``bytes``, ``str``, ``int``, ``float`` and ``bool``; ``True``, ``1`` and ``1.0`` are three
    different keys. On an engine whose answers can be lost, a write is sent once and may end in CommitUnknownError.
    May be used from any number of threads.

    Args:
        engine: where it is stored; closing the Kv closes it.
        form: how keys and values are packed, and which first key parts are reserved.
    """

    __slots__ = ()

    def __init__(self, engine: Engine, form: StoreFormat) -> None:
        super().__init__(engine, form)

    def set(self, key: SetKey, value: Any, *, expire_in: float | timedelta | None = None) -> CommitResult:
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

    def snapshot(self) -> KvSnapshot:
        """Pin the present state, to read it in several steps while others write.

        Returns:
            The state, to read from; close it soon, or use it in a ``with`` statement.

        Raises:
            UnsupportedError: the engine has no snapshots.

        Examples:
            >>> with open_kv() as kv:
            ...     _ = kv.set(("a",), 1)
            ...     with kv.snapshot() as state:
            ...         _ = kv.set(("b",), 2)
            ...         [entry.key for entry in state.list(())], kv.count(())
            ([('a',)], 2)
        """
        return KvSnapshot(self._engine, self._form, self._engine.snapshot())

    def unsafe(self) -> Kv:
        """The same store without reserved keys.

        Writing to keys of models by it voids the guarantee that indexes and records agree.

        Returns:
            A view; closing it closes the store.
        """
        return Kv(self._engine, self._form.unreserved())

    def close(self) -> None:
        """Stop its listeners, wait for running handlers and calls, and close the store; idempotent.

        It is closed for views such as ``unsafe()`` and for namespaces as well.
        """
        stop_listeners(self._engine)
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
            InvalidValueError: a sum, min or max met a value that it cannot be applied to; nothing was applied.
            InvalidArgumentError: the operation was committed before.
            CommitUnknownError: the answer was lost; the operation may have been applied.
        """
        limits = self._form.limits_within(self._engine.limits)
        return run(self._engine, keyvalue.commit_operation(self._form, limits, self._take()))


show_public_path(Kv, open_kv)
