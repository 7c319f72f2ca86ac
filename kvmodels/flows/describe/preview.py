"""The first results of a query for a notebook, read within a bound, or the reason why none are read.

Rules of this module: a preview never raises an error of the library, because a notebook asks for it unprompted; its
note is the error. It reads at most a few hundred rows, whatever the query. A query that scans the collection, sorts in
memory, or needs other queries first is described and not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kvmodels.errors import ClosedError, KvModelsError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, steps_of
from kvmodels.flows.execution.executor import plan_of
from kvmodels.flows.execution.permission import REFUSED
from kvmodels.flows.reading import aggregate, group_rows, queries
from kvmodels.flows.reading.scan import Batches, distinct_plan_of
from kvmodels.flows.scans import ScanPolicy
from kvmodels.query.aggregates import Grouping
from kvmodels.query.planning.aggregation import GroupPlan
from kvmodels.query.planning.distinct import is_distinct
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

T = TypeVar("T")

ROWS_SHOWN: Final = 10

_BATCH: Final = 50
_MOST_BATCHES: Final = 4
_MOST_SCANS: Final = 8
"""A merge reads a batch of each of its scans."""

NOT_IN_TRANSACTION: Final = (
    "Not read: the commit of a transaction checks all rows that it read. Call to_list() to read."
)
_SCANS: Final = "Not read: no index serves this query, which scans or sorts. Call to_list() to read the results."
_HELD: Final = "Not read: all distinct values would be held in memory. Call to_list() to read them."
RANKED: Final = (
    "Not read: the first results may need many reads. Call to_list() or to_pandas() on a slice, such as [:10]."
)


class HasContext(Protocol):
    """An object of an open database that runs flows."""

    @property
    def context(self) -> Context:
        """The context of the flows. Raises ClosedError before the database is open."""
        ...


class Preview(NamedTuple):
    """The first results, if any are read.

    Attributes:
        access: the index or the range that is read; None if it is not known.
        items: the first results; None if none are read.
        note: the number of results, or why none are read.
    """

    access: str | None = None
    items: Sequence[Any] | None = None
    note: str = ""


def failed(error: Exception) -> Preview:
    """Return the preview of a query that cannot run; an error of another library may quote a hidden value."""
    return Preview(note=reason_of(error))


def reason_of(error: Exception) -> str:
    """Return an error as the note of a preview."""
    if not isinstance(error, KvModelsError):
        return f"Not shown, because a class raised {type(error).__name__}. Call to_list() to see the error."
    return f"Not read: {error.message}." + (f" {error.hint}" if error.hint else "")


# --- queries ----------------------------------------------------------------------------------------------------


def preview(context: Context, query: Query) -> Flow[Preview]:
    """Return the first results of a query, or why they are not read."""
    reason = _unplanned(query)
    if reason is not None:
        return Preview(note=reason)
    quiet = _refusing(context)
    try:
        first = query.limited(ROWS_SHOWN + 1)
        if is_distinct(query):
            distinct = yield from distinct_plan_of(quiet, first)
            plan, reason = distinct.plan, _HELD if distinct.limit is not None else None
        else:
            plan, reason = (yield from plan_of(quiet, first)), None
        reason = reason or _unbounded(plan)
        if reason is not None:
            return Preview(access_of(plan), None, reason)
        scan = queries.results(quiet, first, max(1, _BATCH // max(1, len(plan.scans))))
        return (yield from _read(scan, access_of(plan)))
    except KvModelsError as error:
        return _refused(context, error)


def _refusing(context: Context) -> Context:
    """Return a context that refuses scans, because a permission to scan is not for a preview, and would warn."""
    return replace(context, scans=ScanPolicy())


def _refused(context: Context, error: KvModelsError) -> Preview:
    if isinstance(error, REFUSED) and context.scans.current != "refuse":
        return Preview(note=_SCANS)
    return failed(error)


def _unplanned(query: Query) -> str | None:
    """Return why a query is not even planned, or None."""
    if query.ranked is not None:
        return RANKED
    if query.pending:
        return "Not read: the filter needs reads of its own first. Call to_list() to read the results."
    if query.child_counts:
        return "Not read: the numbers of with_counts() may count many records. Call to_list() to read the results."
    return None


def _unbounded(plan: QueryPlan) -> str | None:
    """Return why the first results of a plan may need many reads, or None."""
    if plan.full_scan:
        return _SCANS
    if plan.sort is not None:
        return "Not read: all results are sorted in memory. Call to_list() to read them."
    if len(plan.scans) > _MOST_SCANS:
        return f"Not read: this query combines {len(plan.scans):,} scans. Call to_list() to read the results."
    return None


def _read(scan: Batches, access: str | None) -> Flow[Preview]:
    found: list[Any] = []
    for _ in range(_MOST_BATCHES):
        if scan.done or len(found) > ROWS_SHOWN:
            break
        found += yield from steps_of(scan.next_batch())
    return Preview(access, found[:ROWS_SHOWN], _count_note(len(found), done=scan.done))


def _count_note(number: int, *, done: bool) -> str:
    if number > ROWS_SHOWN:
        return f"The first {ROWS_SHOWN} results; there are more."
    if done:
        return f"{number} result{'' if number == 1 else 's'}."
    return f"{number} result{'' if number == 1 else 's'} among the first rows that were read; there may be more."


def access_of(plan: QueryPlan) -> str:
    """Return what a plan reads, in short."""
    return plan.tree().label.partition(": ")[2]


# --- groups -----------------------------------------------------------------------------------------------------


def preview_groups(context: Context, grouping: Grouping) -> Flow[Preview]:
    """Return the first groups, or why they are not read."""
    try:
        reason = _unplanned(grouping.query)
        if reason is not None:
            return Preview(note=reason)
        quiet = _refusing(context)
        _, plan = yield from aggregate.planned_groups(quiet, grouping)
        reason = _unbounded_groups(plan)
        if reason is not None:
            return Preview(_source_of(plan), None, reason)
        scan = group_rows.rows_of(quiet, grouping)
        found: list[Any] = yield from steps_of(scan.next_batch())
        return Preview(_source_of(plan), found[:ROWS_SHOWN], _count_note(len(found), done=scan.done))
    except KvModelsError as error:
        return _refused(context, error)


def _unbounded_groups(plan: GroupPlan) -> str | None:
    if plan.source == "memory" or plan.limit is not None or plan.grouping.arrangement.order:
        return "Not read: all groups are held in memory. Call to_list() to read them."
    return _unbounded(plan.rows.plan) if plan.rows is not None else None


def _source_of(plan: GroupPlan) -> str:
    return f"counters of index {plan.index}" if plan.rows is None else access_of(plan.rows.plan)


# --- without reads ----------------------------------------------------------------------------------------------


def unread(source: HasContext, query: Query, note: str) -> Preview:
    """Return a preview without any read: the plan if the catalogue is known, and a note."""
    if query.pending or query.ranked is not None or is_distinct(query):
        return Preview(note=note)
    try:
        context = source.context
    except ClosedError:
        return Preview(note=note)
    try:
        plan = _without_reads(plan_of(_refusing(context), query))
    except KvModelsError as error:
        return _refused(context, error)
    return Preview(None if plan is None else access_of(plan), None, note)


def _without_reads(flow: Flow[T]) -> T | None:
    """Return the result of a flow that needs no request; None if it makes one."""
    try:
        next(flow)
    except StopIteration as end:
        result: T = end.value
        return result
    flow.close()
    return None
