"""Locks through the key-value API, synchronous.

Rules of this module: what holds is decided in ``kvmodels.flows.lock``; here is the thread that renews. Names,
signatures and behaviour are those of ``kvmodels.kv_lock_async``, which a test compares.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from kvmodels.drivers import run
from kvmodels.engines.base import Engine
from kvmodels.errors import ClosedError, InvalidArgumentError, KvModelsError, LockLostError, RetriesExhaustedError
from kvmodels.flows import lock as lock_flows
from kvmodels.flows.arguments import require_text
from kvmodels.flows.durations import duration_ms
from kvmodels.flows.store_format import StoreFormat
from kvmodels.kv_reading import KvReading
from kvmodels.ulid import ULID

__all__ = ["DEFAULT_TTL_S", "KvLocking", "Lock", "lock_arguments", "lost_lock", "not_obtained", "require_held"]

_log = logging.getLogger("kvmodels.lock")

DEFAULT_TTL_S: Final = 15.0
SHORTEST_TTL_MS: Final = 100
LONGEST_TTL_MS: Final = 24 * 3600 * 1000
LONGEST_WAIT_MS: Final = 365 * 24 * 3600 * 1000


class KvLocking(KvReading):
    """The locks of a store."""

    __slots__ = ()

    def lock(self, name: str, *, ttl: float | timedelta = DEFAULT_TTL_S, wait: float | timedelta | None = None) -> Lock:
        """A lock that one holder at a time has, among all threads and processes that use the store.

        It is a lease: renewed in the background while it is held, and free again ``ttl`` after its holder has died. A
        holder that was paused for longer has lost it without having noticed: ``check()``, the end of the ``with``
        statement and ``release()`` say so by LockLostError. Between a check and the write that follows, only the
        resource itself can refuse: give it ``fencing_token`` and let it refuse one that is lower than the last it saw.

        Who waits is served in the order of arrival. The lock is not reentrant, and a ``Lock`` is for one thread.

        Args:
            name: which lock; any text that is not empty.
            ttl: seconds or a timedelta, 0.1 or more: how long a dead or paused holder keeps it.
            wait: seconds or a timedelta to wait for it at most; 0 for one look, None for ever.

        Returns:
            The lock, not held yet; use it in a ``with`` statement.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument that makes no sense.

        Example:
            >>> from kvmodels import open_kv
            >>> with open_kv() as kv:
            ...     with kv.lock("report", ttl=30, wait=5) as lock:
            ...         lock.check()
            ...         first = lock.fencing_token
            ...     with kv.lock("report") as lock:
            ...         print(lock.fencing_token > first, kv.lock("report", wait=0).acquire())
            True False
        """
        ttl_ms, wait_s = lock_arguments(name, ttl, wait)
        return Lock(self._engine, self._form, name, ttl_ms, wait_s)


class Lock:
    """A lock of a store; made by ``Kv.lock``. It may be taken again after it was released.

    Args:
        engine: where it is stored.
        form: which part of the store it belongs to.
        name: of the lock.
        ttl_ms: how long it is held without renewal.
        wait_s: how long ``acquire`` waits at most.
    """

    __slots__ = ("_claim", "_engine", "_form", "_lost", "_name", "_renewing", "_stop", "_ttl_ms", "_wait_s")

    def __init__(self, engine: Engine, form: StoreFormat, name: str, ttl_ms: int, wait_s: float) -> None:
        self._engine = engine
        self._form = form
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait_s = wait_s
        self._claim: lock_flows.LockClaim | None = None
        self._lost = False
        self._stop = threading.Event()
        self._renewing: threading.Thread | None = None

    @property
    def name(self) -> str:
        """Which lock it is."""
        return self._name

    @property
    def fencing_token(self) -> int:
        """A number that is greater than that of every earlier holder, for the resource to compare.

        It is below 2**53 on the engines of this library, and stays what it is until the lock is released.

        Raises:
            InvalidArgumentError: the lock is not held.
        """
        return require_held(self._claim).fencing_token

    def check(self) -> None:
        """Make sure that the lock is still held; asks nobody and costs nothing.

        Raises:
            LockLostError: the lease has ended.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        if self._lost or self._engine.now_ms() >= claim.held_until_ms:
            raise lost_lock(self._name, claim)

    def acquire(self) -> bool:
        """Take the lock: one read and one commit when it is free.

        Returns:
            Whether it was taken; False when it was not free in the time that ``wait`` gives.

        Raises:
            InvalidArgumentError: this object holds it already.
            KeyTooLargeError: the name is too long.
        """
        if self._claim is not None:
            raise InvalidArgumentError(
                "the lock is held already",
                argument="name",
                value=self._name,
                hint="It is not reentrant: release it first, or make another object with kv.lock().",
            )
        claim = lock_flows.LockClaim(self._form, self._name, str(ULID()), self._ttl_ms)
        limits = self._form.limits_within(self._engine.limits)
        try:
            taken = run(self._engine, claim.acquire(limits, self._wait_s, time.monotonic))
        except BaseException:
            with contextlib.suppress(KvModelsError):  # the first error counts, and tickets expire
                run(self._engine, claim.withdraw())
            raise
        if taken:
            self._claim, self._lost, self._stop = claim, False, threading.Event()
            self._renewing = threading.Thread(
                target=self._renew, args=(claim, self._stop), name="kvmodels-lock", daemon=True
            )
            self._renewing.start()
        return taken

    def release(self) -> None:
        """Give the lock back: one commit, which touches nothing if another holder has it.

        Raises:
            LockLostError: it was lost before.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        self._stop.set()
        if self._renewing is not None:
            self._renewing.join()
        self._claim = self._renewing = None
        released = run(self._engine, claim.release())
        if self._lost or not released:
            raise lost_lock(self._name, claim)

    def __enter__(self) -> Self:
        if not self.acquire():
            raise not_obtained(self._name, self._wait_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))  # what the body raised says more

    def __repr__(self) -> str:
        return f"<Lock {self._name!r} of {self._engine.url}>"

    def _renew(self, claim: lock_flows.LockClaim, stop: threading.Event) -> None:
        while not stop.wait(self._ttl_ms / 3000):
            try:
                held = run(self._engine, claim.renew())
            except ClosedError:
                return
            except KvModelsError as error:
                _log.warning("a lock could not be renewed; trying again", exc_info=error)
                continue
            if not held:
                self._lost = True
                _log.warning("the lock %r was lost while it was held", self._name)
                return


def lock_arguments(name: object, ttl: object, wait: object) -> tuple[int, float]:
    """Check the arguments of ``lock``; the lease in milliseconds and the longest wait in seconds.

    Raises:
        InvalidArgumentError, InvalidValueError: one that makes no sense.
    """
    require_text("name", name, "Give a str that is not empty, without lone surrogates.")
    ttl_ms = duration_ms("ttl", ttl, shortest_ms=SHORTEST_TTL_MS, longest_ms=LONGEST_TTL_MS)
    return ttl_ms, math.inf if wait is None else duration_ms("wait", wait, longest_ms=LONGEST_WAIT_MS) / 1000


def require_held(claim: lock_flows.LockClaim | None) -> lock_flows.LockClaim:
    """The claim of a lock that is held.

    Raises:
        InvalidArgumentError: it is not.
    """
    if claim is None:
        raise InvalidArgumentError("the lock is not held", hint="Use it inside a with statement, or acquire() it.")
    return claim


def lost_lock(name: str, claim: lock_flows.LockClaim) -> LockLostError:
    """The error for a holder whose lease has ended."""
    return LockLostError("the lock was lost while it was held", name=name, fencing_token=claim.fencing_token)


def not_obtained(name: str, wait_s: float) -> RetriesExhaustedError:
    """The error for a ``with`` statement that got no lock in time."""
    return RetriesExhaustedError(
        "the lock was not free in time",
        elapsed_s=wait_s,
        failed_checks=(name,),
        hint="Another holder has it: wait longer, or use acquire(), which returns False.",
    )
