"""The pool of connections of one store.

Rules of this module: nothing that a finalizer calls takes a lock or waits. A server that takes no more connections, or
none at present, is no reason to fail: a call waits for a connection that another one gives back, and tries to open one
now and then, until its time is over.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from kvmodels.engines.postgres.connection import ConnectionPermit, PostgresConnection
from kvmodels.errors import EngineTimeoutError

RETRY_S: Final = 0.1
"""Seconds between two attempts of a process to open a connection where the server takes none."""


def all_in_use(url: str) -> EngineTimeoutError:
    """Return the error of a call for which no connection became free in time."""
    return EngineTimeoutError(
        "all connections of the store are in use",
        url=url,
        hint="Close snapshots and transactions sooner, or raise pool_size.",
    )


class ConnectionPool:
    """The connections of one store: those at rest, and how many may be in use for each purpose.

    Every purpose has its own number, so that calls find a connection while snapshots hold all of theirs. One more is
    for commits. It is opened before the second one of all others: where the server has few, reads must not get all.

    The pool knows its permits weakly. One that an interrupt has taken from everybody, between two steps of whatever
    function, is dead then, and is replaced when none is left. A permit that returned by its own finalizer was
    rejected, because an interrupt may come in the middle of that too.

    Args:
        open_one: opens a connection; EngineTimeoutError if the server takes none at present.
        sizes: how many connections each purpose may use at the same time.
        url: for messages.
        commits: whether the store is written.
    """

    def __init__(
        self, open_one: Callable[[], PostgresConnection], sizes: dict[str, int], url: str, *, commits: bool = True
    ) -> None:
        self._open_one = open_one
        self._url = url
        self._sizes = sizes
        self._commits = commits
        self._idle: deque[PostgresConnection] = deque()
        # Calls that wait for a connection, the next one first. Queues, because a finalizer may hand a connection over.
        self._waiting: deque[SimpleQueue[PostgresConnection]] = deque()
        self._opened = False
        self._retry_at = 0.0
        # Of the one thread that commits. It stays here while it is used, so that an interrupt cannot lose it.
        self._writer: PostgresConnection | None = None
        # A queue and not a semaphore: its "put" may be called by a finalizer in the middle of anything.
        self._free: dict[str, SimpleQueue[ConnectionPermit]] = {purpose: SimpleQueue() for purpose in sizes}
        self._closed = False
        self._process = os.getpid()
        self._replacing = threading.Lock()
        self._permits: dict[str, list[weakref.ref[ConnectionPermit]]] = {purpose: [] for purpose in sizes}
        for purpose, size in sizes.items():
            for _ in range(size):
                permit = ConnectionPermit(self._free[purpose])
                self._permits[purpose].append(weakref.ref(permit))
                self._free[purpose].put(permit)

    def take(self, purpose: str, timeout_s: float) -> PostgresConnection:
        """Return a connection at rest, a new one, or one that is given back in time.

        Raises:
            EngineTimeoutError: all of this purpose are in use, or the server takes no connection; EngineError.
        """
        deadline = time.monotonic() + timeout_s
        permit = self._permit(purpose, 0.0) or self._permit(purpose, timeout_s)
        if permit is None:
            raise all_in_use(self._url)
        try:
            connection = self._connection(deadline, commits=False)
        except BaseException:
            permit.free.put(permit)
            raise
        connection.permit = permit
        return connection

    def writer(self, timeout_s: float) -> PostgresConnection:
        """Return the connection of commits, at rest. For one thread at a time; raises what connecting raises."""
        writer = self._writer
        if writer is not None and writer.settle():
            return writer
        self.drop_writer()
        writer = self._writer = self._connection(time.monotonic() + timeout_s, commits=True)
        return writer

    def drop_writer(self) -> None:
        """Close the connection of commits. For the thread that may commit."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _permit(self, purpose: str, timeout_s: float) -> ConnectionPermit | None:
        """Return a permit that is free in time, or one instead of a lost one; None if all are in use."""
        free, permits = self._free[purpose], self._permits[purpose]
        with suppress(Empty):
            return free.get(timeout=max(0.0, timeout_s))
        with self._replacing:
            for place, known in enumerate(permits):
                if known() is None:
                    permit = ConnectionPermit(free)
                    permits[place] = weakref.ref(permit)
                    return permit
        return None

    def _connection(self, deadline: float, *, commits: bool) -> PostgresConnection:
        """Return a connection at rest, a new one, or one that is given back; a commit gets it before all others."""
        while True:
            connection = self._at_rest()
            if connection is not None:
                return connection
            now = time.monotonic()
            ended = now >= deadline or self._closed
            if ended or now >= self._retry_at:
                try:
                    return self._open(commits=commits)
                except EngineTimeoutError:
                    self._retry_at = time.monotonic() + RETRY_S
                    if ended:
                        raise
            connection = self._handed_over(min(RETRY_S, deadline - now), first=commits)
            if connection is not None and connection.settle():
                return connection

    def _at_rest(self) -> PostgresConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.settle():
                return connection
            connection.close()
        return None

    def _open(self, *, commits: bool) -> PostgresConnection:
        """Return a new connection, after that of commits if it is not the first one."""
        connection = self._open_one()
        if self._opened and self._commits and not commits and self._writer is None:
            self._writer = connection
            connection = self._open_one()
        self._opened = True
        return connection

    def _handed_over(self, seconds: float, *, first: bool) -> PostgresConnection | None:
        """Return the connection that another call gives back next, or None after so many seconds."""
        given: SimpleQueue[PostgresConnection] = SimpleQueue()
        if first:
            self._waiting.appendleft(given)
        else:
            self._waiting.append(given)
        try:
            if self._idle:  # given back before this call was known to wait
                self._hand_over()
            with suppress(Empty):
                return given.get(timeout=max(0.0, seconds))
        finally:
            with suppress(ValueError):
                self._waiting.remove(given)
        with suppress(Empty):
            return given.get_nowait()
        return None

    def _hand_over(self) -> None:
        """Give a connection at rest to the call that waits for one. For finalizers too."""
        with suppress(IndexError):
            given = self._waiting.popleft()
            try:
                given.put(self._idle.pop())
            except IndexError:  # another call has taken it
                self._waiting.appendleft(given)

    def give_back(self, connection: PostgresConnection, *, in_transaction: bool = False) -> None:
        """Take a connection back, also in a finalizer: nothing is waited for."""
        if os.getpid() != self._process:
            return  # the socket belongs to the parent of this process
        permit, connection.permit = connection.permit, None
        if in_transaction and not connection.closed:
            connection.roll_back_later()
        if self._closed or connection.closed:
            connection.close()
        else:
            self._idle.append(connection)
            if self._waiting:
                self._hand_over()
        if permit is not None:
            permit.free.put(permit)

    def drop_idle(self) -> None:
        """Close every connection at rest: the server has gone, or is another one now."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self, timeout_s: float) -> None:
        """Wait for running calls, for at most as long as a call may take, then close every connection."""
        self._closed = True
        deadline = time.monotonic() + timeout_s
        held: list[ConnectionPermit] = []
        for purpose, free in self._free.items():
            for _ in range(self._sizes[purpose]):
                with suppress(Empty):
                    held.append(free.get(timeout=max(0.0, deadline - time.monotonic())))
        self.drop_idle()
        for permit in held:
            permit.free.put(permit)
