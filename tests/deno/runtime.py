"""Runs the real Deno, from PyPI, on a file of Deno KV."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deno import find_deno_bin

from kvmodels.core.keys import encode_key

SCRIPT = Path(__file__).with_name("describe.ts")


def run_deno(file: Path) -> dict[int, Any]:
    """The descriptions of all values under ``written``, by number; Deno stores each again under ``again``."""
    lines = run_script(SCRIPT, file).split("\n")[:-1]
    return {int(number): described for number, described in map(json.loads, lines)}


def run_script(script: Path, file: Path, *arguments: str) -> str:
    """The output of a script of Deno, whose first argument is a file of Deno KV."""
    options = ["-A", "--unstable-kv", "--no-lock", "--no-config", "--quiet"]
    command = [find_deno_bin(), "run", *options, str(script), str(file), *arguments]
    # Nothing is fetched and nothing is left in the home directory.
    environment = {**os.environ, "DENO_DIR": str(file.parent / "deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def put(file: Path, encoded: Sequence[tuple[bytes, int]]) -> None:
    """Put rows into the tables that Deno made."""
    with sqlite3.connect(file) as connection:
        connection.executemany(
            "INSERT INTO kv (k, v, v_encoding, version) VALUES (?, ?, ?, 1)",
            [(encode_key(("written", float(number))), *row) for number, row in enumerate(encoded)],
        )
    connection.close()


def stored_again(file: Path) -> list[tuple[bytes, int]]:
    """Return the output of Deno, in the order of the numbers."""
    connection = sqlite3.connect(file)
    rows = connection.execute(
        "SELECT v, v_encoding FROM kv WHERE k >= ? AND k < ? ORDER BY k",
        (encode_key(("again",)), encode_key(("again\x01",))),
    ).fetchall()
    connection.close()
    return rows
