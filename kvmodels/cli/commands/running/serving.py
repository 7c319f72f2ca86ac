"""``serve``: share a store with Deno programs.

Rules of this module: the extra ``serve`` is imported by the command alone. A token is never printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Generator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated, Any

import typer

from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.failures import CommandError
from kvmodels.cli.store import NAME_A_STORE, OpenStore
from kvmodels.errors import DecodeError
from kvmodels.ext import serve as serving

_IF_ABSENT = f"{NAME_A_STORE} --create begins with an empty store."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

DatabaseName = Annotated[
    str | None, typer.Argument(metavar="DATABASE", help="The database; --database if absent.", show_default=False)
]
Address = Annotated[str, typer.Option("--addr", metavar="HOST:PORT", help="The address to listen on.")]
Token = Annotated[
    str | None,
    typer.Option("--access-token", envvar="DENO_KV_ACCESS_TOKEN", help="12 characters or more.", show_default=False),
]
Create = Annotated[bool, typer.Option("--create", help="Create the store if it does not exist.")]
ModelWrites = Annotated[
    bool, typer.Option("--allow-model-writes", help="Allow writes to keys of models, for programs of kvmodels.")
]
Certificate = Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain, for https.")]
PrivateKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")]


def serve(
    line: CommandLine,
    *,
    store_name: DatabaseName = None,
    addr: Address = "127.0.0.1:4512",
    access_token: Token = None,
    create: Create = False,
    allow_model_writes: ModelWrites = False,
    tls_cert: Certificate = None,
    tls_key: PrivateKey = None,
) -> None:
    """Share the store with Deno programs.

    They open it with Deno.openKv("http://HOST:PORT") and the same access token in DENO_KV_ACCESS_TOKEN. The store has
    codec v8; --create makes one that does not exist. With --readonly every write is refused. It ends with Ctrl-C or
    SIGTERM.
    """
    host, _, port = addr.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise CommandError(f"{addr!r} is not an address", hint="Write HOST:PORT, such as 127.0.0.1:4512.")
    if not access_token:
        raise CommandError("there is no access token", hint="Set DENO_KV_ACCESS_TOKEN, or give --access-token.")
    access = serving.AccessToken(access_token, readonly=line.readonly, model_writes=allow_model_writes)
    host = host.removeprefix("[").removesuffix("]")
    if tls_cert is None and host not in _LOOPBACK:
        line.output.message(
            "Without TLS, everybody on the way can read the token: use --tls-cert, or a proxy with TLS."
        )
    named = replace(line, database=store_name or line.database)
    opening = named.open(writes=not line.readonly, creates=create, codec="v8", if_absent=_IF_ABSENT)
    with _readable_by_deno(opening) as store:
        app = serving.KvConnectServer([serving.ServedStore(store.db, [access])])
        scheme = "http" if tls_cert is None else "https"

        def ready(bound: int) -> None:
            line.output.message(f'Deno.openKv("{scheme}://{addr.rpartition(":")[0]}:{bound}")')

        running = serving.serve(app, host, int(port), tls_cert=tls_cert, tls_key=tls_key, ready=ready)
        try:
            asyncio.run(_until_signalled(running))
        except OSError as error:
            raise CommandError(f"cannot listen on {addr}: {error.strerror}") from error


async def _until_signalled(running: Coroutine[Any, Any, None]) -> None:
    """Run the server until the process is told to end."""
    task = asyncio.ensure_future(running)
    if sys.platform != "win32":  # there, Ctrl-C raises KeyboardInterrupt
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _readable_by_deno(opening: AbstractContextManager[OpenStore]) -> Generator[OpenStore]:
    """Open a store; refuse one of another codec, before Deno meets its values. Raises CommandError."""
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(opening)
            next(store.kv.list((), limit=1), None)
        except DecodeError as error:
            raise CommandError(
                "Deno cannot read the values of this store",
                hint="Copy it into a new store: kvmodels copy STORE NEW --codec v8.",
            ) from error
        yield store
