"""Read the numbers of ``with_counts`` for a batch of results: how many records refer to each of them.

The query for the referring records of each result is planned. Its number comes from the counters of an aggregate index,
or from the number of rows in a range of an index that begins with the foreign key and serves the filter.

Rules of this module: where the engine takes so many ranges, all counters of a batch of results are one request, and all
ranges whose rows are counted are another, whatever the number of results and of their numbers. No records are read. In
a transaction, rows are read, because its commit checks them; so everything is one request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import Counted, GuardFailed, ReadRange, Row
from kvmodels.errors import NoUsableIndexError
from kvmodels.flows.context import Context, HeaderView, planned, reload_header
from kvmodels.flows.effects import AnyFlow, Flow, count_rows, ranges_at_once, read, rows_at_once, steps_of
from kvmodels.flows.execution.executor import MAX_BATCH, counts_rows
from kvmodels.flows.reading.aggregate import counted_kinds, counted_result, counters_in, ranges_of
from kvmodels.flows.reading.referrers import queries_of, referring_schema
from kvmodels.query import child_counts
from kvmodels.query.child_counts import ChildCount
from kvmodels.query.planning.aggregation import CounterPlan, counter_plan
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
    distinct = list(dict.fromkeys(keys))
    found = yield from _numbers(context, query.child_counts, distinct)
    at = {key: place for place, key in enumerate(distinct)}
    return [
        (one, {label: several[at[key]] for label, several in found.items()})
        for one, key in zip(results, keys, strict=True)
    ]


class _Number(NamedTuple):
    """One number of all results: the counters or the plan of each result, in their order."""

    of: ChildCount
    sources: list[CounterPlan | QueryPlan]

    @property
    def counters(self) -> list[ReadRange]:
        """Return the counters to read."""
        plans = (one for one in self.sources if isinstance(one, CounterPlan))
        return [wanted for plan in plans for wanted in self._counters_of(plan)]

    @property
    def rows(self) -> list[ReadRange]:
        """Return the ranges whose rows are counted."""
        plans = (one for one in self.sources if isinstance(one, QueryPlan))
        return [wanted for plan in plans for wanted in self._rows_of(plan)]

    def results(self, counters: Mapping[ReadRange, Sequence[Row]], rows: Mapping[ReadRange, int]) -> Iterable[Any]:
        """Yield the number of each result."""
        for source in self.sources:
            if isinstance(source, CounterPlan):
                found = [row for wanted in self._counters_of(source) for row in counters[wanted]]
                totals = Counter[str]()
                for group in counters_in(source, found):
                    totals.update(group.numbers)
                number = counted_result(source.index.definition, self.of.measure, totals)
            else:
                number = sum(rows[wanted] for wanted in self._rows_of(source))
                number = None if self.of.function == "sum" else number
            yield bool(number) if self.of.function == "exists" else number

    def _counters_of(self, plan: CounterPlan) -> list[ReadRange]:
        return ranges_of(plan, counted_kinds(plan, (self.of.measure,)))

    def _rows_of(self, plan: QueryPlan) -> list[ReadRange]:
        limit = 1 if self.of.function == "exists" else None
        return [
            ReadRange(*one, limit, keys_only=True) if one.end is not None else ReadRange(one.start, keys_only=True)
            for one in plan.ranges
        ]


def _numbers(context: Context, counts: Sequence[ChildCount], keys: Sequence[Any]) -> Flow[dict[str, list[Any]]]:
    """Return the numbers of each key, by name."""
    asked: list[tuple[ChildCount, list[Query]]] = []
    for count in counts:
        queries = yield from queries_of(context, count.query, count.field, keys)
        asked += [(count, queries)]
    while keys:  # again only if another process changed the schema in between
        view, numbers = yield from _planned(context, asked)
        counters = [wanted for one in numbers for wanted in one.counters]
        rows = [wanted for one in numbers for wanted in one.rows]
        are_read = context.transaction is not None or not switches.fast_kinds
        found = yield from _read_whole(context, [*counters, *(rows if are_read else ())], view)
        counted = {} if are_read or found is None else (yield from _counted(context, rows, view))
        if found is None or counted is None:
            yield from reload_header(context)
            continue
        if are_read:
            counted = {wanted: len(found[wanted]) for wanted in rows}
        return {one.of.label: list(one.results(found, counted)) for one in numbers}
    return {}


def _planned(
    context: Context, asked: Sequence[tuple[ChildCount, list[Query]]]
) -> Flow[tuple[HeaderView, list[_Number]]]:
    """Return all numbers with their sources, under one header."""
    while True:
        numbers: list[_Number] = []
        views: list[HeaderView] = []
        for count, queries in asked:
            view, sources = yield from planned(context, count.query.schema, partial(_sources, count, queries))
            numbers.append(_Number(count, sources))
            views.append(view)
        if all(one is views[-1] for one in views):
            return views[-1], numbers


def _sources(count: ChildCount, queries: Sequence[Query], live: LiveCollection) -> list[CounterPlan | QueryPlan]:
    return [_source(count, query, live) for query in queries]


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


def _read_whole(
    context: Context, ranges: Iterable[ReadRange], view: HeaderView
) -> Flow[dict[ReadRange, list[Row]] | None]:
    """Return all rows of each range; None when the header has changed. Cost: one request, if they are few enough."""
    found: dict[ReadRange, list[Row]] = {one: [] for one in ranges}
    left = [(one, one) for one in found]
    most = ranges_at_once(context.limits, guarded=True)
    while left:
        part, left = left[:most], left[most:]
        size = rows_at_once(context.limits, MAX_BATCH * len(part)) // len(part)
        wanted = [rest if rest.end is None or rest.limit else rest._replace(limit=max(1, size)) for _, rest in part]
        result = yield from read(wanted, view.guard)
        if isinstance(result, GuardFailed):
            return None
        for (whole, _), asked, rows in zip(part, wanted, result.ranges, strict=True):
            found[whole] += rows
            if whole.limit is None and len(rows) == asked.limit:
                left.append((whole, whole._replace(start=key_successor(rows[-1].key))))
    return found


def _counted(context: Context, ranges: Iterable[ReadRange], view: HeaderView) -> Flow[dict[ReadRange, int] | None]:
    """Return the number of rows of each range; None when the header has changed."""
    numbers: dict[ReadRange, int] = {}
    wanted = list(dict.fromkeys(ranges))
    most = ranges_at_once(context.limits, guarded=True)
    for start in range(0, len(wanted), most):
        part = wanted[start : start + most]
        found = yield from count_rows(part, view.guard)
        if not isinstance(found, Counted):
            return None
        numbers.update(zip(part, found.numbers, strict=True))
    return numbers
