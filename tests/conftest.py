"""Hypothesis profiles: the same examples in every run, and a blob to replay a failure with; what tests print is shown.

``default`` is for ``make test``; ``soak`` looks at ten times as many examples and draws new ones in each run
(the seed that pytest prints repeats them: ``pytest -m soak --hypothesis-seed=N``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

LONGEST_LINE = 500

_SHARED = settings(
    # A shared machine may pause us anywhere; a deadline would be a timing assertion.
    deadline=None,
    # Replaying examples from a local database would make two checkouts test different things.
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

settings.register_profile("default", _SHARED, derandomize=True)
settings.register_profile("soak", _SHARED, derandomize=False, max_examples=1000)
settings.load_profile("default")


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one, for LMDB, which forces every commit to disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="kvmodels-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def url_of(tmp_path: Path, quick_folder: Path) -> Callable[..., str]:
    """The URL of a store of this test, by the name of an engine (memory, sqlite, lmdb) and its own."""

    def url(engine: str, name: str = "app") -> str:
        if engine == "memory":
            return f"memory://{tmp_path}/{name}"
        return str(tmp_path / f"{name}.db") if engine == "sqlite" else f"lmdb:///{quick_folder}/{name}.lmdb"

    return url


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Show what the tests that passed have printed: seeds, counts of verbs, kills, conflicts, findings.

    Not ``capsys.disabled()``: the processes of pytest-xdist have no terminal to print to.
    """
    told = [
        (report.nodeid, report.capstdout.strip())
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and report.capstdout.strip()
    ]
    if told:
        terminalreporter.section("what the tests saw")
    for nodeid, text in told:
        terminalreporter.write_line(nodeid)
        for line in text.splitlines():
            terminalreporter.write_line(f"    {line[:LONGEST_LINE]}")
