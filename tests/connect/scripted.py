"""A small KV Connect server of the tests, which a script makes misbehave.

It speaks HTTP/1.1 from a thread, over an engine in memory. It exists for faults that a sound server does not have; the
answers of a sound one are those of an engine in memory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    ReadResult,
    Row,
    Set,
    point,
)
from kvmodels.engines.connect.wire.decoding import decode_atomic_write, decode_snapshot_read, decode_watch
from kvmodels.engines.connect.wire.encoding import (
    encode_atomic_write_output,
    encode_snapshot_read_output,
    encode_watch_output,
)
from kvmodels.engines.connect.wire.frames import PING, encode_frame
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteOutput,
    KvEntry,
    MutationMessage,
    MutationType,
    ReadRangeOutput,
    ReadStatus,
    SnapshotReadOutput,
    WatchKeyOutput,
    WatchOutput,
    WriteStatus,
)
from kvmodels.engines.contract import Engine
from kvmodels.errors import InvalidValueError

ACCESS_TOKEN = "access-token-of-the-tests"
DATA_TOKEN = "data-token-of-the-tests"
DATABASE_ID = "6d2b1f0e-98a4-4c0a-8f2b-6b8f3c1f0a11"

PING_INTERVAL_S = 0.05

_SUMS: dict[int, Any] = {MutationType.SUM: "sum", MutationType.MIN: "min", MutationType.MAX: "max"}


class Request(NamedTuple):
    """The requests that the server received."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """An answer of the server; without a status it closes the connection, after ``parts`` as well."""

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] = {}
    parts: Generator[bytes] | None = None


LOST = Answer(None)

Script = Callable[[Request, "ScriptedServer"], Answer | None]


class ScriptedServer:
    """Answers as KV Connect does, unless the script answers.

    Args:
        engine: holds the data.
        script: is asked first; None of it leaves the answer to the server.
    """

    def __init__(self, engine: Engine, script: Script = lambda _request, _server: None) -> None:
        self.engine = engine
        self.script = script
        self.requests: list[Request] = []
        self.version = 3
        self.max_checks = 100
        self.names_failed_checks = True
        self.seconds = 3_600.0
        self.open_watches = 0
        self.pings = 0
        self.withheld = False
        """Whether the streams of watches send nothing but pings."""
        self._generation = 0
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.break_watches()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self) -> list[str]:
        """The paths of the requests so far."""
        return [one.path for one in self.requests]

    def answer(self, request: Request) -> Answer:
        """Return the answer of a sound server."""
        if request.path == "/":
            return self.metadata()
        if request.headers["authorization"] != f"Bearer {DATA_TOKEN}":
            return Answer(401, b"Invalid access token.")
        calls = {"snapshot_read": self.read, "atomic_write": self.write, "watch": self.watch}
        return calls[request.path.rpartition("/")[2]](request)

    def metadata(self, **changed: object) -> Answer:
        """Return the metadata, with some fields changed."""
        told: dict[str, object] = {
            "version": self.version,
            "databaseId": DATABASE_ID,
            "endpoints": [{"url": "/v2" if self.version > 1 else f"{self.url}/v2", "consistency": "strong"}],
            "token": DATA_TOKEN,
            "expiresAt": _later(self.seconds),
        }
        return Answer(200, json.dumps(told | changed).encode(), {"content-type": "application/json"})

    def read(self, request: Request, **changed: Any) -> Answer:
        """Return the answer to a snapshot read, with some fields changed."""
        ranges = [ReadRange(o.start, o.end, o.limit, o.reverse) for o in decode_snapshot_read(request.body).ranges]
        if len(ranges) > 10 or sum(one.limit or 0 for one in ranges) > 1_000:
            return Answer(400, b"Too many read ranges requested in one read request.")
        found = self.engine.read(ranges)
        assert isinstance(found, ReadResult)
        outputs = tuple(
            ReadRangeOutput(tuple(KvEntry(row.key, row.value, row.encoding, row.versionstamp) for row in rows))
            for rows in found.ranges
        )
        told = {"read_is_strongly_consistent": True, "status": ReadStatus.SUCCESS} | changed
        return Answer(200, encode_snapshot_read_output(SnapshotReadOutput(outputs, **told)))

    def write(self, request: Request) -> Answer:
        """Return the answer to an atomic write."""
        message = decode_atomic_write(request.body)
        if len(message.checks) > self.max_checks:
            return Answer(400, b"Too many checks included in atomic write.")
        checks = tuple(Check(one.key, one.versionstamp or None) for one in message.checks)
        try:
            outcome = self.engine.commit(AtomicWrite(checks, tuple(map(_mutation, message.mutations))))
        except InvalidValueError:
            return Answer(400, b"Failed to perform 'sum' mutation on a non-U64 value in the database")
        if isinstance(outcome, Conflict):
            failed = outcome.failed_checks if self.names_failed_checks else ()
            return Answer(
                200, encode_atomic_write_output(AtomicWriteOutput(WriteStatus.CHECK_FAILURE, failed_checks=failed))
            )
        return Answer(200, encode_atomic_write_output(AtomicWriteOutput(WriteStatus.SUCCESS, outcome.versionstamp)))

    def watch(self, request: Request) -> Answer:
        """Return the answer to a watch, which ends with its connection."""
        if self.version < 3:
            return Answer(404)
        return Answer(200, parts=self._frames(decode_watch(request.body).keys))

    def break_watches(self) -> None:
        """End the streams of all watches."""
        self._generation += 1

    def _frames(self, keys: tuple[bytes, ...]) -> Generator[bytes]:
        told, generation = None, self._generation
        self.open_watches += 1
        changed = threading.Event()
        unsubscribe = self.engine.subscribe(changed.set)
        try:
            while generation == self._generation:
                changed.clear()
                found = self.engine.read([point(key) for key in keys])
                assert isinstance(found, ReadResult)
                state = WatchOutput(ReadStatus.SUCCESS, tuple(map(_watched, found.ranges)))
                if state != told and not self.withheld:
                    told = state
                    yield encode_frame(encode_watch_output(state))
                else:
                    yield PING
                    self.pings += 1
                changed.wait(PING_INTERVAL_S)
        finally:
            unsubscribe()
            self.open_watches -= 1


def _watched(rows: Sequence[Row]) -> WatchKeyOutput:
    return WatchKeyOutput(True, KvEntry(*rows[0][:4]) if rows else None)


def _later(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def _mutation(message: MutationMessage) -> Mutation:
    kind = message.mutation_type
    if kind == MutationType.DELETE:
        return Delete(message.key)
    assert message.value is not None
    if kind in _SUMS:
        return Arithmetic(_SUMS[kind], message.key, int.from_bytes(message.value.data, "little"))
    versionstamped = kind == MutationType.SET_SUFFIX_VERSIONSTAMPED_KEY
    return Set(message.key, message.value.data, message.value.encoding, message.expire_at_ms or None, versionstamped)


class _Handler(BaseHTTPRequestHandler):
    """Reads one request after another from a connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment
    owner: ScriptedServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body)
        self.owner.requests.append(request)
        answer = self.owner.script(request, self.owner) or self.owner.answer(request)
        if answer.status is None:
            self.close_connection = True
            return
        with suppress(OSError):  # the client has given up
            self.send_response_only(answer.status)
            self.close_connection = answer.parts is not None
            length = {} if answer.parts is not None else {"content-length": str(len(answer.body))}
            date = {"date": self.date_time_string()}
            for name, value in {**date, **length, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self._send(answer.body)
            for part in answer.parts or ():
                self._send(part)

    def _send(self, part: bytes) -> None:
        self.wfile.write(part)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
