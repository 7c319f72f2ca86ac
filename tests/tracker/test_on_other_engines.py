"""The tests of the tracker run unchanged on each engine of the plugin, and its size is limited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import REPOSITORY
from tests.test_sizes import code_lines


@pytest.mark.servers
@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_the_tests_of_the_tracker_pass(engine: str, tmp_path: Path):
    tests = REPOSITORY / "tests" / "tracker" / "test_tracker.py"
    chosen = ["-m", "not soak", "-k", "here or no_ticket or planted"]  # not again in a server
    options = [f"--kv-engine={engine}", *chosen, "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", str(tests), *options], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "13 passed" in run.stdout
    assert "the planted bug is found at seed" in run.stdout


def test_the_tracker_is_small():
    assert 100 < sum(code_lines(path) for path in (REPOSITORY / "examples" / "tracker").glob("*.py")) < 200
