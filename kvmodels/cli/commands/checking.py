"""``check``: compare index entries with records, and repair them.

Rules of this module: without model classes, entries are compared with the catalogue and nothing can be repaired.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from kvmodels.cli.command_line import CommandLine, Yes
from kvmodels.cli.commands.schema import Models, Throttle, as_data
from kvmodels.cli.failures import FOUND, CommandError
from kvmodels.cli.output import of_schema_change
from kvmodels.cli.store import OpenStore
from kvmodels.cli.wording import in_commands
from kvmodels.flows.check.findings import CheckReport, Finding

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
    throttle: Throttle = None,
    yes: Yes = False,
) -> None:
    """Verify index entries and counters, and repair them.

    Every entry is compared with its record, next to live writers. Exit code 1: something was found, whether it was
    repaired or not. A database that is given as a URL is compared with its catalogue only, all collections at once, and
    cannot be repaired.
    """
    kind: Literal["all"] | bool = "all" if repair == "all" else repair is not None
    with line.open(writes=bool(kind)) as store:
        if kind:
            store.require_models()
        if models and not store.models:
            raise CommandError(
                "with a URL, all collections are checked", hint="Leave MODEL out, or give module:object."
            )
        if repair == "all":
            line.confirm("Delete keys that do not belong to a model, and rows that cannot be read?", yes=yes)
        report = _checked(line, store, models, kind, throttle)
        summary = str(report).partition("\n")[0]
        line.output.report("\n".join([summary, *map(_shown, report.findings)]), {"ok": report.ok, **as_data_of(report)})
        if report.findings:
            raise typer.Exit(FOUND)


def _checked(
    line: CommandLine,
    store: OpenStore,
    models: list[str] | None,
    repair: Literal["all"] | bool,
    throttle: float | None,
) -> CheckReport:
    with line.output.progress() as progress:
        reports = [
            store.db.check(model, repair=repair, progress=of_schema_change(progress), throttle=throttle)
            for model in ([store.model(name) for name in models] if models else [None])
        ]
    return CheckReport(
        sum(report.scanned for report in reports),
        tuple(finding for report in reports for finding in report.findings),
        tuple(reason for report in reports for reason in report.unchecked),
    )


def as_data_of(report: CheckReport) -> dict[str, object]:
    """Return a report of a check in its JSON form, an object."""
    return {
        "scanned": report.scanned,
        "findings": [as_data(finding) for finding in report.findings],
        "unchecked": list(report.unchecked),
    }


def _shown(finding: Finding) -> str:
    done = "; removed" if finding.removed else "; repaired"
    ending = done if finding.repaired else f"; {in_commands(finding.hint)}" if finding.hint else ""
    return f"  {finding}{ending}"
