"""Count the records of a collection again, and compare the counters of its indexes.

A counter and the records of its group are many keys, so they must be read at one moment: in a snapshot. On an engine
without snapshots all are read twice: the counters, the records, the records again, the counters again. If every row has
the same versionstamp both times, what was read is the state of the moment between the two readings of the records;
otherwise the counters are not compared. They are not compared either if a record cannot be read, because its
contribution is unknown. A row that exists only between its two readings is not seen. It belongs to no counter that
stayed the same, unless its commits leave every counter as it was: the worst case is a finding that is none, whose
repair builds the index once more.

A counter that reaches 0 keeps its row. A repair removes such rows, each under a check of its versionstamp.

Rules of this module: the recount only reads; it runs in a snapshot and therefore does not change the cached header. A
wrong counter is never set to another number, because writers add to it without reading it: the index is rebuilt.
Source: FoundationDB Record Layer, which verifies atomic indexes in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from kvmodels.catalog.catalogue import IndexState, StoredIndex
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import (
    U64_ENCODING,
    AtomicWrite,
    Check,
    Conflict,
    Delete,
    GuardFailed,
    ReadRange,
    Row,
    after_prefix,
)
from kvmodels.errors import InvalidKeyError, KvModelsError, SnapshotLostError
from kvmodels.flows.check.findings import REPAIR, Finding, shown_key
from kvmodels.flows.context import Context, HeaderView, read_header, reload_header
from kvmodels.flows.effects import Flow, commit, read, rows_at_once
from kvmodels.flows.evolution.build import rebuild_index
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.hydration.rows import stored_of
from kvmodels.indexing.entries import StoredRecord, fold, from_u64, to_u64
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import ModelSchema

ROWS_AT_ONCE = 500
U64_BYTES = 8

_CHANGED = "the store changed while it was counted; check again"
_UNREADABLE = "a record cannot be read, so its contribution is unknown"


class WrongCounter(NamedTuple):
    """A counter that differs from the records; ``found`` is None if it is missing or not a counter."""

    stored: StoredIndex
    key: bytes
    expected: int
    found: int | None
    reason: str
    group: tuple[Any, ...]


class Recount(NamedTuple):
    """The result of counting one collection."""

    schema: ModelSchema
    scanned: int
    wrong: tuple[WrongCounter, ...]
    unchecked: tuple[str, ...] = ()
    unused: tuple[Check, ...] = ()
    """Counters of 0 that no record adds to, each as a check that it is unchanged."""


def recount(context: Context, schema: ModelSchema, pace: Pace = UNPACED) -> Flow[Recount]:
    """Count again for every READABLE index with counters; run it in a snapshot if the engine supports that."""
    try:
        view = yield from read_header(context)
        counting = _Counting(context, view.live[schema.collection], view, pace)
        wrong = yield from counting.compared()
    except SnapshotLostError as error:
        raise SnapshotLostError(
            "the records could not be counted, because the store has ended the snapshot",
            url=error.url,
            reason=error.reason,
            hint="Check again, or one model after the other: db.check(Model).",
        ) from error
    return Recount(schema, counting.scanned, tuple(wrong), counting.unchecked, tuple(counting.unused))


class _Counting:
    """The readings of the records and the counters of a collection."""

    def __init__(self, context: Context, live: LiveCollection, view: HeaderView, pace: Pace) -> None:
        self._pace = pace
        self._context = context
        self._live = live
        self._view = view
        self._indexes = [ix for ix in live.maintained if ix.readable and ix.definition.has_counters]
        self._totals: list[dict[bytes, int]] = [{} for _ in self._indexes]
        self._obstacle: str | None = None
        self._moment: bytes | None = None
        self.scanned = 0
        self.unused: list[Check] = []

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The indexes whose counters could not be compared, with the reasons."""
        collection, reason = self._live.schema.collection, self._obstacle
        return tuple(f"{collection}.{ix.stored.name}: {reason}" for ix in self._indexes) if reason else ()

    def compared(self) -> Flow[list[WrongCounter]]:
        """Return every counter that differs from the records, of the indexes that can be compared."""
        try:
            return (yield from self._compared()) if self._indexes else []
        except _IncomparableError as obstacle:
            self._obstacle = str(obstacle)
            return []

    def _compared(self) -> Flow[list[WrongCounter]]:
        twice = not self._context.traits.snapshots
        before: dict[str, bytes] = {}
        for index in self._indexes if twice else ():
            before[index.stored.name] = yield from self._walk(index, _skip)
        records = yield from self._walk(None, self._add)
        if twice and records != (yield from self._walk(None, _skip)):
            raise _IncomparableError(_CHANGED)
        return (yield from self._differences(before))

    def _differences(self, before: dict[str, bytes]) -> Flow[list[WrongCounter]]:
        """Return the wrong counters. Raises _IncomparableError if they differ from the earlier fingerprints."""
        wrong: list[WrongCounter] = []
        for index, totals in zip(self._indexes, self._totals, strict=True):
            fingerprint = yield from self._walk(index, partial(self._judge, index, totals, wrong))
            if before.get(index.stored.name, fingerprint) != fingerprint:
                raise _IncomparableError(_CHANGED)
            wrong += [
                _wrong(index, key, expected, None, "the counter is not there")
                for key, expected in totals.items()
                if to_u64(expected)
            ]
        return wrong

    def _add(self, row: Row) -> None:
        self.scanned += 1
        layout = self._live.layout
        if not layout.is_record_key(row.key):
            return  # foreign: not counted
        try:
            stored = stored_of(self._context, self._live, row)
            if not layout.names(stored.held, row.key):
                raise _IncomparableError(_UNREADABLE)
            for index, totals in zip(self._indexes, self._totals, strict=True):
                record = StoredRecord(layout.pk_of(row.key), stored.of(index), row.value, row.encoding, row.expire_at)
                fold(totals, maintenance_of(index).contents(record, self._context.codec).amounts, +1)
        except KvModelsError:
            raise _IncomparableError(_UNREADABLE) from None

    def _judge(self, index: LiveIndex, totals: dict[bytes, int], wrong: list[WrongCounter], row: Row) -> None:
        self.scanned += 1
        expected = totals.pop(row.key, 0)
        found = _judged(index, row, expected)
        if found is not None:
            wrong.append(found)
        elif not expected:
            self.unused.append(Check(row.key, row.versionstamp))

    def _walk(self, index: LiveIndex | None, take: Callable[[Row], None]) -> Flow[bytes]:
        """Pass each counter of an index, or each record, to ``take``; return a fingerprint of keys and versionstamps.

        Raises _IncomparableError if the header changes.
        """
        prefix = self._live.layout.prefix if index is None else index.layout.counters
        left = ReadRange(prefix, after_prefix(prefix))
        read_before, fingerprint = 0, sha256()
        while True:
            size = rows_at_once(self._context.limits, self._pace.size(ROWS_AT_ONCE))
            result = yield from read((left._replace(limit=size),), self._view.guard)
            if isinstance(result, GuardFailed) or self._is_another_moment(result.versionstamp):
                raise _IncomparableError(_CHANGED)
            rows = result.ranges[0]
            if not rows:
                return fingerprint.digest()
            for row in rows:
                fingerprint.update(row.key + row.versionstamp)
                take(row)
            read_before += len(rows)
            left = left._replace(start=key_successor(rows[-1].key))
            name = None if index is None else index.stored.name
            progress = SchemaProgress("check", self._live.schema.collection, name, read_before)
            yield from self._pace.after(progress, len(rows), left)

    def _is_another_moment(self, versionstamp: bytes) -> bool:
        """Return whether the only reading of a store with snapshots has seen two states: it ran outside of one."""
        self._moment = self._moment or versionstamp
        return self._context.traits.snapshots and versionstamp != self._moment


class _IncomparableError(Exception):
    """The counters cannot be compared; the text says why."""


def _skip(row: Row) -> None:
    """Take a row of which only the key and the versionstamp count."""
    del row


def _judged(index: LiveIndex, row: Row, expected: int) -> WrongCounter | None:
    if row.encoding != U64_ENCODING or len(row.value) != U64_BYTES or row.expire_at is not None:
        return _wrong(index, row.key, expected, None, "not a counter")
    found = int.from_bytes(row.value, "little")
    if found == to_u64(expected):
        return None
    return _wrong(index, row.key, expected, from_u64(found), "another number than the records give")


def _wrong(index: LiveIndex, key: bytes, expected: int, found: int | None, reason: str) -> WrongCounter:
    try:
        group, _ = index.layout.group_in(key)
    except InvalidKeyError:
        group = ()
    return WrongCounter(index.stored, key, expected, found, reason, group)


def mend_counters(context: Context, recounted: Recount, *, repair: bool) -> Flow[tuple[Finding, ...]]:
    """Return the findings of a recount; with ``repair`` each index concerned is rebuilt first.

    Then counters of 0 are removed, which are no finding.
    """
    mended: set[str] = set()
    if repair:
        yield from _remove_unused(context, recounted.unused)
        for stored in {counter.stored.name: counter.stored for counter in recounted.wrong}.values():
            if (yield from _rebuilt(context, recounted.schema, stored)):
                mended.add(stored.name)
    return tuple(_finding(recounted.schema, counter, counter.stored.name in mended) for counter in recounted.wrong)


def _remove_unused(context: Context, unused: Sequence[Check]) -> Flow[None]:
    """Remove counters of 0. A sum that comes first fails the check, one that comes later finds no row, which is 0."""
    size = min(ROWS_AT_ONCE, context.limits.max_checks, context.limits.max_mutations)
    for start in range(0, len(unused), size):
        some = unused[start : start + size]
        removed = yield from commit(AtomicWrite((*some,), tuple(Delete(check.key) for check in some)))
        if isinstance(removed, Conflict):
            changed = set(removed.failed_checks)
            rest = [check for number, check in enumerate(some) if number not in changed]
            yield from commit(AtomicWrite((*rest,), tuple(Delete(check.key) for check in rest)))


def _rebuilt(context: Context, schema: ModelSchema, stored: StoredIndex) -> Flow[bool]:
    """Return whether the wrong generation has been replaced by one that is complete."""
    view = yield from reload_header(context)
    if view.header.collections[schema.collection].index(stored.name, stored.generation) != stored:
        return False  # dropped or replaced by another process: the next check finds out
    report = yield from rebuild_index(context, schema, stored.name)
    return report.state is IndexState.READABLE


def _finding(schema: ModelSchema, counter: WrongCounter, repaired: bool) -> Finding:
    return Finding(
        kind="counter",
        collection=schema.collection,
        index=counter.stored.name,
        key=shown_key(counter.key),
        primary_key=None,
        reason=counter.reason,
        repaired=repaired,
        group=counter.group,
        expected=counter.expected,
        found=counter.found,
        hint=REPAIR,
    )
