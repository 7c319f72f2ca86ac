"""The token in every form, bound to the session of the user.

starlette-admin compares a token with a cookie. Any server on another port of the same machine can set such a cookie,
with a token that it fetched itself. Here the token is computed from the session of the user, so that nobody else has
it.

Rules of this module: it runs after the authentication, which says who the user is. Nothing is stored: processes with
the same key accept each other's forms.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final

from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

FIELD: Final = "csrftoken"
"""The name of the field, which ``csrf_input`` of starlette-admin writes."""

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")


def cookie_name(name: str, request: Request) -> str:
    """Return the name of a cookie with the port of the server, because browsers send cookies to all ports."""
    server: tuple[str, int | None] = request.scope.get("server") or ("", None)
    return f"{name}_{server[1] or 0}"


class FormTokens(BaseHTTPMiddleware):
    """Middleware that refuses forms without the token of the user's session.

    The session is that of ``TokenAuth``. Other providers have one that is not known here: then it is the name of the
    user and a random cookie.

    Args:
        app: the application.
        secret_key: the key of the tokens.
    """

    def __init__(self, app: ASGIApp, secret_key: str) -> None:
        super().__init__(app)
        self._key = secret_key.encode()

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Answer a request."""
        cookie = cookie_name("kvmodels_admin_form", request)
        known = request.cookies.get(cookie, "")
        browser = known or token_urlsafe(32)
        request.state.csrf_token = expected = self._token(request, browser)
        if request.method not in _SAFE_METHODS:
            try:
                given = await _sent_token(request)
            except HTTPException as refusal:  # by the parser of forms, such as for too many fields
                return PlainTextResponse(refusal.detail, refusal.status_code)
            if not hmac.compare_digest(given.encode(), expected.encode()):
                return PlainTextResponse("The form is not of this session. Load the page again.", 403)
        response = await call_next(request)
        if not known:
            path, secure = request.scope["root_path"] or "/", request.url.scheme == "https"
            response.set_cookie(cookie, browser, path=path, httponly=True, samesite="lax", secure=secure)
        return response

    def _token(self, request: Request, browser: str) -> str:
        user = getattr(request.state, "admin_user", None)
        session = (getattr(request.state, "kvmodels_session", ""), getattr(user, "username", ""), browser)
        return hmac.new(self._key, repr(session).encode(), sha256).hexdigest()


async def _sent_token(request: Request) -> str:
    """Return the token in a form; empty text without one."""
    if "form" not in request.headers.get("content-type", ""):
        return ""
    await request.body()  # so that the page reads the form again
    value = (await request.form()).get(FIELD)
    return value if isinstance(value, str) else ""
