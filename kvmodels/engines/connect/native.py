"""The calls of a KV Connect engine as coroutines, for one event loop.

Rules of this module: the flows are those of the engine. A commit runs in a task of its own, which a cancellation of
its caller does not end once it may have been sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from kvmodels.core.operations import (
    Changes,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.connect.errors import CHANGE_LOG, NOTICES, SNAPSHOTS, MissingCapability
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.session import Session
from kvmodels.engines.connect.transport import LoopTransport
from kvmodels.engines.connect.watching import KeyStreams
from kvmodels.engines.contract import AsyncSnapshot
from kvmodels.engines.shared.server_engine import FormOwner, ServerForm


class ConnectHandle(FormOwner, Protocol):
    """The engine that a form belongs to."""

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``."""
        ...

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``."""
        ...

    def refuse(self, missing: MissingCapability) -> NoReturn:
        """Raise UnsupportedError."""
        ...


class ConnectAsyncEngine(ServerForm[ConnectHandle]):
    """The asynchronous form of a ``ConnectEngine`` for one event loop, with connections of its own.

    Args:
        engine: it belongs to.
        session: of the database.
        pool_size: the most connections, apart from those of watches.
    """

    def __init__(self, engine: ConnectHandle, session: Session, pool_size: int) -> None:
        super().__init__(engine, LoopTransport(pool_size))
        self._streams = KeyStreams(session, engine.url)

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it. Raises as ``Engine.read``."""
        del include_expired  # the server shows what it has
        return await self._run(lambda: self._engine.reading(ranges, guard, follow))

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count the rows of each range by reading them. Raises as ``Engine.count``."""
        return await self._run(lambda: self._engine.counting(ranges, guard))

    async def snapshot(self) -> AsyncSnapshot:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        self._engine.refuse(SNAPSHOTS)

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del after, timeout_s
        self._engine.refuse(NOTICES)

    async def wait_for_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait for a change of some keys. Raises as ``ServerCalls.wait_for_keys``."""
        self._require_open()
        return await self._streams.wait(keys, after, timeout_s)

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Raise UnsupportedError: KV Connect has no log of changes."""
        del one, after
        self._engine.refuse(CHANGE_LOG)

    async def _end_waits(self) -> None:
        await self._streams.aclose()
