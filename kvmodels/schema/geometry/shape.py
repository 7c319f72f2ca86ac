"""Areas on the earth, and the boxes of degrees that enclose them.

Rules of this module: a box of degrees encloses, and only ``Shape.contains`` decides. Longitudes are moved by 360
degrees for boxes only, which are then widened: ``(0.1 + 180) % 360 - 180`` is less than 0.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

WIDENED: Final = 1e-9
"""The degrees by which a computed border is moved outwards, 0.1 mm: more than the rounding errors of computing it."""


class DegreeBox(NamedTuple):
    """The points between two latitudes and two longitudes, borders included; ``west`` is at most ``east``."""

    south: float
    west: float
    north: float
    east: float


class Shape(ABC):
    """An area on the earth for ``filter(location__within=...)``; immutable."""

    __slots__ = ()

    @abstractmethod
    def contains(self, lat: float, lon: float) -> bool:
        """Return whether a point is inside or on the border, by its degrees as given."""

    @abstractmethod
    def boxes(self) -> tuple[DegreeBox, ...]:
        """Return boxes that enclose every point of the area."""

    @abstractmethod
    def identity(self) -> list[Any]:
        """Return strings, numbers and lists that equal shapes share in every process."""


def strips(west: float, east: float) -> tuple[tuple[float, float], ...]:
    """Return the parts of -180 to 180 that enclose an interval of longitudes, which may reach beyond them.

    Examples:
        >>> strips(5, 11)
        ((5, 11),)
        >>> [(round(west), round(east)) for west, east in strips(170, 190)]
        [(-180, -170), (170, 180)]
        >>> [(round(west), round(east)) for west, east in strips(-180, -170)]
        [(-180, -170), (180, 180)]
    """
    if east - west >= 360:
        return ((-180.0, 180.0),)
    return tuple(sorted(_clipped(west, east)))


def _clipped(west: float, east: float) -> Iterator[tuple[float, float]]:
    for turn in (-360, 0, 360):
        margin = WIDENED if turn else 0
        left, right = max(west + turn - margin, -180.0), min(east + turn + margin, 180.0)
        if left <= right:
            yield (left, right)
