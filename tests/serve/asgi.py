"""Requests to the application without a network."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from kvmodels.ext.serve import KvConnectServer
from tests.serve.serving import TOKEN


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """A client of one path of the application."""

    def __init__(self, app: KvConnectServer, path: str = "/", token: str = TOKEN, root: str = "") -> None:
        self.app = app
        self.path = path
        self.root = root
        self.token = token
        self.data_headers: dict[str, str] = {}

    async def request(
        self, path: str, body: bytes, headers: dict[str, str], method: str = "POST", pieces: int = 1 << 20
    ) -> Answer:
        parts = [body[at : at + pieces] for at in range(0, len(body), pieces)] or [b""]
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": self.root,
            "scheme": "http",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if not sent:
            return Answer(499, b"", {})  # the client had gone before the first frame of a watch
        start, *rest = sent
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], b"".join(one.get("body", b"") for one in rest), answered)

    async def exchange(self, versions: tuple[int, ...] = (1, 2, 3), **headers: str) -> Answer:
        body = json.dumps({"supportedVersions": versions}).encode()
        return await self.request(self.path, body, {"authorization": f"Bearer {self.token}", **headers})

    async def connect(self, versions: tuple[int, ...] = (3,)) -> dict[str, Any]:
        """Exchange metadata, and use it for the data path from now on."""
        answer = await self.exchange(versions)
        assert answer.status == 200, answer
        found = json.loads(answer.body)
        self.data_headers = {
            "authorization": f"Bearer {found['token']}",
            "x-denokv-version": str(found["version"]),
            "x-denokv-database-id": found["databaseId"],
        }
        return found

    async def call(self, method: str, body: bytes) -> Answer:
        return await self.request(f"{self.path.rstrip('/')}/v2/{method}", body, self.data_headers)


class Watching:
    """A watch whose frames arrive in a queue."""

    def __init__(self, client: Client, body: bytes) -> None:
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.status: int | None = None
        self._gone = asyncio.Event()
        self._body: bytes | None = body
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"{client.path.rstrip('/')}/v2/watch",
            "headers": [(name.encode(), value.encode()) for name, value in client.data_headers.items()],
        }
        self.task = asyncio.ensure_future(client.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.put_nowait(message["body"] or None)

    async def leave(self) -> None:
        self._gone.set()
        await self.task
