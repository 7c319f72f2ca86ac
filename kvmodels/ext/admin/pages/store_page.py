"""The base of all pages: rendering, URLs, and errors of the library as pages.

Rules of this module: a page is a ``CustomView`` of starlette-admin, so that menus, access and themes work as for any
other view.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette_admin.flash import get_flashed_messages  # pyright: ignore[reportUnknownVariableType] - a bare dict
from starlette_admin.routing import route  # pyright: ignore[reportUnknownVariableType] - a bare Callable
from starlette_admin.views import CustomView

from kvmodels._support.visible import visible
from kvmodels.errors import (
    DoesNotExist,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    QueryError,
    SchemaError,
    TenantError,
)
from kvmodels.ext.admin import texts
from kvmodels.ext.admin.backend import AdminAction, Backend
from kvmodels.schema.compile.model import KvModel

_BAD_REQUESTS: Final = (InvalidArgumentError, InvalidKeyError, InvalidValueError, LimitExceededError, QueryError)
"""Errors of a page about the parameters of its URL."""

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Response]])

TEMPLATES = "plugins/kvmodels"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


class StorePage(CustomView):
    """A page of the admin.

    Args:
        backend: the database.
        label: its name in the menu.
        icon: the classes of its icon.
        path: its path below the admin.
        model: the class whose records it shows; None for pages about the whole store.
    """

    def __init__(
        self, backend: Backend, *, label: str, icon: str, path: str, model: type[KvModel] | None = None
    ) -> None:
        super().__init__(menu_label=label, icon=icon, path=path)
        self.backend = backend
        self.model = model

    def is_accessible(self, request: Request) -> bool:
        """Return whether the user may see this page."""
        return self.backend.allows(request, "view", self.model)

    def is_active(self, request: Request) -> bool:
        """Return whether the request is for this page, or for one below it."""
        path: str = request.scope["path"].removeprefix(request.scope["root_path"])
        return path == self.path or path.startswith(f"{self.path}/")

    def allows(self, request: Request, action: AdminAction) -> bool:
        """Return whether the user may do this here."""
        return self.backend.allows(request, action, self.model)

    def render(self, request: Request, template: str, /, *, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        assert self.templates is not None, "a view is added to an admin before it is shown"
        context |= {
            "title": visible(texts.shortened(f"{context['heading']} – {self.menu_label}")),
            "page": self,
            "root": request.scope["root_path"],
            "list_of_tenants": self._list_of_tenants(request),
            "allows": functools.partial(self.allows, request),
            "texts": texts,
            "visible": visible,
            "link": link,
            "records_path": records_path,
            "collections": {model.__name__: name for name, model in self.backend.models.items()},
            "flashed_messages": get_flashed_messages(request),
        }
        return self.templates.TemplateResponse(
            request=request, name=f"{TEMPLATES}/{template}", context=context, status_code=status
        )

    def _list_of_tenants(self, request: Request) -> str | None:
        """Return the path of the list of tenants; None on the pages of a store, or of one tenant alone."""
        if "tenant" not in request.path_params:
            return None
        root: str = request.scope["root_path"]
        return root.rpartition("/")[0]

    def url(self, request: Request, suffix: str = "", /, **query: Any) -> str:
        """Return the path of a page below this one."""
        return link(f"{request.scope['root_path']}{self.path}{suffix}", query)

    def redirect(self, request: Request, suffix: str = "", /, **query: Any) -> Response:
        """Return the answer to a form that sends the browser to a page below this one."""
        return RedirectResponse(self.url(request, suffix, **query), status_code=303)


def page(path: str, *, posts: bool = False) -> Callable[[F], F]:
    """Make a method the handler of a path below its page; errors of the library become a page.

    What a form writes has the user as its actor in the history.

    Args:
        path: the path; empty for the page itself.
        posts: whether it answers forms in place of reading requests.
    """

    def decorate(handler: F) -> F:
        @functools.wraps(handler)
        async def answered(self: StorePage, request: Request) -> Response:
            try:
                if not posts:
                    return await handler(self, request)
                with self.backend.acting(request):
                    return await handler(self, request)
            except KvModelsError as error:
                return self.render(request, "failure.html", status=status_of(error), heading="Error", error=error)

        decorated: Any = route(path, methods=["POST"] if posts else ["GET"])(answered)  # pyright: ignore[reportUnknownVariableType]
        return cast("F", decorated)

    return decorate


def status_of(error: KvModelsError) -> int:
    """Return the HTTP status for an error of the library."""
    if isinstance(error, DoesNotExist | TenantError):
        return 404
    if isinstance(error, SchemaError):
        return 409
    return 400 if isinstance(error, _BAD_REQUESTS) else 500


def link(path: str, query: Iterable[tuple[str, Any]] | Mapping[str, Any] = (), /, **more: Any) -> str:
    """Return a URL with parameters; those that are None are left out."""
    pairs = cast("Mapping[str, Any]", query).items() if isinstance(query, Mapping) else query
    given = [(name, value) for name, value in (*pairs, *more.items()) if value is not None]
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def records_path(collection: str) -> str:
    """Return the path of the pages of a collection, below that of the admin.

    Characters with a meaning in paths and routes are ``~`` and their bytes. Percent signs would be decoded on the way,
    and then ``..`` would lead elsewhere.

    Examples:
        >>> records_path("order_lines"), records_path("a b/c?d"), records_path("..")
        ('/records/order_lines', '/records/a~20b~2Fc~3Fd', '/records/~2E~2E')
    """
    return f"/records/{_NOT_PLAIN.sub(_escaped, collection)}"


def tenant_path(name: str) -> str:
    """Return the path of the pages of a tenant, below that of the admin of its store.

    Examples:
        >>> tenant_path("acme"), tenant_path("a/b")
        ('/tenants/acme/', '/tenants/a~2Fb/')
    """
    return f"/tenants/{_NOT_PLAIN.sub(_escaped, name)}/"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
