"""The tests of places notice a border that is lost, a pole, the antimeridian, and a filter that comes too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Any

import pytest

from kvmodels import Box, Circle
from kvmodels.query.kinds import geo as access
from kvmodels.query.kinds.ranking import RankEntries, Ranking
from kvmodels.schema.geometry import box, cells, circle
from kvmodels.schema.geometry.shape import DegreeBox, strips
from kvmodels.schema.geometry.sphere import distance_m
from tests.geo.test_geo_queries import SEED, check_queries

Broken = Callable[..., Any]


def require_noticed() -> None:
    """Require that drawn queries find a difference."""
    with pytest.raises(AssertionError):
        check_queries("memory://", SEED, 300)


def without_the_antimeridian(west: float, east: float) -> Sequence[tuple[float, float]]:
    """One part only: what is beyond 180 degrees is lost."""
    return ((max(west, -180.0), min(east, 180.0)),)


def without_the_other_name(west: float, east: float) -> Sequence[tuple[float, float]]:
    """The meridian at 180 and -180 is looked for under one of its names."""
    parts = strips(west, east)
    return [part for part in parts if part[1] - part[0] > 1e-8] or parts


@pytest.mark.parametrize("broken", [without_the_antimeridian, without_the_other_name])
def test_a_cover_without_the_antimeridian_is_noticed(broken: Broken, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(box, "strips", broken)
    monkeypatch.setattr(circle, "strips", broken)
    require_noticed()


def test_a_cover_without_the_pole_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(circle, "_AT_A_POLE", -1.0)
    monkeypatch.setattr(circle, "sqrt", lambda number: abs(number) ** 0.5)
    require_noticed()


def moved(degrees: float) -> float:
    return (degrees + 180) % 360 - 180


def contains_moved(self: Box, lon: float) -> bool:
    """Degrees are moved into -180 to 180 before the test."""
    west, east, lon = self.west, self.east, moved(lon)
    return west <= lon <= east if west <= east else lon >= west or lon <= east


def test_degrees_that_are_moved_before_the_test_are_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Box, "_spans", contains_moved)
    require_noticed()


def without_its_border(self: Circle, lat: float, lon: float) -> bool:
    """``<`` for ``<=``."""
    return distance_m(self.center.lat, self.center.lon, lat, lon) < self.radius_m


def test_a_circle_without_its_border_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Circle, "contains", without_its_border)
    require_noticed()


def test_a_ring_without_its_border_is_noticed(monkeypatch: pytest.MonkeyPatch):
    original = access._ring

    def ring(origin: Any, least: float, most: float) -> Broken:
        distance = original(origin, least, most)
        return lambda part, value: None if (found := distance(part, value)) == most else found

    monkeypatch.setattr(access, "_ring", ring)
    require_noticed()


def test_a_ring_that_begins_too_late_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "nextafter", lambda radius, _: radius * 1.01)
    require_noticed()


def test_a_filter_after_the_limit_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Only the first ring is ranked, which has as many entries as results are wanted."""
    original = access.Nearest.rings

    def first_ring(*arguments: Any) -> Ranking:
        ranking = original(*arguments)
        answer = None
        while True:
            step = ranking.send(answer)
            answer = yield step
            if isinstance(step, RankEntries):
                return

    monkeypatch.setattr(access.Nearest, "rings", first_ring)
    require_noticed()


def test_a_cell_that_rounds_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """A column that is not monotone: of some, another bit is set."""

    def column(lon: float) -> int:
        number = min(floor((lon + 180) / 360 * (1 << cells.BITS)), cells.LAST)
        return number if number % 100 < 60 else number ^ (1 << 20)

    monkeypatch.setattr(cells, "_column", column)
    require_noticed()


def test_a_cover_of_too_few_ranges_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def cover(boxes: Sequence[DegreeBox]) -> Any:
        return cells.cover(boxes)[: cells.MOST_RANGES - 1]

    monkeypatch.setattr(access, "cover", cover)
    require_noticed()
