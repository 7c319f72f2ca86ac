"""The HTTP server of the command ``kvmodels serve``: HTTP/1.1 and HTTP/2, with and without TLS.

Rules of this module: Hypercorn parses HTTP. Deno's client sends the head and the body of a request in two segments, and
waits for the acknowledgement of the first one before it sends the second; Linux delays this acknowledgement by 40 ms.
So the reader of every connection asks for immediate acknowledgements before each read, because Linux forgets that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config

from kvmodels.errors import InvalidArgumentError
from kvmodels.ext.serve.application import KvConnectServer

QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""The option of Linux for immediate acknowledgements; other systems do not need it."""

IDLE_S: Final = 600.0
"""The time after which a connection without requests is closed. Deno keeps its connections open."""

GRACE_S: Final = 3.0
"""The time that running requests have when the server ends; watches end at once."""


async def serve(
    app: KvConnectServer,
    host: str = "127.0.0.1",
    port: int = 4512,
    *,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    ready: Callable[[int], object] | None = None,
) -> None:
    """Serve an application until the task is cancelled.

    Args:
        app: the application.
        host: the address to listen on; other machines reach ``0.0.0.0`` or ``::``, which needs TLS or a proxy with TLS.
        port: the port; 0 for a free one.
        tls_cert: the file of the certificate chain (PEM), for ``https``.
        tls_key: the file of its private key (PEM).
        ready: called with the port as soon as connections are accepted.

    Raises:
        InvalidArgumentError: only one of both files is given, or they hold no certificate with its key.
        OSError: the address cannot be used.

    Examples:
        >>> from kvmodels import open_kv
        >>> from kvmodels.ext.serve import AccessToken, ServedStore
        >>> with open_kv(codec="v8") as kv:
        ...     app = KvConnectServer([ServedStore(kv, [AccessToken("a-long-secret")])])
        ...     task = asyncio.ensure_future(serve(app, port=0))
        ...     await asyncio.sleep(0)
        ...     task.cancel()
        True
    """
    config = _config()
    context = WorkerContext(None)
    wrapped = ASGIWrapper(cast("Any", app))
    connections: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # the server makes one for each connection
        connections.add(task)
        task.add_done_callback(connections.discard)
        quick: Any = _QuickReader(reader, writer)
        with contextlib.suppress(asyncio.CancelledError):  # the server ends, and the stream protocol logs it otherwise
            await TCPServer(wrapped, asyncio.get_running_loop(), config, context, {}, quick, writer)

    server = await asyncio.start_server(connected, host, port, ssl=_tls(config, tls_cert, tls_key))
    try:
        if ready is not None:
            ready(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        await context.terminated.set()
        if connections:
            await asyncio.wait(connections, timeout=GRACE_S)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def _config() -> Config:
    config = Config()
    config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_S
    config.keep_alive_max_requests = 1 << 62  # Deno sends a write again when its connection is closed
    return config


def _tls(
    config: Config, cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None
) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InvalidArgumentError(
            "TLS needs a certificate and its private key",
            argument="tls_key" if key is None else "tls_cert",
            hint="Give both files, or none.",
        )
    config.certfile, config.keyfile = os.fspath(cert), os.fspath(key)
    try:
        return config.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            "the files of TLS hold no certificate with its private key",
            argument="tls_cert",
            value=type(error).__name__,
            hint="Give two files in the format PEM that this process can read.",
        ) from error


class _QuickReader:
    """A reader that has every segment acknowledged at once."""

    __slots__ = ("_reader", "_socket")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._socket = writer.get_extra_info("socket")

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def read(self, size: int) -> bytes:
        if QUICKACK is not None:
            with contextlib.suppress(OSError):  # the connection is gone, and the read says so
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        return await self._reader.read(size)
