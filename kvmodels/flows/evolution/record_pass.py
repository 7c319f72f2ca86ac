"""A resumable pass over the records of a collection, next to live readers and writers: an index build or a migration.

A pass scans all records in batches, any of which may be carried out by any process. Each batch checks and advances the
progress row, so a second delivery, or another process at the same position, is refused. A record that cannot be written
is listed with the reason. After the scan, the listed records are tried again, until none of them can be written.

Rules of this module: every step can be lost, repeated or interrupted. What a pass does with a record, how it begins and
how it ends are up to its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.operations import Check, Delete, GuardFailed, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import LimitExceededError, RetriesExhaustedError
from kvmodels.flows.context import Context, HeaderView, pause_before, writable_collection
from kvmodels.flows.effects import Flow, now, read, read_all, rows_at_once
from kvmodels.flows.evolution.batches import IndexViolation, RecordBatch, index_violation
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.indexing import rules
from kvmodels.indexing.built_entries import BuiltEntries
from kvmodels.indexing.entries import Misfit, RecordChange
from kvmodels.schema.definition.definition import ModelSchema

FIRST_BATCH = 100
LARGEST_BATCH = 4_000
UNTIMED_BATCH: Final = 200
"""Up to this size, batches grow however long they take."""

LONGEST_BATCH_MS: Final = 10
"""Milliseconds for a larger batch, without its read: other writers, and other tasks of an event loop, wait for it.

Where a commit takes long by itself, such as for a slow disk, twice as long as the quickest batch.
"""

LONGEST_ALONE_MS: Final = 50
"""The same for files and servers as long as nothing else is written: to flush a small batch takes most of its time."""

VIOLATIONS_REPORTED: Final = 1_000


class PassProgress(NamedTuple):
    """The progress row of a pass.

    Attributes:
        aim: items that a pass stores beside its position; a pass with another aim is another pass.
        cursor: the last processed record key, empty at the start.
        scanned: the number of processed records.
        written: the number of those that were rewritten; None if the pass does not store it.
    """

    aim: dict[str, Any]
    cursor: bytes = b""
    scanned: int = 0
    written: int | None = None

    def to_value(self) -> dict[str, Any]:
        """Return the value of the progress row."""
        written = {} if self.written is None else {"written": self.written}
        return {**self.aim, "cursor": self.cursor, "scanned": self.scanned, **written}

    @classmethod
    def of(cls, codec: ValueCodec, row: Row) -> PassProgress:
        """Return the progress in a row."""
        aim = dict(codec.decode(row.value, row.encoding, row.key))
        return cls(cursor=aim.pop("cursor"), scanned=aim.pop("scanned"), written=aim.pop("written", None), aim=aim)

    def after(self, rows: Sequence[Row], written: int) -> PassProgress:
        """Return the progress after some more records."""
        total = None if self.written is None else self.written + written
        return PassProgress(self.aim, rows[-1].key, self.scanned + len(rows), total)


class PassWork:
    """The work of one call: the records that it has processed, and the size of its next batch.

    The size is doubled after a commit and halved after a failure. Large batches grow only while they are short.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._quickest_ms = 1 << 63
        self.conflicts = 0
        self.batch_size = FIRST_BATCH
        self.scanned = 0
        self.written = 0

    def passed(self, took_ms: int, *, alone: bool = False) -> None:
        """Note that a batch was committed; ``alone`` if it is known that nothing else was written meanwhile."""
        self.conflicts = 0
        self._quickest_ms = min(self._quickest_ms, took_ms)
        longest = max(LONGEST_ALONE_MS if alone else LONGEST_BATCH_MS, 2 * self._quickest_ms)
        fitting = LARGEST_BATCH
        if 2 * took_ms > longest:
            fitting = self.batch_size // (1 if took_ms <= longest else 2)
        self.batch_size = min(self.batch_size * 2, max(fitting, UNTIMED_BATCH), LARGEST_BATCH)

    def halve(self, rows: Sequence[Row]) -> None:
        """Note that so many rows were too many for one commit."""
        self.batch_size = max(len(rows) // 2, 1)

    def pause(self, progress_key: bytes) -> Flow[None]:
        """Wait after a conflict. Raises RetriesExhaustedError if every attempt of the policy met a conflict."""
        self.conflicts += 1
        if self.conflicts > self._context.retry.attempts:
            raise RetriesExhaustedError(
                "every attempt to index or migrate a batch of records met a conflict",
                attempts=self.conflicts,
                failed_checks=(decode_key(progress_key),),
            )
        yield from pause_before(self._context, self.conflicts + 1)


class RecordPass(ABC):
    """A pass over the records of one collection.

    Attributes:
        step: the name of the pass in reports of its progress; ``index``: that of the index that it builds.
        unfit: why a record is listed whose change alone is larger than the engine takes.
        tried_at_once: the number of listed records that are tried again in one commit.
        key: the key of the progress row; ``listed``: the prefix of the list of records that cannot be written.
    """

    step: ClassVar[Literal["build", "migrate", "rotate"]]
    unfit: ClassVar[Misfit]
    tried_at_once: ClassVar[int]

    def __init__(self, context: Context, schema: ModelSchema, work: PassWork, key: bytes, listed: bytes) -> None:
        self.context = context
        self.schema = schema
        self.work = work
        self.key = key
        self.listed = listed
        self.index: str | None = None

    @abstractmethod
    def change(self, live: LiveCollection, row: Row, *, listed: bool) -> RecordChange | Misfit | None:
        """Return the change that the pass makes of a record, why it cannot be made, or None if there is none.

        ``listed``: whether the record is tried again.
        """

    def built(self, batch: RecordBatch, rows: Sequence[Row], now_ms: int) -> BuiltEntries | None:
        """Return the entries to set for records that stay as they are; None if each change must be compiled."""
        del batch, rows, now_ms
        return None

    def is_open(self, live: LiveCollection) -> bool:
        """Return whether the pass is open under this header."""
        del live
        return True

    def listing_key(self, pk: bytes) -> bytes:
        """Return the key under which the pass lists a record."""
        return self.listed + pk

    def listed_pk(self, row: Row) -> bytes:
        """Return the primary key in the key of a listed row."""
        return row.key[len(self.listed) :]

    def scan(self, known: PassProgress, pace: Pace) -> Flow[PassProgress | None]:
        """Process every record that is left; return the progress at the end, or None if there is none any more.

        ``known``: the progress which this process believes to be stored. Expired records are passed over, but counted.
        """
        context, work = self.context, self.work
        while True:
            view, live = yield from writable_collection(context, self.schema)
            if not self.is_open(live):
                return known
            size = rows_at_once(context.limits, pace.size(work.batch_size), others=2)
            ranges = point(self.key), self._records_after(known.cursor, size)
            result = yield from read(ranges, view.guard, include_expired=True)
            if isinstance(result, GuardFailed):
                context.view = None
                yield from work.pause(self.key)
                continue
            found, rows = result.ranges
            stored = PassProgress.of(context.codec, found[0]) if found else None
            if stored is None or stored.aim != known.aim:
                context.view = None
                return None
            if stored.cursor != known.cursor:  # another process has committed a batch
                known, work.conflicts = stored, 0
                continue
            if not rows:
                return stored
            batch = RecordBatch(context, view, live, rules.progress_check(self.key, found[0].versionstamp))
            moved = yield from self._write(batch, stored, rows)
            if moved is not None:
                known = moved
                yield from self._report(stored, moved, pace)

    def _records_after(self, cursor: bytes, limit: int | None = None) -> ReadRange:
        prefix = self.context.layouts[self.schema.collection].prefix
        return ReadRange(key_successor(cursor) if cursor else prefix, after_prefix(prefix), limit)

    def _report(self, before: PassProgress, progress: PassProgress, pace: Pace) -> Flow[None]:
        """Count the records of a batch, and report them."""
        scanned = progress.scanned - before.scanned
        self.work.scanned += scanned
        self.work.written += (progress.written or 0) - (before.written or 0)
        report = SchemaProgress(self.step, self.schema.collection, self.index, progress.scanned, progress.written)
        yield from pace.after(report, scanned, self._records_after(progress.cursor))

    def _write(self, batch: RecordBatch, stored: PassProgress, rows: Sequence[Row]) -> Flow[PassProgress | None]:
        """Commit the changes of these records; return the progress, or None if they must be tried again."""
        began = yield from now()
        try:
            moved = yield from self._write_all(batch, stored, rows, began)
        except LimitExceededError:
            if len(rows) > 1:
                self.work.halve(rows)
                return None
            alone = batch.restarted()
            alone.check_header()
            self._list(alone, rows[0], self.unfit)
            moved = yield from self._advance(alone, stored.after(rows, 0))
        if moved is None:
            yield from self._failed(rows)
        else:
            self.work.passed((yield from now()) - began, alone=batch.was_alone)
        return moved

    def _failed(self, rows: Sequence[Row]) -> Flow[None]:
        self.work.halve(rows)
        yield from self.work.pause(self.key)

    def _write_all(
        self, batch: RecordBatch, stored: PassProgress, rows: Sequence[Row], now_ms: int
    ) -> Flow[PassProgress | None]:
        """Commit the changes of these records together with the progress; return it, or None after a conflict."""
        built = self.built(batch, rows, now_ms)
        if built is not None:
            moved = stored.after(rows, 0)
            committed = yield from batch.commit_built(built, self._progress_row(moved))
            if committed is not None:
                return moved if committed else None
        changes: list[RecordChange] = []
        for row in rows:
            change = self._change(batch.live, row, now_ms, listed=False)
            if isinstance(change, RecordChange):
                changes.append(change)
            elif change is not None:
                self._list(batch, row, change)
        refused = yield from batch.compile(changes, now_ms)
        if refused is None:
            return None
        # In the present form of its model, a record may take a unique value of another index from its owner, or refer
        # to a missing record.
        for row, why in refused:
            self._list(batch, row, why)
        return (yield from self._advance(batch, stored.after(rows, len(changes) - len(refused))))

    def _change(self, live: LiveCollection, row: Row, now_ms: int, *, listed: bool) -> RecordChange | Misfit | None:
        # A key that is not a record key has no primary key to list it by; a check reports it as foreign.
        if rules.is_expired(row, now_ms) or not live.layout.is_record_key(row.key):
            return None
        return self.change(live, row, listed=listed)

    def _list(self, batch: RecordBatch, row: Row, why: Misfit) -> None:
        batch.pass_over(row, self.listing_key(batch.live.layout.pk_of(row.key)), why)

    def _progress_row(self, progress: PassProgress) -> Set:
        return Set(self.key, *self.context.codec.encode(progress.to_value()))

    def _advance(self, batch: RecordBatch, moved: PassProgress) -> Flow[PassProgress | None]:
        batch.add(self._progress_row(moved))
        return moved if (yield from batch.commit()) else None

    def settle(self) -> Flow[None]:
        """Try the listed records again, until none of those that are left can be written.

        A value that one record releases may become free for another.
        """
        while (yield from self._settle_once()):
            pass

    def _settle_once(self) -> Flow[bool]:
        """Try every listed record again; return whether any was taken off the list."""
        context, start, settled = self.context, self.listed, False
        while True:
            view, live = yield from writable_collection(context, self.schema)
            if not self.is_open(live):
                return False
            size = min(self.work.batch_size, self.tried_at_once)
            result = yield from read((ReadRange(start, after_prefix(self.listed), size),), view.guard)
            if isinstance(result, GuardFailed):
                context.view = None
                yield from self.work.pause(self.key)
                continue
            listed = result.ranges[0]
            if not listed:
                return settled
            removed = yield from self._try_again(RecordBatch(context, view, live), listed)
            if removed is not None:
                start, settled = key_successor(listed[-1].key), settled or removed

    def _try_again(self, batch: RecordBatch, listed: Sequence[Row]) -> Flow[bool | None]:
        """Write listed records; return whether any was taken off the list, or None if they must be tried again."""
        try:
            removed = yield from self._try_all(batch, listed)
        except LimitExceededError:
            self.work.halve(listed)
            return None if len(listed) > 1 else False
        if removed is None:
            yield from self._failed(listed)
        else:
            self.work.passed(0)
        return removed

    def _try_all(self, batch: RecordBatch, listed: Sequence[Row]) -> Flow[bool | None]:
        """Write listed records in one commit; return whether any was taken off the list, or None after a conflict."""
        keys = [batch.live.layout.key(self.listed_pk(row)) for row in listed]
        records = yield from read_all(self.context.limits, [point(key) for key in keys])
        assert records is not None, "there is no guard"
        now_ms = yield from now()
        changes: dict[bytes, RecordChange] = {}
        for row, key, found in zip(listed, keys, records, strict=True):
            change = self._change(batch.live, found[0], now_ms, listed=True) if found else None
            if isinstance(change, Misfit):
                self._list_anew(batch, row, found[0], change)
                continue
            batch.check(Check(row.key, row.versionstamp, physical=True))
            if change is not None:
                changes[row.key] = change
                continue
            batch.check(Check(key, found[0].versionstamp if found else None, physical=bool(found)))
            batch.add(Delete(row.key))
        refused = yield from batch.compile(list(changes.values()), now_ms)
        if refused is None:
            return None
        left = {row.key for row, _ in refused}
        added = batch.mutations()
        batch.add(*(Delete(at) for at, change in changes.items() if change.key not in left and at not in added))
        added = batch.mutations()
        if not added:
            return False
        removed = any(isinstance(added.get(row.key), Delete) for row in listed)
        return removed if (yield from batch.commit()) else None

    def _list_anew(self, batch: RecordBatch, row: Row, record: Row, why: Misfit) -> None:
        """Replace the reason in a listed row, which may be another one in this release."""
        value = self.context.codec.encode(why.to_value())
        if self.listing_key(self.listed_pk(row)) == row.key and value != (row.value, row.encoding):
            batch.check(Check(row.key, row.versionstamp, physical=True))
            batch.pass_over(record, row.key, why)

    def left(self, view: HeaderView) -> Flow[tuple[Row | None, tuple[IndexViolation, ...]] | None]:
        """Return the progress row and the first 1,000 listed records; None if the header has changed."""
        most = rows_at_once(self.context.limits, VIOLATIONS_REPORTED, others=2)
        span = ReadRange(self.listed, after_prefix(self.listed), most)
        result = yield from read((point(self.key), span), view.guard)
        if isinstance(result, GuardFailed):
            self.context.view = None
            return None
        progress, listed = result.ranges
        layout = self.context.layouts[self.schema.collection]
        violations = [index_violation(self.context, layout, self.listed_pk(row), row) for row in listed]
        return progress[0] if progress else None, tuple(violations)
