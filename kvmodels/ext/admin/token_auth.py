"""The login of ``kvmodels admin``: a token that was printed, and a session for each login.

Rules of this module: a token is compared in constant time, is in a URL only once, and never in a cookie. A browser
sends cookies to every port of a machine, so the cookie has a name of its own for each port, and is sent only to the
path of the page. A session is signed with the token, so that every process with the token knows it.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates
from starlette_admin.auth import AdminUser, BaseAuthProvider

from kvmodels.ext.admin.form_tokens import cookie_name

_SHORTEST: Final = 16
_MOST_ENDED: Final = 10_000


class TokenAuth(BaseAuthProvider):
    """Admits users who have the token; ``/login?token=…`` begins a session, whose random id is in a cookie.

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
        self._ended: dict[str, None] = {}

    async def authenticate(self, request: Request) -> AdminUser | None:
        """Return the user of a request; None without a session."""
        session = request.cookies.get(cookie_name("kvmodels_admin", request), "")
        identifier, _, signature = session.partition(".")
        if session in self._ended or not self._fits(signature, self._signature(identifier)):
            return None
        request.state.kvmodels_session = session
        return AdminUser("Administrator")

    def get_routes(self, templates: Jinja2Templates) -> list[Route]:  # noqa: ARG002 - the signature of starlette-admin
        """Return the pages for login, which takes the token, and logout, which ends the session."""
        return [
            Route("/login", self._login, methods=["GET"], name="login"),
            Route("/logout", self._logout, methods=["POST"], name="logout"),
        ]

    @staticmethod
    def _fits(given: str, expected: str) -> bool:
        return hmac.compare_digest(given.encode(), expected.encode())

    def _signature(self, identifier: str) -> str:
        return hmac.new(self._token.encode(), f"session:{identifier}".encode(), sha256).hexdigest()

    async def _login(self, request: Request) -> Response:
        given = request.query_params.get("token", "")
        if not self._fits(given, self._token):
            return PlainTextResponse("Open the address with the token that was printed at the start.", 401)
        identifier = token_urlsafe(32)
        session = f"{identifier}.{self._signature(identifier)}"
        path: str = request.scope["root_path"]
        response = RedirectResponse(f"{path}/", status_code=303)
        name, secure = cookie_name("kvmodels_admin", request), request.url.scheme == "https"
        response.set_cookie(name, session, path=path or "/", httponly=True, samesite="strict", secure=secure)
        return response

    async def _logout(self, request: Request) -> Response:
        path: str = request.scope["root_path"]
        name = cookie_name("kvmodels_admin", request)
        self._ended[request.cookies.get(name, "")] = None
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        response = RedirectResponse(f"{path}/login", status_code=303)
        response.delete_cookie(name, path=path or "/")
        return response
