"""Run query plans: read results batch by batch, each in one snapshot of header, rows and records.

``Executor`` reads the next rows of a plan of any kind: ``Concatenation``, ``Merge`` or ``Intersection`` choose rows,
``ScanSession`` reads their records, and ``fast_reads.py`` has the fast kinds. A *mark* is a place between two results,
as the bytes in a cursor: it names a row (by its key, its sort key or its packed primary key) and the side of it in the
order of the query, so it is the same place in both directions.

A read through an index carries the header as guard (rule R3). When the header has changed, a query that has read
nothing yet is planned again; another one continues only if the generations of its indexes are still readable.

A sort in memory compares records by their sort keys (``sort_keys.py``); objects are made only of the results.

Promise: a record that is not written between the first and the last batch is returned exactly once, in order. An
iteration returns no record twice, whatever is written (``flows/reading/returned.py``).

Rules of this module: bounded memory; the rows read depend on the query, never on the size of the collection. Marks come
from outside: one that is no place of the plan is an InvalidCursorError, and none reaches a row outside its ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import msgpack

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import Counted, ReadRange
from kvmodels.errors import (
    IndexChangedError,
    IndexNotReadyError,
    InvalidCursorError,
    InvalidKeyError,
    NoUsableIndexError,
    OperationTooLargeError,
)
from kvmodels.flows.context import Context, HeaderView, live_collection, planned, reload_header
from kvmodels.flows.effects import Flow, OneRequest, count_rows, fits_one_read, ranges_at_once, rows_at_once
from kvmodels.flows.execution.combination import Intersection, Merge, intersection_at, merge_at, sort_keys
from kvmodels.flows.execution.fast_reads import (
    RangeCount,
    RangeRead,
    RangeRows,
    makes_objects,
    range_read,
    read_merge,
    read_scan,
)
from kvmodels.flows.execution.join import MatchedRecord, ResultBatch, ScanSession
from kvmodels.flows.execution.permission import REFUSED, permitted, planned_again
from kvmodels.flows.execution.ranges import (
    REMOTE_WIDTH,
    START,
    Candidate,
    Concatenation,
    QueryPosition,
    ReadLimit,
    ScanPosition,
    Walk,
    bound_at,
)
from kvmodels.flows.execution.sort_keys import MemorySortKeys
from kvmodels.flows.execution.targets import with_satisfied_targets
from kvmodels.flows.hydration.loader import owner_of
from kvmodels.query.orders import turned_name
from kvmodels.query.planning.aggregation import EVERY_RECORD, counter_plan
from kvmodels.query.planning.cursor import is_same_index, require_same_index, resumed
from kvmodels.query.planning.planner import NO_RANGE, plan_query, range_plan, range_shape
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

MAX_BATCH: Final = 500
"""The most rows of one batch, as Deno's, unless the caller gives another size; so many are in memory at once."""

Wanted = Literal["rows", "hits", "objects"]
"""The content of a batch: the number of rows; the records that match; or, wherever possible, their objects."""


def plan_of(context: Context, query: Query) -> Flow[QueryPlan]:
    """Plan a query under the present header; raises what ``plan_query`` raises. Cost: usually no read."""
    try:
        return (yield from planned(context, query.schema, lambda live: plan_query(query, live)))[1]
    except REFUSED as error:
        again = permitted(query)
        return (yield from planned_again(context, error, query.schema, lambda live: plan_query(again, live)))[1]


def beginning(plan: QueryPlan) -> QueryPosition:
    """Return the position before everything that a plan reads."""
    return QueryPosition(plan, (START,) * len(plan.scans), fresh=True)


def counts_rows(plan: QueryPlan) -> bool:
    """Whether every record that is passed is a result, so that rows can be counted without their records."""
    if plan.matches is not None or plan.target_tests:
        return False
    if plan.combine == "concatenate" and any(scan.accepts is not None for scan in plan.scans):
        return False
    return not any(scan.fans_out or scan.matches is not None for scan in plan.scans)


def resume(context: Context, query: Query, cursor: str) -> Flow[tuple[QueryPlan, LiveCollection, bytes]]:
    """Return the plan of a cursor, the collection, and the mark in the cursor.

    Raises InvalidCursorError, IndexChangedError: see ``kvmodels.query.planning.cursor.resumed``.
    """
    _, live = yield from live_collection(context, query.schema)
    allowed = None if context.scans.current == "refuse" else permitted(query)
    try:
        plan, mark = resumed(query, live, cursor, allowed)
    except IndexChangedError:
        view = yield from reload_header(context)  # another process may have built it since
        live = view.live[query.schema.collection]
        plan, mark = resumed(query, live, cursor, allowed)
    return plan, live, mark


# --- batches ----------------------------------------------------------------------------------------------------


class Executor:
    """Reads the next rows of a plan of any kind; each method is one batch, or None when the header has changed."""

    def __init__(
        self, context: Context, view: HeaderView, live: LiveCollection, position: QueryPosition, extent: ReadLimit
    ) -> None:
        self._context = context
        self._view = view
        self._live = live
        self._plan = position.plan
        self._position = position
        self._extent = extent

    def read(self, wanted: Wanted) -> Flow[ResultBatch | None]:
        """Read the next rows; raises DecodeError."""
        if wanted == "rows":
            return self._counted()
        if wanted == "objects" and makes_objects(self._context, self._live, self._plan):
            return self._objects()
        return self._hits()

    def _objects(self) -> Flow[ResultBatch | None]:
        context, view, live, plan = self._context, self._view, self._live, self._plan
        if plan.combine == "scan":
            return read_scan(context, view, live, plan, Concatenation(self._position, self._extent))
        indexes = [live.readable[scan.index] for scan in plan.scans if scan.index is not None]
        owners = [owner_of(context, live, index) for index in indexes]
        merge = Merge(self._position, live, owners, self._extent)
        if not merge.pieces or not fits_one_read(context.limits, [one.wanted for one in merge.pieces], guarded=True):
            return self._hits()
        return read_merge(context, view, live, merge, indexes)

    def _hits(self) -> Flow[ResultBatch | None]:
        session = ScanSession(self._context, self._view, self._live, self._plan)
        if self._plan.combine == "intersect":
            joined = yield from Intersection(session, self._position, self._extent).joined()
        else:
            chooser = self._chooser(session)
            joined = yield from session.joined([piece.wanted for piece in chooser.pieces], chooser.choose)
        if joined is None:
            return None
        found, hits = session.matching(joined)
        candidates, position, more = joined.choice
        return ResultBatch(hits, found, len(candidates), position, more)

    def _counted(self) -> Flow[ResultBatch | None]:
        session = ScanSession(self._context, self._view, self._live, self._plan)
        if self._plan.combine == "intersect":
            choice = yield from Intersection(session, self._position, self._extent).chosen()
        else:
            chooser = self._chooser(session)
            keys_only = self._plan.combine != "merge"  # a slot names its owner in its value, which sort keys need
            found = yield from session.rows([piece.wanted for piece in chooser.pieces], keys_only=keys_only)
            choice = None if found is None else chooser.choose(found)
        return None if choice is None else ResultBatch([], (), len(choice.candidates), choice.position, choice.more)

    def _chooser(self, session: ScanSession) -> Concatenation | Merge:
        if self._plan.combine == "merge":
            return Merge(self._position, self._live, [reader.owner for reader in session.readers], self._extent)
        return Concatenation(self._position, self._extent)


def read_batch(
    context: Context, query: Query, position: QueryPosition, size: int, *, peek: bool = True, wanted: Wanted = "hits"
) -> Flow[ResultBatch]:
    """Read the next rows of a query, at most ``size``, and their records.

    When the header has changed before anything was read, the batch has no rows, and its position has the new plan: the
    caller decides again what it needs. Cost: one read of ``size`` rows (one more with ``peek``) and as many records; of
    a merge up to so many rows of each scan; of an intersection a second read, if its smallest scan does not fit into
    the first. Raises IndexChangedError if an index was rebuilt or dropped since the position was made.
    """
    if position.plan.target_tests or (query.fields is not None and wanted == "objects"):
        wanted = "hits"
    while True:  # again only when another process changed the schema in between
        view, live = yield from live_collection(context, query.schema)
        if position.fresh and not is_same_index(live, position.plan):
            return ResultBatch([], (), 0, beginning((yield from plan_of(context, query))), more=False)
        require_same_index(live, position.plan)
        limits = context.limits
        guarded = bool(position.plan.indexes)
        most = ranges_at_once(limits, guarded=guarded)
        size_at_once = rows_at_once(limits, size, others=1 + guarded)
        if context.traits.snapshots and not position.plan.copies:
            size_at_once = min(most, size_at_once)  # the follow-up read has a range for each record
        extent = ReadLimit(size_at_once, peek, most, REMOTE_WIDTH if context.traits.remote else 1)
        batch = yield from Executor(context, view, live, position, extent).read(wanted)
        if batch is not None:
            if position.plan.target_tests:
                return (yield from with_satisfied_targets(context, live, position.plan, batch))
            return batch
        yield from reload_header(context)


def number_of_rows(context: Context, query: Query, limit: int | None) -> Flow[tuple[int | None, QueryPlan]]:
    """Count the rows of a query, up to a limit, without reading them; None where that is not the number of results.

    It is for a plan of one scan that returns every row of its ranges, each of another record. Not in a transaction:
    its commit checks the rows that were read, and the engine does not know its writes.
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


# --- one request ------------------------------------------------------------------------------------------------


def read_at_once(
    context: Context,
    query: Query,
    limit: int,
    otherwise: Callable[[], Flow[Any]],
    result: Callable[[RangeRows], Any] | None = None,
) -> OneRequest[Any] | None:
    """Return the request for the first objects of a query with a prepared plan; None if it must be planned.

    ``limit``: the most rows to read, 1 or more. ``result``: from the rows to the result, or AGAIN; None: all objects.
    """
    limits = context.limits
    if query.fields is not None or limit > limits.max_ranges or limit >= limits.max_read_entries:
        return None
    known = _prepared(context, query, "read")
    if known is None or not isinstance(known[0], RangeRead):
        return None
    return known[0].request(known[1], limit, result, otherwise)


def count_at_once(
    context: Context, query: Query, limit: int | None, result: Callable[[int], Any], otherwise: Callable[[], Flow[Any]]
) -> OneRequest[Any] | None:
    """Return the request that counts the rows of a query with a prepared plan; None if it must be planned."""
    known = _prepared(context, query, "count")
    if known is None or not isinstance(known[0], RangeCount):
        return None
    return known[0].request(known[1], limit, result, otherwise)


def _prepared(context: Context, query: Query, kind: str) -> tuple[object, Sequence[Any]] | None:
    view, shape = context.view, range_shape(query, kind)
    if view is None or shape is None or context.transaction is not None:
        return None
    live, (key, operands) = view.live[query.schema.collection], shape
    known = live.compiled.plans.get(key)
    if known is None:
        try:
            known = _compiled(context, view, query, kind) or NO_RANGE
        except (NoUsableIndexError, IndexNotReadyError):
            return None  # planning raises it, and may read the header again before
        live.compiled.keep_plan(key, known)
    return known, operands


def _compiled(context: Context, view: HeaderView, query: Query, kind: str) -> RangeRead | RangeCount | None:
    live = view.live[query.schema.collection]
    if live.refused is not None:
        return None
    if kind == "read":
        plan = range_plan(query, live)
        return None if plan is None else range_read(context, view, live, plan)
    if counter_plan(query, live, (EVERY_RECORD,)) is not None:
        return None
    plan = range_plan(replace(query, fields=(), order=() if query.sort_limit is not None else query.order), live)
    if plan is None or not counts_rows(plan.plan):
        return None
    return RangeCount(plan, view.guard if plan.plan.indexes else None)


# --- marks ------------------------------------------------------------------------------------------------------


def turned(plan: QueryPlan) -> QueryPlan:
    """Return the plan that reads the same results from the other end."""
    order = tuple(map(turned_name, plan.order))
    return replace(plan, order=order, scans=tuple(replace(scan, reverse=not scan.reverse) for scan in plan.scans))


def mark_of(plan: QueryPlan, found: Candidate, *, behind: bool) -> bytes:
    """Return the place before the row of a result, or after it, in the order of the query."""
    key = found.key
    if plan.combine in ("scan", "concatenate"):
        key = key.removeprefix(plan.scans[found.number].prefix)
    return mark_of_key(key, behind=behind, number=found.number if plan.combine == "concatenate" else 0)


def mark_of_key(key: bytes, *, behind: bool, number: int = 0) -> bytes:
    """Return the same for a result of a sort in memory, by its sort key."""
    packed: bytes = msgpack.packb([number, key, behind])
    return packed


def position_at(plan: QueryPlan, live: LiveCollection, mark: bytes, *, back: bool = False) -> QueryPosition:
    """Return the position at a mark; to read ``back``, that of the turned plan. Raises InvalidCursorError."""
    number, key, behind = _decoded(plan, mark)
    position = QueryPosition(turned(plan) if back else plan, (START,) * len(plan.scans))
    try:
        return _position(position, live, number, key, including=behind is back)
    except InvalidKeyError as error:
        raise _invalid() from error


def side_of(plan: QueryPlan, mark: bytes) -> tuple[bytes, bool]:
    """Return the key in a mark, and whether the place is after it; raises InvalidCursorError."""
    _, key, behind = _decoded(plan, mark)
    return key, behind


def _position(
    position: QueryPosition, live: LiveCollection, number: int, key: bytes, *, including: bool
) -> QueryPosition:
    plan = position.plan
    if plan.combine == "nothing":
        raise _invalid()
    if plan.combine == "intersect":
        return intersection_at(position, key, including=including)
    if plan.combine == "merge":
        return merge_at(position, sort_keys(plan, live), key, including=including)
    scan = plan.scans[number]
    place = Walk(number, scan).at(bound_at(scan.prefix + key, including=including, reverse=scan.reverse))
    # Read backwards, a concatenation begins with its last scan, so the scans after it in the list are passed.
    passed = range(number + 1, len(plan.scans)) if plan.reverse else range(number)
    places: list[ScanPosition | None] = [None if other in passed else START for other in range(len(plan.scans))]
    places[number] = place
    return position._replace(places=tuple(places))


class _Mark(NamedTuple):
    number: int
    key: bytes
    behind: bool


def _decoded(plan: QueryPlan, mark: bytes) -> _Mark:
    try:
        made = _Mark(*msgpack.unpackb(mark))
    except (ValueError, TypeError) as error:
        raise _invalid() from error
    if [type(part) for part in made] != [int, bytes, bool] or not 0 <= made.number < len(plan.scans):
        raise _invalid()
    return made


def _invalid() -> InvalidCursorError:
    return InvalidCursorError("the cursor does not belong to this query", reason="it names no place of it")


class SortedHit(NamedTuple):
    """A record and its sort key."""

    key: bytes
    hit: MatchedRecord


class SortWindow(NamedTuple):
    """The records to return: the first ``most`` after a bound, or the last before it.

    Attributes:
        most: how many; None: all.
        bound: forward the lowest sort key, ``back`` the key below which all lie; None: no bound.
    """

    most: int | None = None
    bound: bytes | None = None
    back: bool = False

    def has(self, key: bytes) -> bool:
        """Whether a sort key lies on this side of the bound."""
        return self.bound is None or (key < self.bound if self.back else key >= self.bound)


def sorted_hits(context: Context, query: Query, plan: QueryPlan, wanted: SortWindow) -> Flow[list[SortedHit]]:
    """Return records of a query in the order of its sort; ``back`` from the greatest to the least.

    It reads every record that matches, and holds as many as are wanted, and one batch. Raises OperationTooLargeError,
    or InvalidValueError for values that Python cannot compare.
    """
    sort = plan.sort
    assert sort is not None  # callers saw to it
    _, live = yield from live_collection(context, query.schema)
    sort_keys = MemorySortKeys(context, live, sort)
    moving = any(scan.index is not None for scan in plan.scans)
    held: list[SortedHit] = []
    known: set[bytes] = set()
    position: QueryPosition | None = beginning(plan)
    while position is not None:
        batch = yield from read_batch(context, query, position, MAX_BATCH, peek=False)
        # A record that another writer moves between two batches may be read twice.
        new = [hit for hit in batch.hits if hit.pk not in known]
        keys = yield from sort_keys.keys(new)
        found = [SortedHit(key, hit) for key, hit in zip(keys, new, strict=True) if key is not None and wanted.has(key)]
        held = _bounded([*held, *found], wanted, sort.limit)
        if moving and batch.position is not None:
            known.update(one.hit.pk for one in found)
            if len(held) < len(known):
                known = {one.hit.pk for one in held}
        position = batch.position
    held.sort(key=itemgetter(0), reverse=wanted.back)
    return held[: wanted.most]


def _bounded(held: list[SortedHit], wanted: SortWindow, limit: int) -> list[SortedHit]:
    """Return the records that are needed; raises OperationTooLargeError if more are needed than may be held."""
    if wanted.most is not None and len(held) > wanted.most:
        held = sorted(held, key=itemgetter(0), reverse=wanted.back)[: wanted.most]
    if len(held) > limit:
        raise OperationTooLargeError(
            "more records match than a sort in memory may hold",
            limit="sort_in_memory",
            size=len(held),
            maximum=limit,
            hint="Add an index that has this order, take a slice, or allow more: sort_in_memory(limit=…).",
        )
    return held
