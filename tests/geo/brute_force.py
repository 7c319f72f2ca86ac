"""Places by brute force: distances by formula, and areas with exact fractions; it shares no code with the library.

The haversine is in doubles, in the order of the textbook, because a distance is a double: a point at exactly the radius
is inside. Everything else is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple


class Place(NamedTuple):
    """Latitude and longitude in degrees."""

    lat: float
    lon: float


def distance(one: Place, other: Place) -> float:
    """The haversine on the sphere of the mean radius; a pole has no longitude, and -180 is 180."""
    up = math.sin(math.radians(other.lat - one.lat) / 2)
    a = up * up  # a power may differ in the last bit
    if 90 not in (abs(one.lat), abs(other.lat)):
        across = abs((180 if other.lon == -180 else other.lon) - (180 if one.lon == -180 else one.lon))
        b = math.sin(math.radians(across if across <= 180 else 360 - across) / 2)
        a += math.cos(math.radians(one.lat)) * math.cos(math.radians(other.lat)) * (b * b)
    return 2 * 6_371_008.8 * math.asin(min(1, math.sqrt(a)))


def in_circle(center: Place, radius: float, place: Place) -> bool:
    return distance(center, place) <= radius


def meridians(lon: float) -> list[Fraction]:
    """A longitude and all that are the same meridian, as far as any border may be."""
    return [Fraction(lon) + 360 * turn for turn in range(-3, 4)]


def in_box(borders: tuple[float, float, float, float], place: Place) -> bool:
    """``borders`` are south, west, north and east."""
    south, west, north, east = map(Fraction, borders)
    if west > east:
        east += 360
    return south <= Fraction(place.lat) <= north and any(west <= lon <= east for lon in meridians(place.lon))


def unrolled(ring: Sequence[Place]) -> list[tuple[Fraction, Fraction]]:
    """The corners, closed; a line of more than 180 degrees takes the other way."""
    lon = Fraction(ring[0].lon)
    corners = [(lon, Fraction(ring[0].lat))]
    for before, place in pairwise((*ring, ring[0])):
        across = Fraction(place.lon) - Fraction(before.lon)
        lon += across - 360 if across > 180 else across + 360 if across < -180 else across
        corners.append((lon, Fraction(place.lat)))
    return corners


def in_ring(ring: Sequence[Place], place: Place) -> bool | None:
    """None on the border. Lines are crossed on the way to the north pole."""
    corners = unrolled(ring)
    crossed = 0
    for lon in meridians(place.lon):
        for (x1, y1), (x2, y2) in pairwise(corners):
            lat = Fraction(place.lat)
            if x1 == x2:
                if lon == x1 and min(y1, y2) <= lat <= max(y1, y2):
                    return None
                continue
            if not min(x1, x2) <= lon <= max(x1, x2):
                continue
            at = y1 + (y2 - y1) * (lon - x1) / (x2 - x1)
            if at == lat:
                return None
            crossed += at > lat and lon != max(x1, x2)
    return crossed % 2 == 1


def in_polygon(ring: Sequence[Place], holes: Iterable[Sequence[Place]], place: Place) -> bool:
    """Borders are inside, also those of holes."""
    return in_ring(ring, place) is not False and not any(in_ring(hole, place) for hole in holes)
