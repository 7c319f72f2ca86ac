"""The check of the store: run it, read its findings, repair them.

Rules of this module: the check and the repair run as jobs, next to other readers and writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from kvmodels._support.visible import visible
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.jobs import Job
from kvmodels.ext.admin.pages.store_page import StorePage, link, page
from kvmodels.ext.admin.texts import key_line
from kvmodels.flows.check.findings import CheckReport, Finding

_SHOWN: Final = 200
_CHOICES: Final = (
    ('db.check(repair="all")', "Repair: “also delete unreadable rows”"),
    ("db.check(repair=True)", "Repair: “entries and counters”"),
)
"""Calls in hints, and the choices of this page that do the same."""


class CheckPage(StorePage):
    """The check of the store."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Check", icon="fa-solid fa-stethoscope", path="/check")
        self._last: tuple[str | None, CheckReport] | None = None

    @page("")
    async def index(self, request: Request) -> Response:
        """Show the findings of the last check."""
        last = self._last
        report = None if last is None or last[0] != self.backend.tenant else last[1]
        findings: Sequence[Finding] = () if report is None else report.findings[:_SHOWN]
        return self.render(
            request,
            "check.html",
            heading="Check",
            report=report,
            findings=[(one, key_line(one.key), visible(str(one)), _hint(one)) for one in findings],
            more=0 if report is None else len(report.findings) - len(findings),
        )

    @page("/run", posts=True)
    async def run(self, request: Request) -> Response:
        """Check the store in a job, and repair it if the user says so."""
        form = await request.form()
        wanted = str(form.get("repair") or "")
        repair: Literal["all"] | bool = "all" if wanted == "all" else bool(wanted)
        if repair:
            self.backend.require(request, "operate")
        model = self.backend.models.get(str(form.get("collection") or ""))

        async def work(job: Job) -> list[str]:
            report: CheckReport = await self.backend.call(
                self.backend.db.check, model, repair=repair, progress=job.report
            )
            self._last = job.tenant, report
            return [str(report).partition("\n")[0]]

        job = await self.backend.jobs.start("Repair the store" if repair else "Check the store", self.path, work)
        if job.state == "done":
            return self.redirect(request)
        response = self.redirect(request)
        response.headers["location"] = link(f"{request.scope['root_path']}/jobs", id=job.id)
        return response


def _hint(finding: Finding) -> str:
    """Return the hint of a finding, with choices of the page in place of calls."""
    text = "" if finding.repaired else finding.hint or ""
    for call, choice in _CHOICES:
        text = text.replace(call, choice)
    return visible(text)
