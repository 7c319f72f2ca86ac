"""Errors of the library as answers of the service, in the form of RFC 9457 (``application/problem+json``).

Rules of this module: an answer has the fixed message of the error and names of fields, never values: they may belong to
another user. Errors that a client can neither cause nor mend stay a 500.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as AnyHTTPException

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
MEDIA_TYPE: Final = "application/problem+json"
_IN_QUERY: Final = (InvalidCursorError, InvalidLookupError, NoUsableIndexError)


class FieldProblem(BaseModel):
    """A field or parameter that an error names, as in FastAPI's answer to invalid input.

    Attributes:
        loc: ``body`` or ``query``, and the name.
        msg: the message of the error.
        type: its code.
    """

    loc: list[str]
    msg: str
    type: str


class Problem(BaseModel):
    """The body of an error (RFC 9457).

    Attributes:
        type: the page of the error; ``about:blank`` for an ``HTTPException``.
        title: the message of the error.
        status: the status of the response.
        code: the code of the error; None for an ``HTTPException``.
        detail: the detail of an ``HTTPException``.
        errors: the fields that the error names.
    """

    type: str
    title: str
    status: int
    code: str | None = None
    detail: str | None = None
    errors: list[FieldProblem] | None = None


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an endpoint for its OpenAPI description: ``responses=problems(404, 409)``.

    Args:
        statuses: the statuses of the errors.

    Returns:
        A value for ``responses=`` of an endpoint, a router or an application with ``add_error_handlers``.

    Examples:
        >>> sorted(problems(404, 409))
        [404, 409]
    """
    return {status: {"model": Problem, "description": HTTPStatus(status).phrase} for status in statuses}


def add_error_handlers(app: FastAPI, *, pages: str = "urn:kvmodels:") -> None:
    """Answer errors of the library, and each ``HTTPException`` with a text as its detail, as problems (RFC 9457).

    The body is a ``Problem``: ``type`` (the page of the error), ``title``, ``status``, ``code``, and ``errors`` in the
    form of FastAPI's answer to invalid input, if the error names fields. It has no values. An answer 503 has
    Retry-After. The body of an ``HTTPException`` has its ``detail``. Add the handlers before the first request.

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
        place = "query" if isinstance(error, _IN_QUERY) else "body"
        fields = [FieldProblem(loc=[place, name], msg=error.message, type=error.code) for name in _fields(error)]
        headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
        return _response(
            Problem(
                type=f"{pages}{error.code}", title=error.message, status=status, code=error.code, errors=fields or None
            ),
            headers,
        )

    app.add_exception_handler(KvModelsError, answer)
    app.add_exception_handler(AnyHTTPException, _answer_http_exception)
    _describe(app)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    detail = cast("object", error.detail)  # FastAPI allows any JSON
    if error.status_code < 400 or not isinstance(detail, str):
        return await http_exception_handler(request, cast("HTTPException", error))
    title = HTTPStatus(error.status_code).phrase
    return _response(Problem(type="about:blank", title=title, status=error.status_code, detail=detail), error.headers)


def _response(problem: Problem, headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(problem.model_dump(exclude_none=True), problem.status, headers, media_type=MEDIA_TYPE)


def _describe(app: FastAPI) -> None:
    """Describe responses of ``problems()`` with their media type: FastAPI knows one only for all of an endpoint."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            for path in plain()["paths"].values():
                for operation in path.values():
                    for response in operation.get("responses", {}).values():
                        _rename(response.get("content", {}))
        return plain()

    app.openapi = openapi  # type: ignore[method-assign] # as the documentation of FastAPI does


def _rename(content: dict[str, Any]) -> None:
    schema = content.get("application/json", {}).get("schema", {})
    if schema.get("$ref", "").endswith("/Problem"):
        content[MEDIA_TYPE] = content.pop("application/json")


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
