"""Compare the models with the store (plan), and carry out the plan.

A plan lists the differences as steps with named rules, and tries the models on a sample of records. Applying it lists
fields, raises the schema version, drops and builds indexes, and migrates records.

Rules of this module: a plan writes nothing. A refused change is refused before anything is written. Every step can be
interrupted and restarted; the plan only serves for display and for the decision, and each step reads the store itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection
from kvmodels.catalog.collection import LiveCollection, is_older, needed_version
from kvmodels.catalog.encryption import key_problem, listing_problem
from kvmodels.catalog.evolution import DecodingSample, PlanStep, RefusedRecord, SchemaPlan, plan_collection
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, SchemaChangeRefusedError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.evolution.build import BuildReport, build_index, unbuilt_indexes
from kvmodels.flows.evolution.drop_index import drop_generations, drop_index
from kvmodels.flows.evolution.header import (
    change_effects,
    list_collections,
    list_fields,
    outdated_generations,
    raise_schema_version,
)
from kvmodels.flows.evolution.histories import drop_history, keep_history
from kvmodels.flows.evolution.migrate import MigrationReport, migrate, rewritten_form
from kvmodels.flows.evolution.throttle import SAMPLE, Pace
from kvmodels.flows.hydration.rows import cause_of, document_of, object_of, shown_key
from kvmodels.indexing.entries import Misfit
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.encryption.blind_values import key_id_of
from kvmodels.schema.encryption.documents import MISSING_KEY

ROWS_AT_ONCE: Final = 500


def plan_schema(context: Context, schemas: Sequence[ModelSchema], sample: int | None = SAMPLE) -> Flow[SchemaPlan]:
    """Return the plan for some collections.

    ``sample``: the number of records of each collection, in key order, to try the model on; None: all records. Cost:
    one read of the header, and one read of each collection; for a larger sample one per 500 records.
    """
    view = yield from reload_header(context)
    steps: list[PlanStep] = []
    for schema in schemas:
        live, stored = view.live[schema.collection], view.header.collections.get(schema.collection)
        empty, tried = yield from _tried(context, live, sample if _can_be_tried(live, stored) else 0)
        steps.extend(plan_collection(live, stored, empty=empty, tried=tried))
    return SchemaPlan(tuple(steps))


def _can_be_tried(live: LiveCollection, stored: StoredCollection | None) -> bool:
    """Return whether the records are of this release or an older one, and no other step reports them as unreadable."""
    return stored is not None and live.refused is None and not is_older(live.schema, stored)


def _tried(context: Context, live: LiveCollection, sample: int | None) -> Flow[tuple[bool, DecodingSample]]:
    """Return whether there are no records, and the result of decoding the first ones with the model."""
    start, end = live.layout.prefix, after_prefix(live.layout.prefix)
    if sample == 0:
        found = yield from read((ReadRange(start, end, 1, keys_only=True),))
        return not found.ranges[0], DecodingSample(0, ())
    number, refused = 0, list[RefusedRecord]()
    while sample is None or number < sample:
        size = ROWS_AT_ONCE if sample is None else min(ROWS_AT_ONCE, sample - number)
        found = yield from read((ReadRange(start, end, size),))
        rows = found.ranges[0]
        number += len(rows)
        refused += _refused(context, live, rows)
        if len(rows) < size:
            break
        start = key_successor(rows[-1].key)
    return number == 0, DecodingSample(number, tuple(refused))


def _refused(context: Context, live: LiveCollection, rows: Iterable[Row]) -> Iterable[RefusedRecord]:
    for row in rows:
        # A release cannot fix a key that is not a record key; a check reports it as foreign.
        cause = _refusal(context, live, row) if live.layout.is_record_key(row.key) else None
        if cause is not None:
            yield RefusedRecord(shown_key(live.layout.unpack_key(row.key)), cause)


def _refusal(context: Context, live: LiveCollection, row: Row) -> str | None:
    """Return why the model refuses a record; an older record is also rewritten, as in a migration."""
    try:
        if version_of(document_of(context, row)) >= live.schema.schema_version:
            object_of(context, live, row)
            return None
        made = rewritten_form(context, live, row)
    except SchemaMismatchError:  # without the keys of encrypted fields nothing is known
        return None
    except DecodeError as error:
        return None if error.reason == MISSING_KEY else cause_of(error)
    if not isinstance(made, Misfit):
        return None
    if made.reason is None or made.kind in ("not_decodable", "not_encodable"):
        return made.reason or made.kind
    return f"{made.kind} ({made.reason})"


@without_truth("report.complete")
@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The result of ``db.apply()``.

    Attributes:
        plan: the plan, with the allowed steps.
        builds: the reports of the index builds.
        migrations: the reports of the migrations.
        tenants_behind: the number of tenants whose catalogues differ from their models; ``db.apply(tenants=True)``
            brings them in line.
    """

    plan: SchemaPlan
    builds: tuple[BuildReport, ...]
    migrations: tuple[MigrationReport, ...]
    tenants_behind: int = 0

    @property
    def complete(self) -> bool:
        """Whether every index is readable and every record rewritten; otherwise see ``db.violations()``."""
        built = all(report.state is IndexState.READABLE for report in self.builds)
        return built and all(report.complete for report in self.migrations)

    def __str__(self) -> str:
        number = len(self.plan.steps)
        lines = [f"{number} step{'' if number == 1 else 's'}: {'complete' if self.complete else 'NOT COMPLETE'}"]
        lines += [f"built {report}" for report in self.builds]
        lines += [f"migrated {report}" for report in self.migrations]
        if self.tenants_behind:
            lines.append(f"tenants that are behind: {self.tenants_behind}; db.apply(tenants=True) brings them in line")
        return "\n".join(lines)


def apply_schema(
    context: Context, schemas: Sequence[ModelSchema], allow: Sequence[str], pace: Pace, sample: int | None = SAMPLE
) -> Flow[SchemaReport]:
    """Bring some collections in line with their declarations.

    ``sample``: the number of records of each collection to try the model on first; None: all. Raises
    SchemaChangeRefusedError: a step is refused, and nothing was done; SchemaMismatchError: this process lacks the keys
    of records whose schema version would be raised, and nothing was done, or a newer release was applied meanwhile;
    RetriesExhaustedError: a batch met a conflict in every attempt.
    """
    plan = (yield from plan_schema(context, schemas, sample)).allowing(allow)
    _require_keys((yield from header_view(context)), schemas)
    if plan.refused:
        raise refusal_of(plan)
    yield from list_collections(context)
    builds: list[BuildReport] = []
    migrations: list[MigrationReport] = []
    for schema in schemas:
        for step in plan.of(schema.collection, "index_undeclared", "reference_changed"):
            yield from drop_index(context, schema.collection, step.subject or "", pace)
        if plan.of(schema.collection, "history_undeclared", "history_dropping"):
            yield from drop_history(context, schema.collection, pace)
        yield from list_fields(context, schema)
        if plan.of(schema.collection, "on_delete_changed"):
            yield from change_effects(context, schema)
        builds.extend((yield from build_indexes(context, (schema,), pace)))
        if plan.of(schema.collection, "collection_added", "history_added", "history_changed", "history_unfinished"):
            kept = yield from keep_history(context, schema, pace)
            builds += [] if kept is None else [kept]
        forget = [step.subject or "" for step in plan.of(schema.collection, "field_removed") if step.allowed]
        if forget or (yield from _waits_for_records(context, schema)):
            migrations.append((yield from migrate(context, schema, forget=forget, pace=pace)))
    return SchemaReport(plan, tuple(builds), tuple(migrations))


def _require_keys(view: HeaderView, schemas: Sequence[ModelSchema]) -> None:
    """Refuse a process without the keys of a collection that it would encrypt, raise to a version, or index blindly.

    Without its keys every trial of a record would fail, as if the record were damaged, and a build would list every
    record. Raises SchemaMismatchError.
    """
    for schema in schemas:
        stored = view.header.collections.get(schema.collection)
        if stored is None:
            continue
        problem = listing_problem(schema, stored.encryption)
        if problem is None and stored.encryption is not None:
            is_raised = stored.schema_version < schema.schema_version
            if is_raised or _adds_blind_values(view.live[schema.collection]):
                problem = key_problem(schema, stored.encryption)
        if problem is not None:
            raise problem


def _adds_blind_values(live: LiveCollection) -> bool:
    """Return whether a declared index has blind values that no record holds yet, because no index is listed on them."""
    held = {column.path for index in live.maintained for column in index.definition.columns}
    declared = (column for name in live.states for column in live.schema.indexes[name].columns)
    return any(key_id_of(column) is not None and column.path not in held for column in declared)


def refusal_of(plan: SchemaPlan) -> SchemaChangeRefusedError:
    """Return the error for the refused steps of a plan."""
    return SchemaChangeRefusedError(
        "some changes of the schema are refused",
        steps=tuple(
            f"{one.collection}{f'.{one.subject}' if one.subject else ''}: {one.rule}"
            f"{f' ({one.detail})' if one.records else ''}"
            for one in plan.refused
        ),
    )


def build_indexes(context: Context, schemas: Sequence[ModelSchema], pace: Pace) -> Flow[tuple[BuildReport, ...]]:
    """Build or finish every declared index that is not READABLE, and remove the entries of older generations."""
    view = yield from reload_header(context)
    for schema in schemas:
        outdated_generations(view, schema)
    _require_keys(view, schemas)
    reports: list[BuildReport] = []
    for schema in schemas:
        reports.extend((yield from _build_indexes_of(context, schema, pace)))
    return tuple(reports)


def _build_indexes_of(context: Context, schema: ModelSchema, pace: Pace) -> Flow[list[BuildReport]]:
    yield from raise_schema_version(context, schema)
    view = yield from header_view(context)
    reports: list[BuildReport] = []
    for name in unbuilt_indexes(view.header.collections[schema.collection], schema):
        report = yield from build_index(context, schema, name, pace)
        reports.append(report)
    view = yield from header_view(context)
    for index in view.header.collections[schema.collection].indexes:
        if index.state is IndexState.DROPPING:
            yield from drop_generations(context, schema.collection, index.name, pace)
    return reports


def _waits_for_records(context: Context, schema: ModelSchema) -> Flow[bool]:
    """Return whether older records must be rewritten: for an index, or because a field is encrypted, or plain again."""
    view = yield from reload_header(context)
    stored = view.header.collections[schema.collection]
    oldest = stored.oldest
    if stored.encryption is not None and stored.encryption.waits_for(oldest):
        return True
    return any(needed_version(schema, definition) > oldest for definition in schema.indexes.values())


show_public_path(SchemaReport)
