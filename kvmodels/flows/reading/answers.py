"""Choose who answers a query set: a scan, one known range, distinct values or counters.

Rules of this module: it only chooses who answers: counters, distinct values, or the scan of a query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import require_flag
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, OneRequest, steps_of
from kvmodels.flows.execution.batch import plan_of
from kvmodels.flows.reading import aggregate as aggregation
from kvmodels.flows.reading import page as pages
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.analyze import analyzed, measured
from kvmodels.flows.reading.distinct import DistinctScan, distinct_plan_of
from kvmodels.flows.reading.page import PageData
from kvmodels.flows.reading.range_plan import count_of_range, first_of_range
from kvmodels.flows.reading.scan import Scan
from kvmodels.query.aggregates import Grouping, Measure
from kvmodels.query.planning.aggregation import AggregatePlan, GroupPlan
from kvmodels.query.planning.distinct import is_distinct, told_apart
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

MOST_ROWS: Final = 500
"""The most rows of one batch, as Deno's."""


class OneBatch:
    """An iteration over results that are read at once.

    Args:
        read: what gives them.
    """

    __slots__ = ("_read", "done")

    def __init__(self, read: OneRequest[list[Any]]) -> None:
        self._read = read
        self.done = False

    def next_batch(self) -> OneRequest[list[Any]]:
        """All results in order."""
        self.done = True
        return self._read


Results: TypeAlias = Scan | DistinctScan | OneBatch
"""An iteration over results, batch by batch."""


def results(context: Context, query: Query, batch_size: int | None = None) -> Results:
    """An iteration over the results of a query; nothing is read yet.

    Args:
        context: shared by the flows of the database.
        query: what is asked for.
        batch_size: rows of every read; None: few at first, then more.
    """
    if batch_size is None:
        known = first_of_range(context, query, lambda: _fetch(context, query))
        if known is not None:
            return OneBatch(known)
    return DistinctScan(context, query) if is_distinct(query) else Scan(context, query, batch_size=batch_size)


def checked_batch_size(size: Any) -> int:
    """The size of a batch that a caller asks for.

    Raises:
        InvalidValueError: not an int; InvalidArgumentError: below 1 or above 500.
    """
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidValueError(
            "the size of a batch is an int",
            field="batch_size",
            type=type(size).__name__,
            hint="Give a whole number: iterator(batch_size=100).",
        )
    if not 1 <= size <= MOST_ROWS:
        raise InvalidArgumentError(
            "a batch has between 1 and 500 rows",
            argument="batch_size",
            value=size,
            hint=f"Give a number from 1 to {MOST_ROWS}, or leave it out for the largest.",
        )
    return size


def fetch(context: Context, query: Query) -> Flow[list[Any]] | OneRequest[list[Any]]:
    """All results of a query, in order."""

    def planned_read() -> Flow[list[Any]]:
        return _fetch(context, query)

    return first_of_range(context, query, planned_read) or planned_read()


def _fetch(context: Context, query: Query) -> Flow[list[Any]]:
    if not is_distinct(query):
        return (yield from scan.fetch(context, query))
    distinct = DistinctScan(context, query)
    found: list[Any] = []
    while not distinct.done:
        found += yield from distinct.next_batch()
    return found


def item_at(context: Context, query: Query, position: int) -> Flow[Any]:
    """The result at a position, counted from 0.

    Raises:
        DoesNotExist: there are not so many; a LookupError, as Python's IndexError is.
        InvalidArgumentError, InvalidValueError: a negative position, or no int.
    """
    found = yield from steps_of(fetch(context, query.at(position)))
    if not found:
        raise query.schema.model.DoesNotExist(
            "the query has no object at this position", model=query.schema.name, lookup=position
        )
    return found[0]


def count(context: Context, query: Query) -> Flow[int] | OneRequest[int]:
    """How many results there are: from counters, if an aggregate index keeps them."""

    def planned_count() -> Flow[int]:
        return aggregation.count(context, query)

    if is_distinct(query):
        return _counted(context, query)
    start, stop = query.start, query.stop
    return count_of_range(context, query, stop, planned_count, lambda number: max(0, number - start)) or planned_count()


def _counted(context: Context, query: Query) -> Flow[int]:
    return len((yield from _fetch(context, query)))


def explain_aggregate(
    context: Context, query: Query, measures: tuple[Measure, ...], *, analyze: bool
) -> Flow[AggregatePlan]:
    """Where the results of an aggregate come from; with ``analyze`` they are computed, and what was read is counted.

    Raises:
        InvalidArgumentError: ``analyze`` is neither True nor False.
    """
    require_flag("analyze", analyze)
    plan = yield from aggregation.aggregate_plan_of(context, query, measures)
    if not analyze:
        return plan
    computed = aggregation.aggregate(context, query, measures)
    _, tally = yield from measured(context, query.schema, computed, through_index=plan.through_index)
    return replace(plan, analysis=tally.analysis(1))


def explain_groups(context: Context, grouping: Grouping, *, analyze: bool) -> Flow[GroupPlan]:
    """Where the rows of groups come from; with ``analyze`` they are made, and what was read is counted.

    Raises:
        InvalidArgumentError: ``analyze`` is neither True nor False.
    """
    require_flag("analyze", analyze)
    plan = yield from aggregation.group_plan_of(context, grouping)
    if not analyze:
        return plan
    made = aggregation.fetch_groups(context, grouping)
    rows, tally = yield from measured(context, grouping.query.schema, made, through_index=plan.through_index)
    return replace(plan, analysis=tally.analysis(len(rows)))


def exists(context: Context, query: Query) -> Flow[bool] | OneRequest[bool]:
    """Whether there is any result; equal ones make no difference, so distinct values are not looked for."""

    def planned_look() -> Flow[bool]:
        return scan.exists(context, replace(query, distinct=False))

    start = query.start
    return count_of_range(context, query, start + 1, planned_look, lambda number: number > start) or planned_look()


def page(
    context: Context, query: Query, size: int, after: str | None = None, before: str | None = None
) -> Flow[PageData]:
    """One page of a query; see ``kvmodels.flows.reading.page``.

    Raises:
        InvalidArgumentError: the values are distinct.
    """
    if is_distinct(query):
        raise InvalidArgumentError(
            "distinct values have no pages",
            argument="size",
            hint="Iterate over them, or take a slice.",
        )
    return (yield from pages.page(context, query, size, after, before))


def explain(context: Context, query: Query, *, analyze: bool) -> Flow[QueryPlan]:
    """How a query is answered; with ``analyze`` it is run to its end, and what it read is counted.

    Raises:
        InvalidArgumentError: ``analyze`` is neither True nor False.
    """
    require_flag("analyze", analyze)
    if not is_distinct(query):
        return (yield from (analyzed if analyze else plan_of)(context, query))
    found = yield from distinct_plan_of(context, query)
    plan = replace(found.plan, distinct=told_apart(found))
    if not analyze:
        return plan
    through_index = all(one.index is not None for one in plan.scans)
    values, tally = yield from measured(context, query.schema, _fetch(context, query), through_index=through_index)
    return replace(plan, analysis=tally.analysis(len(values)))
