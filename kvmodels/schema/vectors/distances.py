"""The distance between two vectors, rounded once.

==========  ==================================================
metric      distance
==========  ==================================================
``cosine``  1 - (a · b) / (|a| |b|), from 0 to 2
``l2``      the square root of the sum of (a - b)^2
``dot``     - (a · b), so that the nearest has the least
==========  ==================================================

Rules of this module: pure, without numpy. Products of two float32 are exact in 64 bits, and ``fsum`` rounds their sum
once. So a distance does not depend on the machine, nor on the other records of a query, and equal vectors have equal
distances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum, sqrt
from operator import mul, sub
from typing import Final

from kvmodels.schema.vectors.vector import components

Numbers = tuple[float, ...]


def dot(first: Numbers, second: Numbers) -> float:
    """Return the sum of the products.

    Examples:
        >>> dot((1.0, 2.0), (3.0, -1.0))
        1.0
    """
    return fsum(map(mul, first, second))


def norm(numbers: Numbers) -> float:
    """Return the length of a vector.

    Examples:
        >>> norm((3.0, 4.0))
        5.0
    """
    return sqrt(dot(numbers, numbers))


def _cosine(origin: Numbers) -> Callable[[bytes], float]:
    own = dot(origin, origin)

    def distance(data: bytes) -> float:
        numbers = components(data)
        # One root of the product is exact for equal vectors, whose distance is then 0.
        return min(max(1.0 - dot(origin, numbers) / sqrt(own * dot(numbers, numbers)), 0.0), 2.0)

    return distance


def _l2(origin: Numbers) -> Callable[[bytes], float]:
    def distance(data: bytes) -> float:
        differences = tuple(map(sub, components(data), origin))
        return norm(differences)

    return distance


def _dot(origin: Numbers) -> Callable[[bytes], float]:
    return lambda data: -dot(origin, components(data))


METRICS: Final[Mapping[str, Callable[[Numbers], Callable[[bytes], float]]]] = {
    "cosine": _cosine,
    "l2": _l2,
    "dot": _dot,
}
"""From an origin to the function from the bytes of a vector to its distance, by the name of the metric.

The cosine of a vector of zeros is not defined: it raises ZeroDivisionError.
"""
