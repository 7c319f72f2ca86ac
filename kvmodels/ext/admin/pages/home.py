"""The first page: the store and its collections.

Rules of this module: nothing is counted; only the catalogue is read, and numbers of records are those of the last
measurement. The address of the store is not shown, because it may contain a password.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kvmodels._support.visible import visible
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.pages.store_page import StorePage, page
from kvmodels.schema.describe.describe import describe


class HomePage(StorePage):
    """The first page."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Home", icon="fa-solid fa-house", path="/")
        self.add_to_menu = False

    def is_accessible(self, request: Request) -> bool:  # noqa: ARG002 - the signature of starlette-admin
        """Return True: the page shows every user the collections that this user may see."""
        return True

    @page("")
    async def index(self, request: Request) -> Response:
        """Show the collections of the store."""
        stored = await self.backend.call(self.backend.db.collections)
        statuses = await self.backend.call(self.backend.db.indexes)
        measured = self.backend.measured
        numbers = {} if measured is None else {one.name: one.records.rows for one in measured.stats.collections}
        cards = [
            {
                "name": name,
                "model": model.__name__,
                "fields": len(describe(model).fields),
                "records": numbers.get(name),
                "indexes": sum(one.collection == name for one in statuses),
                "waiting": [one for one in statuses if one.collection == name and one.state != "readable"],
            }
            for name, model in self.backend.models.items()
            if self.backend.allows(request, "view", model)
        ]
        whole = self.allows(request, "view")
        undeclared = [one for one in stored if whole and one.name not in self.backend.models]
        tenant = self.backend.tenant
        heading = "Collections" if tenant is None else f"Collections of the tenant {visible(tenant)}"
        return self.render(request, "home.html", heading=heading, cards=cards, undeclared=undeclared, measured=measured)
