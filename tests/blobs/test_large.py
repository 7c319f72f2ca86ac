"""Large files go through a process in constant memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.processes import ROOT
from tests.worlds import in_the_soak

MOST_GROWTH = 20_000_000


@pytest.mark.parametrize("megabytes", [100, *in_the_soak(1_000)])
def test_a_process_does_not_grow_with_the_size_of_a_file(megabytes: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.blobs.large_process", f"sqlite:///{tmp_path}/store", str(megabytes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < MOST_GROWTH
