"""A connection of one event loop with many requests under way at the same time, in libpq's pipeline mode.

Rules of this module: it is the only one that calls libpq directly. Every request ends with a Sync of its own, so it is
a transaction of its own and fails alone. A request is answered when the server is ready for the next one, never when
its rows arrive: the wait for a standby, and an error of the commit itself, come after them. Nothing is cancelled on the
server. A statement counts as prepared when the answer of its own preparation says so. What cannot be sent yet waits
here, so that the requests and bytes under way are bounded.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from kvmodels.engines.postgres.commits import CallAnswer
from kvmodels.engines.postgres.connection import OIDS, Call
from kvmodels.engines.postgres.errors import unreachable

MOST_UNDER_WAY: Final = 256
"""Requests of one connection that wait for their answer."""

MOST_BYTES_UNDER_WAY: Final = 1 << 20
"""Bytes of parameters that wait for their answer, unless one request alone has more."""

CHUNK_ROWS: Final = 1_000
"""Rows of a large answer that one turn of the event loop takes."""

_CHUNKS: Final = pq.version() >= 170_000

_LOST: Final = "the connection to the server was lost"


class _LoopConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """Opens the connection; what is sent on it goes past psycopg."""

    def __del__(self, _: object = None, /) -> None:
        """Leave the end to libpq's wrapper, which does nothing in a forked child."""


class _Request:
    """Calls that are one transaction, and the future that gets the answer of the last one."""

    __slots__ = ("answer", "calls", "chunked", "error", "preparing", "rows", "sent_at", "size", "warned")

    def __init__(self, calls: Sequence[Call], answer: asyncio.Future[CallAnswer] | None, size: int) -> None:
        self.calls = calls
        self.answer = answer
        self.size = size
        self.sent_at = 0.0
        self.rows: list[tuple[Any, ...]] = []
        self.chunked = False
        self.error: psycopg.Error | None = None
        self.warned = False
        self.preparing: list[tuple[bytes, bytes]] = []

    def finish(self) -> None:
        answer = self.answer
        if answer is None or answer.done():
            return  # nobody waits any more
        if self.error is not None:
            answer.set_exception(self.error)
        else:
            answer.set_result(CallAnswer(self.rows, self.warned))


class Link:
    """One connection in pipeline mode. For the coroutines of one event loop.

    Args:
        connection: at rest.
        prepare: whether statements are prepared.
        patience: seconds that the oldest request may wait for its answer; then the connection is given up.
    """

    def __init__(self, connection: _LoopConnection, *, prepare: bool, patience: float) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepare = prepare
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._under_way: deque[_Request] = deque()
        self._bytes = 0
        self._names = 0
        self._prepared: dict[bytes, bytes] = {}
        self._being_prepared: set[bytes] = set()
        self._rows = Transformer(connection)
        self._watch: asyncio.TimerHandle | None = None
        self._writing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False
        connection.add_notice_handler(self._notice)
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._receive)

    @property
    def load(self) -> int:
        """The requests without an answer."""
        return len(self._under_way) + len(self._waiting)

    async def call(self, *calls: Call) -> CallAnswer:
        """Send calls as one transaction, and return the answer of the last one.

        Raises:
            psycopg.Error: one that says nothing of the outcome if the connection was lost.
        """
        answer: asyncio.Future[CallAnswer] = self._loop.create_future()
        self.send(calls, answer)
        return await answer

    def send(self, calls: Sequence[Call], answer: asyncio.Future[CallAnswer] | None = None) -> None:
        """Send calls as one transaction; ``answer`` gets what ``call`` returns or raises."""
        size = sum(len(one) for call in calls for one in call.parameters if isinstance(one, bytes))
        request = _Request(calls, answer, size)
        if self.closed:
            request.error = psycopg.OperationalError(_LOST)
            request.finish()
            return
        self._idle.clear()
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._fill()

    async def wait_until_idle(self) -> None:
        """Return when every request has its answer."""
        await self._idle.wait()

    def close(self) -> None:
        """End the connection; requests without an answer are lost."""
        if self.closed:
            return
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._pgconn.finish()
        lost = [*self._under_way, *self._waiting]
        self._under_way.clear()
        self._waiting.clear()
        self._idle.set()
        if self._loop.is_closed():
            return
        for request in lost:
            request.error = request.error or psycopg.OperationalError(_LOST)
            request.finish()

    # Sending

    def _fill(self) -> None:
        """Hand over what may be under way, and have it sent."""
        waiting, under_way = self._waiting, self._under_way
        try:
            while waiting and (
                not under_way
                or (len(under_way) < MOST_UNDER_WAY and self._bytes + waiting[0].size <= MOST_BYTES_UNDER_WAY)
            ):
                request = waiting.popleft()
                under_way.append(request)
                self._bytes += request.size
                request.sent_at = time.monotonic()
                for call in request.calls:
                    self._hand_over(request, call)
                self._pgconn.pipeline_sync()
            if self._watch is None and under_way:
                self._watch = self._loop.call_later(self._patience, self._look_at_oldest)
            self._flush()
        except psycopg.Error:
            self.close()

    def _hand_over(self, request: _Request, call: Call) -> None:
        pgconn, statement = self._pgconn, call.statement
        values = [one if isinstance(one, bytes) else _bool(one) for one in call.parameters]
        formats = [pq.Format.BINARY] * len(values)
        name = self._prepared.get(statement)
        if name is None:
            oids = [OIDS[type(one)] for one in call.parameters]
            text = _numbered(statement)
            if not self._prepare or not call.small or not oids or statement in self._being_prepared:
                pgconn.send_query_params(text, values, oids, formats, pq.Format.BINARY)
                if _CHUNKS and not call.small and len(self._under_way) == 1:
                    pgconn.set_chunked_rows_mode(CHUNK_ROWS)
                    request.chunked = True
                return
            self._names += 1
            name = b"kv%d" % self._names
            self._being_prepared.add(statement)
            request.preparing.append((statement, name))
            pgconn.send_prepare(name, text, oids)
        pgconn.send_query_prepared(name, values, formats, pq.Format.BINARY)

    def _flush(self) -> None:
        try:
            unsent = self._pgconn.flush() == 1
        except psycopg.Error:
            self.close()
            return
        if unsent and not self._writing:
            self._loop.add_writer(self._socket, self._flush)
        elif self._writing and not unsent:
            self._loop.remove_writer(self._socket)
        self._writing = unsent

    # Receiving

    def _receive(self) -> None:
        try:
            self._pgconn.consume_input()
            self._take()
        except psycopg.Error:
            self.close()

    def _take_more(self) -> None:
        """Take the next part of a large answer."""
        if not self.closed:
            try:
                self._take()
            except psycopg.Error:
                self.close()

    def _take(self) -> None:
        """Take what has arrived, but no more than one part of a large answer."""
        pgconn, under_way = self._pgconn, self._under_way
        done = False
        while under_way and not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    break
                continue
            request = under_way[0]
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                under_way.popleft()
                self._bytes -= request.size
                self._note_prepared(request)
                request.finish()
                done = True
            elif status == pq.ExecStatus.FATAL_ERROR:
                request.error = request.error or psycopg.errors.error_from_result(result)
            elif status == pq.ExecStatus.TUPLES_CHUNK:
                self._rows.set_pgresult(result)
                request.rows += self._rows.load_rows(0, result.ntuples, tuple)
                self._loop.call_soon(self._take_more)
                break
            elif status == pq.ExecStatus.TUPLES_OK and not request.chunked:
                self._rows.set_pgresult(result)
                request.rows = self._rows.load_rows(0, result.ntuples, tuple)
        if pgconn.status != pq.ConnStatus.OK:
            self.close()
        elif done:
            self._go_on()

    def _note_prepared(self, request: _Request) -> None:
        for statement, name in request.preparing:
            self._being_prepared.discard(statement)
            if request.error is None:
                self._prepared[statement] = name

    def _go_on(self) -> None:
        if self._waiting:
            self._fill()
        elif not self._under_way:
            self._idle.set()

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING" and self._under_way:
            self._under_way[0].warned = True

    def _look_at_oldest(self) -> None:
        """Give the connection up if the oldest request has waited for too long."""
        self._watch = None
        if not self._under_way:
            return
        remaining = self._under_way[0].sent_at + self._patience - time.monotonic()
        if remaining <= 0:
            self.close()
        else:
            self._watch = self._loop.call_later(remaining, self._look_at_oldest)


async def open_link(conninfo: str, url: str, *, prepare: bool, patience: float) -> Link:
    """Return a new connection of the running event loop.

    Raises:
        EngineError, EngineTimeoutError: without libpq's message, which may contain a password.
    """
    try:
        connection = await _LoopConnection.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        failure = unreachable(error, url)
    else:
        return Link(connection, prepare=prepare, patience=patience)
    raise failure


@cache
def _numbered(statement: bytes) -> bytes:
    """Return a statement with libpq's placeholders."""
    parts = re.split(rb"%b", statement)
    return parts[0] + b"".join(b"$%d" % (at + 1) + part for at, part in enumerate(parts[1:]))


def _bool(value: object) -> bytes:
    return b"\1" if value else b"\0"
