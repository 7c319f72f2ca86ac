"""Read a batch of objects: of a plan of one scan that tests nothing, in one loop over rows without a hit for each.

Rules of this module: the results, and the errors, are those of ``kvmodels.flows.execution.join``, which reads every
other plan; a test compares the two. A pointer entry is kept only if its record has this very entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.compiled import BatchLoader, EntryLoader
from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.core.operations import PLAIN_ROWS, GuardFailed, ReadRange, Row, Tail, after_prefix
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.execution.concat import Concatenation, TakenRows
from kvmodels.flows.execution.ranges import Position
from kvmodels.flows.hydration.loader import (
    batch_loader_of,
    checked_loader_of,
    entry_loader_of,
    loaded,
    loaded_behind,
    owner_of,
)
from kvmodels.query.plans import KeyRange, QueryPlan

_new: Final = tuple[Any, ...].__new__


class ScanBatch(NamedTuple):
    """What one read gave: objects, the row that each was found at, rows passed, where to read on, whether more."""

    objects: list[Any]
    entries: Sequence[Row]
    passed: int
    position: Position | None
    more: bool


def makes_objects(context: Context, live: LiveCollection, plan: QueryPlan) -> bool:
    """Whether every row of a plan leads to one record, whose object is the result."""
    if (
        not switches.fast_kinds
        or plan.combine != "scan"
        or len(plan.scans) != 1
        or plan.matches is not None
        or live.schema.straight is None
    ):
        return False
    scan = plan.scans[0]
    if scan.fans_out or scan.matches is not None or not context.traits.snapshots:
        return False
    return scan.index is None or not scan.copies


def read_objects(
    context: Context, view: HeaderView, live: LiveCollection, plan: QueryPlan, chooser: Concatenation
) -> Flow[ScanBatch | None]:
    """The next objects; None when the header has changed.

    Raises:
        DecodeError: a record cannot be read.
    """
    name, ranges = plan.scans[0].index, [piece.wanted for piece in chooser.pieces]
    if name is None:
        result = yield from read(ranges, follow=PLAIN_ROWS)
        taken = chooser.take(result.ranges)
        rows, checked = _rows(taken), checked_loader_of(context, live)
        objects = loaded(batch_loader_of(context, live, None), checked, rows)
        return ScanBatch(objects, rows, len(rows), taken.position, taken.more)
    index = live.readable[name]
    tail = tail_of(live, index, plan.scans[0].ranges) if len(ranges) == 1 else None
    if tail is not None:
        loaders = entry_loader_of(context, live, index), batch_loader_of(context, live, index)
        return (yield from _read_tails(view, loaders, chooser, tail))
    follower = _Follower(context, live, index, chooser)
    found = yield from read(ranges, view.guard, follow=follower)
    if isinstance(found, GuardFailed):
        return None
    assert follower.taken is not None  # a read with ``follow`` calls it
    load = entry_loader_of(context, live, index)
    return _verified(load, follower.rows, found.followed, follower.taken)._replace(passed=follower.passed)


def _verified(load: EntryLoader, rows: list[Row], followed: Sequence[list[Row]], taken: TakenRows) -> ScanBatch:
    """The objects of records that have the very entry that led to them."""
    objects = [load(records[0], row[0]) if records else None for row, records in zip(rows, followed, strict=True)]
    kept, passed = [one for one in objects if one is not None], len(rows)
    if len(kept) < len(objects):  # an entry without its record is passed over, and db.check() reports it
        rows = [row for row, one in zip(rows, objects, strict=True) if one is not None]
    return ScanBatch(kept, rows, passed, taken.position, taken.more)


def _read_tails(
    view: HeaderView, loaders: tuple[EntryLoader, BatchLoader | None], chooser: Concatenation, tail: Tail
) -> Flow[ScanBatch | None]:
    """The same for entries that all end in their primary keys at one place, in a step of the engine for each.

    The record of the row by which more is known is read as well, and not used.
    """
    found = yield from read((chooser.pieces[0].wanted,), view.guard, follow=tail)
    if isinstance(found, GuardFailed):
        return None
    taken = chooser.take(found.ranges)
    rows, (load, batch) = _rows(taken), loaders
    objects, followed = loaded_behind(batch, found, rows[0][0][: tail.start] if rows else b"", len(rows))
    if objects is not None:
        return ScanBatch(objects, rows, len(rows), taken.position, taken.more)
    return _verified(load, rows, followed, taken)


def tail_of(live: LiveCollection, index: LiveIndex, ranges: Sequence[KeyRange]) -> Tail | None:
    """What leads to the records from the entries of one range with one value in each column; None for others.

    Such a range begins with the columns and ends where another value begins, so what stands behind the columns is a
    primary key. A unique value has one entry, which has none, or several with None.
    """
    (start, end), *others = ranges
    if others or index.definition.unique or end is None or end != after_prefix(start):
        return None
    try:
        behind = index.layout.pk_in(start)
    except InvalidKeyError:
        return None
    return None if behind else Tail(live.layout.prefix, len(start))


def _rows(taken: TakenRows) -> list[Row]:
    parts = taken.rows
    return parts[0][1] if len(parts) == 1 else [row for _, rows in parts for row in rows]


class _Follower:
    """The ``follow`` of a read: from entries to their records. It remembers what it took from the rows given last."""

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
        """The keys of the records behind the rows that count."""
        self.taken = self._chooser.take(ranges)
        rows, prefix = _rows(self.taken), self._live.layout.prefix
        self.rows, self.passed = rows, len(rows)
        owners = owners_of(self._context, self._live, self._index, rows)
        if None in owners:  # no entry of the index
            self.rows = [row for row, pk in zip(rows, owners, strict=True) if pk is not None]
        return records_of(prefix, owners)


def owners_of(context: Context, live: LiveCollection, index: LiveIndex, rows: Sequence[Row]) -> Sequence[bytes | None]:
    """The packed primary key in each of some entries, which come in order; None for a row that is no entry."""
    start = _common_start(index.layout, rows)
    if start:
        return [row[0][start:] for row in rows]
    owner = owner_of(context, live, index)
    return [owner(row) for row in rows]


def records_of(prefix: bytes, owners: Sequence[bytes | None]) -> list[ReadRange]:
    """What reads the records with these primary keys."""
    # The named tuples are made as their own constructor does, without the call of it.
    return [_new(ReadRange, (prefix + pk, None, None, False, False)) for pk in owners if pk is not None]


def _common_start(layout: EntryLayout, rows: Sequence[Row]) -> int:
    """Where the primary key begins in every row; 0 if the rows do not all have one value in each column.

    Rows come in the order of their keys, or backwards. So if the first and the last begin with the same columns, all
    do, and only at the ends can there be a slot, which has no primary key, or a text that goes on with ff.
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
