"""Replace queries among the operands of a filter by the primary keys of their records (a semi-join).

The inner query is read first, without its records if an index supplies the keys. Then the outer query is planned with
the keys as values. Outside a transaction, the two are read one after the other and not in one snapshot.

Rules of this module: the number of keys is limited, because each key is a range of the outer query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from kvmodels._support.naming import short_repr
from kvmodels.errors import InvalidArgumentError, OperationTooLargeError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import AnyFlow, Flow, steps_of
from kvmodels.flows.execution.executor import plan_of
from kvmodels.flows.reading.rarest import narrowed
from kvmodels.flows.reading.scan import fetch
from kvmodels.query.query import Query
from kvmodels.schema.declare.expressions import Subquery
from kvmodels.schema.filters.predicate import Condition, Predicate, conditions_of, conjunction, with_values

T = TypeVar("T")

MOST_KEYS: Final = 1_000
"""The maximum number of records of a query that is an operand."""


def run_resolved(context: Context, query: Query, run: Callable[[Context, Query], AnyFlow[T]]) -> Flow[T]:
    """Run a flow with the query that ``resolved`` returns."""
    return (yield from steps_of(run(context, (yield from resolved(context, query)))))


def resolved(context: Context, query: Query, *, cursor: str | None = None) -> Flow[Query]:
    """Return the query with keys in place of the queries among its operands, and with the entries of text lookups.

    ``cursor``: that of the request, which contains the choice of the entries.
    """
    if not query.pending:
        return query
    query = yield from _with_keys(context, query)
    return (yield from narrowed(context, query, counts=cursor is None))


def _with_keys(context: Context, query: Query) -> Flow[Query]:
    keys: dict[Subquery, tuple[Any, ...]] = {}
    for condition in _pending(query.where):
        if condition.operand not in keys:
            inner = yield from _inner(context, condition)
            found = yield from steps_of(fetch(context, inner.limited(MOST_KEYS + 1)))
            field = inner.schema.primary_key[0].field
            keys[condition.operand] = _bounded([values[field] for values in found])
    where = conjunction(with_values(part, keys) for part in query.where) if keys else query.where
    return replace(query, where=where, pending=False)


def described(context: Context, query: Query) -> Flow[tuple[str, ...]]:
    """Return a line for each query among the operands, with the plan that reads its keys."""
    lines: list[str] = []
    for condition in _pending(query.where):
        plan = yield from plan_of(context, (yield from _inner(context, condition)))
        lookup = condition.lookup.replace("_", " ")
        lines.append(f"{condition.field} {lookup} at most {MOST_KEYS:,} keys, read first from {plan.tree().label}")
    return tuple(lines)


def _pending(where: Iterable[Predicate]) -> list[Condition]:
    found = (condition for part in where for condition in conditions_of(part))
    return [condition for condition in found if isinstance(condition.operand, Subquery)]


def _inner(context: Context, condition: Condition) -> Flow[Query]:
    """Return the inner query, for the primary keys of its records."""
    operand: Subquery = condition.operand
    if operand.schemas is not context.schemas:
        raise InvalidArgumentError(
            "the query among the operands belongs to another database",
            argument=condition.field,
            value=short_repr(operand),
            hint="Take both queries from one database or transaction.",
        )
    inner: Query = yield from resolved(context, operand.query)
    (key,) = inner.schema.primary_key
    order = inner.order if inner.sliced else ()  # the order of the keys matters only for a slice
    return replace(inner, fields=(key.field,), related=(), distinct=False, order=order)


def _bounded(keys: list[Any]) -> tuple[Any, ...]:
    if len(keys) > MOST_KEYS:
        raise OperationTooLargeError(
            "the query among the operands has too many records",
            limit="keys of a query as operand",
            size=len(keys),
            maximum=MOST_KEYS,
            hint="Filter the inner query more, or read its keys in pages and filter by each page with in_([...]).",
        )
    return tuple(keys)
