"""Notices of commits: a watch of the marker while the store has waiters.

Rules of this module: a notice says that there may be something new; whoever is woken asks the store. Commits before the
watch began send none, so its beginning wakes everybody. A watch asks for a leader, so that it ends on a member that is
cut off from the others, and goes on at another endpoint.
"""

from __future__ import annotations

from typing import Final

from kvmodels.engines.etcd.protocol.exchange import CallFailedError, Steps, WatchCall
from kvmodels.engines.etcd.protocol.rpc_pb2 import WatchCreateRequest, WatchRequest, WatchResponse
from kvmodels.engines.etcd.protocol.session import EtcdAttempts, VerifiedEndpoint
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport, WatchStream
from kvmodels.engines.etcd.store import EtcdStore
from kvmodels.engines.shared.background import StoreBackground
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.errors import KvModelsError

LISTEN_S: Final = 60.0
"""A watch ends after so many seconds, and begins again while there are waiters."""

RETRY_S: Final = 0.2
"""Seconds between two attempts to watch."""


class MarkerListener:
    """Wakes those who wait for a commit of a store when the cluster tells of one.

    Args:
        store: that is watched.
        transport: makes the calls.
        background: has the waiters.
    """

    def __init__(self, store: EtcdStore, transport: EtcdThreadTransport, background: StoreBackground) -> None:
        self._store = store
        self._transport = transport
        self._background = background
        self._task = BackgroundTask("listen", self._listen)
        self._running = False
        self._stopping = False
        self._stream: WatchStream | None = None

    def want(self) -> None:
        """Begin to listen, unless the thread runs."""
        if not self._running and not self._stopping:
            self._task.schedule(0)

    def stop(self) -> None:
        """End the watch and the thread; idempotent."""
        self._stopping = True
        stream = self._stream
        if stream is not None:
            stream.close()
        self._task.stop()

    def _listen(self) -> float | None:
        """Watch for a while; return the seconds after which to begin again, or None without waiters."""
        if not self._is_wanted():
            return None
        self._running = True
        try:
            ended = self._watch()
        finally:
            self._running = False
        if not self._is_wanted():
            return None
        return 0 if ended else RETRY_S

    def _is_wanted(self) -> bool:
        return not self._stopping and self._background.signal.waited_for

    def _watch(self) -> bool:
        """Watch once; return whether the watch ended in time, and not by a failure."""
        session = self._store.session
        try:
            endpoint = self._transport.run(self._endpoint())
        except KvModelsError:
            return False
        request = WatchRequest(create_request=WatchCreateRequest(key=self._store.keys.marker))
        stream = self._stream = self._transport.watch(
            WatchCall(endpoint.address, request, endpoint.metadata, LISTEN_S, self._take)
        )
        if self._stopping:  # ``stop`` has not seen the stream
            stream.close()
        try:
            for response in stream:
                if self._take(response):
                    break
        except CallFailedError as error:
            if error.code == "DEADLINE_EXCEEDED":
                return True
            if not self._stopping:
                session.failed(endpoint)
        finally:
            self._stream = None
            stream.close()
        return False

    def _endpoint(self) -> Steps[VerifiedEndpoint]:
        attempts: EtcdAttempts = self._store.attempts()
        return (yield from self._store.session.current(attempts, writing=False))

    def _take(self, response: WatchResponse) -> bool:
        """Wake the waiters for a commit of another program; return whether the watch has ended."""
        if response.canceled:
            return True
        known, background = self._store.known, self._background
        newest = max([event.kv.mod_revision for event in response.events], default=0)
        if response.created or known is None or known.record.base + newest > background.seen:
            background.signal.notify()
        return False
