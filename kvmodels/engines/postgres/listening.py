"""Notifications of commits: one connection that LISTENs for all stores of a server that have waiters.

Rules of this module: a commit notifies only while a listener holds the advisory lock of the store, because the server
lets one notifying transaction commit at a time, in all its databases. LISTEN is believed only after a notification
that another connection has sent has arrived: a proxy that pools transactions accepts it and delivers nothing. Without
it the store is polled; the other stores are not affected. A notification says that there may be something new; whoever
is woken asks the store.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

import psycopg
from psycopg.pq.abc import PGconn

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
        server: has the listening connection.

    Attributes:
        active: whether notifications arrive, so that the store need not be polled.
        store: the store.
    """

    def __init__(self, store: ListeningStore, server: ServerListener) -> None:
        self.active = False
        self.store = store
        self._server = server
        self._stopping = False
        self._retry_at = 0.0
        self._told = 0
        self._wanted_at = 0.0
        self._number = 0
        self._locked = False
        self._probe = ""
        self._deadline = 0.0

    def want(self) -> None:
        """Begin to listen, unless notifications arrive or were refused a short time before."""
        if not self.active and not self._stopping and time.monotonic() >= self._retry_at:
            self._server.join(self)

    def stop(self) -> None:
        """Listen no more; idempotent."""
        self._stopping = True
        self._server.leave(self)
        self.active = False

    # For the thread that listens

    @property
    def wanted(self) -> bool:
        """Whether the store has waiters, or had some a short time ago."""
        if self._stopping:
            return False
        now = time.monotonic()
        if self.store.background.signal.waited_for:
            self._wanted_at = now
        return now - self._wanted_at <= LINGER_S

    @property
    def refused(self) -> bool:
        """Whether the notification that proves LISTEN has not arrived in time."""
        return not self.active and time.monotonic() >= self._deadline

    def begin(self, connection: PostgresConnection) -> str:
        """Listen on a connection, have another one send a notification, and return the channel."""
        gate = f"'{self.store.schema}.gate'::pg_catalog.regclass::pg_catalog.oid"
        text = f"SELECT ('kvmodels_' || {gate})::pg_catalog.text, {gate}::pg_catalog.int4"
        ((channel, self._number),) = connection.call(text.encode(), ())
        connection.execute(f'LISTEN "{channel}"'.encode())
        self._probe, self._locked = f"probe {time.monotonic_ns()}", False
        self._wanted_at = time.monotonic()

        def ask() -> Calls[None]:
            yield Call(_NOTIFY, (channel.encode(), self._probe.encode()))

        self.store.reading(ask)
        self._deadline = time.monotonic() + PROBE_S
        return str(channel)

    def end(self, connection: PostgresConnection, channel: str) -> None:
        """Listen no more on a connection that others still use."""
        connection.execute(f'UNLISTEN "{channel}"'.encode())
        if self._locked:
            self._locked = False
            connection.call(f"SELECT pg_catalog.pg_advisory_unlock_shared({_LOCK_CLASS}, {self._number})".encode(), ())

    def hear(self, connection: PostgresConnection, payload: str) -> None:
        """Take a notification: the one that proves LISTEN, or one of a commit."""
        background = self.store.background
        if payload == self._probe:
            # While this lock is held, commits notify. It is shared, so that several listeners can hold it.
            connection.call(f"SELECT pg_catalog.pg_advisory_lock_shared({_LOCK_CLASS}, {self._number})".encode(), ())
            self._locked = True
            self.active = not self._stopping
            background.signal.notify()  # commits before this moment sent nothing
        elif payload.isdigit() and int(payload) > max(self._told, background.seen):
            self._told = int(payload)
            background.signal.notify()

    def refuse(self) -> None:
        """Have the store polled for a while."""
        self._retry_at = time.monotonic() + REFUSED_S
        self.lose()

    def lose(self) -> None:
        """Have the store look for commits that were not told."""
        self.active = False
        self.store.background.look_soon()


class ServerListener:
    """The thread and the connection that listen for the stores of one server; they end when none has waiters.

    Args:
        server: is connected to.
    """

    def __init__(self, server: ReachedServer) -> None:
        self._server = server
        self._wanted: dict[CommitListener, None] = {}
        self._running = False
        self._stopping = False
        self._task = BackgroundTask("listen", self._listen)
        # Made by the thread before it looks at ``_wanted`` for the first time.
        self._wake: socket.socket | None = None

    def join(self, one: CommitListener) -> None:
        """Listen for one store more."""
        if one in self._wanted or self._stopping:
            return
        self._wanted[one] = None
        if self._running:
            self._wake_up()
        else:
            self._task.schedule(0)

    def leave(self, one: CommitListener) -> None:
        """Listen for a store no more."""
        self._wanted.pop(one, None)
        self._wake_up()

    def stop(self) -> None:
        """End the connection and the thread; idempotent."""
        self._stopping = True
        self._wake_up()
        self._task.stop()

    def _wake_up(self) -> None:
        wake = self._wake
        if wake is not None:
            with suppress(OSError):  # the thread has ended in this moment
                wake.send(b"\0")

    def _listen(self) -> float | None:
        """Listen until there are no waiters; return the seconds after which to try again, or None."""
        self._running = True
        self._wake, woken = socket.socketpair()
        woken.setblocking(False)
        try:
            with self._wake, woken, suppress(psycopg.Error, KvModelsError):
                self._listen_on(woken)
        finally:
            self._wake = None
            self._running = False
        for one in list(self._wanted):
            one.lose()
            if not one.wanted:
                self._wanted.pop(one, None)
        return RETRY_S if self._wanted and not self._stopping else None

    def _listen_on(self, woken: socket.socket) -> None:
        """Listen on one connection, for those that join and until the last one leaves."""
        server = self._server
        connection = connect(server.conninfo, server.url, prepare=False, backoff=server.answer_s)
        found: list[tuple[str, str]] = []
        connection.add_notify_handler(lambda told: found.append((told.channel, told.payload)))
        channels: dict[str, CommitListener] = {}
        try:
            while not self._stopping:
                self._update(connection, channels)
                if not channels:
                    return
                self._await(connection, woken, channels, found)
                for channel, payload in found:
                    if channel in channels:
                        self._attempt(channels[channel], partial(channels[channel].hear, connection, payload))
                found.clear()
        finally:
            connection.close()
            for one in channels.values():
                one.active = False

    def _update(self, connection: PostgresConnection, channels: dict[str, CommitListener]) -> None:
        """Begin with the stores that have joined, and end with those that have left or were refused."""
        for channel, one in list(channels.items()):
            if one in self._wanted and one.refused:
                self._wanted.pop(one, None)
                one.refuse()
            if one not in self._wanted or not one.wanted:
                del channels[channel]
                self._wanted.pop(one, None)
                one.end(connection, channel)
                one.active = False
                if one.store.background.signal.waited_for:  # a waiter came in this moment
                    one.want()
        for one in [one for one in list(self._wanted) if one not in channels.values()]:
            begun = self._attempt(one, partial(one.begin, connection))
            if begun is not None:
                channels[begun] = one
            elif not one.wanted:
                self._wanted.pop(one, None)

    def _attempt(self, one: CommitListener, work: Callable[[], ResultT]) -> ResultT | None:
        """Do a step of one store; None if it has failed, to be tried again unless the server refuses it.

        A standby refuses it: LISTEN is an error there.
        """
        try:
            return work()
        except KvModelsError:
            return None
        except psycopg.Error as error:
            if errors.is_lost(error):
                raise
            self._wanted.pop(one, None)
            one.refuse()
            return None

    def _await(
        self,
        connection: PostgresConnection,
        woken: socket.socket,
        channels: dict[str, CommitListener],
        found: list[tuple[str, str]],
    ) -> None:
        """Wait for notifications, for a store that joins or leaves, or until it is time to look after the stores.

        Raises:
            psycopg.OperationalError: the connection was lost.
        """
        pgconn = connection.pgconn
        proven = len(channels) == len(self._wanted) and all(one.active for one in channels.values())
        _take_notifications(pgconn, found)  # what has come with an earlier answer lies there already
        if found or self._stopping:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(pgconn.socket, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            selector.select(LINGER_S if proven else min(LINGER_S, PROBE_S, RETRY_S))
        with suppress(BlockingIOError):
            woken.recv(1024)
        _take_notifications(pgconn, found)


def _take_notifications(pgconn: PGconn, found: list[tuple[str, str]]) -> None:
    pgconn.consume_input()
    while (told := pgconn.notifies()) is not None:
        found.append((told.relname.decode(), told.extra.decode()))
