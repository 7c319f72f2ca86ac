"""Aggregate functions (Count, Sum, Avg, Min, Max) and the accumulators that compute them in one pass.

Sums of int, Decimal and timedelta (as microseconds) are exact. A float sum is computed exactly (in units of the
smallest float, as one int) and rounded once, at the end: its error is at most half a unit in the last place, whatever
the order of the values, as with ``math.fsum``, and memory does not grow with the number of values.

Rules of this module: pure. A function names a column and uses the values that comparisons use: for a folded field the
folded value. None is not counted, summed or compared. Without values, the sum, average and extremes are None, as in SQL
and Django; only the count is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field as dataclass_field
from dataclasses import replace
from datetime import timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import INTERNAL, dataclass
from kvmodels.codecs.columns.registry import ColumnOrder
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnknownLookupError
from kvmodels.query.arrangement import AS_GROUPED, Arrangement
from kvmodels.query.orders import refuse_placed
from kvmodels.query.projection import FieldName, field_of
from kvmodels.query.query import Query
from kvmodels.query.truncation import Period, Trunc, period_of
from kvmodels.schema.declare.expressions import Expression, ForeignKeyRef
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema
from kvmodels.schema.filters.encrypted_fields import require_plain
from kvmodels.schema.filters.operands import single_key

_SMALLEST_FLOAT: Final = 2**1074
"""The denominator of the smallest positive float; a multiple of the denominator of every float."""
_MICROSECOND: Final = timedelta(microseconds=1)
_MOST_DIGITS: Final = 100_000
"""Maximum number of digits of a sum of Decimals; otherwise 1e99999999999 plus 1 would exhaust memory."""
_EXACT: Final = Context(prec=_MOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
_DECIMAL_DIGITS: Final = 28
"""Digits of an average of Decimals, as in Python's default context; more if the sum has more."""


class Counting:
    """The number of values that are not None."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Any) -> None:
        """Count a value, unless it is None."""
        if value is not None:
            self._count += 1

    def result(self) -> int:
        """Return the number of values."""
        return self._count


class Extreme:
    """The smallest or largest value, in the order of a column.

    ``part_of`` converts a value to a key part with the same order. It returns None for a value without a place in the
    order (NaN), which is ignored, and raises InvalidValueError for values that Python cannot compare.
    """

    __slots__ = ("_greatest", "_part", "_part_of", "_value")

    def __init__(self, part_of: Callable[[Any], bytes | None], *, greatest: bool) -> None:
        self._part_of = part_of
        self._greatest = greatest
        self._part: bytes | None = None
        self._value: Any = None

    def add(self, value: Any) -> None:
        """Compare a value with the current extreme; of equal values the first stays."""
        if value is None:
            return
        part = self._part_of(value)
        if part is None:
            return
        if self._part is None or (part > self._part if self._greatest else part < self._part):
            self._part, self._value = part, value

    def result(self) -> Any:
        """Return the extreme value; None if there was none."""
        return self._value


class Summing:
    """The exact sum of values of one kind or, with ``mean``, their average."""

    __slots__ = ("_count", "_kind", "_mean", "_special", "_total")

    def __init__(self, kind: str, *, mean: bool = False) -> None:
        self._kind = kind
        self._mean = mean
        self._count = 0
        self._special = 0.0
        self._total: Any = Decimal(0) if kind == "decimal" else 0

    def add(self, value: Any) -> None:
        """Add a value."""
        if value is None:
            return
        self._count += 1
        if self._kind == "int":
            self._total += int(value)
        elif self._kind == "timedelta":
            self._total += value // _MICROSECOND
        elif self._kind == "decimal":
            self._total = _exact_sum(self._total, value)
        elif math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._total += numerator * (_SMALLEST_FLOAT // denominator)
        else:
            self._special += value  # infinities of both signs give NaN, as in IEEE 754

    def result(self) -> Any:
        """Return the sum or the average, None without values; raises like ``summed`` and ``average``."""
        if not self._count:
            return None
        if self._kind == "float" and (self._special or math.isnan(self._special)):
            return self._special
        return average(self._kind, self._total, self._count) if self._mean else summed(self._kind, self._total)


Accumulator: TypeAlias = Counting | Extreme | Summing
"""Accepts values one by one; the result is available at any time."""


def _exact_sum(one: Decimal, other: Decimal) -> Decimal:
    try:
        return _EXACT.add(one, other)
    except Inexact:
        raise InvalidValueError(
            "the exact sum of Decimals has too many digits",
            type="Decimal",
            hint=f"At most {_MOST_DIGITS:,} digits are added up: leave out values of such different sizes.",
        ) from None


def summed(kind: str, total: Any) -> Any:
    """Convert an exact int total (in units of the smallest float, or in microseconds) to a sum of its kind.

    Raises InvalidValueError if the sum is too large for a timedelta.
    """
    if kind == "timedelta":
        return _duration(total)
    return _ratio(total, _SMALLEST_FLOAT) if kind == "float" else total


def in_places(total: int, places: int) -> Decimal:
    """Return a total in units of a decimal place as a Decimal.

    Examples:
        >>> in_places(-1250, 2)
        Decimal('-12.50')
    """
    return _EXACT.scaleb(Decimal(total), -places)


def average(kind: str, total: Any, count: int) -> Any:
    """Return an exact total divided by ``count``, which is at least 1: a float for ints, otherwise a value of its kind.

    Rounded once: a float to the nearest, a timedelta to the nearest microsecond (halves to even), a Decimal to 28
    digits or to as many as the sum has. Raises InvalidValueError if the result is too large for a timedelta or a float.
    """
    if kind == "decimal":
        digits = len(total.as_tuple().digits)
        return Context(prec=max(_DECIMAL_DIGITS, digits), traps=[]).divide(total, Decimal(count))
    if kind == "timedelta":
        return _duration(round(Fraction(total, count)))
    if kind == "float":
        return _ratio(total, _SMALLEST_FLOAT * count)
    try:
        return total / count
    except OverflowError:
        raise InvalidValueError(
            "an average is larger than a float can be",
            type="int",
            hint="Request Sum and Count, and divide them as your program needs it.",
        ) from None


def _ratio(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator  # the quotient of two ints is rounded once
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _duration(microseconds: int) -> timedelta:
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise InvalidValueError(
            "a sum of durations is longer than a timedelta can be",
            type="timedelta",
            hint="Sum fewer records at once, or store the durations as numbers.",
        ) from None


_LAST: Final = b"\xfe"
"""The first byte of the part of a value without a place in the order, such as NaN: sorts after all others."""

_SUMMED: Final = {name: name for name in ("int", "float", "decimal", "timedelta")} | {"number": "int"}
"""The kind of sum for each column codec that supports sums, by its name."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Base class of the aggregate functions.

    Attributes:
        field: the field to aggregate: ``"age"``, ``"address.city"``, ``User.age``, a computed column.
    """

    field: FieldName
    function: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """The number of records, of records whose field is not None, or of the different values of a field.

    Args:
        field: a field; None for every record. In ``with_counts``, the foreign key of the records to count.
        filter: only in ``with_counts``: a condition on these records.
        distinct: only in ``aggregate()`` without groups: count the different values of this field, without None. They
            are read as by ``distinct()``: an index must have equal values side by side.

    Examples:
        >>> from kvmodels import Count, Database, KvModel, PrimaryKey
        >>> class Guest(KvModel, collection="guests"):
        ...     id: PrimaryKey[int]
        ...     email: str | None = None
        >>> guests = Database("memory://", models=[Guest])[Guest]
        >>> _ = guests.bulk_create([Guest(id=1, email="ada@x.org"), Guest(id=2)])
        >>> guests.aggregate(Count(), reachable=Count("email"))
        {'count': 2, 'reachable': 1}
    """

    field: FieldName | None = None  # type: ignore[assignment]
    filter: Expression | None = None
    distinct: FieldName | None = None
    function: ClassVar[str] = "count"


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum of a field of ints, floats, Decimals or timedeltas; None if there is no value.

    Exact for int, Decimal and timedelta; a float sum is rounded once, at the end.

    Args:
        field: the field.
        key: only in ``with_counts``: the foreign key of the records to add up.
        filter: only in ``with_counts``: a condition on these records.

    Examples:
        >>> from kvmodels import Database, KvModel, PrimaryKey, Sum
        >>> class Sale(KvModel, collection="sales"):
        ...     id: PrimaryKey[int]
        ...     price: float
        >>> sales = Database("memory://", models=[Sale])[Sale]
        >>> _ = sales.bulk_create([Sale(id=number, price=0.1) for number in range(10)])
        >>> sales.aggregate(Sum("price")), sales.filter(id__gt=100).aggregate(Sum("price"))
        ({'price__sum': 1.0}, {'price__sum': None})
    """

    key: ForeignKeyRef[Any, Any, Any] | None = None
    filter: Expression | None = None
    function: ClassVar[str] = "sum"


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The smallest value of a field, ignoring None; None if there is no value.

    Args:
        field: a field of any type that can be a column.

    Examples:
        >>> from kvmodels import Database, Indexed, KvModel, Min, PrimaryKey
        >>> class Parcel(KvModel, collection="parcels"):
        ...     id: PrimaryKey[int]
        ...     weight: Indexed[int]
        >>> parcels = Database("memory://", models=[Parcel])[Parcel]
        >>> _ = parcels.bulk_create([Parcel(id=number, weight=number * 3 % 7) for number in range(1, 7)])
        >>> parcels.aggregate(lightest=Min("weight"))
        {'lightest': 1}
        >>> print(parcels.explain_aggregate(lightest=Min("weight")))
        Parcel: the end of index weight for lightest
    """

    function: ClassVar[str] = "min"


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The largest value of a field, ignoring None; None if there is no value.

    Args:
        field: a field of any type that can be a column.

    Examples:
        >>> from kvmodels import Database, KvModel, Max, PrimaryKey
        >>> class Bid(KvModel, collection="bids"):
        ...     id: PrimaryKey[int]
        ...     amount: int | None = None
        >>> bids = Database("memory://", models=[Bid])[Bid]
        >>> _ = bids.bulk_create([Bid(id=1, amount=5), Bid(id=2), Bid(id=3, amount=7)])
        >>> bids.aggregate(Max("amount"))
        {'amount__max': 7}
    """

    function: ClassVar[str] = "max"


@dataclass(frozen=True, slots=True)
class Avg(Aggregate):
    """The average of a field of ints, floats, Decimals or timedeltas; None if there is no value.

    For ints it is a float, otherwise a value of the field's type; the exact sum is divided and rounded once.

    Args:
        field: the field.

    Examples:
        >>> from kvmodels import Avg, Database, KvModel, PrimaryKey
        >>> class Mark(KvModel, collection="marks"):
        ...     id: PrimaryKey[int]
        ...     points: int
        >>> marks = Database("memory://", models=[Mark])[Mark]
        >>> _ = marks.bulk_create([Mark(id=1, points=3), Mark(id=2, points=4)])
        >>> marks.aggregate(Avg("points"))
        {'points__avg': 3.5}
    """

    function: ClassVar[str] = "avg"


@dataclass(frozen=True, slots=True)
class Measure:
    """One checked aggregate function of a query.

    Attributes:
        label: the key of its result.
        function: ``count``, ``distinct``, ``sum``, ``min``, ``max`` or ``avg``.
        field: the name in the schema; None for the number of records.
        source: the column; None for the number of records, and for a field that cannot be a column.
    """

    label: str
    function: str
    field: str | None
    source: ColumnSource | None = dataclass_field(metadata=INTERNAL)
    nullable: bool

    @property
    def kind(self) -> str:
        """Return the kind of the sum; only for ``sum`` and ``avg``."""
        assert self.source is not None  # both functions have columns
        return _SUMMED[self.source.codec.name]

    def accumulator(self) -> Accumulator:
        """Return a new accumulator for its values."""
        if self.function == "count":
            return Counting()
        assert self.source is not None  # only a count has no column
        if self.function in ("min", "max"):
            order = ColumnOrder(self.source.codec, field=self.field)
            return Extreme(order.of_value, greatest=self.function == "max")
        return Summing(self.kind, mean=self.function == "avg")

    def value_of(self, values: Mapping[str, Any]) -> Any:
        """Return the value among the fields of one record; for the number of records, any value except None."""
        if self.field is None:
            return True
        value = values[self.field]
        if value is None or self.source is None or self.function == "count":
            return value
        if self.function in ("min", "max"):
            return normalised(self.source, value)
        # A folded field is summed unfolded, like the counters of an aggregate index.
        return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column to group by, with the key ``label`` in the rows.

    ``order`` converts a value to a key part that sorts like the values, None first; see ``sort_part``. With a
    ``period``, records are grouped by the beginning of their period.
    """

    label: str
    source: ColumnSource = dataclass_field(metadata=INTERNAL)
    order: ColumnOrder = dataclass_field(metadata=INTERNAL)
    period: Period | None = dataclass_field(default=None, metadata=INTERNAL)

    def values_of(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values of one record: one value, or the distinct values of a column with several."""
        value = values[self.source.name]
        if not self.source.many or value is None:
            return [self.grouped(normalised(self.source, value))]
        distinct: dict[bytes, Any] = {}
        for element in value:
            if element is not None:
                folded = normalised(self.source, element)
                distinct.setdefault(sort_part(self.order, folded), folded)
        return list(distinct.values())

    def grouped(self, value: Any) -> Any:
        """Return the value of the group of a value: itself, or the beginning of its period."""
        return value if self.period is None else self.period.start_of(value)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The grouped records of a query, and the results to compute for each group.

    Attributes:
        columns: the columns to group by, in the order of the call.
        measures: the results.
        arrangement: the conditions on the rows, their order and their slice.
    """

    query: Query = dataclass_field(metadata=INTERNAL)
    columns: tuple[GroupColumn, ...]
    measures: tuple[Measure, ...] = ()
    arrangement: Arrangement = dataclass_field(default=AS_GROUPED, metadata=INTERNAL)

    @property
    def period(self) -> GroupColumn | None:
        """The column with a period that is last in group order; None if there is none."""
        last, _ = self.order[-1]
        return next((one for one in self.columns if one.period is not None and one.source.name == last), None)

    @property
    def follows_order(self) -> bool:
        """Whether records in group order have the records of each group together: at most the last has a period."""
        return sum(column.period is not None for column in self.columns) <= (self.period is not None)

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        """The names of the columns in group order, each with "descending"; those of the query's order come first."""
        return self.query.order_over(column.source.name for column in self.columns)

    def with_period_last(self) -> Grouping | None:
        """Return the same groups in an order with their only period last; None if there is no such order."""
        columns = sorted(self.columns, key=lambda column: column.period is not None)
        reordered = replace(self, columns=tuple(columns))
        return reordered if not self.follows_order and reordered.follows_order else None

    def call(self) -> str:
        """Return the call of ``group_by`` with these columns."""
        names = [column.source.name for column in self.columns]
        shown = [f'"{name}"' for name in names]
        for at, column in enumerate(self.columns):
            if column.period is not None:
                shown[at] = column.period.call(names[at])
        return f"group_by({', '.join(shown)})"

    def column_orders(self) -> list[ColumnOrder]:
        """Return the order of each column for one pass; it refuses values to sort by that Python cannot compare."""
        asked = dict(self.query.directions)
        return [
            ColumnOrder(source.codec, model=self.query.schema.name, field=source.name, mixes=source.name not in asked)
            for source in [column.source for column in self.columns]
        ]

    def measured(self, given: Sequence[Any], named: Mapping[str, Any]) -> Grouping:
        """Return the grouping with these functions; raises like ``measures_of``.

        Raises InvalidArgumentError if a result has the name of a group field.
        """
        measures = measures_of(self.query.schema, given, named)
        if any(measure.function == "distinct" for measure in measures):
            raise InvalidArgumentError(
                "the different values of a field are not counted for groups",
                argument="distinct",
                hint="Count them for one group: filter(...).aggregate(Count(distinct=...)).",
            )
        labels = {column.label for column in self.columns}
        for measure in measures:
            if measure.label in labels:
                raise InvalidArgumentError(
                    "a result has the name of a field that is grouped by",
                    argument="functions",
                    value=measure.label,
                    hint="Give the result another name.",
                )
        return replace(self, measures=measures)

    def summary(self, name: str) -> str:
        """Return a one-line description."""
        fields = ", ".join(column.label for column in self.columns)
        results = f" for {', '.join(measure.label for measure in self.measures)}" if self.measures else ""
        results += "".join(f" {' '.join(line.split())}" for line in self.arrangement.lines())
        return f"{self.query.summary(name)[:-1]} grouped by {fields}{results}>"


def sort_part(order: ColumnOrder, value: Any) -> bytes:
    """Return the key part of a value in an order; equal values have equal parts, and NaN sorts last."""
    part = order.of_value(value)
    return _LAST + repr(value).encode() if part is None else part


def normalised(source: ColumnSource, value: Any) -> Any:
    """Return a value of a field in the form of its column: folded if the field is folded."""
    return value if value is None or source.normalise is None else source.normalise(value)


def measures_of(schema: ModelSchema, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Measure, ...]:
    """Return the checked functions of one ``aggregate()``.

    Raises InvalidValueError, InvalidArgumentError, UnknownFieldError or UnknownLookupError.
    """
    measures: dict[str, Measure] = {}
    for label, function in [*((None, item) for item in given), *named.items()]:
        if isinstance(function, Count | Sum) and (function.filter, getattr(function, "key", None)) != (None, None):
            raise InvalidArgumentError(
                "only with_counts() takes functions with a foreign key or a filter",
                argument="functions",
                value=label or type(function).__name__,
                hint="Filter the query: filter(...).aggregate(...).",
            )
        measure = _measure(schema, label, function)
        if measure.label in measures:
            raise InvalidArgumentError(
                "two results have one name",
                argument="functions",
                value=measure.label,
                hint=f"Give one of them another name: aggregate(other={type(function).__name__}(...)).",
            )
        measures[measure.label] = measure
    if not measures:
        raise InvalidArgumentError(
            "there is no aggregate function",
            argument="functions",
            value=(),
            hint='Give functions: aggregate(Count(), total=Sum("price")).',
        )
    return tuple(measures.values())


def fields_of(measures: Iterable[Measure], columns: Iterable[GroupColumn] = ()) -> tuple[str, ...]:
    """Return the distinct fields that the functions and groups need."""
    names = [column.source.name for column in columns]
    names += [measure.field for measure in measures if measure.field is not None]
    return tuple(dict.fromkeys(names))


def grouping_of(query: Query, given: Sequence[FieldName | Trunc]) -> Grouping:
    """Return the records of a query, grouped by the values of these fields.

    Raises InvalidArgumentError, UnknownFieldError, InvalidValueError or UnknownLookupError.
    """
    columns = tuple(_group_column(query.schema, field) for field in given)
    names = [column.source.name for column in columns]
    if not columns or len(set(names)) < len(names) or sum(column.source.many for column in columns) > 1:
        raise InvalidArgumentError(
            "group_by() needs one or more different fields, of which one may have several values",
            argument="fields",
            value=tuple(names),
            hint='Name each field once: group_by("country", "kind"). Without groups, call aggregate() itself.',
        )
    query = query.without_default_order()
    if query.sliced:
        raise InvalidArgumentError(
            "a query cannot be changed once a slice has been taken",
            argument="group_by",
            hint="Take the slice of the rows: group_by(...).aggregate(...)[:10].",
        )
    refuse_placed(query.placed, "group_by")
    ordered = [field for field, _ in query.directions]
    if not set(ordered) <= set(names):
        raise InvalidArgumentError(
            "groups can be ordered only by the fields of the group",
            argument="order_by",
            value=tuple(ordered),
            expected=tuple(names),
            hint="Order by fields that are grouped by, or order the rows: group_by(...).aggregate(...).order_by(...).",
        )
    return Grouping(replace(query, fields=None, distinct=False), columns)


def _measure(schema: ModelSchema, label: str | None, function: Any) -> Measure:
    if not isinstance(function, Aggregate) or type(function) is Aggregate:
        raise InvalidValueError(
            "this is not an aggregation function",
            model=schema.name,
            field=label,
            type=function.__name__ if isinstance(function, type) else type(function).__name__,
            hint='Give Count(), Sum("price"), Min("age"), Max("age") or Avg("age").',
        )
    name = function.function
    given = cast("FieldName | None", function.field)
    if isinstance(function, Count) and function.distinct is not None:
        if given is not None:
            raise InvalidArgumentError(
                "only one of a field and distinct= is counted",
                argument="distinct",
                value=str(function.distinct),
                hint='Write Count(distinct="country").',
            )
        name, given = "distinct", function.distinct
    if given is None:
        return Measure(label or name, name, None, None, nullable=False)
    field = single_key(schema, field_of(schema, given))
    source = schema.source(field)
    if name != "count":
        require_plain(schema, field, name)
    if name != "distinct":
        _require_function(schema, name, field, source)
    nullable = field in schema.nullable_fields if source is None else source.nullable
    written = given if isinstance(given, str) else field
    return Measure(label or f"{written.replace('.', '__')}__{name}", name, field, source, nullable)


def _require_function(schema: ModelSchema, function: str, field: str, source: ColumnSource | None) -> None:
    fits = source is not None and not source.many
    if function == "count":
        fits = fits or field in schema.fields
    elif function in ("sum", "avg"):
        fits = fits and source is not None and source.codec.name in _SUMMED
    if not fits:
        raise UnknownLookupError(
            "this function does not exist for this field",
            model=schema.name,
            field=field,
            lookup=function,
            hint="Sum and Avg take fields of int, float, Decimal and timedelta, Min and Max fields of one value that "
            "can be in an index, Count any field.",
        )


def _group_column(schema: ModelSchema, given: FieldName | Trunc) -> GroupColumn:
    field = given.field if isinstance(given, Trunc) else given
    name = single_key(schema, field_of(schema, field))
    require_plain(schema, name, "group_by")
    source = schema.source(name)
    if source is None:
        raise UnknownLookupError(
            "records cannot be grouped by this field",
            model=schema.name,
            field=name,
            lookup="group_by",
            hint="Group by a field of a type that an index can hold.",
        )
    label = field if isinstance(field, str) else name
    order = ColumnOrder(source.codec, mixes=True)
    if isinstance(given, Trunc):
        period = period_of(schema, given, name, source)
        return GroupColumn(f"{label.replace('.', '__')}__{period.unit}", source, order, period)
    return GroupColumn(label, source, order)


show_public_path(Avg, Count, Max, Min, Sum)
