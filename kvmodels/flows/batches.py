"""Read the rows of a plan batch by batch: one engine read for each batch, in one snapshot of header, entries, records.

A read through an index carries the header as guard (rule R3): when the header has changed, a scan that has read
nothing yet is planned again, and one that has goes on only if the generation of its index is still readable.

Promise: a record that is not written between the first and the last batch is returned exactly once, in order.

Rules of this module: bounded memory, and what is read depends on what is asked for, never on the size of the
collection. Where the engine has no snapshots (trait ``snapshots``), entries and records are read one after the
other: a record that changed in between is left out, and for a unique value the two reads are repeated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.errors import IndexChangedError, IndexNotReadyError, RetriesExhaustedError
from kvmodels.flows.context import Context, HeaderView, live_collection, reload_header
from kvmodels.flows.entries import EntryReader, Follower
from kvmodels.flows.requests import Flow, read, sleep
from kvmodels.keys import decode_key, key_successor
from kvmodels.operations import Guard, GuardFailed, ReadRange, ReadResult, Row
from kvmodels.query.continuation import is_same_index, require_same_index, resumed
from kvmodels.query.planner import plan_query
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.live import LiveCollection

__all__ = ["MAX_BATCH", "Batch", "Position", "plan_of", "position_after", "read_batch", "resume"]

MAX_BATCH: Final = 500
"""The most rows of one batch, as Deno's; so much is in memory at once."""

_MAX_WIDTH: Final = 256
"""The most ranges that are read at once when those before them held little."""

_MAX_SPECULATIVE_ROWS: Final = 1_000
"""The most rows that several ranges read at once may give: of each only a part is asked for."""


class Position(NamedTuple):
    """Where a scan stands.

    Attributes:
        plan: what is being read.
        passed: how many ranges, in the direction of the scan, are behind.
        after: the last key that was read in the next range, or None at its beginning.
        width: how many ranges to read at once: doubled while they hold less than was asked for, 1 again when one
            of them holds more than its part.
    """

    plan: QueryPlan
    passed: int = 0
    after: bytes | None = None
    width: int = 1

    @property
    def begins(self) -> bool:
        """Whether nothing has been read yet."""
        return self.passed == 0 and self.after is None


class Batch(NamedTuple):
    """What one read gave.

    Attributes:
        objects: the matching objects, in order, each with the key of the row that it was found at.
        rows: how many rows were passed, matching or not.
        position: where to read on; None at the end.
        more: a further row was seen, so the end is not reached for certain.
    """

    objects: list[tuple[bytes, Any]]
    rows: int
    position: Position | None
    more: bool


class _Piece(NamedTuple):
    """A part of a range that one read asks for, and its number in the direction of the scan."""

    step: int
    wanted: ReadRange


class _Taken(NamedTuple):
    """The rows of one read that are used, the position behind them, and whether there was one more."""

    rows: list[Row]
    position: Position | None
    more: bool


def plan_of(context: Context, query: Query) -> Flow[QueryPlan]:
    """The plan of a query under the present header; raises what ``plan_query`` raises. Cost: usually no read."""
    _, live = yield from live_collection(context, query.schema)
    try:
        return plan_query(query, live)
    except IndexNotReadyError:
        view = yield from reload_header(context)  # another process may have built it since
        return plan_query(query, view.live[query.schema.collection])


def resume(context: Context, query: Query, cursor: str) -> Flow[Position]:
    """The position that a cursor names.

    Raises:
        InvalidCursorError, IndexChangedError: see ``kvmodels.query.continuation.resumed``.
    """
    _, live = yield from live_collection(context, query.schema)
    try:
        plan, key = resumed(query, live, cursor)
    except IndexChangedError:
        view = yield from reload_header(context)  # another process may have built it since
        plan, key = resumed(query, view.live[query.schema.collection], cursor)
    return position_after(plan, key)


def position_after(plan: QueryPlan, key: bytes) -> Position:
    """The position behind a key, in the direction of the plan; logarithmic in the number of ranges."""
    starts = [key_range.start for key_range in plan.ranges]
    if plan.reverse:
        return Position(plan, len(starts) - bisect_left(starts, key), key)
    at = bisect_right(starts, key) - 1
    end = plan.ranges[at].end if at >= 0 else None
    return Position(plan, at if end is not None and key < end else at + 1, key)


def read_batch(
    context: Context, query: Query, position: Position, size: int, *, peek: bool = True, records: bool = True
) -> Flow[Batch]:
    """Read the next rows of a query.

    Args:
        context: shared by the flows of the database.
        query: what is asked for.
        position: where to read on; ``Position(plan)`` to begin.
        size: how many rows to pass, 1 to ``MAX_BATCH``.
        peek: ask for one row more, to learn whether the end is reached.
        records: read the records and give objects; else rows are only counted.

    Returns:
        The batch. When the header has changed before anything was read, it has no rows, and its position has the
        new plan: the caller decides again what it needs.

    Raises:
        NoUsableIndexError, IndexNotReadyError: the query was planned again, see ``plan_query``.
        IndexChangedError: the index was rebuilt or dropped since the position was made.
        DecodeError: a record cannot be read.

    Cost: one engine read of ``size`` entries (one more with ``peek``) and ``size`` records.
    """
    while True:  # again only when another process changed the schema in between
        view, live = yield from live_collection(context, query.schema)
        if position.begins and not is_same_index(live, position.plan):
            return Batch([], 0, Position(plan_query(query, live)), more=False)
        require_same_index(live, position.plan)
        reading = _Reading(context, view, live, position, (size, peek))
        batch = yield from (reading.objects() if records else reading.count())
        if batch is not None:
            return batch
        yield from reload_header(context)


class _Reading:
    """One batch of one plan under one header."""

    def __init__(
        self, context: Context, view: HeaderView, live: LiveCollection, position: Position, extent: tuple[int, bool]
    ) -> None:
        self._context = context
        self._position = position
        self._plan = position.plan
        self._guard: Guard | None = view.guard if self._plan.index is not None else None
        self._reader = EntryReader(context, live, self._plan)
        size, peek = extent
        self._size = min(size, context.limits.max_ranges, context.limits.max_read_entries - 1)
        self._pieces = self._window(self._size + 1 if peek else self._size)

    def count(self) -> Flow[Batch | None]:
        """Pass rows without reading their records; None when the header has changed."""
        taken = yield from self._rows()
        return None if taken is None else Batch([], len(taken.rows), taken.position, taken.more)

    def objects(self) -> Flow[Batch | None]:
        """Read rows and their records; None when the header has changed."""
        if self._plan.copies:
            taken = yield from self._rows()
            if taken is None:
                return None
            decoded = [(row.key, self._reader.from_copy(row)) for row in taken.rows]
        else:
            followed = yield from (self._one_snapshot() if self._context.traits.snapshots else self._two_reads())
            if followed is None:
                return None
            taken, decoded = followed
        found = [(key, instance) for key, instance in decoded if instance is not None]
        return Batch(found, len(taken.rows), taken.position, taken.more)

    # --- what to ask for --------------------------------------------------------------------------------------

    def _window(self, limit: int) -> list[_Piece]:
        """The ranges of the next read, in the direction of the scan."""
        plan, passed = self._plan, self._position.passed
        total = len(plan.ranges)
        width = min(limit if plan.points else self._position.width, self._context.limits.max_ranges)
        part = limit if width == 1 else min(limit, max(1, _MAX_SPECULATIVE_ROWS // width))
        pieces: list[_Piece] = []
        for step in range(passed, min(passed + width, total)):
            start, end = plan.ranges[total - 1 - step if plan.reverse else step]
            if end is None:
                pieces.append(_Piece(step, ReadRange(start)))
                continue
            if step == passed and self._position.after is not None:
                if plan.reverse:
                    end = min(end, self._position.after)
                else:
                    start = max(start, key_successor(self._position.after))
            pieces.append(_Piece(step, ReadRange(start, max(start, end), part, plan.reverse)))
        return pieces

    def _read(self, follow: Follower | None = None) -> Flow[ReadResult | GuardFailed]:
        if not self._pieces:
            return ReadResult([], [], b"")
        return (yield from read([piece.wanted for piece in self._pieces], self._guard, follow=follow))

    def _rows(self) -> Flow[_Taken | None]:
        result = yield from self._read()
        return None if isinstance(result, GuardFailed) else self._take(result.ranges)

    # --- what came back ---------------------------------------------------------------------------------------

    def _take(self, ranges: Sequence[list[Row]]) -> _Taken:
        """The first ``size`` rows, and where they end."""
        rows: list[Row] = []
        behind = self._position
        for piece, found in zip(self._pieces, ranges, strict=True):
            for row in found:
                if len(rows) == self._size:
                    return _Taken(rows, behind, more=True)
                rows.append(row)
                behind = self._behind(piece, row)
            if piece.wanted.limit is not None and len(found) >= piece.wanted.limit:
                return _Taken(rows, behind._replace(width=1), more=False)
        passed = self._position.passed + len(self._pieces)
        if passed >= len(self._plan.ranges):
            return _Taken(rows, None, more=False)
        width = min(self._position.width * 2, _MAX_WIDTH)
        return _Taken(rows, Position(self._plan, passed, None, width), more=False)

    def _behind(self, piece: _Piece, row: Row) -> Position:
        if piece.wanted.end is None:
            return self._position._replace(passed=piece.step + 1, after=None)
        return self._position._replace(passed=piece.step, after=row.key)

    # --- entries to records -----------------------------------------------------------------------------------

    def _one_snapshot(self) -> Flow[tuple[_Taken, list[tuple[bytes, Any]]] | None]:
        follower = Follower(self._reader, self._size)
        result = yield from self._read(follower)
        if isinstance(result, GuardFailed):
            return None
        taken = self._take(result.ranges)
        return taken, self._joined(taken.rows, follower.keys, result.followed)[0]

    def _two_reads(self) -> Flow[tuple[_Taken, list[tuple[bytes, Any]]] | None]:
        """Entries, then records: between the two, a record may change. A unique value then is looked up again."""
        policy, started = self._context.retry, self._context.monotonic()
        for attempt in range(1, policy.attempts + 1):
            pause = policy.pause(attempt, self._context.random())
            if pause > 0:
                yield from sleep(pause)
            follower = Follower(self._reader, self._size)
            result = yield from self._read()
            if isinstance(result, GuardFailed):
                return None
            wanted = follower(result.ranges)
            records = yield from read(wanted, self._guard)
            if isinstance(records, GuardFailed):
                return None
            taken = self._take(result.ranges)
            objects, complete = self._joined(taken.rows, follower.keys, records.ranges)
            if complete or not self._plan.points:
                return taken, objects
        raise RetriesExhaustedError(
            "a unique entry and its record never agreed in two reads",
            attempts=policy.attempts,
            elapsed_s=round(self._context.monotonic() - started, 6),
            failed_checks=tuple(decode_key(piece.wanted.start) for piece in self._pieces),
            hint="The record is rewritten all the time, or its entry is damaged: run db.check().",
        )

    def _joined(
        self, rows: Sequence[Row], keys: Sequence[bytes | None], followed: Sequence[list[Row]]
    ) -> tuple[list[tuple[bytes, Any]], bool]:
        """Each entry with the object that it leads to, and whether every entry had its record."""
        records = iter(followed)
        objects: list[tuple[bytes, Any]] = []
        complete = True
        for row, key in zip(rows, keys, strict=True):
            found = next(records) if key is not None else []
            document = self._reader.document_behind(row, found[0]) if found else None
            if document is None:
                complete = False
            else:
                objects.append((row.key, self._reader.from_document(found[0], document)))
        return objects, complete
