"""Do what a plan says: list fields, raise the schema version, drop, build, migrate.

Rules of this module: what is refused is refused before anything is done. Every step is a change that can be
interrupted and begun again; the plan is only made to be judged and shown, and each step looks at the store itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.errors import SchemaChangeRefusedError
from kvmodels.flows.build import BuildReport, build_index, outdated_generations, unbuilt_indexes
from kvmodels.flows.context import Context, header_view, reload_header
from kvmodels.flows.drop import drop_generations, drop_index
from kvmodels.flows.headers import list_fields, raise_schema_version
from kvmodels.flows.migrate import MigrationReport, migrate
from kvmodels.flows.opening import list_collections
from kvmodels.flows.pace import Pace
from kvmodels.flows.plan import plan_schema
from kvmodels.flows.requests import Flow
from kvmodels.flows.sampling import SAMPLE
from kvmodels.public_path import show_public_path
from kvmodels.schema.catalogue import IndexState
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.evolution import SchemaPlan
from kvmodels.schema.live import needed_version
from kvmodels.slotted import dataclass

__all__ = ["SchemaReport", "apply_schema", "build_indexes"]


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """What ``db.apply()`` has done.

    Attributes:
        plan: what it found, with the steps that were allowed.
        builds: the indexes that were built, and how that ended.
        migrations: the collections whose records were rewritten.
    """

    plan: SchemaPlan
    builds: tuple[BuildReport, ...]
    migrations: tuple[MigrationReport, ...]

    @property
    def complete(self) -> bool:
        """Whether every index is readable and every record rewritten; else ``db.violations()`` says what is left."""
        built = all(report.state is IndexState.READABLE for report in self.builds)
        return built and all(report.complete for report in self.migrations)

    def __str__(self) -> str:
        number = len(self.plan.steps)
        lines = [f"{number} step{'' if number == 1 else 's'}: {'complete' if self.complete else 'NOT COMPLETE'}"]
        lines += [f"built {report}" for report in self.builds]
        lines += [f"migrated {report}" for report in self.migrations]
        return "\n".join(lines)


def apply_schema(
    context: Context, schemas: Sequence[ModelSchema], allow: Sequence[str], pace: Pace, sample: int | None = SAMPLE
) -> Flow[SchemaReport]:
    """Bring some collections in line with their declarations.

    Args:
        allow: names of what would be refused, or not be done, otherwise.
        sample: how many records of each collection the model is tried on first; None: all.

    Raises:
        SchemaChangeRefusedError: a step is refused; nothing was done.
        SchemaMismatchError: a newer release was brought up meanwhile.
        RetriesExhaustedError: one batch met a conflict in every attempt.
    """
    plan = (yield from plan_schema(context, schemas, sample)).allowing(allow)
    if plan.refused:
        raise SchemaChangeRefusedError(
            "some changes of the schema are refused",
            steps=tuple(
                f"{one.collection}{f'.{one.subject}' if one.subject else ''}: {one.rule}"
                f"{f' ({one.detail})' if one.records else ''}"
                for one in plan.refused
            ),
        )
    yield from list_collections(context)
    builds: list[BuildReport] = []
    migrations: list[MigrationReport] = []
    for schema in schemas:
        for step in plan.of(schema.collection, "index_undeclared"):
            yield from drop_index(context, schema.collection, step.subject or "", pace)
        yield from list_fields(context, schema)
        builds.extend((yield from build_indexes(context, schema, pace)))
        forget = [step.subject or "" for step in plan.of(schema.collection, "field_removed") if step.allowed]
        if forget or (yield from _waits_for_records(context, schema)):
            migrations.append((yield from migrate(context, schema, forget=forget, pace=pace)))
    return SchemaReport(plan, tuple(builds), tuple(migrations))


def build_indexes(context: Context, schema: ModelSchema, pace: Pace) -> Flow[tuple[BuildReport, ...]]:
    """Build or finish every declared index that is not READABLE, and remove what older generations left.

    Raises:
        SchemaMismatchError: this process may not write the collection.
    """
    view = yield from reload_header(context)
    collection, _ = outdated_generations(view, schema)
    yield from raise_schema_version(context, schema)
    reports: list[BuildReport] = []
    for name in unbuilt_indexes(collection, schema):
        report = yield from build_index(context, schema, name, pace)
        reports.append(report)
    view = yield from header_view(context)
    for index in view.header.collections[schema.collection].indexes:
        if index.state is IndexState.DROPPING:
            yield from drop_generations(context, schema.collection, index.name, pace)
    return tuple(reports)


def _waits_for_records(context: Context, schema: ModelSchema) -> Flow[bool]:
    """Whether a declared index serves no query until records of older versions are rewritten."""
    view = yield from reload_header(context)
    oldest = view.header.collections[schema.collection].oldest
    return any(needed_version(schema, definition) > oldest for definition in schema.indexes.values())


show_public_path(SchemaReport)
