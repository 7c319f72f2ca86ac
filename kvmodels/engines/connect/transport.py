"""Sends requests and receives their answers: in the calling thread, or in an event loop.

Rules of this module: the only one that knows the HTTP client. It never follows a redirect and never repeats a request;
an idle connection that the server has closed is noticed before it is used. Errors of the client become ``NotSentError``
or ``LostAnswerError``, without their chain, because a request in it would hold the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any, Final, TypeVar

import httpx2

from kvmodels.engines.connect.exchange import (
    HttpAnswer,
    HttpCall,
    LostAnswerError,
    NotSentError,
    RetryPause,
    Steps,
    StreamedAnswer,
)
from kvmodels.engines.shared.steps import arun_steps, run_steps

T = TypeVar("T")

CONNECT_S: Final = 10.0
"""The longest wait for a connection, in seconds."""

IDLE_S: Final = 30.0
"""Seconds after which an idle connection is closed."""

MOST_BYTES: Final = 512 * 1024 * 1024
"""The largest answer, several times 1,000 rows of 64 KiB; a server may hold larger values that another API stored."""

_NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    httpx2.InvalidURL,
)


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS settings of all clients, with the certificates of the system; making them takes 20 ms."""
    return httpx2.create_ssl_context()


def _pool(size: int | None) -> httpx2.Limits:
    return httpx2.Limits(max_connections=size, max_keepalive_connections=size, keepalive_expiry=IDLE_S)


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=min(seconds, CONNECT_S))


def _options(call: HttpCall) -> Any:
    return {"headers": call.headers, "content": call.body, "timeout": _timeout(call.seconds)}


def _translated(error: Exception) -> NotSentError | LostAnswerError:
    if isinstance(error, LostAnswerError):
        return error
    text = f"{type(error).__name__}: {error}"
    return NotSentError(text) if isinstance(error, _NOT_SENT) else LostAnswerError(text)


_TRANSLATION: Final = ((httpx2.HTTPError, httpx2.InvalidURL, LostAnswerError), _translated)


class _Body:
    """The body of an answer as it arrives, which ends with LostAnswerError if it is too late or too large.

    ``seconds``: the time for the body. The client's own timeout is one for each part, so an answer that trickles in
    would never end.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._received = bytearray()

    def add(self, part: bytes) -> None:
        self._received += part
        if len(self._received) > MOST_BYTES:
            raise LostAnswerError("the answer is larger than KV Connect allows")
        if time.monotonic() > self._deadline:
            raise LostAnswerError("the answer did not arrive completely in time")

    def answer(self, response: httpx2.Response) -> HttpAnswer:
        return HttpAnswer(response.status_code, response.headers, bytes(self._received))


class ThreadTransport:
    """Sends requests in the calling thread, over connections that the threads share."""

    def __init__(self, pool_size: int) -> None:
        self._client = httpx2.Client(verify=_tls(), limits=_pool(pool_size))

    def run(self, steps: Steps[T]) -> T:
        """Carry out the requests and pauses of a flow, and return its result. Raises what the flow raises."""
        return run_steps(steps, self._answered, _TRANSLATION)

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._client.close()

    def _answered(self, request: HttpCall | RetryPause) -> HttpAnswer | None:
        if isinstance(request, RetryPause):
            time.sleep(request.seconds)
            return None
        with self._client.stream("POST", request.url, **_options(request)) as response:
            body = _Body(request.seconds)
            for part in response.iter_bytes():
                body.add(part)
            return body.answer(response)


class LoopTransport:
    """Sends requests in one event loop, over connections of its own; ``pool_size`` is their number, or None."""

    def __init__(self, pool_size: int | None) -> None:
        self._client = httpx2.AsyncClient(verify=_tls(), limits=_pool(pool_size))

    async def run(self, steps: Steps[T]) -> T:
        """Carry out the requests and pauses of a flow, and return its result. Raises what the flow raises."""
        return await arun_steps(steps, self._answered, _TRANSLATION)

    @contextlib.asynccontextmanager
    async def stream(self, call: HttpCall) -> AsyncGenerator[StreamedAnswer]:
        """Send a request whose answer arrives in parts; ``seconds`` of the request is the longest wait for a part.

        Raises:
            NotSentError, LostAnswerError: there is no answer, or it ended early.
        """
        try:
            async with self._client.stream("POST", call.url, **_options(call)) as response:
                yield StreamedAnswer(response.status_code, response.aiter_bytes())
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _translated(error) from None

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        await self._client.aclose()

    async def _answered(self, request: HttpCall | RetryPause) -> HttpAnswer | None:
        if isinstance(request, RetryPause):
            await asyncio.sleep(request.seconds)
            return None
        async with self._client.stream("POST", request.url, **_options(request)) as response:
            body = _Body(request.seconds)
            async for part in response.aiter_bytes():
                body.add(part)
            return body.answer(response)
