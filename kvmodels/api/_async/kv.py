"""The key-value API: ``open_async_kv`` and ``AsyncKv``.

Rules of this module: a method runs one flow of ``kvmodels.flows.kv`` and contains no decisions. Only an asynchronous
store is opened at the first ``await``, because opening waits for a disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self

from kvmodels._support.naming import show_public_path
from kvmodels.api import deno_file
from kvmodels.api._async import copies
from kvmodels.api._async import lock as locks
from kvmodels.api._async import namespace as namespaces
from kvmodels.api._async import queue as queues
from kvmodels.api._async._compat import (
    close_store,
    engine_of,
    in_thread,
    open_eagerly,
    perform,
    require_handler,
    run,
    run_to_end,
)
from kvmodels.api._async.kv_reading import AsyncKvReading, AsyncKvSnapshot, AsyncKvWatchIterator
from kvmodels.api.atomic import AtomicBuilder
from kvmodels.api.dump_files import DumpFile, DumpReader, backup_path
from kvmodels.api.opening import Durability, Opening, codec_for, store_format
from kvmodels.api.progress import listening
from kvmodels.api.refusals import refuse_copies, refuse_other_with
from kvmodels.core.keys import Key, SetKey
from kvmodels.core.operations import CommitResult
from kvmodels.core.ulid import ULID
from kvmodels.flows.kv import dead_letters as letters
from kvmodels.flows.kv import deno_dump
from kvmodels.flows.kv import dump as loading_flows
from kvmodels.flows.kv import formats as dump_formats
from kvmodels.flows.kv import namespace as namespace_flows
from kvmodels.flows.kv import operations as keyvalue
from kvmodels.flows.kv import waiting as overview
from kvmodels.flows.kv import watch as watch_flows
from kvmodels.flows.kv.formats import DumpFormat
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transfer import whole_store
from kvmodels.flows.writing.changes import KEEP, Keep
from kvmodels.limits import Limits
from kvmodels.runtime.observing import observation as observing

DEFAULT_LEASE_S: Final = 30.0
DEFAULT_TTL_S: Final = 15.0


def open_async_kv(
    url: str | os.PathLike[str] = "memory://",
    *,
    codec: str | None = None,
    limits: Limits | None = None,
    durability: Durability = "commit",
    clock: Callable[[], int] | None = None,
    readonly: bool = False,
    **engine_options: Any,
) -> AsyncKv:
    """Return an ordered key-value store; an asynchronous one is opened by ``async with``, ``open()`` or the first call.

    Args:
        url: ``memory://`` (a new store), ``memory://name`` (shared in the process), a path, ``sqlite:///relative``,
            ``sqlite:////absolute``, ``sqlite://:memory:``, ``lmdb:///relative`` or ``lmdb:////absolute`` (needs the
            extra ``lmdb``), ``postgresql://user@host/database`` (needs the extra ``postgres``), ``https://host/path``
            or ``http://localhost:4512`` (a KV Connect database; needs the extra ``connect``),
            ``etcd://h1:2379,h2:2379,h3:2379/prefix`` or ``etcds://`` (an etcd cluster; needs the extra ``etcd``).
        codec: the encoding of values: ``"msgpack"``, or ``"v8"``, which Deno uses; see
            ``docs/concepts/deno-values.md``. None for ``"v8"`` over KV Connect, else ``"msgpack"``.
        limits: maximum sizes; the smaller of these and the engine's apply.
        durability: ``"commit"``: committed data survives power loss. ``"relaxed"``: it survives a killed process; after
            power loss the file is intact, but the latest commits may be missing.
        clock: a function that returns milliseconds since the epoch and decides when rows expire; None for the system
            clock.
        readonly: every write raises ReadOnlyError.
        engine_options: options of the engine, such as ``busy_timeout`` (seconds) of SQLite.

    Returns:
        The store; close it, or use it in a ``with`` statement.

    Raises:
        InvalidArgumentError: the scheme, codec or an option is unknown.
        EngineError: the file cannot be opened, such as ForeignFileError.

    Examples:
        >>> async with open_async_kv() as kv:
        ...     done = await kv.set(("users", 1), {"name": "Ada"})
        ...     entry = await kv.get(("users", 1))
        >>> entry.value, entry.versionstamp == done.versionstamp
        ({'name': 'Ada'}, True)
    """
    form = store_format(codec_for(codec, url))
    opening = Opening.of_url(
        url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
    )
    return AsyncKv(opening, form)


class AsyncKv(AsyncKvReading):
    """An ordered key-value store; created by ``open_kv``.

    A key is a tuple of ``bytes``, ``str``, ``int``, ``float`` and ``bool``; ``True``, ``1`` and ``1.0`` are three
    different keys. On an engine that can lose answers, a write is sent once and may end in CommitUnknownError. The
    store is safe to share between threads, or between tasks of one event loop. Cancelling a write withdraws it if it
    has not started. Otherwise the write is awaited, and a note of the CancelledError says whether it was applied.

    Args:
        opening: the engine, open or to be opened; closing the AsyncKv closes it, unless the AsyncKv is a view.
        form: the encoding of keys and values, and the reserved first key parts.
        view: whether another object owns and closes the store, as for ``unsafe()`` and ``db.kv``.
    """

    __slots__ = ("_is_view",)

    def __init__(self, opening: Opening, form: StoreFormat, *, view: bool = False) -> None:
        super().__init__(opening, form)
        self._is_view = view
        open_eagerly(opening.open)

    async def set(self, key: SetKey, value: Any, *, expire_in: float | timedelta | None = None) -> CommitResult:
        """Store a value, replacing any existing one: one commit.

        Args:
            key: the key, not empty; its last part may be ``COMMIT_VERSIONSTAMP``.
            value: any storable value.
            expire_in: lifetime as seconds or a timedelta, 0 or more, exact to the millisecond; None: no deadline, and
                any existing one is removed.

        Returns:
            The result with the versionstamp; it is always true.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the value cannot be stored.
            InvalidArgumentError: ``expire_in`` is invalid.
            CommitUnknownError: the answer was lost; the value may have been stored.
        """
        return await self.atomic().set(key, value, expire_in=expire_in).commit()

    async def delete(self, key: Key) -> None:
        """Remove a key; no effect if it is absent: one commit.

        Args:
            key: the key, not empty.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            CommitUnknownError: the answer was lost; the key may have been removed.
        """
        await self.atomic().delete(key).commit()

    async def update(
        self,
        key: Key,
        function: Callable[[Any], Any],
        *,
        default: Any = None,
        expire_in: float | timedelta | Keep | None = KEEP,
    ) -> Any:
        """Replace a value by what a function makes of it, and start again if another writer was faster.

        Args:
            key: the key, not empty.
            function: a plain function that takes the value and returns the new one. It is called again after each
                conflict, so it must have no other effects.
            default: the value that the function takes if the key is absent.
            expire_in: lifetime as seconds or a timedelta, 0 or more, exact to the millisecond; None for no deadline. By
                default the key keeps its deadline, and a key that was absent gets none.

        Returns:
            The new value. Cost: one read and one commit for each attempt; no commit if the value stays the same.

        Raises:
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: the key cannot be written.
            InvalidValueError, ValueTooLargeError: the new value cannot be stored.
            InvalidArgumentError: it is not a plain function, or ``expire_in`` is negative or too large.
            RetriesExhaustedError: other writers were faster in each of 50 attempts.
            CommitUnknownError: the answer was lost; the new value may have been stored.

        Examples:
            >>> async with open_async_kv() as kv:
            ...     await kv.update(("basket", 7), lambda items: [*items, "tea"], default=[])
            ...     await kv.update(("basket", 7), lambda items: [*items, "milk"], default=[])
            ['tea']
            ['tea', 'milk']
        """
        packed = self._form.pack_written_key(key)
        update = keyvalue.ValueUpdate(function, default, False, expire_in)
        return await self._run("update", lambda limits: keyvalue.update_value(self._form, limits, packed, update))

    def atomic(self) -> AsyncAtomicOperation:
        """Begin an atomic operation: checks and mutations that are applied together or not at all.

        Returns:
            An empty operation, which can be committed once; nothing is sent before ``commit``.

        Examples:
            >>> async with open_async_kv() as kv:
            ...     entry = await kv.get(("hits",))
            ...     first = await kv.atomic().check(entry).sum(("hits",), 1).commit()
            ...     again = await kv.atomic().check(entry).sum(("hits",), 1).commit()
            >>> first.ok, again.ok, again.failed_checks
            (True, False, (('hits',),))
        """
        return AsyncAtomicOperation(self._opening, self._form)

    def snapshot(self) -> AsyncKvSnapshot:
        """Return a snapshot of the present state, to read it in several steps while others write.

        Returns:
            The snapshot; close it soon, or use it in a ``with`` statement.

        Raises:
            UnsupportedError: the engine has no snapshots.

        Examples:
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.set(("a",), 1)
            ...     async with kv.snapshot() as state:
            ...         _ = await kv.set(("b",), 2)
            ...         [entry.key async for entry in state.list(())], await kv.count(())
            ([('a',)], 2)
        """
        return AsyncKvSnapshot(self._opening, self._form)

    def watch(
        self,
        keys: Iterable[Key] | None = None,
        *,
        prefix: Key | None = None,
        since: str | None = None,
        timeout: float | None = None,
    ) -> AsyncKvWatchIterator:
        """Watch keys, or all keys below a prefix, for changes.

        A watch of keys delivers all of them at once, absent keys included, and again whenever one was written (even
        with the same value), was deleted or has expired. Each delivery is one snapshot. Changes that arrive faster than
        they are consumed are coalesced; the last state of every key is always delivered.

        A watch of a prefix needs ``open_kv(change_log=...)``. Without ``since``, it first delivers the existing entries
        in batches of 500. After that, and with ``since`` from the start, it delivers the changed keys with their
        current values, in commit order. A key may be delivered twice with the same state, but never with an older one.

        Commits of this process are seen at once, those of other processes within the engine's ``poll_interval``.

        Args:
            keys: the keys to watch, in the order of delivery.
            prefix: watch the keys that begin with these parts and have more.
            since: resume after this versionstamp, such as ``watch.versionstamp`` of an earlier watch.
            timeout: end the iteration after this many seconds without a change; None for no timeout.

        Returns:
            An iterator of lists of entries; it ends when the store is closed.

        Raises:
            InvalidArgumentError: not exactly one of keys and prefix was given, or an argument is invalid.
            InvalidKeyError: an argument is not a key.
            UnsupportedError: at the first item: a prefix was given, and the store keeps no change log.
            ResumeExpiredError: at an item: the change log does not reach back to ``since``, or the store was restored.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     changes = kv.watch([("a",), ("b",)], timeout=0)
            ...     first = await anext(changes)
            ...     _ = await kv.set(("b",), 1)
            ...     second = await anext(changes)
            ...     rest = [entries async for entries in changes]
            >>> [entry.value for entry in first], [entry.value for entry in second], rest
            ([None, None], [None, 1], [])
        """
        watch = watch_flows.watching(self._form, time.monotonic, keys=keys, prefix=prefix, since=since, timeout=timeout)
        return AsyncKvWatchIterator(self._opening, watch)

    async def enqueue(
        self,
        value: Any,
        *,
        delay: float | timedelta = 0,
        keys_if_undelivered: Iterable[Key] = (),
        backoff_schedule: Iterable[float | timedelta] | None = None,
    ) -> CommitResult:
        """Put a message into the queue: one commit. ``atomic().enqueue`` combines it with other writes.

        Args:
            value: the message, any storable value.
            delay: seconds or a timedelta before the first delivery, at most 30 days.
            keys_if_undelivered: keys that store the message if every delivery fails.
            backoff_schedule: seconds or timedeltas before each redelivery of a message whose handler failed, at most 5
                of an hour each; None for 0.1, 1, 5, 30 and 60 seconds, ``()`` for no redelivery.

        Returns:
            The result with the versionstamp; it is always true.

        Raises:
            InvalidValueError, ValueTooLargeError: the message cannot be stored, or a duration has the wrong type.
            InvalidArgumentError: a duration is out of range, or there are too many.
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: a key cannot be written.
            CommitUnknownError: the answer was lost; the message may have been enqueued.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     (await kv.enqueue({"to": "ada@example.org"}, delay=60, keys_if_undelivered=[("failed", 1)])).ok
            True
        """
        operation = AsyncAtomicOperation(self._opening, self._form, "enqueue")
        operation.enqueue(
            value, delay=delay, keys_if_undelivered=keys_if_undelivered, backoff_schedule=backoff_schedule
        )
        return await operation.commit()

    def listen(
        self,
        handler: Callable[[Any], object],
        *,
        concurrency: int = 1,
        lease: float | timedelta = DEFAULT_LEASE_S,
    ) -> queues.AsyncQueueListener:
        """Start to handle messages of the queue, in separate threads or tasks.

        Every message is handled at least once, in no particular order. Several listeners, also in several processes,
        share the messages. A message is acknowledged when its handler returns. If the handler raises, the message is
        redelivered according to its backoff schedule, and after that it is stored under its ``keys_if_undelivered``. If
        the process dies, the message is redelivered after the lease. The lease is renewed while the handler runs; a
        handler that blocks the event loop also blocks the renewal.

        The listener does not keep the program alive: call ``wait()`` if there is nothing else to do. Closing the store
        stops the listener and waits for running handlers.

        Args:
            handler: called with the message, up to ``concurrency`` times in parallel; a coroutine function only if the
                store is asynchronous.
            concurrency: the maximum number of messages handled in parallel, 1 or more.
            lease: seconds or a timedelta, 0.1 or more, after which a message of a dead process is redelivered.

        Returns:
            The listener, to stop it or wait for it; as a context manager, it stops at the end of the block.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument is invalid.
            ClosedError: the store is synchronous and closed.
            EngineError: the thread of the listener could not be started.
            UnsupportedError: the store is asynchronous, and no event loop is running here.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     async def handle(message):
            ...         await kv.set(("handled",), message)
            ...     async with kv.listen(handle):
            ...         _ = await kv.enqueue("hello")
            ...         async for (entry,) in kv.watch([("handled",)]):
            ...             if entry.value is not None:
            ...                 break
            >>> entry.value
            'hello'
        """
        lease_ms = queues.listening_arguments(handler, concurrency, lease)
        require_handler(handler, self._opening.engine)
        return queues.AsyncQueueListener(self._opening, self._form, handler, concurrency, lease_ms)

    def lock(
        self, name: str, *, ttl: float | timedelta = DEFAULT_TTL_S, wait: float | timedelta | None = None
    ) -> locks.AsyncLock:
        """Return a lock with one holder at a time among all threads and processes that use the store.

        It is a lease: it is renewed in the background while it is held, and expires ``ttl`` after its holder has died.
        A holder that was paused for longer may have lost it unnoticed: then ``check()``, ``release()`` and the end of
        the ``with`` statement raise LockLostError. Between a check and a later write, only the resource itself can
        refuse an outdated holder: pass it ``fencing_token``, and let it refuse a token that is lower than the last one
        it saw.

        Waiting callers get the lock in FIFO order. The lock is not reentrant, and a lock object belongs to one thread
        or task.

        Args:
            name: the name of the lock, a non-empty str.
            ttl: seconds or a timedelta, 0.1 or more: how long a dead or paused holder keeps it.
            wait: the maximum time to wait, seconds or a timedelta; 0 to try once, None for no limit.

        Returns:
            The lock, not held yet; use it in a ``with`` statement.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument is invalid.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     async with kv.lock("report", ttl=30, wait=5) as lock:
            ...         lock.check()
            ...         first = lock.fencing_token
            ...     async with kv.lock("report") as lock:
            ...         print(lock.fencing_token > first, await kv.lock("report", wait=0).acquire())
            True False
        """
        ttl_ms, wait_s = locks.lock_arguments(name, ttl, wait)
        return locks.AsyncLock(self._opening, self._form, name, ttl_ms, wait_s)

    async def messages(self, *, limit: int = 1_000) -> list[overview.QueuedMessage]:
        """Return the messages in the queue, in the order of their delivery, without taking them.

        Args:
            limit: the maximum number of messages, 1 or more.

        Returns:
            The messages, those with a delay or in the hands of a listener included. One read per 500 messages.

        Raises:
            InvalidArgumentError: the limit is not a positive whole number.
            DecodeError: a message cannot be read.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.enqueue("hello", backoff_schedule=[1, 5])
            ...     [message] = await kv.messages()
            >>> message.value, message.taken, message.redeliveries
            ('hello', False, 2)
        """
        return await self._run("messages", lambda limits: overview.list_messages(self._form, limits, limit))

    async def dead_letters(self, prefix: Key = (), *, limit: int = 1_000) -> list[letters.DeadLetter]:
        """Return messages that were never delivered and are still stored under one of their ``keys_if_undelivered``.

        A program has dealt with one when it has deleted its keys or given them other values.

        Args:
            prefix: only messages under this key, or under keys that begin with these parts.
            limit: the maximum number of messages, 1 or more.

        Returns:
            The messages, in no particular order. Two reads per 100.

        Raises:
            InvalidArgumentError: the limit is not a positive whole number.
            InvalidKeyError: the prefix is not a key.
            DecodeError: a message cannot be read.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.enqueue("hello", backoff_schedule=(), keys_if_undelivered=[("failed", 1)])
            ...     await kv.dead_letters()
            []
        """
        return await self._run(
            "dead_letters", lambda limits: letters.list_dead_letters(self._form, limits, prefix, limit)
        )

    async def locks(self) -> list[overview.HeldLock]:
        """Return the locks that are held or waited for, by name.

        Returns:
            The locks. One read per 500 holders and waiters.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     async with kv.lock("report"):
            ...         [held] = await kv.locks()
            ...     held.name, held.held, held.waiting, await kv.locks()
            ('report', True, 0, [])
        """
        return await self._run("locks", lambda limits: overview.list_locks(self._form, limits))

    def namespace(self, name: str, *, limits: Limits | None = None) -> namespaces.AsyncNamespace:
        """Return a small store with text keys inside this one, separate from all other keys; free until it is used.

        Args:
            name: the name of the namespace, a non-empty str. Different names are always separate namespaces.
            limits: limits inside the namespace, such as ``Limits.MATTERMOST``; the smaller of these and the store's
                apply.

        Returns:
            The namespace; usable until the store is closed.

        Raises:
            InvalidArgumentError: the name is not a non-empty str, or ``limits`` is not a ``Limits`` object.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     github, jira = kv.namespace("github"), kv.namespace("jira")
            ...     await github.set("token", b"secret")
            ...     await github.get("token"), await jira.get("token")
            (b'secret', None)
        """
        form = namespace_flows.namespace_form(self._form, name, limits)
        return namespaces.AsyncNamespace(self._opening, form, AsyncKv(self._opening, form, view=True))

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store into a new SQLite file, next to live readers and writers.

        The copy is one snapshot with its versionstamps and deadlines; open it like any other store. The file gets its
        name when it is complete and on disk. Cost: one pass over the store.

        Args:
            path: the path of the new file; its folder must exist.

        Raises:
            EngineError: the file exists already or cannot be written. StorageFullError: there is not enough space.
            UnsupportedError: this is only a part of a store; use ``dump``.
            InvalidArgumentError: ``path`` is not a path.

        Example:
            >>> import tempfile
            >>> from kvmodels import open_async_kv
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     async with open_async_kv() as kv:
            ...         _ = await kv.set(("users", 1), "Ada")
            ...         await kv.backup(f"{folder}/copy.db")
            ...     async with open_async_kv(f"{folder}/copy.db") as copy:
            ...         (await copy.get(("users", 1))).value
            'Ada'
        """
        target = backup_path(self._form, path)
        engine = await engine_of(self._opening)
        with observing.observed(self._opening.observation("backup")):
            await in_thread(engine.backup, target)

    async def dump(
        self,
        file: DumpFile,
        *,
        format: DumpFormat = "kvmodels",
        progress: bool | Callable[[int], object] | None = None,
    ) -> int:
        """Write one snapshot of all keys as lines of JSON, which every engine and codec can load with all types.

        A store with tenants is dumped with all of them, except those that are being removed; releases without tenants
        refuse such a dump. Keys of models and of the library are included, expired ones are not. It holds at most 100
        keys, some MiB, in memory. The snapshot stays open until the end, however long it takes.

        Args:
            file: the path of a new file, or a file object that is open for writing text (UTF-8) or bytes.
            format: ``"deno"`` writes the lines of Deno's package ``@deno/kv-utils``, which a Deno program can import;
                without the library's own keys and index entries, and not of a store with tenants.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with the
                number of keys so far; an exception that it raises ends the dump.

        Returns:
            The number of keys.

        Raises:
            EngineError: the path cannot be created.
            DecodeError: a stored value cannot be read; the error names its key.
            InvalidValueError: the format of Deno cannot hold a value; the error names its key.
            SnapshotLostError: the store has ended the snapshot, such as when a connection broke.
            InvalidArgumentError: ``file`` is neither a path nor a file object, or the format is unknown.
            UnsupportedError: the format of Deno cannot hold tenants.

        Example:
            >>> import io
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as kv:
            ...     _ = await kv.set(("users", 1), {"name": "Ada", "logins": 2**64})
            ...     file = io.StringIO()
            ...     await kv.dump(file)
            1
            >>> print(file.getvalue().splitlines()[1])
            {"key":["users",1],"value":{"name":"Ada","logins":{"$int":"0x10000000000000000"}}}
        """
        with listening.listener(progress, "dump") as listen:
            engine = await engine_of(self._opening)
            dumping = whole_store.dumping_in(format, self._form, listen)
            limits = self._form.limits_within(engine.limits)
            return await copies.write_dump(
                engine, dumping, limits, file, listen, observation=self._opening.observation("dump")
            )

    async def load(
        self,
        file: DumpFile,
        *,
        format: DumpFormat = "kvmodels",
        restart: bool = False,
        progress: bool | Callable[[int], object] | None = None,
    ) -> int:
        """Load the output of ``dump`` into this store, which must be empty: completely or not at all.

        Values and deadlines are those of the dump, versionstamps are new. Indexes that were being built are not loaded:
        ``db.build_indexes()`` builds them. Nothing else may write during the load, and models cannot be used until it
        is done. Every use of a tenant of the dump is refused until then. It holds about 1 MiB of the dump in memory, or
        its largest value.

        Args:
            file: a path, or a file object that is open for reading text (UTF-8) or bytes.
            format: ``"deno"`` reads the lines of Deno's package ``@deno/kv-utils``. They do not show whether the file
                is complete.
            restart: first remove the rows of an earlier load that was killed; otherwise a store with such rows is
                refused.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with the
                number of keys so far; an exception that it raises ends the load, and the store is left empty.

        Returns:
            The number of keys written.

        Raises:
            EngineError: the store is not empty, or the path cannot be opened.
            DecodeError: the file is damaged, truncated or not a dump; the error names the line, and the store is left
                empty.
            InvalidValueError, LimitExceededError: the store cannot hold a value, for example because its codec does not
                support it.
            ReservedKeyError: a line of Deno has the key of a record; ``db.load`` stores it with its index entries.
            SchemaMismatchError: the dump is of a newer format.
            UnsupportedError: a dump with tenants is loaded into a tenant or a namespace.
            ReadOnlyError, StorageFullError: nothing can be written.

        Example:
            >>> import io
            >>> from kvmodels import open_async_kv
            >>> async with open_async_kv() as one, open_async_kv() as other:
            ...     _ = await one.set(("users", 1), {"name": "Ada"}, expire_in=60)
            ...     file = io.StringIO()
            ...     _ = await one.dump(file)
            ...     _ = file.seek(0)
            ...     await other.load(file), (await other.get(("users", 1))).value
            (1, {'name': 'Ada'})
        """
        with listening.listener(progress, "load") as listen:
            engine = await engine_of(self._opening)
            limits = self._form.limits_within(engine.limits)
            loading = whole_store.loading_in(
                format, self._form, limits, token=str(ULID()), progress=listen, whole=not self._opening.is_part
            )
            return await self._load(loading, partial(DumpReader, file), restart, listen)

    async def load_deno(
        self,
        path: str | os.PathLike[str],
        *,
        restart: bool = False,
        progress: bool | Callable[[int], object] | None = None,
    ) -> int:
        """Load the SQLite file of a Deno program into this store, which must be empty: completely or not at all.

        Values, deadlines and the messages of the queue are loaded. Versionstamps are new, and in the order of those in
        the file; entries of different commits may get the same one. A program of Deno may use the file meanwhile: what
        is loaded is its state at the beginning. It needs the extra ``v8-codec``, whatever the codec of this store.

        Args:
            path: the path that the program has passed to ``Deno.openKv()``. Copy a file together with its ``-wal``.
            restart: first remove the rows of an earlier load that was killed; otherwise a store with such rows is
                refused.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with the
                number of keys so far; an exception that it raises ends the load, and the store is left empty.

        Returns:
            The number of keys and messages written.

        Raises:
            EngineError: the store is not empty, or there is no such file.
            ForeignFileError: it is not a file of Deno KV; UnsupportedError: its tables have an unknown version, or the
                package of the codec v8 is not installed.
            DecodeError: the file is damaged.
            InvalidValueError, LimitExceededError: the store cannot hold a value, such as one that contains itself.
            ReservedKeyError: a key begins with ``"__kvmodels__"``.
            ReadOnlyError, StorageFullError: nothing can be written.
        """
        with listening.listener(progress, "load") as listen:
            engine = await engine_of(self._opening)
            limits = self._form.limits_within(engine.limits)
            dump_formats.require_dump_options("deno", listen)
            loading = deno_dump.DenoFileLoading(self._form, limits, str(ULID()))
            return await self._load(loading, partial(deno_file.DenoFileReader, path), restart, listen)

    async def _load(
        self,
        loading: loading_flows.Loading,
        open_source: Callable[[], DumpReader | deno_file.DenoFileReader],
        restart: bool,
        progress: Callable[[int], object] | None,
    ) -> int:
        engine = await engine_of(self._opening)
        observation = self._opening.observation("load")
        with observing.observed(observation), await in_thread(open_source) as reader:
            try:
                await run(engine, observing.through(observation, loading.begin(restart=restart)))
                while lines := await in_thread(reader.read):
                    for mutations in await in_thread(loading.take, lines):
                        await run(engine, observing.through(observation, loading.store(mutations)))
                    if progress is not None:
                        progress(loading.written)
                return await run(engine, observing.through(observation, loading.finish()))
            except BaseException as error:
                # Also for a cancelled task: a partial dump must not stay in the store.
                await run_to_end(partial(copies.abandon, engine, loading, error))
                raise

    def unsafe(self) -> AsyncKv:
        """Return the same store without reserved keys.

        Writing to keys of models through it voids the guarantee that indexes match the records.

        Returns:
            A view: closing it, or the end of its ``with`` statement, leaves the store open.
        """
        return AsyncKv(self._opening, self._form.unreserved(), view=True)

    # async only
    async def open(self) -> None:
        """Open the store now; idempotent. Without it, the first call opens it.

        Raises:
            InvalidArgumentError: the scheme or an option is unknown.
            EngineError: the file cannot be used, such as ForeignFileError.
            ClosedError: the store was closed.
        """
        engine = await engine_of(self._opening)
        engine.now_ms()  # raises if the engine was closed

    # end async only

    async def close(self) -> None:
        """Stop its listeners, wait for running handlers and calls, and close the store; idempotent.

        This closes its views too. On a view (``db.kv``, ``unsafe()``, the ``kv`` of a namespace) the call has no
        effect: the store belongs to the ``AsyncDatabase``, or to the result of ``open_async_kv``.
        """
        if not self._is_view:
            await close_with_listeners(self._opening)

    async def __aenter__(self) -> Self:
        (await engine_of(self._opening)).now_ms()  # raises if the engine was closed
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncKv {self._opening.url or 'not open'}>"


class AsyncAtomicOperation(AtomicBuilder):
    """Checks and mutations that are applied together or not at all; created by ``AsyncKv.atomic``."""

    __slots__ = ("_opening", "_verb")

    def __init__(self, opening: Opening, form: StoreFormat, verb: str = "commit") -> None:
        super().__init__(form)
        self._opening = opening
        self._verb = verb

    async def commit(self) -> CommitResult:
        """Apply the operation: one commit, sent once.

        Returns:
            The result: true with the versionstamp, or false with the keys of the failed checks, and then nothing was
            applied.

        Raises:
            KeyTooLargeError, ValueTooLargeError, OperationTooLargeError: a limit was exceeded; nothing was sent.
            InvalidValueError: the stored value of a sum, min or max has the wrong type or a result is invalid; nothing
                was applied.
            InvalidArgumentError: the operation was already committed.
            CommitUnknownError: the answer was lost; the operation may have been applied.
        """
        pending = self._take()
        engine = await engine_of(self._opening)
        limits = self._form.limits_within(engine.limits)
        committing = keyvalue.commit_operation(self._form, limits, pending)
        return await perform(engine, committing, self._opening.observation(self._verb))


async def close_with_listeners(opening: Opening) -> None:
    """Stop the listeners of a store, wait for running handlers and calls, and close it; idempotent."""
    for listener in list(opening.listeners):
        with contextlib.suppress(Exception):  # it was already logged when it ended the listener
            await listener.stop()
    await close_store(opening)


show_public_path(AsyncKv, open_async_kv)
refuse_copies(AsyncKv, AsyncAtomicOperation)
refuse_other_with(AsyncKv)
