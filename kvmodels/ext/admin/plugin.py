"""The pages as a plugin of starlette-admin.

Rules of this module: it only lists the pages; ``Admin`` is the same plugin in an admin of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import ClassVar

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount
from starlette_admin.base import BaseAdmin
from starlette_admin.helpers import static_url
from starlette_admin.plugins import BasePlugin

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.ext.admin.backend import AdminPermission, Backend
from kvmodels.ext.admin.pages.checking import CheckPage
from kvmodels.ext.admin.pages.histories import HistoryPages
from kvmodels.ext.admin.pages.indexes import IndexesPage
from kvmodels.ext.admin.pages.keys import KeysPage
from kvmodels.ext.admin.pages.progress import JobsPage
from kvmodels.ext.admin.pages.querying import QueryPage
from kvmodels.ext.admin.pages.queues import QueuePage
from kvmodels.ext.admin.pages.records import RecordsPage
from kvmodels.ext.admin.pages.schema import SchemaPage
from kvmodels.ext.admin.same_origin import SameOrigin
from kvmodels.ext.admin.tenants.backend import TenantBackend
from kvmodels.ext.admin.tenants.listing import TenantsPage
from kvmodels.ext.admin.tenants.mounting import TenantPages
from kvmodels.schema.describe.describe import describe


class AdminPlugin(BasePlugin):
    """The pages of a database, for an admin of starlette-admin that has views of its own.

    ``add_pages`` adds a page for each model, and Keys, Indexes, Query, Schema, Check and Queue; for a database
    with models of tenants also a list of tenants, with the same pages for each. It is called after the
    admin was made, because starlette-admin 1.0 has no templates yet when it asks a plugin for ``views()``.

    Args:
        db: the database; an ``AsyncDatabase`` is opened by the program.
        readonly: whether every write is refused; always, if the database is read-only.
        permission: decides what a user may do; None allows everything.
        show_encrypted: whether pages show the values of encrypted fields, "(encrypted)" otherwise.
        trusted_origins: origins from which forms are accepted too, for a proxy that changes the header Host.
    """

    name: ClassVar[str] = "kvmodels"
    package: ClassVar[str | None] = "kvmodels.ext.admin"

    def __init__(
        self,
        db: Database | AsyncDatabase,
        *,
        readonly: bool = False,
        permission: AdminPermission | None = None,
        show_encrypted: bool = False,
        trusted_origins: Collection[str] = (),
    ) -> None:
        self.backend = Backend(db, readonly=readonly, permission=permission, show_encrypted=show_encrypted)
        self._trusted_origins = tuple(trusted_origins)

    def middlewares(self) -> Sequence[Middleware]:
        """Return the middleware that refuses forms of other sites, for all views of the admin."""
        return [Middleware(SameOrigin, trusted_origins=self._trusted_origins)]

    def css_links(self, request: Request) -> Sequence[str]:
        """Return the stylesheet of the pages."""
        return [static_url(request, "plugins/kvmodels/admin.css")]

    def js_links(self, request: Request) -> Sequence[str]:
        """Return the script of the pages; they also work without it."""
        return [static_url(request, "plugins/kvmodels/admin.js")]

    def add_pages(self, admin: BaseAdmin) -> None:
        """Add the pages to an admin that was made with this plugin, before it is mounted.

        Args:
            admin: the admin, made with ``plugins=[plugin]``.
        """
        if self.backend.tenant_models:
            admin.add_view(TenantsPage(self.backend))
            of_tenants = copy.copy(self)
            of_tenants.backend = backend = TenantBackend(self.backend)
            pages = TenantPages(admin, of_tenants, backend, of_tenants.add_pages)
            admin.routes.insert(0, Mount("/tenants/{tenant}", app=pages))  # before those of any first part
        for collection, model in self.backend.models.items():
            kept = RecordsPage if describe(model).history is None else HistoryPages
            admin.add_view(kept(self.backend, model, collection))
        for kind in (QueryPage, KeysPage, IndexesPage, SchemaPage, CheckPage, QueuePage, JobsPage):
            admin.add_view(kind(self.backend))
