"""What can be asked of a set of records as a whole: their number, and sums, extremes and averages of a field.

Rules of this module: pure. A function names a column, and takes its values as comparisons see them: of a folded field
what the fold gives. Everything is exact; see ``kvmodels.query.accumulators``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple

from kvmodels.encoding.columns import nullable as optional
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnknownLookupError
from kvmodels.public_path import show_public_path
from kvmodels.query.accumulators import Accumulator, Counting, Extreme, Summing
from kvmodels.query.projection import FieldName, field_of
from kvmodels.query.query import Query
from kvmodels.schema.definition import ColumnSource, ModelSchema
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.slotted import dataclass

__all__ = [
    "Aggregate",
    "Avg",
    "Count",
    "GroupColumn",
    "Grouping",
    "Max",
    "Measure",
    "Min",
    "Sum",
    "fields_of",
    "grouping_of",
    "measures_of",
]

_SUMMED: Final[Mapping[str, str]] = {
    "int": "int",
    "number": "int",
    "float": "float",
    "decimal": "decimal",
    "timedelta": "timedelta",
}
"""The kind of sum of each column codec that has one, by its name."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Base of the aggregation functions.

    Attributes:
        field: the field that is looked at: ``"age"``, ``"address.city"``, ``User.age``, a computed column.
    """

    field: FieldName
    function: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """The number of records, or of those whose field is not None.

    Args:
        field: a field; None for every record.

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
    function: ClassVar[str] = "count"


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum of a field of ints, floats, Decimals or timedeltas; None when there is no value.

    Exact for int, Decimal and timedelta; a float sum is rounded once, at the end.

    Args:
        field: the field.

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

    function: ClassVar[str] = "sum"


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The least value of a field, None left out; None when there is no value.

    Args:
        field: a field of any type that a column can have.

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
    """The greatest value of a field, None left out; None when there is no value.

    Args:
        field: a field of any type that a column can have.

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
    """The average of a field of ints, floats, Decimals or timedeltas; None when there is no value.

    Of ints it is a float, otherwise of the type of the field; the exact sum is divided and rounded once.

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


class Measure(NamedTuple):
    """One aggregation function of a query, checked.

    Attributes:
        label: the key of its result.
        function: ``count``, ``sum``, ``min``, ``max`` or ``avg``.
        field: the name as the schema has it; None for the number of records.
        source: the column; None for the number of records, and for a field that cannot be a column.
        nullable: values may be None.
    """

    label: str
    function: str
    field: str | None
    source: ColumnSource | None
    nullable: bool

    @property
    def kind(self) -> str:
        """The kind of its sum; only for ``sum`` and ``avg``."""
        assert self.source is not None  # they have columns
        return _SUMMED[self.source.codec.name]

    def accumulator(self) -> Accumulator:
        """A new accumulator of its values."""
        if self.function == "count":
            return Counting()
        assert self.source is not None  # only a count goes without a column
        if self.function in ("min", "max"):
            return Extreme(self.source.codec.pack, greatest=self.function == "max")
        return Summing(self.kind, mean=self.function == "avg")

    def value_of(self, values: Mapping[str, Any]) -> Any:
        """The value that it takes from the fields of one record; for the number of records anything but None."""
        if self.field is None:
            return True
        value = values[self.field]
        if value is None or self.source is None or self.function == "count":
            return value
        if self.function in ("min", "max"):
            return normalised(self.source, value)
        # A folded field is summed as it is, as the counters of an aggregate index are.
        return value.value if isinstance(value, Enum) else value


class GroupColumn(NamedTuple):
    """One column to group by.

    Attributes:
        label: its key in the rows.
        source: the column.
        pack: value to a key part, None included; it sorts as the values do, None first.
    """

    label: str
    source: ColumnSource
    pack: Callable[[Any], bytes]

    def values_of(self, values: Mapping[str, Any]) -> list[Any]:
        """The values of one record: one, or of a column with several each one once."""
        value = values[self.source.name]
        if not self.source.many or value is None:
            return [normalised(self.source, value)]
        distinct: dict[bytes, Any] = {}
        for element in value:
            if element is not None:
                folded = normalised(self.source, element)
                distinct.setdefault(self.pack(folded), folded)
        return list(distinct.values())


@dataclass(frozen=True, slots=True)
class Grouping:
    """The records of a query in groups, and what is asked of each.

    Attributes:
        query: the records.
        columns: what they are grouped by, as the caller named it.
        measures: the results.
    """

    query: Query
    columns: tuple[GroupColumn, ...]
    measures: tuple[Measure, ...] = ()

    @property
    def order(self) -> tuple[tuple[GroupColumn, bool], ...]:
        """The columns in the order of the groups, each with "descending": first those that the query is ordered by."""
        asked = dict(self.query.directions)
        named = {column.source.name: column for column in self.columns}
        first = [(named[field], descending) for field, descending in asked.items()]
        rest = [(column, self.query.reverse) for name, column in named.items() if name not in asked]
        return (*first, *rest)

    def measured(self, given: Sequence[Any], named: Mapping[str, Any]) -> Grouping:
        """With these functions; raises what ``measures_of`` raises.

        Raises:
            InvalidArgumentError: a result has the name of a field that is grouped by, too.
        """
        measures = measures_of(self.query.schema, given, named)
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
        """What is asked for in one line."""
        fields = ", ".join(column.label for column in self.columns)
        results = f" for {', '.join(measure.label for measure in self.measures)}" if self.measures else ""
        return f"{self.query.summary(name)[:-1]} grouped by {fields}{results}>"


def normalised(source: ColumnSource, value: Any) -> Any:
    """A value of a field as its column has it: folded, if the field is."""
    return value if value is None or source.normalise is None else source.normalise(value)


def measures_of(schema: ModelSchema, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Measure, ...]:
    """The checked functions of one ``aggregate()``.

    Raises:
        InvalidValueError: something that is no aggregation function.
        InvalidArgumentError: no function at all, or two results of one name.
        UnknownFieldError: no such field.
        UnknownLookupError: a field that has no such function.
    """
    measures: dict[str, Measure] = {}
    for label, function in [*((None, item) for item in given), *named.items()]:
        measure = _measure(schema, label, function)
        if measure.label in measures:
            raise InvalidArgumentError(
                "two results have one name",
                argument="functions",
                value=measure.label,
                hint=f"Give one of them a name of its own: aggregate(other={type(function).__name__}(...)).",
            )
        measures[measure.label] = measure
    if not measures:
        raise InvalidArgumentError(
            "nothing is asked for",
            argument="functions",
            value=(),
            hint='Give functions: aggregate(Count(), total=Sum("price")).',
        )
    return tuple(measures.values())


def fields_of(measures: Iterable[Measure], columns: Iterable[GroupColumn] = ()) -> tuple[str, ...]:
    """The fields of a record that the functions and the groups look at, each once."""
    names = [column.source.name for column in columns]
    names += [measure.field for measure in measures if measure.field is not None]
    return tuple(dict.fromkeys(names))


def grouping_of(query: Query, given: Sequence[FieldName]) -> Grouping:
    """The records of a query by the values of these fields.

    Raises:
        InvalidArgumentError: no field, one field twice, two fields with several values each, a slice has been taken,
            or the query is ordered by another field.
        UnknownFieldError, InvalidValueError: no such field, or something that names none.
        UnknownLookupError: a field that cannot be a column.
    """
    columns = tuple(_group_column(query.schema, field) for field in given)
    names = [column.source.name for column in columns]
    if not columns or len(set(names)) < len(names) or sum(column.source.many for column in columns) > 1:
        raise InvalidArgumentError(
            "records are grouped by one or more different fields, of which one may have several values",
            argument="fields",
            value=tuple(names),
            hint='Name each field once: group_by("country", "kind"). Without groups, call aggregate() itself.',
        )
    if query.sliced:
        raise InvalidArgumentError(
            "a query cannot be changed once a slice has been taken",
            argument="group_by",
            hint="Take the slice of the rows: itertools.islice(groups, 10) reads no further.",
        )
    ordered = [field for field, _ in query.directions]
    if not set(ordered) <= set(names):
        raise InvalidArgumentError(
            "groups are ordered by their own fields",
            argument="order_by",
            value=tuple(ordered),
            expected=tuple(names),
            hint="Order by fields that are grouped by, or sort the rows.",
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
    if isinstance(function, Count) and function.field is None:
        return Measure(label or name, name, None, None, nullable=False)
    field = _single(schema, field_of(schema, function.field))
    source = schema.source(field)
    _require_function(schema, name, field, source)
    nullable = field in schema.nullable_fields if source is None else source.nullable
    written = function.field if isinstance(function.field, str) else field
    return Measure(label or f"{written.replace('.', '__')}__{name}", name, field, source, nullable)


def _single(schema: ModelSchema, field: str) -> str:
    """The field of a primary key of one field; the name stays otherwise."""
    return schema.primary_key[0].field if field == PRIMARY_KEY and len(schema.primary_key) == 1 else field


def _require_function(schema: ModelSchema, function: str, field: str, source: ColumnSource | None) -> None:
    if function == "count":
        fits = field in schema.fields or (source is not None and not source.many)
    elif function in ("sum", "avg"):
        fits = source is not None and not source.many and source.codec.name in _SUMMED
    else:
        fits = source is not None and not source.many
    if not fits:
        raise UnknownLookupError(
            "this function does not exist for this field",
            model=schema.name,
            field=field,
            lookup=function,
            hint="Sum and Avg take fields of int, float, Decimal and timedelta, Min and Max fields of one value that "
            "can be in an index, Count any field.",
        )


def _group_column(schema: ModelSchema, given: FieldName) -> GroupColumn:
    name = _single(schema, field_of(schema, given))
    source = schema.source(name)
    if source is None:
        raise UnknownLookupError(
            "records cannot be grouped by this field",
            model=schema.name,
            field=name,
            lookup="group_by",
            hint="Group by a field of a type that an index can hold.",
        )
    label = given if isinstance(given, str) else name
    return GroupColumn(label, source, optional(source.codec).pack)


show_public_path(Avg, Count, Max, Min, Sum)
