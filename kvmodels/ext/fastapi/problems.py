"""Errors of the library as answers of the service, in the form of RFC 9457 (``application/problem+json``).

Rules of this module: an answer has the fixed message of the error and names of fields, never values: they may belong to
another user. Errors that a client can neither cause nor mend stay a 500.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from kvmodels.errors import (
    AlreadyExistsError,
    DoesNotExist,
    EngineTimeoutError,
    InvalidCursorError,
    InvalidLookupError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    NoUsableIndexError,
    PrimaryKeyChangedError,
    ProtectedError,
    ReferenceViolationError,
    RetriesExhaustedError,
    SchemaMismatchError,
    StaleObjectError,
    TransactionConflictError,
    UniqueViolationError,
    UnknownFieldError,
)

PROBLEM_STATUS: Final[dict[type[KvModelsError], int]] = {
    DoesNotExist: 404,
    UniqueViolationError: 409,
    AlreadyExistsError: 409,
    ReferenceViolationError: 409,
    ProtectedError: 409,
    StaleObjectError: 409,
    PrimaryKeyChangedError: 422,
    UnknownFieldError: 422,
    InvalidLookupError: 422,
    InvalidValueError: 422,
    LimitExceededError: 422,
    InvalidCursorError: 400,
    NoUsableIndexError: 400,
    RetriesExhaustedError: 503,
    TransactionConflictError: 503,
    EngineTimeoutError: 503,
    SchemaMismatchError: 503,
}
"""The status of each error; of a class with several bases in the list, the first counts. A stale object is 412 if the
request has an If-Match."""

RETRY_AFTER_S: Final = 1
_IN_QUERY: Final = (InvalidCursorError, InvalidLookupError, NoUsableIndexError)


def add_error_handlers(app: FastAPI, *, pages: str = "urn:kvmodels:") -> None:
    """Answer errors of the library as problems (RFC 9457).

    The body has ``type`` (the page of the error), ``title``, ``status``, ``code``, and ``errors`` in the form of
    FastAPI's answer to invalid input, if the error names fields. It has no values. An answer 503 has Retry-After.

    Args:
        app: the application.
        pages: the beginning of ``type``; the code of the error follows.
    """

    async def answer(request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, KvModelsError):
            raise error
        status = _status(error, request)
        if status is None:
            raise error
        problem: dict[str, Any] = {
            "type": f"{pages}{error.code}",
            "title": error.message,
            "status": status,
            "code": error.code,
        }
        place = "query" if isinstance(error, _IN_QUERY) else "body"
        errors = [{"loc": [place, name], "msg": error.message, "type": error.code} for name in _fields(error)]
        if errors:
            problem["errors"] = errors
        headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
        return JSONResponse(problem, status, headers, media_type="application/problem+json")

    app.add_exception_handler(KvModelsError, answer)


def _status(error: KvModelsError, request: Request) -> int | None:
    if isinstance(error, StaleObjectError) and "if-match" in request.headers:
        return 412
    return next((status for cls, status in PROBLEM_STATUS.items() if isinstance(error, cls)), None)


def _fields(error: KvModelsError) -> Iterator[str]:
    """Yield the names of the fields, or of the parameter, that an error is about."""
    if isinstance(error, UniqueViolationError):
        yield from map(str, error.fields or ())
        return
    name = getattr(error, "parameter", None) or getattr(error, "field", None)
    if isinstance(name, str):
        yield name
