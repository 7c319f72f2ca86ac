"""Applications behind a real uvicorn, and a real HTTP client that reads events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2
import uvicorn
from fastapi import FastAPI

LONGEST_S = 60


class ServedApplication:
    """An application behind uvicorn in a thread."""

    def __init__(self, app: FastAPI) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def url(self) -> str:
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def tasks(self) -> set[str]:
        """The names of the coroutines that run for requests."""
        return asyncio.run_coroutine_threadsafe(self._tasks(), self._loop).result(LONGEST_S)

    async def _tasks(self) -> set[str]:
        coroutines = [task.get_coro() for task in asyncio.all_tasks()]
        return {getattr(one, "__qualname__", "") for one in coroutines}

    def _run(self) -> None:
        async def main() -> None:
            serving = asyncio.ensure_future(self._server.serve())
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.005)
            self._started.set()
            await serving

        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(main())
        finally:
            self._started.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(LONGEST_S)
        assert self._server.started
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()


@dataclass
class SentEvent:
    """An event as a client sees it; a position without an event has no data."""

    event: str | None = None
    data: Any = None
    id: str | None = None
    comment: str | None = None


class EventStream(Iterator[SentEvent]):
    """The events of a response, as the HTML standard defines them."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()
        self.position: str | None = None

    def __next__(self) -> SentEvent:
        found = SentEvent()
        for line in self._lines:
            if not line:
                self.position = found.id or self.position
                return found
            name, _, text = line.partition(":")
            text = text.removeprefix(" ")
            if name == "data":
                found.data = json.loads(text)
            else:
                setattr(found, name or "comment", text)
        raise StopIteration

    def records(self, count: int) -> list[tuple[str, Any, Any]]:
        """The next events with data: name, key and record."""
        found: list[tuple[str, Any, Any]] = []
        while len(found) < count:
            one = next(self)
            if one.data is not None:
                assert one.data["event"] == one.event
                found.append((one.data["event"], one.data["key"], one.data["record"]))
        return found


@contextmanager
def events(client: httpx2.Client, path: str, position: str | None = None, **params: str) -> Generator[EventStream]:
    """Read the events of an endpoint, from a position; the connection is closed at the end of the block."""
    headers = {} if position is None else {"Last-Event-ID": position}
    with client.stream("GET", path, headers=headers, params=params, timeout=LONGEST_S) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield EventStream(response)
