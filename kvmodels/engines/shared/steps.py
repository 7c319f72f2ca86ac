"""Flows of requests to a server, carried out by a thread or by an event loop.

Rules of this module: a flow is a generator that yields requests. It is sent the answer of each, or is thrown the error
that ``translated`` makes of an error of the client. The chain is dropped, because a request in it may hold a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
RequestT = TypeVar("RequestT")

AnySteps: TypeAlias = Generator[Any, Any, T]
"""A flow whose requests only its transport knows."""

Translation: TypeAlias = tuple[tuple[type[Exception], ...], Callable[[Exception], Exception]]
"""The errors of a client, and what makes an error for the flow of one of them."""


def unchanged(*errors: type[Exception]) -> Translation:
    """Return the translation that gives a flow these errors as they are."""
    return errors, _as_it_is


def _as_it_is(error: Exception) -> Exception:
    return error


def run_steps(steps: Generator[RequestT, Any, T], answered: Callable[[RequestT], Any], translation: Translation) -> T:
    """Carry out a flow in this thread, and return its result; ``translation`` gives it the errors of ``answered``."""
    errors, translated = translation
    answer: Any = None
    failure: Exception | None = None
    try:
        while True:
            request = steps.send(answer) if failure is None else steps.throw(failure)
            answer = failure = None
            try:
                answer = answered(request)
            except errors as error:
                failure = translated(error)
    except StopIteration as done:
        result: T = done.value
        return result


async def arun_steps(
    steps: Generator[RequestT, Any, T],
    answered: Callable[[RequestT], Awaitable[Any]],
    translation: Translation,
    request: RequestT | None = None,
) -> T:
    """Carry out a flow in the running event loop, as ``run_steps`` does; ``request``: its first one, if taken."""
    errors, translated = translation
    answer: Any = None
    failure: Exception | None = None
    try:
        while True:
            if request is None:
                request = steps.send(answer) if failure is None else steps.throw(failure)
            answer = failure = None
            try:
                answer = await answered(request)
            except errors as error:
                failure = translated(error)
            request = None
    except StopIteration as done:
        result: T = done.value
        return result
