"""Read the results of a plan batch by batch: one engine read for each batch, in one snapshot of header, rows, records.

A read through an index carries the header as guard (rule R3): when the header has changed, a query that has read
nothing yet is planned again, and one that has goes on only if the generations of its indexes are still readable.

Promise: a record that is not written between the first and the last batch is returned exactly once, in order.

Rules of this module: bounded memory, and what is read depends on what is asked for, never on the size of the
collection. How rows are chosen is decided by the kind of the plan (``concatenating``, ``merging``, ``intersecting``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import Row
from kvmodels.errors import IndexChangedError
from kvmodels.flows.context import Context, live_collection, planned, reload_header
from kvmodels.flows.effects import Flow, ranges_at_once, rows_at_once
from kvmodels.flows.execution.concat import Concatenation
from kvmodels.flows.execution.entries import Hit
from kvmodels.flows.execution.intersect import Intersection
from kvmodels.flows.execution.join import Joined, ScanSession
from kvmodels.flows.execution.merge import Merge
from kvmodels.flows.execution.ranges import START, Candidate, Choice, Extent, Position
from kvmodels.flows.execution.scan_objects import makes_objects, read_objects
from kvmodels.flows.execution.sort_keys import sort_keys
from kvmodels.query.planning.cursor import is_same_index, require_same_index, resumed
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

MAX_BATCH: Final = 500
"""The most rows of one batch, as Deno's, unless the caller gives another size; so much is in memory at once."""


class Batch(NamedTuple):
    """What one read gave.

    Attributes:
        hits: the records that match, in order: of each the hit, or its object.
        found: for each of them the rows that it was found at; none where objects are given.
        rows: how many records were passed, matching or not.
        position: where to read on; None at the end.
        more: a further row was seen, so the end is not reached for certain.
        entries: for each object the row that it was found at.
    """

    hits: list[Hit | Any]
    found: list[Candidate]
    rows: int
    position: Position | None
    more: bool
    entries: Sequence[Row] = ()


def plan_of(context: Context, query: Query) -> Flow[QueryPlan]:
    """The plan of a query under the present header; raises what ``plan_query`` raises. Cost: usually no read."""
    return (yield from planned(context, query.schema, lambda live: plan_query(query, live)))[1]


def beginning(plan: QueryPlan) -> Position:
    """The position before everything that a plan reads."""
    return Position(plan, (START,) * len(plan.scans), fresh=True)


def counts_rows(plan: QueryPlan) -> bool:
    """Whether every record that is passed is a result, so that rows are counted, and passed over, without records."""
    if plan.matches is not None or (plan.combine == "concatenate" and len(plan.scans) > 1):
        return False
    return not any(scan.fans_out or scan.matches is not None for scan in plan.scans)


def resume(context: Context, query: Query, cursor: str) -> Flow[tuple[QueryPlan, LiveCollection, bytes]]:
    """The plan that a cursor was made with, the collection, and the mark that it names.

    Raises:
        InvalidCursorError, IndexChangedError: see ``kvmodels.query.planning.cursor.resumed``.
    """
    _, live = yield from live_collection(context, query.schema)
    try:
        plan, mark = resumed(query, live, cursor)
    except IndexChangedError:
        view = yield from reload_header(context)  # another process may have built it since
        live = view.live[query.schema.collection]
        plan, mark = resumed(query, live, cursor)
    return plan, live, mark


def read_batch(
    context: Context,
    query: Query,
    position: Position,
    size: int,
    *,
    peek: bool = True,
    records: bool = True,
    objects: bool = False,
) -> Flow[Batch]:
    """Read the next rows of a query.

    Args:
        context: shared by the flows of the database.
        query: what is asked for.
        position: where to read on; ``beginning(plan)`` to begin.
        size: how many records to pass, 1 or more; the engine may take fewer at once.
        peek: ask for one row more, to learn whether the end is reached.
        records: read the records and give those that match; else rows are only counted.
        objects: wherever they can be made at once, give objects.

    Returns:
        The batch. When the header has changed before anything was read, it has no rows, and its position has the
        new plan: the caller decides again what it needs.

    Raises:
        NoUsableIndexError, IndexNotReadyError: the query was planned again, see ``plan_query``.
        IndexChangedError: an index was rebuilt or dropped since the position was made.
        DecodeError: a record cannot be read.

    Cost: one engine read of ``size`` rows (one more with ``peek``) and as many records; of a merge up to so many rows
    of each scan; of an intersection a second read, when its smallest scan does not fit into the first.
    """
    while True:  # again only when another process changed the schema in between
        view, live = yield from live_collection(context, query.schema)
        if position.fresh and not is_same_index(live, position.plan):
            return Batch([], [], 0, beginning(plan_query(query, live)), more=False)
        require_same_index(live, position.plan)
        limits = context.limits
        guarded = bool(position.plan.indexes)
        most = ranges_at_once(limits, guarded=guarded)
        extent = Extent(min(most, rows_at_once(limits, size, beside=1 + guarded)), peek, most)
        if objects and query.fields is None and makes_objects(context, live, position.plan):
            made = yield from read_objects(context, view, live, position.plan, Concatenation(position, extent))
            if made is not None:
                return Batch(made.objects, [], made.passed, made.position, made.more, made.entries)
            yield from reload_header(context)
            continue
        session = ScanSession(context, view, live, position.plan)
        if records:
            joined = yield from _joined(session, live, position, extent)
            if joined is not None:
                found, hits = session.matching(joined)
                choice = joined.choice
                return Batch(hits, found, len(choice.candidates), choice.position, choice.more)
        else:
            chosen = yield from _chosen(session, live, position, extent)
            if chosen is not None:
                return Batch([], [], len(chosen.candidates), chosen.position, chosen.more)
        yield from reload_header(context)


def _joined(session: ScanSession, live: LiveCollection, position: Position, extent: Extent) -> Flow[Joined | None]:
    if position.plan.combine == "intersect":
        return (yield from Intersection(session, position, extent).joined())
    chooser = _chooser(session, live, position, extent)
    return (yield from session.joined([piece.wanted for piece in chooser.pieces], chooser.choose))


def _chosen(session: ScanSession, live: LiveCollection, position: Position, extent: Extent) -> Flow[Choice | None]:
    if position.plan.combine == "intersect":
        return (yield from Intersection(session, position, extent).chosen())
    chooser = _chooser(session, live, position, extent)
    keys_only = position.plan.combine != "merge"  # where a slot names its owner in its value, the sort key needs it
    found = yield from session.rows([piece.wanted for piece in chooser.pieces], keys_only=keys_only)
    return None if found is None else chooser.choose(found)


def _chooser(session: ScanSession, live: LiveCollection, position: Position, extent: Extent) -> Concatenation | Merge:
    if position.plan.combine == "merge":
        owners = [reader.owner for reader in session.readers]
        return Merge(position, list(zip(sort_keys(position.plan, live), owners, strict=True)), extent)
    return Concatenation(position, extent)
