"""Ranked queries: their results with distances, in batches, all at once or page by page; and their number.

A page or a slice is full unless there are no more results, however few records pass the filter, because entries are
read on until it is. A page begins or ends at a place in the order: a distance and a primary key.

Promise: a record that is not written between the first and the last read is returned exactly once, in order, because
its distance depends on its entry alone. An iteration returns no record twice, whatever is written.

Rules of this module: ``flows/execution/rings.py`` does all reads. Entries before a slice are skipped without their
records, and counted without them, if no condition is tested on records.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgpack

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import Counted, ReadRange
from kvmodels.errors import InvalidArgumentError, InvalidCursorError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, count_rows, ranges_at_once
from kvmodels.flows.execution.executor import MAX_BATCH, plan_of, resume
from kvmodels.flows.execution.join import result_of
from kvmodels.flows.execution.places import PageBounds, RankedPosition, RankedRecord
from kvmodels.flows.execution.rings import RankedReader
from kvmodels.flows.reading.scan import FEWEST_TESTED, PageData, PageEnds, check_page, collected, page_data
from kvmodels.flows.reading.semi_join import resolved
from kvmodels.flows.reading.target_values import with_target_values
from kvmodels.query.kinds.ranking import Reach
from kvmodels.query.planning.ranked import ranking_of, tests_records
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query
from kvmodels.query.ranked_order import RANK_VALUE

_FIRST_BATCH: Final = 100
"""The number of results that an iteration needs at first, for all that the ranking knows."""


class RankedScan:
    """An iteration over the records of a ranked query, batch by batch; a stateful object for one reader.

    Args:
        first: the number of results in the first batch.
        whole: whether all results are needed.
    """

    def __init__(self, context: Context, query: Query, *, first: int = _FIRST_BATCH, whole: bool = False) -> None:
        self._context = context
        self._query = query
        self._whole = whole
        self._reader: RankedReader | None = None
        self._returned: set[bytes] = set()
        self._skip = query.start
        self._remaining = None if query.stop is None else query.stop - query.start
        self._size = first
        self._tested = FEWEST_TESTED
        self.done = self._remaining is not None and self._remaining <= 0

    def next_batch(self) -> Flow[list[Any]]:
        """Read the next hits in order; the end is signalled by ``done``, not by an empty list."""
        found = yield from self.next_records()
        assert self._reader is not None  # it has read them
        return (yield from _hits(self._context, self._query, self._reader.plan, found))

    def next_records(self) -> Flow[list[RankedRecord]]:
        """Read the next records in the same way, without making objects."""
        reader = self._reader
        if reader is None:
            reader = self._reader = yield from self._begin()
        while self._skip and not reader.tests and not reader.ended:
            self._skip -= yield from reader.skip(self._skip, self._size_now(tested=False))
        tested = reader.tests
        found = yield from reader.next_records(self._size_now(tested=tested))
        found = [one for one in found if one.place.pk not in self._returned]
        self._returned.update(one.place.pk for one in found)
        skipped = min(self._skip, len(found))
        self._skip -= skipped
        found = found[skipped:]
        if self._remaining is not None:
            found = found[: self._remaining]
            self._remaining -= len(found)
        self._size, self._tested = min(self._size * 2, MAX_BATCH), min(self._tested * 2, MAX_BATCH)
        self.done = reader.ended or self._remaining == 0
        return found

    def _begin(self) -> Flow[RankedReader]:
        plan = yield from plan_of(self._context, self._query)
        wanted = self._query.stop
        if wanted is None and not self._whole:
            wanted = self._size
        return RankedReader(self._context, self._query, plan, _reach(self._query, wanted))

    def _size_now(self, *, tested: bool) -> int:
        """Return the number of records to read at once."""
        if self._remaining is None:
            return self._size
        return min(max(self._remaining + self._skip, self._tested) if tested else self._remaining, MAX_BATCH)


def _reach(query: Query, wanted: int | None) -> Reach:
    ranked = query.ranked
    assert ranked is not None  # it is a ranked query
    return Reach(wanted, within=ranked.within)


def _hits(context: Context, query: Query, plan: QueryPlan, found: list[RankedRecord]) -> Flow[list[Any]]:
    if not found:
        return []
    assert plan.ranked is not None  # it is a ranked plan
    _, live = yield from live_collection(context, query.schema)
    definition, ranking = ranking_of(plan, live)
    origin = plan.ranked.origin
    hits = [
        ranking.hit(definition, origin, result_of(live, one.found, query.fields, query.schema), one.place.distance)
        for one in found
    ]
    if query.fields is None:
        return hits
    values: list[dict[str, Any]] = [fields | {RANK_VALUE: number} for fields, number in hits]
    return (yield from with_target_values(context, query, values)) if query.target_values else values


def results(context: Context, query: Query, first: int | None = None) -> RankedScan:
    """Return an iteration over the hits of a ranked query; nothing is read yet. Raises InvalidArgumentError.

    Hits are dicts of the values of ``query.fields``, with ``RANK_VALUE``, if it has some. ``first``: the number of
    results in the first batch.
    """
    _require_slice(query)
    return RankedScan(context, query, first=first or _FIRST_BATCH)


def _require_slice(query: Query) -> None:
    """Refuse a query of too many results of an order that is known only for the first ones."""
    ranked = query.ranked
    if ranked is not None and ranked.most is not None and (query.stop is None or query.stop > ranked.most):
        raise InvalidArgumentError(
            "this order is only that of the first results",
            argument="slice",
            value=query.stop,
            expected=f"an end from 1 to {ranked.most:,}",
            hint=f"Take a slice of at most {ranked.most:,} results: {ranked.method}(...)[:10].",
        )


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """Return all hits of a ranked query, in order. Raises InvalidArgumentError without a slice that it needs."""
    _require_slice(query)
    query = yield from resolved(context, query)
    scan = RankedScan(context, query, first=MAX_BATCH, whole=True)
    return (yield from collected(scan))


# --- numbers ----------------------------------------------------------------------------------------------------


def count(context: Context, query: Query) -> Flow[int]:
    """Count the results of a ranked query; of a slice, only those in it."""
    query = yield from resolved(context, query)
    plan = yield from plan_of(context, query)
    if plan.combine == "nothing":
        return 0
    number = None
    if not tests_records(plan):
        number = yield from _all_entries(context, query, plan)
        if number is None:
            number = yield from RankedReader(context, query, plan, _reach(query, query.stop)).count(query.stop)
    if number is None:
        return (yield from _tested(context, query))
    total = number if query.stop is None else min(number, query.stop)
    return max(0, total - query.start)


def exists(context: Context, query: Query) -> Flow[bool]:
    """Return whether there is any result."""
    query = yield from resolved(context, query.limited(1))
    scan = RankedScan(context, query, first=FEWEST_TESTED)
    while not scan.done:
        if (yield from scan.next_records()):
            return True
    return False


def _tested(context: Context, query: Query) -> Flow[int]:
    """Count results by reading and testing their records."""
    scan = RankedScan(context, query, first=MAX_BATCH, whole=True)
    number = 0
    while not scan.done:
        number += len((yield from scan.next_records()))
    return number


def _all_entries(context: Context, query: Query, plan: QueryPlan) -> Flow[int | None]:
    """Count the entries of the groups in one request; None unless each of them is a result."""
    bounded = query.ranked is not None and (query.ranked.within is not None or query.ranked.scored)
    scan = plan.scans[0]
    several = len(scan.ranges) > 1 and any(column.many for column in scan.columns)
    if bounded or several or context.transaction is not None:
        return None
    if len(scan.ranges) > ranges_at_once(context.limits, guarded=True):
        return None
    view, _ = yield from live_collection(context, query.schema)
    wanted = [ReadRange(one.start, one.end, query.stop) for one in scan.ranges]
    counted = yield from count_rows(wanted, view.guard)
    # With another header, the rings are counted, which are planned again.
    return sum(counted.numbers) if isinstance(counted, Counted) else None


# --- pages ------------------------------------------------------------------------------------------------------


def page(
    context: Context, query: Query, size: int, after: str | None = None, before: str | None = None
) -> Flow[PageData]:
    """Return one page of a ranked query of at most ``size`` hits, with the cursors at its ends.

    A page before a cursor ranks the entries up to it, and reads records from the last of them backward.
    """
    check_page(query, size, after, before)
    _require_pages(query)
    query = yield from resolved(context, query)
    cursor, back = (after, False) if before is None else (before, True)
    if cursor is None:
        plan = yield from plan_of(context, query)
        reader = RankedReader(context, query, plan, _reach(query, size + 1))
    else:
        plan, live, mark = yield from resume(context, query, cursor)
        bound, frozen = _bound_at(plan, live, mark)
        bounds = PageBounds(before=bound) if back else PageBounds(after=bound)
        reach = _reach_at(query, size + 1, bound[0], back=back)._replace(frozen=frozen)
        reader = RankedReader(context, query, plan, reach, bounds)
    found: list[RankedRecord] = []
    rows = size + 1
    while len(found) <= size and not reader.ended:
        found += yield from reader.next_records(min(rows, MAX_BATCH))
        rows = max(FEWEST_TESTED, rows * 2) if reader.tests else size + 1 - len(found)
    taken = found[:size]
    hits = yield from _hits(context, query, reader.plan, taken)
    frozen = reader.frozen
    marks = [(_mark(one.place, frozen, behind=False), _mark(one.place, frozen, behind=True)) for one in taken]
    return page_data(reader.plan, hits, PageEnds(marks, len(found) > size), cursor, back=back)


def _require_pages(query: Query) -> None:
    if query.ranked is not None and query.ranked.most is not None:
        raise InvalidArgumentError(
            "this order has no pages",
            argument="page",
            value=query.ranked.method,
            hint=f"Take a slice of at most {query.ranked.most:,} results, such as [10:20].",
        )


def _reach_at(query: Query, wanted: int, distance: float, *, back: bool) -> Reach:
    """Return the reach of a page that begins or ends at a distance."""
    reach = _reach(query, None if back else wanted)
    if not back:
        return reach._replace(beyond=distance)
    return reach._replace(within=distance if reach.within is None else min(distance, reach.within))


def _mark(place: RankedPosition, frozen: Any, *, behind: bool) -> bytes:
    parts = [place.distance, place.pk, behind]
    marked: bytes = msgpack.packb(parts if frozen is None else [*parts, frozen])
    return marked


def _bound_at(plan: QueryPlan, live: LiveCollection, mark: bytes) -> tuple[tuple[Any, ...], Any]:
    """Return the place in a cursor as a bound of ``PageBounds``, and its ``frozen``. Raises InvalidCursorError."""
    try:
        distance, pk, behind, *rest = msgpack.unpackb(mark)
    except (ValueError, TypeError) as error:
        raise _invalid() from error
    known = [type(part) for part in (distance, pk, behind)] == [float, bytes, bool]
    if not known or not isfinite(distance) or plan.combine == "nothing" or len(rest) > 1:
        raise _invalid()
    _, ranking = ranking_of(plan, live)
    frozen = rest[0] if rest else None
    assert plan.ranked is not None  # it is a ranked plan
    if (distance > 0 if ranking.scores else distance < 0) or not ranking.is_frozen(plan.ranked.origin, frozen):
        raise _invalid()
    return ((distance, pk, b"") if behind else (distance, pk)), frozen


def _invalid() -> InvalidCursorError:
    return InvalidCursorError("the cursor does not belong to this query", reason="it names no place of it")
