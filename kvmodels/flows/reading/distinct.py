"""Read distinct values: from one to the next in an index, or in one pass with all of them in memory.

Where equal values are adjacent in the keys of one scan, the read after a value begins after all rows with it (a *loose
index scan*). While most rows of a batch have new values, batches grow and continue instead, so that many values cost
few reads and few values few rows.

Rules of this module: the slice of the query is one of distinct results. Memory holds one batch, or as many values as
``sort_in_memory(limit)`` permits.
"""

from __future__ import annotations

from typing import Any

from kvmodels.core.keys import skip_parts
from kvmodels.errors import OperationTooLargeError
from kvmodels.flows.context import Context, live_collection, planned
from kvmodels.flows.effects import Flow, steps_of
from kvmodels.flows.execution.executor import MAX_BATCH, beginning, read_batch
from kvmodels.flows.execution.join import ResultBatch, result_of
from kvmodels.flows.execution.ranges import Position, Walk, further
from kvmodels.flows.reading.scan import FEWEST_TESTED, ResultScan
from kvmodels.query.planning.distinct import DistinctPlan, distinct_key, in_order, jump_parts, plan_distinct
from kvmodels.query.query import Query

Values = dict[str, Any]


def distinct_plan_of(context: Context, query: Query) -> Flow[DistinctPlan]:
    """Plan the distinct values under the present header; raises what ``plan_distinct`` raises."""
    return (yield from planned(context, query.schema, lambda live: plan_distinct(query, live)))[1]


class DistinctScan:
    """An iteration over the distinct values of a query, batch by batch; a stateful object for one reader."""

    __slots__ = ("_context", "_last", "_left", "_plan", "_position", "_query", "_size", "_skip", "done")

    def __init__(self, context: Context, query: Query) -> None:
        self._context = context
        self._query = query
        self._plan: DistinctPlan | None = None
        self._position: Position | None = None
        self._last: tuple[Any, ...] | None = None
        self._size = 1
        self._skip = query.start
        self._left = None if query.stop is None else query.stop - query.start
        self.done = self._left is not None and self._left <= 0

    def next_batch(self) -> Flow[list[Values]]:
        """Read the next distinct values in order; an empty list does not mean the end, ``done`` does.

        Raises OperationTooLargeError: more values than may be held in memory; Others: as ``plan_distinct`` and
        ``read_batch``.
        """
        if self._plan is None:
            self._plan = yield from distinct_plan_of(self._context, self._query)
        if self._plan.limit is not None:
            found = yield from self._held(self._plan, self._plan.limit)
        else:
            found = yield from self._beside(self._plan)
        skipped = min(self._skip, len(found))
        self._skip -= skipped
        found = found[skipped:]
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
            self.done = self.done or self._left == 0
        return found

    # --- all of them in memory --------------------------------------------------------------------------------

    def _held(self, plan: DistinctPlan, limit: int) -> Flow[list[Values]]:
        held: dict[tuple[Any, ...], Values] = {}
        scan = ResultScan(self._context, plan.query, first=MAX_BATCH)
        while not scan.done:
            for values in (yield from steps_of(scan.next_batch())):
                held.setdefault(distinct_key(values), values)
                if len(held) > limit:
                    raise OperationTooLargeError(
                        "there are more different values than may be held in memory",
                        limit="sort_in_memory",
                        size=len(held),
                        maximum=limit,
                        hint="Raise sort_in_memory(limit=...), filter more, or declare an index on the fields.",
                    )
        self.done = True
        return in_order(self._query, list(held.values()))

    # --- side by side -----------------------------------------------------------------------------------------

    def _beside(self, plan: DistinctPlan) -> Flow[list[Values]]:
        position = self._position or beginning(plan.plan)
        tested = position.plan.matches is not None or any(scan.matches for scan in position.plan.scans)
        size = max(self._size, FEWEST_TESTED) if tested else self._size
        batch = yield from read_batch(self._context, plan.query, position, size)
        found: list[Values] = []
        _, live = yield from live_collection(self._context, self._query.schema)
        for hit in batch.hits:
            values = result_of(live, hit, plan.query.fields, plan.query.schema)
            key = distinct_key(values)
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

    def _behind(self, batch: ResultBatch) -> Position | None:
        """Return the position after every row that has the value of the last one."""
        position = batch.position
        parts = None if position is None else jump_parts(position.plan, self._query.fields or ())
        if position is None or parts is None or not batch.found:
            return position
        scan = position.plan.scans[0]
        key, prefix = batch.found[-1].row.key, len(scan.prefix)
        group = key[: prefix + skip_parts(key[prefix:], parts)]
        # Keys that continue the text of this value, and so belong to another one, have ff after it.
        place = Walk(0, scan).at(group if scan.reverse else group + b"\xff")
        read_to = position.places[0]
        if place is None or read_to is None:
            return None
        # Rows after the last result were read and tested, so the position must not move back before them.
        return position._replace(places=(further(place, read_to, reverse=scan.reverse),))
