"""Calls a second of the real Deno against ``kvmodels serve``, on stores in memory, SQLite and LMDB.

``python -m benchmarks.serve`` serves new stores by the command ``kvmodels serve``, each in a process of its own. One
Deno program after the other makes 1,000 sets and 1,000 gets, each after the answer to the one before. The stores take
turns; medians and the best of five rounds are shown. Commits on files wait for the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from deno import find_deno_bin

from benchmarks.table import number, table

CALLS: Final = 1_000
ROUNDS: Final = 5
STORES: Final = {"memory": "memory://", "SQLite": "served.db", "LMDB": "lmdb:///served.lmdb"}
PROGRAM: Final = Path(__file__).with_suffix(".ts")
ENVIRONMENT: Final = {
    "DENO_KV_ACCESS_TOKEN": "token-of-the-benchmark",
    "DENO_NO_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
}


@contextlib.contextmanager
def served(store: str, folder: str) -> Generator[str]:
    """Serve a new store by the command, and return the URL for Deno.

    Raises:
        RuntimeError: the command did not say where it listens.
    """
    command = [sys.executable, "-m", "kvmodels", "serve", store, "--create", "--addr", "127.0.0.1:0"]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(PROGRAM.parent.parent)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r'openKv\("(.+)"\)', line)
            if found is None:
                raise RuntimeError(f"the server did not start: {line}")
            yield found[1]
        finally:
            process.terminate()


def rates(url: str, folder: str, calls: int) -> tuple[float, float]:
    """Return gets and sets a second of one program of Deno."""
    options = ["--unstable-kv", "--allow-env", "--allow-net", "--no-lock", "--no-config", "--no-check", "--quiet"]
    output = subprocess.run(
        [find_deno_bin(), "run", *options, str(PROGRAM), url, str(calls)],
        env={**os.environ, **ENVIRONMENT, "DENO_DIR": folder},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    gets, sets = json.loads(output)
    return calls * 1e3 / gets, calls * 1e3 / sets


def measure(calls: int = CALLS, rounds: int = ROUNDS) -> dict[str, list[tuple[float, float]]]:
    """Return gets and sets a second in each round, by the name of the store."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(served(store, folder)) for name, store in STORES.items()}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in urls}
        for _ in range(rounds):
            for name, url in urls.items():
                found[name].append(rates(url, folder, calls))
    return found


def main() -> None:
    """Print the table."""
    rows = []
    for name, found in measure().items():
        columns = list(zip(*found, strict=True))
        rows.append([name, *(number(shown(column)) for column in columns for shown in (statistics.median, max))])
    print(table(["calls of Deno a second", "get", "get, best round", "set", "set, best round"], rows))


if __name__ == "__main__":
    main()
