"""Rewrite records of older schema versions next to live readers and writers: in resumable batches, by any processes.

The commit that begins a migration raises the schema version in the header, so records of older versions are no longer
written. The scan rewrites all older records, each under a check of its versionstamp, from the stored document to the
result of the upgrades, and its entries change with it. Every batch checks and sets the progress row, so each upgrade is
applied to each record once. When all records have been scanned and none is left on the list of those that cannot be
rewritten, one commit notes in the header that no record is older: then the indexes that an upgrade changes serve
queries again.

Rules of this module: every step can be lost, repeated or interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import migration_key, unmigrated_prefix
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import Check, Delete, GuardFailed, ReadRange, Row, Set, after_prefix, point
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, KvModelsError, LimitExceededError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, reload_header, writable_collection
from kvmodels.flows.effects import Flow, now, read, read_all, read_row, rows_at_once
from kvmodels.flows.evolution.batches import (
    BatchSize,
    IndexViolation,
    RecordBatch,
    index_violation,
    read_batch,
    records_after,
)
from kvmodels.flows.evolution.header import commit_header
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.hydration.rows import cause_of, document_of, object_of
from kvmodels.indexing import rules
from kvmodels.indexing.entries import Misfit, RecordChange, StoredRecord
from kvmodels.indexing.kinds.registry import misfit
from kvmodels.schema.compile.columns import failed_function
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.instances import set_state, state_of

LISTED_AT_MOST: Final = 1_000
SETTLED_AT_ONCE: Final = 100


@without_truth("report.complete, or report.written")
@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The result of a migration of one collection.

    Attributes:
        collection: the collection of the model.
        version: the schema version that the records were upgraded to.
        complete: whether no record is older; otherwise ``violations`` lists those that are (the first 1,000).
        scanned: the number of records that this call has scanned.
        written: the number of records that this call has rewritten.
        violations: the records that cannot be rewritten, with the reasons.
    """

    collection: str
    version: int
    complete: bool
    scanned: int
    written: int
    violations: tuple[IndexViolation, ...]

    def __str__(self) -> str:
        left = "complete" if self.complete else f"{len(self.violations)} left"
        rest = self.scanned - self.written if self.complete else 0
        written = f"{self.written} written" + (f" ({rest} had nothing left to change)" if rest else "")
        return f"{self.collection}: version {self.version}, {self.scanned} scanned, {written}, {left}"


@dataclass(slots=True)
class _Counts:
    scanned: int = 0
    written: int = 0


def migrate(
    context: Context, schema: ModelSchema, *, forget: Iterable[str] = (), pace: Pace = UNPACED
) -> Flow[MigrationReport]:
    """Rewrite every record of a lower schema version, or finish a migration that another process began."""
    counts = _Counts()
    wanted = frozenset(forget)
    while True:
        view = yield from _view(context, schema)
        stored = view.header.collections[schema.collection]
        row = yield from _progress(context, schema)
        # Unlisted fields too: an upgrade that touched a field and left it in the records has removed it from the list.
        aim = Migration(schema.schema_version, tuple(sorted(wanted)))
        if row is not None and row[0].version == aim.version:
            # Fields that another process has begun to forget are included; otherwise each process would restart the
            # other's work.
            aim = aim._replace(forget=tuple(sorted({*aim.forget, *row[0].forget})))
            _require_undeclared(schema, aim)
        if row is None or not row[0].has_aim_of(aim):
            if row is None and stored.oldest >= aim.version and not aim.forget:
                return _report(schema, counts, ())
            yield from _begin(context, view, schema, aim, None if row is None else row[1])
            continue
        at_end = yield from _scan(context, schema, row[0], pace, counts)
        if at_end is None:
            continue
        yield from _settle(context, schema, aim)
        left = yield from _finish(context, schema, at_end)
        if left is not None:
            return _report(schema, counts, left)


def _report(schema: ModelSchema, counts: _Counts, left: tuple[IndexViolation, ...]) -> MigrationReport:
    return MigrationReport(schema.collection, schema.schema_version, not left, counts.scanned, counts.written, left)


def _view(context: Context, schema: ModelSchema) -> Flow[HeaderView]:
    """Return the header if this process may write, or may write once the migration has begun."""
    view = yield from reload_header(context)
    live = view.live[schema.collection]
    obstacle = live.refused or live.read_only
    if obstacle is not None and not live.unraised:
        raise obstacle
    return view


def _progress(context: Context, schema: ModelSchema) -> Flow[tuple[Migration, bytes] | None]:
    """Return the stored progress with its versionstamp."""
    row = yield from read_row(migration_key(schema.collection))
    return None if row is None else (Migration.of(context.codec, row), row.versionstamp)


def _require_undeclared(schema: ModelSchema, aim: Migration) -> None:
    for name in aim.forget:
        if name in schema.fields:
            raise SchemaMismatchError(
                "another process takes a field out of the records that this one declares",
                collection=schema.collection,
                stored=name,
                declared=name,
                hint="Two releases of your program are migrating at once: run db.migrate() in the latest one only.",
            )


def _begin(context: Context, view: HeaderView, schema: ModelSchema, aim: Migration, before: bytes | None) -> Flow[None]:
    """Raise the schema version and reset the progress in one commit; ``before``: versionstamp of the progress."""
    stored, key = view.header.collections[schema.collection], migration_key(schema.collection)
    yield from commit_header(
        context,
        view,
        view.header.with_collection(stored.raised_to(schema)),
        checks=(Check(key, before, physical=True),),
        mutations=(Set(key, *context.codec.encode(aim.to_value())),),
    )


def _scan(
    context: Context, schema: ModelSchema, known: Migration, pace: Pace, counts: _Counts
) -> Flow[Migration | None]:
    """Scan every record; return the progress at the end, or None if another migration has replaced this one."""
    size = BatchSize(context, migration_key(schema.collection))
    while True:
        batch = yield from migrate_batch(context, schema, known, pace.size(size.records))
        if batch.finished or batch.migration is None:
            return batch.migration
        if batch.migration == known:
            yield from size.failed(too_large=batch.too_large)
            continue
        known = batch.migration
        size.passed(committed=bool(batch.passed))
        if batch.passed:
            counts.scanned += batch.passed
            counts.written += batch.written
            progress = SchemaProgress("migrate", schema.collection, None, known.scanned, known.written)
            left = records_after(context.layouts[schema.collection], known.cursor)
            yield from pace.after(progress, batch.passed, left)


def _settle(context: Context, schema: ModelSchema, aim: Migration) -> Flow[None]:
    """Remove rewritable records from the list, until a pass over all of it changes nothing."""
    size = BatchSize(context, migration_key(schema.collection))
    while True:
        settled = yield from settle_unmigrated(context, schema, aim)
        if settled:
            size.passed(committed=False)
        elif settled is None:
            yield from size.pause()
        else:
            return


def _finish(context: Context, schema: ModelSchema, at_end: Migration) -> Flow[tuple[IndexViolation, ...] | None]:
    """Note in the header that no record is older; return the older records, or None to start over.

    The empty list is a condition on a range, which no check can guard. It is stable: only a batch adds to the list, and
    every batch changes the progress row, which is checked.
    """
    view, _ = yield from writable_collection(context, schema)
    prefix, key = unmigrated_prefix(schema.collection), migration_key(schema.collection)
    span = ReadRange(prefix, after_prefix(prefix), rows_at_once(context.limits, LISTED_AT_MOST, beside=2))
    result = yield from read((point(key), span), view.guard)
    if isinstance(result, GuardFailed):
        context.view = None
        return None
    rows, listed = result.ranges
    if not rows or Migration.of(context.codec, rows[0]) != at_end:
        return None
    if listed:
        return _violations_in(context, schema, prefix, listed)
    stored = view.header.collections[schema.collection]
    # Only fields that upgrades have set are known to be in every record: records of this version were skipped, so
    # another new field may be missing in them, or have its former type, which the next plan reports.
    made = [name for name, version in schema.touched.items() if version > stored.oldest]
    stored = stored.listing(schema, made)
    # Fields that an upgrade has handled, and that the model does not declare, are in no record any more.
    gone = {*at_end.forget, *(schema.touched.keys() - schema.fields.keys())}
    fields = {name: kind for name, kind in stored.fields.items() if name not in gone}
    columns = {name: kind for name, kind in stored.columns.items() if name not in gone}
    done = replace(stored, oldest=at_end.version, fields=fields, columns=columns)
    committed = yield from commit_header(
        context,
        view,
        view.header.with_collection(done),
        checks=(Check(key, rows[0].versionstamp, physical=True),),
        mutations=(Delete(key),),
    )
    return () if committed else None


def unmigrated(context: Context, schema: ModelSchema, limit: int) -> Flow[tuple[IndexViolation, ...]]:
    """Return the records that a migration could not rewrite, in the order of their keys. Cost: one read."""
    prefix = unmigrated_prefix(schema.collection)
    found = yield from read_all(context.limits, (ReadRange(prefix, after_prefix(prefix), limit),))
    assert found is not None, "there is no guard"
    return _violations_in(context, schema, prefix, found[0])


def _violations_in(
    context: Context, schema: ModelSchema, prefix: bytes, rows: Iterable[Row]
) -> tuple[IndexViolation, ...]:
    layout = context.layouts[schema.collection]
    return tuple(index_violation(context, layout, row.key[len(prefix) :], row) for row in rows)


class Migration(NamedTuple):
    """The progress row of a migration."""

    version: int
    forget: tuple[str, ...]
    cursor: bytes = b""
    scanned: int = 0
    written: int = 0

    def to_value(self) -> dict[str, Any]:
        """Return the value of the progress row."""
        return {**self._asdict(), "forget": list(self.forget)}

    @classmethod
    def of(cls, codec: ValueCodec, row: Row) -> Migration:
        """Return the progress in a row."""
        value = codec.decode(row.value, row.encoding, row.key)
        return cls(value["version"], tuple(value["forget"]), value["cursor"], value["scanned"], value["written"])

    def has_aim_of(self, other: Migration) -> bool:
        """Return whether both have the same version and fields."""
        return (self.version, self.forget) == (other.version, other.forget)


class MigrationBatch(NamedTuple):
    """Result of one batch.

    Attributes:
        migration: the stored progress, as far as this process knows; None if its row is gone or has another target.
        passed: the number of records that this process has committed.
        written: the number of them that were rewritten.
        finished: whether no record is left.
        too_large: whether nothing was sent, because one operation cannot hold so many records.
    """

    migration: Migration | None
    passed: int = 0
    written: int = 0
    finished: bool = False
    too_large: bool = False


def migrate_batch(context: Context, schema: ModelSchema, migration: Migration, size: int) -> Flow[MigrationBatch]:
    """Migrate the next ``size`` records after the cursor of ``migration``, which this process believes to be stored."""
    view, live = yield from writable_collection(context, schema)
    progress_key = migration_key(schema.collection)
    found = yield from read_batch(context, view, live, progress_key, (migration.cursor, size))
    if found is None:
        return MigrationBatch(migration)
    row, rows = found
    stored = None if row is None else Migration.of(context.codec, row)
    if row is None or stored is None or not stored.has_aim_of(migration):
        return MigrationBatch(None)
    if stored.cursor != migration.cursor:
        return MigrationBatch(stored)
    if not rows:
        return MigrationBatch(stored, finished=True)
    batch = RecordBatch(context, view, live, progress_check(progress_key, row))
    try:
        return (yield from _rewrite_rows(context, batch, stored, rows))
    except LimitExceededError:
        if len(rows) > 1:
            return MigrationBatch(stored, too_large=True)
    alone = batch.restarted()
    alone.pass_over(rows[0], _unmigrated_key(live, rows[0]), Misfit("too_long"))
    return (yield from _commit(context, alone, stored, rows, 0))


def progress_check(key: bytes, row: Row) -> Check | None:
    """Return the check of the progress row, so that only one process commits a batch of the same records (R5)."""
    return Check(key, row.versionstamp, physical=True)


def _rewrite_rows(context: Context, batch: RecordBatch, stored: Migration, rows: Sequence[Row]) -> Flow[MigrationBatch]:
    """Commit the rewritten records together with the progress."""
    now_ms = yield from now()
    changes: list[RecordChange] = []
    for row in rows:
        change = rewritten(context, batch.live, row, stored, now_ms)
        if isinstance(change, RecordChange):
            changes.append(change)
        elif change is not None:
            batch.pass_over(row, _unmigrated_key(batch.live, row), change)
    refused = yield from batch.compile(changes, now_ms)
    if refused is None:
        return MigrationBatch(stored)
    for old, why in refused:
        batch.pass_over(old, _unmigrated_key(batch.live, old), why)
    return (yield from _commit(context, batch, stored, rows, len(changes) - len(refused)))


def _commit(
    context: Context, batch: RecordBatch, stored: Migration, rows: Sequence[Row], written: int
) -> Flow[MigrationBatch]:
    moved = stored._replace(cursor=rows[-1].key, scanned=stored.scanned + len(rows), written=stored.written + written)
    batch.add(Set(migration_key(batch.live.schema.collection), *context.codec.encode(moved.to_value())))
    if not (yield from batch.commit()):
        return MigrationBatch(stored)
    return MigrationBatch(moved, len(rows), written)


def _unmigrated_key(live: LiveCollection, row: Row) -> bytes:
    """Return the key under which a record is listed that cannot be rewritten."""
    return unmigrated_prefix(live.schema.collection) + live.layout.pk_of(row.key)


def rewritten(
    context: Context, live: LiveCollection, row: Row, aim: Migration, now_ms: int
) -> RecordChange | Misfit | None:
    """Return the change that rewrites a record, the reason why it cannot be rewritten, or None if nothing changes."""
    # A key that is not a record key has no primary key to list it by; a check reports it as foreign.
    if rules.is_expired(row, now_ms) or not live.layout.is_record_key(row.key):
        return None
    try:
        held = document_of(context, row)
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    if version_of(held) >= aim.version and held.keys().isdisjoint(aim.forget):
        return None
    made = remade(context, live, row, aim.forget)
    if isinstance(made, Misfit):
        return made
    return RecordChange(live, live.layout.pk_of(row.key), row, held, *made, row.expire_at, tolerant=True)


def remade(
    context: Context, live: LiveCollection, row: Row, forget: Iterable[str] = ()
) -> tuple[Document, bytes, int] | Misfit:
    """Return a record in the form that its model writes, with its bytes; or why it cannot be written."""
    try:
        document = live.schema.prepare(_forgetful(object_of(context, live, row), forget)).document
        value, encoding = context.codec.encode_document(document)
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    except ValidationError as error:
        return Misfit("not_encodable", cause_of(error))
    except KvModelsError as error:
        failed = failed_function(error)
        return Misfit("not_encodable", cause_of(error)) if failed is None else Misfit("key_function", failed)
    # Only of complete indexes: a build lists what its own index cannot hold.
    record = StoredRecord(live.layout.pk_of(row.key), document, value, encoding, row.expire_at)
    limit = context.limits.max_key_bytes
    for index in live.maintained:
        kind = misfit(index, record, context.codec, limit) if index.readable else None
        if kind is not None:
            return Misfit(kind, index.stored.name)
    return Misfit("too_long") if len(value) > context.limits.max_value_bytes else (document, value, encoding)


def _forgetful(instance: Any, names: Iterable[str]) -> Any:
    """Remove undeclared values that are to be forgotten from an object."""
    state, extra = state_of(instance), instance.__pydantic_extra__
    assert state is not None, "it was read"
    set_state(
        instance, replace(state, unknown={name: value for name, value in state.unknown.items() if name not in names})
    )
    for name in names:
        if extra is not None:
            extra.pop(name, None)
    return instance


Settled: TypeAlias = bool | None
"""Whether a record was removed from the list of those that cannot be rewritten; None: not, because of a conflict."""


def _any_settled(parts: Sequence[Settled]) -> Settled:
    return True if any(parts) else None if None in parts else False


def settle_unmigrated(context: Context, schema: ModelSchema, aim: Migration) -> Flow[Settled]:
    """Try every listed record again: rewrite it if that is possible now, or remove it from the list.

    A value that one record releases may become free for another, so repeat this until nothing changes.
    """
    prefix = unmigrated_prefix(schema.collection)
    start, settled = prefix, list[Settled]()
    while True:
        view, live = yield from writable_collection(context, schema)
        span = ReadRange(start, after_prefix(prefix), SETTLED_AT_ONCE)
        result = yield from read((span,), view.guard)
        if isinstance(result, GuardFailed):
            context.view = None
            continue
        listed = result.ranges[0]
        if not listed:
            return _any_settled(settled)
        start = key_successor(listed[-1].key)
        settled.append((yield from _settle_some(context, RecordBatch(context, view, live), aim, listed)))


def _settle_some(context: Context, batch: RecordBatch, aim: Migration, listed: Sequence[Row]) -> Flow[Settled]:
    """Handle some listed records in one commit; one by one if that is too large."""
    layout, prefix = batch.live.layout, unmigrated_prefix(batch.live.schema.collection)
    keys = [layout.key(row.key[len(prefix) :]) for row in listed]
    records = yield from read_all(context.limits, [point(key) for key in keys])
    assert records is not None, "there is no guard"
    now_ms = yield from now()
    changes: list[RecordChange] = []
    gone = False
    for row, key, rows in zip(listed, keys, records, strict=True):
        change = rewritten(context, batch.live, rows[0], aim, now_ms) if rows else None
        if isinstance(change, Misfit):
            continue
        batch.check(Check(row.key, row.versionstamp, physical=True))
        if change is not None:
            changes.append(change)
            continue
        gone = True
        batch.check(Check(key, rows[0].versionstamp if rows else None, physical=bool(rows)))
        batch.add(Delete(row.key))
    try:
        refused = yield from batch.compile(changes, now_ms)
        if refused is None:
            return None
        left = {one.row.key for one in refused}
        settled = [change for change in changes if change.key not in left]
        if not settled and not gone:
            return False
        batch.add(*(Delete(prefix + change.pk) for change in settled))
        return (yield from batch.commit()) or None
    except LimitExceededError:
        if len(listed) == 1:
            return False
    one_by_one: list[Settled] = []
    for row in listed:
        alone = yield from _settle_some(context, batch.restarted(), aim, (row,))
        one_by_one.append(alone)
    return _any_settled(one_by_one)


show_public_path(MigrationReport)
