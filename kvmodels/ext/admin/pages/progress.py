"""The jobs of this process: their progress, their results, and a button that stops them.

Rules of this module: the page of a running job reloads itself every second, without a script.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.jobs import Job
from kvmodels.ext.admin.pages.store_page import StorePage, page


class JobsPage(StorePage):
    """The page of a job."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Jobs", icon="fa-solid fa-gears", path="/jobs")

    def is_accessible(self, request: Request) -> bool:
        """Return whether the user may see all jobs, or knows the id of one, which cannot be guessed."""
        return "id" in request.query_params or super().is_accessible(request)

    @page("")
    async def index(self, request: Request) -> Response:
        """Show a job, or the last jobs."""
        job = self._job(request) if "id" in request.query_params else None
        heading = "Jobs" if job is None else job.title
        return self.render(request, "jobs.html", heading=heading, job=job, jobs=self.backend.jobs.recent())

    @page("/stop", posts=True)
    async def stop(self, request: Request) -> Response:
        """Stop a job after its present batch."""
        job = self._job(request)
        job.stop()
        return self.redirect(request, id=job.id)

    def _job(self, request: Request) -> Job:
        job = self.backend.jobs.get(request.query_params.get("id", ""))
        if job is None:
            raise HTTPException(404, "This job is unknown. Jobs are forgotten when the server is restarted.")
        return job
