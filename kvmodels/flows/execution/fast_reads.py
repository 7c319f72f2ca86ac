"""Fast kinds of the executor: objects directly from rows, and prepared plans of one range in one request.

``read_scan`` and ``read_merge`` read the next objects of a plan that tests nothing, without a hit for each row.
``RangeRead`` and ``RangeCount`` execute a ``RangePlan``; they are made once for each shape of query.

Rules of this module: results and errors are those of ``kvmodels.flows.execution.join``, which reads every other plan; a
test compares the two. A pointer entry counts only if its record has this very entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import BatchLoader, EntryLoader, LiveCollection, LiveIndex, Loader
from kvmodels.catalog.keyspace import EntryLayout
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
from kvmodels.flows.execution.combination import Merge, OwnerOf
from kvmodels.flows.execution.join import ResultBatch
from kvmodels.flows.execution.ranges import (
    Candidate,
    Choice,
    Concatenation,
    Position,
    ScanPosition,
    TakenRows,
    bound_at,
)
from kvmodels.flows.hydration.loader import (
    batch_loader_of,
    checked_loader_of,
    entry_loader_of,
    loaded,
    loaded_behind,
    owner_of,
)
from kvmodels.query.planning.planner import RangePlan
from kvmodels.query.plans import KeyRange, QueryPlan, Scan
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
        objects = loaded(batch_loader_of(context, live, None), checked_loader_of(context, live), rows)
        return _batch(objects, rows, taken, len(rows))
    index = live.readable[name]
    load = entry_loader_of(context, live, index)
    suffix = suffix_follow_of(live, index, plan.scans[0].ranges) if len(ranges) == 1 else None
    if suffix is not None:
        return (yield from _read_followed(view, (load, batch_loader_of(context, live, index)), chooser, suffix))
    suffixes = _multi_range_follow_of(live, index, plan.scans[0], chooser)
    if suffixes is not None:
        found = yield from read(ranges, view.guard, follow=suffixes)
        if isinstance(found, GuardFailed):
            return None
        taken = chooser.take(found.ranges)
        rows = _rows(taken)
        return _verified(load, rows, found.followed[: len(rows)], taken)
    follower = _ScanFollower(context, live, index, chooser)
    found = yield from read(ranges, view.guard, follow=follower)
    if isinstance(found, GuardFailed):
        return None
    assert follower.taken is not None  # a read with ``follow`` calls it
    return _verified(load, follower.rows, found.followed, follower.taken)._replace(rows=follower.passed)


def _read_followed(
    view: HeaderView, loaders: tuple[EntryLoader, BatchLoader | None], chooser: Concatenation, suffix: SuffixFollow
) -> Flow[ResultBatch | None]:
    """Read entries that all end in their primary keys at one position; the engine may read both in one step.

    The record of a row that is only read to see whether there are more is read as well, and not used.
    """
    found = yield from read((chooser.pieces[0].wanted,), view.guard, follow=suffix)
    if isinstance(found, GuardFailed):
        return None
    taken = chooser.take(found.ranges)
    rows, (load, batch) = _rows(taken), loaders
    objects, followed = loaded_behind(batch, found, rows[0][0][: suffix.start] if rows else b"", len(rows))
    if objects is not None:
        return _batch(objects, rows, taken, len(rows))
    return _verified(load, rows, followed, taken)


def _verified(load: EntryLoader, rows: list[Row], followed: Sequence[list[Row]], taken: TakenRows) -> ResultBatch:
    """Return the objects of records that have the very entry that led to them."""
    objects = [load(records[0], row[0]) if records else None for row, records in zip(rows, followed, strict=True)]
    kept, passed = [one for one in objects if one is not None], len(rows)
    if len(kept) < len(objects):  # an entry without its record is skipped, and db.check() reports it
        rows = [row for row, one in zip(rows, objects, strict=True) if one is not None]
    return _batch(kept, rows, taken, passed)


def _batch(objects: list[Any], rows: Sequence[Row], taken: TakenRows, passed: int) -> ResultBatch:
    return ResultBatch(objects, (), passed, taken.position, taken.more, True, rows)


def _rows(taken: TakenRows) -> list[Row]:
    parts = taken.rows
    return parts[0][1] if len(parts) == 1 else [row for _, rows in parts for row in rows]


class _ScanFollower:
    """The ``follow`` of a read from entries to their records; keeps the rows of its last call."""

    __slots__ = ("_chooser", "_context", "_index", "_live", "passed", "rows", "taken")

    def __init__(self, context: Context, live: LiveCollection, index: LiveIndex, chooser: Concatenation) -> None:
        self._chooser = chooser
        self._context = context
        self._live = live
        self._index = index
        self.taken: TakenRows | None = None
        self.rows: list[Row] = []
        self.passed = 0

    def __call__(self, ranges: Sequence[list[Row]]) -> Sequence[ReadRange]:
        """Return the keys of the records of the rows that count."""
        self.taken = self._chooser.take(ranges)
        rows = _rows(self.taken)
        self.rows, self.passed = rows, len(rows)
        owners = _owners_of(self._context, self._live, self._index, rows)
        if None in owners:  # no entry of the index
            self.rows = [row for row, pk in zip(rows, owners, strict=True) if pk is not None]
        return _records_of(self._live.layout.prefix, owners)


def suffix_follow_of(live: LiveCollection, index: LiveIndex, ranges: Sequence[KeyRange]) -> SuffixFollow | None:
    """Return the ``SuffixFollow`` from the entries of one range with one value in each column; None for other ranges.

    Such a range begins with the columns and ends where another value begins, so its keys continue with a primary key. A
    unique value has one entry without a primary key, or several with None.
    """
    (start, end), *others = ranges
    if others or index.definition.unique or end is None or end != after_prefix(start):
        return None
    try:
        behind = index.layout.pk_in(start)
    except InvalidKeyError:
        return None
    return None if behind else SuffixFollow(live.layout.prefix, len(start))


def _multi_range_follow_of(
    live: LiveCollection, index: LiveIndex, scan: Scan, chooser: Concatenation
) -> MultiRangeFollow | None:
    """Return the ``MultiRangeFollow`` of the next ranges of a scan, if each has one value in each column; else None."""
    starts: list[int] = []
    for piece in chooser.pieces:
        one = scan.ranges[-1 - piece.step if scan.reverse else piece.step]
        suffix = suffix_follow_of(live, index, (one,))
        if suffix is None:
            return None
        starts.append(suffix.start)
    return MultiRangeFollow(live.layout.prefix, tuple(starts), chooser.size) if starts else None


def _owners_of(context: Context, live: LiveCollection, index: LiveIndex, rows: Sequence[Row]) -> Sequence[bytes | None]:
    """Return the packed primary key in each of some entries, which are in order; None for a row that is no entry."""
    start = _common_start(index.layout, rows)
    if start:
        return [row[0][start:] for row in rows]
    owner = owner_of(context, live, index)
    return [owner(row) for row in rows]


def _records_of(prefix: bytes, owners: Sequence[bytes | None]) -> list[ReadRange]:
    return [_new(ReadRange, (prefix + pk, None, None, False, False)) for pk in owners if pk is not None]


def _common_start(layout: EntryLayout, rows: Sequence[Row]) -> int:
    """Return where the primary key begins in every row; 0 unless all rows have one value in each column.

    Rows are in the order of their keys, or backwards. So if the first and the last begin with the same columns, all do,
    and only at the ends can there be a slot, which has no primary key, or a text that continues with ff.
    """
    if not rows:
        return 0
    first, last = rows[0][0], rows[-1][0]
    try:
        start = len(first) - len(layout.pk_in(first))
    except InvalidKeyError:
        return 0
    low, high = (first, last) if first <= last else (last, first)
    if len(low) == start or not last.startswith(first[:start]) or high[start : start + 1] == b"\xff":
        return 0
    return start


# --- a merge ----------------------------------------------------------------------------------------------------


def read_merge(
    context: Context, view: HeaderView, live: LiveCollection, merge: Merge, indexes: Sequence[LiveIndex]
) -> Flow[ResultBatch | None]:
    """Read the next objects of a merge of scans of these indexes; None when the header has changed."""
    follower = _MergeFollower(merge, live.layout.prefix)
    found = yield from read([piece.wanted for piece in merge.pieces], view.guard, follow=follower)
    if isinstance(found, GuardFailed):
        return None
    loads = [entry_loader_of(context, live, index) for index in indexes]
    objects: list[Any] = []
    kept: list[Candidate] = []
    for candidate, records in zip(follower.found, found.followed, strict=True):
        one = loads[candidate.number](records[0], candidate.row.key) if records else None
        if one is None and records:  # another of its entries may be the true one
            others = (loads[number](records[0], row.key) for number, row in candidate.others)
            one = next((other for other in others if other is not None), None)
        if one is not None:
            objects.append(one)
            kept.append(candidate)
    assert follower.choice is not None  # a read with ``follow`` calls it
    candidates, position, more = follower.choice
    return ResultBatch(objects, kept, len(candidates), position, more, True)


class _MergeFollower:
    """The ``follow`` of a read from the rows of a merge to their records; keeps the choice of its last call."""

    __slots__ = ("_merge", "_prefix", "choice", "found")

    def __init__(self, merge: Merge, prefix: bytes) -> None:
        self._merge = merge
        self._prefix = prefix
        self.choice: Choice | None = None
        self.found: list[Candidate] = []

    def __call__(self, ranges: Sequence[list[Row]]) -> Sequence[ReadRange]:
        """Return the keys of the records of the rows that count."""
        owners: Sequence[OwnerOf] = self._merge.owners
        self.choice = self._merge.choose(ranges)
        owned = [(candidate, owners[candidate.number](candidate.row)) for candidate in self.choice.candidates]
        self.found = [candidate for candidate, pk in owned if pk is not None]
        return _records_of(self._prefix, [pk for _, pk in owned])


# --- a prepared range -------------------------------------------------------------------------------------------


class RangeRead(NamedTuple):
    """Reads the first objects of the queries of a prepared plan in one request.

    Attributes:
        plan: the plan.
        guard: the header, for an index.
        load: makes the object of a record; None for an index.
        batch: makes many objects at once; None if they must be made one by one.
        entries: leads from entries to objects; None for records.
        follows_suffix: every entry of the range ends in the primary key of its record, after the bound columns.
    """

    plan: RangePlan
    guard: Guard | None
    load: Loader | None
    batch: BatchLoader | None
    entries: _EntryRecords | None
    follows_suffix: bool

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
        plan, guard, _, _, entries, follows_suffix = self
        start = plan.key(operands)
        if plan.single:
            wanted = _new(ReadRange, (start, None, None, False, False))
        else:
            wanted = _new(ReadRange, (start, after_prefix(start), limit, plan.reverse, False))

        def answer(found: ReadResult) -> Any:
            rows = RangeRows(self, operands, start, found)
            return rows.objects(limit) if result is None else result(rows)

        follow: Follow | None = None
        if entries is not None:
            follow = SuffixFollow(entries.prefix, len(start)) if follows_suffix else entries.follow
        return OneRequest(Read((wanted,), guard, False, follow), answer, otherwise)


class RangeRows:
    """The rows of one request with a prepared plan."""

    __slots__ = ("_found", "_operands", "_read", "_start", "rows")

    def __init__(self, range_read: RangeRead, operands: Sequence[Any], start: bytes, found: ReadResult) -> None:
        self.rows: Sequence[Row] = found[0][0]
        self._read = range_read
        self._operands = operands
        self._start = start
        self._found = found

    def objects(self, number: int) -> Any:
        """Return the objects of the first rows; AGAIN if an entry leads to no record."""
        rows = self.rows if number >= len(self.rows) else self.rows[:number]
        _, _, load, batch, entries, follows_suffix = self._read
        if entries is None:
            assert load is not None  # there is one of the two
            return loaded(batch, load, rows)
        if follows_suffix:
            objects, followed = loaded_behind(batch, self._found, self._start, len(rows))
            return entries.objects(rows, followed) if objects is None else objects
        followed = self._found[1]
        # A row that is no entry of the index was not followed.
        return entries.objects(rows, followed[: len(rows)]) if len(followed) == len(self.rows) else AGAIN

    def position_behind(self, query: Query, number: int) -> Position:
        """Return the position after so many rows."""
        plan = self._read.plan
        bound = bound_at(self.rows[number - 1][0], including=False, reverse=plan.reverse)
        return Position(plan.bind(query, self._operands), (ScanPosition(0, bound),))


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


class _EntryRecords:
    """Leads from the entries of an index to the objects of their records."""

    __slots__ = ("_owners", "_verified", "prefix")

    def __init__(self, context: Context, live: LiveCollection, index: LiveIndex) -> None:
        self._owners = partial(_owners_of, context, live, index)
        self.prefix = live.layout.prefix
        self._verified: EntryLoader = entry_loader_of(context, live, index)

    def follow(self, found: list[list[Row]]) -> Sequence[ReadRange]:
        """Return the key of each record; fewer than entries if a row is no entry of the index."""
        (rows,) = found
        return _records_of(self.prefix, self._owners(rows))

    def objects(self, entries: Sequence[Row], records: Sequence[list[Row]]) -> Any:
        """Return the objects of the records; AGAIN if an entry leads to none."""
        verified = self._verified
        objects: list[Any] = []
        for entry, record in zip(entries, records, strict=True):
            one = verified(record[0], entry[0]) if record else None
            if one is None:
                return AGAIN
            objects.append(one)
        return objects


def range_read(context: Context, view: HeaderView, live: LiveCollection, plan: RangePlan) -> RangeRead | None:
    """Return the reader of a prepared plan; None if its rows do not lead to objects directly."""
    if not makes_objects(context, live, plan.plan):
        return None
    (scan,) = plan.plan.scans
    index = None if scan.index is None else live.readable[scan.index]
    batch = batch_loader_of(context, live, index)
    if index is None:
        return RangeRead(plan, None, checked_loader_of(context, live), batch, None, False)
    follows_suffix = suffix_follow_of(live, index, scan.ranges) is not None
    return RangeRead(plan, view.guard, None, batch, _EntryRecords(context, live, index), follows_suffix)
