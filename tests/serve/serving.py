"""Starts the server in this process, and runs scripts of the real Deno against it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from deno import find_deno_bin

from kvmodels.ext.serve import KvConnectServer, serve

TOKEN = "correct-horse-battery-staple"


@contextlib.asynccontextmanager
async def running(app: KvConnectServer, **options: str) -> AsyncIterator[int]:
    """The port of a server that ends with the block."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(app, port=0, ready=port.set_result, **options))
    try:
        yield await port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def deno(script: Path, folder: Path, *arguments: str, options: Sequence[str] = ()) -> str:
    """The output of a script; it fails if the script fails."""
    options = ["-A", "--unstable-kv", "--no-lock", "--no-config", "--no-check", "--quiet", *options]
    environment = {
        **os.environ,
        "DENO_KV_ACCESS_TOKEN": TOKEN,
        "DENO_DIR": str(folder / "deno"),
        "DENO_NO_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
    }
    process = await asyncio.create_subprocess_exec(
        find_deno_bin(),
        "run",
        *options,
        str(script),
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()
