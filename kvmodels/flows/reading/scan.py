"""Read the results of a query in batches or at once, count them, or read a page.

Rules of this module: everything is read through ``flows/execution/batch.py``; what a slice or a page leaves out is
skipped by its entries, without reading the records, wherever the ranges alone decide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kvmodels._support import switches
from kvmodels.core.operations import Counted, ReadRange
from kvmodels.flows.context import Context, live_collection, reload_header
from kvmodels.flows.effects import Flow, count_rows, ranges_at_once
from kvmodels.flows.execution.batch import MAX_BATCH, Batch, beginning, counts_rows, plan_of, read_batch
from kvmodels.flows.execution.entries import Hit, result_of
from kvmodels.flows.execution.ranges import Position
from kvmodels.flows.execution.sort import Sorted, Wanted, sorted_hits
from kvmodels.flows.reading.page import FEWEST_TESTED
from kvmodels.query.planning.cursor import is_same_index
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

_FIRST_BATCH: Final = 100
"""Rows of the first batch of an iteration that may be left early; each further batch has twice as many."""


class Scan:
    """An iteration over the results of a query, batch by batch; a stateful object for one reader.

    Results are objects, or dicts of the values of ``query.fields``.

    Args:
        context: shared by the flows of the database.
        query: what is asked for, its slice included.
        first: rows of the first batch when the query has no end; each further one has twice as many.
        batch_size: rows of every engine read, instead.
    """

    __slots__ = (
        "_batch_size",
        "_context",
        "_left",
        "_position",
        "_query",
        "_size",
        "_skip",
        "_sorted",
        "done",
    )

    def __init__(
        self, context: Context, query: Query, *, first: int = _FIRST_BATCH, batch_size: int | None = None
    ) -> None:
        self._context = context
        self._query = query
        self._position: Position | None = None
        self._sorted: deque[Sorted] | None = None
        self._skip = query.start
        self._left = None if query.stop is None else query.stop - query.start
        self._batch_size = batch_size
        self._size = first
        self.done = self._left is not None and self._left <= 0

    def next_batch(self) -> Flow[list[Any]]:
        """The next results in order; an empty list does not mean the end, ``done`` does.

        Raises: as ``read_batch``; OperationTooLargeError: a sort in memory would hold more than it may.
        """
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
        if self._skip:
            skipped = min(self._skip, len(hits))
            self._skip -= skipped
            hits = hits[skipped:]
        if self._left is not None:
            hits = hits[: self._left]
            self._left -= len(hits)
        self._position = batch.position
        self.done = batch.position is None or self._left == 0
        return hits if batch.entries else (yield from self._results(hits))

    def _results(self, hits: Sequence[Hit]) -> Flow[list[Any]]:
        if not hits:
            return []
        _, live = yield from live_collection(self._context, self._query.schema)
        fields = self._query.fields
        return [result_of(live, hit, fields, self._query.schema) for hit in hits]

    def _pass_over(self, position: Position) -> Flow[Batch]:
        """Pass over rows before the slice, without their records."""
        size = min(self._skip, self._batch_size or MAX_BATCH)
        batch = yield from read_batch(self._context, self._query, position, size, peek=False, records=False)
        self._skip -= batch.rows
        return batch

    def _read(self, position: Position, *, plain: bool) -> Flow[Batch]:
        # Keys that are named one by one have a known end, so nothing is read twice to find it.
        size, peek = self._size, not position.plan.points
        if self._left is not None:
            wanted = self._left + self._skip
            size = min(wanted, MAX_BATCH) if plain else min(size, max(wanted, FEWEST_TESTED))
            peek = peek and not plain
        if self._batch_size is not None:
            size = self._batch_size if self._left is None or not plain else min(self._batch_size, self._left)
            peek = False
        self._size = min(self._size * 2, MAX_BATCH)
        return (yield from read_batch(self._context, self._query, position, size, peek=peek, objects=True))

    def _sort(self, plan: QueryPlan) -> Flow[deque[Sorted]]:
        """Everything that the slice needs, in order."""
        found = yield from sorted_hits(self._context, self._query, plan, Wanted(self._query.stop))
        self._sorted = deque(found[self._query.start :])
        return self._sorted

    def _next_sorted(self, left: deque[Sorted]) -> Flow[list[Any]]:
        size = min(len(left), self._batch_size or MAX_BATCH)
        hits = [left.popleft().hit for _ in range(size)]
        self.done = not left
        return (yield from self._results(hits))


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """All objects of a query, in order.

    Raises: as ``read_batch``.

    Cost: one read for each ``MAX_BATCH`` rows.
    """
    scan = Scan(context, query, first=MAX_BATCH)
    objects: list[Any] = []
    while not scan.done:
        objects += yield from scan.next_batch()
    return objects


def count(context: Context, query: Query) -> Flow[int]:
    """How many results a query has; a slice counts what is in it.

    Cost: where every row of the ranges is a result, one request that reads none of them: O(log n) in memory, 0.04 us
    a row in a file. Else, and in a transaction, it reads every row in the ranges, and the records only if they must be
    tested and the rows do not cover what is tested, or if a record may have several of the rows. Nothing is sorted.
    """
    query = replace(query, fields=(), order=() if query.sort_limit is not None else query.order)
    number, plan = yield from _number(context, query, query.stop)
    if number is not None:
        total = number if query.stop is None else min(number, query.stop)
        return max(0, total - query.start)
    position: Position | None = beginning(plan)
    passed = 0
    while position is not None and (query.stop is None or passed < query.stop):
        plain = counts_rows(position.plan)
        size, peek = MAX_BATCH, True
        if query.stop is not None and plain:
            size, peek = min(size, query.stop - passed), False
        batch = yield from read_batch(context, query, position, size, peek=peek, records=not plain)
        passed += batch.rows if plain else len(batch.hits)
        position = batch.position
    total = passed if query.stop is None else min(passed, query.stop)
    return max(0, total - query.start)


def _number(context: Context, query: Query, limit: int | None) -> Flow[tuple[int | None, QueryPlan]]:
    """How many rows a query has, up to a limit, without reading one; None where that is not how many results it has.

    It is where a plan of one scan gives every row of its ranges, each of which is another record. In a transaction it
    is not asked: rows must be seen to be checked by its commit, and its own writes are no part of the store.
    """
    while True:  # again only when another process changed the schema in between
        plan = yield from plan_of(context, query)
        ranges = plan.ranges
        if (
            not switches.fast_kinds
            or plan.combine != "scan"
            or not counts_rows(plan)
            or context.transaction is not None
            or len(ranges) > ranges_at_once(context.limits, guarded=bool(plan.indexes))
        ):
            return None, plan
        view, live = yield from live_collection(context, query.schema)
        if is_same_index(live, plan):
            wanted = [ReadRange(start, end, limit) if end is not None else ReadRange(start) for start, end in ranges]
            counted = yield from count_rows(wanted, view.guard if plan.indexes else None)
            if isinstance(counted, Counted):
                return sum(counted.numbers), plan
        yield from reload_header(context)


def exists(context: Context, query: Query) -> Flow[bool]:
    """Whether a query has any result. Cost: one row, or as many as must be tested to find a match."""
    one = replace(query.limited(1), fields=(), order=() if query.sort_limit is not None else query.order)
    number, plan = yield from _number(context, one, one.start + 1)
    if number is not None:
        return number > one.start
    position: Position | None = beginning(plan)
    passed, size = 0, FEWEST_TESTED
    while position is not None and passed <= one.start:
        plain = counts_rows(position.plan)
        size = min(one.start + 1 - passed, MAX_BATCH) if plain else size
        batch = yield from read_batch(context, one, position, size, peek=False, records=not plain)
        passed += batch.rows if plain else len(batch.hits)
        position = batch.position
        size = min(size * 2, MAX_BATCH)
    return passed > one.start
