"""One HTTP request of an ASGI server: its headers, its body up to a limit, and its answer.

Rules of this module: it knows nothing of KV Connect. A body that is too large is refused as soon as that is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.ext.serve import refusals
from kvmodels.ext.serve.refusals import RequestRefusedError

Scope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]

BODY_TIMEOUT_S: Final = 30.0
"""The time in which the whole body of a request must arrive."""

PROTOBUF: Final = "application/x-protobuf"
STREAM: Final = "application/octet-stream"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """A complete answer."""

    status: int
    body: bytes
    content_type: str


class HttpExchange:
    """A request and the way to answer it.

    Args:
        scope, receive, send: those of the ASGI server.
        max_body_bytes: the largest body that is read.
    """

    __slots__ = ("_headers", "_max_body_bytes", "_receive", "_send", "method", "path", "root", "scheme")

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._max_body_bytes = max_body_bytes
        self._headers: dict[str, str] = {}
        given: Iterable[tuple[bytes, bytes]] = scope["headers"]
        for name, value in given:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self.method: str = scope["method"]
        self.root: str = scope.get("root_path", "").rstrip("/")
        path: str = scope["path"]
        # Some servers leave the path of a mounted application complete, others remove the path of the mount.
        self.path = path.removeprefix(self.root) if self.root and path.startswith(self.root + "/") else path
        self.scheme: str = scope.get("scheme", "http")

    def header(self, name: str) -> str | None:
        """Return the value of a header, named in lower case; None if it is absent."""
        return self._headers.get(name)

    async def body(self) -> bytes:
        """Return the body. Raises RequestRefusedError if it is too large, too slow or not complete."""
        announced = self._headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._max_body_bytes:
            raise RequestRefusedError(413, refusals.REQUEST_TOO_LARGE)
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._whole_body()
        except TimeoutError:
            raise RequestRefusedError(408, refusals.REQUEST_TOO_SLOW) from None

    async def _whole_body(self) -> bytes:
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise RequestRefusedError(400, refusals.INVALID_MESSAGE)  # the client is gone, and reads no answer
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes:
                raise RequestRefusedError(413, refusals.REQUEST_TOO_LARGE)
            if not message.get("more_body", False):
                return bytes(body)

    async def answer(self, answer: CompleteAnswer) -> None:
        """Send a complete answer."""
        await self._begin(answer.status, answer.content_type, len(answer.body))
        await self._send({"type": "http.response.body", "body": answer.body})

    async def begin_stream(self) -> None:
        """Begin an answer whose length is not known."""
        await self._begin(200, STREAM, None)

    async def send_part(self, part: bytes) -> None:
        """Send a part of a stream."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end_stream(self) -> None:
        """End a stream."""
        await self._send({"type": "http.response.body", "body": b""})

    async def disconnected(self) -> None:
        """Wait until the client has gone away."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _begin(self, status: int, content_type: str, length: int | None) -> None:
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-store")]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
