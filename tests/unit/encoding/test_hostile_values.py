"""Reading any bytes of a store gives a value or a DecodeError, in 256 MiB of address space."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.source_tree import REPOSITORY

SEED = 20260105


def read_in_a_process_with_little_memory(count: int, seed: int) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.encoding.fuzzing", str(count), str(seed)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.servers
def test_ten_thousand_hostile_values_are_values_or_decode_errors():
    report = read_in_a_process_with_little_memory(10_000, SEED)
    print(report)
    assert report.count("decode errors") == 2


@pytest.mark.soak
def test_four_hundred_thousand_hostile_values_are_values_or_decode_errors():
    report = read_in_a_process_with_little_memory(400_000, random.SystemRandom().randrange(2**32))
    print(report)
    assert report.count("decode errors") == 2
