"""Serve the admin page alone, for the command ``kvmodels admin``.

Rules of this module: only requests that name the machine as this server knows it are answered, so that no page of
another site can reach it by a name that was made to point here.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kvmodels.api._sync.database import Database
from kvmodels.ext.admin.security import TokenAuth
from kvmodels.ext.admin.site import Admin

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
    app = application(db, token=token, readonly=readonly, hosts=_LOCAL if host in _LOCAL else ("*",))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        name = f"[{host}]" if ":" in host else host
        started(f"http://{name}:{listener.getsockname()[1]}/login?token={token}")
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.run(sockets=[listener])


def application(db: Database, *, token: str, readonly: bool, hosts: tuple[str, ...] = _LOCAL) -> Starlette:
    """Return the application of ``serve``: the page at the root, with the token, for these names of the machine."""
    app = Starlette(middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))])
    Admin(db, base_url="/", readonly=readonly, auth_provider=TokenAuth(token)).mount_to(app)
    return app
