"""Errors of the library as answers of the service, in the form of RFC 9457 (``application/problem+json``).

Rules of this module: an answer has the fixed message of the error and names of fields, never values: they may belong to
another user. Errors that a client can neither cause nor mend stay a 500.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from inspect import isawaitable
from typing import Any, Final, cast

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import (
    validation_error_definition,  # pyright: ignore[reportUnknownVariableType] - a bare dict
)
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from kvmodels.errors import (
    AlreadyExistsError,
    BlobGoneError,
    BlobTooLargeError,
    DoesNotExist,
    EngineTimeoutError,
    ExclusionViolationError,
    InvalidCursorError,
    InvalidLookupError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    NoUsableIndexError,
    PrimaryKeyChangedError,
    ProtectedError,
    ReferenceViolationError,
    ResumeExpiredError,
    RetriesExhaustedError,
    SchemaMismatchError,
    StaleObjectError,
    TenantNotFoundError,
    TenantRemovedError,
    TransactionConflictError,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.ext.fastapi.lookups import is_chosen_by_client
from kvmodels.ext.fastapi.paging import describe_pages
from kvmodels.ext.fastapi.preconditions import describe_conditions
from kvmodels.ext.fastapi.pulling import describe_pulls
from kvmodels.flows.writing.record_write import VERSION_REMOVED
from kvmodels.schema.definition.variants import is_body_error

PROBLEM_STATUS: Final[dict[type[KvModelsError], int]] = {
    DoesNotExist: 404,
    TenantNotFoundError: 404,
    TenantRemovedError: 404,
    UniqueViolationError: 409,
    ExclusionViolationError: 409,
    AlreadyExistsError: 409,
    ReferenceViolationError: 409,
    ProtectedError: 409,
    StaleObjectError: 409,
    BlobGoneError: 410,
    BlobTooLargeError: 413,
    PrimaryKeyChangedError: 422,
    UnknownFieldError: 422,
    InvalidLookupError: 422,
    InvalidValueError: 422,
    LimitExceededError: 422,
    InvalidCursorError: 400,
    ResumeExpiredError: 410,
    NoUsableIndexError: 400,
    RetriesExhaustedError: 503,
    TransactionConflictError: 503,
    EngineTimeoutError: 503,
    SchemaMismatchError: 503,
}
"""The status of each error; of a class with several bases in the list, the first counts. If the request has an If-Match
or an If-None-Match, a stale object is 412, and a missing one 404. An existing one is 412 with ``If-None-Match: *``. A
query without an index is a 400 only if the client has given one of its conditions or its order by ``Lookups``."""

_LOG: Final = logging.getLogger("kvmodels.ext.fastapi")
_LOGGED: Final = "kvmodels.logged"
RETRY_AFTER_S: Final = 1
MEDIA_TYPE: Final = "application/problem+json"
_REFERENCES: Final = "#/components/schemas/"
_PROBLEM: Final = f"{_REFERENCES}Problem"
_INVALID: Final = f"{_REFERENCES}HTTPValidationError"
_IN_QUERY: Final = (InvalidCursorError, InvalidLookupError, NoUsableIndexError)


class FieldProblem(BaseModel):
    """A field or parameter that an error names."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    loc: list[str | int]
    """body, query, path or header, then the name; inside of a body, names and positions in lists."""
    msg: str
    """The reason why it is refused."""
    type: str
    """The code of the error, such as KV201, or the type of an error of Pydantic."""


class Problem(BaseModel):
    """The body of an error (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """The page of the error; about:blank if the status says everything."""
    title: str
    """The message of the error, the same for every occurrence."""
    status: int
    """The status of the response."""
    code: str | None = None
    """The code of the error, such as KV201, if it has one."""
    detail: str | None = None
    """A message about this occurrence."""
    errors: list[FieldProblem] | None = None
    """The fields and parameters of the request that the error names."""


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
    """Answer errors of the library, invalid requests, and each ``HTTPException`` with a text, as problems (RFC 9457).

    The body is a ``Problem``: ``type`` (the page of the error), ``title``, ``status``, ``code``, and ``errors`` in the
    form in which FastAPI names the fields of an invalid request. It has no values. An answer 503 has Retry-After. The
    body of an ``HTTPException`` has its ``detail``. The OpenAPI document describes 422 as a ``Problem`` too. An own
    handler of ``RequestValidationError`` is kept. It also receives the ``ValidationError`` that ``create(body)`` or
    ``patch(key, body)`` raises because of the body; any other ``ValidationError`` stays a 500. Add the handlers before
    the first request.

    Args:
        app: the application.
        pages: the beginning of ``type``; the code of the error follows.
    """

    async def answer(request: Request, error: Exception) -> JSONResponse:
        if not isinstance(error, KvModelsError):
            raise error
        status = _status(error, request)
        if status is None:
            # An error that is raised again comes here again, from the endpoint and from the application.
            if isinstance(error, NoUsableIndexError) and not request.scope.get(_LOGGED):
                request.scope[_LOGGED] = True
                _LOG.error("%s %s: %s", request.method, _route(request), error)
            raise error
        headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
        return _response(
            Problem(
                type=f"{pages}{error.code}",
                title=error.message,
                status=status,
                code=error.code,
                detail=_prevented_by(error),
                errors=[*_field_problems(error, request)] or None,
            ),
            headers,
        )

    app.add_exception_handler(KvModelsError, answer)
    app.add_exception_handler(AnyHTTPException, _answer_http_exception)
    if app.exception_handlers.get(RequestValidationError) is request_validation_exception_handler:
        app.add_exception_handler(RequestValidationError, _answer_invalid_request)
    if ValidationError not in app.exception_handlers:
        app.add_exception_handler(ValidationError, _answer_refused_body)
    _describe(app)


async def _answer_refused_body(request: Request, error: Exception) -> Response:
    """Answer an error that the body of a request caused in a write method like FastAPI's own error of the body."""
    assert isinstance(error, ValidationError)
    if not is_body_error(error):
        raise error
    # Without input: that of an error of the whole object is the record, with fields that the client may not see.
    fields = error.errors(include_url=False, include_input=False)
    refused = RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in fields])
    app: FastAPI = request.app
    answered: Any = app.exception_handlers[RequestValidationError](request, refused)
    response: Response = await answered if isawaitable(answered) else answered
    return response


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    detail = cast("object", error.detail)  # FastAPI allows any JSON
    if error.status_code < 400 or not isinstance(detail, str):
        return await http_exception_handler(request, cast("HTTPException", error))
    title = HTTPStatus(error.status_code).phrase
    return _response(Problem(type="about:blank", title=title, status=error.status_code, detail=detail), error.headers)


async def _answer_invalid_request(request: Request, error: Exception) -> Response:  # noqa: ARG001 - a handler
    assert isinstance(error, RequestValidationError)
    fields = [FieldProblem(loc=[*one["loc"]], msg=one["msg"], type=one["type"]) for one in error.errors()]
    title = HTTPStatus(422).phrase
    return _response(Problem(type="about:blank", title=title, status=422, errors=fields), None)


def _response(problem: Problem, headers: Mapping[str, str] | None) -> JSONResponse:
    return JSONResponse(problem.model_dump(exclude_none=True), problem.status, headers, media_type=MEDIA_TYPE)


def _describe(app: FastAPI) -> None:
    """Describe problems with their media type, which FastAPI knows only for all responses of an endpoint together."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            answers = app.exception_handlers.get(RequestValidationError) is _answer_invalid_request
            _rewrite(plain(), invalid_requests=answers)
        return plain()

    app.openapi = openapi  # type: ignore[method-assign] # as the documentation of FastAPI does


def _rewrite(document: dict[str, Any], *, invalid_requests: bool) -> None:
    """Give problems their media type, with ``invalid_requests`` also FastAPI's own response 422. Describe headers."""
    schemas = document.get("components", {}).get("schemas", {})
    replaced = (_PROBLEM, _INVALID) if invalid_requests else (_PROBLEM,)
    is_described = invalid_requests or "Problem" in schemas
    content_of_problem = {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM}}} if is_described else None
    for path in document["paths"].values():
        for method, operation in path.items():
            describe_conditions(method, operation)
            describe_pages(operation)
            describe_pulls(operation, content_of_problem)
            for response in operation.get("responses", {}).values():
                content = response.get("content", {})
                for media_type in [*content]:  # that of the endpoint, such as text/event-stream
                    if content[media_type].get("schema", {}).get("$ref") in replaced:
                        content[MEDIA_TYPE] = {**content.pop(media_type), "schema": {"$ref": _PROBLEM}}
    if invalid_requests and schemas.pop("HTTPValidationError", None) is not None:
        if schemas.get("ValidationError") == validation_error_definition:  # and not a class of the application
            del schemas["ValidationError"]
        own = Problem.model_json_schema(ref_template=_REFERENCES + "{model}", mode="serialization")
        for name, schema in {**own.pop("$defs"), "Problem": own}.items():
            schemas.setdefault(name, schema)


def _route(request: Request) -> str:
    """Return the path of the endpoint, without the values of its parameters."""
    return getattr(request.scope.get("route"), "path", "")


def _status(error: KvModelsError, request: Request) -> int | None:
    if isinstance(error, NoUsableIndexError) and not is_chosen_by_client(request, error):
        return None  # a mistake of the program
    conditions = {"if-match", "if-none-match"}.intersection(request.headers)
    if isinstance(error, StaleObjectError) and conditions:
        # Conditions do not count where the answer without them is an error (RFC 9110, section 13.2.1).
        return 404 if error.message == VERSION_REMOVED else 412
    if isinstance(error, AlreadyExistsError) and request.headers.get("if-none-match") == "*":
        return 412
    return next((status for cls, status in PROBLEM_STATUS.items() if isinstance(error, cls)), None)


def _field_problems(error: KvModelsError, request: Request) -> Iterator[FieldProblem]:
    """Yield the fields or parameters of the request that an error is about."""
    message = (isinstance(error, InvalidLookupError) and error.reason) or error.message
    for name in _fields(error):
        if isinstance(error, _IN_QUERY) or name in request.query_params:
            place = "query"
        else:
            place = "path" if name in request.path_params else "body"
        yield FieldProblem(loc=[place, name], msg=message, type=error.code)


def _fields(error: KvModelsError) -> Iterator[str]:
    if isinstance(error, (UniqueViolationError, ExclusionViolationError)):
        yield from map(str, error.fields or ())
    elif not isinstance(error, ProtectedError):  # its field is one of other records, and not of the request
        name = getattr(error, "parameter", None) or getattr(error, "field", None)
        if isinstance(name, str):
            yield name


def _prevented_by(error: KvModelsError) -> str | None:
    """Return which field of other records prevents a removal."""
    if not isinstance(error, ProtectedError) or "referrer" not in error.data:
        return None
    return f"Records of {error.referrer} refer to it by {error.field}."
