"""Refuse forms that another site sends.

Rules of this module: a browser says where a request comes from, in ``Sec-Fetch-Site`` and ``Origin``; no page can
change these headers. A cookie proves nothing: another port of the same machine gets it, and can set one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_REFUSAL: Final = "This form was sent by a page of another site, so it was refused."


class SameOrigin:
    """Middleware that answers only requests of its own pages, apart from those that read.

    Args:
        app: the application.
        trusted_origins: origins that are its own too, such as ``"https://admin.example.org"``.
    """

    def __init__(self, app: ASGIApp, trusted_origins: Collection[str] = ()) -> None:
        self._app = app
        self._trusted = frozenset(origin.rstrip("/").lower() for origin in trusted_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["method"] not in _SAFE_METHODS and not self._is_own(Headers(scope=scope)):
            await PlainTextResponse(_REFUSAL, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_own(self, headers: Headers) -> bool:
        origins = headers.getlist("origin")
        if any(origin.lower() in self._trusted for origin in origins):
            return len(origins) == 1
        if any(site not in ("same-origin", "none") for site in headers.getlist("sec-fetch-site")):
            return False
        # A proxy that ends TLS changes the scheme, but has to keep the host.
        return all(urlsplit(origin).netloc.lower() == headers.get("host", "").lower() for origin in origins)
