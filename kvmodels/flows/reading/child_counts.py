"""Read the numbers of ``with_counts`` for a batch of results: how many records refer to each of them.

The query for the referring records of each result is planned. Its number comes from the counters of an aggregate index,
or from the number of rows in a range of an index that begins with the foreign key and serves the filter.

Rules of this module: one request for each number and batch, where the engine takes so many ranges. No records are read.
In a transaction, rows are read, because its commit checks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Counted, ReadRange
from kvmodels.errors import IndexChangedError, NoUsableIndexError
from kvmodels.flows.context import Context, HeaderView, planned, reload_header
from kvmodels.flows.effects import AnyFlow, Flow, count_rows, ranges_at_once, steps_of
from kvmodels.flows.execution.executor import counts_rows
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.aggregate import CounterScan, counted_result
from kvmodels.flows.reading.referrers import queries_of, referring_schema
from kvmodels.query import child_counts
from kvmodels.query.child_counts import ChildCount
from kvmodels.query.planning.aggregation import COUNT, CounterPlan, counter_plan, kinds_of
from kvmodels.query.planning.branches import branch_of
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.planning.refusals import index_to_add, is_one, suggested
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query


def counted(context: Context, query: Query, given: Mapping[str, Any]) -> Query:
    """Return the query with numbers of each result; raises like ``kvmodels.query.child_counts.counted``."""
    return child_counts.counted(query, given, lambda key: referring_schema(context, query.schema, key))


def fetch(context: Context, query: Query, results: Callable[[Context, Query], AnyFlow[list[Any]]]) -> Flow[list[Any]]:
    """Return all results of a query with their numbers, in order; ``results`` reads the results alone."""
    found = yield from steps_of(results(context, query.without_counts()))
    return (yield from with_numbers(context, query, found))


def with_numbers(context: Context, query: Query, results: Sequence[Any]) -> Flow[list[Any]]:
    """Return tuples of each result and its numbers by name. Raises NoUsableIndexError or IndexNotReadyError."""
    schema = query.schema
    keys = [schema.primary_key_of(one[0] if query.related else one)[0] for one in results]
    numbers: dict[str, list[Any]] = {}
    for count in query.child_counts:
        distinct = list(dict.fromkeys(keys))
        found = dict(zip(distinct, (yield from _numbers(context, count, distinct)), strict=True))
        numbers[count.label] = [found[key] for key in keys]
    return [(one, {label: several[at] for label, several in numbers.items()}) for at, one in enumerate(results)]


def _numbers(context: Context, count: ChildCount, keys: Sequence[Any]) -> Flow[list[Any]]:
    """Return the number of each key."""
    queries = yield from queries_of(context, count.query, count.field, keys)

    def sources_of(live: LiveCollection) -> list[CounterPlan | QueryPlan]:
        return [_source(count, query, live) for query in queries]

    while queries:  # again only if another process changed the schema in between
        view, sources = yield from planned(context, count.query.schema, sources_of)
        counters = [one for one in sources if isinstance(one, CounterPlan)]
        totals = yield from _totals(context, view, count, counters)
        rows = (
            None
            if totals is None
            else (yield from _rows(context, view, count, list(zip(queries, sources, strict=True))))
        )
        if totals is None or rows is None:
            yield from reload_header(context)
            continue
        found: list[Any] = []
        for key, source, number in zip(keys, sources, rows, strict=True):
            if isinstance(source, CounterPlan):
                found.append(
                    _result(count, counted_result(source.index.definition, count.measure, totals.get(key, {})))
                )
            else:
                found.append(None if count.function == "sum" else _result(count, number))
        return found
    return []


def _result(count: ChildCount, number: Any) -> Any:
    return bool(number) if count.function == "exists" else number


def _source(count: ChildCount, query: Query, live: LiveCollection) -> CounterPlan | QueryPlan:
    """Return the counters of one result, or the plan whose rows are counted. Raises NoUsableIndexError."""
    counters = counter_plan(query, live, (count.measure,))
    if counters is not None:
        return counters
    plan = plan_query(replace(query, fields=()), live)
    if count.function == "sum" and plan.combine != "nothing":
        raise _refusal(count, query, _totals_to_add(count, query))
    if plan.combine == "nothing" or (plan.combine == "scan" and counts_rows(plan)):
        return plan
    suggestion = suggested(query.schema, branch_of(query.schema, query.where), ())
    raise _refusal(count, query, None if suggestion is None else suggestion.text)


def _refusal(count: ChildCount, query: Query, addition: str | None) -> NoUsableIndexError:
    hint = f"For {count.label!r}, read the referring records with fetch_referrers(), and count them in Python."
    if addition is not None:
        hint = f"{addition[0].upper()}{addition[1:]}, for the number {count.label!r}."
    return NoUsableIndexError(
        "no index has a number of with_counts()",
        model=query.schema.name,
        filters=query.filter_fields,
        order=(),
        candidates=tuple(query.schema.indexes),
        hint=hint,
    )


def _totals_to_add(count: ChildCount, query: Query) -> str | None:
    """Return the aggregate index that has the sum; None if none can have it."""
    branch = branch_of(query.schema, query.where)
    if sum(len(term.at) for term in branch.terms) < len(branch.parts) or not all(map(is_one, branch.terms)):
        return None
    columns = list(dict.fromkeys([count.field, *(term.field for term in branch.terms)]))
    default = "_".join([*(column.replace(".", "_") for column in columns), "totals"])
    line = index_to_add(query.schema, "AggregateIndex", columns, default, {"sums": (count.measure.field,)})
    return f"add {line} to the indexes of {query.schema.name}.Meta"


def _totals(
    context: Context, view: HeaderView, count: ChildCount, plans: Sequence[CounterPlan]
) -> Flow[dict[Any, Counter[str]] | None]:
    """Return the totals of the counters of all plans, by the foreign key; None when the index has changed."""
    if not plans:
        return {}
    definition = plans[0].index.definition
    at = [column.field for column in definition.columns].index(count.field)
    groups = tuple(group for plan in plans for group in plan.groups)
    merged = replace(plans[0], groups=groups, ranges=tuple(one for plan in plans for one in plan.ranges))
    kinds = list(dict.fromkeys([COUNT, *(kinds_of(definition, count.measure) or ())]))
    reading = CounterScan(context, view, count.query.schema, merged, kinds)
    totals: dict[Any, Counter[str]] = {}
    try:
        while not reading.done:
            for counters in (yield from reading.next_batch()):
                (part,) = decode_key(counters.parts[at])
                totals.setdefault(definition.columns[at].codec.unpack(part), Counter()).update(counters.numbers)
    except IndexChangedError:
        return None
    return totals


def _rows(
    context: Context,
    view: HeaderView,
    count: ChildCount,
    planned_queries: Sequence[tuple[Query, CounterPlan | QueryPlan]],
) -> Flow[list[int] | None]:
    """Return the number of rows of each plan, 0 for counters; None when the header has changed."""
    plans = [(at, query, one) for at, (query, one) in enumerate(planned_queries) if isinstance(one, QueryPlan)]
    numbers = [0] * len(planned_queries)
    limit = 1 if count.function == "exists" else None
    if context.transaction is not None or not switches.fast_kinds:
        for at, query, _ in plans:
            numbers[at] = yield from scan.planned_count(context, query if limit is None else query.limited(limit))
        return numbers
    owners = [(at, one) for at, _, plan in plans for one in plan.ranges]
    most = ranges_at_once(context.limits, guarded=True)
    for start in range(0, len(owners), most):
        part = owners[start : start + most]
        wanted = [ReadRange(*one, limit) if one.end is not None else ReadRange(one.start) for _, one in part]
        found = yield from count_rows(wanted, view.guard)
        if not isinstance(found, Counted):
            return None
        for (at, _), number in zip(part, found.numbers, strict=True):
            numbers[at] += number
    return numbers
