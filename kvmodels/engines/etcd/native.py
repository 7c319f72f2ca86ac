"""The calls of an etcd engine as coroutines, for one event loop.

Rules of this module: the flows are those of the engine. A commit runs in a task of its own, which a cancellation of
its caller does not end.
"""

from __future__ import annotations

from typing import Protocol

from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.transport import EtcdLoopTransport, TlsFiles
from kvmodels.engines.etcd.snapshot import EtcdAsyncSnapshot, SnapshotState
from kvmodels.engines.shared.complete_form import CompleteForm, CompleteOwner


class EtcdHandle(CompleteOwner, Protocol):
    """The engine that a form belongs to."""

    def pinning(self) -> Steps[SnapshotState]:
        """Return the flow of ``snapshot``."""
        ...


class EtcdAsyncEngine(CompleteForm[EtcdHandle]):
    """The asynchronous form of an ``EtcdEngine`` for one event loop, with channels of its own.

    Args:
        engine: it belongs to.
        tls: the files for encrypted connections; None for none.
    """

    def __init__(self, engine: EtcdHandle, tls: TlsFiles | None) -> None:
        super().__init__(engine, EtcdLoopTransport(tls))

    async def snapshot(self) -> EtcdAsyncSnapshot:
        """Pin the present state. One round trip. Raises as ``Engine.snapshot``."""
        return EtcdAsyncSnapshot(await self._run(self._engine.pinning), self._run)
