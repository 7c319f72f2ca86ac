"""Read one page of a query after or before a cursor, at the cost of the first page.

A page after a cursor is read forward from its position, a page before one backward and then reversed. So paging in one
direction and back returns the same pages, as long as nothing is written.

Rules of this module: a cursor is made from the plan of the query, never from the reversed plan, so it works in both
directions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.executor import (
    MAX_BATCH,
    SortWindow,
    beginning,
    counts_rows,
    mark_of,
    mark_of_key,
    plan_of,
    position_at,
    read_batch,
    resume,
    side_of,
    sorted_hits,
)
from kvmodels.flows.execution.join import Hit, result_of
from kvmodels.flows.execution.ranges import Candidate, Position, bound_at
from kvmodels.flows.reading.scan import FEWEST_TESTED
from kvmodels.query.planning.cursor import cursor_after
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query


class PageData(NamedTuple):
    """The results of one page, and the cursors after its last and before its first result, or None."""

    objects: list[Any]
    next_cursor: str | None
    previous_cursor: str | None = None


class _Found(NamedTuple):
    """Results in reading direction, the marks at both ends, and whether there are more."""

    plan: QueryPlan
    hits: list[Hit]
    marks: list[tuple[bytes, bytes]]
    more: bool


def page(
    context: Context, query: Query, size: int, after: str | None = None, before: str | None = None
) -> Flow[PageData]:
    """Return one page of a query, with the cursors at its ends.

    ``size``: the maximum number of results, 1 or more. ``after``: a cursor to start after; None: start at the
    beginning. Cost: size + 1 rows and as many records, if nothing is tested; for a sort in memory, everything that
    matches. Raises InvalidArgumentError: the query is a slice, the size is below 1, or both cursors are given;
    InvalidCursorError, IndexChangedError: see ``resume``; OperationTooLargeError: a sort in memory would exceed its
    limit.
    """
    _check(query, size, after, before)
    cursor = after if before is None else before
    back = before is not None
    if cursor is None:
        found = yield from _first(context, query, size)
    else:
        plan, live, mark = yield from resume(context, query, cursor)
        if plan.sort is None:
            found = yield from _read(context, query, position_at(plan, live, mark, back=back), size, plan)
        else:
            found = yield from _sorted(context, query, plan, size, side_of(plan, mark), back=back)
    return (yield from _as_page(context, query, found, cursor, back=back))


def _first(context: Context, query: Query, size: int) -> Flow[_Found]:
    plan = yield from plan_of(context, query)
    if plan.sort is not None:
        return (yield from _sorted(context, query, plan, size, None, back=False))
    return (yield from _read(context, query, beginning(plan), size, None))


def _read(context: Context, query: Query, position: Position, size: int, asked: QueryPlan | None) -> Flow[_Found]:
    """Read the next results in the direction of the position; ``asked`` is the plan of the cursor."""
    reading: Position | None = position
    rows, more, plan = size, False, position.plan
    hits: list[Hit] = []
    found: list[Any] = []
    while reading is not None and not more:
        plan = reading.plan
        if plan.sort is not None:  # planned again, because another process has dropped the index of the order
            return (yield from _sorted(context, query, plan, size, None, back=False))
        plain = counts_rows(plan) and plan.combine != "intersect"
        if len(hits) == size and plain:
            # The rows ended with one of several ranges, so one more row is read separately.
            batch = yield from read_batch(context, query, reading, 1, peek=False, wanted="rows")
            more = batch.rows > 0
        else:
            if plain:
                rows = size - len(hits)
            batch = yield from read_batch(context, query, reading, min(rows, MAX_BATCH), wanted="objects")
            hits += batch.hits
            found += batch.found or [Candidate(row[0], 0, row) for row in batch.entries]
            more = len(hits) > size or (len(hits) == size and plain and batch.more)
            rows = max(FEWEST_TESTED, rows * 2)
        reading = batch.position
    made = asked or plan
    marks = [(mark_of(made, one, behind=False), mark_of(made, one, behind=True)) for one in _ends(found[:size])]
    return _Found(made, hits[:size], marks, more)


def _sorted(
    context: Context, query: Query, plan: QueryPlan, size: int, place: tuple[bytes, bool] | None, *, back: bool
) -> Flow[_Found]:
    bound = None
    if place is not None:
        key, behind = place
        bound = bound_at(key, including=behind is back, reverse=back)
    found = yield from sorted_hits(context, query, plan, SortWindow(size + 1, bound, back))
    taken = found[:size]
    marks = [(mark_of_key(one.key, behind=False), mark_of_key(one.key, behind=True)) for one in _ends(taken)]
    return _Found(plan, [one.hit for one in taken], marks, len(found) > size)


def _ends(found: list[Any]) -> list[Any]:
    """Return the first and the last result."""
    return [found[0], found[-1]] if found else []


def _as_page(context: Context, query: Query, found: _Found, cursor: str | None, *, back: bool) -> Flow[PageData]:
    _, live = yield from live_collection(context, query.schema)
    results = [result_of(live, hit, query.fields, query.schema) for hit in found.hits]
    marks = found.marks
    if back:
        results.reverse()
        marks = marks[::-1]
    if cursor is None:  # a first page: there is nothing before it
        return PageData(results, cursor_after(found.plan, marks[-1][1]) if found.more else None)
    first = cursor_after(found.plan, marks[0][0]) if marks else cursor
    last = cursor_after(found.plan, marks[-1][1]) if marks else cursor
    # On the side of the cursor there was a result when it was created; in reading direction the flag is certain.
    return PageData(
        results,
        next_cursor=last if back or found.more else None,
        previous_cursor=first if found.more or not back else None,
    )


def _check(query: Query, size: Any, after: str | None, before: str | None) -> None:
    if query.sliced:
        raise InvalidArgumentError(
            "a sliced query has no pages", argument="size", hint="Leave out the slice, or use to_list()."
        )
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidValueError(
            "the size of a page is an int",
            field="size",
            type=type(size).__name__,
            hint="Give a whole number: page(size=20).",
        )
    if size < 1:
        raise InvalidArgumentError(
            "the size of a page is 1 or more",
            argument="size",
            value=size,
            hint="Give the most items of a page: page(size=20); exists() and count() read none.",
        )
    if after is not None and before is not None:
        raise InvalidArgumentError(
            "a page takes only one of after= and before=",
            argument="before",
            hint="Give after= to go on, before= to go back, not both.",
        )
