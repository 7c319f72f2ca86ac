"""Online index builds next to live readers and writers, in resumable batches.

The commit that makes the index WRITE_ONLY also writes its fence. From then on every writer maintains the index, so a
record with a versionstamp above the fence needs no work; the scan indexes all others, each under a check of its
versionstamp. A record that cannot be indexed becomes a violation row, and the index stays PENDING as long as there are
any.

An aggregate index is built in the same way, except that every record is rewritten in the commit that counts it, which
raises its versionstamp above the fence. So the versionstamp shows whether a record is counted, both to the build and to
writers.

Rules of this module: the write compiler computes the entries (R4); every step can be lost, repeated or interrupted. A
record is rewritten only if necessary (``rules.must_touch``), or if it stores no value yet for a column or an included
field. Source: FoundationDB Record Layer, OnlineIndexer, with a versionstamp fence in place of its range set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection, StoredIndex, stored_index
from kvmodels.catalog.collection import LiveCollection, LiveIndex, unbuilt_from_the_start
from kvmodels.catalog.keyspace import build_key, fence_key, violation_key
from kvmodels.catalog.references import given_up_reference, unenforced_references
from kvmodels.core.keys import decode_key, key_successor, skip_parts
from kvmodels.core.operations import Check, Delete, GuardFailed, Mutation, ReadRange, Row, Set, after_prefix, point
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, KvModelsError, OperationTooLargeError, SchemaMismatchError, UnknownFieldError
from kvmodels.flows.context import Context, HeaderView, reload_header, writable_collection
from kvmodels.flows.effects import Flow, now, read, rows_at_once
from kvmodels.flows.evolution.batches import (
    BatchSize,
    IndexViolation,
    RecordBatch,
    index_violation,
    read_batch,
    records_after,
)
from kvmodels.flows.evolution.header import commit_header, drop_generations, outdated_generations, raise_schema_version
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.hydration.rows import StoredDocument, cause_of, document_of, is_incomplete, stored_of
from kvmodels.indexing import rules
from kvmodels.indexing.entries import Misfit, RecordChange, StoredRecord
from kvmodels.indexing.kinds.registry import maintenance_of, misfit
from kvmodels.schema.compile.columns import failed_function
from kvmodels.schema.definition.definition import Document, ModelSchema

VIOLATIONS_REPORTED = 1_000
VIOLATIONS_AT_ONCE = 100


@without_truth("report.violations, or report.state")
@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build: READABLE, or PENDING with the records that must be changed first (the first 1,000)."""

    collection: str
    index: str
    generation: int
    state: IndexState
    scanned: int
    violations: tuple[IndexViolation, ...]

    def __str__(self) -> str:
        left = f", {len(self.violations)} violations" if self.violations else ""
        return f"{self.collection}.{self.index}: {self.state.value}, {self.scanned} scanned{left}"


def build_index(context: Context, schema: ModelSchema, name: str, pace: Pace = UNPACED) -> Flow[BuildReport]:
    """Build one declared index, or finish a build that another process began, including its violations."""
    if name not in schema.indexes:
        raise unknown_index(schema, name)
    scanned = 0
    while True:
        view = yield from reload_header(context)
        live = view.live[schema.collection]
        collection, outdated = outdated_generations(view, schema)
        if live.unraised:
            yield from raise_schema_version(context, schema)
            continue
        stored = _current(collection, schema, name)
        if stored is None or outdated or live.unbuilt:
            yield from _begin(context, view, schema, name, outdated)
            continue
        if stored.state is IndexState.READABLE:
            yield from drop_generations(context, schema.collection, name, pace)
            return BuildReport(schema.collection, name, stored.generation, stored.state, scanned, ())
        index = next(ix for ix in live.maintained if ix.stored == stored)
        if stored.state is IndexState.WRITE_ONLY:
            scanned += yield from _scan(context, schema, index, pace)
        yield from resolve_violations(context, schema, index)
        finished = yield from _finish(context, schema, index)
        if finished is not None and finished.state is IndexState.PENDING:
            return replace(finished, scanned=scanned)


def _require_reference_kept(collection: StoredCollection, schema: ModelSchema, name: str) -> None:
    """Refuse to replace the index of a foreign key by one that does not enforce it, or not for this target."""
    given_up = given_up_reference(schema, collection, name)
    if given_up is not None:
        raise SchemaMismatchError(
            "the index of a foreign key would be replaced by one without it, or with another target",
            collection=schema.collection,
            index=name,
            stored=given_up.reference,
            declared=schema.indexes[name].reference,
            hint=f'Drop the index first, which ends the foreign key: db.drop_index({schema.name}, "{name}").',
        )


def unknown_index(schema: ModelSchema, name: str) -> UnknownFieldError:
    """Return the error for an index name that the model does not declare."""
    return UnknownFieldError(
        "the model declares no such index",
        model=schema.name,
        field=name,
        suggestion=", ".join(schema.indexes) or None,
        hint="Name a declared index.",
    )


def _current(collection: StoredCollection, schema: ModelSchema, name: str) -> StoredIndex | None:
    """Return the newest maintained generation with the declared definition."""
    digest = schema.indexes[name].hash()
    found = [ix for ix in collection.maintained if ix.name == name and ix.hash == digest]
    return max(found, key=lambda ix: ix.generation, default=None)


def rebuild_index(context: Context, schema: ModelSchema, name: str) -> Flow[BuildReport]:
    """Rebuild a READABLE index under a new prefix; the present generation serves queries until the switch."""
    replaced: int | None = None
    while True:
        view = yield from reload_header(context)
        collection, outdated = outdated_generations(view, schema)
        stored = _current(collection, schema, name)
        if stored is None or stored.state is not IndexState.READABLE or outdated:
            break
        if replaced is not None and stored.generation > replaced:
            break  # another process has already finished
        replaced = stored.generation
        yield from _commit_beginning(context, view, collection, schema, (name,))
    return (yield from build_index(context, schema, name))


def unbuilt_indexes(collection: StoredCollection, schema: ModelSchema) -> list[str]:
    """Return the declared indexes that are not READABLE, or are being rebuilt."""
    found: list[str] = []
    for name in schema.indexes:
        stored = _current(collection, schema, name)
        if stored is None or stored.state is not IndexState.READABLE:
            found.append(name)
    return found


def _begin(
    context: Context, view: HeaderView, schema: ModelSchema, name: str, outdated: Sequence[StoredIndex]
) -> Flow[None]:
    """Begin the build of an index, and of all that must be built or replaced before any process can write."""
    collection = view.header.collections[schema.collection]
    unbuilt = [*unbuilt_from_the_start(schema, collection), *unenforced_references(schema, collection)]
    names = [name, *(index.name for index in outdated if index.name != name), *unbuilt]
    wanted = [name for name in dict.fromkeys(names) if _current(collection, schema, name) is None]
    for one in wanted:
        _require_reference_kept(collection, schema, one)
    if outdated or unbuilt:
        # Processes that maintain the old generation write records of an older version, which the next generation may
        # not hold.
        collection = collection.raised_to(schema)
    for index in outdated:
        collection = collection.with_index(replace(index, state=IndexState.DROPPING))
    yield from _commit_beginning(context, view, collection, schema, wanted)


def _commit_beginning(
    context: Context, view: HeaderView, collection: StoredCollection, schema: ModelSchema, names: Sequence[str]
) -> Flow[None]:
    """Commit new generations as WRITE_ONLY, with their fences and progress rows."""
    mutations: list[Mutation] = []
    for name in names:
        generation = collection.generation_to_build(name, schema.indexes[name].hash())
        collection = collection.with_index(stored_index(schema.indexes[name], generation, IndexState.WRITE_ONLY))
        place = (schema.collection, name, generation)
        mutations.append(Set(fence_key(*place), *context.codec.encode(b"")))
        mutations.append(Set(build_key(*place), *context.codec.encode(Progress(b"", 0)._asdict())))
    yield from commit_header(context, view, view.header.with_collection(collection), mutations=mutations)


def _scan(context: Context, schema: ModelSchema, index: LiveIndex, pace: Pace) -> Flow[int]:
    """Index every record that is not newer than the fence; return the number of records that this process has read."""
    size = BatchSize(context, build_key(schema.collection, index.stored.name, index.stored.generation))
    scanned, cursor = 0, b""
    while True:
        batch = yield from build_batch(context, schema, index, cursor, pace.size(size.records))
        if batch.finished:
            return scanned
        if batch.cursor == cursor:
            yield from size.failed(too_large=batch.too_large)
            continue
        cursor = batch.cursor
        size.passed(committed=batch.committed)
        if batch.committed:
            scanned += batch.scanned
            progress = SchemaProgress("build", schema.collection, index.stored.name, batch.total)
            yield from pace.after(progress, batch.scanned, records_after(context.layouts[schema.collection], cursor))


def _finish(context: Context, schema: ModelSchema, index: LiveIndex) -> Flow[BuildReport | None]:
    """Make the index READABLE, or PENDING while there are violations; older generations become DROPPING.

    The absence of violations is a condition on a range, which no check can guard. It is stable: after the scan, a
    violation row is only rewritten in place or removed, and a new duplicate is refused.
    """
    view = yield from reload_header(context)
    place = (schema.collection, index.stored.name, index.stored.generation)
    violations = yield from _violations(context, schema, index, view)
    if violations is None:
        return None
    collection = view.header.collections[schema.collection]
    stored = collection.index(index.stored.name, index.stored.generation)
    if stored is None or stored.state not in (IndexState.WRITE_ONLY, IndexState.PENDING):
        return None
    if view.live[schema.collection].unknown:
        return None  # a newer release has begun something; the caller raises its error
    state = IndexState.PENDING if violations else IndexState.READABLE
    report = BuildReport(schema.collection, stored.name, stored.generation, state, 0, violations)
    if stored.state is state:
        return report
    collection = collection.with_index(replace(stored, state=state))
    mutations: list[Mutation] = [Delete(build_key(*place))]
    if state is IndexState.READABLE:
        mutations.append(Delete(fence_key(*place)))
        for other in collection.indexes:
            if other.name == stored.name and other.generation != stored.generation:
                collection = collection.with_index(replace(other, state=IndexState.DROPPING))
    committed = yield from commit_header(context, view, view.header.with_collection(collection), mutations=mutations)
    return report if committed else None


def _violations(
    context: Context, schema: ModelSchema, index: LiveIndex, view: HeaderView
) -> Flow[tuple[IndexViolation, ...] | None]:
    span = ReadRange(
        index.violations, after_prefix(index.violations), rows_at_once(context.limits, VIOLATIONS_REPORTED)
    )
    result = yield from read((span,), view.guard)
    if isinstance(result, GuardFailed):
        return None
    layout = context.layouts[schema.collection]
    return tuple(index_violation(context, layout, listed_parts(index, row)[1], row) for row in result.ranges[0])


def listed_parts(index: LiveIndex, violation: Row) -> tuple[bytes, bytes]:
    """Return the slot in the key of a violation row, empty if there is none, and the primary key."""
    rest = violation.key[len(index.violations) :]
    at = skip_parts(rest, 1)
    (slot,) = decode_key(rest[:at])
    return slot if isinstance(slot, bytes) else b"", rest[at:]


class Progress(NamedTuple):
    """The progress row: the last processed record key (empty at the start), and the number of records."""

    cursor: bytes
    scanned: int


class IndexBatch(NamedTuple):
    """Result of one batch.

    Attributes:
        cursor: the record key after which the next batch begins.
        committed: whether this process committed it.
        too_large: whether nothing was sent, because one operation cannot hold so many records.
        total: the number of records that the build has processed, including those of other processes.
    """

    cursor: bytes
    scanned: int
    committed: bool
    finished: bool
    too_large: bool = False
    total: int = 0


def build_batch(context: Context, schema: ModelSchema, index: LiveIndex, cursor: bytes, size: int) -> Flow[IndexBatch]:
    """Index the next ``size`` records after ``cursor``, which this process believes to be the stored one."""
    view, live = yield from writable_collection(context, schema)
    current = next((ix for ix in live.maintained if ix.stored == index.stored), None)
    if current is None or current.stored.state is not IndexState.WRITE_ONLY:
        return IndexBatch(cursor, 0, False, True)
    progress_key = build_key(schema.collection, index.stored.name, index.stored.generation)
    found = yield from read_batch(context, view, live, progress_key, (cursor, size))
    if found is None:
        return IndexBatch(cursor, 0, False, False)
    row, rows = found
    if row is None:
        context.view = None
        return IndexBatch(cursor, 0, False, False)
    value: Any = context.codec.decode(row.value, row.encoding, progress_key)
    progress = Progress(value["cursor"], value["scanned"])
    if progress.cursor != cursor:
        return IndexBatch(progress.cursor, 0, False, False)
    if not rows:
        return IndexBatch(cursor, 0, False, True)
    moved = Progress(rows[-1].key, progress.scanned + len(rows))
    unchanged = Check(progress_key, row.versionstamp, physical=True)
    advance = Set(progress_key, *context.codec.encode(moved._asdict()))
    batch = RecordBatch(context, view, live, unchanged, advance)
    try:
        committed = yield from _index_rows(context, batch, current, rows)
    except OperationTooLargeError:
        if len(rows) > 1:
            return IndexBatch(cursor, 0, False, False, too_large=True)
        # No operation can index the record, because its entries alone exceed a limit of the engine.
        alone = batch.restarted()
        alone.check_header()
        alone.pass_over(rows[0], _violation_key(live, current, rows[0]), Misfit("too_many"))
        committed = yield from alone.commit()
    return IndexBatch(moved.cursor if committed else cursor, len(rows), committed, False, total=moved.scanned)


def _index_rows(context: Context, batch: RecordBatch, index: LiveIndex, rows: Sequence[Row]) -> Flow[bool]:
    """Commit the entries of these records together with the progress; return False after a conflict."""
    now_ms = yield from now()
    live, fence = batch.live, index.fence
    old = [row for row in rows if not rules.is_expired(row, now_ms) and (fence is None or row.versionstamp <= fence)]
    changes: list[RecordChange] = []
    for row in old:
        if not live.layout.is_record_key(row.key):
            continue  # no primary key to list it by; a check reports it as foreign
        change = _change(context, live, index, row)
        if isinstance(change, RecordChange):
            changes.append(change)
        else:
            batch.pass_over(row, _violation_key(live, index, row), change)
    refused = yield from batch.compile(changes, now_ms)
    if refused is None:
        return False
    for stored, why in refused:
        # Rewritten in the present form of its model, the record would take a unique value of another index from its
        # owner, or refer to a missing record.
        batch.pass_over(stored, _violation_key(live, index, stored), why)
    return (yield from batch.commit())


def _violation_key(live: LiveCollection, index: LiveIndex, row: Row) -> bytes:
    return violation_key(index.violations, None, live.layout.pk_of(row.key))


def _change(context: Context, live: LiveCollection, index: LiveIndex, row: Row) -> RecordChange | Misfit:
    """Return the change that indexes one record, or why it cannot be indexed."""
    pk = live.layout.pk_of(row.key)
    try:
        document = document_of(context, row)
        touched = rules.must_touch(index) or is_incomplete(index, document)
        made = _materialised(context, live, row, document) if touched else None
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    if isinstance(made, Misfit) and is_incomplete(index, document):
        return made
    # Records that only other indexes cannot hold are accepted here: the compiler lists them for those indexes.
    stored, unmade = (None, made) if isinstance(made, Misfit) else (made, None)
    new_document, value, encoding, _ = stored or StoredDocument(document, row.value, row.encoding, document)
    record = StoredRecord(pk, new_document, value, encoding, row.expire_at)
    kind = misfit(index, record, context.codec, context.limits.max_key_bytes)
    if kind is not None:
        return Misfit(kind)
    if touched and len(value) > context.limits.max_value_bytes:
        return Misfit("too_long")  # with the columns that the record did not store yet
    change = RecordChange(
        live,
        pk,
        row,
        document,
        new_document,
        value,
        encoding,
        row.expire_at,
        only=None if touched else index,
        tolerant=True,
        unmade=unmade,
    )
    return Misfit("too_long") if _holds_too_much(context, index, record) else change


def _materialised(
    context: Context, live: LiveCollection, row: Row, document: Document
) -> StoredDocument | Misfit | None:
    """Return a record that is rewritten anyway, with the values of all columns; None to rewrite it unchanged.

    Includes the values of other indexes: their builds will skip the record, because it is newer than their fences. A
    Misfit gives the reason if they cannot be computed.
    """
    if not any(is_incomplete(other, document) for other in live.maintained):
        return None
    try:
        return stored_of(context, live, row)
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    except KvModelsError as error:
        failed = failed_function(error)
        return Misfit("not_encodable", cause_of(error)) if failed is None else Misfit("key_function", failed)


def _holds_too_much(context: Context, index: LiveIndex, record: StoredRecord) -> bool:
    """Return whether the value of an entry would be too long; that of a unique slot also contains the primary key."""
    values = maintenance_of(index).contents(record, context.codec).entries.values()
    return any(len(value) > context.limits.max_value_bytes for value, _ in values)


def resolve_violations(context: Context, schema: ModelSchema, index: LiveIndex) -> Flow[None]:
    """Try every listed record again: take the slot if it is free now, remove the row if it is out of date."""
    start = index.violations
    while True:
        view, _ = yield from writable_collection(context, schema)
        span = ReadRange(start, after_prefix(index.violations), VIOLATIONS_AT_ONCE)
        result = yield from read((span,), view.guard)
        if isinstance(result, GuardFailed):
            context.view = None
            return
        rows = result.ranges[0]
        if not rows:
            return
        for row in rows:
            yield from _resolve(context, schema, index, view, row)
        start = key_successor(rows[-1].key)


def _resolve(context: Context, schema: ModelSchema, index: LiveIndex, view: HeaderView, violation: Row) -> Flow[None]:
    live = view.live[schema.collection]
    current = next((ix for ix in live.maintained if ix.stored == index.stored), None)
    if current is None:
        return
    key = live.layout.key(listed_parts(index, violation)[1])
    result = yield from read((point(key),), view.guard)
    if isinstance(result, GuardFailed):
        context.view = None
        return
    batch = RecordBatch(context, view, live)
    batch.check(Check(violation.key, violation.versionstamp, physical=True))
    if not result.ranges[0]:
        batch.check(Check(key, None))
        batch.add(Delete(violation.key))
        yield from batch.commit()
        return
    row = result.ranges[0][0]
    change = _change(context, live, current, row)
    if not isinstance(change, RecordChange):
        value = context.codec.encode(change.to_value())
        if _violation_key(live, current, row) == violation.key and value != (violation.value, violation.encoding):
            # Another reason than before, for example with another release of a function.
            batch.pass_over(row, violation.key, change)
            yield from batch.commit()
        return
    # Every entry, independent of the fence: the violation is listed because they do not exist.
    refused = yield from batch.compile((change._replace(rewrite=True),), (yield from now()))
    if refused is None or refused:
        return
    if not batch.writes(violation.key):
        batch.add(Delete(violation.key))
    try:
        yield from batch.commit()
    except OperationTooLargeError:
        return  # it stays listed until it has fewer values


show_public_path(BuildReport)
