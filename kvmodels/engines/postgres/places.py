"""The place of this process for a contended key among the processes that write it: an advisory lock of the server.

Turns order the writers of one process; writers of several processes still defeat each other. Once a writer has lost
several times, its process takes a place for the key: a thread waits for the advisory lock, in the server's order, while
a ticket of its own keeps the writers of the process in their queue. With the lock, the writers that wait have their
turns; then the lock is for the next process. So one process at a time writes the key, and all come to their turn.

Rules of this module: a place decides nothing; the checks of a commit do. So a lock that is lost with its connection, a
process without a place, and a writer that takes no turn are harmless. The lock is held between commits, never the lock
of writers. A proxy that pools transactions would keep the lock on a connection of its own, so behind a proxy there is
no place. The number of the server process that answers tells a proxy: it is not that of the handshake.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Collection
from contextlib import closing, suppress
from hashlib import blake2b
from math import inf
from typing import Final, Protocol

import psycopg
from psycopg import pq

from kvmodels._support.turns import Ticket, Turns
from kvmodels.engines.postgres.connection import PostgresConnection, ReachedServer, connect
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.errors import KvModelsError

MOST_PLACES: Final = 4
"""Keys for which one process may have a place at the same time, in all stores of a server; each takes a connection."""

HOLD_S: Final = 2.5
"""Seconds after which a place is for the next process, although writers still wait in this one.

They wait for a whole round of all processes then. So it is longer than the writers of a process take on a busy machine.
"""

COLD_S: Final = 1.0
"""Seconds without another process at the key after which the place is given up."""

RETRY_S: Final = 10.0
"""Seconds after which places are tried again where there can be none."""

LOST_S: Final = 1.0
"""Seconds after which places are tried again after a connection was lost. A process without a place loses to others."""

PATIENCE_S: Final = 5.0
"""Seconds after which the writers stop waiting if one process has kept the place: it may have stopped.

A place that moves from process to process is waited for, however many of them wait in front.
"""

_LOOK_S: Final = 0.2
"""Seconds after which a waiting thread looks whether the store is closed."""

_HOLDER: Final = (
    "SELECT pid FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND database = "
    "(SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) "
    "AND (classid::pg_catalog.int8 << 32) | objid::pg_catalog.int8 ="
)


class PlacesOfServer(Protocol):
    """A server whose stores have places.

    Attributes:
        places: of all stores.
    """

    places: set[object]


class ContendedStore(ReachedServer, Protocol):
    """The store of the places."""

    @property
    def turns(self) -> Turns:
        """The queues of the writers of this process."""
        ...

    @property
    def schema(self) -> str:
        """The quoted name of its schema."""
        ...

    @property
    def server(self) -> PlacesOfServer:
        """Its server."""
        ...


def lock_number(schema: str, key: bytes) -> int:
    """Return the number of the advisory lock for a key. Such locks are of a database, so it depends on the schema."""
    return int.from_bytes(blake2b(schema.encode() + b"\0" + key, digest_size=8).digest(), "big", signed=True)


class KeyPlaces:
    """The places of this process for the contended keys of one store.

    Args:
        store: shares its life with this object.

    Attributes:
        taken: how often a place was taken.
        waited: how often another process had it.
    """

    def __init__(self, store: ContendedStore) -> None:
        self.taken = 0
        self.waited = 0
        self._store = store
        self._places: dict[bytes, _KeyPlace] = {}
        self._stopped = False
        self._retry_at = 0.0

    def want(self, keys: Collection[bytes]) -> None:
        """Take places for keys that other processes write, as far as there may be more of them; does not wait."""
        for key in keys:
            if self._stopped or time.monotonic() < self._retry_at:
                return
            taken = self._store.server.places
            if key not in self._places and len(taken) < MOST_PLACES:
                place = self._places[key] = _KeyPlace(self, self._store, key)
                taken.add(place)
                if not place.task.schedule(0):
                    self.end(key)

    def end(self, key: bytes, *, pause_s: float = 0.0) -> None:
        """Forget a place that has ended; there is none for so many seconds."""
        self._retry_at = max(self._retry_at, time.monotonic() + pause_s)
        self._store.server.places.discard(self._places.pop(key, None))

    def stop(self) -> None:
        """Give up all places, and take no more; idempotent."""
        self._stopped = True
        for place in list(self._places.values()):
            place.stop()


class _KeyPlace:
    """The place for one key, and the thread that waits for it."""

    def __init__(self, places: KeyPlaces, store: ContendedStore, key: bytes) -> None:
        self._places = places
        self._store = store
        self._key = key
        self._number = lock_number(store.schema, key)
        self._stopping = False
        self._changed = threading.Event()
        self._wake: socket.socket | None = None
        self.task = BackgroundTask("place", self._serve)

    def stop(self) -> None:
        """End the thread, and with its connection the lock."""
        self._stopping = True
        self._changed.set()
        wake = self._wake
        if wake is not None:
            with suppress(OSError):  # the thread has ended in this moment
                wake.send(b"\0")
        self.task.stop()

    def _serve(self) -> None:
        """Order the writers of this process after those of others, until no other process wants the key."""
        pause_s = LOST_S
        gate = self._store.turns.ticket(inf)
        gate.arrived = self._changed.set
        self._wake, woken = socket.socketpair()
        try:
            with gate.alive, self._wake, woken:
                try:
                    pause_s = 0.0 if self._serve_on(woken, gate) else RETRY_S
                finally:
                    gate.leave()
        except (psycopg.Error, KvModelsError):
            pass  # a place decides nothing, so the writers go their way without it
        finally:
            self._wake = None
            self._places.end(self._key, pause_s=pause_s)

    def _serve_on(self, woken: socket.socket, gate: Ticket) -> bool:
        """Serve on a connection of its own; return whether that is possible."""
        store = self._store
        connection = connect(store.conninfo, store.url, prepare=False, backoff=store.answer_s)
        try:
            if not _is_direct(connection):
                return False
            gate.number = -1  # in front of all that wait
            gate.join((self._key,))
            self._take_turns(connection, woken, gate)
            return True
        finally:
            connection.close()

    def _take_turns(self, connection: PostgresConnection, woken: socket.socket, gate: Ticket) -> None:
        contended, held_until = time.monotonic(), 0.0
        held = False
        while not self._stopping:
            if not gate.wait(min(_LOOK_S, max(0.0, held_until - time.monotonic())) if held else _LOOK_S):
                if held and time.monotonic() >= held_until and gate.number >= 0:
                    gate.number = -1  # the writer that has the turn is the last one
                    gate.join((self._key,))
                continue
            if held:
                connection.execute(f"SELECT pg_catalog.pg_advisory_unlock({self._number})".encode())
                held = False
            self._changed.clear()
            if len(self._store.turns.queues.get(self._key, ())) < 2:
                if time.monotonic() - contended > COLD_S:
                    return
                self._changed.wait(_LOOK_S)
                continue
            if self._take(connection, woken, gate):
                contended = time.monotonic()
            held, held_until = not self._stopping, time.monotonic() + HOLD_S
            gate.leave()  # now the writers that wait have their turns, and then the gate has its own
            gate.number = self._store.turns.moment()
            gate.join((self._key,))

    def _take(self, connection: PostgresConnection, woken: socket.socket, gate: Ticket) -> bool:
        """Take the lock, and return whether another process had it; the writers do not wait without an end."""
        self._places.taken += 1
        ((free,),) = connection.execute(f"SELECT pg_catalog.pg_try_advisory_lock({self._number})".encode()).fetchall()
        if free:
            return False
        self._places.waited += 1
        holder = self._holder(connection)
        pgconn, patience = connection.pgconn, time.monotonic() + PATIENCE_S
        pgconn.send_query(f"SELECT pg_catalog.pg_advisory_lock({self._number})".encode())
        with selectors.DefaultSelector() as selector:
            selector.register(pgconn.socket, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while pgconn.is_busy() and not self._stopping:
                selector.select(max(0.0, patience - time.monotonic()) if gate.keys else None)
                pgconn.consume_input()
                if gate.keys and time.monotonic() >= patience:
                    before, holder = holder, self._present_holder()
                    patience = time.monotonic() + PATIENCE_S
                    if holder == before:
                        gate.leave()
        while not self._stopping and (answer := pgconn.get_result()) is not None:
            if answer.status != pq.ExecStatus.TUPLES_OK:
                raise psycopg.OperationalError("the lock was not taken")
        return True

    def _holder(self, connection: PostgresConnection) -> int | None:
        """Return the number of the server process that has the lock; None if it is free."""
        found = connection.execute(f"{_HOLDER} {self._number}".encode()).fetchall()
        return found[0][0] if found else None

    def _present_holder(self) -> int | None:
        """Return the same, asked on another connection, because that of the place waits for the lock."""
        store = self._store
        with closing(connect(store.conninfo, store.url, prepare=False, backoff=store.answer_s)) as connection:
            return self._holder(connection)


def _is_direct(connection: PostgresConnection) -> bool:
    """Return whether a connection leads to the server process that it was said to lead to: there is no proxy."""
    ((number,),) = connection.execute(b"SELECT pg_catalog.pg_backend_pid()").fetchall()
    return bool(number == connection.pgconn.backend_pid)
