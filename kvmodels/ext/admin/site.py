"""An admin page for one database, to mount in an application.

Rules of this module: it only puts the plugin, the theme and the security of the pages together.
"""

from __future__ import annotations

from collections.abc import Collection
from secrets import token_hex

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette_admin.auth import BaseAuthProvider
from starlette_admin.base import BaseAdmin
from starlette_admin.helpers import static_url
from starlette_admin.security import CSRFMiddleware

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.ext.admin.backend import AdminPermission
from kvmodels.ext.admin.form_tokens import FormTokens
from kvmodels.ext.admin.pages.home import HomePage
from kvmodels.ext.admin.plugin import AdminPlugin
from kvmodels.ext.admin.security import SecurityHeaders
from kvmodels.ext.admin.theme import AdminTheme


class Admin(BaseAdmin):
    """An admin page for a database: ``Admin(db).mount_to(app)``.

    It is an admin of starlette-admin with ``AdminPlugin``. Its policy forbids the scripts that model views of
    starlette-admin need; for those, add the plugin to an admin of their own. Without an ``auth_provider``, everybody
    who can reach the page can change everything.

    Args:
        db: the database; an ``AsyncDatabase`` is opened by the program. That of a tenant, ``db.tenant(name)``, shows
            this tenant alone.
        title: the name in the browser's title.
        base_url: the path at which it is mounted.
        readonly: whether every write is refused; always, if the database is read-only.
        auth_provider: decides who may log in; see the guide of starlette-admin.
        permission: decides what a user may do; None allows everything.
        show_encrypted: whether pages show the values of encrypted fields, "(encrypted)" otherwise.
        secret_key: signs cookies and forms; give the same one to every process that serves the page. None: a random
            one.
        trusted_origins: origins of the page that the application does not see itself, because a proxy in front of it
            changes the header Host, such as ``"https://admin.example.org"``.

    Examples:
        >>> from starlette.applications import Starlette
        >>> from kvmodels import Database, KvModel, PrimaryKey
        >>> class Plant(KvModel, collection="plants"):
        ...     id: PrimaryKey[int]
        >>> app = Starlette()
        >>> Admin(Database("memory://", models=[Plant])).mount_to(app)
        >>> [route.path for route in app.routes]
        ['/admin']
    """

    def __init__(
        self,
        db: Database | AsyncDatabase,
        *,
        title: str = "kvmodels",
        base_url: str = "/admin",
        readonly: bool = False,
        auth_provider: BaseAuthProvider | None = None,
        permission: AdminPermission | None = None,
        show_encrypted: bool = False,
        secret_key: str | None = None,
        trusted_origins: Collection[str] = (),
    ) -> None:
        plugin = AdminPlugin(
            db,
            readonly=readonly,
            permission=permission,
            show_encrypted=show_encrypted,
            trusted_origins=trusted_origins,
        )
        key = secret_key or token_hex(32)
        super().__init__(
            title=title,
            base_url=base_url,
            logo_url=_logo,
            login_logo_url=_logo,
            favicon_url=_favicon,
            index_view=HomePage(plugin.backend),
            theme=AdminTheme(),
            auth_provider=auth_provider,
            secret_key=key,
            middlewares=[Middleware(SecurityHeaders)],
            timezone_config=None,
            plugins=[plugin],
        )
        # In place of the tokens of starlette-admin, and after the authentication, which knows the session.
        others = [one for one in self.middlewares if getattr(one, "cls", None) is not CSRFMiddleware]
        self.middlewares = [*others, Middleware(FormTokens, secret_key=key)]
        self.backend = plugin.backend
        plugin.add_pages(self)


def _logo(request: Request) -> str:
    return static_url(request, "plugins/kvmodels/favicon.svg")


def _favicon(request: Request) -> str:
    return static_url(request, "plugins/kvmodels/favicon.svg")
