"""Change feeds: the present records and every later change, in steps whose positions can be stored.

A step of the first scan reads the next records, and then the changes since the position of all keys up to the last of
these records. The changes are read later, so each of them replaces a record that the step has read. The position
advances to the commit that the changes reach, and is right for all keys up to the new cursor. So a scan may be
interrupted for as long as the change log reaches back, and no removal is missed.

Rules of this module: nothing is open between two steps. A position is told only if the state behind it is durable. If
the changes do not reach the state of the records yet, the step returns changes of the keys before the old cursor alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import Loader
from kvmodels.core.keys import key_range, key_successor
from kvmodels.core.lineage import LINEAGE_KEY
from kvmodels.core.operations import (
    AtomicWrite,
    Change,
    Check,
    ReadRange,
    ReadResult,
    Row,
    Set,
    format_versionstamp,
    point,
)
from kvmodels.errors import DecodeError, InvalidArgumentError, ResumeExpiredError
from kvmodels.flows.arguments import require_limit
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, Settle, read, read_changes, try_commit
from kvmodels.flows.feeds.position import Position, resume_position, versionstamp_bytes
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import row_of_class, shown_key
from kvmodels.flows.kv.record_watch import ChangedRecord
from kvmodels.schema.definition.definition import ModelSchema

M = TypeVar("M")

BEGIN_AGAIN = (
    "Begin again with position=None, and remove what is not among the present records; a follower does both with "
    "run(rescan=True)."
)


@dataclass(frozen=True, slots=True)
class ChangePage(Generic[M]):
    """Changes of records, with the position after them; iterating over it yields the changes.

    Attributes:
        changes: each record once, in its latest version, in the order of the last change; present records of the first
            scan follow in the order of their keys.
        position: where the next call continues. Store it together with the result.
        has_more: whether the next call returns more at once: the first scan or the changes are not complete.
    """

    changes: list[ChangedRecord[M]]
    position: Position
    has_more: bool

    def __iter__(self) -> Iterator[ChangedRecord[M]]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


class FeedStep(NamedTuple):
    """The result of a step: changes, then present records of the first scan, each with the number of its collection."""

    changes: list[tuple[int, Change]]
    rows: list[tuple[int, Row]]
    position: Position
    has_more: bool


class ChangeFeed:
    """The changes of some collections; it holds no state of a reader."""

    def __init__(self, context: Context, schemas: Sequence[ModelSchema]) -> None:
        self._context = context
        ends = [key_range(prefix=(schema.collection,), start=None, end=None) for schema in schemas]
        self._ranges = sorted((low, high, number) for number, (low, high) in enumerate(ends))
        names = "\0".join(sorted(schema.collection for schema in schemas))
        self._scope = hashlib.sha256(names.encode()).hexdigest()[:16]

    def step(self, position: Position | None, limit: int) -> Flow[FeedStep]:
        """Return the next changes after a position; None begins.

        Raises ResumeExpiredError, InvalidArgumentError, UnsupportedError.
        """
        self._require_scope(position)
        cursor = self._cursor(position)
        size = min(limit, self._context.limits.max_read_entries)
        scan = None if cursor is None else self._next_range(cursor, size)
        found = yield from self._read(scan)
        lineage = yield from self._lineage(found.ranges[0], position)
        since = found.versionstamp if position is None else versionstamp_bytes(position)
        rows = found.ranges[1] if scan else []
        end = None if scan is None else self._after(scan, rows, size)
        changes, through, complete = yield from self._changes(since, end, size)
        if scan is not None and through < found.versionstamp:
            # The changes end before the state of the rows, which are read again by a later step.
            rows, end = [], scan.start
            changes = [(number, change) for number, change in changes if change.key < scan.start]
        changed = {change.key for _, change in changes}
        number = 0 if scan is None else self._number_at(scan.start)
        present = [(number, row) for row in rows if row.key not in changed]
        reached = Position(lineage, self._scope, format_versionstamp(through), None if end is None else end.hex())
        return FeedStep(changes, present, reached, end is not None or not complete)

    def _require_scope(self, position: Position | None) -> None:
        if position is not None and position.scope != self._scope:
            raise InvalidArgumentError(
                "the position belongs to other collections",
                argument="position",
                value=str(position),
                hint="Pass it to the models that it was made for. For other models begin with None.",
            )

    def _cursor(self, position: Position | None) -> bytes | None:
        if position is None:
            return self._ranges[0][0]
        if position.cursor is None:
            return None
        cursor = bytes.fromhex(position.cursor)
        if not any(low <= cursor <= high for low, high, _ in self._ranges):
            raise InvalidArgumentError("this is not a position", argument="position", value=str(position))
        return cursor

    def _next_range(self, cursor: bytes, size: int) -> ReadRange:
        low, high, _ = next(one for one in self._ranges if cursor < one[1])
        return ReadRange(max(low, cursor), high, size)

    def _number_at(self, start: bytes) -> int:
        return next(number for low, high, number in self._ranges if low <= start < high)

    def _after(self, scan: ReadRange, rows: Sequence[Row], size: int) -> bytes | None:
        """Return the key up to which the scan has read; None at its end."""
        if len(rows) == size:
            return key_successor(rows[-1].key)
        return next((low for low, _, _ in self._ranges if low > scan.start), None)

    def _read(self, scan: ReadRange | None) -> Flow[ReadResult]:
        """Read the row of the lineage, and the next records in a state that is durable."""
        ranges = [point(LINEAGE_KEY)] if scan is None else [point(LINEAGE_KEY), scan]
        while True:
            found = yield from read(ranges)
            if scan is None:
                return found
            durable: bool = yield Settle(found.versionstamp)
            if durable:
                return found

    def _lineage(self, rows: Sequence[Row], position: Position | None) -> Flow[str]:
        """Return the lineage of the store, which gets one if it has none. Raises ResumeExpiredError."""
        while not rows:
            value, encoding = self._context.codec.encode(self._context.new_token())
            first = AtomicWrite((Check(LINEAGE_KEY, None),), (Set(LINEAGE_KEY, value, encoding),))
            yield from try_commit(first)
            rows = (yield from read([point(LINEAGE_KEY)])).ranges[0]
        lineage: Any = self._context.codec.decode(rows[0].value, rows[0].encoding, LINEAGE_KEY)
        if not isinstance(lineage, str):
            raise DecodeError("the row of the lineage is damaged", key=("__kvmodels__", "lineage"), reason="no text")
        if position is not None and position.lineage != lineage:
            raise ResumeExpiredError(
                "the position belongs to another store, or to this one before it was restored",
                since=position.versionstamp,
                oldest=None,
                newest=None,
                hint=BEGIN_AGAIN,
            )
        return lineage

    def _changes(
        self, since: bytes, end: bytes | None, size: int
    ) -> Flow[tuple[list[tuple[int, Change]], bytes, bool]]:
        """Return the changes of the keys before ``end`` in order, the commit that they reach, and if these are all.

        The ranges are read one after the other, each up to another commit. Changes after the first of these commits are
        left out.
        """
        found: list[tuple[int, Change]] = []
        reached: list[bytes] = []
        complete = True
        for low, high, number in self._ranges:
            if end is not None and low >= end:
                break
            stop = high if end is None else min(high, end)
            try:
                changes, through = yield from read_changes(ReadRange(low, stop, size), since)
            except ResumeExpiredError as error:
                raise _expired(error) from error
            found += [(number, change) for change in changes]
            reached.append(through)
            complete = complete and len(changes) < size
        through = min(reached, default=since)  # also of a complete range: a later one may have been written meanwhile
        found.sort(key=lambda one: one[1].versionstamp)
        return [one for one in found if one[1].versionstamp <= through], through, complete


def _expired(error: ResumeExpiredError) -> ResumeExpiredError:
    at = {"since": error.since, "oldest": error.oldest, "newest": error.newest}
    return ResumeExpiredError(error.message, **at, hint=BEGIN_AGAIN)


class RecordFeed:
    """The changes of the records of one model."""

    def __init__(self, context: Context, schema: ModelSchema) -> None:
        self._context = context
        self._schema = schema
        self._feed = ChangeFeed(context, (schema,))

    def step(self, position: Position | None, limit: int) -> Flow[ChangePage[Any]]:
        """Return the next changes as objects; errors as for ``ChangeFeed.step``, and DecodeError."""
        step = yield from self._feed.step(position, limit)
        load = yield from self._loader()
        # A record of another class may have been one of this class before, so its change is reported as a removal.
        changes = [self._record(change.key, self._own(change.row), load) for _, change in step.changes]
        present = [self._record(row.key, row, load) for _, row in step.rows if self._own(row) is not None]
        return ChangePage(changes + present, step.position, step.has_more)

    def _own(self, row: Row | None) -> Row | None:
        return row_of_class(self._context, self._schema, row)

    def _record(self, key: bytes, own: Row | None, load: Loader) -> ChangedRecord[Any]:
        shown = shown_key(self._context.layouts[self._schema.collection].unpack_key(key))
        if own is None:
            return ChangedRecord(shown, None, None)
        return ChangedRecord(shown, load(own), format_versionstamp(own.versionstamp))

    def _loader(self) -> Flow[Loader]:
        _, live = yield from live_collection(self._context, self._schema)
        return loader_of(self._context, live, checks=True)


def changed_since(context: Context, schema: ModelSchema, position: object, limit: object) -> Flow[ChangePage[Any]]:
    """Return the next page of changes after a position. Raises InvalidArgumentError at once."""
    require_limit(limit, "Give the number of changes of a page, 1 or more.")
    assert isinstance(limit, int)
    return RecordFeed(context, schema).step(resume_position("position", position), limit)


show_public_path(ChangePage)
