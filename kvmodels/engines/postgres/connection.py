"""Connections to a PostgreSQL server.

Rules of this module: a call that is interrupted, or whose deadline is over, ends its connection; it is never cancelled
on the server, because cancelling the wait for a standby reports success without replication. Nothing that a finalizer
calls takes a lock or waits. Nothing is paid for a fork: libpq's wrapper closes nothing in a child.
"""

from __future__ import annotations

import select
import struct
import weakref
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg import generators, pq, waiting
from psycopg.abc import PQGen
from psycopg.adapt import Dumper

from kvmodels.engines.postgres.errors import is_terminated, unreachable

ResultT = TypeVar("ResultT")

_IDLE: Final = pq.TransactionStatus.IDLE
_BYTEA_OID: Final = 17
_INT8_OID: Final = 20
_UUID_OID: Final = 2950
_NULL: Final = b"\xff\xff\xff\xff"


class Parameter(bytes):
    """A parameter of a statement in PostgreSQL's binary form; a subclass for each type."""

    __slots__ = ()


class ByteaArray(Parameter):
    """An array of byte strings."""

    __slots__ = ()


class Int8Array(Parameter):
    """An array of 64-bit integers and nulls."""

    __slots__ = ()


class UuidArray(Parameter):
    """An array of ids of 16 bytes."""

    __slots__ = ()


class Int8(Parameter):
    """One 64-bit integer."""

    __slots__ = ()


class Boolean(Parameter):
    """True or false."""

    __slots__ = ()


class Call(NamedTuple):
    """One statement with its parameters in binary form.

    ``small`` if it reads so few rows that other calls may wait for it.
    """

    statement: bytes
    parameters: tuple[bytes, ...]
    small: bool = True


Calls = Generator[Call, list[tuple[Any, ...]], ResultT]
"""Yields calls, is sent the rows of each, and returns their result."""


def last_answer(calls: Calls[ResultT], rows: list[tuple[Any, ...]]) -> ResultT:
    """Return the result of a generator whose last call has been answered."""
    try:
        calls.send(rows)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    raise AssertionError("there was another call")


def _array(oid: int, items: Sequence[bytes]) -> bytes:
    if not items:
        return struct.pack("!iii", 0, 0, oid)
    return struct.pack("!iiiii", 1, 1, oid, len(items), 1) + b"".join(items)


def byteas(items: Sequence[bytes | None]) -> ByteaArray:
    """Return an array parameter of byte strings."""
    pack = struct.Struct("!i").pack
    return ByteaArray(_array(_BYTEA_OID, [_NULL if one is None else pack(len(one)) + one for one in items]))


def int8s(items: Sequence[int | None]) -> Int8Array:
    """Return an array parameter of 64-bit integers."""
    pack = struct.Struct("!iq").pack
    return Int8Array(_array(_INT8_OID, [_NULL if one is None else pack(8, one) for one in items]))


def uuids(items: Sequence[bytes]) -> UuidArray:
    """Return an array parameter of ids."""
    return UuidArray(_array(_UUID_OID, [b"\0\0\0\x10" + one for one in items]))


def int8(number: int) -> Int8:
    """Return a parameter of one 64-bit integer."""
    return Int8(number.to_bytes(8, "big", signed=True))


CONNECT_ATTEMPTS: Final = 5
"""How often a connection is opened that an administrator ends each time while it is opened."""

TRUE: Final = Boolean(b"\1")
FALSE: Final = Boolean(b"\0")


class _ReadyDumper(Dumper):
    """Passes a parameter on as it is."""

    format = pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


OIDS: Final[dict[type, int]] = {
    ByteaArray: 1001,
    Int8Array: 1016,
    UuidArray: 2951,
    Int8: _INT8_OID,
    bytes: 17,
    Boolean: 16,
}
"""The types of parameters, as the server numbers them."""


class _ByteaArrayDumper(_ReadyDumper):
    oid = OIDS[ByteaArray]


class _Int8ArrayDumper(_ReadyDumper):
    oid = OIDS[Int8Array]


class _UuidArrayDumper(_ReadyDumper):
    oid = OIDS[UuidArray]


class _Int8Dumper(_ReadyDumper):
    oid = _INT8_OID


class _BooleanDumper(_ReadyDumper):
    oid = OIDS[Boolean]


class ReachedServer(Protocol):
    """The server of a store, and how it is reached."""

    @property
    def conninfo(self) -> str:
        """Return the connection string for libpq, which may contain a password."""
        ...

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    @property
    def answer_s(self) -> float:
        """Seconds after which a call without an answer is given up."""
        ...


class ConnectionPermit:
    """The right to use one connection; in the queue ``free`` while it is not used, else its store is the ``user``."""

    __slots__ = ("__weakref__", "free", "user")

    def __init__(self, free: SimpleQueue[ConnectionPermit]) -> None:
        self.free = free
        self.user: object = None


class PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose calls have a deadline and are never cancelled on the server.

    Attributes:
        backoff: seconds that one call may take.
        warned: whether the server has sent a warning since this was last set to false.
        permit: of the pool, while the connection is in use.
        rests_since: seconds of the monotonic clock, when it was given back.
    """

    backoff: float = 60.0
    warned: bool = False
    permit: ConnectionPermit | None = None
    rests_since: float = 0.0

    def wait(self, gen: PQGen[ResultT], interval: float = 0.1, timeout: float | None = None) -> ResultT:
        """Wait for the answer of a call. After an interrupt or past the deadline the connection is closed."""
        done = False
        try:
            result = waiting.wait(gen, self.pgconn.socket, interval, self.backoff if timeout is None else timeout)
            done = True
            return result
        finally:
            if not done and self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()

    def __del__(self, _: object = None, /) -> None:
        """Leave the end to libpq's wrapper, which does nothing in a forked child."""

    def call(self, statement: bytes, parameters: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, sent and received in binary form."""
        return self.execute(statement, parameters, binary=True).fetchall()

    def run(self, calls: Calls[ResultT]) -> ResultT:
        """Carry out the calls of a generator, one after the other, and return its result."""
        try:
            statement, parameters, _ = next(calls)
            while True:
                statement, parameters, _ = calls.send(self.call(statement, parameters))
        except StopIteration as done:
            result: ResultT = done.value
            return result

    def settle(self) -> bool:
        """Take the answer of a rollback that was sent; false if the connection has ended or is not at rest."""
        pgconn = self.pgconn
        if pgconn.status != pq.ConnStatus.OK:
            return False
        try:
            if pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self.wait(generators.fetch_many(pgconn))
        except psycopg.Error:
            return False
        if pgconn.transaction_status != _IDLE:
            return False
        # A connection at rest has nothing to say but its end, or a change of a setting, which is as rare.
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        return not poll.poll(0)

    def roll_back_later(self) -> None:
        """Send a rollback without waiting for its answer. For finalizers."""
        try:
            self.pgconn.send_query(b"ROLLBACK")
        except psycopg.Error:
            self.pgconn.finish()


def _notice(connection: PostgresConnection) -> Callable[[psycopg.errors.Diagnostic], None]:
    # Weakly, so that a connection that is lost to an interrupt goes at once, and the pool can replace its permit.
    reference = weakref.ref(connection)

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        warned = reference()
        if warned is not None and diagnostic.severity_nonlocalized == "WARNING":
            warned.warned = True

    return note


def connect(conninfo: str, url: str, *, prepare: bool, backoff: float) -> PostgresConnection:
    """Return a new connection. One that an administrator ends while it is opened is replaced.

    Raises:
        EngineError, EngineTimeoutError: without libpq's message, which may contain a password.
    """
    attempts = 0
    while True:
        try:
            connection = _opened(conninfo, prepare=prepare)
        except psycopg.Error as error:
            attempts += 1
            failure = unreachable(error, url, conninfo)
            again = is_terminated(error) and attempts < CONNECT_ATTEMPTS
        else:
            connection.backoff = backoff
            return connection
        if not again:
            raise failure


def _opened(conninfo: str, *, prepare: bool) -> PostgresConnection:
    connection = PostgresConnection.connect(conninfo, autocommit=True, prepare_threshold=0 if prepare else None)
    adapters = connection.adapters
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(Int8Array, _Int8ArrayDumper)
    adapters.register_dumper(UuidArray, _UuidArrayDumper)
    adapters.register_dumper(Int8, _Int8Dumper)
    adapters.register_dumper(Boolean, _BooleanDumper)
    connection.add_notice_handler(_notice(connection))
    return connection
