"""The differences between the models and the store, and a button that resolves them.

Rules of this module: nothing that loses data runs without a box that the user has ticked.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.jobs import Job
from kvmodels.ext.admin.pages.store_page import StorePage, link, page


class SchemaPage(StorePage):
    """The plan of schema changes."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Schema", icon="fa-solid fa-sitemap", path="/schema")

    @page("")
    async def index(self, request: Request) -> Response:
        """Show the plan. Cost: the catalogue, and a sample of 100 records of each collection."""
        plan = await self.backend.call(self.backend.db.plan)
        return self.render(request, "schema.html", heading="Schema", plan=plan)

    @page("/apply", posts=True)
    async def apply(self, request: Request) -> Response:
        """Carry out the plan in a job."""
        self.backend.require(request, "operate")
        form = await request.form()
        allow = sorted({str(name) for name in form.getlist("allow")})

        async def work(job: Job) -> list[str]:
            report = await self.backend.call(self.backend.db.apply, allow=allow, progress=job.report)
            return str(report).splitlines()

        job = await self.backend.jobs.start("Apply the schema", self.path, work)
        response = self.redirect(request)
        response.headers["location"] = link(f"{request.scope['root_path']}/jobs", id=job.id)
        return response
