"""A state of a PostgreSQL store that stays readable for the coroutines of one event loop.

Rules of this module: a snapshot ends by a rollback that is sent and not waited for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from kvmodels.core.operations import (
    Counted,
    Follow,
    ReadRange,
    ReadResult,
    to_versionstamp,
)
from kvmodels.engines.postgres.connection import Call, Calls
from kvmodels.engines.postgres.native.link import Link
from kvmodels.engines.postgres.snapshot import UNTRANSLATED, BegunSnapshot, PinnedReads, lost_or_refused
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.steps import arun_steps
from kvmodels.errors import ClosedError, KvModelsError, SnapshotExpiredError

ResultT = TypeVar("ResultT")


class PostgresAsyncSnapshot:
    """A state of a PostgreSQL store that stays readable while others write; close it soon.

    It holds a connection, and sees the deadlines as of its opening, so that two reads of it agree.

    Args:
        store: its store.
        require_open: raises ClosedError once the engine is closed.
        give_back: takes the link; for the event loop.
        begun: its link and its state, and the row that was read while it began.
    """

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _link: Link | None = None

    def __init__(
        self,
        store: PostgresStore,
        require_open: Callable[[], object],
        give_back: Callable[[Link], None],
        begun: BegunSnapshot,
    ) -> None:
        link, state, first = begun
        self._store = store
        self._require_open = require_open
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._expired = False
        self._versionstamp = to_versionstamp(state.version)
        self._now = max(store.clock.now_ms(), state.present)
        self._reads = PinnedReads(store, first, self._now)
        self._expires_ms: float = self._now + round(store.options.snapshot_max_age * 1_000)
        self._link = link

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._versionstamp

    async def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. One round trip, O(log n + rows) per range.

        Raises:
            SnapshotExpiredError: it was open for longer than the maximum age.
            SnapshotLostError: its connection was lost.
            ClosedError: the snapshot or its engine is closed; DecodeError.
        """
        self._readable()
        hiding = not include_expired
        known = self._reads.known(ranges, follow, hiding=hiding)
        if known is not None:
            return ReadResult([known], [], self._versionstamp)
        found = await self._run(self._reads.reading(ranges, follow, hiding=hiding))
        return found._replace(versionstamp=self._versionstamp)

    async def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as it."""
        return (await self._run(self._reads.counting(ranges)))._replace(versionstamp=self._versionstamp)

    def keep(self) -> None:
        """Have no maximum age."""
        self._expires_ms = math.inf

    async def aclose(self) -> None:
        """Let the engine forget the state; idempotent. It waits for nothing."""
        self._release()

    def expire(self, now: int | None) -> None:
        """Let go if the maximum age is over at ``now`` (None: in any case)."""
        if now is None or now >= self._expires_ms:
            self._expired = self._expired or self._link is not None
            self._release()

    def __del__(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(RuntimeError):  # the loop is closed, and its connections are
                self._loop.call_soon_threadsafe(self._give_back, link)

    async def _run(self, calls: Calls[ResultT]) -> ResultT:
        failure: KvModelsError
        try:
            return await arun_steps(calls, self._rows_of, UNTRANSLATED)
        except psycopg.Error as error:
            failure = lost_or_refused(error, self._store.url, self._store.schema)
        raise failure

    async def _rows_of(self, call: Call) -> list[tuple[Any, ...]]:
        return (await self._readable().call(call)).rows

    def _readable(self) -> Link:
        self._require_open()
        self.expire(self._store.clock.now_ms())
        if self._link is not None:
            return self._link
        if self._expired:
            raise SnapshotExpiredError("this snapshot is past its maximum age", url=self._store.url)
        raise ClosedError("this snapshot is closed", url=self._store.url, reason="closed")

    def _release(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._give_back(link)
