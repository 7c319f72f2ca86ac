"""Many crowds in two processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from typing import NamedTuple

from kvmodels.testing.schedules import FaultRates, History

QUIET = FaultRates()
LOSSY = FaultRates(lose_answer=0.05, lose_request=0.05, repeat=0.05, echo=0.05, hold=0.05)
SOAK_RUNS = 20_000
SOAK_CHUNK = 250
FIRST_SOAK_SEED = 1_000_000

Crowd = Callable[[int, FaultRates], tuple[list[str], History]]
"""Runs a crowd of a seed; what is wrong, and the story."""


class Wrong(NamedTuple):
    """What is wrong in some crowds by seed, and the different schedules."""

    by_seed: dict[int, list[str]]
    schedules: set[bytes]


def faults(seed: int) -> FaultRates:
    """Every second crowd loses answers."""
    return LOSSY if seed % 2 else QUIET


def wrong_in(crowd: Crowd, seeds: Iterable[int]) -> Wrong:
    """Run one crowd for each seed."""
    wrong = Wrong({}, set())
    for seed in seeds:
        found, history = crowd(seed, faults(seed))
        wrong.schedules.add(sha256("\n".join(history.lines).encode()).digest())
        if found:
            wrong.by_seed[seed] = found
    return wrong


def soak(crowd: Crowd) -> None:
    """Run 20,000 crowds; ``crowd`` is a function of a module."""
    end = FIRST_SOAK_SEED + SOAK_RUNS
    chunks = [range(start, start + SOAK_CHUNK) for start in range(FIRST_SOAK_SEED, end, SOAK_CHUNK)]
    schedules: set[bytes] = set()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for wrong in pool.map(wrong_in, [crowd] * len(chunks), chunks):
            assert not wrong.by_seed, wrong.by_seed
            schedules |= wrong.schedules
    assert len(schedules) > 0.99 * SOAK_RUNS
