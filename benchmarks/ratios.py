"""From rounds to figures: medians, and ratios with their spread.

Rules of this module: two columns are compared round by round, because the rounds of one number were measured within
seconds of each other; the median of these ratios is quoted, with the quartiles. A cost is what one unit takes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import Sample


@dataclass(frozen=True, slots=True)
class Spread:
    """Quartiles."""

    low: float
    middle: float
    high: float


def cost(sample: Sample) -> float:
    """Seconds for one unit; the value itself where the row is no rate."""
    return sample[0] / sample[1]


def costs(samples: Sequence[Sample | None]) -> list[float]:
    """The costs of the rounds that were measured."""
    return [cost(sample) for sample in samples if sample is not None]


def spread(values: Sequence[float]) -> Spread | None:
    """Median and quartiles; None of nothing."""
    if not values:
        return None
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, middle, high)


def ratio(these: Sequence[Sample | None], those: Sequence[Sample | None]) -> Spread | None:
    """How many times the cost of those these have, round by round; None where a side was not measured."""
    pairs = zip(these, those, strict=False)
    return spread(
        [cost(this) / cost(that) for this, that in pairs if this is not None and that is not None and cost(that) > 0]
    )
