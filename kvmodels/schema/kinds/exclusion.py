"""The constraint that no two intervals of a group overlap: its declaration, its options, and its lookups.

Rules of this module: pure. Intervals, their types and their lookups are those of an index of intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.definition.definition import Column
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, Draw
from kvmodels.schema.kinds.interval import LONGEST_DRAWN, DeclaredIntervals, IntervalKind, IntervalOptions


class ExclusionConstraint(DeclaredIntervals):
    """A constraint that no two records of a group have overlapping intervals, such as two bookings of one room.

    An interval is half-open: it contains its start and not its end, so one may begin when another one ends. Each write
    checks the constraint in its commit, and raises ExclusionViolationError instead of storing an overlap.

    Args:
        fields: the field of the start and the field of the end, both of type int, date, datetime with a time zone, or
            timedelta. An end that is None is unbounded; a record whose start is None is not compared.
        group: the field, or fields, whose records are compared with each other, such as ``"room"``. A record with None
            in one of them is not compared.
        name: name of the constraint; by default the names of group and fields, joined by ``_``.
        where: a condition; only records that satisfy it are compared.

    Raises:
        ModelDefinitionError: not two fields, a repeated field, or an invalid option.

    Examples:
        >>> ExclusionConstraint("starts", "ends", group="room", name="no_overlap")
        ExclusionConstraint('starts', 'ends', name='no_overlap', group=('room',))
    """

    kind = "exclusion"


@dataclass(frozen=True, slots=True)
class ExclusionOptions(IntervalOptions):
    """The columns of start and end, both of one type."""

    kind = "exclusion"
    key_parts = 1
    omits_none = True


class ExclusionKind(IntervalKind):
    """The definition of a constraint that no two intervals overlap."""

    declaration: ClassVar[type[DeclaredIndex] | None] = ExclusionConstraint
    shown: ClassVar[str] = "exclusion"
    options: ClassVar[type[IntervalOptions]] = ExclusionOptions

    def line(self, name: str) -> str | None:
        """Return no declaration: an index of intervals has the same lookups, and refuses no record."""
        del name
        return None

    def compile(
        self, declared: DeclaredIntervals, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the columns of start and end; each record belongs to one group."""
        several = next((column.field for column in columns if column.many), None)
        if several is not None:
            raise model.error(
                "a record would belong to several groups of an exclusion constraint",
                several,
                text,
                "Group by a field with one value: store a record for each room, table or person.",
            )
        return super().compile(declared, columns, text, model)

    def fitted(
        self, options: IntervalOptions, values: Mapping[str, Any], free: Collection[str], draw: Draw
    ) -> Mapping[str, Any]:
        """Return start and end in their order; an end, because an unbounded record leaves no place for later ones."""
        start, end = (values.get(column.field) for column in options.columns)
        if start is None or end is not None or options.end.field not in free:
            return super().fitted(options, values, free, draw)
        first = options.scale.number(start)
        last = min(first + draw(1, LONGEST_DRAWN), options.scale.greatest)
        return {options.end.field: options.scale.value(last)} if first < last else {}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> IntervalOptions:
        """Return the columns in a signature."""
        if any(column.many for column in columns_of(stored["columns"])):
            raise ValueError("a group with several values")
        return super().from_signature(stored, columns_of)


show_public_path(ExclusionConstraint)

KIND: Final = ExclusionKind()
