"""Decide how the conditions of a filter on other records are answered, before the query is planned.

A query among the operands is replaced by the primary keys of its records (a semi-join). The inner query is read first,
without its records if an index supplies the keys. Then the outer query is planned with the keys as values.

Conditions on the target of a foreign key are answered in one of two ways, by a fixed rule:

- If a unique index fixes the target, or no index serves the rest of the filter, the keys of the targets are read first.
- Otherwise, the records are read by the rest of the filter, and the targets of each batch are read and tested
  (``flows/execution/targets.py``).

Outside a transaction, the reads follow one another and are not one snapshot.

Rules of this module: the number of keys is limited, because each key is a range of the outer query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from kvmodels._support.naming import short_repr
from kvmodels.errors import IndexNotReadyError, InvalidArgumentError, NoUsableIndexError, OperationTooLargeError
from kvmodels.flows.context import Context, planned
from kvmodels.flows.effects import AnyFlow, Flow, steps_of
from kvmodels.flows.execution.executor import plan_of
from kvmodels.flows.reading.rarest import narrowed
from kvmodels.flows.reading.scan import DistinctScan, collected, distinct_plan_of, fetch
from kvmodels.query.planning.distinct import is_distinct
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import QueryPlan, describe
from kvmodels.query.query import Query, TargetReads
from kvmodels.schema.declare.expressions import Subquery
from kvmodels.schema.filters.link_filters import LinkFilter, link_filter_of
from kvmodels.schema.filters.operands import PRIMARY_KEY
from kvmodels.schema.filters.predicate import (
    Condition,
    Conjunction,
    Predicate,
    conditions_of,
    conjunction,
    needs_reading,
    with_values,
)
from kvmodels.schema.filters.target_filters import TargetFilter, has_path, joined_on_targets, target_filter_of

T = TypeVar("T")

MOST_KEYS: Final = 1_000
"""The maximum number of records of a query that is an operand, and of targets whose keys are read first."""


def run_resolved(context: Context, query: Query, run: Callable[[Context, Query], AnyFlow[T]]) -> Flow[T]:
    """Run a flow with the query that ``resolved`` returns."""
    return (yield from steps_of(run(context, (yield from resolved(context, query)))))


def resolved(context: Context, query: Query, *, cursor: str | None = None) -> Flow[Query]:
    """Return the query with keys in place of the queries among its operands, and with the entries of text lookups.

    Conditions on targets that are tested batch by batch are in ``target_tests``. ``cursor``: that of the request, which
    contains the choice of the entries.
    """
    if not query.pending:
        return query
    query = replace(query, where=joined_on_targets(query.where))
    parts = () if query.ranked is not None else _paths(query.where)
    if parts:
        others = replace(query, where=tuple(part for part in query.where if part not in parts))
        rest = yield from _with_keys(context, others)
        rest = yield from narrowed(context, rest, counts=cursor is None)
        if (yield from _is_served(context, rest)):
            return replace(rest, targets=TargetReads(parts, rest.target_values, rest.child_counts))
    query = yield from _with_keys(context, query)
    return (yield from narrowed(context, query, counts=cursor is None))


def _paths(where: Conjunction) -> Conjunction:
    """Return the parts with conditions on targets, without those that fix the target."""
    return tuple(part for part in where if has_path(part) and not _fixes_target(part))


def _fixes_target(part: Predicate) -> bool:
    target = target_filter_of(part)
    return target is not None and isinstance(part, Condition) and part.lookup == "in" and target.fixes_target


def _is_served(context: Context, rest: Query) -> Flow[bool]:
    """Return whether the filter leaves only records to read that an index finds, or all of them were asked for."""
    if rest.using == PRIMARY_KEY and rest.scan_allowed:
        return True
    if rest.where == Query(rest.schema).where:
        return False
    try:
        indexed = replace(rest, scan_allowed=False)  # the policy for scans does not decide what an index finds
        yield from planned(context, rest.schema, lambda live: plan_query(indexed, live))
    except (NoUsableIndexError, IndexNotReadyError):
        return False
    return True


def _with_keys(context: Context, query: Query) -> Flow[Query]:
    keys: dict[Subquery, tuple[Any, ...]] = {}
    for condition in _pending(query.where):
        if condition.operand not in keys:
            inner = yield from _inner(context, query, condition)
            found = yield from _fetched(context, inner)
            present = [key for values in found for key in values.values() if key is not None]
            keys[condition.operand] = _bounded(list(dict.fromkeys(present)), query, condition)
    where = conjunction(with_values(part, keys) for part in query.where) if keys else query.where
    return replace(query, where=where, pending=False)


def _fetched(context: Context, inner: Query) -> Flow[list[dict[str, Any]]]:
    """Return the keys of an inner query, one more than allowed if there are so many."""
    query = inner.limited(MOST_KEYS + 1)
    if not is_distinct(inner):
        return (yield from steps_of(fetch(context, query)))
    try:
        return (yield from collected(DistinctScan(context, query)))
    except OperationTooLargeError as error:
        if error.limit != "sort_in_memory":
            raise
        raise _too_many_keys(error.size, _MORE_FILTERS) from error


def _plan_of(context: Context, inner: Query) -> Flow[QueryPlan]:
    if is_distinct(inner):
        return (yield from distinct_plan_of(context, inner)).plan
    return (yield from plan_of(context, inner))


def described(context: Context, query: Query) -> Flow[tuple[str, ...]]:
    """Return a line for each query among the operands, and each path whose targets are read first, with its plan.

    The lines are in the order of the reads: those of an inner query come before its own.
    """
    lines: list[str] = []
    where = joined_on_targets(query.where)
    if (yield from resolved(context, query)).target_tests:
        tested = _paths(where)
        where = tuple(part for part in where if part not in tested)
    for condition in _pending(where):
        lines += yield from described(context, _asked(context, query, condition))
        plan = yield from _plan_of(context, (yield from _inner(context, query, condition)))
        lookup = condition.lookup.replace("_", " ")
        line = f"{condition.field} {lookup} at most {MOST_KEYS:,} keys, read first from {plan.tree().label}"
        tests = " and ".join(map(describe, plan.target_tests))
        lines.append(f"{line}, with one more request for each level and batch, to test {tests}" if tests else line)
    return tuple(lines)


def _pending(where: Iterable[Predicate]) -> list[Condition]:
    found = (condition for part in where for condition in conditions_of(part))
    return [condition for condition in found if isinstance(condition.operand, Subquery)]


def _asked(context: Context, outer: Query, condition: Condition) -> Query:
    """Return the inner query as it was given, or that for the targets of a path."""
    operand: Subquery = condition.operand
    target = target_filter_of(condition)
    if target is not None:
        return _query_of(target, outer)
    links = link_filter_of(condition)
    if links is not None:
        return _query_of_links(links, outer)
    if operand.schemas is not context.schemas:
        raise InvalidArgumentError(
            "the query among the operands belongs to another database",
            argument=condition.field,
            value=short_repr(operand),
            hint="Take both queries from one database or transaction.",
        )
    asked: Query = operand.query
    return asked


def _inner(context: Context, outer: Query, condition: Condition) -> Flow[Query]:
    """Return the inner query, for the primary keys of its records, or for the distinct values of a foreign key."""
    inner = yield from resolved(context, _asked(context, outer, condition))
    order = inner.order if inner.sliced else ()  # the order of the keys matters only for a slice
    if inner.fields is not None:
        distinct = inner.distinct or not inner.sliced
        return replace(inner, distinct=distinct, order=order, sort_limit=inner.sort_limit or MOST_KEYS)
    (key,) = inner.schema.primary_key
    return replace(inner, fields=(key.field,), related=(), distinct=False, order=order)


def _query_of(target: TargetFilter, outer: Query) -> Query:
    """Return the query for targets; a permission to scan is one for the targets too."""
    where = conjunction([*Query(target.schema).where, *target.where])
    return Query(target.schema, where, scan_allowed=outer.scan_allowed, pending=needs_reading(where))


def _query_of_links(links: LinkFilter, outer: Query) -> Query:
    """Return the query for the keys of the records that links lead to."""
    schema = links.relation.links
    where = conjunction([*Query(schema).where, *links.where])
    key = (links.relation.own,)
    return Query(schema, where, scan_allowed=outer.scan_allowed, fields=key, pending=needs_reading(where))


def _bounded(keys: list[Any], query: Query, condition: Condition) -> tuple[Any, ...]:
    if len(keys) <= MOST_KEYS:
        return tuple(keys)
    hint = _MORE_FILTERS
    if target_filter_of(condition) is not None:
        hint = (
            f"Filter {query.schema.name} by an index too, so that the targets of what it finds are tested; or test the "
            'targets of all records: using_index("pk").allow_scan().'
        )
    links = link_filter_of(condition)
    if links is not None:
        model, own = links.relation.links.name, links.relation.own
        hint = f"Filter by more of the relation, or read the links in pages: db[{model}].filter(...).with_related("
        hint += f"{model}.{own}).page(size=50)."
    raise _too_many_keys(len(keys), hint)


_MORE_FILTERS: Final = "Filter the inner query more, or read its keys in pages and filter by each page with in_([...])."


def _too_many_keys(number: int | None, hint: str) -> OperationTooLargeError:
    return OperationTooLargeError(
        "the query among the operands has too many keys",
        limit="keys of a query as operand",
        size=number,
        maximum=MOST_KEYS,
        hint=hint,
    )
