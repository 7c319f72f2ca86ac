"""Pages of a query by the parameters ``size``, ``after`` and ``before``, with links to the neighbours (RFC 8288).

Rules of this module: cursors go to the client as they are; a forged one is refused by the query.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from fastapi import Query, Request, Response
from fastapi.exceptions import RequestValidationError

from kvmodels.query.query import Page

T = TypeVar("T")

_MARK: Final = "x-kvmodels-paging"
"""The key of a JSON schema that marks a parameter of ``Paging`` until ``describe_pages`` removes it."""

_IN_PATHS: Final = "/:@!$&'()*+,;="
"""Characters that a path may hold besides letters, digits and ``-._~``."""

_IN_HOSTS: Final = ":@[]%"
"""Characters that a host may hold besides letters, digits and ``-._~``."""


class Paging:
    """The page that a request asks for; a dependency: ``paging: Annotated[Paging, Depends()]``.

    Write ``return paging.linked(await users.filter(...).page(**paging.window))``.

    Args:
        request: the request.
        response: the response, whose header Link is set.
        size: the most items of a page, 1 to 100.
        after: ``next_cursor`` of another page.
        before: ``previous_cursor`` of another page.

    Attributes:
        window: the arguments of ``page``.

    Raises:
        RequestValidationError: the request has both cursors; answered with 422.
    """

    __slots__ = ("_request", "_response", "window")

    def __init__(
        self,
        request: Request,
        response: Response,
        size: Annotated[int, Query(ge=1, le=100, description="The most items of a page.")] = 20,
        after: Annotated[
            str | None,
            Query(
                description="The next_cursor of another page: the page that follows it.",
                json_schema_extra={_MARK: True},
            ),
        ] = None,
        before: Annotated[
            str | None, Query(description="The previous_cursor of another page: the page before it.")
        ] = None,
    ) -> None:
        if after is not None and before is not None:
            place: dict[str, Any] = {"loc": ("query", "before"), "input": before}
            raise RequestValidationError([{**place, "msg": "Give after or before, not both", "type": "value_error"}])
        self._request = request
        self._response = response
        self.window: dict[str, Any] = {"size": size, "after": after, "before": before}

    def linked(self, page: Page[T]) -> Page[T]:
        """Set the header Link of the response to the pages before and after this one.

        Args:
            page: the page that the response shows.

        Returns:
            The same page.
        """
        links: list[str] = []
        if page.has_more and page.next_cursor is not None:
            links.append(f'<{_url(self._request, "after", page.next_cursor)}>; rel="next"')
        if page.has_previous and page.previous_cursor is not None:
            links.append(f'<{_url(self._request, "before", page.previous_cursor)}>; rel="prev"')
        if links:
            self._response.headers["Link"] = ", ".join(links)
        return page


def _url(request: Request, name: str, cursor: str) -> str:
    """Return the URL of a request with another cursor, percent-encoded (RFC 3986).

    The path and the parameters keep the bytes that the client sent: ``request.url`` has the decoded path, in which a
    ``%2F`` is a slash and a ``>`` ends the link.
    """
    scope = request.scope
    path: str = scope["path"]
    sent: bytes = scope.get("raw_path") or b""  # optional in ASGI, and some servers add the query string
    raw = sent.partition(b"?")[0]
    encoded = quote(raw, safe="%" + _IN_PATHS) if unquote(raw) == path else quote(path, safe=_IN_PATHS)
    # Latin-1 reads any bytes and writes the same again.
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    pairs = [(key, text) for key, text in query if key not in ("after", "before")]
    parameters = urlencode([*pairs, (name, cursor)], encoding="latin-1")
    base = request.base_url
    return f"{base.scheme}://{quote(base.netloc, safe=_IN_HOSTS)}{encoded}?{parameters}"


def describe_pages(operation: dict[str, Any]) -> None:
    """Add the header Link to the OpenAPI description of an operation that depends on a ``Paging``.

    Args:
        operation: the description, which is changed.
    """
    if any(parameter.get("schema", {}).pop(_MARK, False) for parameter in operation.get("parameters", ())):
        operation["responses"]["200"].setdefault("headers", {})["Link"] = {
            "description": 'The URLs of the neighbouring pages, with rel="next" and rel="prev" (RFC 8288).',
            "schema": {"type": "string"},
        }
