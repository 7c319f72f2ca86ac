"""``check``: compare index entries with records, and repair them.

Rules of this module: without model classes, entries are compared with the catalogue and nothing can be repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import typer

from kvmodels.cli.command_line import AllTenants, CommandLine, Tenant, Yes, one_side
from kvmodels.cli.commands.schema import Models, Throttle, as_data
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import of_schema_change, of_tenants
from kvmodels.cli.store import OpenStore
from kvmodels.cli.wording import in_commands
from kvmodels.flows.check.findings import CheckReport, Finding
from kvmodels.flows.check.tenants import TenantsCheck

REPAIR: Final = "--repair"
ENTRIES: Final = "entries"
"""The value of ``--repair`` alone."""


def check(
    line: CommandLine,
    *,
    models: Models = None,
    repair: Annotated[
        Literal["entries", "all"] | None,
        typer.Option(
            REPAIR,
            metavar="[=all]",
            help="Repair index entries and counters; =all also deletes keys of no model and unreadable rows, "
            "and asks first.",
        ),
    ] = None,
    blobs: Annotated[
        bool, typer.Option("--blobs", help="Also read the content of all blobs, and compare their hashes.")
    ] = False,
    throttle: Throttle = None,
    tenant: Tenant = None,
    all_tenants: AllTenants = False,
    yes: Yes = False,
) -> None:
    """Verify index entries and counters, and repair them.

    Every entry is compared with its record, next to live writers. Exit code 1: something was found, whether it was
    repaired or not. A database that is given as a URL is compared with its catalogue only, all collections at once, and
    cannot be repaired.
    """
    one_side(tenant, all_tenants=all_tenants)
    kind: Literal["all"] | bool = "all" if repair == "all" else repair is not None
    with line.open(writes=bool(kind), tenant=tenant) as store:
        if kind and not all_tenants:
            store.require_models()
        if models and not store.models and not all_tenants:
            raise CommandError(
                "with a URL, all collections are checked", hint="Leave MODEL out, or give module:object."
            )
        if repair == "all":
            line.confirm("Delete keys that do not belong to a model, and rows that cannot be read?", yes=yes)
        if all_tenants:
            _check_tenants(line, store, models, kind, throttle, blobs=blobs)
            return
        report = _checked(line, store, models, kind, throttle, blobs=blobs)
        line.output.report(_text(report), {"ok": report.ok, **as_data_of(report)})
        if report.findings:
            raise typer.Exit(FOUND)


def _checked(
    line: CommandLine,
    store: OpenStore,
    models: list[str] | None,
    repair: Literal["all"] | bool,
    throttle: float | None,
    *,
    blobs: bool,
) -> CheckReport:
    with line.output.progress() as progress:
        reports = [
            store.db.check(model, repair=repair, blobs=blobs, progress=of_schema_change(progress), throttle=throttle)
            for model in ([store.model(name) for name in models] if models else [None])
        ]
    return _together(reports)


def _together(reports: Sequence[CheckReport]) -> CheckReport:
    return CheckReport(
        sum(report.scanned for report in reports),
        tuple(finding for report in reports for finding in report.findings),
        tuple(reason for report in reports for reason in report.unchecked),
    )


def _check_tenants(
    line: CommandLine,
    store: OpenStore,
    models: list[str] | None,
    repair: Literal["all"] | bool,
    throttle: float | None,
    *,
    blobs: bool,
) -> None:
    chosen = store.chosen_of_tenants(models or ())
    with line.output.progress() as progress:
        listen = of_tenants(progress, "check")
        checks = [
            store.db.check(model, repair=repair, blobs=blobs, progress=listen, throttle=throttle, tenants=True)
            for model in (chosen if models else [None])
        ]
    found = _of_all_models(checks)
    lines = [str(found).partition("\n")[0]]
    lines += [f"{name}: {_text(report)}" for name, report in found.reports.items()]
    lines += [f"{one.tenant}: {one.message}" for one in found.failed]
    lines += [f"{one.name}: not checked, its state is {one.state}" for one in found.unchecked]
    line.output.report("\n".join(lines), {"ok": found.ok, **as_data(found)})
    if found.failed or any(report.findings for report in found.reports.values()):
        raise typer.Exit(FOUND)


def _of_all_models(checks: Sequence[TenantsCheck]) -> TenantsCheck:
    """Return one report of checks of all tenants, each of another model."""
    names = sorted({name for one in checks for name in one.reports})
    return TenantsCheck(
        min(one.checked for one in checks),
        sum(one.scanned for one in checks),
        {name: _together([one.reports[name] for one in checks if name in one.reports]) for name in names},
        tuple(failure for one in checks for failure in one.failed),
        checks[-1].unchecked,
    )


def as_data_of(report: CheckReport) -> dict[str, object]:
    """Return a report of a check in its JSON form, an object."""
    return {
        "scanned": report.scanned,
        "findings": [as_data(finding) for finding in report.findings],
        "unchecked": list(report.unchecked),
    }


def _text(report: CheckReport) -> str:
    return "\n".join([str(report).partition("\n")[0], *map(_shown, report.findings)])


def _shown(finding: Finding) -> str:
    done = "; removed" if finding.removed else "; repaired"
    ending = done if finding.repaired else f"; {in_commands(finding.hint)}" if finding.hint else ""
    return f"  {finding}{ending}"
