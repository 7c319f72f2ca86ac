"""AsyncLock: a named lock in the store, renewed by a worker while it is held.

Rules of this module: ``kvmodels.flows.kv.lock`` contains the rules of the lock; this module contains the worker that
renews it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from types import TracebackType
from typing import Final, Self

from kvmodels.api._async._compat import AsyncEvent, Worker, engine_of, join_worker, perform, run_to_end, start_worker
from kvmodels.api.opening import Opening
from kvmodels.api.refusals import refuse_copies, refuse_other_with
from kvmodels.core.ulid import ULID
from kvmodels.engines.contract import Engine
from kvmodels.errors import ClosedError, InvalidArgumentError, KvModelsError, LockLostError, RetriesExhaustedError
from kvmodels.flows.arguments import duration_ms, require_text
from kvmodels.flows.kv import lock as lock_flows
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.store_format import StoreFormat

_log = logging.getLogger("kvmodels.lock")

SHORTEST_TTL_MS: Final = 100
LONGEST_TTL_MS: Final = 24 * 3600 * 1000
LONGEST_WAIT_MS: Final = 365 * 24 * 3600 * 1000


class AsyncLock:
    """A lock of a store; created by ``Kv.lock``. It can be acquired again after it was released."""

    __slots__ = ("_claim", "_form", "_leases", "_lost", "_name", "_opening", "_renewing", "_stop", "_ttl_ms", "_wait_s")

    def __init__(self, opening: Opening, form: StoreFormat, name: str, ttl_ms: int, wait_s: float) -> None:
        self._opening = opening
        self._form = form
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait_s = wait_s
        self._claim: lock_flows.LockClaim | None = None
        self._leases: Leases | None = None
        self._lost = False
        self._stop = AsyncEvent()
        self._renewing: Worker | None = None

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._name

    @property
    def fencing_token(self) -> int:
        """A number that is greater than the fencing token of every earlier holder, for the resource to compare.

        It is below 2**53 on the engines of this library, and constant until the lock is released.

        Raises:
            InvalidArgumentError: the lock is not held.
        """
        return require_held(self._claim).fencing_token

    def check(self) -> None:
        """Check that the lock is still held, without a request to the store.

        Raises:
            LockLostError: the lease has ended.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        engine = self._opening.engine
        if self._lost or engine is None or claim.has_ended(engine.now_ms()):
            raise lost_lock(self._name, claim)

    async def acquire(self) -> bool:
        """Acquire the lock: one read and one commit if it is free.

        An interrupt or a cancellation leaves neither the lock nor a ticket in the queue.

        Returns:
            Whether it was acquired; False if it did not become free within ``wait``.

        Raises:
            InvalidArgumentError: this object already holds the lock.
            KeyTooLargeError: the name is too long.
            EngineError: the thread that renews the lock could not be started; the lock was released.
        """
        if self._claim is not None:
            raise InvalidArgumentError(
                "the lock is held already",
                argument="name",
                value=self._name,
                hint="It is not reentrant: release it first, or make another object with kv.lock().",
            )
        engine = await engine_of(self._opening)
        limits, traits = self._form.limits_within(engine.limits), engine.capabilities.traits
        self._leases = leases = self._leases or Leases(traits, time.monotonic)
        claim = lock_flows.LockClaim(
            self._form,
            self._name,
            str(ULID()),
            self._ttl_ms,
            leases=leases,
            numbered=not traits.versionstamped_keys,
        )
        try:
            taken = await perform(engine, claim.acquire(limits, self._wait_s), self._opening.observation("acquire"))
            if taken:
                self._hold(engine, claim)
        except BaseException as error:
            self._stop.set()
            self._claim = self._renewing = None
            if not isinstance(error, GeneratorExit):  # cannot await then; lease and ticket expire
                with contextlib.suppress(KvModelsError):  # the first error is raised, and tickets expire
                    await run_to_end(lambda: perform(engine, claim.withdraw(), self._opening.observation("withdraw")))
            raise
        return taken

    def _hold(self, engine: Engine, claim: lock_flows.LockClaim) -> None:
        stop = AsyncEvent()
        self._claim, self._lost, self._stop = claim, False, stop
        self._renewing = start_worker(lambda: self._renew(engine, claim, stop), "kvmodels-lock", url=engine.url)

    async def release(self) -> None:
        """Release the lock: one commit, which changes nothing if another holder has it.

        An interrupt or a cancellation is raised after the lock was released.

        Raises:
            LockLostError: the lease had ended before.
            InvalidArgumentError: the lock is not held.
        """
        claim = require_held(self._claim)
        try:
            released = await run_to_end(lambda: self._give_back(claim))
        finally:
            self._claim = self._renewing = None
        if self._lost or not released:
            raise lost_lock(self._name, claim)

    async def _give_back(self, claim: lock_flows.LockClaim) -> bool:
        self._stop.set()
        if self._renewing is not None:
            await join_worker(self._renewing)
        engine = await engine_of(self._opening)
        return await perform(engine, claim.release(), self._opening.observation("release"))

    async def __aenter__(self) -> Self:
        if not await self.acquire():
            raise RetriesExhaustedError(
                "the lock was not free in time",
                elapsed_s=self._wait_s,
                failed_checks=(self._name,),
                hint="Another holder has it: wait longer, or use acquire(), which returns False.",
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockLostError as lost:
            if error is None:
                raise
            error.add_note(str(lost))  # the exception of the body is more informative

    def __repr__(self) -> str:
        return f"<AsyncLock {self._name!r}>"

    async def _renew(self, engine: Engine, claim: lock_flows.LockClaim, stop: AsyncEvent) -> None:
        while not await stop.wait_for(self._ttl_ms / 3000):
            try:
                held = await perform(engine, claim.renew(), self._opening.observation("renew"))
            except ClosedError:
                return
            except KvModelsError as error:
                _log.warning("the lock %r could not be renewed; trying again: %s", self._name, error)
                continue
            if not held:
                self._lost = True
                _log.warning("the lock %r was lost while it was held", self._name)
                return


def lock_arguments(name: object, ttl: object, wait: object) -> tuple[int, float]:
    """Return the lease in milliseconds and the maximum wait in seconds, after checking the arguments of ``lock``."""
    require_text("name", name, "Give a str that is not empty, without lone surrogates.")
    ttl_ms = duration_ms("ttl", ttl, shortest_ms=SHORTEST_TTL_MS, longest_ms=LONGEST_TTL_MS)
    return ttl_ms, math.inf if wait is None else duration_ms("wait", wait, longest_ms=LONGEST_WAIT_MS) / 1000


def require_held(claim: lock_flows.LockClaim | None) -> lock_flows.LockClaim:
    """Return the claim of a held lock. Raises InvalidArgumentError if it is not held."""
    if claim is None:
        raise InvalidArgumentError("the lock is not held", hint="Use it inside a with statement, or acquire() it.")
    return claim


def lost_lock(name: str, claim: lock_flows.LockClaim) -> LockLostError:
    """Return the error for a holder whose lease has ended."""
    return LockLostError("the lock was lost while it was held", name=name, fencing_token=claim.fencing_token)


refuse_copies(AsyncLock)
refuse_other_with(AsyncLock)
