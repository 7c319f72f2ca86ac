"""The indexes of the store: state, build, size and use.

Rules of this module: the page reads the catalogue only. Sizes need a count of all entries, so a job measures them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette_admin.flash import flash

from kvmodels.errors import UnsupportedError
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.jobs import Job
from kvmodels.ext.admin.pages.store_page import StorePage, link, page


class IndexesPage(StorePage):
    """The indexes of all collections."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Indexes", icon="fa-solid fa-list-ol", path="/indexes")

    @page("")
    async def index(self, request: Request) -> Response:
        """Show every index."""
        statuses = await self.backend.call(self.backend.db.indexes)
        stats = None if self.backend.measured is None else self.backend.measured.stats
        sizes = {} if stats is None else sizes_of(stats)
        uses, since = self._uses()
        rows = [
            {
                "status": one,
                "size": sizes.get((one.collection, one.index.name)),
                "use": None if uses is None else uses.get((one.collection, one.index.name), 0),
            }
            for one in statuses
        ]
        return self.render(
            request,
            "indexes.html",
            heading="Indexes",
            rows=rows,
            counted=uses is not None,
            since=since,
            stats=stats,
            unready=any(one.declared and one.state != "readable" for one in statuses),
        )

    @page("/measure", posts=True)
    async def measure(self, request: Request) -> Response:
        """Count the entries of every index, in a job."""
        job = await self.backend.jobs.start("Measure the store", self.path, self._measure)
        return self._to_job(request, job)

    @page("/build", posts=True)
    async def build(self, request: Request) -> Response:
        """Build the indexes that are not ready, in a job."""
        self.backend.require(request, "operate")
        job = await self.backend.jobs.start("Build indexes", self.path, self._build)
        return self._to_job(request, job)

    def _to_job(self, request: Request, job: Job) -> Response:
        if job.state == "done":
            flash(request, f"{job.title}: done.", "success")
            return self.redirect(request)
        response = self.redirect(request)
        response.headers["location"] = link(f"{request.scope['root_path']}/jobs", id=job.id)
        return response

    async def _measure(self, job: Job) -> list[str]:
        stats = await self.backend.call(self.backend.db.stats, progress=job.report)
        self.backend.keep_measured(job.tenant, stats)
        return str(stats).splitlines()

    async def _build(self, job: Job) -> list[str]:
        reports = await self.backend.call(self.backend.db.build_indexes, progress=job.report)
        return [str(report) for report in reports] or ["Every index is ready."]

    def _uses(self) -> tuple[dict[tuple[str, str], int] | None, datetime | None]:
        """Return how often this process has used each index, and since when; None twice if nothing counts it."""
        try:
            metrics = self.backend.db.metrics()
        except UnsupportedError:
            return None, None
        uses = {(one.collection, one.index): one.uses for one in metrics.indexes}
        return uses, datetime.fromtimestamp(metrics.since, UTC)


def sizes_of(stats: Any) -> dict[tuple[str, str], Any]:
    """Return the rows of each index by collection and name."""
    return {(one.name, index.name): index.entries for one in stats.collections for index in one.indexes}
