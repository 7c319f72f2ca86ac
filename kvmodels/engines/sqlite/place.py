"""The writer's place of an SQLite file, taken before a transaction reads: other processes wait until it commits.

The writing connection is inside ``BEGIN IMMEDIATE`` then, and has written nothing. The next commit of this process,
whoever makes it, is carried out in that transaction and so ends the place. Nothing depends on it: checks decide.

Rules of this module: the place is taken and left with ``write_lock`` held; while that is free, the writing connection
is inside a transaction only if the place is taken.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Protocol

from kvmodels.engines.shared.busy_timeout import Patience
from kvmodels.engines.sqlite.file import Connection


class PlaceStore(Protocol):
    """The store whose writer waits."""

    write_lock: threading.Lock
    writer: Connection | None
    readonly: bool

    @property
    def in_memory(self) -> bool:
        """Whether there are no other processes."""
        ...

    def writing_connection(self, patience: Patience) -> Connection:
        """The connection that writes, opened if need be."""
        ...

    def begin(self, connection: sqlite3.Connection, patience: Patience) -> None:
        """Begin a write transaction."""
        ...


def take_place(store: PlaceStore, patience: Patience) -> bool:
    """Keep other processes from writing until the next commit of this one, or ``leave_place``.

    Returns:
        Whether it was taken; false where there are no other processes, or somebody of this one has it.

    Raises:
        EngineTimeoutError: another process wrote until the deadline.
    """
    if store.in_memory or store.readonly:
        return False
    with store.write_lock:
        writer = store.writing_connection(patience)
        if writer.in_transaction:
            return False
        store.begin(writer, patience)
    return True


def leave_place(store: PlaceStore) -> None:
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
