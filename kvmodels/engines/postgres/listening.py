"""Notifications of commits: a connection that LISTENs while the store has waiters.

Rules of this module: a commit notifies only while a listener holds the advisory lock of the store, because the server
lets one notifying transaction commit at a time, in all its databases. LISTEN is believed only after a notification
that another connection has sent has arrived: a proxy that pools transactions accepts it and delivers nothing. Without
it the store is polled. A notification says that there may be something new; whoever is woken asks the store.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import psycopg

from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.connection import Call, Calls, PostgresConnection, ReachedServer, connect
from kvmodels.engines.shared.background import StoreBackground
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.errors import KvModelsError

ResultT = TypeVar("ResultT")

CHECK_S: Final = 30.0
"""Seconds between two looks at the store while notifications arrive."""

PROBE_S: Final = 2.0
"""Seconds within which the notification that proves LISTEN must arrive."""

LINGER_S: Final = 10.0
"""The connection is kept for so long after the last waiter, because most waiters come back."""

RETRY_S: Final = 1.0
REFUSED_S: Final = 60.0
"""Seconds after which LISTEN is tried again where it delivered nothing."""

_NOTIFY: Final = (
    b"SELECT pg_catalog.pg_notify(pg_catalog.convert_from(%b, 'UTF8'), pg_catalog.convert_from(%b, 'UTF8'))"
)

_LOCK_CLASS: Final = 0x6B766D64
"""The first half of the advisory lock, as ``notify_1`` has it."""


class ListeningStore(ReachedServer, Protocol):
    """The store of a listener."""

    background: StoreBackground

    @property
    def schema(self) -> str:
        """The quoted name of its schema."""
        ...

    def reading(self, make: Callable[[], Calls[ResultT]]) -> ResultT:
        """Run the calls of a read on another connection."""
        ...


class CommitListener:
    """Wakes those who wait for a commit of a store when the server tells of one.

    Args:
        store: shares its life with this object.

    Attributes:
        active: whether notifications arrive, so that the store need not be polled.
    """

    def __init__(self, store: ListeningStore) -> None:
        self.active = False
        self._store = store
        self._running = False
        self._stopping = False
        self._retry_at = 0.0
        self._told = 0
        self._task = BackgroundTask("listen", self._listen)
        # Made by the thread before it looks at ``_stopping`` for the first time.
        self._wake: socket.socket | None = None

    def want(self) -> None:
        """Begin to listen, unless the thread runs or was refused a short time before."""
        if not self._running and not self._stopping and time.monotonic() >= self._retry_at:
            self._task.schedule(0)

    def stop(self) -> None:
        """End the connection and the thread; idempotent."""
        if self._stopping:
            return
        self._stopping = True
        wake = self._wake
        if wake is not None:
            with suppress(OSError):  # the thread has ended in this moment
                wake.send(b"\0")
        self._task.stop()

    def _listen(self) -> float | None:
        """Listen until there are no waiters; return the seconds after which to try again, or None."""
        self._running = True
        background = self._store.background
        refused = False
        self._wake, woken = socket.socketpair()
        try:
            with self._wake, woken:
                refused = not self._listen_on(woken)
        except psycopg.Error as error:
            refused = not errors.is_lost(error)  # as on a standby, where LISTEN is an error
        except KvModelsError:
            refused = False
        finally:
            self._wake = None
            self._running = False
        if self._stopping:
            return None
        if refused:
            self._retry_at = time.monotonic() + REFUSED_S
        background.look_soon()
        return RETRY_S if background.signal.waited_for and not refused else None

    def _listen_on(self, woken: socket.socket) -> bool:
        """Listen on one connection; false if nothing arrives there."""
        store = self._store
        connection = connect(store.conninfo, store.url, prepare=False, backoff=store.answer_s)
        try:
            if not self._is_heard(connection, woken):
                return self._stopping
            self.active = True
            store.background.signal.notify()  # commits before this moment sent nothing
            self._wait(connection, woken)
            return True
        finally:
            self.active = False
            connection.close()

    def _is_heard(self, connection: PostgresConnection, woken: socket.socket) -> bool:
        """Listen, and return whether a notification of another connection arrives."""
        store = self._store
        gate = f"'{store.schema}.gate'::pg_catalog.regclass::pg_catalog.oid"
        text = f"SELECT ('kvmodels_' || {gate})::pg_catalog.text, {gate}::pg_catalog.int4"
        ((channel, number),) = connection.call(text.encode(), ())
        connection.execute(f'LISTEN "{channel}"'.encode())
        probe = f"probe {time.monotonic_ns()}".encode()

        def ask() -> Calls[None]:
            yield Call(_NOTIFY, (channel.encode(), probe))

        store.reading(ask)
        deadline = time.monotonic() + PROBE_S
        while (remaining := deadline - time.monotonic()) > 0 and not self._stopping:
            if probe in self._payloads(connection, woken, remaining):
                # While this lock is held, commits notify. It is shared, so that several listeners can hold it.
                connection.call(f"SELECT pg_catalog.pg_advisory_lock_shared({_LOCK_CLASS}, {number})".encode(), ())
                return True
        return False

    def _wait(self, connection: PostgresConnection, woken: socket.socket) -> None:
        """Wake the waiters for each notification, until the store has had no waiters for a while."""
        background = self._store.background
        last_wanted = time.monotonic()
        while not self._stopping:
            newest = max((int(one) for one in self._payloads(connection, woken, LINGER_S) if one.isdigit()), default=0)
            if newest > max(self._told, background.seen):
                self._told = newest
                background.signal.notify()
            if background.signal.waited_for:
                last_wanted = time.monotonic()
            elif time.monotonic() - last_wanted > LINGER_S:
                return

    def _payloads(self, connection: PostgresConnection, woken: socket.socket, seconds: float) -> list[bytes]:
        """Wait for notifications, the end of the connection or of this listener; the payloads.

        Raises:
            psycopg.OperationalError: the connection was lost.
        """
        pgconn = connection.pgconn
        found: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(pgconn.socket, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not found:
                # What has come with an earlier answer lies there already.
                pgconn.consume_input()
                while (notification := pgconn.notifies()) is not None:
                    found.append(notification.extra)
                if found or self._stopping or not selector.select(seconds):
                    break
        return found
