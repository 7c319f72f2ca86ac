"""Many crowds, in shards of seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import pytest

from kvmodels.testing.schedules import FaultRates, StepHistory

QUIET = FaultRates()
LOSSY = FaultRates(lose_answer=0.05, lose_request=0.05, repeat=0.05, echo=0.05, hold=0.05)
SOAK_RUNS = 20_000
SHARD = 2_000
FIRST_SOAK_SEED = 1_000_000

Crowd = Callable[[int, FaultRates], tuple[list[str], StepHistory]]
"""Runs a crowd of a seed; what is wrong, and the story."""


class Wrong(NamedTuple):
    """Return the faults of some crowds by seed, and the different schedules."""

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


def soak(crowd: Crowd, shard: range) -> None:
    """Run one crowd for each seed of a shard."""
    wrong = wrong_in(crowd, shard)
    assert not wrong.by_seed, wrong.by_seed
    assert len(wrong.schedules) > 0.99 * len(shard)


def _shards() -> Iterator[Any]:
    for start in range(FIRST_SOAK_SEED, FIRST_SOAK_SEED + SOAK_RUNS, SHARD):
        seeds = range(start, start + SHARD)
        yield pytest.param(seeds, id=f"{seeds[0]}-{seeds[-1]}")


in_shards = pytest.mark.parametrize("shard", [*_shards()])
"""The 20,000 seeds of the soak as ranges that are tested alone, such as ``-k 1004000``, or in parallel."""
