"""The list of the tenants of a store.

Rules of this module: a page reads the rows of the tenants that it shows, and one more.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from kvmodels._support.visible import visible
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.pages.store_page import StorePage, page, tenant_path

_SHOWN: Final = 50


class TenantsPage(StorePage):
    """The tenants of the store, in the order of their names."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Tenants", icon="fa-solid fa-users", path="/tenants")

    @page("")
    async def index(self, request: Request) -> Response:
        """Show a page of tenants, each with a link to its own pages."""
        prefix, after = request.query_params.get("prefix") or "", request.query_params.get("after")
        found = await self.backend.call(self.backend.db.tenants, prefix=prefix, after=after, limit=_SHOWN + 1)
        shown = found[:_SHOWN]
        return self.render(
            request,
            "tenants.html",
            heading="Tenants",
            prefix=prefix,
            after=after,
            next_after=shown[-1].name if len(found) > _SHOWN else None,
            rows=[{"name": visible(one.name), "path": tenant_path(one.name), "state": one.state} for one in shown],
        )
