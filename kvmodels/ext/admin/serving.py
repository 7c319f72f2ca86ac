"""Serve the admin page alone, for the command ``kvmodels admin``.

Rules of this module: only requests that name the machine as this server knows it are answered, so that no page of
another site can reach it by a name that was made to point here. The page has a secret path, to which its cookies are
bound: a browser sends cookies to every port of a machine, and the server on another port does not know the path.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kvmodels.api._sync.database import Database
from kvmodels.ext.admin.site import Admin
from kvmodels.ext.admin.token_auth import TokenAuth

_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")


def serve(db: Database, *, host: str, port: int, token: str, readonly: bool, started: Callable[[str], object]) -> None:
    """Serve the page of a database until the process is interrupted.

    Args:
        db: the database, open.
        host: the address to listen on.
        port: the port; 0 for a free one.
        token: the secret that the browser must have.
        readonly: whether every write is refused.
        started: called with the address of the page, when connections are accepted.

    Raises:
        OSError: the address is in use, or does not belong to this machine.
        ValueError: the token is too short.
    """
    path = secret_path(token)
    app = application(db, token=token, readonly=readonly, path=path, hosts=_LOCAL if host in _LOCAL else ("*",))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        name = f"[{host}]" if ":" in host else host
        started(f"http://{name}:{listener.getsockname()[1]}{path}/login?token={token}")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.run(sockets=[listener])


def secret_path(token: str) -> str:
    """Return the path of the page, which is the same at each start with the same token."""
    return f"/{hmac.new(token.encode(), b'path', sha256).hexdigest()[:24]}"


def application(
    db: Database, *, token: str, readonly: bool, path: str = "/", hosts: tuple[str, ...] = _LOCAL
) -> Starlette:
    """Return the application of ``serve``: the page at a path, with the token, for these names of the machine."""
    app = Starlette(middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))])
    Admin(db, base_url=path, readonly=readonly, auth_provider=TokenAuth(token)).mount_to(app)
    return app
