"""Locks through the key-value API, asynchronous.

Rules of this module: what holds is decided in ``kvmodels.flows.lock``; here is the task that renews. Names, signatures
and behaviour are those of ``kvmodels.kv_lock``, which a test compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from kvmodels.drivers_async import arun
from kvmodels.engines.base import Engine
from kvmodels.errors import ClosedError, InvalidArgumentError, KvModelsError, LockLostError
from kvmodels.flows import lock as lock_flows
from kvmodels.flows.store_format import StoreFormat
from kvmodels.kv_lock import DEFAULT_TTL_S, lock_arguments, lost_lock, not_obtained, require_held
from kvmodels.kv_opening import Opening
from kvmodels.kv_reading_async import AsyncKvReading, opened
from kvmodels.ulid import ULID

__all__ = ["AsyncKvLocking", "AsyncLock"]

_log = logging.getLogger("kvmodels.lock")


class AsyncKvLocking(AsyncKvReading):
    """The locks of a store."""

    __slots__ = ()

    def lock(
        self, name: str, *, ttl: float | timedelta = DEFAULT_TTL_S, wait: float | timedelta | None = None
    ) -> AsyncLock:
        """A lock that one holder at a time has, among all threads and processes that use the store.

        It is a lease: renewed in the background while it is held, and free again ``ttl`` after its holder has died. A
        holder that was paused for longer has lost it without having noticed: ``check()``, the end of the ``async with``
        statement and ``release()`` say so by LockLostError. Between a check and the write that follows, only the
        resource itself can refuse: give it ``fencing_token`` and let it refuse one that is lower than the last it saw.

        Who waits is served in the order of arrival. The lock is not reentrant, and an ``AsyncLock`` is for one task.

        Args:
            name: which lock; any text that is not empty.
            ttl: seconds or a timedelta, 0.1 or more: how long a dead or paused holder keeps it.
            wait: seconds or a timedelta to wait for it at most; 0 for one look, None for ever.

        Returns:
            The lock, not held yet; use it in an ``async with`` statement.

        Raises:
            InvalidArgumentError, InvalidValueError: an argument that makes no sense.

        Example:
            >>> import asyncio
            >>> from kvmodels import open_async_kv
            >>> async def main():
            ...     async with open_async_kv() as kv:
            ...         async with kv.lock("report", ttl=30, wait=5) as lock:
            ...             lock.check()
            ...             first = lock.fencing_token
            ...         async with kv.lock("report") as lock:
            ...             return lock.fencing_token > first, await kv.lock("report", wait=0).acquire()
            >>> asyncio.run(main())
            (True, False)
        """
        ttl_ms, wait_s = lock_arguments(name, ttl, wait)
        return AsyncLock(self._opening, self._form, name, ttl_ms, wait_s)


class AsyncLock:
    """A lock of a store; made by ``AsyncKv.lock``. It may be taken again after it was released.

    Args:
        opening: where it is stored, open or to be opened.
        form: which part of the store it belongs to.
        name: of the lock.
        ttl_ms: how long it is held without renewal.
        wait_s: how long ``acquire`` waits at most.
    """

    __slots__ = ("_claim", "_form", "_lost", "_name", "_opening", "_renewing", "_stop", "_ttl_ms", "_wait_s")

    def __init__(self, opening: Opening, form: StoreFormat, name: str, ttl_ms: int, wait_s: float) -> None:
        self._opening = opening
        self._form = form
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait_s = wait_s
        self._claim: lock_flows.LockClaim | None = None
        self._lost = False
        self._stop = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

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
        """Make sure that the lock is still held; asks nobody and costs nothing, so there is nothing to await.

        Raises:
            LockLostError: the lease has ended.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        engine = self._opening.engine
        if self._lost or engine is None or engine.now_ms() >= claim.held_until_ms:
            raise lost_lock(self._name, claim)

    async def acquire(self) -> bool:
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
        engine = await opened(self._opening)
        limits = self._form.limits_within(engine.limits)
        try:
            taken = await arun(engine, claim.acquire(limits, self._wait_s, time.monotonic))
        except BaseException:
            with contextlib.suppress(KvModelsError):  # the first error counts, and tickets expire
                await arun(engine, claim.withdraw())
            raise
        if taken:
            self._claim, self._lost, self._stop = claim, False, asyncio.Event()
            self._renewing = asyncio.create_task(self._renew(engine, claim, self._stop))
        return taken

    async def release(self) -> None:
        """Give the lock back: one commit, which touches nothing if another holder has it.

        Raises:
            LockLostError: it was lost before.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        self._stop.set()
        if self._renewing is not None:
            await asyncio.wait((self._renewing,))
        self._claim = self._renewing = None
        released = await arun(await opened(self._opening), claim.release())
        if self._lost or not released:
            raise lost_lock(self._name, claim)

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            raise not_obtained(self._name, self._wait_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))  # what the body raised says more

    def __repr__(self) -> str:
        return f"<AsyncLock {self._name!r}>"

    async def _renew(self, engine: Engine, claim: lock_flows.LockClaim, stop: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._ttl_ms / 3000)
            if stop.is_set():
                return
            try:
                held = await arun(engine, claim.renew())
            except ClosedError:
                return
            except KvModelsError as error:
                _log.warning("a lock could not be renewed; trying again", exc_info=error)
                continue
            if not held:
                self._lost = True
                _log.warning("the lock %r was lost while it was held", self._name)
                return
