"""Load a dump, in any format, into a store that is in use: records through the write compiler, and keys of no model.

First every line is examined, without a write: it is parsed, each record is validated by its model and encoded, and
with ``"error"`` existing keys are looked for. Then the lines are read again and written. A batch is one atomic
operation with all index entries, counters and checks, as in every bulk write. So a load that ends early leaves a
correct store with some of the records, and can be repeated with ``"ignore"``.

A record whose foreign key names a missing record is deferred: the caller gives its line again after the last one. This
is repeated while it helps. Records that refer to each other in a circle are put aside until the last one was read, and
written in one commit; see ``circles.py``. Hooks do not run and time fields keep their values, because nothing new
happens to a record.

Rules of this module: no I/O; memory holds one batch, the keys of records that may be in a circle, and the lines of
unfinished circles. A deadline that has passed since the dump leaves the record out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.references import OutgoingReference
from kvmodels.core.keys import Key, decode_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, Row, Set, point
from kvmodels.core.truth import without_truth
from kvmodels.errors import (
    DecodeError,
    DecryptionError,
    IntegrityError,
    KvModelsError,
    LoadConflictError,
    ReferenceViolationError,
)
from kvmodels.flows.arguments import require_no_counters, require_told_deadlines
from kvmodels.flows.bulk.batches import BulkAction, BulkRun, failure_of
from kvmodels.flows.bulk.keys import Source
from kvmodels.flows.bulk.options_and_results import BulkFailure, BulkOptions, OnConflict
from kvmodels.flows.context import Context, HeaderView, ask_for_keys_of, header_view, writable_collection
from kvmodels.flows.effects import Flow, commit, now, read_all
from kvmodels.flows.hydration.rows import object_of, shown_key
from kvmodels.flows.kv.dump_frame import Line
from kvmodels.flows.references import missing_target
from kvmodels.flows.transfer.blobs import LoadedBlobs
from kvmodels.flows.transfer.circles import CircleSize, ReferenceGraph, circular_references, size_in_commit
from kvmodels.flows.transfer.dumped_lines import DumpedChunk, DumpedLines, DumpedRecord
from kvmodels.flows.transfer.versions import VersionLoading, is_version
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    EncodedObject,
    PlannedChange,
    already_stored,
    pending,
    record_change,
    refused,
)
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.indexing.entries import RecordChange
from kvmodels.schema.definition.definition import ModelSchema

NAMED_AT_MOST: Final = 10
"""The maximum number of existing keys that an error names."""

LISTED_AT_MOST: Final = 1_000
RECORDS_AT_ONCE: Final = 500
KEYS_AT_ONCE: Final = 50
BYTES_AT_ONCE: Final = 1024 * 1024


SHOWN_FAILURES: Final = 3
"""The number of failures in the text of a result."""


@without_truth("result.written, result.skipped or result.failures")
@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load into a store that is in use.

    Attributes:
        written: the number of records and keys that were stored.
        skipped: the number of those that existed already, or have expired since the dump.
        failed: with ``on_conflict="ignore"``, the records whose unique values other records hold, or whose foreign keys
            name missing records: the first 1,000.
        failures: the number of these, including those that ``failed`` does not list.
        versions: the number of rows of histories that were stored.
        versions_left_out: the number of those that were not, because their key has a record or versions already, or the
            collection has no history in this store.
    """

    written: int
    skipped: int = 0
    failed: tuple[BulkFailure, ...] = ()
    failures: int = 0
    versions: int = 0
    versions_left_out: int = 0

    def __str__(self) -> str:
        shown = [f"{self.written} written, {self.skipped} skipped, {self.failures} failed"]
        if self.versions or self.versions_left_out:
            shown[0] += f", {self.versions} rows of histories written, {self.versions_left_out} left out"
        shown += [f"{short_repr(one.key)}: {one.message}" for one in self.failed[:SHOWN_FAILURES]]
        more = self.failures - len(shown) + 1
        return "\n  ".join(shown + [f"and {more} more"] * (more > 0))


class _ValidRecord(NamedTuple):
    """A record of a dump that its model accepts."""

    dumped: DumpedRecord
    item: EncodedObject

    @property
    def pk(self) -> bytes:
        return self.item.pk


class _Waiting(NamedTuple):
    """A record whose foreign key names a record that is not stored."""

    record: _ValidRecord
    reference: OutgoingReference
    target: bytes

    @property
    def failure(self) -> BulkFailure:
        """The failure of this record, if the target is never stored."""
        part = decode_key(self.target)[1]
        key = shown_key(self.record.item.key_values)
        error = missing_target(
            "missing",
            model=self.record.dumped.schema.name,
            field=self.reference.field,
            target=self.reference.layout.definition.columns[0].codec.unpack(part),
            collection=self.reference.collection,
            key=key,
        )
        return failure_of(key, error)


class RecordLoading:
    """One load.

    First ``examine`` all lines and call ``examined``. If it returns True, ``measure`` all lines and call ``measured``.
    Then ``store`` all lines again, then those that it returns.
    """

    def __init__(
        self,
        context: Context,
        lines: DumpedLines,
        on_conflict: OnConflict,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self._context = context
        self._lines = lines
        self._on_conflict: OnConflict = on_conflict
        self._progress = progress
        self._existing: list[Key] = []
        self._existing_count = 0
        self._graph = ReferenceGraph()
        self._circles: dict[bytes, int] = {}
        self._counts: Mapping[int, int] = {}
        self._sizes: dict[int, CircleSize] = {}
        self._members: dict[int, dict[bytes, DumpedRecord]] = {}
        self._versions = VersionLoading(context)
        self._blobs = LoadedBlobs(context, keeps_existing=on_conflict == "ignore")
        self._written = self._skipped = self._failures = 0
        self._failed: list[BulkFailure] = []

    # -- the first pass

    def examine(self, lines: Sequence[Line]) -> Flow[None]:
        """Check lines without a write."""
        found: list[DumpedRecord | Set] = []
        for read in self._lines.read(lines):
            with self._lines.frame:
                self._blobs.examine(read)
            if not isinstance(read, DumpedChunk):
                found.append(read)
        circular: dict[bytes, tuple[bytes, ...]] = {}
        for one in found:
            if isinstance(one, Set):
                yield from self._versions.examine(one)
            else:
                targets = yield from self._circular_targets((yield from self._valid(one)))
                if targets:
                    circular[one.key] = targets
        every = [one.key for one in found if not (isinstance(one, Set) and is_version(one))]
        keys = every if self._on_conflict == "error" else list(circular)
        rows = yield from read_all(self._context.limits, [point(key) for key in keys])
        existing = [key for key, present in zip(keys, rows or (), strict=True) if present]
        if self._on_conflict == "error":
            self._existing_count += len(existing)
            self._existing += [decode_key(key) for key in existing[: NAMED_AT_MOST - len(self._existing)]]
        for key in circular.keys() - set(existing):  # a stored record is a target already
            self._graph.add(key, circular[key])

    def examined(self) -> bool:
        """Begin the next pass; return whether it must be ``measure``.

        Raises DecodeError: the dump is cut off; LoadConflictError: keys exist.
        """
        with self._lines.frame:
            self._blobs.end()
        self._next_pass()
        if self._existing_count:
            raise load_conflict(self._existing, self._existing_count)
        self._circles = self._graph.circles()
        self._counts = Counter(self._circles.values())
        return bool(self._circles)

    def _next_pass(self) -> None:
        self._lines.frame.end()
        self._lines.frame.rewind()

    def _circular_targets(self, record: _ValidRecord) -> Flow[tuple[bytes, ...]]:
        """Return the keys of the targets that may refer to the record; none for a record that cannot be a target."""
        if record.dumped.expire_at is not None:
            return ()
        view, _ = yield from writable_collection(self._context, record.dumped.schema)
        references = circular_references(view.live, record.dumped.schema.collection)
        return tuple(one.records + pk for one in references if (pk := one.pk_in(record.item.document)) is not None)

    def measure(self, lines: Sequence[Line]) -> Flow[None]:
        """Add up the sizes of the circles, without a write."""
        for one in self._lines.read(lines):
            if isinstance(one, DumpedChunk):
                continue
            circle = None if isinstance(one, Set) else self._circles.get(one.key)
            if isinstance(one, Set) or circle is None:
                continue
            record = yield from self._valid(one)
            view, live = yield from writable_collection(self._context, one.schema)
            state = AttemptState(view, None, 0)
            change = record_change(self._context, record.item, state, None, KEEP)
            assert change.live is live, "it is of the same header"
            context = self._context
            size = size_in_commit(change, view.guard, context.codec, context.limits, self._circles)
            self._sizes[circle] = self._sizes.get(circle, CircleSize()).plus(size)

    def measured(self) -> None:
        """Begin the pass of the writes. Raises OperationTooLargeError: a circle does not fit into one commit."""
        self._next_pass()
        for circle, size in self._sizes.items():
            size.require_fitting(self._context.limits, self._counts[circle])

    def _valid(self, dumped: DumpedRecord) -> Flow[_ValidRecord]:
        """Return the record as an object of its model, encoded with the columns that its indexes need now."""
        context, schema = self._context, dumped.schema
        _, live = yield from writable_collection(context, schema)
        if dumped.expire_at is not None:
            require_no_counters(schema)
            require_told_deadlines(context.traits, schema)
        yield from ask_for_keys_of(schema, dumped.document)
        try:
            row = Row(dumped.key, *context.codec.encode_document(dumped.document), b"", dumped.expire_at)
            item = pending(context, schema, object_of(context, live, row))
        except DecodeError as error:
            error.reason = f"line {dumped.number}: {error.reason}"
            if not isinstance(error, DecryptionError):  # which says what is missing
                error.hint = "The model does not accept a record of the dump: change the record, or the model."
            raise
        except Exception as error:  # validators of users may raise anything
            error.add_note(f"line {dumped.number} of the dump")
            raise
        return _ValidRecord(dumped, item)

    # -- the second pass

    def store(self, lines: Sequence[Line], *, deferred: bool = False, final: bool = False) -> Flow[list[Line]]:
        """Write the next lines; return those that must wait for the records that their foreign keys name.

        ``deferred``: an earlier call has returned these lines. ``final``: do not defer a record again.
        """
        later: list[Line] = []
        if final:
            self._circles.clear()
        ready: list[DumpedRecord | Set] = []
        for read in self._lines.read(lines, again=deferred):
            ready += yield from self._blobs.take(read, again=deferred)
        for schema, group in groupby(ready, _schema_of):
            if schema is None:
                yield from self._store_keys([one for one in group if isinstance(one, Set)])
                continue
            records: list[DumpedRecord] = []
            for one in group:
                if isinstance(one, DumpedRecord):
                    complete = self._completed(one) if one.key in self._circles else None
                    if complete:
                        later += yield from self._store_circle(complete)
                    elif complete is None:
                        records.append(one)
            for start in range(0, len(records), RECORDS_AT_ONCE):
                later += yield from self._store_records(schema, records[start : start + RECORDS_AT_ONCE], final=final)
                self._tell()
        return later

    def unfinished(self) -> list[Line]:
        """Return the lines of circles whose other records were not found again, and treat them as other records."""
        members, self._members = self._members, {}
        found = [one for circle in members.values() for one in circle.values()]
        for one in found:
            del self._circles[one.key]
        return [one.line for one in found]

    # -- circles

    def _completed(self, record: DumpedRecord) -> list[DumpedRecord]:
        """Put a record of a circle aside; return all records of the circle if this is the last one."""
        circle = self._circles[record.key]
        members = self._members.setdefault(circle, {})
        members[record.key] = record
        if len(members) < self._counts[circle]:
            return []
        del self._members[circle]
        return list(members.values())

    def _store_circle(self, records: Sequence[DumpedRecord]) -> Flow[list[Line]]:
        """Write the records of a circle in one commit; return their lines if they must wait, or be written by others.

        A refused record is listed or raised; the others are then treated like records that are in no circle.
        """
        valid: dict[bytes, _ValidRecord] = {}
        for record in records:
            valid[record.key] = yield from self._valid(record)
        lines = {key: one.dumped.line for key, one in valid.items()}
        if (yield from self._without_targets(valid)):
            return list(lines.values())
        write = _StoreCircle(self._context, list(valid.values()), self._on_conflict)
        try:
            written: int = yield from execute(self._context, write)
        except ReferenceViolationError:
            return list(lines.values())  # another writer has removed a target meanwhile
        except KvModelsError as error:
            for key in lines:
                self._circles.pop(key, None)
            refused = valid.get(write.refused_key or b"")
            self._fail(failure_of(None if refused is None else shown_key(refused.item.key_values), error))
            return [line for key, line in lines.items() if key != write.refused_key]
        self._written += written
        self._skipped += len(valid) - written
        self._tell()
        return []

    def result(self) -> LoadResult:
        """Return the counts of the load."""
        versions = self._versions.taken, self._versions.left_out
        return LoadResult(self._written, self._skipped, tuple(self._failed), self._failures, *versions)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._written + self._skipped)

    def _store_records(self, schema: ModelSchema, records: Sequence[DumpedRecord], *, final: bool) -> Flow[list[Line]]:
        now_ms = yield from now()
        valid: dict[bytes, _ValidRecord] = {}
        for record in records:
            if record.expire_at is None or record.expire_at > now_ms:
                one = yield from self._valid(record)
                valid[record.key] = one  # of equal keys the last one counts, as if they were written one by one
        waiting = yield from self._without_targets(valid)
        run = BulkRun(
            self._context, _StoreDumped(self._context, schema, self._on_conflict), BulkOptions(on_error="collect")
        )
        yield from run.write(Source(valid.values()))
        result = run.result()
        self._written += result.written
        self._skipped += len(records) - len(waiting) - result.matched
        lines = {shown_key(one.item.key_values): one.dumped.line for one in valid.values()}
        lines.update({shown_key(one.record.item.key_values): one.record.dumped.line for one in waiting})
        later: list[Line] = []
        for failure in (*(one.failure for one in waiting), *result.failed):
            error = failure.error
            if isinstance(error, ReferenceViolationError) and error.reason == "missing" and not final:
                later.append(lines[failure.key])
            else:
                self._fail(failure)
        return later

    def _without_targets(self, valid: dict[bytes, _ValidRecord]) -> Flow[list[_Waiting]]:
        """Remove the records whose targets are neither stored nor among these records, and return them.

        The write would refuse them too, after another attempt. ``valid``: the records by their keys.
        """
        view = yield from header_view(self._context)
        named: dict[bytes, dict[bytes, OutgoingReference]] = {}
        for key, record in valid.items():
            references = view.live[record.dumped.schema.collection].references
            found = [(one, one.pk_in(record.item.document)) for one in references]
            named[key] = {one.records + target: one for one, target in found if target is not None}
        wanted = sorted({key for targets in named.values() for key in targets})
        rows = yield from read_all(self._context.limits, [point(key) for key in wanted])
        absent = {key for key, present in zip(wanted, rows or (), strict=True) if not present}
        waiting: list[_Waiting] = []
        while True:
            missing = absent - valid.keys()
            left_out = {key: target for key in valid for target in named[key] if target in missing}
            if not left_out:
                return waiting
            waiting += [_Waiting(valid.pop(key), named[key][target], target) for key, target in left_out.items()]

    def _fail(self, failure: BulkFailure) -> None:
        """List a record that cannot be stored, or raise its error."""
        error = failure.error
        assert error is not None, "the batch was written by this run"
        if isinstance(error, IntegrityError):
            error.position, error.committed = None, self._written
            if self._on_conflict == "ignore":
                self._failures += 1
                if len(self._failed) < LISTED_AT_MOST:
                    self._failed.append(failure)
                return
        error.add_note(f"kvmodels: {self._written} records and keys of the dump were stored before this was raised")
        raise error

    # -- keys of no model

    def _store_keys(self, keys: Sequence[Set]) -> Flow[None]:
        yield from self._versions.store([one for one in keys if is_version(one)])
        batch: list[Set] = []
        size = 0
        largest = min(BYTES_AT_ONCE, self._context.limits.max_operation_bytes // 2)
        for one in (one for one in keys if not is_version(one)):
            added = 2 * len(one.key) + len(one.value)
            if batch and (len(batch) == KEYS_AT_ONCE or size + added > largest):
                yield from self._store_batch(batch)
                batch, size = [], 0
            batch.append(one)
            size += added
        if batch:
            yield from self._store_batch(batch)

    def _store_batch(self, batch: Sequence[Set]) -> Flow[None]:
        now_ms = yield from now()
        wanted = {one.key: one for one in batch if one.expire_at is None or one.expire_at > now_ms}
        if self._on_conflict == "update":
            yield from commit(AtomicWrite((), tuple(wanted.values())))
        else:
            wanted = yield from self._store_missing(wanted)
        self._written += len(wanted)
        self._skipped += len(batch) - len(wanted)
        self._tell()

    def _store_missing(self, wanted: dict[bytes, Set]) -> Flow[dict[bytes, Set]]:
        """Store the keys that do not exist, and return them."""
        while True:
            missing = yield from self._missing(wanted)
            if not missing:
                return missing
            checks = tuple([Check(key, None) for key in missing])
            if isinstance((yield from commit(AtomicWrite(checks, tuple(missing.values())))), Committed):
                return missing

    def _missing(self, wanted: dict[bytes, Set]) -> Flow[dict[bytes, Set]]:
        """Return those keys that do not exist. Raises LoadConflictError with ``"error"`` if one does."""
        rows = yield from read_all(self._context.limits, [point(key) for key in wanted])
        existing = {key for key, present in zip(wanted, rows or (), strict=True) if present}
        if existing and self._on_conflict == "error":
            error = load_conflict([decode_key(key) for key in sorted(existing)[:NAMED_AT_MOST]], len(existing))
            error.committed = self._written
            raise error
        return {key: one for key, one in wanted.items() if key not in existing}


def load_conflict(keys: Iterable[Key], count: int) -> LoadConflictError:
    """Return the error for keys of a dump that exist in the store."""
    return LoadConflictError("the store has keys of the dump already", keys=tuple(keys), count=count, committed=0)


def _schema_of(found: DumpedRecord | Set) -> ModelSchema | None:
    return found.schema if isinstance(found, DumpedRecord) else None


class _StoreDumped(BulkAction[_ValidRecord]):
    """Store records of a dump as they are, with their deadlines."""

    def __init__(self, context: Context, schema: ModelSchema, on_conflict: OnConflict) -> None:
        self.schema = schema
        self._on_conflict = on_conflict
        self._writer = ChangeBuilder(context, schema, KEEP)
        self._writer.is_plain = True  # neither hooks nor new values of time fields

    def step(self, seen: AttemptState, item: _ValidRecord) -> PlannedChange | None:
        key = item.dumped.key
        if seen.live_row(key) is not None and self._on_conflict != "update":
            if self._on_conflict == "ignore":
                return None
            hint = 'Another writer has stored it since the load began. Load with on_conflict="ignore" or "update".'
            raise already_stored(self.schema, item.item.key_values, hint)
        step = self._writer.store(item.item, seen, seen.row(key))
        return step._replace(change=step.change._replace(expire_at=item.dumped.expire_at))


class _StoreCircle(LogicalWrite[int]):
    """One atomic operation that stores records of several collections; returns the number of written records."""

    def __init__(self, context: Context, records: Sequence[_ValidRecord], on_conflict: OnConflict) -> None:
        self._records = records
        collections = {one.dumped.schema.collection: one.dumped.schema for one in records}
        self._actions = {name: _StoreDumped(context, schema, on_conflict) for name, schema in collections.items()}
        self.schema = records[0].dumped.schema
        self.refused_key: bytes | None = None
        """The key of the record to which the error of the write is due, if it is known."""

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the records."""
        return [one.dumped.key for one in self._records]

    def propose(self, seen: AttemptState, /) -> Proposal[int]:
        """Return the changes of all records. Raises SchemaMismatchError: this process must not write to one."""
        changes: list[RecordChange] = []
        for one in self._records:
            collection = one.dumped.schema.collection
            obstacle = seen.view.live[collection].refused or seen.view.live[collection].read_only
            if obstacle is not None:
                raise obstacle
            self.refused_key = one.dumped.key
            step = self._actions[collection].step(seen, one)
            if step is not None:
                changes.append(step.change)
        self.refused_key = None
        return Proposal(tuple(changes), always(len(changes)))

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Note the refused record, and return the error."""
        self.refused_key = refusal.change.key
        return refused(refusal)


show_public_path(LoadResult)
