"""Where the results of ``aggregate()`` and the rows of ``group_by()`` come from.

In this order: counters of an aggregate index that keep them; for the least and the greatest value, the end of an index
that has the field behind columns with one value; else one pass over the records of the query, or over the entries of
an index that hold all that is looked at. Groups come from counters, else from an index that has the records of each
group side by side, else, where ``sort_in_memory(limit)`` permits it, from one pass with all groups in memory.

Rules of this module: pure; a pass is planned by the planner of queries, so the same permissions are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Literal

from kvmodels.errors import IndexNotReadyError, InvalidArgumentError, NoUsableIndexError
from kvmodels.query.aggregation import Grouping, Measure, fields_of
from kvmodels.query.counting import CounterPlan, counter_plan, unready_counters
from kvmodels.query.group_refusals import no_groups
from kvmodels.query.planner import plan_query
from kvmodels.query.plans import Analysis, QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.catalogue import IndexState
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.expressions import Order
from kvmodels.schema.live import LiveCollection
from kvmodels.schema.predicate import Condition
from kvmodels.slotted import dataclass

__all__ = ["AggregatePlan", "End", "GroupPlan", "Pass", "plan_aggregate", "plan_groups", "refuse_unready"]


@dataclass(frozen=True, slots=True)
class End:
    """A least or greatest value that is the first in an order.

    Attributes:
        measure: the result.
        query: the first record with a value.
        plan: how it is read.
    """

    measure: Measure
    query: Query
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over records: what is asked for, and how it is read."""

    query: Query
    plan: QueryPlan


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """Where the results of an ``aggregate()`` come from; what ``explain_aggregate()`` returns.

    Attributes:
        counted: results that are read from counters.
        counters: which counters; None when there are none.
        ends: results that are the first value of an index.
        passed: results of one pass over the records.
        rows: the pass; None when there is none.
        analysis: what running it took, after ``explain_aggregate(…, analyze=True)``.
    """

    schema: ModelSchema
    counted: tuple[Measure, ...] = ()
    counters: CounterPlan | None = None
    ends: tuple[End, ...] = ()
    passed: tuple[Measure, ...] = ()
    rows: Pass | None = None
    analysis: Analysis | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.schema.name}: " + "\n  ".join(self._lines())

    @property
    def through_index(self) -> bool:
        """Whether no record is walked in the order of the primary key, only behind entries."""
        plans = [end.plan for end in self.ends] + ([self.rows.plan] if self.rows is not None else [])
        return all(scan.index is not None for plan in plans for scan in plan.scans)

    def _lines(self) -> Iterator[str]:
        if self.counters is not None:
            yield f"counters of index {self.counters.name} for {_labels(self.counted)}"
        for end in self.ends:
            of = "the primary key" if end.plan.index is None else f"index {end.plan.index}"
            yield f"the end of {of} for {end.measure.label}"
        if self.rows is not None:
            yield f"one pass for {_labels(self.passed)}"
            yield from str(self.rows.plan).splitlines()
        if self.analysis is not None:
            yield _took(self.analysis)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Where the rows of a ``group_by()`` come from; what ``Groups.explain()`` returns.

    Attributes:
        source: ``counters``; ``index``: the records of each group lie side by side; ``memory``: all groups are held.
        counters: which counters; None when there are none.
        rows: the pass over the records; None when counters are read.
        limit: the most groups that are held in memory; None when they come in order.
        analysis: what running it took, after ``explain(analyze=True)``.
    """

    grouping: Grouping
    source: Literal["counters", "index", "memory"]
    counters: CounterPlan | None = None
    rows: Pass | None = None
    limit: int | None = None
    analysis: Analysis | None = field(default=None, compare=False)

    @property
    def through_index(self) -> bool:
        """As in ``AggregatePlan``."""
        return self.rows is None or all(scan.index is not None for scan in self.rows.plan.scans)

    @property
    def index(self) -> str | None:
        """Name of the only index that is read; None: the records, or several indexes."""
        if self.counters is not None:
            return self.counters.name
        return self.rows.plan.index if self.rows else None

    def __str__(self) -> str:
        return f"{self.grouping.query.schema.name}: " + "\n  ".join(self._lines())

    def _lines(self) -> Iterator[str]:
        fields = ", ".join(column.label for column in self.grouping.columns)
        if self.counters is not None:
            yield f"counters of index {self.counters.name}, grouped by {fields}"
        elif self.limit is None:
            yield f"records in the order of {fields}, one group at a time"
        else:
            yield f"one pass, grouped by {fields}"
        if self.limit is not None:
            yield f"holds up to {self.limit} groups in memory"
        if self.rows is not None:
            yield from str(self.rows.plan).splitlines()
        if self.analysis is not None:
            yield _took(self.analysis)


def _took(analysis: Analysis) -> str:
    return f"took        {analysis}"


def _labels(measures: Iterable[Measure]) -> str:
    return ", ".join(measure.label for measure in measures)


# --- totals -----------------------------------------------------------------------------------------------------


def plan_aggregate(query: Query, live: LiveCollection, measures: tuple[Measure, ...]) -> AggregatePlan:
    """Where the results of an aggregate come from.

    Raises:
        InvalidArgumentError: the query is for distinct values.
        NoUsableIndexError, IndexNotReadyError: records must be read, and see ``plan_query``.
    """
    if query.distinct and query.fields is not None:
        raise InvalidArgumentError(
            "distinct values are not aggregated",
            argument="distinct",
            hint="Leave out distinct(), or take the values and compute with them.",
        )
    schema = query.schema
    if not query.sliced:
        counted = tuple(measure for measure in measures if measure.function not in ("min", "max"))
        counters = counter_plan(query, live, counted) if counted else None
        ends = [_end(query, live, measure) for measure in measures if measure.function in ("min", "max")]
        found = tuple(end for end in ends if end is not None)
        if len(found) == len(ends) and (counters is not None or not counted):
            return AggregatePlan(schema, counted, counters, found)
    fields = fields_of(measures)
    rows = replace(query, fields=fields) if query.sliced else _unordered(query, fields)
    try:
        return AggregatePlan(schema, passed=measures, rows=Pass(rows, plan_query(rows, live)))
    except NoUsableIndexError:
        refuse_unready(query, live, measures)
        raise


def refuse_unready(
    query: Query, live: LiveCollection, measures: Sequence[Measure], order: Sequence[tuple[str, bool]] = ()
) -> None:
    """Where nothing else answers: name the aggregate index that would, if it were built.

    Raises:
        IndexNotReadyError: there is one.
    """
    name = unready_counters(query, live, measures, order)
    if name is not None:
        raise IndexNotReadyError(
            "the aggregate index that would answer this is not readable",
            model=query.schema.name,
            index=name,
            state=live.states[name].value,
            hint=_advice(live, name),
        )


def _advice(live: LiveCollection, name: str) -> str | None:
    if name in live.replaced:
        return "Another release has replaced this index: run that release."
    state = live.states[name]
    if state is IndexState.SUPERSEDED:
        return "A newer release has changed the records that the index is made of: run that release."
    if state is IndexState.OUTDATED or live.unraised:
        return "Run db.apply(), which rewrites the records that an upgrade changes."
    return None


def _unordered(query: Query, fields: tuple[str, ...]) -> Query:
    """The query in whatever order is best, because the order makes no difference."""
    return replace(query, fields=fields, order=(), reverse=False, sort_limit=None, distinct=False)


def _end(query: Query, live: LiveCollection, measure: Measure) -> End | None:
    """The first record in the order of a field; None where more than the first row might have to be read."""
    assert measure.field is not None  # only a count goes without a field
    present = (Condition(measure.field, "isnull", False),) if measure.nullable else ()
    first = replace(
        _unordered(query, (measure.field,)),
        where=(*query.where, *present),
        order=(Order(measure.field, descending=measure.function == "max"),),
        scan_allowed=False,
        stop=1,
    )
    try:
        plan = plan_query(first, live)
    except NoUsableIndexError:
        return None
    if plan.matches is not None or any(scan.matches is not None or scan.fans_out for scan in plan.scans):
        return None
    return End(measure, first, plan) if plan.combine in ("scan", "merge", "nothing") else None


# --- groups -----------------------------------------------------------------------------------------------------


def plan_groups(grouping: Grouping, live: LiveCollection) -> GroupPlan:
    """Where the rows of a grouped query come from.

    Raises:
        NoUsableIndexError: no index has the groups in order, and ``sort_in_memory()`` was not called.
        IndexNotReadyError: see ``plan_query``.
    """
    query, limit = grouping.query, grouping.query.sort_limit
    order = [(column.source.name, descending) for column, descending in grouping.order]
    counters = counter_plan(query, live, grouping.measures, order)
    if counters is not None and (counters.ordered or limit is not None):
        return GroupPlan(grouping, "counters", counters, limit=None if counters.ordered else limit)
    fields = fields_of(grouping.measures, grouping.columns)
    refusal: NoUsableIndexError | None = None
    if not any(column.source.many for column in grouping.columns):
        columns = tuple(Order(name, descending) for name, descending in order)
        rows = replace(_unordered(query, fields), order=columns)
        try:
            return GroupPlan(grouping, "index", rows=Pass(rows, plan_query(rows, live)))
        except NoUsableIndexError as error:
            refusal = error
    if limit is not None:
        rows = _unordered(query, fields)
        return GroupPlan(grouping, "memory", rows=Pass(rows, plan_query(rows, live)), limit=limit)
    refuse_unready(query, live, grouping.measures, order)
    raise no_groups(grouping, refusal) from refusal
