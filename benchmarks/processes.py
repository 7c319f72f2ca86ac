"""The processes of the columns, seen from outside: started, asked, and ended.

Rules of this module: a process answers each request with one line; one that fails or is silent ends the run.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.columns.registry import Column

ROOT = Path(__file__).resolve().parent.parent
SILENCE = 600.0


class WorkerFailedError(RuntimeError):
    """A column could not do what it was asked for; the text is what it said."""


def command_of(column: Column) -> list[str]:
    """How the process of a column is started."""
    if column.family == "Deno KV":
        # Imported here: the peers are optional, and only this column needs the runtime.
        import deno  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

        script = str(ROOT / "benchmarks" / "columns" / "deno_store.ts")
        return [deno.find_deno_bin(), "run", "--quiet", "--unstable-kv", "-A", "--no-lock", "--no-config", script]
    return [sys.executable, "-m", "benchmarks.worker", column.name]


class WorkerProcess:
    """One column's process."""

    def __init__(self, column: Column, environment: Mapping[str, str] | None = None) -> None:
        self.column = column
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command_of(column),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, "DENO_NO_UPDATE_CHECK": "1", "PYTHONHASHSEED": "0", **(environment or {})},
        )

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a request without waiting for its answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer tells why
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest request."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], SILENCE)[0]:
            raise WorkerFailedError(f"{self.column.name}: no answer for {SILENCE:.0f} seconds")
        text = self._process.stdout.readline()
        if not text:
            raise WorkerFailedError(f"{self.column.name}: ended\n{self._complaint()}")
        reply: dict[str, Any] = json.loads(text)
        if "error" in reply:
            raise WorkerFailedError(f"{self.column.name}: {reply['error']}")
        return reply

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def end(self) -> None:
        """End the process, which need not have answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
