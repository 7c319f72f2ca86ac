"""Execute query sets: choose between a scan, distinct values and counters, and explain the choice.

Rules of this module: it chooses, and reads nothing itself. ``explain(analyze=True)`` counts every request of the flow
on its way to the engine, so the numbers are those of the actual reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.core.operations import Counted, ReadResult, Row
from kvmodels.errors import InvalidArgumentError, InvalidKeyError
from kvmodels.flows.arguments import items_of, require_flag
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import AnyFlow, CountRows, Flow, Read, steps_of
from kvmodels.flows.execution.executor import MAX_BATCH, count_at_once, plan_of
from kvmodels.flows.reading import aggregate as aggregation
from kvmodels.flows.reading import child_counts, group_rows, ranked, referrers, related, scan, target_values
from kvmodels.flows.reading.child_counts import with_numbers
from kvmodels.flows.reading.referrers import ReferrerOptions
from kvmodels.flows.reading.related import followed_collections, with_targets
from kvmodels.flows.reading.scan import Batches, DistinctScan, PageData, ResultScan, collected, distinct_plan_of
from kvmodels.flows.reading.semi_join import described, resolved, run_resolved
from kvmodels.flows.reading.target_values import keys_and_collections, with_target_values
from kvmodels.query.aggregates import Grouping, Measure
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.planning.aggregation import AggregatePlan, GroupPlan
from kvmodels.query.planning.distinct import is_distinct, told_apart
from kvmodels.query.plans import Analysis, QueryPlan
from kvmodels.query.query import Query, require_int
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.predicate import Predicate, conditions_of
from kvmodels.schema.filters.target_filters import target_filter_of

T = TypeVar("T")

_Completion: TypeAlias = Callable[[Context, Query, Sequence[Any]], Flow[list[Any]]]
"""A function that returns results with their targets, values of these or numbers; it may leave some out."""


class _PendingScan:
    """An iteration over the results of a query whose operands must be read first."""

    def __init__(self, context: Context, query: Query, batch_size: int | None) -> None:
        self._context = context
        self._query = query
        self._batch_size = batch_size
        self._scan: Batches | None = None

    @property
    def done(self) -> bool:
        """Whether there are no more results."""
        return self._scan is not None and self._scan.done

    def next_batch(self) -> Flow[list[Any]]:
        """Read the next results in order; raises like ``resolved`` and the iteration of the resolved query."""
        if self._scan is None:
            self._scan = results(self._context, (yield from resolved(self._context, self._query)), self._batch_size)
            if self._scan.done:
                return []
        return (yield from steps_of(self._scan.next_batch()))


class _CompletedScan:
    """An iteration over results that get their targets, values of these or numbers, batch by batch."""

    def __init__(self, context: Context, query: Query, scan: Batches, complete: _Completion) -> None:
        self._context = context
        self._query = query
        self._scan = scan
        self._complete = complete

    @property
    def done(self) -> bool:
        """Whether there are no more results."""
        return self._scan.done

    def next_batch(self) -> Flow[list[Any]]:
        """Read the next results in order; raises like the iteration alone and the completion."""
        found = yield from steps_of(self._scan.next_batch())
        return (yield from self._complete(self._context, self._query, found))


def results(context: Context, query: Query, batch_size: int | None = None) -> Batches:
    """Return an iteration over the results of a query; nothing is read yet.

    ``batch_size``: rows per read; None: a small first batch, then larger ones.
    """
    if query.pending:
        return _PendingScan(context, query, batch_size)
    if query.targets is not None and query.child_counts:
        return _CompletedScan(context, query, results(context, query.without_counts(), batch_size), with_numbers)
    if query.ranked is not None:
        return ranked.results(context, query, batch_size)
    if query.distinct and is_distinct(query):
        return DistinctScan(context, query)
    found = ResultScan(context, query, batch_size=batch_size)
    if query.related:
        return _CompletedScan(context, query, found, with_targets)
    if query.targets is not None and query.target_values:
        return _CompletedScan(context, query, found, with_target_values)
    return found


def checked_batch_size(size: Any) -> int:
    """Return the batch size of a caller. Raises InvalidValueError or InvalidArgumentError."""
    hint = "Give a whole number: iterator(batch_size=100)."
    number = require_int("the size of a batch is an int", "batch_size", size, hint)
    if not 1 <= number <= MAX_BATCH:
        raise InvalidArgumentError(
            "a batch has between 1 and 500 rows",
            argument="batch_size",
            value=number,
            hint=f"Give a number from 1 to {MAX_BATCH}, or leave it out for the largest.",
        )
    return number


def fetch(context: Context, query: Query) -> AnyFlow[list[Any]]:
    """Return the flow that reads all results of a query, in order."""
    if query.pending:
        return run_resolved(context, query, fetch)
    if query.targets is not None and query.child_counts:
        return child_counts.fetch(context, query, fetch)
    if query.related:
        return related.fetch(context, query)
    if query.targets is not None and query.target_values:
        return target_values.fetch(context, query)
    if query.distinct and is_distinct(query):
        return collected(DistinctScan(context, query))
    return scan.fetch(context, query)


def item_at(context: Context, query: Query, position: int) -> Flow[Any]:
    """Return the result at a position, counted from 0."""
    wanted = query.at(position)
    found = yield from ranked.fetch(context, wanted) if query.ranked is not None else steps_of(fetch(context, wanted))
    if not found:
        raise query.schema.model.DoesNotExist(
            "the query has no object at this position",
            model=query.schema.name,
            lookup=position,
            hint="Take a slice, query[a:b], which may be empty.",
        )
    return found[0]


def only_result(context: Context, query: Query) -> Flow[Any]:
    """Return the result of a query of at most one. Raises DoesNotExist."""
    found = yield from steps_of(fetch(context, query))
    if not found:
        raise query.schema.model.DoesNotExist(
            "the query has no result",
            model=query.schema.name,
            lookup=query.filter_fields,
            hint="Call order_by() and first() or last(), which return None then.",
        )
    return found[0]


def count(context: Context, query: Query) -> AnyFlow[int]:
    """Return the flow that counts the results: from counters, if an aggregate index keeps them."""
    query = query.without_default_order()
    if query.pending:
        return run_resolved(context, query, count)
    if query.distinct and is_distinct(query):
        return _counted(context, query)
    planned, start, stop = partial(aggregation.count, context, query), query.start, query.stop
    if stop is not None and start >= stop:
        return planned()
    return count_at_once(context, query, stop, lambda number: max(0, number - start), planned) or planned()


def _counted(context: Context, query: Query) -> Flow[int]:
    return len((yield from collected(DistinctScan(context, query))))


def exists(context: Context, query: Query) -> AnyFlow[bool]:
    """Return the flow that finds out whether there is any result; duplicates do not matter."""
    query = query.without_default_order()
    if query.pending:
        return run_resolved(context, query, exists)
    return scan.exists(context, replace(query, distinct=False) if query.distinct else query)


def page(
    context: Context, query: Query, size: int, after: str | None = None, before: str | None = None
) -> Flow[PageData]:
    """Return one page of a query with its targets; raises like ``scan.page``."""
    if is_distinct(query):
        raise InvalidArgumentError(
            "distinct values have no pages", argument="size", hint="Iterate over them, or take a slice."
        )
    query = yield from resolved(context, query, cursor=after or before)
    found = yield from scan.page(context, query, size, after, before)
    objects = found.objects
    if query.target_values:
        objects = yield from with_target_values(context, query, objects)
    if query.related:
        objects = yield from with_targets(context, query, objects)
    if query.child_counts:
        objects = yield from with_numbers(context, query, objects)
    return found if objects is found.objects else found._replace(objects=objects)


# --- explain ----------------------------------------------------------------------------------------------------


def explain(context: Context, query: Query, *, analyze: bool) -> Flow[QueryPlan]:
    """Return the plan of a query; with ``analyze``, also run the query to its end and count its reads."""
    require_flag("analyze", analyze)
    run: Flow[int]
    followed = keys_and_collections(query.schema, query.target_values)
    asked, query = query, (yield from resolved(context, query))
    if is_distinct(query):
        found = yield from distinct_plan_of(context, query)
        plan, run = replace(found.plan, distinct=told_apart(found)), _counted(context, query)
    else:
        plan = replace((yield from plan_of(context, query)), related=query.related or tuple(followed))
        counts = tuple((one.label, f"{one.query.schema.name}.{one.field}") for one in query.child_counts)
        plan = replace(plan, counts=counts)
        run = _scanned(context, asked)
    if asked.pending:
        plan = replace(plan, semi_joins=(yield from described(context, asked)))
    if not analyze:
        return plan
    through_index = all(one.index is not None for one in plan.scans)
    collections = followed_collections(context, query) + _tested_collections(query.target_tests)
    collections += [*followed.values(), *keys_and_collections(query.schema, query.target_order).values()]
    targets = tuple(context.layouts[one].prefix for one in collections)
    lists = yield from _lists_of(context, plan)
    number, tally = yield from _measured(
        context, query.schema, run, through_index=through_index, targets=targets, lists=lists
    )
    return replace(plan, analysis=tally.analysis(number))


def _tested_collections(through: Iterable[Predicate]) -> list[str]:
    """Return the collections whose records are read to test paths of foreign keys."""
    conditions = [condition for part in through for condition in conditions_of(part)]
    found = [target for one in conditions if (target := target_filter_of(one)) is not None]
    return [name for one in found for name in (one.schema.collection, *_tested_collections(one.where))]


def explain_aggregate(
    context: Context, query: Query, measures: tuple[Measure, ...], *, analyze: bool
) -> Flow[AggregatePlan]:
    """Return the plan of an aggregate; with ``analyze``, also compute it and count its reads."""
    require_flag("analyze", analyze)
    _, plan = yield from aggregation.planned_aggregate(context, query, measures)
    if not analyze:
        return plan
    computed = aggregation.aggregate(context, query, measures)
    _, tally = yield from _measured(context, query.schema, computed, through_index=plan.through_index)
    return replace(plan, analysis=tally.analysis(1))


def explain_groups(context: Context, grouping: Grouping, *, analyze: bool) -> Flow[GroupPlan]:
    """Return the plan of groups; with ``analyze``, also compute them and count their reads."""
    require_flag("analyze", analyze)
    _, plan = yield from aggregation.planned_groups(context, grouping)
    if not analyze:
        return plan
    made = group_rows.fetch_groups(context, grouping)
    rows, tally = yield from _measured(context, grouping.query.schema, made, through_index=plan.through_index)
    return replace(plan, analysis=tally.analysis(len(rows)))


def explain_referrers(
    context: Context,
    schema: ModelSchema,
    instances: Iterable[Any],
    key: object,
    options: ReferrerOptions,
    *,
    analyze: bool,
) -> Flow[QueryPlan]:
    """Return the plan of the first records that refer to each object; with ``analyze``, also read and count them."""
    require_flag("analyze", analyze)
    objects = list(items_of("objs", instances, "Give objects of the model in a list."))
    plan = yield from referrers.plan_of(context, schema, objects, key, options)
    if not analyze:
        return plan
    found = referrers.fetch_referrers(context, schema, objects, key, options)
    targets = tuple(context.layouts[one].prefix for one in _tested_collections(plan.target_tests))
    results, tally = yield from _measured(context, plan.schema, found, through_index=True, targets=targets)
    return replace(plan, analysis=tally.analysis(sum(map(len, results.values()))))


def _lists_of(context: Context, plan: QueryPlan) -> Flow[tuple[IndexLayout, ...]]:
    """Return the layouts of the indexes of a plan whose entries are lists of words or trigrams."""
    _, live = yield from live_collection(context, plan.schema)
    indexes = [live.readable[name] for name in plan.indexes if name in live.readable]
    return tuple(one.layout for one in indexes if ACCESS[one.definition.kind].lists)


class _ReadTally:
    """Counts the reads of a flow."""

    def __init__(
        self,
        records: bytes,
        *,
        through_index: bool,
        targets: tuple[bytes, ...] = (),
        lists: tuple[IndexLayout, ...] = (),
    ) -> None:
        self._prefix = records
        self._targets = targets
        self._through_index = through_index
        self._layouts = lists
        self._lists = Counter[str]()
        self._reads = 0
        self._rows = 0
        self._records = 0
        self._counted = 0

    def add(self, request: Read | CountRows, result: Any) -> None:
        """Count one answered read."""
        self._reads += 1
        if isinstance(result, Counted):
            self._counted += sum(result.numbers)
        if not isinstance(result, ReadResult):
            return  # otherwise the guard failed, so nothing was read
        for wanted, rows in zip(request.ranges, result.ranges, strict=True):
            single = wanted.end is None
            if single and rows and rows[0][0].startswith(self._targets):
                self._records += len(rows)
            else:
                self._count(rows, followed=self._through_index and single)
        for rows in result.followed:
            self._count(rows, followed=True)

    def analysis(self, results: int) -> Analysis:
        """Return the counts, for this number of results."""
        lists = sorted(self._lists.items(), key=lambda one: (-one[1], one[0]))
        return Analysis(self._rows, self._records, self._reads, results, tuple(lists), self._counted)

    def _count(self, rows: Sequence[Row], *, followed: bool) -> None:
        behind = len(rows) if followed and rows and rows[0][0].startswith(self._prefix) else 0
        self._records += behind
        self._rows += len(rows) - behind
        for layout in self._layouts:
            for row in rows:
                if row[0].startswith(layout.prefix):
                    with suppress(InvalidKeyError):  # a foreign row
                        self._lists[layout.list_in(row[0])[1]] += 1


def _measured(
    context: Context,
    schema: ModelSchema,
    flow: Flow[T],
    *,
    through_index: bool,
    targets: tuple[bytes, ...] = (),
    lists: tuple[IndexLayout, ...] = (),
) -> Flow[tuple[T, _ReadTally]]:
    """Run a flow, and return its result with the counts of its reads.

    ``targets``: prefixes of other records; ``lists``: layouts of indexes whose lists are named.
    """
    records = context.layouts[schema.collection].prefix
    tally = _ReadTally(records, through_index=through_index, targets=targets, lists=lists)
    return (yield from _tallied(flow, tally)), tally


def _tallied(flow: Flow[T], tally: _ReadTally) -> Flow[T]:
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        try:
            answer = yield request
        except GeneratorExit:
            flow.close()
            raise
        except BaseException as raised:  # noqa: BLE001 - an exception of the driver is thrown into the flow
            error = raised
        else:
            if isinstance(request, Read | CountRows):
                tally.add(request, answer)


def _scanned(context: Context, query: Query) -> Flow[int]:
    """Read all results without keeping them, and return their number."""
    reading = results(context, query)
    number = 0
    while not reading.done:
        number += len((yield from steps_of(reading.next_batch())))
    return number
