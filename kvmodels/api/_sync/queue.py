# Generated from kvmodels/api/_async/queue.py by tools/unasync.py. Do not edit.
"""QueueListener: takes messages from a queue and calls a handler for each.

Rules of this module: ``kvmodels.flows.kv.queue`` contains the rules of message delivery; this module contains the
workers that take and handle messages.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self, TypeVar

from kvmodels.api._sync._compat import (
    Event,
    Mutex,
    Worker,
    call_handler,
    current_worker,
    engine_of,
    from_any_thread,
    is_being_cancelled,
    join_worker,
    perform,
    run,
    start_worker,
)
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_copies, refuse_other_with
from kvmodels.core.ulid import ULID
from kvmodels.engines.contract import Engine
from kvmodels.engines.shared.threads import is_missing_thread
from kvmodels.engines.shared.waiting import RECHECK_S
from kvmodels.errors import (
    ClosedError,
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    InvalidArgumentError,
    KvModelsError,
    StorageFullError,
    TenantNotFoundError,
    TenantRemovedError,
)
from kvmodels.flows.arguments import duration_ms, require_callable
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv import queue as queueing
from kvmodels.flows.kv.leases import POLL_S, Leases
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.kv.tenant_queues import TenantRota
from kvmodels.runtime.observing import observation as observing

T = TypeVar("T")

_log = logging.getLogger("kvmodels.queue")

SHORTEST_LEASE_MS: Final = 100
LONGEST_LEASE_MS: Final = 24 * 3600 * 1000

PASSING_ERRORS: Final = (EngineTimeoutError, CommitUnknownError, StorageFullError)


def is_passing(error: EngineError) -> bool:
    """Return whether a listener continues after an error because a retry may succeed."""
    return isinstance(error, PASSING_ERRORS) or is_missing_thread(error)


class QueueListener:
    """Passes messages to a handler until it is stopped or the store is closed; created by ``Kv.listen``.

    One task or thread takes messages and renews leases; a separate one handles each message.
    """

    def __init__(
        self, opening: Opening, form: StoreFormat, handler: Callable[..., object], concurrency: int, lease_ms: int
    ) -> None:
        self._opening = opening
        self._form = form
        self._handler = handler
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._stopping = False
        self._failure: Exception | None = None
        self._changed = Event()
        self._in_work: set[Work] = set()
        opening.listeners.add(self)
        try:
            self._worker = start_worker(self._listen, "kvmodels-queue", url=opening.url)
        except BaseException:
            self._stopping = True  # an interrupt may arrive after the thread was started
            self._changed.set()
            opening.listeners.discard(self)
            raise

    def stop(self, seconds: float | None = None) -> bool:
        """Take no more messages and wait for running handlers; idempotent, and allowed in a handler.

        Args:
            seconds: the maximum time to wait; None for no limit. A call from a handler does not wait.

        Returns:
            Whether every handler has ended.

        Raises:
            KvModelsError: the error that had ended the listener.
        """
        self._stopping = True
        self._changed.set()
        return self.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the listener has ended because it was stopped or the store was closed.

        Args:
            seconds: the maximum time to wait; None for no limit.

        Returns:
            Whether it has ended.

        Raises:
            KvModelsError: the error that ended the listener.
        """
        worker = current_worker()
        if any(work.worker is worker for work in list(self._in_work)):
            return False
        if not join_worker(self._worker, seconds):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the worker that takes messages ---------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            engine = engine_of(self._opening)
            traits = engine.capabilities.traits
            self._begin(engine)
            recheck_s = RECHECK_S if traits.tells_commits else POLL_S
            unsubscribe = engine.subscribe(from_any_thread(self._changed.set)) if traits.tells_commits else None
            try:
                while not self._stopping:
                    self._pause(lambda: self._take(engine, recheck_s))
            finally:
                if unsubscribe is not None:
                    unsubscribe()
        except ClosedError:
            pass  # closing the store ends the listener normally
        except Exception as error:  # noqa: BLE001 - kept for the caller of wait()
            self._failure = error
            _log.error("the listener of a queue has ended", exc_info=error)
        finally:
            while self._in_work:
                self._pause(None)
            self._opening.listeners.discard(self)

    def _pause(self, act: Callable[[], float] | None) -> None:
        """Renew leases, call ``act``, and sleep until an event, at most for the seconds that ``act`` returns."""
        # Cleared first, so that later events set it again.
        self._changed.clear()
        due_in = RECHECK_S
        for work in list(self._in_work):
            due_in = min(due_in, work.renew())
        pause = RECHECK_S if act is None else act()
        if pause > 0:
            self._changed.wait_for(min(pause, due_in))

    def _begin(self, engine: Engine) -> None:
        """Prepare for the first message."""
        self._leases = Leases(engine.capabilities.traits, time.monotonic)

    def _take(self, engine: Engine, recheck_s: float) -> float:
        """Take a message if there is capacity; return the seconds until the next possible message."""
        if len(self._in_work) >= self._concurrency:
            return RECHECK_S
        try:
            work = self._next(engine)
        except EngineError as error:
            if not is_passing(error):
                raise
            _log.warning("no message could be taken; trying again", exc_info=error)
            return RECHECK_S
        if not isinstance(work, Work):
            return recheck_s if work is None else min(work, recheck_s)
        self._in_work.add(work)
        try:
            start_worker(
                lambda: self._handle(work), "kvmodels-message", url=engine.url, ended=lambda: self._forget(work)
            )
        except EngineError as error:
            self._in_work.discard(work)
            _log.warning("a message was put back, because no thread could be started for it", exc_info=error)
            work.put_back()
            return RECHECK_S
        return 0

    def _next(self, engine: Engine) -> Work | float | None:
        """Take a message; or return the seconds until the next one is ready, or None if there is none."""
        taken = take(self._opening, engine, self._form, self._lease_ms, self._leases)
        if isinstance(taken, queueing.Delivery):
            return Work(self._opening, taken, self._lease_ms, self._handler)
        return taken

    def _forget(self, work: Work) -> None:
        self._in_work.discard(work)
        self._changed.set()

    # --- the worker of one message --------------------------------------------------------------------------------

    def _handle(self, work: Work) -> None:
        work.worker = current_worker()
        failure: BaseException | None = None
        try:
            call_handler(work.handler, work.delivery.value())
        except BaseException as error:  # noqa: BLE001 - a message fails whatever ends its handler, SystemExit as well
            failure = error
        if failure is not None and is_being_cancelled():
            raise failure  # the message is redelivered after its lease
        work.settle(failure)


def take(
    opening: Opening, engine: Engine, form: StoreFormat, lease_ms: int, leases: Leases
) -> queueing.Delivery | float | None:
    """Take a message of a queue, and report it to observers, unlike the many looks at an empty queue."""
    taking = queueing.take_message(form, str(ULID()), lease_ms, random.randrange, leases)
    observation = opening.observation("take")
    taken = run(engine, observing.through(observation, taking))
    if observation is not None and isinstance(taken, queueing.Delivery):
        observation.finish()
    return taken


class Work:
    """A message that is being handled, with its steps in order.

    ``handler``: is called with the message. ``tenant``: the tenant whose message it is.
    """

    def __init__(
        self,
        opening: Opening,
        delivery: queueing.Delivery,
        lease_ms: int,
        handler: Callable[[Any], object],
        tenant: str | None = None,
    ) -> None:
        self.delivery = delivery
        self.handler = handler
        self.tenant = tenant
        self._opening = opening
        self._lease_ms = lease_ms
        self._lock = Mutex()
        self._held = True
        self._renewal_s = lease_ms / 3000
        self._due = time.monotonic() + self._renewal_s
        self.worker: Worker | None = None
        """The worker that handles the message."""

    def _run(self, verb: str, flow: Flow[T]) -> T:
        return perform(self._opening.open(), flow, self._opening.observation(verb))

    def renew(self) -> float:
        """Renew the lease if it is due; return the seconds until the next renewal."""
        with self._lock:
            if self._held and time.monotonic() >= self._due:
                self._due = time.monotonic() + self._renewal_s
                try:
                    self._held = self._run("renew", self.delivery.extend(self._lease_ms))
                except ClosedError:
                    self._held = False
                except KvModelsError as error:
                    _log.warning("the lease of a message could not be renewed; trying again: %s", error)
            return max(0.0, self._due - time.monotonic()) if self._held else RECHECK_S

    def put_back(self) -> None:
        """Return the message to the queue unhandled."""
        with self._lock:
            self._held = False
            try:
                self._run("put_back", self.delivery.put_back(RECHECK_S))
            except KvModelsError as error:
                _log.warning("a message could not be put back; it is delivered after its lease", exc_info=error)

    def settle(self, failure: BaseException | None) -> None:
        """Acknowledge the message, or return it to the queue after a failure."""
        with self._lock:
            self._held = False
            try:
                if failure is None:
                    if not self._run("acknowledge", self.delivery.acknowledge()):
                        _log.warning("the lease of a message was lost while its handler ran; it is delivered again")
                    return
                again = self._run("fail", self.delivery.fail())
            except KvModelsError as error:
                _log.warning("a message could not be settled; it is delivered again after its lease", exc_info=error)
            else:
                if again is None:
                    text = "the handler of a message failed; it was given up, or another listener has it"
                    _log.warning(text, exc_info=failure)
                else:
                    text = "the handler of a message failed; it is delivered again after %g seconds"
                    _log.warning(text, again, exc_info=failure)


class TenantsListener(QueueListener):
    """Passes the messages of all tenants to a handler; created by ``Database.listen_tenants``.

    ``queue_of``: returns the opening and the format of the queue of a tenant, and its database. ``options``: the
    concurrency, and the lease in milliseconds.
    """

    def __init__(
        self,
        opening: Opening,
        form: StoreFormat,
        queue_of: Callable[[str], tuple[Opening, StoreFormat, Any]],
        handler: Callable[[Any, Any], object],
        options: tuple[int, int],
    ) -> None:
        self._queue_of = queue_of
        self._of_tenants = handler
        super().__init__(opening, form, handler, *options)

    def _begin(self, engine: Engine) -> None:
        self._rota = TenantRota(engine.limits, engine.capabilities.traits, time.monotonic)

    def _next(self, engine: Engine) -> Work | float | None:
        rota = self._rota
        pause = run(engine, rota.look())
        busy = Counter(work.tenant for work in list(self._in_work) if work.tenant is not None)
        while (name := rota.turn(busy)) is not None:
            work = self._next_of(name)
            if work is not None:
                return work
        return pause

    def _next_of(self, name: str) -> Work | None:
        """Take a message of a tenant; None if it has none that is ready, or cannot be used."""
        rota = self._rota
        try:
            opening, form, view = self._queue_of(name)
            taken = take(opening, opening.open(), form, self._lease_ms, rota.leases(name))
        except TenantNotFoundError:
            rota.leave(name)
            return None
        except TenantRemovedError:
            rota.rest(name, RECHECK_S)  # it is being removed, or was created again
            return None
        except (ClosedError, EngineError):
            rota.call_back(name)
            raise
        except KvModelsError as error:
            _log.warning("no message of a tenant could be taken; the others are handled meanwhile", exc_info=error)
            rota.rest(name, RECHECK_S)
            return None
        if isinstance(taken, queueing.Delivery):
            rota.call_back(name)
            return Work(opening, taken, self._lease_ms, partial(self._of_tenants, view), name)
        rota.leave(name, taken)
        return None


def listening_arguments(handler: object, concurrency: object, lease: object) -> int:
    """Return the lease in milliseconds, after checking the arguments of ``listen``."""
    require_callable("handler", handler, "Give a function of one argument, the message.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidArgumentError(
            "the concurrency must be a positive integer",
            argument="concurrency",
            value=concurrency,
            hint="Give 1 or more.",
        )
    return duration_ms("lease", lease, shortest_ms=SHORTEST_LEASE_MS, longest_ms=LONGEST_LEASE_MS)


refuse_copies(QueueListener, TenantsListener)
refuse_other_with(QueueListener)
