"""The pages of each tenant, below the list of tenants of an admin.

All tenants have the same models, so one set of pages serves them; the tenant is a part of the path.

Rules of this module: it has no middleware and no login of its own, because requests have passed those of the admin.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, cast

from jinja2 import pass_context
from jinja2.runtime import Context
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette_admin.base import BaseAdmin
from starlette_admin.plugins import BasePlugin

from kvmodels.ext.admin.pages.home import HomePage
from kvmodels.ext.admin.tenants.backend import TenantBackend

_ESCAPED_NAME: Final = re.compile("(?:[A-Za-z0-9_-]|~[0-9A-F]{2})+")


class TenantPages:
    """The application at ``/tenants/{tenant}`` of an admin; its pages are made when the first one is asked for.

    Args:
        admin: the admin of the store.
        plugin: has the stylesheets and scripts of the pages.
        backend: the database.
        add_pages: adds the pages of models and of the store to an admin.
    """

    def __init__(
        self, admin: BaseAdmin, plugin: BasePlugin, backend: TenantBackend, add_pages: Callable[[BaseAdmin], None]
    ) -> None:
        self._admin = admin
        self._plugin = plugin
        self._backend = backend
        self._add_pages = add_pages
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in the tenant that its path names."""
        name = tenant_of_path(scope["path_params"]["tenant"])
        if name is None:
            raise HTTPException(404, "This is not the path of a tenant.")
        if self._app is None:
            self._app = self._made()
        with self._backend.entered(name):
            await self._app(scope, receive, send)

    def _made(self) -> ASGIApp:
        outer = self._admin
        inner = BaseAdmin(
            title=outer.title,
            route_name=outer.route_name,
            logo_url=outer.logo_url,
            favicon_url=outer.favicon_url,
            templates_dir=outer.templates_dir,
            index_view=HomePage(self._backend),
            theme=outer.theme,
            secret_key=outer.secret_key,
            timezone_config=None,
            plugins=[self._plugin],
        )
        inner.middlewares = []
        names = cast("dict[str, Any]", inner.templates.env.globals)  # pyright: ignore[reportUnknownMemberType] - a bare dict
        names["is_auth_enabled"] = outer.auth_provider is not None
        names["url_for"] = _url_for(outer.route_name)
        self._add_pages(inner)
        inner.mount_to(Starlette())
        return inner.app


def _url_for(route_name: str) -> Callable[..., str]:
    """Return the function of templates that keeps links of the menu inside of the tenant."""

    @pass_context
    def url_for(context: Context, name: str, /, **parameters: Any) -> str:
        request: Request = context["request"]
        if name == route_name and set(parameters) == {"path"}:
            return f"{request.scope['root_path']}{parameters['path']}"
        return str(request.url_for(name, **parameters))

    return url_for


def tenant_of_path(text: str) -> str | None:
    """Return the name of the tenant in a path, as ``tenant_path`` writes it; None if it is none.

    Examples:
        >>> tenant_of_path("acme"), tenant_of_path("a~2Fb"), tenant_of_path("~2E~2E"), tenant_of_path("a.b")
        ('acme', 'a/b', '..', None)
    """
    if _ESCAPED_NAME.fullmatch(text) is None:
        return None
    parts = re.split("~(..)", text)
    data = b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts))
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
