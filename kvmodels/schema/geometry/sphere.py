"""Distances on a sphere with the mean radius of the earth.

Rules of this module: pure; a distance is the haversine in doubles. One place has one distance to every point, whichever
longitude it has at a pole and whichever sign at the antimeridian; the order of two points does not matter.
"""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt
from typing import Final

EARTH_RADIUS_M: Final = 6_371_008.8
"""The mean radius of the earth. Distances differ from those on the ellipsoid by up to 0.56 %."""

FARTHEST_M: Final = 19_900_000.0
"""A circle with a larger radius is searched as the whole earth: near the antipode a haversine loses half its digits."""


def distance_m(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    """Return the distance of two points in metres.

    Examples:
        >>> round(distance_m(46.95, 7.44, 47.37, 8.54))
        95382
        >>> distance_m(10, 180, 10, -180), distance_m(90, 0, 90, 77)
        (0.0, 0.0)
    """
    rise = sin(radians(lat_2 - lat_1) / 2)
    half = rise * rise
    if abs(lat_1) != 90 and abs(lat_2) != 90:
        turn = sin(radians(_gap(lon_1, lon_2)) / 2)
        half += cos(radians(lat_1)) * cos(radians(lat_2)) * (turn * turn)
    return 2 * EARTH_RADIUS_M * asin(min(1.0, sqrt(half)))


def _gap(lon_1: float, lon_2: float) -> float:
    if lon_1 == -180:
        lon_1 = 180.0
    if lon_2 == -180:
        lon_2 = 180.0
    gap = abs(lon_2 - lon_1)
    return gap if gap <= 180 else 360 - gap
