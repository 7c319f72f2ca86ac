"""The pool of connections to one server, for the stores of one or of several schemas.

Rules of this module: nothing that a finalizer calls takes a lock or waits. A server that takes no more connections, or
none at present, is no reason to fail: a call waits for a connection that another one gives back, and tries to open one
now and then, until its time is over.
"""

from __future__ import annotations

import math
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
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.errors import EngineTimeoutError

READS: Final = "reads"
COMMITS: Final = "commits"
"""Purposes of connections. One is kept for commits; stores that commit at the same time take those for reads too."""

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
    """The connections of this process: those at rest, and how many may be in use for each purpose.

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
        idle_timeout: seconds after which a connection at rest is closed.
    """

    def __init__(
        self,
        open_one: Callable[[], PostgresConnection],
        sizes: dict[str, int],
        url: str,
        *,
        commits: bool = True,
        idle_timeout: float = math.inf,
    ) -> None:
        self._open_one = open_one
        self._url = url
        self._sizes = {**sizes, COMMITS: 1} if commits else sizes
        self._idle_timeout = idle_timeout
        self._idle: deque[PostgresConnection] = deque()
        # At most one, which reads do not get. A deque, because taking from it is one step.
        self._kept: deque[PostgresConnection] = deque()
        # Calls that wait for a connection, the next one first. Queues, because a finalizer may hand a connection over.
        self._waiting: deque[SimpleQueue[PostgresConnection]] = deque()
        self._opened = False
        self._retry_at = 0.0
        # A queue and not a semaphore: its "put" may be called by a finalizer in the middle of anything.
        self._free: dict[str, SimpleQueue[ConnectionPermit]] = {purpose: SimpleQueue() for purpose in self._sizes}
        self._closed = False
        self._process = os.getpid()
        self._replacing = threading.Lock()
        self._permits: dict[str, list[weakref.ref[ConnectionPermit]]] = {purpose: [] for purpose in self._sizes}
        self._closer = BackgroundTask("idle", self.end_idle)
        for purpose, size in self._sizes.items():
            for _ in range(size):
                permit = ConnectionPermit(self._free[purpose])
                self._permits[purpose].append(weakref.ref(permit))
                self._free[purpose].put(permit)

    def take(self, purpose: str, timeout_s: float, user: object = None) -> PostgresConnection:
        """Return a connection at rest, a new one, or one that is given back in time; ``user``: see ``is_used_by``.

        Raises:
            EngineTimeoutError: all of this purpose are in use, or the server takes no connection; EngineError.
        """
        deadline = time.monotonic() + timeout_s
        permit = self._permit(purpose, 0.0) or self._permit(purpose, timeout_s)
        return self._taken(permit, deadline, user, commits=False)

    def take_writer(self, timeout_s: float, user: object = None) -> PostgresConnection:
        """Return a connection for commits: the one that is kept, or one for reads while another store has it.

        Raises as ``take``.
        """
        deadline = time.monotonic() + timeout_s
        permit = self._permit(COMMITS, 0.0) or self._permit(READS, 0.0) or self._permit(COMMITS, timeout_s)
        return self._taken(permit, deadline, user, commits=True)

    def _taken(
        self, permit: ConnectionPermit | None, deadline: float, user: object, *, commits: bool
    ) -> PostgresConnection:
        if permit is None:
            raise all_in_use(self._url)
        try:
            connection = self._connection(deadline, commits=commits)
            permit.user = user
        except BaseException:
            permit.free.put(permit)
            raise
        connection.permit = permit
        if self._idle_timeout < math.inf:
            self._closer.schedule(self._idle_timeout)
        return connection

    def is_used_by(self, user: object) -> bool:
        """Return whether a connection is in use that was taken for a store."""
        permits = [known() for purpose in self._permits.values() for known in purpose]
        return any(permit is not None and permit.user is user for permit in permits)

    def end_idle(self) -> float | None:
        """Close connections that have rested for too long; seconds until this is due again, None if none is open."""
        now = time.monotonic()
        rested: list[float] = []
        for resting in (self._idle, self._kept):
            while resting:
                try:
                    connection = resting.popleft()
                except IndexError:  # another thread was faster
                    break
                if connection.rests_since + self._idle_timeout > now:
                    resting.appendleft(connection)
                    rested.append(connection.rests_since)
                    break
                connection.close()
        if rested:
            return max(0.0, min(rested) + self._idle_timeout - now)
        in_use = any(self._free[purpose].qsize() < size for purpose, size in self._sizes.items())
        return self._idle_timeout if in_use else None

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
            connection = (self._at_rest(self._kept) if commits else None) or self._at_rest(self._idle)
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

    def _at_rest(self, resting: deque[PostgresConnection]) -> PostgresConnection | None:
        while resting:
            try:
                connection = resting.pop()
            except IndexError:  # another thread was faster
                break
            if connection.settle():
                return connection
            connection.close()
        return None

    def _open(self, *, commits: bool) -> PostgresConnection:
        """Return a new connection, after that of commits if it is not the first one."""
        connection = self._open_one()
        if self._opened and not commits and not self._kept and COMMITS in self._free:
            # With the permit of commits, so that no commit opens one at the same time.
            with suppress(Empty):
                permit = self._free[COMMITS].get_nowait()
                try:
                    connection.rests_since = time.monotonic()
                    self._kept.append(connection)
                finally:
                    permit.free.put(permit)
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
        connection.rests_since = time.monotonic()
        if self._closed or connection.closed:
            connection.close()
        elif permit is not None and permit.free is self._free.get(COMMITS):
            self._kept.append(connection)
        else:
            self._idle.append(connection)
            if self._waiting:
                self._hand_over()
        if permit is not None:
            permit.user = None
            permit.free.put(permit)

    def drop_idle(self) -> None:
        """Close every connection at rest but that of commits: the server has gone, or is another one now."""
        _close_all(self._idle)

    def drop_writer(self) -> None:
        """Close the connection of commits if it is at rest."""
        _close_all(self._kept)

    def close(self, timeout_s: float) -> None:
        """Wait for running calls, for at most as long as a call may take, then close every connection."""
        self._closed = True
        self._closer.stop()
        deadline = time.monotonic() + timeout_s
        held: list[ConnectionPermit] = []
        for purpose, free in self._free.items():
            for _ in range(self._sizes[purpose]):
                with suppress(Empty):
                    held.append(free.get(timeout=max(0.0, deadline - time.monotonic())))
        self.drop_writer()
        self.drop_idle()
        for permit in held:
            permit.free.put(permit)


def _close_all(resting: deque[PostgresConnection]) -> None:
    while resting:
        try:
            resting.pop().close()
        except IndexError:
            return
