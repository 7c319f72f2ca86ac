"""Fast kinds of the executor: objects directly from rows, and prepared plans of one range in one request.

``read_scan`` and ``read_merge`` read the next objects of a plan that tests nothing, without a hit for each row.
``RangeRead`` and ``RangeCount`` execute a ``RangePlan``; they are made once for each shape of query.

Rules of this module: results and errors are those of ``kvmodels.flows.execution.join``, which reads every other plan; a
test compares the two. A pointer entry counts only if its record has this very entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import BatchLoader, LiveCollection, LiveIndex, Loader
from kvmodels.core.operations import (
    Counted,
    Follow,
    Guard,
    GuardFailed,
    MultiRangeFollow,
    ReadRange,
    ReadResult,
    Row,
    SuffixFollow,
    after_prefix,
    as_plain_rows,
)
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import AGAIN, CountRows, Flow, OneRequest, Read, read
from kvmodels.flows.execution.combination import Merge
from kvmodels.flows.execution.join import ResultBatch
from kvmodels.flows.execution.ranges import (
    Candidate,
    Choice,
    Concatenation,
    KeptFollow,
    QueryPosition,
    ScanPosition,
    TakenRows,
    bound_at,
)
from kvmodels.flows.hydration.loader import batch_loader_of, entry_loader_of, loaded, loaded_behind, loader_of, owner_of
from kvmodels.query.planning.planner import RangePlan
from kvmodels.query.plans import KeyRange, QueryPlan
from kvmodels.query.query import Query

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


def makes_objects(context: Context, live: LiveCollection, plan: QueryPlan) -> bool:
    """Whether every row of a plan leads to one record, whose object is the result."""
    if not switches.fast_kinds or plan.combine not in ("scan", "merge") or plan.matches is not None:
        return False
    if live.schema.fast_decoding is None or not context.traits.snapshots:
        return False
    if any(scan.fans_out or scan.matches is not None for scan in plan.scans):
        return False
    if plan.combine == "scan":
        return plan.scans[0].index is None or not plan.scans[0].copies
    return not any(scan.copies for scan in plan.scans)


# --- one scan ---------------------------------------------------------------------------------------------------


def read_scan(
    context: Context, view: HeaderView, live: LiveCollection, plan: QueryPlan, chooser: Concatenation
) -> Flow[ResultBatch | None]:
    """Read the next objects of a plan of one scan; None when the header has changed. Raises DecodeError."""
    name, ranges = plan.scans[0].index, [piece.wanted for piece in chooser.pieces]
    if name is None:
        result = yield from read(ranges, follow=as_plain_rows)
        taken = chooser.take(result.ranges)
        rows = _rows(taken)
        objects = loaded(batch_loader_of(context, live, None), loader_of(context, live, checks=True), rows)
        return _batch(objects, rows, taken)
    index, scan = live.readable[name], plan.scans[0]
    steps = [-1 - piece.step if scan.reverse else piece.step for piece in chooser.pieces]
    starts = [start for step in steps if (start := suffix_start(index, scan.ranges[step])) is not None]
    if not starts or len(starts) < len(ranges):
        return (yield from _read_any(context, view, live, index, chooser))
    load, prefix = entry_loader_of(context, live, index), live.layout.prefix
    follow = SuffixFollow(prefix, starts[0]) if len(starts) == 1 else MultiRangeFollow(prefix, (*starts,), chooser.size)
    found = yield from read(ranges, view.guard, follow=follow)
    if isinstance(found, GuardFailed):
        return None
    taken = chooser.take(found.ranges)
    rows = _rows(taken)
    if len(starts) > 1:
        return _verified(load, rows, found.followed[: len(rows)], taken)
    # The record of a row that is only read to see whether there are more is read as well, and not used.
    head = rows[0][0][: starts[0]] if rows else b""
    made, followed = loaded_behind(batch_loader_of(context, live, index), found, head, len(rows))
    return _verified(load, rows, followed, taken) if made is None else _batch(made, rows, taken)


def _read_any(
    context: Context, view: HeaderView, live: LiveCollection, index: LiveIndex, chooser: Concatenation
) -> Flow[ResultBatch | None]:
    """Read entries of any ranges, and their records."""

    def chosen(found: Sequence[list[Row]]) -> tuple[tuple[TakenRows, list[Row]], Sequence[ReadRange]]:
        taken = chooser.take(found)
        rows = _rows(taken)
        owners = _owners_of(context, live, index, rows)
        wanted = _records_of(live.layout.prefix, owners)
        if len(wanted) < len(rows):  # a row is no entry of the index
            rows = [row for row, pk in zip(rows, owners, strict=True) if pk is not None]
        return (taken, rows), wanted

    follow = KeptFollow(chosen)
    found = yield from read([piece.wanted for piece in chooser.pieces], view.guard, follow=follow)
    if isinstance(found, GuardFailed):
        return None
    taken, rows = follow.kept
    return _verified(entry_loader_of(context, live, index), rows, found.followed, taken)


def _verified(load: Loader, rows: list[Row], followed: Sequence[list[Row]], taken: TakenRows) -> ResultBatch:
    """Return the objects of records that have the very entry that led to them."""
    objects = _objects_of(load, rows, followed)
    kept = [one for one in objects if one is not None]
    if len(kept) < len(objects):  # an entry without its record is skipped, and db.check() reports it
        rows = [row for row, one in zip(rows, objects, strict=True) if one is not None]
    return _batch(kept, rows, taken)


def _objects_of(load: Loader, rows: Sequence[Row], followed: Sequence[list[Row]]) -> list[Any]:
    """Return the objects of the records of entries; None for an entry without its record."""
    return [load(records[0], row[0]) if records else None for row, records in zip(rows, followed, strict=True)]


def _batch(objects: list[Any], rows: Sequence[Row], taken: TakenRows) -> ResultBatch:
    passed = sum(len(part) for _, part in taken.rows)
    return ResultBatch(objects, (), passed, taken.position, taken.more, True, rows)


def _rows(taken: TakenRows) -> list[Row]:
    parts = taken.rows
    return parts[0][1] if len(parts) == 1 else [row for _, rows in parts for row in rows]


def suffix_start(index: LiveIndex, key_range: KeyRange) -> int | None:
    """Return where the primary key begins in the entries of a range with one value in each column; None for others.

    Such a range begins with the columns and ends where another value begins, so its keys continue with a primary key. A
    unique value has one entry without a primary key, or several with None.
    """
    start, end = key_range
    if index.definition.unique or end is None or end != after_prefix(start):
        return None
    try:
        return None if index.layout.pk_in(start) else len(start)
    except InvalidKeyError:
        return None


def _owners_of(context: Context, live: LiveCollection, index: LiveIndex, rows: Sequence[Row]) -> Sequence[bytes | None]:
    """Return the packed primary key in each of some entries, which are in order; None for a row that is no entry."""
    owner = owner_of(context, live, index)
    return [owner(row) for row in rows]


def _records_of(prefix: bytes, owners: Sequence[bytes | None]) -> list[ReadRange]:
    return [_new(ReadRange, (prefix + pk, None, None, False, False)) for pk in owners if pk is not None]


# --- a merge ----------------------------------------------------------------------------------------------------


def read_merge(
    context: Context, view: HeaderView, live: LiveCollection, merge: Merge, indexes: Sequence[LiveIndex]
) -> Flow[ResultBatch | None]:
    """Read the next objects of a merge of scans of these indexes; None when the header has changed."""

    def chosen(found: Sequence[list[Row]]) -> tuple[tuple[Choice, list[Candidate]], Sequence[ReadRange]]:
        choice = merge.choose(found)
        owners = [merge.owners[candidate.number](candidate.row) for candidate in choice.candidates]
        owned = [candidate for candidate, pk in zip(choice.candidates, owners, strict=True) if pk is not None]
        return (choice, owned), _records_of(live.layout.prefix, owners)

    follow = KeptFollow(chosen)
    found = yield from read([piece.wanted for piece in merge.pieces], view.guard, follow=follow)
    if isinstance(found, GuardFailed):
        return None
    (candidates, position, more), owned = follow.kept
    loads = [entry_loader_of(context, live, index) for index in indexes]
    objects: list[Any] = []
    kept: list[Candidate] = []
    for candidate, records in zip(owned, found.followed, strict=True):
        one = loads[candidate.number](records[0], candidate.row.key) if records else None
        if one is None and records:  # another of its entries may be the true one
            others = (loads[number](records[0], row.key) for number, row in candidate.others)
            one = next((other for other in others if other is not None), None)
        if one is not None:
            objects.append(one)
            kept.append(candidate)
    return ResultBatch(objects, kept, len(candidates), position, more, True)


# --- a prepared range -------------------------------------------------------------------------------------------


class RangeRead(NamedTuple):
    """Reads the first objects of the queries of a prepared plan in one request.

    Attributes:
        plan: the plan.
        guard: the header, for an index.
        load: makes the object of a record, and of an entry that leads to it.
        batch: makes many objects at once; None if they must be made one by one.
        records: the prefix of the records of entries that all end in primary keys, after the bound columns; else None.
        follow: leads from other entries to their records; None for records, and with ``records``.
    """

    plan: RangePlan
    guard: Guard | None
    load: Loader
    batch: BatchLoader | None
    records: bytes | None = None
    follow: Follow | None = None

    def request(
        self,
        operands: Sequence[Any],
        limit: int,
        result: Callable[[RangeRows], Any] | None,
        otherwise: Callable[[], Flow[Any]],
    ) -> OneRequest[Any]:
        """Return the request for at most ``limit`` rows of a query.

        ``limit``: 1 or more. ``result``: from the rows to the result, or AGAIN; None: all objects.
        """
        plan, guard, _, _, records, follow = self
        start = plan.key(operands)
        if plan.single:
            wanted = _new(ReadRange, (start, None, None, False, False))
        else:
            wanted = _new(ReadRange, (start, after_prefix(start), limit, plan.reverse, False))

        def answer(found: ReadResult) -> Any:
            rows = RangeRows(self, operands, start, found)
            return rows.objects(limit) if result is None else result(rows)

        if records is not None:
            follow = SuffixFollow(records, len(start))
        return OneRequest(Read((wanted,), guard, False, follow), answer, otherwise)


class RangeRows:
    """The rows of one request with a prepared plan."""

    def __init__(self, range_read: RangeRead, operands: Sequence[Any], start: bytes, found: ReadResult) -> None:
        self.rows: Sequence[Row] = found[0][0]
        self._read = range_read
        self._operands = operands
        self._start = start
        self._found = found

    def objects(self, number: int) -> Any:
        """Return the objects of the first rows; AGAIN if an entry leads to no record."""
        rows = self.rows if number >= len(self.rows) else self.rows[:number]
        _, _, load, batch, records, follow = self._read
        if records is not None:
            objects, followed = loaded_behind(batch, self._found, self._start, len(rows))
            if objects is not None:
                return objects
        elif follow is None:
            return loaded(batch, load, rows)
        elif len(self._found[1]) < len(self.rows):
            return AGAIN  # a row that is no entry of the index was not followed
        else:
            followed = self._found[1][: len(rows)]
        objects = _objects_of(load, rows, followed)
        return AGAIN if any(one is None for one in objects) else objects

    def position_behind(self, query: Query, number: int) -> QueryPosition:
        """Return the position after so many rows."""
        plan = self._read.plan
        bound = bound_at(self.rows[number - 1][0], including=False, reverse=plan.reverse)
        return QueryPosition(plan.bind(query, self._operands), (ScanPosition(0, bound),))


class RangeCount(NamedTuple):
    """Counts the rows of the queries of a prepared plan in one request."""

    plan: RangePlan
    guard: Guard | None

    def request(
        self,
        operands: Sequence[Any],
        limit: int | None,
        result: Callable[[int], Any],
        otherwise: Callable[[], Flow[Any]],
    ) -> OneRequest[Any]:
        """Return the request that counts the rows of a query, at most ``limit``."""
        start = self.plan.key(operands)
        if self.plan.single:
            wanted = _new(ReadRange, (start, None, None, False, False))
        else:
            wanted = _new(ReadRange, (start, after_prefix(start), limit, False, False))

        def answer(counted: Counted) -> Any:
            return result(counted[0][0])

        return OneRequest(CountRows((wanted,), self.guard), answer, otherwise)


def range_read(context: Context, view: HeaderView, live: LiveCollection, plan: RangePlan) -> RangeRead | None:
    """Return the reader of a prepared plan; None if its rows do not lead to objects directly."""
    if not makes_objects(context, live, plan.plan):
        return None
    (scan,) = plan.plan.scans
    if scan.index is None:
        return RangeRead(plan, None, loader_of(context, live, checks=True), batch_loader_of(context, live, None))
    index, prefix = live.readable[scan.index], live.layout.prefix
    made = RangeRead(plan, view.guard, entry_loader_of(context, live, index), batch_loader_of(context, live, index))
    if suffix_start(index, scan.ranges[0]) is not None:
        return made._replace(records=prefix)

    def follow(found: Sequence[list[Row]]) -> Sequence[ReadRange]:
        return _records_of(prefix, _owners_of(context, live, index, found[0]))

    return made._replace(follow=follow)
