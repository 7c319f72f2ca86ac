"""Access to an index of places: ranges of cells for an area, and rings around a place.

Rules of this module: pure. Cells enclose; the degrees in the value of each entry decide.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from math import inf, nextafter
from struct import Struct, error
from typing import Any, ClassVar, Final

from kvmodels.codecs.columns.base import ColumnCodec, part_of
from kvmodels.core.keys import encode_part
from kvmodels.errors import InvalidValueError
from kvmodels.query.kinds.contract import KindAccess, between
from kvmodels.query.kinds.ranking import (
    CountEntries,
    DistanceOf,
    EntryParts,
    EntrySpan,
    KindRanking,
    RankEntries,
    Ranking,
    RankingStep,
    Reach,
    ReadEntries,
)
from kvmodels.schema.declare.annotations import models_of, types_at
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.predicate import Span, Spans
from kvmodels.schema.geometry.cells import LAST_CELL, CellRange, cell_of, cover, packed_cell
from kvmodels.schema.geometry.circle import Circle
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.geometry.shape import Shape
from kvmodels.schema.geometry.sphere import FARTHEST_M, distance_m
from kvmodels.schema.kinds.geo import options_of

_CELL: Final = ColumnCodec("cell", True, None, None, encode_part, encode_part, part_of(bytes))
_degrees_in: Final = Struct(">dd").unpack

_MANY: Final = 10
"""A ring with more than this number of entries for each wanted result is divided."""

_LEAST_RADIUS_M: Final = 1.0
"""Rings grow from at least this radius, which is about the width of a cell."""


class Nearest(KindRanking):
    """The order by the distance from a place, the nearest first.

    The entries next to the cell of the place, in the order of cells, are close in most cases. The distance of the
    k-th of them is an upper bound of the distance of the k-th result, so one circle of this radius has all results.
    """

    def field(self, definition: IndexDefinition) -> str:
        """Return the field of the places."""
        return options_of(definition).looked_up

    def origin(self, schema: ModelSchema, field: str, given: Any) -> GeoPoint:
        """Return the place."""
        if isinstance(given, GeoPoint):
            return given
        raise InvalidValueError(
            "nearest takes a place",
            model=schema.name,
            field=field,
            type=type(given).__name__,
            hint="Write GeoPoint(lat=46.95, lon=7.44): a tuple does not say which number is the latitude.",
        )

    def digest(self, origin: GeoPoint) -> list[float]:
        """Return the degrees."""
        return [origin.lat, origin.lon]

    def declaration(self, schema: ModelSchema, field: str) -> str | None:
        """Return an index of the field, if it is a GeoPoint."""
        kinds = [cls for found, _ in types_at(schema.model, field) for cls in models_of(found.annotation)]
        return f'GeoIndex("{field}")' if kinds and all(issubclass(cls, GeoPoint) for cls in kinds) else None

    def rings(self, definition: IndexDefinition, origin: GeoPoint, reach: Reach) -> Ranking:
        """Yield circles that grow until every result within reach was ranked."""
        del definition
        limit = inf if reach.within is None else reach.within
        radius = yield from _first_radius(origin, reach)
        least = reach.beyond
        while True:
            radius = min(radius if radius <= FARTHEST_M else inf, limit)
            yield RankEntries(_around(origin, radius), _ring(origin, least, radius))
            if radius == limit:
                return
            least = nextafter(radius, inf)
            radius = max(2 * radius, _LEAST_RADIUS_M)


def _first_radius(origin: GeoPoint, reach: Reach) -> Generator[RankingStep, Any, float]:
    """Return the radius of the first ring: of the entries in the neighbouring cells, or half as far again."""
    wanted = reach.wanted
    if wanted is None:
        return inf
    if reach.beyond > 0:
        return max(1.5 * reach.beyond, _LEAST_RADIUS_M)
    own = encode_part(packed_cell(cell_of(origin.lat, origin.lon)))
    found: list[list[EntryParts]] = yield ReadEntries(
        (EntrySpan(b"", own, wanted, reverse=True), EntrySpan(own, b"\xff", wanted))
    )
    if all(len(entries) < wanted for entries in found):
        return inf  # these are all entries
    distance = _ring(origin, 0.0, inf)
    near = sorted(far for entries in found for one in entries if (far := distance(*one)) is not None)
    radius = near[wanted - 1] if len(near) >= wanted else inf
    spans = [span._replace(limit=_MANY * wanted + 1) for span in _around(origin, radius)]
    counted: list[int] | None = yield CountEntries(spans)
    return radius / 4 if counted is not None and sum(counted) > _MANY * wanted else radius


def _ring(origin: GeoPoint, least: float, most: float) -> DistanceOf:
    """Return the function from an entry to its distance, None outside of a ring."""
    lat, lon = origin.lat, origin.lon

    def distance(part: bytes, value: bytes) -> float | None:
        del part
        try:
            found = distance_m(lat, lon, *_degrees_in(value))
        except (error, ValueError):
            return None  # a row that this library has not written
        return found if least <= found <= most else None

    return distance


def _around(origin: GeoPoint, radius: float) -> list[EntrySpan]:
    """Return the spans of all cells of a circle."""
    whole = [(0, LAST_CELL)]
    ranges = whole if radius > FARTHEST_M else cover(Circle(origin, radius).boxes())
    return [EntrySpan(span.start, span.end) for span in _spans(ranges)]


def _spans(ranges: Iterable[CellRange]) -> Iterator[Span]:
    for first, last in ranges:
        yield between(encode_part(packed_cell(first)), encode_part(packed_cell(last)))


class GeoAccess(KindAccess):
    """Access to an index of places."""

    rankings: ClassVar[Mapping[str, KindRanking]] = {"nearest": Nearest()}

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the column of the cell."""
        return (Column(f"cell of {options_of(definition).looked_up}", _CELL),)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Shape) -> Spans:
        """Return at most eight ranges of cells, which have every place of the shape."""
        del definition, lookup
        return tuple(_spans(cover(operand.boxes())))

    def held(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the columns of latitude and longitude."""
        return options_of(definition).columns

    def values(self, definition: IndexDefinition, parts: Sequence[Any], value: bytes) -> tuple[float, float]:
        """Return the latitude and the longitude of a row."""
        del definition, parts
        try:
            lat, lon = _degrees_in(value)
        except error:
            raise ValueError("not the degrees of a place") from None
        return lat, lon


ACCESS: Final = GeoAccess()
