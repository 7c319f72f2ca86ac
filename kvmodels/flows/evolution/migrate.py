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

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import migration_key, unmigrated_prefix
from kvmodels.core.operations import Check, Delete, ReadRange, Row, Set, after_prefix
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, KvModelsError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, reload_header, writable_collection
from kvmodels.flows.effects import Flow, read_all, read_row
from kvmodels.flows.evolution.batches import IndexViolation, index_violation, misfit_of
from kvmodels.flows.evolution.header import commit_header
from kvmodels.flows.evolution.old_versions import forget_in_versions, seal_versions
from kvmodels.flows.evolution.record_pass import PassProgress, PassWork, RecordPass
from kvmodels.flows.evolution.throttle import UNPACED, Pace
from kvmodels.flows.hydration.rows import document_of, object_of, rewritten_document
from kvmodels.indexing.entries import Misfit, RecordChange, StoredRecord
from kvmodels.indexing.kinds.registry import misfit
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.instances import set_state, state_of


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


def migrate(
    context: Context, schema: ModelSchema, *, forget: Iterable[str] = (), pace: Pace = UNPACED
) -> Flow[MigrationReport]:
    """Rewrite every record of a lower schema version, or finish a migration that another process began."""
    key, wanted, work = migration_key(schema.collection), frozenset(forget), PassWork(context)
    while True:
        view = yield from _view(context, schema)
        row = yield from read_row(key)
        stored = None if row is None else PassProgress.of(context.codec, row)
        start = _at_start(schema, wanted, stored)
        if stored is None or stored.aim != start.aim:
            oldest = view.header.collections[schema.collection].oldest
            if row is None and oldest >= schema.schema_version and not wanted:
                return _report(schema, work, ())
            yield from _begin(context, view, schema, start, row)
            continue
        migration = Migration(context, schema, work, stored)
        at_end = yield from migration.scan(stored, pace)
        if at_end is None:
            continue
        yield from migration.settle()
        if stored.aim["forget"] and view.header.collections[schema.collection].history is not None:
            yield from forget_in_versions(context, schema.collection, stored.aim["forget"])
        if view.header.collections[schema.collection].encryption is not None and schema.sealer is not None:
            yield from seal_versions(context, schema)
        left = yield from migration.finish(at_end)
        if left is not None:
            return _report(schema, work, left)


def _report(schema: ModelSchema, work: PassWork, left: tuple[IndexViolation, ...]) -> MigrationReport:
    return MigrationReport(schema.collection, schema.schema_version, not left, work.scanned, work.written, left)


def _at_start(schema: ModelSchema, wanted: frozenset[str], stored: PassProgress | None) -> PassProgress:
    """Return the progress with which a migration begins that removes these fields, whether they are listed or not.

    An upgrade that touched a field and left it in the records has removed it from the list. Fields that another process
    has begun to forget are included; otherwise each process would restart the other's work.
    """
    forget = wanted
    if stored is not None and stored.aim["version"] == schema.schema_version:
        forget |= frozenset(stored.aim["forget"])
        for name in forget & schema.fields.keys():
            raise SchemaMismatchError(
                "another process takes a field out of the records that this one declares",
                collection=schema.collection,
                stored=name,
                declared=name,
                hint="Two releases of your program are migrating at once: run db.migrate() in the latest one only.",
            )
    return PassProgress({"version": schema.schema_version, "forget": sorted(forget)}, written=0)


def _view(context: Context, schema: ModelSchema) -> Flow[HeaderView]:
    """Return the header if this process may write, or may write once the migration has begun."""
    view = yield from reload_header(context)
    live = view.live[schema.collection]
    obstacle = live.refused or live.read_only
    if obstacle is not None and not live.unraised:
        raise obstacle
    return view


def _begin(context: Context, view: HeaderView, schema: ModelSchema, start: PassProgress, row: Row | None) -> Flow[None]:
    """Raise the schema version and reset the progress in one commit; ``row``: the present progress row."""
    stored, key = view.header.collections[schema.collection], migration_key(schema.collection)
    yield from commit_header(
        context,
        view,
        view.header.with_collection(stored.raised_to(schema)),
        checks=(Check(key, row.versionstamp if row else None, physical=True),),
        mutations=(Set(key, *context.codec.encode(start.to_value())),),
    )


class Migration(RecordPass):
    """The pass that rewrites the records of older versions, with the aim of the stored progress."""

    step = "migrate"
    unfit = Misfit("too_long")
    tried_at_once = 100

    def __init__(self, context: Context, schema: ModelSchema, work: PassWork, progress: PassProgress) -> None:
        super().__init__(context, schema, work, migration_key(schema.collection), unmigrated_prefix(schema.collection))
        self._version: int = progress.aim["version"]
        self._forget: list[str] = progress.aim["forget"]

    def change(self, live: LiveCollection, row: Row, *, listed: bool) -> RecordChange | Misfit | None:
        """Return the change that rewrites a record; None if it has nothing left to change."""
        del listed
        try:
            held = document_of(self.context, row)
        except DecodeError as error:
            return misfit_of(error)
        if version_of(held) >= self._version and held.keys().isdisjoint(self._forget):
            return None
        made = rewritten_form(self.context, live, row, self._forget)
        if isinstance(made, Misfit):
            return made
        return RecordChange(live, live.layout.pk_of(row.key), row, held, *made, row.expire_at, tolerant=True)

    def finish(self, at_end: PassProgress) -> Flow[tuple[IndexViolation, ...] | None]:
        """Note in the header that no record is older; return the older records, or None to start over.

        The empty list is a condition on a range, which no check can guard. It is stable: only a batch adds to the list,
        and every batch changes the progress row, which is checked.
        """
        context, schema = self.context, self.schema
        view, _ = yield from writable_collection(context, schema)
        found = yield from self.left(view)
        if found is None:
            return None
        row, violations = found
        if row is None or PassProgress.of(context.codec, row) != at_end:
            return None
        if violations:
            return violations
        stored = view.header.collections[schema.collection]
        # Only fields that upgrades have set are known to be in every record: records of this version were skipped, so
        # another new field may be missing in them, or have its former type, which the next plan reports.
        made = [name for name, version in schema.touched.items() if version > stored.oldest]
        stored = stored.listing(schema, made)
        # Fields that an upgrade has handled, and that the model does not declare, are in no record any more.
        gone = {*self._forget, *(schema.touched.keys() - schema.fields.keys())}
        fields = {name: kind for name, kind in stored.fields.items() if name not in gone}
        columns = {name: kind for name, kind in stored.columns.items() if name not in gone}
        listed = None if stored.encryption is None else stored.encryption.settled(self._version, gone)
        done = replace(stored, oldest=self._version, fields=fields, columns=columns, encryption=listed)
        committed = yield from commit_header(
            context,
            view,
            view.header.with_collection(done),
            checks=(Check(self.key, row.versionstamp, physical=True),),
            mutations=(Delete(self.key),),
        )
        return () if committed else None


def unmigrated(context: Context, schema: ModelSchema, limit: int) -> Flow[tuple[IndexViolation, ...]]:
    """Return the records that a migration could not rewrite, in the order of their keys. Cost: one read."""
    prefix = unmigrated_prefix(schema.collection)
    found = yield from read_all(context.limits, (ReadRange(prefix, after_prefix(prefix), limit),))
    assert found is not None, "there is no guard"
    layout = context.layouts[schema.collection]
    return tuple(index_violation(context, layout, row.key[len(prefix) :], row) for row in found[0])


def rewritten_form(
    context: Context, live: LiveCollection, row: Row, forget: Iterable[str] = ()
) -> tuple[Document, bytes, int] | Misfit:
    """Return a record in the form that its model writes, with its bytes; or why it cannot be written."""
    try:
        document = rewritten_document(
            live, _without_values(object_of(context, live, row), forget), document_of(context, row)
        )
        value, encoding = context.codec.encode_document(document)
    except SchemaMismatchError:  # a key is missing, for this record and all others
        raise
    except (ValidationError, KvModelsError) as error:
        return misfit_of(error)
    # Only of complete indexes: a build lists what its own index cannot hold.
    record = StoredRecord(live.layout.pk_of(row.key), document, value, encoding, row.expire_at)
    limit = context.limits.max_key_bytes
    for index in live.maintained:
        kind = misfit(index, record, context.codec, limit) if index.readable else None
        if kind is not None:
            return Misfit(kind, index.stored.name)
    return Misfit("too_long") if len(value) > context.limits.max_value_bytes else (document, value, encoding)


def _without_values(instance: Any, names: Iterable[str]) -> Any:
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


show_public_path(MigrationReport)
