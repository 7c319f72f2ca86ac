"""Background work of a store: listening for commits while there are waiters, and sweeping expired rows.

Rules of this module: the common code decides when; this module says how, in the thread that the common code starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from kvmodels.engines.etcd.errors import busy
from kvmodels.engines.etcd.listening import MarkerListener
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport
from kvmodels.engines.etcd.store import EtcdStore
from kvmodels.engines.etcd.sweeping import due_steps, skew_ms, sweep_steps
from kvmodels.engines.shared.background import DueRemovals, StoreBackground
from kvmodels.engines.shared.waiting import Backoff, CommitSignal
from kvmodels.errors import KvModelsError


class EtcdBackground:
    """The background work of one engine.

    Args:
        store: is told where its commits go.
        transport: makes the calls.

    Attributes:
        clock: of the store.
        readonly: whether nothing may be removed.
    """

    poll_interval: float | None = None
    """The store is watched, and never polled."""

    def __init__(self, store: EtcdStore, transport: EtcdThreadTransport) -> None:
        self.clock = store.clock
        self.readonly = store.options.readonly
        self._store = store
        self._transport = transport
        self._tasks = StoreBackground(self)
        self._listener = MarkerListener(store, transport, self._tasks)
        store.committed = self._committed

    @property
    def signal(self) -> CommitSignal:
        """Wakes those who wait for a commit."""
        return self._tasks.signal

    def opened(self, earliest_ms: int | None) -> None:
        """Sweep what was there before; ``earliest_ms`` is its first deadline."""
        self._tasks.opened(self._removals(earliest_ms))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit of any program, until the returned function is called."""
        unsubscribe = self._tasks.subscribe(wake)
        self._listener.want()
        return unsubscribe

    def stop(self) -> None:
        """End the threads."""
        self._tasks.stop()
        self._listener.stop()

    def present_version(self) -> int:
        """Return the counter as the listener has seen it."""
        return self._tasks.seen

    def due(self) -> DueRemovals:
        """Return when the first row may be removed."""
        return self._removals(self._transport.run(due_steps(self._store)))

    def no_wait(self) -> Backoff:
        """Return a backoff that does not wait; the calls have their own deadline."""
        return Backoff(0, self._translated)

    def sweep(self, limit: int, backoff: Backoff) -> int:
        """Remove expired rows; how many there were."""
        del backoff
        return self._transport.run(sweep_steps(self._store, limit))

    def trim_log(self, before_ms: int, backoff: Backoff) -> NoReturn:
        """Raise AssertionError: how long changes are kept is decided by the cluster."""
        del before_ms, backoff
        raise AssertionError("there is no log")

    def _translated(self, error: Exception) -> KvModelsError:
        return error if isinstance(error, KvModelsError) else busy(self._store.url, type(error).__name__)

    def _committed(self, version: int, earliest_ms: int | None) -> None:
        self._tasks.committed(version, None if earliest_ms is None else earliest_ms + skew_ms(self._store))

    def _removals(self, earliest_ms: int | None) -> DueRemovals:
        return DueRemovals(None if earliest_ms is None else earliest_ms + skew_ms(self._store), None)
