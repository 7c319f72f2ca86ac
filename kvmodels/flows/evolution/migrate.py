"""Rewrite the records of older schema versions: beside readers and writers, in batches, resumable, by any processes.

The commit that begins a migration raises the schema version in the header, so that nobody writes an older version
from then on; the scan rewrites what is older, each record under a check of its versionstamp. Every batch checks and
sets the progress row: a second delivery, or a second process at the same place, is refused, so each upgrade is applied
to each record once. When all have been seen and none is left on the list of those that cannot be rewritten, one
commit says in the header that no record is older: then the indexes that an upgrade touches serve queries again.

Rules of this module: records are rewritten by ``flows/evolution/migrate_batch.py``; every step can be lost, repeated or
interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.keyspace import migration_key, unmigrated_prefix
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Check, Delete, GuardFailed, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import RetriesExhaustedError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, reload_header, writable_collection
from kvmodels.flows.effects import Flow, read, sleep
from kvmodels.flows.evolution.build import IndexViolation
from kvmodels.flows.evolution.header import commit_header
from kvmodels.flows.evolution.migrate_batch import Migration, migrate_batch, settle_unmigrated
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.split_reads import read_all, rows_at_once
from kvmodels.schema.definition.definition import ModelSchema

FIRST_BATCH = 100
LARGEST_BATCH = 1_000
LISTED_AT_MOST = 1_000


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """How a migration ended for one collection.

    Attributes:
        collection: of the model.
        version: the schema version that the records were brought to.
        complete: no record is older any more; else ``violations`` names those that are (the first 1,000).
        scanned: records that this call has passed.
        written: records that this call has rewritten.
        violations: records that cannot be rewritten, and why.
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
    """Rewrite every record of a lower schema version, or finish what another process began.

    Args:
        forget: fields that the model does not declare, whose values are taken out of the records too.
        pace: how fast, and who is told.

    Raises:
        SchemaMismatchError: this process may not write the collection.
        RetriesExhaustedError: one batch met a conflict in every attempt.

    Cost: per batch two or three reads and one commit; two header commits. Idempotent; when there is nothing to do, one
    read. With ``forget`` every record is read, in each call.
    """
    counts = _Counts()
    wanted = frozenset(forget)
    while True:
        view = yield from _view(context, schema)
        stored = view.header.collections[schema.collection]
        row = yield from _progress(context, schema)
        # Also what is not listed: an upgrade that touched a field and left it in the records has taken it off the list.
        aim = Migration(schema.schema_version, tuple(sorted(wanted)))
        if row is not None and row[0].version == aim.version:
            # What another process has begun to forget is carried through, or each would begin anew in turn.
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
    """The header, if this process may write, or may do so once the migration has begun."""
    view = yield from reload_header(context)
    live = view.live[schema.collection]
    obstacle = live.refused or live.read_only
    if obstacle is not None and not live.unraised:
        raise obstacle
    return view


def _progress(context: Context, schema: ModelSchema) -> Flow[tuple[Migration, bytes] | None]:
    """The stored progress with its versionstamp."""
    key = migration_key(schema.collection)
    rows = (yield from read((point(key),))).ranges[0]
    if not rows:
        return None
    value = context.codec.decode(rows[0].value, rows[0].encoding, key)
    return Migration.from_value(value), rows[0].versionstamp


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
    """Raise the schema version and set the progress back, in one commit; ``before``: versionstamp of the progress."""
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
    """Pass every record; the progress at the end, or None when another migration has taken the place of this one."""
    size, conflicts = FIRST_BATCH, 0
    while True:
        batch = yield from migrate_batch(context, schema, known, pace.size(size))
        if batch.finished or batch.migration is None:
            return batch.migration
        if batch.migration != known:
            known, conflicts = batch.migration, 0
            if batch.passed:
                counts.scanned += batch.passed
                counts.written += batch.written
                size = min(size * 2, LARGEST_BATCH)
                told = SchemaProgress("migrate", schema.collection, None, known.scanned, known.written)
                yield from pace.after(told, batch.passed)
            continue
        size = max(size // 2, 1)
        if not batch.too_large:
            conflicts += 1
            yield from _wait(context, schema, conflicts)


def _settle(context: Context, schema: ModelSchema, aim: Migration) -> Flow[None]:
    """Take off the list what can be, until a look at all of it changes nothing."""
    conflicts = 0
    while True:
        settled = yield from settle_unmigrated(context, schema, aim)
        if not settled.records and not settled.conflicts:
            return
        conflicts = 0 if settled.records else conflicts + 1
        if conflicts:
            yield from _wait(context, schema, conflicts)


def _wait(context: Context, schema: ModelSchema, conflicts: int) -> Flow[None]:
    if conflicts > context.retry.attempts:
        raise RetriesExhaustedError(
            "every attempt to migrate a batch of records met a conflict",
            attempts=conflicts,
            failed_checks=(decode_key(migration_key(schema.collection)),),
        )
    pause = context.retry.pause(conflicts + 1, context.random())
    if pause > 0:
        yield from sleep(pause)


def _finish(context: Context, schema: ModelSchema, at_end: Migration) -> Flow[tuple[IndexViolation, ...] | None]:
    """Say in the header that no record is older; the records that are, if any are left; None: look again.

    That none is listed is a statement about a range, which no check can guard. It is stable: only a batch adds to the
    list, and every batch moves the progress row, which is checked.
    """
    view, _ = yield from writable_collection(context, schema)
    prefix, key = unmigrated_prefix(schema.collection), migration_key(schema.collection)
    span = ReadRange(prefix, after_prefix(prefix), rows_at_once(context.limits, LISTED_AT_MOST, beside=2))
    result = yield from read((point(key), span), view.guard)
    if isinstance(result, GuardFailed):
        context.view = None
        return None
    rows, listed = result.ranges
    if not rows or Migration.from_value(context.codec.decode(rows[0].value, rows[0].encoding, key)) != at_end:
        return None
    if listed:
        return _violations_in(context, schema, prefix, listed)
    stored = view.header.collections[schema.collection]
    # Only of what upgrades have made it is known that every record has it: records of this version were passed over, so
    # that another new field may be missing in them, or have its former type, which the next plan is to say.
    made = [name for name, version in schema.touched.items() if version > stored.oldest]
    stored = stored.listing(schema, made)
    # What an upgrade has dealt with, and the model does not declare, is in no record any more.
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
    """The records that a migration could not rewrite, in the order of their keys. Cost: one read."""
    prefix = unmigrated_prefix(schema.collection)
    found = yield from read_all(context.limits, (ReadRange(prefix, after_prefix(prefix), limit),))
    assert found is not None, "there is no guard"
    return _violations_in(context, schema, prefix, found[0])


def _violations_in(
    context: Context, schema: ModelSchema, prefix: bytes, rows: Iterable[Row]
) -> tuple[IndexViolation, ...]:
    """Rows of the list as values: the primary key is what follows the prefix."""
    layout = context.layouts[schema.collection]
    found: list[IndexViolation] = []
    for row in rows:
        values = layout.unpack(row.key[len(prefix) :])
        value = context.codec.decode(row.value, row.encoding, row.key)
        key = values[0] if len(values) == 1 else values
        found.append(IndexViolation(key, value["kind"], value.get("reason")))
    return tuple(found)


show_public_path(MigrationReport)
