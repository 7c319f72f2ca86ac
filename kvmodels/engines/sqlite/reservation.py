"""A reservation of writes on an SQLite file, made before a transaction reads: other processes wait until it commits.

The writing connection is inside ``BEGIN IMMEDIATE`` then, and has written nothing. The next commit of this process
is carried out in that transaction and so ends the reservation. Nothing depends on it: checks decide.

Rules of this module: a reservation is made and released with ``write_lock`` held; while that is free, the writing
connection is inside a transaction only if writes are reserved.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Protocol

from kvmodels.engines.shared.busy_timeout import Backoff
from kvmodels.engines.sqlite.file import Connection


class ReservationStore(Protocol):
    """The store whose writes are reserved."""

    write_lock: threading.Lock
    writer: Connection | None
    readonly: bool

    @property
    def in_memory(self) -> bool:
        """Whether there are no other processes."""
        ...

    def writing_connection(self, backoff: Backoff) -> Connection:
        """The connection that writes, opened if need be."""
        ...

    def begin(self, connection: sqlite3.Connection, backoff: Backoff) -> None:
        """Begin a write transaction."""
        ...


def reserve_writes(store: ReservationStore, backoff: Backoff) -> bool:
    """Keep other processes from writing until the next commit of this one, or ``release_writes``.

    Returns:
        Whether writes were reserved; false if there are no other processes, or this one has reserved them already.

    Raises:
        EngineTimeoutError: another process wrote until the deadline.
    """
    if store.in_memory or store.readonly:
        return False
    with store.write_lock:
        writer = store.writing_connection(backoff)
        if writer.in_transaction:
            return False
        store.begin(writer, backoff)
    return True


def release_writes(store: ReservationStore) -> None:
    """Let other processes write again; idempotent."""
    with store.write_lock:
        writer = store.writer
        if writer is not None and writer.in_transaction:
            try:
                writer.rollback()
            except sqlite3.Error:
                # Closing the connection ends its transaction as well; the next commit opens another one.
                store.writer = None
                writer.discarded = True
                writer.close()
