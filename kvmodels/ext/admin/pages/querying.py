"""A box for queries: lookups in, rows and the drawn plan out, side by side.

Rules of this module: the same bounded windows as in lists, so that no query reads a whole collection.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kvmodels.errors import InvalidLookupError, KvModelsError, NoUsableIndexError
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.browsing import SCANNED, BrowsedQuery
from kvmodels.ext.admin.pages.store_page import StorePage, page
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.describe.describe import describe

_ROWS: Final = 25
_COLUMNS: Final = 6


class QueryPage(StorePage):
    """The box for queries."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Query", icon="fa-solid fa-magnifying-glass", path="/query")

    @page("")
    async def index(self, request: Request) -> Response:
        """Run the query in the box."""
        name = request.query_params.get("collection") or next(iter(self.backend.models), "")
        text = request.query_params.get("lookups", "")
        model = self.backend.models.get(name)
        found: dict[str, Any] = {}
        if model is not None:
            self.backend.require(request, "view", model)
            try:
                found = await self._run(request, model, text)
            except KvModelsError as error:
                found = {"error": error}
        return self.render(
            request, "query.html", heading="Query", collection=name, lookups=text, scanned_at_most=SCANNED, **found
        )

    async def _run(self, request: Request, model: type[KvModel], text: str) -> dict[str, Any]:
        browsed = BrowsedQuery(model, _pairs(model, text))
        given = request.query_params
        window = await browsed.window(self.backend, _ROWS, after=given.get("after"), before=given.get("before"))
        query = self.backend.db[model].all()
        for condition in browsed.conditions:
            query = query.filter(condition.where)
        refusal, plan = None, window.plan
        try:
            plan = await self.backend.call(query.order_by(*browsed.order).explain)
        except NoUsableIndexError as error:
            refusal = error
        columns = _columns(model, browsed)
        return {
            "window": window,
            "columns": columns,
            "rows": [[self.backend.value_of(item, column) for column in columns] for item in window.items],
            "plan": plan,
            "tree": plan.tree(),
            "refusal": refusal,
        }


def _columns(model: type[KvModel], browsed: BrowsedQuery) -> list[str]:
    """Return the fields to show: the primary key, the fields of the query, then others."""
    keys = [column.name for column in describe(model).primary_key]
    asked = [name.removeprefix("-") for name in (*(one.name for one in browsed.conditions), *browsed.order)]
    roots = [name.partition("__")[0].partition(".")[0] for name in asked]
    wanted = [*keys, *(name for name in roots if name in model.model_fields), *model.model_fields]
    return list(dict.fromkeys(wanted))[:_COLUMNS]


def _pairs(model: type[KvModel], text: str) -> list[tuple[str, str]]:
    """Return the lookups of a line such as ``genre=essay price__lt=20``. Raises InvalidLookupError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _refused(model, text, "a quotation mark is missing") from error
    for word in words:
        if "=" not in word:
            raise _refused(model, word, "there is no '='")
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def _refused(model: type[KvModel], word: str, reason: str) -> InvalidLookupError:
    return InvalidLookupError(
        "this is not a lookup",
        model=model.__name__,
        parameter=word,
        reason=reason,
        hint="Write lookups with spaces between them: genre=essay price__lt=20 order_by=-price.",
    )
