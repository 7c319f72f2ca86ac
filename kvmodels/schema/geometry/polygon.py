"""A polygon on the earth, with straight lines in degrees as in GeoJSON.

Rules of this module: whether a point is on the left of a line is decided exactly, with fractions where doubles cannot
decide it. So a point on a border is inside, and two polygons with a common border leave no gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.geometry.shape import WIDENED, DegreeBox, Shape, strips


class _Corner(NamedTuple):
    """A corner, or a point: longitude and latitude as given, and full turns to add to the longitude."""

    lon: float
    lat: float
    turns: int

    @property
    def x(self) -> float:
        """The longitude with its turns, rounded."""
        return self.lon + 360 * self.turns

    @property
    def exact_x(self) -> Fraction:
        """The longitude with its turns."""
        return Fraction(self.lon) + 360 * self.turns


class _Ring(NamedTuple):
    """A closed line: each line between two corners is at most 180 degrees long."""

    lines: tuple[tuple[_Corner, _Corner], ...]
    box: DegreeBox

    @property
    def turns(self) -> range:
        """The turns with which a point may be inside."""
        turns = [start.turns for start, _ in self.lines]
        return range(min(turns) - 1, max(turns) + 2)


@dataclass(frozen=True, slots=True, init=False)
class Polygon(Shape):
    """All points inside a ring of corners or on its border: ``Polygon([GeoPoint(lat=45, lon=5), ...])``.

    Its lines are straight in degrees, as in GeoJSON. A line between two longitudes that differ by more than 180
    degrees crosses the antimeridian.

    Args:
        points: at least three corners, in either direction; the first may be repeated at the end.
        holes: rings of corners whose inside does not belong to the polygon; their borders do.

    Raises:
        InvalidArgumentError: a ring has fewer than three corners, no area, or a pole inside.
    """

    points: tuple[GeoPoint, ...]
    holes: tuple[tuple[GeoPoint, ...], ...]
    _rings: tuple[_Ring, ...] = field(repr=False, compare=False)

    def __init__(self, points: Iterable[GeoPoint], *, holes: Iterable[Iterable[GeoPoint]] = ()) -> None:
        rings = [_ring("points", points), *(_ring("holes", hole) for hole in holes)]
        object.__setattr__(self, "points", rings[0])
        object.__setattr__(self, "holes", tuple(rings[1:]))
        object.__setattr__(self, "_rings", tuple(map(_unrolled, rings)))

    @classmethod
    def from_geojson(cls, polygon: Mapping[str, Any]) -> Polygon:
        """Return the polygon of a GeoJSON geometry: the first ring is the border, the others are holes.

        Raises:
            InvalidArgumentError: it is not a geometry of type Polygon, or a ring is invalid.

        Examples:
            >>> ring = [[5, 45], [11, 45], [11, 48], [5, 45]]
            >>> Polygon.from_geojson({"type": "Polygon", "coordinates": [ring]}).points[0]
            GeoPoint(lat=45.0, lon=5.0)
        """
        rings: Any = polygon.get("coordinates") if isinstance(cast("Any", polygon), Mapping) else None
        if not isinstance(rings, (list, tuple)) or not rings or polygon.get("type") != "Polygon":
            raise _refused(
                "the GeoJSON is not a polygon",
                "polygon",
                polygon,
                'Pass a geometry {"type": "Polygon", "coordinates": [ring, ...]}, such as the "geometry" of a Feature. '
                "Pass the polygons of a MultiPolygon one by one, joined by |.",
            )
        outer, *holes = [_points(ring) for ring in cast("list[Any]", rings)]
        return cls(outer, holes=holes)

    def contains(self, lat: float, lon: float) -> bool:
        """Return whether a point is inside or on a border."""
        outer, *holes = self._rings
        return _position(outer, lat, lon) >= 0 and all(_position(hole, lat, lon) <= 0 for hole in holes)

    def boxes(self) -> tuple[DegreeBox, ...]:
        """Return the box around the corners, two at the antimeridian."""
        box = self._rings[0].box
        return tuple(box._replace(west=west, east=east) for west, east in strips(box.west, box.east))

    def identity(self) -> list[Any]:
        """Return the corners of all rings."""
        return ["polygon", *([[point.lat, point.lon] for point in ring] for ring in (self.points, *self.holes))]


def _points(ring: Any) -> list[GeoPoint]:
    if isinstance(ring, (list, tuple)):
        return [_point(coordinates) for coordinates in cast("list[Any]", ring)]
    raise _refused("a ring is not a list of corners", "coordinates", ring, "A ring is a list of [longitude, latitude].")


def _point(coordinates: Any) -> GeoPoint:
    try:
        return GeoPoint.model_validate({"type": "Point", "coordinates": coordinates})
    except ValidationError:
        raise _refused(
            "a corner is not a place",
            "coordinates",
            coordinates,
            "A corner of GeoJSON is [longitude, latitude], with a longitude from -180 to 180. A ring that crosses the "
            "antimeridian goes from 180 to -180.",
        ) from None


def _ring(argument: str, points: Iterable[Any]) -> tuple[GeoPoint, ...]:
    ring = tuple(points)
    for point in ring:
        if not isinstance(point, GeoPoint):
            hint = "Give GeoPoint(lat=45, lon=5) for each corner; Polygon.from_geojson() takes lists of numbers."
            raise _refused("a corner is not a GeoPoint", argument, point, hint)
    if len(ring) > 1 and ring[0] == ring[-1]:
        ring = ring[:-1]
    if len(set(ring)) < 3:
        raise _refused("a polygon has fewer than three corners", argument, ring, "Give at least three distinct points.")
    return ring


def _unrolled(points: tuple[GeoPoint, ...]) -> _Ring:
    """Return the ring with the turns that make every line at most 180 degrees long."""
    corners = [_Corner(points[0].lon, points[0].lat, 0)]
    for point in (*points[1:], points[0]):
        last = corners[-1]
        step = Fraction(point.lon) - Fraction(last.lon)
        turns = last.turns + (1 if step < -180 else -1 if step > 180 else 0)
        corners.append(_Corner(point.lon, point.lat, turns))
    if corners[-1].turns != 0:
        raise _refused(
            "a ring goes around a pole",
            "points",
            points,
            "Its inside would be on either side. Cut it at a meridian, or use Circle(GeoPoint(lat=90, lon=0), radius) "
            "or Box(south=60, west=-180, north=90, east=180).",
        )
    if _has_no_area(corners):
        raise _refused(
            "a polygon has no area",
            "points",
            points,
            "All its corners are on one line. A line from -180 to 180 has the length 0, because both are one meridian: "
            "add a corner in between, or use Box.",
        )
    lats, xs = [corner.lat for corner in corners], [corner.x for corner in corners]
    return _Ring(tuple(pairwise(corners)), DegreeBox(min(lats), min(xs), max(lats), max(xs)))


def _has_no_area(corners: Sequence[_Corner]) -> bool:
    first = corners[0]
    others = [corner for corner in corners if (corner.exact_x, corner.lat) != (first.exact_x, first.lat)]
    return not others or all(_side(first, others[0], corner) == 0 for corner in others)


def _side(start: _Corner, end: _Corner, point: _Corner) -> int:
    """Return 1 if a point is on the left of a line, -1 if on the right, 0 if on it; exact."""
    run, rise = end.x - start.x, end.lat - start.lat
    over, up = point.x - start.x, point.lat - start.lat
    left, right = run * up, rise * over
    # The longitudes have up to 540 degrees and are rounded, each difference again.
    doubt = 1e-12 * (abs(run) + abs(rise) + abs(over) + abs(up)) + 1e-15 * (abs(left) + abs(right))
    if abs(left - right) > doubt:
        return 1 if left > right else -1
    x, y = start.exact_x, Fraction(start.lat)
    area = (end.exact_x - x) * (Fraction(point.lat) - y) - (Fraction(end.lat) - y) * (point.exact_x - x)
    return (area > 0) - (area < 0)


def _position(ring: _Ring, lat: float, lon: float) -> int:
    """Return 1 for a point inside of a ring, 0 for one on its border, -1 for one outside."""
    if not ring.box.south <= lat <= ring.box.north:
        return -1
    inside = False
    for turns in ring.turns:
        point = _Corner(lon, lat, turns)
        if not ring.box.west - WIDENED <= point.x <= ring.box.east + WIDENED:
            continue
        for start, end in ring.lines:
            if not min(start.lat, end.lat) <= lat <= max(start.lat, end.lat):
                continue
            side = _side(start, end, point)
            if side == 0 and _is_between(start, end, point):
                return 0
            if (start.lat > lat) != (end.lat > lat) and (side > 0) == (end.lat > start.lat):
                inside = not inside
    return 1 if inside else -1


def _is_between(start: _Corner, end: _Corner, point: _Corner) -> bool:
    low, high = sorted((start.exact_x, end.exact_x))
    return low <= point.exact_x <= high


def _refused(message: str, argument: str, value: object, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        message, argument=argument, value=short_repr(value), expected="a ring of GeoPoints", hint=hint
    )


show_public_path(Polygon)
