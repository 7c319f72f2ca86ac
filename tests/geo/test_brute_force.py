"""Brute force is tested first: against vectors, known distances and areas that are known by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.geo.brute_force import Place, distance, in_box, in_circle, in_polygon, in_ring

places = st.builds(Place, st.floats(-90, 90), st.floats(-180, 180))


def by_vectors(one: Place, other: Place) -> float:
    """The angle of two vectors, which is exact for every distance."""

    def vector(place: Place) -> tuple[float, float, float]:
        lat, lon = math.radians(place.lat), math.radians(place.lon)
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    (a, b, c), (x, y, z) = vector(one), vector(other)
    return 6_371_008.8 * math.atan2(math.hypot(b * z - c * y, c * x - a * z, a * y - b * x), a * x + b * y + c * z)


@given(places, places)
def test_distances_are_the_angles_of_vectors(one: Place, other: Place):
    found = by_vectors(one, other)
    # Near the antipode a haversine loses half of its digits.
    assert math.isclose(distance(one, other), found, rel_tol=1e-9, abs_tol=1e-6 if found < 19_900_000 else 1)
    assert distance(one, other) == distance(other, one)


def test_known_distances():
    assert distance(Place(0, 0), Place(0, 1)) == pytest.approx(111_195.0797)
    assert distance(Place(-90, 5), Place(0, 90)) == pytest.approx(math.pi / 2 * 6_371_008.8)
    assert distance(Place(90, 10), Place(90, -60)) == 0 == distance(Place(3, 180), Place(3, -180))


def test_areas_that_are_known_by_hand():
    fiji = (-20, 177, -12, -178)
    assert [in_box(fiji, Place(-15, lon)) for lon in (176, 177, 180, -180, -178, -177)] == [0, 1, 1, 1, 1, 0]
    assert in_circle(Place(89, 0), 300_000, Place(89, 180))
    square = [Place(0, 0), Place(0, 4), Place(4, 4), Place(4, 0)]
    hole = [Place(1, 1), Place(1, 2), Place(2, 2), Place(2, 1)]
    assert [in_ring(square, Place(*at)) for at in [(2, 2), (0, 2), (4, 4), (5, 2), (2, -1)]] == [1, None, None, 0, 0]
    assert [in_polygon(square, [hole], Place(*at)) for at in [(1.5, 1.5), (1, 1.5), (3, 3)]] == [False, True, True]
    across = [Place(0, 170), Place(0, -170), Place(10, -170), Place(10, 170)]
    assert [in_polygon(across, [], Place(5, lon)) for lon in (169, 175, 180, -180, -175, -169)] == [0, 1, 1, 1, 1, 0]
