"""Queues through the key-value API, synchronous: ``enqueue``, ``listen`` and the listener.

Rules of this module: what a message goes through is decided in ``kvmodels.flows.queue``; here are the threads. Names,
signatures and behaviour are those of ``kvmodels.kv_queue_async``, which a test compares.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from kvmodels.drivers import run
from kvmodels.engines.base import Engine
from kvmodels.engines.signals import RECHECK_S
from kvmodels.errors import (
    ClosedError,
    CommitUnknownError,
    EngineTimeoutError,
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    StorageFullError,
)
from kvmodels.flows import keyvalue
from kvmodels.flows import queue as queueing
from kvmodels.flows.arguments import require_callable
from kvmodels.flows.durations import duration_ms
from kvmodels.flows.store_format import StoreFormat
from kvmodels.keys import Key
from kvmodels.kv_reading import KvReading
from kvmodels.operations import CommitResult
from kvmodels.ulid import ULID

__all__ = ["DEFAULT_LEASE_S", "PASSING_ERRORS", "KvQueueing", "QueueListener", "listening_arguments", "stop_listeners"]

_log = logging.getLogger("kvmodels.queue")

DEFAULT_LEASE_S: Final = 30.0
SHORTEST_LEASE_MS: Final = 100
LONGEST_LEASE_MS: Final = 24 * 3600 * 1000

PASSING_ERRORS: Final = (EngineTimeoutError, CommitUnknownError, StorageFullError)
"""What a listener goes on after: another attempt may succeed."""


class KvQueueing(KvReading):
    """The queue of a store."""

    __slots__ = ()

    def enqueue(
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
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     kv.enqueue({"to": "ada@example.org"}, delay=60, keys_if_undelivered=[("failed", 1)]).ok
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
        return run(
            self._engine, keyvalue.commit_operation(self._form, self._limits, keyvalue.PendingWrite((), (), {}, (new,)))
        )

    def listen(
        self,
        handler: Callable[[Any], object],
        *,
        concurrency: int = 1,
        lease: float | timedelta = DEFAULT_LEASE_S,
    ) -> QueueListener:
        """Have messages of the queue handled, from now on, in threads of their own.

        Every message is handled at least once. Several listeners, of several processes as well, share the messages.
        No order is promised. A message is acknowledged when its handler returns. When the handler raises, the message
        is delivered again by its schedule, and after that it is stored under its ``keys_if_undelivered``. When the
        process dies, it is delivered again after the lease, which is renewed while the handler runs.

        The threads do not keep the program from ending: call ``wait()`` if there is nothing else to do. Closing the
        store stops the listener and waits for the handlers that run.

        Args:
            handler: called with the message, in any of up to ``concurrency`` threads; not a coroutine function.
            concurrency: how many messages are handled at a time, 1 or more.
            lease: seconds or a timedelta, 0.1 or more, after which the message of a dead process is delivered again.

        Returns:
            The listener, to stop it or to wait for it; as a context manager it stops at the end.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument that makes no sense.
            ClosedError: the store is closed.

        Example:
            >>> from kvmodels import open_kv
            >>> from queue import Queue
            >>> handled = Queue()
            >>> with open_kv() as kv, kv.listen(handled.put):
            ...     _ = kv.enqueue("hello")
            ...     handled.get(timeout=10)
            'hello'
        """
        lease_ms = listening_arguments(handler, concurrency, lease)
        if inspect.iscoroutinefunction(handler):
            raise InvalidArgumentError(
                "the handler is a coroutine function, which nobody would await",
                argument="handler",
                value=handler.__name__,
                hint="Use open_async_kv, or give a plain function.",
            )
        self._engine.now_ms()  # a closed engine does not tell the time
        return QueueListener(self._engine, self._form, handler, concurrency, lease_ms)


class QueueListener:
    """Hands messages to a handler until it is stopped or the store is closed; made by ``Kv.listen``.

    One thread takes messages and renews leases; each message is handled in a thread of its own.

    Args:
        engine: where the queue is stored.
        form: which part of the store it belongs to.
        handler: called with each message.
        concurrency: how many messages are handled at a time.
        lease_ms: how long a message is out of reach of others without renewal.
    """

    def __init__(
        self, engine: Engine, form: StoreFormat, handler: Callable[[Any], object], concurrency: int, lease_ms: int
    ) -> None:
        self._engine = engine
        self._form = form
        self._handler = handler
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._stopping = False
        self._failure: Exception | None = None
        self._changed = threading.Event()
        self._in_work: dict[threading.Thread, _Work] = {}
        self._thread = threading.Thread(target=self._listen, name="kvmodels-queue", daemon=True)
        _listeners.setdefault(engine, []).append(self)
        self._thread.start()

    def stop(self, seconds: float | None = None) -> bool:
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
        return self.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the listener has ended: it was stopped, or the store was closed.

        Args:
            seconds: how long to wait at most; None for as long as it takes.

        Returns:
            Whether it has ended.

        Raises:
            KvModelsError: what ended it, unless it was stopped or the store was closed.
        """
        if not self._is_own(threading.current_thread()):
            self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _is_own(self, thread: threading.Thread) -> bool:
        return thread is self._thread or thread in self._in_work

    # --- the thread that takes messages ---------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            unsubscribe = self._engine.subscribe(self._changed.set)
            try:
                while not self._stopping:
                    self._pause(self._take)
            finally:
                unsubscribe()
        except ClosedError:
            pass  # the store was closed, which is one way to end
        except Exception as error:  # noqa: BLE001 - kept for whoever waits
            self._failure = error
            _log.error("the listener of a queue has ended", exc_info=error)
        finally:
            while self._in_work:
                self._pause(lambda: RECHECK_S)
            _listeners[self._engine].remove(self)

    def _pause(self, act: Callable[[], float]) -> None:
        """Renew what is due, act, and sleep until something happens, at most for what ``act`` returns."""
        # Cleared first: what happens from here on leaves it set.
        self._changed.clear()
        due_in = min((work.renew() for work in list(self._in_work.values())), default=RECHECK_S)
        pause = act()
        if pause > 0:
            self._changed.wait(min(pause, due_in, RECHECK_S))

    def _take(self) -> float:
        """Take a message if there is room for one; seconds until there may be another."""
        if len(self._in_work) >= self._concurrency:
            return RECHECK_S
        try:
            taken = run(self._engine, queueing.take_message(self._form, str(ULID()), self._lease_ms, random.randrange))
        except PASSING_ERRORS as error:
            _log.warning("no message could be taken; trying again", exc_info=error)
            return RECHECK_S
        if not isinstance(taken, queueing.Delivery):
            return RECHECK_S if taken is None else taken
        work = _Work(self._engine, taken, self._lease_ms)
        thread = threading.Thread(target=self._handle, args=(work,), name="kvmodels-message", daemon=True)
        self._in_work[thread] = work
        thread.start()
        return 0

    # --- the thread of one message --------------------------------------------------------------------------------

    def _handle(self, work: _Work) -> None:
        try:
            failure = self._call(work.delivery)
            work.settle(failure)
        finally:
            self._in_work.pop(threading.current_thread(), None)
            self._changed.set()

    def _call(self, delivery: queueing.Delivery) -> BaseException | None:
        """Call the handler; what it raised."""
        try:
            result = self._handler(delivery.value())
            if inspect.iscoroutine(result):
                result.close()
                raise InvalidValueError(
                    "the handler returned a coroutine, which nobody would await",
                    type="coroutine",
                    hint="Use open_async_kv, or give a plain function.",
                )
        except BaseException as error:  # noqa: BLE001 - a message fails whatever ends its handler, SystemExit as well
            return error
        return None


class _Work:
    """A message in work, whose steps are taken one after the other."""

    def __init__(self, engine: Engine, delivery: queueing.Delivery, lease_ms: int) -> None:
        self.delivery = delivery
        self._engine = engine
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._held = True
        self._due = time.monotonic() + self._renewal_s

    @property
    def _renewal_s(self) -> float:
        return self._lease_ms / 3000

    def renew(self) -> float:
        """Renew the lease if it is time; seconds until it is again."""
        with self._lock:
            if self._held and time.monotonic() >= self._due:
                self._due = time.monotonic() + self._renewal_s
                try:
                    self._held = run(self._engine, self.delivery.extend(self._lease_ms))
                except ClosedError:
                    self._held = False
                except KvModelsError as error:
                    _log.warning("the lease of a message could not be renewed; trying again", exc_info=error)
            return max(0.0, self._due - time.monotonic()) if self._held else RECHECK_S

    def settle(self, failure: BaseException | None) -> None:
        """Acknowledge the message, or put it back."""
        with self._lock:
            self._held = False
            try:
                if failure is None:
                    if not run(self._engine, self.delivery.acknowledge()):
                        _log.warning("the lease of a message was lost while its handler ran; it is delivered again")
                    return
                again = run(self._engine, self.delivery.fail())
            except KvModelsError as error:
                _log.warning("a message could not be settled; it is delivered again after its lease", exc_info=error)
            else:
                _log.warning("the handler of a message failed; next delivery in seconds: %s", again, exc_info=failure)


def listening_arguments(handler: object, concurrency: object, lease: object) -> int:
    """Check the arguments of ``listen``; the lease in milliseconds.

    Raises:
        InvalidArgumentError, InvalidValueError: one that makes no sense.
    """
    require_callable("handler", handler, "Give a function of one argument, the message.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidArgumentError(
            "the concurrency must be a positive integer",
            argument="concurrency",
            value=concurrency,
            hint="Give 1 or more.",
        )
    return duration_ms("lease", lease, shortest_ms=SHORTEST_LEASE_MS, longest_ms=LONGEST_LEASE_MS)


_listeners: weakref.WeakKeyDictionary[Engine, list[QueueListener]] = weakref.WeakKeyDictionary()
"""The listeners of every engine, so that closing a store can wait for their handlers."""


def stop_listeners(engine: Engine) -> None:
    """Stop every listener of an engine and wait for the handlers that run."""
    listeners = list(_listeners.get(engine, ()))
    for listener in listeners:
        with contextlib.suppress(Exception):  # it was logged when it ended the listener
            listener.stop()
