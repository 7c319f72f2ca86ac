"""The connections of this process to one server, for the stores of all schemas with equal connection parameters.

Rules of this module: a store joins and leaves with the lock of the open stores held, so nothing here has a lock of its
own. Statements name their schema, and no setting of a session belongs to one, so a connection serves every store.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from kvmodels.engines.postgres.connection import PostgresConnection, connect
from kvmodels.engines.postgres.connections.pool import READS, ConnectionPool
from kvmodels.engines.postgres.listening import ServerListener
from kvmodels.engines.postgres.native.links import LoopLinks
from kvmodels.engines.postgres.settings import ANSWER_S, PostgresOptions
from kvmodels.engines.postgres.snapshot import SNAPSHOTS

_LOOK_S: Final = 0.005
"""Seconds between two looks whether the calls of a store that is closed have ended."""


class ConnectionParameters(NamedTuple):
    """The options that stores must have in common to share connections."""

    given_url: str
    conninfo: str
    readonly: bool
    pool_size: int
    prepare: bool
    busy_timeout: float
    idle_timeout: float

    @classmethod
    def of(cls, given_url: str, conninfo: str, options: PostgresOptions) -> ConnectionParameters:
        """Return those of a store."""
        given = options._asdict()
        return cls(given_url, conninfo, *(given[name] for name in cls._fields[2:]))


class ServerConnections:
    """The pool, the listening connection, and the connections of event loops of one server.

    Args:
        parameters: of the connections.
        url: without secrets, for messages.

    Attributes:
        pool: of threads.
        listener: has the listening connection.
        places: those for contended keys, each with a connection.
    """

    def __init__(self, parameters: ConnectionParameters, url: str) -> None:
        self.options = parameters
        self.conninfo = parameters.conninfo
        self.url = url
        self.busy_timeout = parameters.busy_timeout
        size = parameters.pool_size
        self.pool = ConnectionPool(
            self._connect,
            {READS: size, SNAPSHOTS: size},
            url,
            commits=not parameters.readonly,
            idle_timeout=parameters.idle_timeout,
        )
        self.listener = ServerListener(self)
        self.places: set[object] = set()
        self._links: dict[asyncio.AbstractEventLoop, LoopLinks] = {}
        self._stores = 0

    @property
    def answer_s(self) -> float:
        """Seconds after which a call without an answer is given up, with its connection."""
        return self.busy_timeout + ANSWER_S

    def join(self) -> ServerConnections:
        """Count one store more, and return this object."""
        self._stores += 1
        return self

    def leave(self, store: object) -> None:
        """Wait for the calls of a store, for at most as long as one may take; the last store closes the connections."""
        self._stores -= 1
        if not self._stores:
            self.listener.stop()
            self.pool.close(self.answer_s)
            return
        deadline = time.monotonic() + self.answer_s
        while self.pool.is_used_by(store) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def links(self) -> LoopLinks:
        """Return the connections of the running event loop, for one user more."""
        for other in [one for one in list(self._links) if one.is_closed()]:
            ended = self._links.pop(other, None)
            if ended is not None:
                ended.close()
        loop = asyncio.get_running_loop()
        links = self._links.get(loop)
        if links is None or links.closed:
            links = self._links[loop] = LoopLinks(self)
        links.users += 1
        return links

    def _connect(self) -> PostgresConnection:
        return connect(self.conninfo, self.url, prepare=self.options.prepare, backoff=self.answer_s)
