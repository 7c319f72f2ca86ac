"""Plan a query again that no index serves, under the policy of its database: it may be allowed to scan and to sort.

Rules of this module: every plan of a query set that was refused comes here, so the policy holds for lists, pages,
counts, aggregates, groups, distinct values and bulk writes alike. A query that an index serves never comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from kvmodels.catalog.collection import LiveCollection
from kvmodels.errors import IndexNotReadyError, NoUsableIndexError, QueryError, SchemaError
from kvmodels.flows.context import Context, HeaderView, planned
from kvmodels.flows.effects import Flow
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")

MOST_SORTED: Final = 10_000
"""The maximum number of results held by a sort that the policy allows, as of ``sort_in_memory()``."""

REFUSED: Final = (NoUsableIndexError, IndexNotReadyError)
"""The errors of a query that a permission to scan or to sort may help."""


def permitted(query: Query) -> Query:
    """Return a query that may read the whole collection and sort in memory."""
    return replace(query, scan_allowed=True, sort_limit=query.sort_limit or MOST_SORTED)


def planned_again(
    context: Context,
    error: NoUsableIndexError | IndexNotReadyError,
    schema: ModelSchema,
    plan: Callable[[LiveCollection], T],
) -> Flow[tuple[HeaderView, T]]:
    """Return a plan with permissions, and the header, for a query that was refused; raises the error if it stays so."""
    if context.scans.current == "refuse":
        raise error
    try:
        found = yield from planned(context, schema, plan)
    except (QueryError, SchemaError):
        raise error from None  # a permission does not help, so the first error has the better advice
    context.scans.warn(error)
    return found
