"""The index of places: its declaration, its options, and its lookup.

Rules of this module: pure. A document has a place only if both degrees are in their range; the lookup finds no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Never

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidValueError
from kvmodels.schema.compile.columns import column_of, nearest, value_at
from kvmodels.schema.declare.annotations import models_of
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, Document, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, GroupedKind, KindDescription
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.geometry.shape import Shape


class GeoIndex(DeclaredIndex):
    """An index of places, which finds the records inside of an area and those nearest to a place.

    ``filter(location__within=Circle(here, 5_000))`` finds the records inside of a ``Circle``, ``Box`` or ``Polygon``,
    ``nearest("location", here)`` returns records with their distance in metres, the nearest first.

    Args:
        fields: the field of type ``GeoPoint``, or the path to one, such as ``"address.location"``. A record whose field
            is None has no entry.
        group: the field, or fields, that a query must fix, such as ``"kind"``.
        name: name of the index; by default the names of group and field, joined by ``_``.
        where: a condition; only records that satisfy it have an entry.

    Raises:
        ModelDefinitionError: not one field, a repeated field, or an invalid option.

    Examples:
        >>> GeoIndex("location", group="kind", name="by_kind")
        GeoIndex('location', name='by_kind', group=('kind',))
    """

    kind = "geo"
    _shown = ("name",)

    def __init__(
        self,
        *fields: str,
        group: str | Sequence[str] = (),
        name: str | None = None,
        where: Expression | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare_grouped(fields, group, name, where)
        if len(fields) != 1:
            raise self._error(
                "an index of places has one field",
                ", ".join(map(repr, fields)),
                'Name the field that is a GeoPoint, and put others into the group: GeoIndex("location", group="kind").',
            )
        self._refuse_directions(fields)


@dataclass(frozen=True, slots=True)
class GeoOptions(KindOptions):
    """The columns of latitude and longitude, which are parts of one field."""

    kind = "geo"
    key_parts = 1

    lat: Column
    lon: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        """The latitude and the longitude."""
        return (self.lat, self.lon)

    @property
    def looked_up(self) -> str:
        """The field of the point."""
        return self.lat.field.rpartition(".")[0]


def options_of(definition: IndexDefinition) -> GeoOptions:
    """Return the options of an index of places."""
    options = definition.options
    assert isinstance(options, GeoOptions), "an index of another kind"
    return options


def is_place(lat: Any, lon: Any) -> bool:
    """Return whether two stored values are the degrees of a place; NaN is none."""
    return type(lat) in _NUMBERS and type(lon) in _NUMBERS and -90 <= lat <= 90 and -180 <= lon <= 180


_NUMBERS: Final = (float, int)
"""The types of stored degrees: JavaScript writes whole numbers without a fraction."""


class Within(KindLookup):
    """The lookup of places inside of an area, its border included."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Shape:
        """Return the shape."""
        del schema, definition
        if isinstance(value, Shape):
            return value
        raise InvalidValueError(
            "within takes an area",
            type=type(value).__name__,
            hint="Give Circle(GeoPoint(lat=46.95, lon=7.44), 5_000) with metres, Box(south=45, west=5, north=48, "
            "east=11), Polygon([...]) or Polygon.from_geojson({...}).",
        )

    def test(self, definition: IndexDefinition, operand: Shape) -> Test:
        """Return the test whether a document has a place in the shape."""
        options = options_of(definition)
        read_lat, read_lon = reader_of(options.lat), reader_of(options.lon)
        contains = operand.contains

        def passes(document: Document) -> bool:
            lat, lon = read_lat(document), read_lon(document)
            return is_place(lat, lon) and contains(lat, lon)

        return passes

    def identity(self, operand: Shape) -> list[Any]:
        """Return the numbers of the shape."""
        return operand.identity()


class GeoKind(GroupedKind):
    """The definition of an index of places."""

    declaration: ClassVar[type[DeclaredIndex] | None] = GeoIndex
    shown: ClassVar[str] = "geo"
    names_field: ClassVar[bool] = True
    lookups: ClassVar[Mapping[str, KindLookup]] = {"within": Within()}

    def line(self, name: str) -> str:
        """Return the declaration whose lookups go by the name of a field."""
        return f'GeoIndex("{name}")'

    def compile(
        self, declared: GeoIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the columns of latitude and longitude."""
        del columns
        (name,) = declared.fields
        lat, lon = model.schema.source(f"{name}.lat"), model.schema.source(f"{name}.lon")
        if lat is None or lon is None or not _is_point(name, model):
            raise _no_point(name, text, model)
        if lat.many:
            raise model.error(
                "an index of places has one place for each record",
                name,
                text,
                "This field has several values: store each place as a record of its own.",
            )
        return {"options": GeoOptions(column_of(lat), column_of(lon))}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> GeoOptions:
        """Return the columns in a signature."""
        lat, lon = columns_of(stored["options"]["columns"])
        names = [column.field.rpartition(".") for column in (lat, lon)]
        is_plain = all(column.codec.name == "float" for column in (lat, lon)) and not (lat.many or lon.many)
        if not is_plain or names[0][0] != names[1][0] or [name[2] for name in names] != ["lat", "lon"]:
            raise ValueError("a place of another form")
        return GeoOptions(lat, lon)

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description, with the field of the point in place of its columns."""
        return super().describe(index)._replace(fields=(options_of(index).looked_up,))


def _is_point(name: str, model: DeclaringModel) -> bool:
    found = value_at(model.fields, name)
    return found is None or all(issubclass(cls, GeoPoint) for cls in models_of(found[0].annotation))


def _no_point(name: str, text: str, model: DeclaringModel) -> Exception:
    suggestion = nearest(model.fields, model.schema.computed, name)
    if suggestion != name and value_at(model.fields, name) is None:
        return model.error(
            "an index names a field that does not exist",
            name,
            text,
            "Use the name of a field of type GeoPoint.",
            suggestion,
        )
    return model.error(
        "the field of an index of places is not a GeoPoint",
        name,
        text,
        "Declare it as location: GeoPoint, or GeoPoint | None.",
    )


KIND: Final = GeoKind()

show_public_path(GeoIndex)
