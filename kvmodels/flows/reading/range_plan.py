"""Answer a query of equalities by one range read, without planning it again.

These are filters that give one value to each of some fields, which are the first columns of one index or of the primary
key, in its order. The plan of one such query tells which index that is, and in which direction; it is made once and
remembered with the plans, for as long as the header holds. A query then packs its operands and makes one request.

Rules of this module: the range is that of the plan, which ``tests/query/test_known_ranges.py`` compares, and so is what
is read from it; what the plan could decide by an operand is left to it, as are transactions, whose own writes no engine
knows, classes that share a collection, and indexes with a condition. What one read does not answer is asked again by
the full way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import unwrap
from typing import Any, Final, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.compiled import BatchLoader, EntryLoader, Loader
from kvmodels.core.operations import Counted, Follow, Guard, ReadRange, ReadResult, Row, Tail, after_prefix
from kvmodels.errors import IndexNotReadyError, NoUsableIndexError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import AGAIN, Count, Flow, OneRequest, Read
from kvmodels.flows.execution.batch import MAX_BATCH, counts_rows
from kvmodels.flows.execution.scan_objects import makes_objects, owners_of, records_of, tail_of
from kvmodels.flows.hydration.loader import batch_loader_of, checked_loader_of, entry_loader_of, loaded, loaded_behind
from kvmodels.query.planning.aggregation import EVERY_RECORD, counter_plan
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import Scan
from kvmodels.query.query import Query
from kvmodels.schema.filters.predicate import Condition

_new: Final = tuple[Any, ...].__new__
NO_RANGE: Final = object()
"""Kept for the shapes of queries that take more than one range."""


class RangePlan(NamedTuple):
    """How operands become a range, and what is read from it.

    Attributes:
        prefix: of the index, or of the records.
        columns: in their order, each as the place of its condition in the filter and what packs its operand.
        single: the columns are a whole key.
        reverse: the rows are read from their end.
        guard: of the header, for an index.
        load: what makes objects of the rows of records; None for an index.
        batch: what makes them of many rows at once; None if nothing can.
        behind: what leads from entries to records; None for records.
        tails: behind the columns of every entry stands the primary key of its record.
    """

    prefix: bytes
    columns: tuple[tuple[int, Callable[[Any], bytes]], ...]
    single: bool
    reverse: bool
    guard: Guard | None
    load: Loader | None
    batch: BatchLoader | None
    behind: _EntryRecords | None
    tails: bool

    def range_of(self, operands: Sequence[Any], limit: int | None) -> ReadRange:
        """The range of a query of the shape that this way was made for."""
        key = self.prefix
        for at, pack in self.columns:
            key += pack(operands[at])
        if self.single:
            return _new(ReadRange, (key, None, None, False, False))
        return _new(ReadRange, (key, after_prefix(key), limit, self.reverse, False))


class _EntryRecords:
    """From the entries of an index to the objects of their records.

    Args:
        context: shared by the flows of the database.
        live: the collection.
        index: whose entries are read.
    """

    __slots__ = ("_owners", "_verified", "prefix")

    def __init__(self, context: Context, live: LiveCollection, index: LiveIndex) -> None:
        self._owners = partial(owners_of, context, live, index)
        self.prefix = live.layout.prefix
        self._verified: EntryLoader = entry_loader_of(context, live, index)

    def follow(self, found: list[list[Row]]) -> Sequence[ReadRange]:
        """The keys of the records, one for each entry; fewer where a row is no entry of the index."""
        (rows,) = found
        return records_of(self.prefix, self._owners(rows))

    def objects(self, entries: Sequence[Row], records: Sequence[list[Row]]) -> Any:
        """The objects of the records; AGAIN where an entry leads to none."""
        verified = self._verified
        if len(records) != len(entries):
            return AGAIN
        objects: list[Any] = []
        for entry, record in zip(entries, records, strict=True):
            one = verified(record[0], entry[0]) if record else None
            if one is None:
                return AGAIN
            objects.append(one)
        return objects


def first_of_range(context: Context, query: Query, again: Callable[[], Flow[Any]]) -> OneRequest[Any] | None:
    """The read of the first objects of a query; None where it must be planned, or takes more than one batch.

    Args:
        context: shared by the flows of the database.
        query: what is asked for; a slice of it from its beginning.
        again: the full way, where the header has changed, or an entry leads to no record.
    """
    stop, limits = query.stop, context.limits
    if stop is None or query.start or not 0 < stop <= MAX_BATCH or query.fields is not None or query.distinct:
        return None
    if stop > limits.max_ranges or stop >= limits.max_read_entries:
        return None
    known = _plan_of(context, query, "objects")
    if known is None:
        return None
    way, operands = known
    load, batch, behind = way.load, way.batch, way.behind
    wanted = way.range_of(operands, stop)

    def answer(result: ReadResult) -> Any:
        rows = result[0][0]
        if behind is None:
            assert load is not None  # there is one of the two
            return loaded(batch, load, rows)
        objects, followed = loaded_behind(batch, result, wanted[0], len(rows))
        return behind.objects(rows, followed) if objects is None else objects

    follow: Follow | None = None
    if behind is not None:
        follow = Tail(behind.prefix, len(wanted[0])) if way.tails else behind.follow
    return OneRequest(Read((wanted,), way.guard, False, follow), answer, again)


def count_of_range(
    context: Context, query: Query, limit: int | None, again: Callable[[], Flow[Any]], meaning: Callable[[int], Any]
) -> OneRequest[Any] | None:
    """The request that counts the rows of a query; None where it must be planned, or its rows are not its results.

    Args:
        context: shared by the flows of the database.
        query: what is asked for; its slice is not looked at.
        limit: the largest number that matters.
        again: the full way, where the header has changed.
        meaning: from the number of rows to the answer.
    """
    if query.stop is not None and query.start >= query.stop:
        return None
    known = _plan_of(context, query, "number")
    if known is None:
        return None
    way, operands = known

    def answer(counted: Counted) -> Any:
        return meaning(counted[0][0])

    return OneRequest(Count((way.range_of(operands, limit),), way.guard), answer, again)


def _plan_of(context: Context, query: Query, wanted: str) -> tuple[RangePlan, list[Any]] | None:
    """The way of queries of this shape, remembered, and the operands of this one; None where there is none."""
    view, schema = context.view, query.schema
    if view is None or context.transaction is not None or schema.variants is not None:
        return None
    fields: list[str] = []
    operands: list[Any] = []
    for part in query.where:
        if not isinstance(part, Condition):
            return None
        field, lookup, operand, element, negated = part
        if lookup != "exact" or element or negated:
            return None
        fields.append(field)
        operands.append(operand)
    live = view.live[schema.collection]
    # Everything that a plan depends on besides operands and the bounds of the slice.
    shape = (
        wanted,
        schema.model,
        tuple(fields),
        query.order,
        query.reverse,
        query.scan_allowed,
        query.using,
        query.sort_limit is None,
    )
    way = live.compiled.plans.get(shape)
    if way is None:
        try:
            way = _compiled(context, view, query, (fields, operands), wanted)
        except (NoUsableIndexError, IndexNotReadyError):
            return None  # for the full way to raise, which may read the header again before
        live.compiled.keep_plan(shape, way or NO_RANGE)
    return (way, operands) if isinstance(way, RangePlan) else None


def _compiled(
    context: Context, view: HeaderView, query: Query, said: tuple[Sequence[str], Sequence[Any]], wanted: str
) -> RangePlan | None:
    counting, fields, live = wanted == "number", said[0], view.live[query.schema.collection]
    if not switches.fast_kinds:
        return None
    # An index with a condition serves by its operands.
    if live.refused is not None or any(index.definition.where is not None for index in live.readable.values()):
        return None
    if len(set(fields)) < len(fields) or (counting and counter_plan(query, live, (EVERY_RECORD,)) is not None):
        return None
    asked = replace(query, start=0, stop=None)
    if counting:
        asked = replace(asked, fields=(), order=() if query.sort_limit is not None else query.order)
    plan = plan_query(asked, live)
    if not (counts_rows(plan) if counting else makes_objects(context, live, plan)):
        return None
    if plan.combine != "scan" or len(plan.ranges) != 1 or plan.sort is not None:
        return None
    (scan,) = plan.scans
    columns = _columns(fields, scan)
    if columns is None:
        return None
    single = plan.ranges[0].end is None
    guard = None if scan.index is None else view.guard
    load = checked_loader_of(context, live) if scan.index is None else None
    behind, tails = None, False
    if scan.index is not None and not scan.copies:
        index = live.readable[scan.index]
        behind, tails = _EntryRecords(context, live, index), tail_of(live, index, plan.ranges) is not None
    batch = batch_loader_of(context, live, None if scan.index is None else live.readable[scan.index])
    way = RangePlan(scan.prefix, columns, single, scan.reverse, guard, load, batch, behind, tails)
    # What this module knows of ranges holds for the query that the way is made for.
    start, end, *_ = way.range_of(said[1], None)
    return way if (start, end) == plan.ranges[0] else None


def _columns(fields: Sequence[str], scan: Scan) -> tuple[tuple[int, Callable[[Any], bytes]], ...] | None:
    """The columns that the filter gives values; None unless they are the first ones and all that it speaks of."""
    found: list[tuple[int, Callable[[Any], bytes]]] = []
    for column in scan.columns[: len(fields)]:
        if column.field not in fields or column.many:
            return None
        found.append((fields.index(column.field), unwrap(column.codec.pack)))
    return tuple(found) if len(found) == len(fields) else None
