"""Who may see the pages, and what a page may load.

Rules of this module: a token is compared in constant time, and is in a URL only once. Pages load nothing from elsewhere
and run no script inside of HTML.
"""

from __future__ import annotations

import hmac
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette_admin.auth import AdminUser, BaseAuthProvider

_COOKIE: Final = "kvmodels_admin"
_SHORTEST: Final = 16
LARGEST_FORM: Final = 1024 * 1024
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every page of ``Admin``."""


class SecurityHeaders:
    """Middleware that sets ``HEADERS``, and refuses forms of more than ``LARGEST_FORM`` bytes.

    The parser of forms refuses a field of this size, and would do so in the middleware that compares tokens, where no
    page can answer it. Static files may be cached.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path: str = scope.get("path", "")
        is_static = path.removeprefix(scope.get("root_path", "")).startswith("/static/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    if not (is_static and name == "cache-control"):
                        headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        size = headers.get("content-length", "0")
        if scope["type"] == "http" and ("transfer-encoding" in headers or int(size) > LARGEST_FORM):
            refusal = PlainTextResponse(f"A form has at most {LARGEST_FORM:,} bytes, and says how many.", 413)
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


class TokenAuth(BaseAuthProvider):
    """Admits users who have the token; ``/login?token=…`` stores it in a cookie.

    Args:
        token: the secret; at least 16 characters.

    Raises:
        ValueError: the token is too short.
    """

    def __init__(self, token: str) -> None:
        if len(token) < _SHORTEST:
            raise ValueError(f"the token must have at least {_SHORTEST} characters")
        super().__init__()
        self._token = token

    async def authenticate(self, request: Request) -> AdminUser | None:
        """Return the user of a request; None without the token."""
        return AdminUser("Administrator") if self._fits(request.cookies.get(_COOKIE, "")) else None

    def get_routes(self, templates: Jinja2Templates) -> list[Route]:  # noqa: ARG002 - the signature of starlette-admin
        """Return the pages for login, which takes the token, and logout, which deletes the cookie."""
        return [
            Route("/login", self._login, methods=["GET"], name="login"),
            Route("/logout", self._logout, methods=["POST"], name="logout"),
        ]

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    async def _login(self, request: Request) -> Response:
        given = request.query_params.get("token", "")
        if not self._fits(given):
            return PlainTextResponse("Open the address with the token that was printed at the start.", 401)
        response = RedirectResponse(f"{request.scope['root_path']}/", status_code=303)
        secure = request.url.scheme == "https"
        response.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict", secure=secure)
        return response

    async def _logout(self, request: Request) -> Response:
        response = RedirectResponse(f"{request.scope['root_path']}/login", status_code=303)
        response.delete_cookie(_COOKIE)
        return response
