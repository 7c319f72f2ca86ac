"""A box of degrees on the earth.

Rules of this module: pure; degrees are compared as given, never moved.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.geometry.shape import DegreeBox, Shape, strips


@dataclass(frozen=True, slots=True, init=False)
class Box(Shape):
    """All points between two latitudes and two longitudes: ``Box(south=45, west=5, north=48, east=11)``.

    If ``west`` is greater than ``east``, the box crosses the antimeridian.

    Raises:
        InvalidArgumentError: a value is not in its range, or ``south`` is greater than ``north``.
    """

    south: float
    west: float
    north: float
    east: float

    def __init__(self, *, south: float, west: float, north: float, east: float) -> None:
        for name, value, most in (("south", south, 90), ("west", west, 180), ("north", north, 90), ("east", east, 180)):
            _require_degrees(name, value, most)
            object.__setattr__(self, name, float(value))
        if south > north:
            raise InvalidArgumentError(
                "the south of a box is north of its north",
                argument="south",
                value=south,
                expected=f"at most north={north}",
                hint="Swap them. Only west and east may be in either order, because a box may cross the antimeridian.",
            )

    def contains(self, lat: float, lon: float) -> bool:
        """Return whether a point is inside or on the border; a point at 180 is also one at -180."""
        if not self.south <= lat <= self.north:
            return False
        return self._spans(lon) or (abs(lon) == 180 and self._spans(-lon))

    def _spans(self, lon: float) -> bool:
        if self.west <= self.east:
            return self.west <= lon <= self.east
        return lon >= self.west or lon <= self.east

    def boxes(self) -> tuple[DegreeBox, ...]:
        """Return the box, two at the antimeridian."""
        east = self.east if self.west <= self.east else self.east + 360
        return tuple(DegreeBox(self.south, left, self.north, right) for left, right in strips(self.west, east))

    def identity(self) -> list[Any]:
        """Return the borders."""
        return ["box", self.south, self.west, self.north, self.east]


def _require_degrees(name: str, value: Any, most: int) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and isfinite(cast("float", value)) and -most <= value <= most:
        return
    raise InvalidArgumentError(
        "a border of a box is not a number of degrees",
        argument=name,
        value=value,
        expected=f"-{most} to {most}",
        hint="Write Box(south=45, west=5, north=48, east=11).",
    )


show_public_path(Box)
