"""A circle on the earth.

Rules of this module: pure; only the distance decides, and a box encloses the circle with a margin for rounding.
"""

from __future__ import annotations

from math import atan2, cos, degrees, isfinite, radians, sin, sqrt
from typing import Any, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.geometry.shape import WIDENED, DegreeBox, Shape, strips
from kvmodels.schema.geometry.sphere import EARTH_RADIUS_M, FARTHEST_M, distance_m

_AT_A_POLE = 1e-6
"""The degrees from a pole, 0.1 m, from which on a circle is searched as if it contained the pole.

Closer to it, the rounding errors of a distance are larger than ``WIDENED`` degrees of longitude.
"""


@dataclass(frozen=True, slots=True)
class Circle(Shape):
    """All points up to a distance in metres from a centre: ``Circle(here, 5_000)``.

    Raises:
        InvalidArgumentError: the centre is not a GeoPoint, or the radius is negative or not a finite number.
    """

    center: GeoPoint
    radius_m: float

    def __post_init__(self) -> None:
        require_point("center", self.center)
        require_distance("radius_m", self.radius_m)
        object.__setattr__(self, "radius_m", float(self.radius_m))

    def contains(self, lat: float, lon: float) -> bool:
        """Return whether a point is at most the radius away."""
        return distance_m(self.center.lat, self.center.lon, lat, lon) <= self.radius_m

    def boxes(self) -> tuple[DegreeBox, ...]:
        """Return the box around the circle, two at the antimeridian, and all longitudes if a pole is inside."""
        if self.radius_m > FARTHEST_M:
            return (DegreeBox(-90.0, -180.0, 90.0, 180.0),)
        lat, lon = self.center.lat, self.center.lon
        angle = self.radius_m / EARTH_RADIUS_M
        rise = degrees(angle) + WIDENED
        south, north = max(lat - rise, -90.0), min(lat + rise, 90.0)
        if south <= -90 + _AT_A_POLE or north >= 90 - _AT_A_POLE:
            return (DegreeBox(south, -180.0, north, 180.0),)
        lower, upper = cos(radians(lat) - angle), cos(radians(lat) + angle)
        turn = degrees(atan2(sin(angle), sqrt(lower * upper))) + WIDENED
        return tuple(DegreeBox(south, west, north, east) for west, east in strips(lon - turn, lon + turn))

    def identity(self) -> list[Any]:
        """Return the centre and the radius."""
        return ["circle", self.center.lat, self.center.lon, self.radius_m]


def require_point(argument: str, value: Any) -> None:
    """Raise InvalidArgumentError for a value that is not a GeoPoint."""
    if isinstance(value, GeoPoint):
        return
    raise InvalidArgumentError(
        "a place is not a GeoPoint",
        argument=argument,
        value=value,
        expected="GeoPoint",
        hint="Write GeoPoint(lat=46.95, lon=7.44): a tuple does not say which number is the latitude.",
    )


def require_distance(argument: str, value: Any) -> None:
    """Raise InvalidArgumentError for a value that is not a finite number from 0 on."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and isfinite(cast("float", value)) and value >= 0:
        return
    raise InvalidArgumentError(
        "a distance is not a finite number of metres from 0 on",
        argument=argument,
        value=value,
        expected="metres, such as 5_000",
        hint="Distances are in metres: 5_000 is 5 km.",
    )


show_public_path(Circle)
