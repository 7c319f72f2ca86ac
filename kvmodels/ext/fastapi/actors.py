"""Who writes in a request, for the history of the records.

Rules of this module: the dependency is asynchronous. It runs in the task of the request, whose context the endpoint
has, also one with ``def`` in its thread. What a synchronous dependency sets is lost with the thread that it ran in.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from fastapi import Depends

from kvmodels.flows.writing.acting import acting as writing_as


def _no_reason() -> None:
    return None


def acting(
    actor: Callable[..., Any], *, reason: Callable[..., Any] = _no_reason
) -> Callable[..., AsyncGenerator[None]]:
    """Return a dependency that names who writes in a request: ``dependencies=[Depends(acting(user_name))]``.

    Every write of the endpoint, also in a transaction of the request, has this actor and reason in the history. The
    dependency can be given to one endpoint, a router or the application.

    Args:
        actor: a dependency of FastAPI, such as a function of the ``Request`` or of the current user, with or without
            ``async``; it returns the name, at most 200 bytes, or None if nobody is known.
        reason: a dependency that returns the reason, at most 200 bytes, or None.

    Returns:
        A dependency for ``Depends``. A name or reason that is no such text is an InvalidArgumentError.

    Examples:
        >>> from fastapi import Depends, FastAPI, Request
        >>> def user_name(request: Request) -> str | None:
        ...     return request.headers.get("X-User")
        >>> app = FastAPI(dependencies=[Depends(acting(user_name))])
    """
    name, cause = Depends(actor), Depends(reason)

    async def of_request(by: Any = name, why: Any = cause) -> AsyncGenerator[None]:
        if by is None:
            yield
            return
        with writing_as(by, why):
            yield

    return of_request
