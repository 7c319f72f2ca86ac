"""A connection of one event loop with many requests under way at the same time, in libpq's pipeline mode.

Rules of this module: it is the only one that calls libpq directly. A commit ends with a Sync of its own, so it is a
transaction of its own and fails alone. Small reads of one turn of the loop share a Sync, because each Sync is a call of
the operating system; if one of them fails, those behind it are sent again. A request is answered when the server is
ready for the next one, never when its rows arrive: the wait for a standby, and an error of the commit itself, come
after them. Nothing is cancelled on the server. A statement counts as prepared when the answer of its own preparation
says so. What cannot be sent yet waits here, so that the requests and bytes under way are bounded.
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
from kvmodels.engines.postgres.connection import CONNECT_ATTEMPTS, OIDS, Call
from kvmodels.engines.postgres.errors import is_terminated, unreachable

MOST_UNDER_WAY: Final = 256
"""Requests of one connection that wait for their answer."""

MOST_BYTES_UNDER_WAY: Final = 1 << 20
"""Bytes of parameters that wait for their answer, unless one request alone has more."""

CHUNK_ROWS: Final = 1_000
"""Rows of a large answer that one turn of the event loop takes."""

MOST_PREPARED: Final = 100
"""Statements that stay prepared on a connection: each store has about ten, and stores of many schemas may share it."""

_CHUNKS: Final = pq.version() >= 170_000

_LOST: Final = "the connection to the server was lost"


class _LoopConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """Opens the connection; what is sent on it goes past psycopg."""

    def __del__(self, _: object = None, /) -> None:
        """Leave the end to libpq's wrapper, which does nothing in a forked child."""


class _Request:
    """Calls that are one transaction, and the future that gets the answer of the last one."""

    __slots__ = (
        "aborted",
        "answer",
        "arrived",
        "calls",
        "chunked",
        "error",
        "preparing",
        "rows",
        "shared",
        "size",
        "timed",
        "warned",
    )

    def __init__(
        self,
        calls: Sequence[Call],
        answer: asyncio.Future[CallAnswer] | None,
        size: int,
        *,
        shared: bool,
        timed: bool = False,
    ) -> None:
        self.calls = calls
        self.answer = answer
        self.size = size
        self.shared = shared
        self.timed = timed
        self.arrived = 0.0
        self.aborted = False
        self.rows: list[tuple[Any, ...]] = []
        self.chunked = False
        self.error: psycopg.Error | None = None
        self.warned = False
        self.preparing: list[tuple[bytes, bytes]] = []

    def finish(self) -> None:
        answer = self.answer
        if answer is None or answer.done():
            return  # no caller waits any more
        if self.error is not None:
            answer.set_exception(self.error)
        else:
            answer.set_result(
                CallAnswer(self.rows, self.warned, time.monotonic() - self.arrived if self.arrived else None)
            )


class _Segment:
    """Requests that end with one Sync: for each statement its request, and how many statements were answered."""

    __slots__ = ("answered", "requests", "sent_at", "statements")

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.statements: list[_Request] = []
        self.answered = 0
        self.sent_at = time.monotonic()

    @property
    def current(self) -> _Request:
        """The request whose statement is being answered; the last one at the end."""
        return self.statements[min(self.answered, len(self.statements) - 1)]


class Link:
    """One connection in pipeline mode. For the coroutines of one event loop.

    Args:
        connection: at rest.
        prepare: whether statements are prepared.
        patience: seconds that the oldest request may wait for its answer; then the connection is given up.

    Attributes:
        closed: whether the connection has ended.
        rests_since: seconds of the clock of the loop, when it was opened or the last request was answered.
    """

    def __init__(self, connection: _LoopConnection, *, prepare: bool, patience: float) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepare = prepare
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._under_way: deque[_Segment] = deque()
        self._open: _Segment | None = None
        self._number = 0
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
        self.rests_since = self._loop.time()
        connection.add_notice_handler(self._notice)
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._receive)

    @property
    def load(self) -> int:
        """The requests without an answer."""
        return self._number + len(self._waiting)

    async def call(self, *calls: Call, shared: bool = False) -> CallAnswer:
        """Send calls as one transaction, and return the answer of the last one; ``shared``: see ``send``.

        Raises:
            psycopg.Error: one that says nothing of the outcome if the connection was lost.
        """
        answer: asyncio.Future[CallAnswer] = self._loop.create_future()
        self.send(calls, answer, shared=shared)
        return await answer

    def send(
        self,
        calls: Sequence[Call],
        answer: asyncio.Future[CallAnswer] | None = None,
        *,
        shared: bool = False,
        timed: bool = False,
    ) -> None:
        """Send calls as one transaction, or with others of this turn if it is a small read and ``shared``.

        Args:
            calls: of the transaction.
            answer: gets what ``call`` returns or raises.
            shared: whether the calls may share a Sync.
            timed: whether to measure the end of the transaction: the server then sends the rows before it.
        """
        size = sum([sum(map(len, call.parameters)) for call in calls])
        request = _Request(calls, answer, size, shared=shared, timed=timed)
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
        lost = [*(request for segment in self._under_way for request in segment.requests), *self._waiting]
        self._under_way.clear()
        self._open = None
        self._number = 0
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
        waiting = self._waiting
        try:
            while waiting and (
                not self._number
                or (self._number < MOST_UNDER_WAY and self._bytes + waiting[0].size <= MOST_BYTES_UNDER_WAY)
            ):
                request = waiting.popleft()
                self._number += 1
                self._bytes += request.size
                if self._open is not None and not request.shared:
                    self._end_segment()
                segment = self._open
                if segment is None:
                    segment = _Segment()
                    self._under_way.append(segment)
                segment.requests.append(request)
                for call in request.calls:
                    self._hand_over(segment, request, call)
                if request.timed:
                    self._pgconn.send_flush_request()
                if not request.shared:
                    self._pgconn.pipeline_sync()
                elif self._open is None:
                    self._open = segment
                    self._loop.call_soon(self._end_turn)
            if self._watch is None and self._under_way:
                self._watch = self._loop.call_later(self._patience, self._look_at_oldest)
            if self._open is None:
                self._flush()
        except psycopg.Error:
            self.close()

    def _end_turn(self) -> None:
        """Send the small reads of the turn of the loop that is over."""
        if self._open is None:
            return
        try:
            self._end_segment()
        except psycopg.Error:
            self.close()
        else:
            self._flush()

    def _end_segment(self) -> None:
        self._open = None
        self._pgconn.pipeline_sync()

    def _hand_over(self, segment: _Segment, request: _Request, call: Call) -> None:
        segment.statements.append(request)
        pgconn, statement = self._pgconn, call.statement
        values = list(call.parameters)
        formats = [pq.Format.BINARY] * len(values)
        name = self._prepared.get(statement)
        if name is not None:
            if len(self._prepared) > MOST_PREPARED // 2:  # the order matters only once there are too many
                self._prepared[statement] = self._prepared.pop(statement)
        else:
            oids = [OIDS[type(one)] for one in call.parameters]
            text = _numbered(statement)
            if not self._prepare or not call.small or not oids or statement in self._being_prepared:
                pgconn.send_query_params(text, values, oids, formats, pq.Format.BINARY)
                if _CHUNKS and not call.small and self._number == 1:
                    pgconn.set_chunked_rows_mode(CHUNK_ROWS)
                    request.chunked = True
                return
            if len(self._prepared) >= MOST_PREPARED:
                self._forget_oldest(segment, request)
            self._names += 1
            name = b"kv%d" % self._names
            self._being_prepared.add(statement)
            request.preparing.append((statement, name))
            segment.statements.append(request)
            pgconn.send_prepare(name, text, oids)
        pgconn.send_query_prepared(name, values, formats, pq.Format.BINARY)

    def _forget_oldest(self, segment: _Segment, request: _Request) -> None:
        """Have the server forget the prepared statement that was not used for longest."""
        segment.statements.append(request)
        name = self._prepared.pop(next(iter(self._prepared)))
        self._pgconn.send_query_params(b"DEALLOCATE " + name, [], [], [], pq.Format.BINARY)

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
                under_way[0].answered += 1
                continue
            request = under_way[0].current
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                self._finish(under_way.popleft())
                done = True
            elif status == pq.ExecStatus.PIPELINE_ABORTED:
                request.aborted = True
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
                if request.timed:
                    request.arrived = time.monotonic()
        if pgconn.status != pq.ConnStatus.OK:
            self.close()
        elif done:
            self._go_on()

    def _finish(self, segment: _Segment) -> None:
        """Answer the requests of a segment; those behind one that has failed are sent again."""
        for request in segment.requests:
            self._number -= 1
            self._bytes -= request.size
            for statement, name in request.preparing:
                self._being_prepared.discard(statement)
                if request.error is None and not request.aborted:
                    self._prepared[statement] = name
            if request.aborted and request.error is None:
                again = _Request(request.calls, request.answer, request.size, shared=False)
                self._waiting.append(again)
            else:
                request.finish()

    def _go_on(self) -> None:
        if self._waiting:
            self._fill()
        elif not self._under_way:
            self.rests_since = self._loop.time()
            self._idle.set()

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING" and self._under_way:
            self._under_way[0].current.warned = True

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
    """Return a new connection of the running event loop. One that an administrator ends meanwhile is replaced.

    Raises:
        EngineError, EngineTimeoutError: without libpq's message, which may contain a password.
    """
    attempts = 0
    while True:
        try:
            connection = await _LoopConnection.connect(conninfo, autocommit=True)
        except psycopg.Error as error:
            attempts += 1
            failure = unreachable(error, url, conninfo)
            again = is_terminated(error) and attempts < CONNECT_ATTEMPTS
        else:
            return Link(connection, prepare=prepare, patience=patience)
        if not again:
            raise failure


@cache
def _numbered(statement: bytes) -> bytes:
    """Return a statement with libpq's placeholders."""
    parts = re.split(rb"%b", statement)
    return parts[0] + b"".join(b"$%d" % (at + 1) + part for at, part in enumerate(parts[1:]))
