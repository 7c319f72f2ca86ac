"""The backend of Deno's own servers, denokv_sqlite, served by KV Connect from a process of the real Deno.

``make servers`` fetches it: the npm package ``@deno/kv-linux-x64-gnu`` holds it as a native module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import httpx2
from deno import find_deno_bin

from tests.connect.scripted import ACCESS_TOKEN

CACHE = Path(sys.prefix) / "denokv"
MODULE = CACHE / "npm/registry.npmjs.org/@deno/kv-linux-x64-gnu/0.14.0/deno-kv-napi.linux-x64-gnu.node"
SCRIPT = Path(__file__).with_suffix(".ts")


class DenokvServer:
    """A process with any number of databases in memory; if it has crashed, the next database gets a new one."""

    def __init__(self) -> None:
        self._process, self._address = self._started()

    @staticmethod
    def _started() -> tuple[subprocess.Popen[str], str]:
        assert MODULE.exists(), "the backend of Deno is missing: run make servers"
        options = ["-A", "--no-lock", "--no-config", "--no-check", "--quiet"]
        environment = {**os.environ, "DENO_DIR": str(CACHE), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        process = subprocess.Popen(
            [find_deno_bin(), "run", *options, str(SCRIPT), str(MODULE), ACCESS_TOKEN],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, f"http://127.0.0.1:{int(process.stdout.readline())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        with self._process:
            pass

    def url(self, name: str) -> str:
        """The URL of a database, which is new if it has another name than every one before."""
        if self._process.poll() is not None:
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process, self._address = self._started()
        return f"{self._address}/{name}"

    def remove(self, name: str) -> None:
        """End a database; one that does not exist is left alone."""
        if self._process.poll() is None:
            httpx2.delete(f"{self._address}/{name}", timeout=60).raise_for_status()
