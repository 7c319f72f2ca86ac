"""Queues through the key-value API, asynchronous: ``enqueue``, ``listen`` and the listener.

Rules of this module: what a message goes through is decided in ``kvmodels.flows.queue``; here are the tasks. Names,
signatures and behaviour are those of ``kvmodels.kv_queue``, which a test compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import weakref
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from kvmodels.drivers_async import arun
from kvmodels.engines.base import Engine
from kvmodels.engines.signals import RECHECK_S
from kvmodels.errors import ClosedError, KvModelsError, UnsupportedError
from kvmodels.flows import keyvalue
from kvmodels.flows import queue as queueing
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key
from kvmodels.kv_opening import Opening
from kvmodels.kv_queue import DEFAULT_LEASE_S, PASSING_ERRORS, listening_arguments
from kvmodels.kv_reading_async import AsyncKvReading, opened
from kvmodels.operations import CommitResult
from kvmodels.ulid import ULID

__all__ = ["AsyncKvQueueing", "AsyncQueueListener", "astop_listeners"]

_log = logging.getLogger("kvmodels.queue")


class AsyncKvQueueing(AsyncKvReading):
    """The queue of a store."""

    __slots__ = ()

    async def enqueue(
        self,
        value: Any,
        *,
        delay: float | timedelta = 0,
        keys_if_undelivered: Iterable[Key] = (),
        backoff_schedule: Iterable[float | timedelta] | None = None,
    ) -> CommitResult:
        """Put a message into the queue: one commit. ``atomic().enqueue`` does it together with other writes.

        Args:
            value: the message, any value that can be stored.
            delay: seconds or a timedelta, at most 30 days, before it is delivered.
            keys_if_undelivered: where the message is stored when every delivery has failed.
            backoff_schedule: seconds or timedeltas before each further delivery of a message whose handler failed,
                at most 5 of an hour each; None for 0.1, 1, 5, 30 and 60 seconds, ``()`` for no further delivery.

        Returns:
            The result with the versionstamp; it is always true.

        Raises:
            InvalidValueError, ValueTooLargeError: the message cannot be stored, or a duration is none.
            InvalidArgumentError: a duration is out of range, or there are too many.
            InvalidKeyError, ReservedKeyError, KeyTooLargeError: a key that cannot be written.
            CommitUnknownError: the answer was lost; the message may be in the queue.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         return (await kv.enqueue({"to": "ada@example.org"}, delay=60)).ok
            >>> asyncio.run(main())
            True
        """
        new = queueing.new_message(
            self._form,
            str(ULID()),
            value,
            delay=delay,
            keys_if_undelivered=keys_if_undelivered,
            backoff_schedule=backoff_schedule,
        )
        engine = await opened(self._opening)
        limits = self._form.limits_within(engine.limits)
        return await arun(
            engine, keyvalue.commit_operation(self._form, limits, keyvalue.PendingWrite((), (), {}, (new,)))
        )

    def listen(
        self,
        handler: Callable[[Any], object],
        *,
        concurrency: int = 1,
        lease: float | timedelta = DEFAULT_LEASE_S,
    ) -> AsyncQueueListener:
        """Have messages of the queue handled, from now on, in tasks of their own.

        Every message is handled at least once. Several listeners, of several processes as well, share the messages.
        No order is promised. A message is acknowledged when its handler returns, and what a coroutine function returns
        is awaited. When the handler raises, the message is delivered again by its schedule, and after that it is stored
        under its ``keys_if_undelivered``. When the process dies, it is delivered again after the lease, which is
        renewed while the handler runs; a handler that blocks the event loop also blocks the renewal.

        The tasks do not keep the program from ending: await ``wait()`` if there is nothing else to do. Closing the
        store stops the listener and waits for the handlers that run.

        Args:
            handler: called with the message, up to ``concurrency`` times at once; a coroutine function or a plain one.
            concurrency: how many messages are handled at a time, 1 or more.
            lease: seconds or a timedelta, 0.1 or more, after which the message of a dead process is delivered again.

        Returns:
            The listener, to stop it or to wait for it; as a context manager it stops at the end.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument that makes no sense.
            UnsupportedError: no event loop is running here.

        Example:
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     handled = asyncio.Queue()
            ...     async with open_async_kv() as kv, kv.listen(handled.put):
            ...         await kv.enqueue("hello")
            ...         return await handled.get()
            >>> asyncio.run(main())
            'hello'
        """
        lease_ms = listening_arguments(handler, concurrency, lease)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UnsupportedError(
                "no event loop is running", reason="listen", hint="Call listen inside a coroutine."
            ) from None
        return AsyncQueueListener(self._opening, self._form, handler, concurrency, lease_ms)


class AsyncQueueListener:
    """Hands messages to a handler until it is stopped or the store is closed; made by ``AsyncKv.listen``.

    One task takes messages and renews leases; each message is handled in a task of its own.

    Args:
        opening: where the queue is stored, open or to be opened.
        form: which part of the store it belongs to.
        handler: called with each message.
        concurrency: how many messages are handled at a time.
        lease_ms: how long a message is out of reach of others without renewal.
    """

    def __init__(
        self, opening: Opening, form: StoreFormat, handler: Callable[[Any], object], concurrency: int, lease_ms: int
    ) -> None:
        self._opening = opening
        self._form = form
        self._handler = handler
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._stopping = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._in_work: dict[asyncio.Task[None], _Work] = {}
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._listen())

    async def stop(self, seconds: float | None = None) -> bool:
        """Take no more messages and wait for the handlers that run; may be called twice, and from a handler.

        Args:
            seconds: how long to wait at most; None for as long as it takes. From a handler nothing is waited for.

        Returns:
            Whether every handler has ended.

        Raises:
            KvModelsError: what ended the listener before.
        """
        self._stopping = True
        self._changed.set()
        return await self.wait(seconds)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the listener has ended: it was stopped, or the store was closed.

        Args:
            seconds: how long to wait at most; None for as long as it takes.

        Returns:
            Whether it has ended.

        Raises:
            KvModelsError: what ended it, unless it was stopped or the store was closed.
        """
        if asyncio.current_task() not in self._in_work:
            await asyncio.wait((self._task,), timeout=seconds)
        if not self._task.done():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _wake(self) -> None:
        # A closed loop refuses the call, and then nobody waits in it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)

    # --- the task that takes messages -----------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            engine = await opened(self._opening)
        except Exception as error:  # noqa: BLE001 - kept for whoever waits
            self._end(error)
            return
        try:
            _listeners.setdefault(engine, []).append(self)
            unsubscribe = engine.subscribe(self._wake)
            try:
                while not self._stopping:
                    await self._pause(lambda: self._take(engine))
            finally:
                unsubscribe()
        except Exception as error:  # noqa: BLE001 - kept for whoever waits
            self._end(error)
        finally:
            while self._in_work:
                await self._pause(None)
            _listeners[engine].remove(self)

    def _end(self, error: Exception) -> None:
        if not isinstance(error, ClosedError):
            self._failure = error
            _log.error("the listener of a queue has ended", exc_info=error)

    async def _pause(self, act: Callable[[], Awaitable[float]] | None) -> None:
        """Renew what is due, act, and sleep until something happens, at most for what ``act`` returns."""
        # Cleared first: what happens from here on leaves it set.
        self._changed.clear()
        due_in = RECHECK_S
        for work in list(self._in_work.values()):
            due_in = min(due_in, await work.renew())
        pause = RECHECK_S if act is None else await act()
        if pause > 0:
            with contextlib.suppress(TimeoutError):  # the end of the pause
                await asyncio.wait_for(self._changed.wait(), min(pause, due_in))

    async def _take(self, engine: Engine) -> float:
        """Take a message if there is room for one; seconds until there may be another."""
        if len(self._in_work) >= self._concurrency:
            return RECHECK_S
        try:
            taken = await arun(engine, queueing.take_message(self._form, str(ULID()), self._lease_ms, random.randrange))
        except PASSING_ERRORS as error:
            _log.warning("no message could be taken; trying again", exc_info=error)
            return RECHECK_S
        if not isinstance(taken, queueing.Delivery):
            return RECHECK_S if taken is None else min(taken, RECHECK_S)
        work = _Work(engine, taken, self._lease_ms)
        task = self._loop.create_task(self._handle(work))
        self._in_work[task] = work
        task.add_done_callback(self._forget)
        return 0

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._in_work.pop(task, None)
        self._changed.set()

    # --- the task of one message ----------------------------------------------------------------------------------

    async def _handle(self, work: _Work) -> None:
        failure: BaseException | None = None
        try:
            result = self._handler(work.delivery.value())
            if inspect.isawaitable(result):
                await result
        except BaseException as error:  # noqa: BLE001 - a message fails whatever ends its handler, SystemExit as well
            failure = error
        task = asyncio.current_task()
        if failure is not None and task is not None and task.cancelling():
            # The loop is being shut down: nothing may be awaited, and the lease gives the message back.
            raise failure
        await work.settle(failure)


class _Work:
    """A message in work, whose steps are taken one after the other."""

    def __init__(self, engine: Engine, delivery: queueing.Delivery, lease_ms: int) -> None:
        self.delivery = delivery
        self._engine = engine
        self._lease_ms = lease_ms
        self._lock = asyncio.Lock()
        self._held = True
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + self._renewal_s

    @property
    def _renewal_s(self) -> float:
        return self._lease_ms / 3000

    async def renew(self) -> float:
        """Renew the lease if it is time; seconds until it is again."""
        async with self._lock:
            if self._held and self._loop.time() >= self._due:
                self._due = self._loop.time() + self._renewal_s
                try:
                    self._held = await arun(self._engine, self.delivery.extend(self._lease_ms))
                except ClosedError:
                    self._held = False
                except KvModelsError as error:
                    _log.warning("the lease of a message could not be renewed; trying again", exc_info=error)
            return max(0.0, self._due - self._loop.time()) if self._held else RECHECK_S

    async def settle(self, failure: BaseException | None) -> None:
        """Acknowledge the message, or put it back."""
        async with self._lock:
            self._held = False
            try:
                if failure is None:
                    if not await arun(self._engine, self.delivery.acknowledge()):
                        _log.warning("the lease of a message was lost while its handler ran; it is delivered again")
                    return
                again = await arun(self._engine, self.delivery.fail())
            except KvModelsError as error:
                _log.warning("a message could not be settled; it is delivered again after its lease", exc_info=error)
            else:
                _log.warning("the handler of a message failed; next delivery in seconds: %s", again, exc_info=failure)


_listeners: weakref.WeakKeyDictionary[Engine, list[AsyncQueueListener]] = weakref.WeakKeyDictionary()
"""The listeners of every engine, so that closing a store can wait for their handlers."""


async def astop_listeners(engine: Engine) -> None:
    """Stop every listener of an engine and wait for the handlers that run."""
    listeners = list(_listeners.get(engine, ()))
    for listener in listeners:
        with contextlib.suppress(Exception):  # it was logged when it ended the listener
            await listener.stop()
