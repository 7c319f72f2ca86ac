"""``plan``, ``apply``, ``migrate``, ``rotate``, ``violations`` and ``resolve``: schema changes.

Rules of this module: every command needs the model classes. Nothing that loses data runs without an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import TypeAdapter

from kvmodels.catalog.evolution import PlanStep, SchemaPlan
from kvmodels.cli.command_line import AllTenants, CommandLine, Tenant, Yes, one_side
from kvmodels.cli.failures import FOUND
from kvmodels.cli.output import of_schema_change, of_tenants
from kvmodels.cli.store import OpenStore
from kvmodels.cli.wording import in_commands
from kvmodels.flows.evolution.apply import SchemaReport
from kvmodels.flows.tenant_schemas import TenantsPlan, TenantsReport

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL", help="Collections or class names; all models if absent.", show_default=False),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A collection or a class name.")]
Index = Annotated[str | None, typer.Option("--index", metavar="NAME", help="Only this index.")]
Throttle = Annotated[
    float | None, typer.Option("--throttle", metavar="N", help="Process at most this many records per second.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="RULE",
        help="Allow a change that loses data: drop_index, forget_field, change_type or leave_records. Repeatable.",
    ),
]
Sample = Annotated[int, typer.Option("--sample", metavar="N", min=0, help="Try the models on N records of each.")]
SAMPLE = 100


def plan(
    line: CommandLine,
    *,
    models: Models = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if apply has something to do.")] = False,
    sample: Sample = SAMPLE,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
) -> None:
    """Show how the store differs from the models."""
    one_side(tenant, all_tenants=all_tenants)
    with line.open(tenant=tenant) as store:
        found: SchemaPlan | TenantsPlan
        if all_tenants:
            found = store.db.plan(*store.chosen_of_tenants(models or ()), sample=sample, tenants=True)
        else:
            found = store.db.plan(*store.chosen(models or ()), sample=sample)
        line.output.report(in_commands(str(found)), as_data(found))
        if check and not found.is_current:
            raise typer.Exit(FOUND)


def apply(
    line: CommandLine,
    *,
    models: Models = None,
    allow: Allow = None,
    throttle: Throttle = None,
    sample: Sample = SAMPLE,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    yes: Yes = False,
) -> None:
    """Bring the store in line with the models.

    Readers and writers may stay: indexes are built and records rewritten next to them. An interrupted run is resumed by
    the next one. Exit code 1: something was refused, or violations are left.
    """
    one_side(tenant, all_tenants=all_tenants)
    with line.open(writes=True, tenant=tenant) as store:
        how = _Change(line, store, models or [], allow or [], throttle, sample)
        done = how.apply_tenants(yes=yes) if all_tenants else how.apply(yes=yes)
        line.output.report(str(done), as_data(done))
        if not done.complete:
            line.output.message("kvmodels violations lists the records that stand in the way")
            raise typer.Exit(FOUND)


class _Change(NamedTuple):
    """The arguments of a change of the schema."""

    line: CommandLine
    store: OpenStore
    models: list[str]
    allow: list[str]
    throttle: float | None
    sample: int

    def apply(self, *, yes: bool) -> SchemaReport:
        """Change the store, or the tenant that the command is confined to."""
        db, chosen = self.store.db, self.store.chosen(self.models)
        self._confirm(db.plan(*chosen, sample=self.sample).allowing(self.allow).steps, yes=yes)
        with self.line.output.progress() as progress:
            return db.apply(
                *chosen,
                allow=self.allow,
                progress=of_schema_change(progress),
                throttle=self.throttle,
                sample=self.sample,
            )

    def apply_tenants(self, *, yes: bool) -> TenantsReport:
        """Change all tenants."""
        db, chosen = self.store.db, self.store.chosen_of_tenants(self.models)
        groups = db.plan(*chosen, sample=self.sample, tenants=True).groups
        self._confirm([step for group in groups for step in group.plan.allowing(self.allow).steps], yes=yes)
        with self.line.output.progress() as progress:
            return db.apply(
                *chosen,
                allow=self.allow,
                progress=of_tenants(progress, "apply"),
                throttle=self.throttle,
                sample=self.sample,
                tenants=True,
            )

    def _confirm(self, steps: Iterable[PlanStep], *, yes: bool) -> None:
        losing = [step for step in steps if step.allowed]
        for step in losing:
            self.line.output.message(in_commands(str(step)))
        if losing:
            self.line.confirm(f"Carry out {_count(losing, 'change')} that may lose data?", yes=yes)


def migrate(
    line: CommandLine,
    *,
    model: Model,
    forget: Annotated[
        list[str] | None,
        typer.Option("--forget", metavar="FIELD", help="Remove the values of an undeclared field. Repeatable."),
    ] = None,
    throttle: Throttle = None,
    yes: Yes = False,
) -> None:
    """Rewrite the records of older schema versions.

    The upgrades of the model are run. Exit code 1: some records cannot be rewritten.
    """
    with line.open(writes=True) as store:
        chosen = store.model(model)
        if forget:
            line.confirm(f"Remove the values of {', '.join(forget)} from all records?", yes=yes)
        with line.output.progress() as progress:
            done = store.db.migrate(chosen, forget=forget or (), progress=of_schema_change(progress), throttle=throttle)
        line.output.report(str(done), as_data(done))
        if not done.complete:
            raise typer.Exit(FOUND)


def rotate(
    line: CommandLine,
    *,
    model: Model,
    to: Annotated[int, typer.Option("--to", metavar="ID", min=1, help="The id of the new key.")],
    throttle: Throttle = None,
) -> None:
    """Seal the encrypted fields of a model with another key.

    Readers and writers may stay, if all of them have the key. An interrupted run is resumed by the next one. Exit code
    1: some values cannot be opened.
    """
    with line.open(writes=True) as store:
        chosen = store.model(model)
        with line.output.progress() as progress:
            done = store.db.rotate(chosen, to=to, progress=of_schema_change(progress), throttle=throttle)
        line.output.report(str(done), as_data(done))
        if not done.complete:
            raise typer.Exit(FOUND)


def violations(
    line: CommandLine,
    *,
    models: Models = None,
    index: Index = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="At most this many for each index.")] = 1_000,
) -> None:
    """List the records that block an index or a migration.

    Exit code 1: there are some.
    """
    with line.open() as store:
        found = [one for model in store.chosen(models or ()) for one in store.db.violations(model, index, limit=limit)]
        line.output.report("\n".join(map(str, found)) or "no violations", [as_data(one) for one in found])
        if found:
            raise typer.Exit(FOUND)


def resolve(line: CommandLine, *, model: Model, index: Index = None) -> None:
    """Check violations again after records were changed.

    An index without violations becomes readable. Exit code 1: violations are left.
    """
    with line.open(writes=True) as store:
        reports = store.db.resolve(store.model(model), index)
        text = "\n".join(map(str, reports)) or "no index has violations"
        line.output.report(text, [as_data(report) for report in reports])
        if any(report.violations for report in reports):
            raise typer.Exit(FOUND)


def as_data(result: object) -> Any:
    """Return a result of the library in its JSON form."""
    return TypeAdapter(type(result)).dump_python(result, mode="json")


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
