"""The headers of every page, and the largest form.

Rules of this module: pages load nothing from elsewhere and run no script inside of HTML.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    It also answers forms that the parser refuses, such as one of 1,001 fields: the parser first runs in the middleware
    that compares tokens, where no page can answer. Static files may be cached.
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
        if scope["type"] == "http" and ("transfer-encoding" in headers or not _is_small(headers)):
            refusal = PlainTextResponse(f"A form has at most {LARGEST_FORM:,} bytes, and says how many.", 413)
            await refusal(scope, receive, with_headers)
            return
        try:
            await self._app(scope, receive, with_headers)
        except HTTPException as refused:  # pages answer theirs before, so no response has begun
            await PlainTextResponse(refused.detail, refused.status_code)(scope, receive, with_headers)


def _is_small(headers: Headers) -> bool:
    size = headers.get("content-length", "0")
    return size.isascii() and size.isdecimal() and len(size) < 20 and int(size) <= LARGEST_FORM
