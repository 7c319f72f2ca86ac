"""The requests of the engine as values, and what a transport answers; the flows that yield them do no input or output.

Rules of this module: a flow is a generator that yields ``HttpCall`` and ``RetryPause``. It is sent an
``HttpAnswer``, or is thrown ``NotSentError`` or ``LostAnswerError``. So a thread and an event loop run the same
flows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class HttpCall(NamedTuple):
    """A POST request.

    Attributes:
        url: absolute.
        headers: of the request, the token among them.
        body: is sent whole.
        seconds: how long a connection, and then an answer, is waited for.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def __repr__(self) -> str:  # headers hold the token
        return f"HttpCall(url={self.url!r}, {len(self.body)} bytes)"


class HttpAnswer(NamedTuple):
    """A whole answer: its status, its headers by lower-case name, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamedAnswer(NamedTuple):
    """The status of an answer, and the parts of its body as they arrive."""

    status: int
    parts: AsyncIterator[bytes]


class RetryPause(NamedTuple):
    """A wait before the next request."""

    seconds: float


class NotSentError(Exception):
    """The request certainly did not reach the server; the text says why."""


class LostAnswerError(Exception):
    """The request may have reached the server, but there is no answer; the text says why."""


Steps: TypeAlias = Generator[HttpCall | RetryPause, Any, T]
