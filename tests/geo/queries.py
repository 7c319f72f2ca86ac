"""Drawn records with places and drawn queries for them, with their answers by brute force."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from kvmodels import Box, Circle, GeoIndex, GeoPoint, KvModel, Polygon, PrimaryKey, Q
from tests.geo.brute_force import Place, distance, in_box, in_circle, in_polygon

KINDS = ("bakery", "smith", None)
EDGES = (0.0, 0.1, 179.999999, -179.999999, 180.0, -180.0)
POLES = (90.0, -90.0, 89.999999, -89.9999)

FIXED = (Place(0.0, 180.0), Place(5.5, -180.0), Place(90.0, 12.0), Place(-90.0, -180.0))
"""Places of the first records."""


class Shop(KvModel, collection="shops"):
    """A place, by itself, in a group, and of some records."""

    id: PrimaryKey[int]
    location: GeoPoint | None
    kind: str | None
    size: int

    class Meta:
        indexes = (
            GeoIndex("location"),
            GeoIndex("location", group="kind", name="by_kind"),
            GeoIndex("location", where=Q(size__gte=2), name="large"),
        )

    @property
    def place(self) -> Place | None:
        """The place as brute force takes it."""
        return None if self.location is None else Place(self.location.lat, self.location.lon)


def degrees(lat: float, lon: float) -> Place:
    """A place for any two numbers: beyond 180 on the other side, and not beyond a pole."""
    return Place(max(-90.0, min(90.0, lat)), max(-180.0, min(180.0, math.remainder(lon, 360))))


def place(chance: Random) -> Place:
    """A place in one of a few towns, at the antimeridian, at a pole, or anywhere."""
    match chance.randrange(8):
        case 0:
            return Place(chance.choice(POLES), chance.uniform(-180, 180))
        case 1:
            return Place(chance.choice([-20.0, 0.0, 5.5, chance.uniform(-90, 90)]), chance.choice(EDGES))
        case 2:
            return Place(chance.uniform(-90, 90), chance.uniform(-180, 180))
        case 3:
            return degrees(chance.uniform(-20, -12), chance.uniform(175, 185))
        case 4:
            return degrees(46.95, 7.44)
    lat, lon = chance.choice([(46.95, 7.44), (-18.0, 179.99), (89.99, 0.0)])
    return degrees(lat + chance.gauss(0, 0.05), lon + chance.gauss(0, 0.05))


def point(one: Place) -> GeoPoint:
    return GeoPoint(lat=one.lat, lon=one.lon)


def shops(chance: Random, number: int) -> list[Shop]:
    """Records of which some have no place, and some one place."""
    return [
        Shop(
            id=key,
            location=point(FIXED[key]) if key < len(FIXED) else None if key % 10 == 9 else point(place(chance)),
            kind=chance.choice(KINDS),
            size=chance.randrange(4),
        )
        for key in range(number)
    ]


class Drawn(NamedTuple):
    """A condition, a test of a record, and whether ranges of an index answer the condition alone."""

    condition: Any
    test: Callable[[Shop], bool]
    indexed: bool


def area(chance: Random) -> tuple[Any, Callable[[Place], bool]]:
    """A shape, and the test of a place; with places of ``place`` at its border."""
    center = place(chance)
    match chance.randrange(4):
        case 0:
            radius = chance.choice([0.0, distance(center, place(chance)), 10 ** chance.uniform(0, 7.3)])
            return Circle(point(center), radius), lambda one: in_circle(center, radius, one)
        case 1:
            return _polygon(chance, center)
    other = place(chance) if chance.random() < 0.5 else degrees(center.lat + 3, center.lon + chance.uniform(-9, 9))
    south, north = sorted((center.lat, other.lat))
    west, east = center.lon, other.lon
    if chance.random() < 0.2:
        south, north = min(south, -5.0), max(north, 5.5)
        west, east = chance.choice([(-180.0, -170.0), (170.0, 180.0), (-180.0, -180.0), (180.0, -175.0)])
    borders = (south, west, north, east)
    box = Box(south=south, west=west, north=north, east=east)
    return box, lambda one: in_box(borders, one)


def _polygon(chance: Random, center: Place) -> tuple[Any, Callable[[Place], bool]]:
    """A star around a place, perhaps with a hole; its corners have few digits, so lines meet places."""
    lat = max(-70.0, min(70.0, round(center.lat, 2)))
    reach = chance.choice([0.1, 1.0, 15.0])
    turns = sorted(chance.sample(range(12), chance.randrange(3, 9)))
    angles = [math.tau * turn / 12 for turn in turns]
    ring = [degrees(lat + reach * math.sin(angle), center.lon + reach * math.cos(angle)) for angle in angles]
    hole = [degrees(lat + up * reach / 9, center.lon + over * reach / 9) for up, over in ((1, 1), (1, -1), (-1, -1))]
    holes = [hole] if chance.random() < 0.3 else []
    polygon = Polygon(map(point, ring), holes=[list(map(point, one)) for one in holes])
    return polygon, lambda one: in_polygon(ring, holes, one)


def within(chance: Random) -> Drawn:
    """A lookup of places, some with a group."""
    shape, inside = area(chance)
    condition = Q(location__within=shape)

    def test(shop: Shop) -> bool:
        return shop.place is not None and inside(shop.place)

    kind, kinds = chance.choice(KINDS), chance.sample(KINDS, 2)
    match chance.randrange(5):
        case 0:
            return Drawn(condition & Q(kind=kind), lambda shop: shop.kind == kind and test(shop), True)
        case 1:
            return Drawn(condition & Q(kind__in=kinds), lambda shop: shop.kind in kinds and test(shop), True)
        case 2:
            return Drawn(condition & Q(size__gte=2), lambda shop: shop.size >= 2 and test(shop), True)
    return Drawn(condition, test, True)


def of_size(chance: Random) -> Drawn:
    """A comparison that no index answers."""
    size = chance.randrange(4)
    return Drawn(Q(size__gte=size), lambda shop: shop.size >= size, False)


def drawn(chance: Random, depth: int = 2) -> Drawn:
    """A condition, or two of them joined or negated."""
    one = within(chance) if chance.random() < 0.85 else of_size(chance)
    if depth == 0 or chance.random() < 0.5:
        return one
    other = drawn(chance, depth - 1)
    match chance.randrange(4):
        case 0:
            return Drawn(
                one.condition | other.condition,
                lambda shop: one.test(shop) or other.test(shop),
                one.indexed and other.indexed,
            )
        case 1:
            return Drawn(
                one.condition & ~other.condition, lambda shop: one.test(shop) and not other.test(shop), one.indexed
            )
    return Drawn(
        one.condition & other.condition,
        lambda shop: one.test(shop) and other.test(shop),
        one.indexed or other.indexed,
    )


class Ranking(NamedTuple):
    """A ranked query: its origin, its keywords, its filter, and the test of a record."""

    origin: Place
    options: dict[str, float]
    condition: Any
    test: Callable[[Shop], bool]

    def expected(self, records: list[Shop]) -> list[tuple[float, int]]:
        """The distances and the keys, in order."""
        most = self.options.get("within_m", math.inf)
        found = [(distance(self.origin, one.place), one.id) for one in records if one.place and self.test(one)]
        return sorted(pair for pair in found if pair[0] <= most)


def ranked(chance: Random) -> Ranking:
    """A ranked query with or without a group, a residual filter, and a greatest distance."""
    origin = place(chance)
    most = chance.choice([0.0, distance(origin, place(chance)), 10 ** chance.uniform(2, 7.3)])
    options = {"within_m": most} if chance.random() < 0.4 else {}
    kind, kinds, size = chance.choice(KINDS), chance.sample(KINDS, 2), chance.randrange(4)
    match chance.randrange(6):
        case 0:
            return Ranking(origin, options, Q(kind=kind), lambda shop: shop.kind == kind)
        case 1:
            return Ranking(origin, options, Q(kind__in=kinds), lambda shop: shop.kind in kinds)
        case 2:
            return Ranking(origin, options, Q(size=size), lambda shop: shop.size == size)
        case 3:
            return Ranking(
                origin, options, Q(kind=kind, size__gte=2), lambda shop: shop.kind == kind and shop.size >= 2
            )
        case 4:
            shape, inside = area(chance)
            return Ranking(
                origin, options, Q(location__within=shape), lambda shop: bool(shop.place and inside(shop.place))
            )
    return Ranking(origin, options, None, lambda shop: True)
