"""``admin``: the page in the browser that shows the store.

Rules of this module: the page is imported only by this command, because it needs an extra. It listens on this machine
alone unless the user says otherwise, and always asks for a token.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from secrets import token_urlsafe
from typing import Annotated, Any

import typer

from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import CommandError

_NEEDED = ("starlette_admin", "uvicorn")


def admin(
    line: CommandLine,
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for a free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="KVMODELS_ADMIN_TOKEN", help="The secret; by default a random one."),
    ] = None,
) -> None:
    """Show the store in the browser.

    The address with the token is printed; open it. With --readonly nothing can be changed. The page is not encrypted,
    so let it listen on other addresses than 127.0.0.1 only behind a proxy with TLS. Ctrl+C ends it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the admin page needs packages that are not installed: {', '.join(missing)}",
            hint="Install them: pip install 'kvmodels[admin]'.",
        )
    serve: Any = pkgutil.resolve_name("kvmodels.ext.admin.serving:serve")
    with line.open(writes=not line.readonly) as store:
        try:
            serve(
                store.db,
                host=host,
                port=port,
                token=token or token_urlsafe(24),
                readonly=line.readonly,
                started=line.output.text,
            )
        except (OSError, ValueError) as error:
            raise CommandError(
                f"the page cannot be served: {error}", hint="Choose another --port or --token."
            ) from error
