"""Write ``kvmodels/__init__.pyi``, which shows type checkers and editors the names that the package loads lazily.

The table in ``kvmodels/__init__.py`` is the only list of public names. Run ``python tools/public_names.py`` after a
change of it; a test fails if the stub is not fresh.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kvmodels
from kvmodels.errors import ERRORS

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "kvmodels" / "__init__.pyi"
HEADER = "# Generated from kvmodels/__init__.py by tools/public_names.py. Do not edit.\n"


def homes() -> dict[str, list[str]]:
    """Return the public names of each module, by its dotted path."""
    table: dict[str, str] = vars(kvmodels)["_NAMES_OF"]
    listed = {f"kvmodels.{module}": names.split() for module, names in table.items()}
    return {**listed, "kvmodels.errors": [error.__name__ for error in ERRORS]}


def generated() -> str:
    """Return the text of the stub."""
    imports = [f"from {module} import {name} as {name}\n" for module, names in homes().items() for name in names]
    text = "".join([HEADER, *imports, f"__all__ = {kvmodels.__all__!r}\n"])
    for arguments in (("check", "--fix", "--quiet", "--select", "I,RUF022"), ("format", "--quiet")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(generated(), encoding="utf-8")
