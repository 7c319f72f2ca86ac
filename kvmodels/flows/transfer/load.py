"""Load a dump, in any format, into a store that is in use: records through the write compiler, and keys of no model.

First every line is examined, without a write: it is parsed, each record is validated by its model and encoded, and
with ``"error"`` existing keys are looked for. Then the lines are read again and written. A batch is one atomic
operation with all index entries, counters and checks, as in every bulk write. So a load that ends early leaves a
correct store with some of the records, and can be repeated with ``"ignore"``.

A record whose foreign key names a missing record is deferred: the caller gives its line again after the last one. This
is repeated while it helps. Hooks do not run and time fields keep their values, because nothing new happens to a record.

Rules of this module: no I/O; memory holds one batch. A deadline that has passed since the dump leaves the record out.
What a store makes itself is skipped: the catalogue, index entries, counters and all other keys of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.keyspace import RESERVED
from kvmodels.catalog.references import OutgoingReference
from kvmodels.codecs.deno_json import deno_value, key_of_deno, parse_deno_line
from kvmodels.codecs.typed_json import key_from_json, value_from_json
from kvmodels.core.keys import Key, decode_key, encode_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, Row, Set, point
from kvmodels.errors import (
    DecodeError,
    IntegrityError,
    LoadConflictError,
    ReferenceViolationError,
    SchemaMismatchError,
)
from kvmodels.flows.arguments import require_no_counters, require_told_deadlines
from kvmodels.flows.bulk.batches import BulkAction, BulkRun, failure_of
from kvmodels.flows.bulk.keys import Source
from kvmodels.flows.bulk.options_and_results import BulkFailure, BulkOptions, OnConflict
from kvmodels.flows.context import Context, writable_collection
from kvmodels.flows.effects import Flow, commit, now, read_all
from kvmodels.flows.hydration.rows import object_of, shown_key
from kvmodels.flows.kv.deno_dump import deno_content
from kvmodels.flows.kv.dump_frame import DUMP_FORMAT, DUMP_MARK, RECORDS_FORMAT, DumpFrame, Line, content_of
from kvmodels.flows.kv.formats import DumpFormat
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.references import missing_target
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, EncodedObject, PlannedChange, already_stored, pending
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Document, ModelSchema

DAMAGED: Final = "The file is damaged, cut off, or of another format. Nothing of it was stored."


class DumpedRecord(NamedTuple):
    """A record of a dump."""

    schema: ModelSchema
    key: bytes
    document: Document
    expire_at: int | None
    number: int
    line: Line


class DumpedLines:
    """Reads the lines of one dump, in order."""

    def __init__(
        self,
        form: StoreFormat,
        schemas: Mapping[str, ModelSchema],
        *,
        only_records: bool,
        dump_format: DumpFormat,
        limits: Limits,
    ) -> None:
        self._form = form
        self._schemas = schemas
        self._only_records = only_records
        self._is_deno = dump_format == "deno"
        self._limits = limits
        self._collections: frozenset[str] = frozenset(schemas)
        self._derived: frozenset[str] = frozenset()
        self.frame = DumpFrame(() if self._is_deno else (DUMP_FORMAT, RECORDS_FORMAT), DAMAGED)

    def read(self, lines: Sequence[Line], *, again: bool = False) -> Iterator[DumpedRecord | Set]:
        """Yield the records, and the keys of no model. Raises DecodeError with the line, or another typed error.

        ``again``: the lines were read before, and are not counted again.
        """
        for line in lines:
            self.frame.number += not again
            with self.frame:
                found = self._of_deno(line) if self._is_deno else self._of_line(line, again=again)
            if found is not None:
                yield found

    # -- the format of Deno

    def _of_deno(self, line: Line) -> DumpedRecord | Set | None:
        if not line.strip():
            return None
        content = deno_content(parse_deno_line(line))
        key = key_of_deno(content["key"])
        schema = self._schemas.get(key[0]) if type(key[0]) is str else None
        if schema is not None:
            document = deno_value(content["value"], as_document=True)
            return self._record(schema, key, document, content.get("expires_at"), line)
        value = deno_value(content["value"], as_in_javascript=self._form.codec.name == "v8")
        return self._raw_key(key, value, content.get("expires_at"))

    # -- the format of the library

    def _of_line(self, line: Line, *, again: bool) -> DumpedRecord | Set | None:
        content = content_of(line) if again else self.frame.content(line)
        if content is not None:
            return self._of_content(content, line)
        if self.frame.number == 1:
            first = self.frame.first
            self._collections = frozenset(first["collections"] if first[DUMP_MARK] == RECORDS_FORMAT else ())
        return None

    def _of_content(self, content: Mapping[str, Any], line: Line) -> DumpedRecord | Set | None:
        key = key_from_json(content["key"])
        part = key[0] if type(key[0]) is str else None
        deadline = content.get("expires_at")
        if type(deadline) not in (int, type(None)):
            raise ValueError("a deadline that is not a number of milliseconds")
        if key == (RESERVED, "header"):
            header = Header.from_value(value_from_json(content["value"]), key)
            self._collections = frozenset(header.collections)
            self._derived = frozenset(header.prefixes()) - self._collections
        if part == RESERVED or part in self._derived:
            return None
        if part not in self._collections:
            return self._raw_key(key, value_from_json(content["value"]), deadline)
        schema = self._schemas.get(part)
        if schema is not None:
            return self._record(schema, key, value_from_json(content["document"]), deadline, line)
        if self._only_records:
            return None
        raise SchemaMismatchError(
            "the dump has records of a collection without a declared model",
            collection=part,
            hint="Open the database with its model, or name the models to load.",
        )

    # -- both

    def _record(self, schema: ModelSchema, key: Key, document: Any, deadline: int | None, line: Line) -> DumpedRecord:
        if cast("type[object]", type(document)) is not dict:
            raise ValueError("a record that is not an object")
        return DumpedRecord(schema, encode_key(key), document, deadline, self.frame.number, line)

    def _raw_key(self, key: Key, value: Any, deadline: int | None) -> Set | None:
        if self._only_records:
            return None
        packed = self._form.pack_written_key(key)
        self._form.check_key_runes(packed, self._limits)
        return Set(packed, *self._form.codec.encode(value), deadline)


NAMED_AT_MOST: Final = 10
"""The maximum number of existing keys that an error names."""

LISTED_AT_MOST: Final = 1_000
RECORDS_AT_ONCE: Final = 500
KEYS_AT_ONCE: Final = 50
BYTES_AT_ONCE: Final = 1024 * 1024


SHOWN_FAILURES: Final = 3
"""The number of failures in the text of a result."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load into a store that is in use.

    Attributes:
        written: the number of records and keys that were stored.
        skipped: the number of those that existed already, or have expired since the dump.
        failed: with ``on_conflict="ignore"``, the records whose unique values other records hold, or whose foreign keys
            name missing records: the first 1,000.
        failures: the number of these, including those that ``failed`` does not list.
    """

    written: int
    skipped: int = 0
    failed: tuple[BulkFailure, ...] = ()
    failures: int = 0

    def __str__(self) -> str:
        shown = [f"{self.written} written, {self.skipped} skipped, {self.failures} failed"]
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
    """One load: ``examine`` all lines, ``examined``, then ``store`` all lines again, then those that it returns."""

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
        self._written = self._skipped = self._failures = 0
        self._failed: list[BulkFailure] = []

    # -- the first pass

    def examine(self, lines: Sequence[Line]) -> Flow[None]:
        """Check lines without a write."""
        found = list(self._lines.read(lines))
        keys = [one.key for one in found]
        for one in found:
            if isinstance(one, Set):
                check_budget(AtomicWrite((), (one,)), self._context.limits)
            else:
                yield from self._valid(one)
        if self._on_conflict == "error":
            rows = yield from read_all(self._context.limits, [point(key) for key in keys])
            existing = [key for key, present in zip(keys, rows or (), strict=True) if present]
            self._existing_count += len(existing)
            self._existing += [decode_key(key) for key in existing[: NAMED_AT_MOST - len(self._existing)]]

    def examined(self) -> None:
        """Begin the second pass. Raises DecodeError: the dump is cut off; LoadConflictError: keys exist."""
        self._lines.frame.end()
        self._lines.frame.rewind()
        if self._existing_count:
            raise load_conflict(self._existing, self._existing_count)

    def _valid(self, dumped: DumpedRecord) -> Flow[_ValidRecord]:
        """Return the record as an object of its model, encoded with the columns that its indexes need now."""
        context, schema = self._context, dumped.schema
        _, live = yield from writable_collection(context, schema)
        if dumped.expire_at is not None:
            require_no_counters(schema)
            require_told_deadlines(context.traits, schema)
        try:
            row = Row(dumped.key, *context.codec.encode_document(dumped.document), b"", dumped.expire_at)
            item = pending(context, schema, object_of(context, live, row))
        except DecodeError as error:
            error.reason = f"line {dumped.number}: {error.reason}"
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
        for schema, group in groupby(self._lines.read(lines, again=deferred), _schema_of):
            if schema is None:
                yield from self._store_keys([one for one in group if isinstance(one, Set)])
                continue
            records = [one for one in group if isinstance(one, DumpedRecord)]
            for start in range(0, len(records), RECORDS_AT_ONCE):
                part = records[start : start + RECORDS_AT_ONCE]
                later += yield from self._store_records(schema, part, final=final)
                self._tell()
        return later

    def result(self) -> LoadResult:
        """Return the counts of the load."""
        return LoadResult(self._written, self._skipped, tuple(self._failed), self._failures)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._written + self._skipped)

    def _store_records(self, schema: ModelSchema, records: Sequence[DumpedRecord], *, final: bool) -> Flow[list[Line]]:
        now_ms = yield from now()
        valid: dict[bytes, _ValidRecord] = {}
        for record in records:
            if record.expire_at is None or record.expire_at > now_ms:
                one = yield from self._valid(record)
                valid[one.item.pk] = one  # of equal keys the last one counts, as if they were written one by one
        waiting = yield from self._without_targets(schema, valid)
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

    def _without_targets(self, schema: ModelSchema, valid: dict[bytes, _ValidRecord]) -> Flow[list[_Waiting]]:
        """Remove the records whose targets are neither stored nor among these records, and return them.

        The write would refuse them too, but one by one, each with another attempt of the batch.
        """
        _, live = yield from writable_collection(self._context, schema)
        named = {
            pk: {one.records + target: one for one in live.references if (target := one.pk_in(record.item.document))}
            for pk, record in valid.items()
        }
        wanted = sorted({key for targets in named.values() for key in targets})
        rows = yield from read_all(self._context.limits, [point(key) for key in wanted])
        absent = {key for key, present in zip(wanted, rows or (), strict=True) if not present}
        waiting: list[_Waiting] = []
        while True:
            missing = absent - {one.dumped.key for one in valid.values()}
            left_out = {pk: key for pk in valid for key in named[pk] if key in missing}
            if not left_out:
                return waiting
            waiting += [_Waiting(valid.pop(pk), named[pk][key], key) for pk, key in left_out.items()]

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
        batch: list[Set] = []
        size = 0
        largest = min(BYTES_AT_ONCE, self._context.limits.max_operation_bytes // 2)
        for one in keys:
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


show_public_path(LoadResult)
