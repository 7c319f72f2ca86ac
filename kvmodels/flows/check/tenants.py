"""The result of ``db.check(tenants=...)``, and the tenants that it is about.

Rules of this module: the flow runs on the engine of the store, and reads the rows of tenants only. Each check runs in
the tenant itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.truth import without_truth
from kvmodels.flows.check.findings import CheckReport
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.tenant_schemas import PAGE, SHOWN, TenantFailure
from kvmodels.flows.tenants import TenantStatus, list_tenants, require_tenants


@without_truth("report.ok")
@dataclass(frozen=True, slots=True)
class TenantsCheck:
    """The result of ``db.check(tenants=...)``.

    Attributes:
        checked: the number of tenants that were checked to the end.
        scanned: the number of rows read, of all of them.
        reports: the reports of the tenants in which something was found or could not be compared, by name.
        failed: the tenants whose check ended with an error.
        unchecked: the tenants that were left out, because they are being removed or loaded.
    """

    checked: int
    scanned: int
    reports: Mapping[str, CheckReport] = field(default_factory=dict[str, CheckReport], hash=False)
    failed: tuple[TenantFailure, ...] = ()
    unchecked: tuple[TenantStatus, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check failed, and every compared key is now correct."""
        return not self.failed and all(report.ok for report in self.reports.values())

    def __str__(self) -> str:
        counts = f"{self.checked} checked, {self.scanned} rows scanned, {len(self.failed)} failed"
        lines = [f"{'ok' if self.ok else 'NOT OK'}: {counts}"]
        lines += [f"{name}: {report}" for name, report in list(self.reports.items())[:SHOWN]]
        lines += [f"{one.tenant}: {one.message}" for one in self.failed[:SHOWN]]
        lines += [f"{one.name}: not checked, its state is {one.state}" for one in self.unchecked[:SHOWN]]
        more = sum(max(0, len(part) - SHOWN) for part in (self.reports, self.failed, self.unchecked))
        return "\n".join(lines + [f"and {more} more"] * (more > 0))


def tenants_to_check(context: Context, names: Sequence[str] | None) -> Flow[list[TenantStatus]]:
    """Return these tenants, or all of the store. Raises TenantNotFoundError or TenantRemovedError for names."""
    if names is not None:
        yield from require_tenants(context.codec, context.limits, names)
        return [TenantStatus(name, "active") for name in names]
    found: list[TenantStatus] = []
    after: str | None = None
    while True:
        page = yield from list_tenants(context, "", after, PAGE)
        found += page
        if len(page) < PAGE:
            return found
        after = page[-1].name


show_public_path(TenantsCheck)
