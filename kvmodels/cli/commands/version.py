"""``kvmodels version``.

Rules of this module: no store is opened.
"""

from __future__ import annotations

import platform
import sqlite3
from importlib.metadata import version as version_of

import typer

from kvmodels.catalog.keyspace import FORMAT, FORMAT_WITH_REFERENCES
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.output import Output


def version(line: CommandLine) -> None:
    """Print the version of kvmodels.

    With --json, the versions of Python, SQLite, pydantic and the stored format are printed too.
    """
    found = {
        "kvmodels": version_of("kvmodels"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pydantic": version_of("pydantic"),
        "formats": [FORMAT, FORMAT_WITH_REFERENCES],
    }
    line.output.report(f"kvmodels {found['kvmodels']}", found)


def print_version(asked: bool) -> None:
    """Print what ``kvmodels version`` prints, and end the command; for ``--version``, which needs no command."""
    if asked:
        version(CommandLine(None, readonly=True, output=Output()))
        raise typer.Exit
