"""Cursor pages for services that use the package fastapi-pagination (extra ``kvmodels[fastapi-pagination]``).

Rules of this module: only cursor pages, because skipping records reads them. No other module imports this one.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from kvmodels.errors import InvalidCursorError, UnsupportedError

try:
    from fastapi_pagination.api import apply_items_transformer, create_page
    from fastapi_pagination.bases import AbstractPage, AbstractParams, CursorRawParams
    from fastapi_pagination.types import AsyncItemsTransformer, SyncItemsTransformer
    from fastapi_pagination.utils import verify_params
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "fastapi_pagination":
        raise
    raise UnsupportedError(
        "these pages need a package that is not installed",
        reason="fastapi-pagination",
        hint="Install it: pip install 'kvmodels[fastapi-pagination]'. kvmodels.ext.fastapi.Paging needs no package.",
    ) from missing

from kvmodels.api._async.queryset import AsyncQuerySet
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.query.query import Page

T = TypeVar("T")

_AFTER: Final = ">"
_BEFORE: Final = "<"


async def apaginate(
    query: AsyncQuerySet[T], params: AbstractParams | None = None, *, transformer: AsyncItemsTransformer | None = None
) -> Any:
    """Return the page of a query that the request asks for.

    Write ``return await apaginate(users.filter(color="red"))`` in an endpoint with a cursor page as its return type.

    Args:
        query: the query, with its order.
        params: the parameters of the page; None for those of the request.
        transformer: a function that converts the items of the page.

    Returns:
        A page of the response type, such as ``CursorPage[User]``. Cost: that of ``page()``. With a total, which
        ``CustomizedPage[CursorPage[User], UseIncludeTotal(False)]`` leaves out, that of ``count()`` too.

    Raises:
        ValueError: the page is not a cursor page.
        InvalidCursorError: the cursor is not one of this query.
    """
    params, raw = _cursor_params(params)
    found = await query.page(**_window(raw)) if raw.size else _EMPTY
    total = await query.count() if raw.include_total else None
    items = await apply_items_transformer(found.items, transformer, async_=True)
    return _created(items, total, found, raw, params)


def paginate(
    query: QuerySet[T], params: AbstractParams | None = None, *, transformer: SyncItemsTransformer | None = None
) -> Any:
    """Return the page of a query that the request asks for, like ``apaginate`` but for a synchronous database.

    Args:
        query: the query, with its order.
        params: the parameters of the page; None for those of the request.
        transformer: a function that converts the items of the page.

    Returns:
        A page of the response type. Cost: as for ``apaginate``.

    Raises:
        ValueError: the page is not a cursor page.
        InvalidCursorError: the cursor is not one of this query.
    """
    params, raw = _cursor_params(params)
    found = query.page(**_window(raw)) if raw.size else _EMPTY
    total = query.count() if raw.include_total else None
    return _created(apply_items_transformer(found.items, transformer), total, found, raw, params)


_EMPTY: Final[Page[Any]] = Page([], None, False)


def _cursor_params(params: AbstractParams | None) -> tuple[AbstractParams, CursorRawParams]:
    checked, raw = verify_params(params, "cursor")
    assert isinstance(raw, CursorRawParams)
    return checked, raw


def _window(raw: CursorRawParams) -> dict[str, Any]:
    """Return the arguments of ``page``: the first character of a cursor is its direction."""
    cursor = raw.cursor.decode("utf-8", "replace") if isinstance(raw.cursor, bytes) else raw.cursor
    if cursor is None:
        return {"size": raw.size}
    if cursor[:1] not in (_AFTER, _BEFORE):
        raise InvalidCursorError("this is not a cursor of a page", reason="its direction is missing")
    return {"size": raw.size, "after" if cursor[0] == _AFTER else "before": cursor[1:]}


def _created(
    items: Any, total: int | None, found: Page[Any], raw: CursorRawParams, params: AbstractParams
) -> AbstractPage[Any]:
    following = found.next_cursor if found.has_more else None
    preceding = found.previous_cursor if found.has_previous else None
    return create_page(
        items,
        total,
        params,
        current=raw.cursor,
        next_=None if following is None else _AFTER + following,
        previous=None if preceding is None else _BEFORE + preceding,
    )
