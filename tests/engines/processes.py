"""Run a piece of code in a Python process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import kvmodels

ROOT = Path(kvmodels.__file__).parent.parent


def start(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start ``code``; its ``sys.argv[1:]`` are the arguments, its standard streams are pipes of text."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen[str], given: str = "") -> str:
    """Return the output of the process, which must end well."""
    output, errors = process.communicate(given, timeout=120)
    assert process.returncode == 0, errors
    return output


def run(code: str, *arguments: object, **options: Any) -> str:
    """Run ``code`` to its end; what it printed."""
    return finish(start(code, *arguments, **options))
