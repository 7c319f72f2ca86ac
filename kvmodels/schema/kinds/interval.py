"""The index of intervals: its declaration, its options, and its lookups.

Rules of this module: pure. Moments are compared as instants, whatever their time zones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Never

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.schema.compile.columns import column_of, nearest
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import (
    Column,
    ColumnSource,
    Document,
    IndexDefinition,
    KindOptions,
    ModelSchema,
)
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, Draw, GroupedKind
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.filters.operands import PRIMARY_KEY, comparable
from kvmodels.schema.kinds.interval_spans import SCALES, Numbers, Scale, numbers_of_value, overlap, wanted_numbers

_TYPES: Final = "int, date, datetime or timedelta"


class DeclaredIntervals(DeclaredIndex):
    """Base class of declarations of an index of intervals."""

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
        if len(fields) != 2:
            raise self._error(
                "an index of intervals needs two fields",
                ", ".join(map(repr, fields)),
                f'Name the fields of start and end: {type(self).__name__}("starts", "ends").',
            )
        self._refuse_directions(fields)


class IntervalIndex(DeclaredIntervals):
    """An index of time ranges, or of other intervals, which finds those that overlap another one.

    An interval is half-open: it contains its start and not its end. ``filter(name__overlaps=(start, end))`` finds the
    records whose interval shares a moment with another one, ``filter(name__contains=moment)`` those whose interval
    contains a moment.

    Args:
        fields: the field of the start and the field of the end, both of type int, date, datetime with a time zone, or
            timedelta. An end that is None is unbounded; a record whose start is None has no entry.
        group: the field, or fields, that a query must fix, such as ``"room"``.
        name: name of the index and of its lookups; by default the names of group and fields, joined by ``_``.
        where: a condition; only records that satisfy it have an entry.

    Raises:
        ModelDefinitionError: not two fields, a repeated field, or an invalid option.

    Examples:
        >>> IntervalIndex("starts", "ends", group="room", name="calendar")
        IntervalIndex('starts', 'ends', name='calendar', group=('room',))
    """

    kind = "interval"


@dataclass(frozen=True, slots=True)
class IntervalOptions(KindOptions):
    """The columns of start and end, both of one type."""

    kind = "interval"
    key_parts = 2

    start: Column
    end: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        """The start and the end."""
        return (self.start, self.end)

    @property
    def scale(self) -> Scale:
        """The scale of their type."""
        return SCALES[self.start.codec.name]

    def numbers(self, start: Any, end: Any) -> tuple[int, int | None]:
        """Return the numbers of a stored start that is not None, and of a stored end.

        Raises InvalidValueError with the field: not of their type, outside of its range, or no interval.
        """
        first = self._number(self.start, start)
        after = None if end is None else self._number(self.end, end)
        if after is not None and first >= after:
            raise InvalidValueError(
                "an interval does not end after its start",
                field=self.end.field,
                type=self.end.codec.name,
                hint=f"An interval contains its start and not its end: {self.end.field} must be greater than "
                f"{self.start.field}, or None for an interval without end.",
            )
        return first, after

    def _number(self, column: Column, stored: Any) -> int:
        try:
            column.codec.pack_stored(stored)
            value = stored if column.codec.from_stored is None else column.codec.from_stored(stored)
        except (InvalidValueError, DecodeError) as error:
            raise InvalidValueError(
                error.message, field=column.field, type=column.codec.name, hint=error.hint
            ) from error
        number = self.scale.number(value)
        if not self.scale.least <= number <= self.scale.greatest:
            raise InvalidValueError(
                "a number is too large for an index of intervals",
                field=column.field,
                type=column.codec.name,
                hint="It takes numbers of 64 bits, from -2 ** 63 to 2 ** 63 - 1.",
            )
        return number


def options_of(definition: IndexDefinition) -> IntervalOptions:
    """Return the options of an index of intervals."""
    options = definition.options
    assert isinstance(options, IntervalOptions), "an index of another kind"
    return options


@dataclass(frozen=True, slots=True)
class Wanted:
    """The operand of a lookup: as plans show it, and the interval that it stands for; None: it finds nothing."""

    shown: Any
    numbers: Numbers | None

    def __repr__(self) -> str:
        return repr(self.shown)


class _IntervalLookup(KindLookup):
    """A lookup of intervals that share a number with another one."""

    def column(self, definition: IndexDefinition) -> Column | None:
        """Return the column of the start, whose type the end has too."""
        return options_of(definition).start

    def test(self, definition: IndexDefinition, operand: Wanted) -> Test:
        """Return the test of a document, which has an interval only if it ends after its start."""
        options = options_of(definition)
        read_start, read_end = reader_of(options.start), reader_of(options.end)

        def passes(document: Document) -> bool:
            start, end = read_start(document), read_end(document)
            if start is None or operand.numbers is None:
                return False
            try:
                return overlap(*options.numbers(start, end), operand.numbers)
            except InvalidValueError:
                return False

        return passes

    def identity(self, operand: Wanted) -> list[int] | None:
        """Return the numbers of the interval."""
        return None if operand.numbers is None else list(operand.numbers)


class Overlaps(_IntervalLookup):
    """The lookup of intervals that overlap ``(start, end)``; an end that is None is unbounded."""

    several: ClassVar[bool] = True

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Wanted:
        """Return the interval of an operand."""
        del schema
        options = options_of(definition)
        ends: list[Any] = list(value) if value.__class__ in (tuple, list) else []
        if len(ends) != 2 or ends[0] is None:
            raise InvalidValueError(
                "overlaps takes a start and an end",
                type=type(value).__name__,
                hint=f"Write {definition.name}__overlaps=(start, end); an end that is None is unbounded.",
            )
        low, high = (None if end is None else _converted(options.start, end) for end in ends)
        return Wanted((low, high), wanted_numbers(options.scale, low, high))


class Contains(_IntervalLookup):
    """The lookup of intervals that contain a value: a moment, a day or a number."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Wanted:
        """Return the interval of a value alone."""
        del schema
        options = options_of(definition)
        if value is None:
            raise InvalidValueError(
                "contains takes a value, and not None",
                type="NoneType",
                hint=f"Write {definition.name}__contains=value, with a value of type {options.start.codec.name}.",
            )
        moment = _converted(options.start, value)
        return Wanted(moment, numbers_of_value(options.scale, moment))


def _converted(column: Column, value: Any) -> Any:
    """Return a value in the form of its column: a str is parsed, a datetime gets a fixed offset."""
    codec = column.codec
    if isinstance(value, str) and codec.from_stored is not None:
        try:
            value = codec.from_stored(value)
        except DecodeError as error:
            raise InvalidValueError(
                "this text is not a value of its column", type=codec.name, hint="Write it as ISO 8601."
            ) from error
    codec.pack(value)
    return comparable(value)


class IntervalKind(GroupedKind):
    """The definition of an index of intervals."""

    declaration: ClassVar[type[DeclaredIndex] | None] = IntervalIndex
    shown: ClassVar[str] = "interval"
    options: ClassVar[type[IntervalOptions]] = IntervalOptions
    lookups: ClassVar[Mapping[str, KindLookup]] = {"overlaps": Overlaps(), "contains": Contains()}

    def line(self, name: str) -> str | None:
        """Return a declaration whose lookups go by a name."""
        return f'IntervalIndex("starts", "ends", name="{name}")' if _is_keyword(name) else None

    def default_name(self, columns: Iterable[Column], declared: DeclaredIntervals) -> str:
        """Return the names of group, start and end, joined by ``_``."""
        names = (*(column.field for column in columns), *declared.fields)
        return "_".join(name.replace(".", "_") for name in names)

    def compile(
        self, declared: DeclaredIntervals, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the columns of start and end."""
        name = self.default_name(columns, declared) if declared.name is None else declared.name
        if name in model.fields or name in model.schema.computed or not _is_keyword(name):
            raise model.error(
                "the name of an index of intervals cannot be the keyword of its lookups",
                None,
                text,
                f"Queries write filter({name}__overlaps=...): give it a name that is an identifier without a double "
                'underscore, and that no field has, such as name="calendar".',
            )
        start, end = (_source(name, text, model) for name in declared.fields)
        if start.codec.name != end.codec.name:
            raise model.error(
                "the start and the end of an interval have different types",
                end.name,
                text,
                f"{start.name} is of type {start.codec.name}, {end.name} of type {end.codec.name}.",
            )
        return {"options": self.options(column_of(start), column_of(end))}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> IntervalOptions:
        """Return the columns in a signature."""
        start, end = columns_of(stored["options"]["columns"])
        is_plain = not any(column.descending or column.many for column in (start, end))
        if start.codec.name not in SCALES or start.codec.name != end.codec.name or not is_plain:
            raise ValueError("an interval of another type")
        return self.options(start, end)

    def fitted(
        self, options: IntervalOptions, values: Mapping[str, Any], free: Collection[str], draw: Draw
    ) -> Mapping[str, Any]:
        """Return start and end in their order, or a free one of them that suits the other."""
        names = [column.field for column in options.columns]
        start, end = map(values.get, names)
        if start is None or end is None:
            return {}
        scale = options.scale
        first, after = scale.number(start), scale.number(end)
        if first < after:
            return {}
        if first > after and all(name in free for name in names):
            return dict(zip(names, (end, start), strict=True))
        length = draw(1, LONGEST_DRAWN)
        if options.end.field in free and first < scale.greatest:
            return {options.end.field: scale.value(min(first + length, scale.greatest))}
        if options.start.field in free and after > scale.least:
            return {options.start.field: scale.value(max(after - length, scale.least))}
        return {}


LONGEST_DRAWN: Final = 1_000


def _is_keyword(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and "__" not in name and name != PRIMARY_KEY


def _source(name: str, text: str, model: DeclaringModel) -> ColumnSource:
    source = model.schema.source(name)
    if source is None:
        suggestion = nearest(model.fields, model.schema.computed, name)
        if suggestion != name:
            hint = f"Use the names of fields of type {_TYPES}."
            raise model.error("an index names a field that does not exist", name, text, hint, suggestion)
    if source is not None and source.normalise is not None:
        raise model.error(
            "a folded field cannot be an end of an interval",
            name,
            text,
            "Its comparisons use the results of a function, which say nothing about the values between.",
        )
    if source is None or source.many or not _has_scale(source):
        raise model.error(
            "a field of this type cannot be an end of an interval",
            name,
            text,
            f"Start and end are both of type {_TYPES}, with one value or None. A datetime must have a time zone.",
        )
    return source


def _has_scale(source: ColumnSource) -> bool:
    codec = source.codec
    plain = column_codec_named(codec.name)
    # An Enum has the codec of its values, but its members are no numbers.
    return codec.name in SCALES and plain is not None and codec.to_stored is plain.to_stored


show_public_path(IntervalIndex)

KIND: Final = IntervalKind()
