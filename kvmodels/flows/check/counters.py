"""Count the records of a collection again, and compare the counters of its aggregate indexes.

A counter and the records of its group are many keys, so they must be read at one moment: in a snapshot. On an engine
without snapshots, every read returns the versionstamp of the store: if nothing was committed from the first to the last
read, they see one state; otherwise the counters are not compared. They are not compared either if a record cannot be
read, because its contribution is unknown.

Rules of this module: the recount only reads; it runs in a snapshot and therefore does not change the cached header. A
wrong counter is never set to another number, because writers add to it without reading it: the index is rebuilt.
Source: FoundationDB Record Layer, which verifies atomic indexes in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels.catalog.catalogue import IndexState, StoredIndex
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, after_prefix
from kvmodels.errors import KvModelsError, SnapshotExpiredError
from kvmodels.flows.check.findings import REPAIR, Finding, shown_key
from kvmodels.flows.context import Context, HeaderView, read_header, reload_header
from kvmodels.flows.effects import Flow, read, rows_at_once
from kvmodels.flows.evolution.build import rebuild_index
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.hydration.rows import stored_of
from kvmodels.indexing.entries import contribution, fold, from_u64, to_u64
from kvmodels.schema.definition.definition import ModelSchema

ROWS_AT_ONCE = 500
U64_ENCODING = 2
U64_BYTES = 8


class WrongCounter(NamedTuple):
    """A counter that differs from the records; ``found`` is None if it is missing or not a counter."""

    stored: StoredIndex
    key: bytes
    expected: int
    found: int | None
    reason: str


class Recount(NamedTuple):
    """The result of counting one collection.

    Attributes:
        scanned: the number of rows read.
        wrong: the counters that are certainly wrong.
        unchecked: the indexes whose counters could not be compared, as ``"collection.index: reason"``.
    """

    schema: ModelSchema
    scanned: int
    wrong: tuple[WrongCounter, ...]
    unchecked: tuple[str, ...] = ()


def recount(context: Context, schema: ModelSchema, pace: Pace = UNPACED) -> Flow[Recount]:
    """Count again for every READABLE aggregate index; run it in a snapshot if the engine supports that.

    Cost: reads every record and every counter once, in batches of 500. Memory: one batch, and a number per counter.
    Raises SnapshotExpiredError if it takes longer than the maximum age of a snapshot, also because of the pace.
    """
    try:
        view = yield from read_header(context)
        counting = _Counting(context, view.live[schema.collection], view, pace)
        decided = yield from counting.records()
        wrong = (yield from counting.compared()) if decided else []
    except SnapshotExpiredError as error:
        raise SnapshotExpiredError(
            "the records could not be counted within the life of one snapshot",
            url=error.url,
            hint="Open the database with a larger snapshot_max_age (seconds), or check one model: db.check(Model).",
        ) from error
    return Recount(schema, counting.scanned, tuple(wrong), counting.unchecked)


class _Counting:
    """One pass over the records and one over the counters of a collection."""

    def __init__(self, context: Context, live: LiveCollection, view: HeaderView, pace: Pace) -> None:
        self._pace = pace
        self._context = context
        self._live = live
        self._view = view
        self._indexes = [ix for ix in live.maintained if ix.readable and ix.definition.aggregates is not None]
        self._totals: list[dict[bytes, int]] = [{} for _ in self._indexes]
        self._moment: bytes | None = None
        self._obstacle: str | None = None
        self.scanned = 0
        self._passed = 0

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The indexes whose counters could not be compared, with the reasons."""
        collection, reason = self._live.schema.collection, self._obstacle
        return tuple(f"{collection}.{ix.stored.name}: {reason}" for ix in self._indexes) if reason else ()

    def records(self) -> Flow[bool]:
        """Add up the contributions of all records; return False if that is not possible."""
        if not self._indexes:
            return False
        if not self._context.traits.versioned_reads:
            self._obstacle = "the engine does not report the state of a read, so counts cannot be compared"
            return False
        prefix = self._live.layout.prefix
        start = prefix
        while True:
            rows = yield from self._batch(start, prefix, None)
            if rows is None:
                return False
            if not all(map(self._add, rows)):
                self._obstacle = "a record cannot be read, so its contribution is unknown"
                return False
            if not rows:
                return True
            start = key_successor(rows[-1].key)

    def _add(self, row: Row) -> bool:
        layout = self._live.layout
        if not layout.is_record_key(row.key):
            return True  # foreign: not counted
        try:
            stored = stored_of(self._context, self._live, row)
            if not layout.names(stored.held, row.key):
                return False
            for index, totals in zip(self._indexes, self._totals, strict=True):
                fold(totals, contribution(index, stored.of(index), row.expire_at), +1)
        except KvModelsError:
            return False
        return True

    def compared(self) -> Flow[list[WrongCounter]]:
        """Return every counter that differs; an empty list if the store has changed meanwhile."""
        wrong: list[WrongCounter] = []
        for index, totals in zip(self._indexes, self._totals, strict=True):
            prefix = index.layout.prefix
            start = prefix
            while True:
                rows = yield from self._batch(start, prefix, index.stored.name)
                if rows is None:
                    return []
                if not rows:
                    break
                judged = (_judged(index, row, totals.pop(row.key, 0)) for row in rows)
                wrong.extend(found for found in judged if found is not None)
                start = key_successor(rows[-1].key)
            wrong.extend(
                WrongCounter(index.stored, key, expected, None, "the counter is not there")
                for key, expected in totals.items()
                if to_u64(expected)
            )
        return wrong

    def _batch(self, start: bytes, prefix: bytes, index: str | None) -> Flow[list[Row] | None]:
        """Return the next rows; None if the store has changed since the first ones."""
        size = rows_at_once(self._context.limits, self._pace.size(ROWS_AT_ONCE))
        span = ReadRange(start, after_prefix(prefix), size)
        result = yield from read((span,), self._view.guard)
        if isinstance(result, GuardFailed) or result.versionstamp != (self._moment or result.versionstamp):
            self._obstacle = "the store changed while it was counted; check again"
            return None
        self._moment = result.versionstamp
        rows = result.ranges[0]
        self.scanned += len(rows)
        if rows:
            self._passed = len(rows) + (0 if start == prefix else self._passed)
            progress = SchemaProgress("check", self._live.schema.collection, index, self._passed)
            left = ReadRange(key_successor(rows[-1].key), after_prefix(prefix))
            yield from self._pace.after(progress, len(rows), left)
        return rows


def _judged(index: LiveIndex, row: Row, expected: int) -> WrongCounter | None:
    if row.encoding != U64_ENCODING or len(row.value) != U64_BYTES or row.expire_at is not None:
        return WrongCounter(index.stored, row.key, expected, None, "not a counter")
    found = int.from_bytes(row.value, "little")
    if found == to_u64(expected):
        return None
    return WrongCounter(index.stored, row.key, expected, from_u64(found), "another number than the records give")


def mend_counters(context: Context, recounted: Recount, *, repair: bool) -> Flow[tuple[Finding, ...]]:
    """Return the findings of a recount; with ``repair`` each index concerned is rebuilt first.

    Cost: per index that is built a rewrite of every record, and two header commits. Raises SchemaMismatchError: this
    process may not write the collection; RetriesExhaustedError: a batch of a build met a conflict in every attempt.
    """
    mended: set[str] = set()
    if repair:
        for stored in {counter.stored.name: counter.stored for counter in recounted.wrong}.values():
            if (yield from _rebuilt(context, recounted.schema, stored)):
                mended.add(stored.name)
    return tuple(_finding(recounted.schema, counter, counter.stored.name in mended) for counter in recounted.wrong)


def _rebuilt(context: Context, schema: ModelSchema, stored: StoredIndex) -> Flow[bool]:
    """Return whether the wrong generation has been replaced by one that is complete."""
    view = yield from reload_header(context)
    if view.header.collections[schema.collection].index(stored.name, stored.generation) != stored:
        return False  # dropped or replaced by another process: the next check finds out
    report = yield from rebuild_index(context, schema, stored.name)
    return report.state is IndexState.READABLE


def _finding(schema: ModelSchema, counter: WrongCounter, repaired: bool) -> Finding:
    key = shown_key(counter.key)
    return Finding(
        kind="counter",
        collection=schema.collection,
        index=counter.stored.name,
        key=key,
        primary_key=None,
        reason=counter.reason,
        repaired=repaired,
        group=key[5:-1],
        expected=counter.expected,
        found=counter.found,
        hint=REPAIR,
    )
