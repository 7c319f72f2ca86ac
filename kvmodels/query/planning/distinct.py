"""Plans of distinct values: skipping from value to value in an index, or one pass with all values in memory.

Rules of this module: pure. Values are equal if Python says so; NaN equals itself, and values of different types differ.
Distinct values of a folded field are not read in the order of its index, because different values may have equal folds.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any, cast

from pydantic import BaseModel

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection
from kvmodels.codecs.columns.registry import ColumnOrder
from kvmodels.errors import InvalidArgumentError, NoUsableIndexError
from kvmodels.query.aggregates import normalised, sort_part
from kvmodels.query.orders import order_names, refuse_placed
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import Distinct, QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.definition.definition import ColumnSource
from kvmodels.schema.filters.encrypted_fields import require_plain


@dataclass(frozen=True, slots=True)
class DistinctPlan:
    """The plan of distinct values.

    Attributes:
        query: the records, in the order of the values or in any order.
        plan: the plan of this query.
        limit: the maximum number of values in memory; None if equal values are adjacent.
    """

    query: Query
    plan: QueryPlan
    limit: int | None


def is_distinct(query: Query) -> bool:
    """Return whether equal results must be removed: not for objects, nor for values with the whole primary key."""
    if not query.distinct or query.fields is None:
        return False
    return not {column.field for column in query.schema.primary_key} <= set(query.fields)


def plan_distinct(query: Query, live: LiveCollection) -> DistinctPlan:
    """Return the plan of the distinct values of a query; its slice is ignored."""
    query = query.without_default_order()
    refuse_placed(query.placed, "distinct")
    fields = query.fields or ()
    for field in fields:
        require_plain(query.schema, field, "distinct")
    ordered = [field for field, _ in query.directions]
    if not set(ordered) <= set(fields):
        raise InvalidArgumentError(
            "distinct values can be ordered only by selected fields",
            argument="order_by",
            value=tuple(ordered),
            expected=fields,
            hint="Take the field into values() too, or leave out its order.",
        )
    plain = replace(query, order=(), reverse=False, start=0, stop=None, sort_limit=None, distinct=False)
    refusal: NoUsableIndexError | None = None
    if all(_side_by_side(query.schema.source(field)) for field in fields):
        order = tuple(Order(field, descending) for field, descending in query.order_over(fields))
        in_order = replace(plain, order=order)
        try:
            return DistinctPlan(in_order, plan_query(in_order, live), None)
        except NoUsableIndexError as error:
            refusal = error
    if query.sort_limit is not None:
        return DistinctPlan(plain, plan_query(plain, live), query.sort_limit)
    raise _refused(query, live, refusal) from refusal


def _side_by_side(source: ColumnSource | None) -> bool:
    return source is not None and not source.many and source.normalise is None


def _refused(query: Query, live: LiveCollection, refusal: NoUsableIndexError | None) -> NoUsableIndexError:
    """Return the error; the planner's error for the order, if there is one, contains the line to add."""
    return NoUsableIndexError(
        "no index keeps equal values next to each other",
        model=query.schema.name,
        filters=query.filter_fields,
        order=order_names(query.order_over(query.fields or ())),
        candidates=tuple(name for name in query.schema.indexes if name in live.readable),
        hint=refusal.hint
        if refusal
        else "Values of folded fields, of several values, and of types that no index can hold are compared in "
        "memory: call .sort_in_memory(limit=...) with the maximum number of values to hold.",
    )


# --- jumps ------------------------------------------------------------------------------------------------------


def jump_parts(plan: QueryPlan, fields: tuple[str, ...]) -> int | None:
    """Return the number of key parts after the prefix that hold the values; None if rows cannot be skipped."""
    if plan.combine != "scan" or plan.scans[0].fans_out:
        return None
    names = [column.field for column in plan.scans[0].columns]
    return max(names.index(field) for field in fields) + 1 if set(fields) <= set(names) else None


def told_apart(distinct: DistinctPlan) -> Distinct:
    """Return how distinct values are found, as readable text."""
    if distinct.limit is not None:
        return "holds"
    return "passes" if jump_parts(distinct.plan, distinct.query.fields or ()) is None else "jumps"


# --- values -----------------------------------------------------------------------------------------------------


def distinct_key(values: dict[str, Any]) -> tuple[Any, ...]:
    """Return a hashable value that is equal for equal values."""
    return tuple([_frozen(value) for value in values.values()])


def _frozen(value: Any) -> Any:
    kind: type[Any] = value.__class__
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return (kind, tuple([_frozen(item) for item in items]))
    if isinstance(value, (set, frozenset)):
        members = cast("set[Any]", value)
        return (kind, frozenset([_frozen(item) for item in members]))
    if issubclass(kind, dict):
        pairs = [(_frozen(key), _frozen(item)) for key, item in value.items()]
        return (kind, frozenset(pairs))
    if isinstance(value, BaseModel) or is_dataclass(kind):
        return (kind, _frozen(vars(value)))
    return (kind, repr(value) if value != value else value)  # NaN does not equal itself


def in_order(query: Query, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return distinct values that were held in memory, in the requested order.

    A folded field is ordered by its folded value. Fields without an order are ignored; if no field has an order, the
    values stay in the order in which they were found. Raises InvalidValueError if Python cannot compare values of a
    field of the order.
    """
    asked = dict(query.directions)
    for field, descending in reversed(query.order_over(query.fields or ())):  # stable sorts: the last one decides
        source = query.schema.source(field)
        if source is not None and not source.many:
            column = ColumnOrder(source.codec, model=query.schema.name, field=field, mixes=field not in asked)
            found.sort(key=partial(_part, source, column), reverse=descending)
    return found


def _part(source: ColumnSource, order: ColumnOrder, values: dict[str, Any]) -> bytes:
    return sort_part(order, normalised(source, values[source.name]))
