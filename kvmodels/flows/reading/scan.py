"""Read the results of a query, in batches, all at once or page by page; count them; and read distinct values.

A page after a cursor is read forward from its position, a page before one backward and then reversed. So paging in one
direction and back returns the same pages, as long as nothing is written. A cursor is made from the plan of the query,
never from the reversed plan, so it works in both directions.

Distinct values are read by skipping from value to value in an index, or in one pass with all of them in memory. If
equal values are adjacent in the keys of one scan, the next read begins after all rows with the last value (a *loose
index scan*). If most rows of a batch have new values, batches grow and the scan continues without skipping. So many
values cost few reads, and few values cost few rows.

Rules of this module: ``flows/execution/executor.py`` does all reads. Rows before a slice are skipped by their entries,
without reading the records, if the ranges alone decide. The slice of a query for distinct values counts distinct
results. Memory holds one batch, or as many values as ``sort_in_memory(limit)`` allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kvmodels.core.keys import skip_parts
from kvmodels.errors import InvalidArgumentError, OperationTooLargeError
from kvmodels.flows.context import Context, live_collection, planned
from kvmodels.flows.effects import AGAIN, AnyFlow, Flow, OneRequest, steps_of
from kvmodels.flows.execution.executor import (
    MAX_BATCH,
    SortedHit,
    SortWindow,
    Wanted,
    beginning,
    count_at_once,
    counts_rows,
    mark_of,
    mark_of_key,
    number_of_rows,
    plan_of,
    position_at,
    read_at_once,
    read_batch,
    resume,
    side_of,
    sorted_hits,
)
from kvmodels.flows.execution.fast_reads import RangeRows
from kvmodels.flows.execution.join import MatchedRecord, ResultBatch, result_of
from kvmodels.flows.execution.permission import REFUSED, permitted, planned_again
from kvmodels.flows.execution.ranges import Candidate, QueryPosition, Walk, bound_at, further
from kvmodels.flows.reading.returned import ReturnedRecords
from kvmodels.query.planning import distinct as planning
from kvmodels.query.planning.cursor import cursor_after
from kvmodels.query.plans import QueryPlan, in_key_order
from kvmodels.query.query import Query, require_int

FEWEST_TESTED: Final = 20
"""The minimum number of rows to read if each is tested: a match may be far, and a read costs more than a few rows."""

_FIRST_BATCH: Final = 100
"""Rows of the first batch of an iteration that may end early; each further batch has twice as many."""


class Batches(Protocol):
    """An iteration that reads batch by batch."""

    @property
    def done(self) -> bool:
        """Whether there are no more items."""
        ...

    def next_batch(self) -> AnyFlow[list[Any]]:
        """Return the flow that reads the next items."""
        ...


class ResultScan:
    """An iteration over the results of a query, batch by batch; a stateful object for one reader.

    Results are objects, or dicts of the values of ``query.fields``.
    """

    def __init__(
        self,
        context: Context,
        query: Query,
        *,
        first: int = _FIRST_BATCH,
        batch_size: int | None = None,
        prepared: bool = True,
    ) -> None:
        self._context = context
        self._query = query
        self._position: QueryPosition | None = None
        self._sorted: deque[SortedHit] | None = None
        self._skip = query.start
        self._remaining = None if query.stop is None else query.stop - query.start
        self._batch_size = batch_size
        self._prepared = prepared and batch_size is None and not query.start
        self._size = first
        self._returned: ReturnedRecords | None = None
        self.done = self._remaining is not None and self._remaining <= 0

    def next_batch(self) -> AnyFlow[list[Any]]:
        """Return the flow that reads the next results in order; the end is signalled by ``done``, not by an empty list.

        Raises like ``read_batch``; OperationTooLargeError if a sort in memory would exceed its limit.
        """
        if self._prepared:
            self._prepared = False
            request = self._first_request()
            if request is not None:
                return request
        return self._next_batch()

    def _first_request(self) -> OneRequest[list[Any]] | None:
        size = self._size if self._remaining is None else self._remaining
        if size > MAX_BATCH:
            return None
        limit = size + 1 if self._remaining is None else size

        def results(found: RangeRows) -> Any:
            # Without a limit, one extra row was read to find out whether there are more.
            objects = found.objects(size)
            if objects is not AGAIN:
                self.done = self._remaining is not None or len(found.rows) < limit
                self._position = None if self.done else found.position_behind(self._query, size)
                if self._position is not None:
                    self._unreturned(self._position.plan, objects, last=False)
                self._size = min(size * 2, MAX_BATCH)
            return objects

        return read_at_once(self._context, self._query, limit, self._next_batch, results)

    def _next_batch(self) -> Flow[list[Any]]:
        if self._sorted is not None:
            return (yield from self._next_sorted(self._sorted))
        position = self._position
        if position is None:
            position = beginning((yield from plan_of(self._context, self._query)))
        if position.plan.sort is not None:
            return (yield from self._next_sorted((yield from self._sort(position.plan))))
        plain = counts_rows(position.plan)
        if self._skip and plain:
            batch = yield from self._pass_over(position)
        else:
            batch = yield from self._read(position, plain=plain)
        hits = batch.hits
        if self._returned is not None or batch.position is not None:  # else this is the only batch
            hits = self._unreturned(position.plan, hits, last=batch.position is None)
        if self._skip:
            skipped = min(self._skip, len(hits))
            self._skip -= skipped
            hits = hits[skipped:]
        if self._remaining is not None:
            hits = hits[: self._remaining]
            self._remaining -= len(hits)
        self._position = batch.position
        self.done = batch.position is None or self._remaining == 0
        return hits if batch.made else (yield from _results_of(self._context, self._query, hits))

    def _unreturned(self, plan: QueryPlan, results: list[Any], *, last: bool) -> list[Any]:
        """Return the results that this iteration has not returned before."""
        if in_key_order(plan):
            return results
        if self._returned is None:
            self._returned = ReturnedRecords(self._context.layouts[self._query.schema.collection])
        return self._returned.new_of(results, last=last)

    def _pass_over(self, position: QueryPosition) -> Flow[ResultBatch]:
        """Skip rows before the slice, without their records."""
        size = min(self._skip, self._batch_size or MAX_BATCH)
        batch = yield from read_batch(self._context, self._query, position, size, peek=False, wanted="rows")
        self._skip -= batch.rows
        return batch

    def _read(self, position: QueryPosition, *, plain: bool) -> Flow[ResultBatch]:
        # A list of keys has a known end, so nothing is read twice to find it.
        size, peek = self._size, not position.plan.points
        if self._remaining is not None:
            wanted = self._remaining + self._skip
            size = min(wanted, MAX_BATCH) if plain else min(size, max(wanted, FEWEST_TESTED))
            peek = peek and not plain
        if self._batch_size is not None:
            size = self._batch_size if self._remaining is None or not plain else min(self._batch_size, self._remaining)
            peek = False
        self._size = min(self._size * 2, MAX_BATCH)
        return (yield from read_batch(self._context, self._query, position, size, peek=peek, wanted="objects"))

    def _sort(self, plan: QueryPlan) -> Flow[deque[SortedHit]]:
        """Read and sort everything that the slice needs."""
        found = yield from sorted_hits(self._context, self._query, plan, SortWindow(self._query.stop))
        self._sorted = deque(found[self._query.start :])
        return self._sorted

    def _next_sorted(self, left: deque[SortedHit]) -> Flow[list[Any]]:
        size = min(len(left), self._batch_size or MAX_BATCH)
        hits = [left.popleft().hit for _ in range(size)]
        self.done = not left
        return (yield from _results_of(self._context, self._query, hits))


def _results_of(context: Context, query: Query, hits: Sequence[MatchedRecord | Any]) -> Flow[list[Any]]:
    _, live = yield from live_collection(context, query.schema)
    return [result_of(live, hit, query.fields, query.schema) for hit in hits]


def fetch(context: Context, query: Query) -> AnyFlow[list[Any]]:
    """Return the flow that reads all results of a query, in order."""
    stop = query.stop
    if stop is not None and not query.start and 0 < stop <= MAX_BATCH:
        request = read_at_once(context, query, stop, partial(planned_fetch, context, query))
        if request is not None:
            return request
    return collected(ResultScan(context, query, first=MAX_BATCH))


def planned_fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """Return the same, without a prepared plan."""
    return collected(ResultScan(context, query, first=MAX_BATCH, prepared=False))


def collected(batches: Batches) -> Flow[list[Any]]:
    """Read all batches of an iteration, and return their items."""
    found: list[Any] = []
    while not batches.done:
        found += yield from steps_of(batches.next_batch())
    return found


def planned_count(context: Context, query: Query, size: int = MAX_BATCH) -> Flow[int]:
    """Count the results of a query; of a slice, only those in it. Rows to test are first read ``size`` at a time."""
    if query.order and query.placed:
        query = query.with_plain_order()
    query = replace(query, fields=(), order=() if query.sort_limit is not None else query.order)
    number, plan = yield from number_of_rows(context, query, query.stop)
    if number is None:
        number = yield from _passed(context, query, plan, size)
    total = number if query.stop is None else min(number, query.stop)
    return max(0, total - query.start)


def exists(context: Context, query: Query) -> AnyFlow[bool]:
    """Return the flow that finds out whether a query has a result. Cost: one row, or as many as must be tested."""
    start = query.start
    if query.stop is not None and start >= query.stop:
        return planned_exists(context, query)
    planned = partial(planned_exists, context, query)
    return count_at_once(context, query, start + 1, lambda number: number > start, planned) or planned()


def planned_exists(context: Context, query: Query) -> Flow[bool]:
    """Return the same, without a prepared plan."""
    return (yield from planned_count(context, query.limited(1), FEWEST_TESTED)) > 0


def _passed(context: Context, query: Query, plan: QueryPlan, size: int) -> Flow[int]:
    """Count results by reading rows, up to the end of the slice, in batches that grow from ``size`` rows."""
    position: QueryPosition | None = beginning(plan)
    passed = 0
    while position is not None and (query.stop is None or passed < query.stop):
        plain = counts_rows(position.plan)
        rows = min(MAX_BATCH, query.stop - passed) if plain and query.stop is not None else size
        wanted: Wanted = "rows" if plain else "hits"
        batch = yield from read_batch(context, query, position, rows, peek=query.stop is None, wanted=wanted)
        passed += batch.rows if plain else len(batch.hits)
        position = batch.position
        size = min(size * 2, MAX_BATCH)
    return passed


# --- pages ------------------------------------------------------------------------------------------------------


class PageData(NamedTuple):
    """The results of one page, and the cursors after its last and before its first result, or None."""

    objects: list[Any]
    next_cursor: str | None
    previous_cursor: str | None = None


class _FoundPage(NamedTuple):
    """Results in reading direction, the marks at both ends, and whether there are more."""

    plan: QueryPlan
    hits: list[MatchedRecord]
    marks: list[tuple[bytes, bytes]]
    more: bool


def page(
    context: Context, query: Query, size: int, after: str | None = None, before: str | None = None
) -> Flow[PageData]:
    """Return one page of a query of at most ``size`` results, with the cursors at its ends.

    Cost: size + 1 rows and as many records, if nothing is tested; for a sort in memory, everything that matches.
    """
    check_page(query, size, after, before)
    cursor = after if before is None else before
    back = before is not None
    if cursor is None:
        found = yield from _read_page(context, query, beginning((yield from plan_of(context, query))), size, None)
    else:
        plan, live, mark = yield from resume(context, query, cursor)
        if plan.sort is None:
            found = yield from _read_page(context, query, position_at(plan, live, mark, back=back), size, plan)
        else:
            found = yield from _sorted_page(context, query, plan, size, side_of(plan, mark), back=back)
    return (yield from _as_page(context, query, found, cursor, back=back))


def _read_page(
    context: Context, query: Query, position: QueryPosition, size: int, asked: QueryPlan | None
) -> Flow[_FoundPage]:
    """Read the next results in the direction of the position; ``asked`` is the plan of the cursor."""
    reading: QueryPosition | None = position
    rows, more, plan = size, False, position.plan
    hits: list[MatchedRecord] = []
    found: list[Any] = []
    while reading is not None and not more:
        plan = reading.plan
        if plan.sort is not None:  # perhaps planned again, because another process has dropped the index of the order
            return (yield from _sorted_page(context, query, plan, size, None, back=False))
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
    return _FoundPage(made, hits[:size], marks, more)


def _sorted_page(
    context: Context, query: Query, plan: QueryPlan, size: int, place: tuple[bytes, bool] | None, *, back: bool
) -> Flow[_FoundPage]:
    bound = None
    if place is not None:
        key, behind = place
        bound = bound_at(key, including=behind is back, reverse=back)
    found = yield from sorted_hits(context, query, plan, SortWindow(size + 1, bound, back))
    taken = found[:size]
    marks = [(mark_of_key(one.key, behind=False), mark_of_key(one.key, behind=True)) for one in _ends(taken)]
    return _FoundPage(plan, [one.hit for one in taken], marks, len(found) > size)


def _ends(found: list[Any]) -> list[Any]:
    """Return the first and the last result."""
    return [found[0], found[-1]] if found else []


def _as_page(context: Context, query: Query, found: _FoundPage, cursor: str | None, *, back: bool) -> Flow[PageData]:
    results = yield from _results_of(context, query, found.hits)
    return page_data(found.plan, results, PageEnds(found.marks, found.more), cursor, back=back)


class PageEnds(NamedTuple):
    """The places before and after the first and the last result of a page, and whether there are more results.

    Results and places are in reading direction; there are none of an empty page.
    """

    marks: Sequence[tuple[bytes, bytes]]
    more: bool


def page_data(plan: QueryPlan, results: list[Any], ends: PageEnds, cursor: str | None, *, back: bool) -> PageData:
    """Return a page in the order of the query, with the cursors at its ends; ``cursor``: that of the request."""
    marks = ends.marks
    if back:
        results.reverse()
        marks = marks[::-1]
    if cursor is None:  # a first page: there is nothing before it
        return PageData(results, cursor_after(plan, marks[-1][1]) if ends.more else None)
    first = cursor_after(plan, marks[0][0]) if marks else cursor
    last = cursor_after(plan, marks[-1][1]) if marks else cursor
    # On the side of the cursor there was a result when it was created; in reading direction the flag is certain.
    return PageData(
        results,
        next_cursor=last if back or ends.more else None,
        previous_cursor=first if ends.more or not back else None,
    )


def check_page(query: Query, size: Any, after: str | None, before: str | None) -> None:
    """Refuse bad arguments of a page. Raises InvalidArgumentError or InvalidValueError."""
    if query.sliced:
        raise InvalidArgumentError(
            "a sliced query has no pages", argument="size", hint="Leave out the slice, or use to_list()."
        )
    if require_int("the size of a page is an int", "size", size, "Give a whole number: page(size=20).") < 1:
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


# --- distinct values --------------------------------------------------------------------------------------------

Values = dict[str, Any]


def distinct_plan_of(context: Context, query: Query) -> Flow[planning.DistinctPlan]:
    """Return the plan of the distinct values under the present header; raises like ``plan_distinct``."""
    try:
        return (yield from planned(context, query.schema, lambda live: planning.plan_distinct(query, live)))[1]
    except REFUSED as error:
        plan = partial(planning.plan_distinct, permitted(query))
        return (yield from planned_again(context, error, query.schema, plan))[1]


class DistinctScan:
    """An iteration over the distinct values of a query, batch by batch; a stateful object for one reader."""

    def __init__(self, context: Context, query: Query) -> None:
        self._context = context
        self._query = query.without_default_order()
        self._plan: planning.DistinctPlan | None = None
        self._position: QueryPosition | None = None
        self._last: tuple[Any, ...] | None = None
        self._size = 1
        self._skip = query.start
        self._remaining = None if query.stop is None else query.stop - query.start
        self.done = self._remaining is not None and self._remaining <= 0

    def next_batch(self) -> Flow[list[Values]]:
        """Read the next distinct values in order; the end is signalled by ``done``, not by an empty list."""
        if self._plan is None:
            self._plan = yield from distinct_plan_of(self._context, self._query)
        if self._plan.limit is not None:
            found = yield from self._held(self._plan, self._plan.limit)
        else:
            found = yield from self._beside(self._plan)
        skipped = min(self._skip, len(found))
        self._skip -= skipped
        found = found[skipped:]
        if self._remaining is not None:
            found = found[: self._remaining]
            self._remaining -= len(found)
            self.done = self.done or self._remaining == 0
        return found

    def _held(self, plan: planning.DistinctPlan, limit: int) -> Flow[list[Values]]:
        held: dict[tuple[Any, ...], Values] = {}
        scan = ResultScan(self._context, plan.query, first=MAX_BATCH)
        while not scan.done:
            for values in (yield from steps_of(scan.next_batch())):
                held.setdefault(planning.distinct_key(values), values)
                if len(held) > limit:
                    raise OperationTooLargeError(
                        "there are more different values than may be held in memory",
                        limit="sort_in_memory",
                        size=len(held),
                        maximum=limit,
                        hint="Raise sort_in_memory(limit=...), filter more, or declare an index on the fields.",
                    )
        self.done = True
        return planning.in_order(self._query, list(held.values()))

    def _beside(self, plan: planning.DistinctPlan) -> Flow[list[Values]]:
        position = self._position or beginning(plan.plan)
        tested = (
            position.plan.matches is not None
            or position.plan.target_tests
            or any(scan.matches for scan in position.plan.scans)
        )
        size = max(self._size, FEWEST_TESTED) if tested else self._size
        batch = yield from read_batch(self._context, plan.query, position, size)
        found: list[Values] = []
        for values in (yield from _results_of(self._context, plan.query, batch.hits)):
            key = planning.distinct_key(values)
            if key != self._last:
                self._last = key
                found.append(values)
        if batch.rows:
            # Without any result there is no value to skip, so the rest must be read through.
            reads_on = not batch.hits or 2 * len(found) >= batch.rows
            self._size = min(size * 2, MAX_BATCH) if reads_on else max(1, size // 2)
        self._position = self._behind(batch)
        self.done = self._position is None
        return found

    def _behind(self, batch: ResultBatch) -> QueryPosition | None:
        """Return the position after all rows with the value of the last one."""
        position = batch.position
        parts = None if position is None else planning.jump_parts(position.plan, self._query.fields or ())
        if position is None or parts is None or not batch.found:
            return position
        scan = position.plan.scans[0]
        key, prefix = batch.found[-1].row.key, len(scan.prefix)
        group = key[: prefix + skip_parts(key[prefix:], parts)]
        # Keys that continue the text of this value, and so have another value, have ff after it.
        place = Walk(0, scan).at(group if scan.reverse else group + b"\xff")
        read_to = position.places[0]
        if place is None or read_to is None:
            return None
        # Rows after the last result were read and tested, so the position must not move back before them.
        return position._replace(places=(further(place, read_to, reverse=scan.reverse),))
