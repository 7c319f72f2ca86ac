"""Filter, order and slice the rows of groups: ``groups.having(n__gte=5).order_by("-n")[:10]``.

Rules of this module: pure. Rows are compared by the same parts that compare values of columns: None is first in
ascending and last in descending orders, NaN is after all numbers, and no comparison matches None. Rows with equal
values keep the order of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from math import isnan
from operator import eq, ge, gt, itemgetter, le, lt, ne
from typing import Any, Final, cast

from kvmodels._support import suggest as spelling
from kvmodels.codecs.columns.registry import ColumnOrder
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnknownFieldError, UnknownLookupError
from kvmodels.query.aggregates import Grouping, Measure, sort_part
from kvmodels.query.arrangement import Arrangement, Row, RowTest
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema
from kvmodels.schema.filters.operands import flag, listed, value_of

Part = tuple[int, Any]
"""A value in an order: first None, then values, then NaN."""

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_LOOKUPS: Final = ("exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "isnull")


def sorted_rows(grouping: Grouping, rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of the arrangement, of which a slice keeps only as many as it needs."""
    order, stop = grouping.arrangement.order, grouping.arrangement.stop
    parts = {name: part_of(grouping, name) for name, _ in order}
    found = [*rows]
    for name, descending in reversed(order):  # sorts are stable: the last one decides
        found.sort(key=_by(parts[name], name), reverse=descending)
    return found if stop is None else found[:stop]


def _by(part: Callable[[Any], Part], name: str) -> Callable[[Row], Part]:
    value = itemgetter(name)
    return lambda row: part(value(row))


# --- building ---------------------------------------------------------------------------------------------------


def having(grouping: Grouping, lookups: Mapping[str, Any]) -> Grouping:
    """Add conditions on the rows; raises UnknownFieldError, UnknownLookupError, InvalidValueError or the like."""
    arrangement = _unsliced(grouping, "having")
    if not lookups:
        raise InvalidArgumentError(
            "there is no condition on the rows",
            argument="lookups",
            hint="Name a result of aggregate() or a field of the groups: having(n__gte=5).",
        )
    tests = tuple(_test(grouping, keyword, operand) for keyword, operand in lookups.items())
    return replace(grouping, arrangement=arrangement._replace(tests=(*arrangement.tests, *tests)))


def ordered(grouping: Grouping, columns: Sequence[Any]) -> Grouping:
    """Replace the order of the rows. Raises UnknownFieldError, InvalidValueError or InvalidArgumentError."""
    arrangement = _unsliced(grouping, "order_by")
    order: dict[str, bool] = {}
    for column in columns:
        if not isinstance(column, str):
            raise InvalidValueError(
                "rows of groups are ordered by the names of their keys",
                model=grouping.query.schema.name,
                type=type(column).__name__,
                hint='Write order_by("-n"), with the name of a result or of a field of the groups.',
            )
        order.setdefault(_known(grouping, column.removeprefix("-")), column.startswith("-"))
    sources = {column.label: column.source.name for column in grouping.columns}
    if order and order.keys() <= sources.keys():  # an order of the groups themselves, which an index may have
        names = [f"{'-' if down else ''}{sources[label]}" for label, down in order.items()]
        return replace(grouping, query=grouping.query.ordered(names), arrangement=arrangement._replace(order=()))
    return replace(grouping, arrangement=arrangement._replace(order=tuple(order.items())))


def within(grouping: Grouping, part: slice[Any, Any, Any]) -> Grouping:
    """Take a slice of the rows, relative to an earlier one. Raises InvalidArgumentError or InvalidValueError."""
    if not isinstance(cast("object", part), slice):
        raise InvalidArgumentError(
            "rows of groups are taken by slices",
            argument="item",
            value=part,
            hint="Write groups[:10] for the first ten rows, or call first().",
        )
    asked = grouping.query.within(part)
    arrangement = grouping.arrangement
    start, stop = arrangement.start + asked.start, arrangement.stop
    if asked.stop is not None:
        end = arrangement.start + asked.stop
        stop = end if stop is None else min(stop, end)
    start = start if stop is None else min(start, stop)
    return replace(grouping, arrangement=arrangement._replace(start=start, stop=stop))


def _unsliced(grouping: Grouping, method: str) -> Arrangement:
    if grouping.arrangement.sliced:
        raise InvalidArgumentError(
            "groups cannot be changed once a slice has been taken",
            argument=method,
            hint=f"Call {method}() first and slice last.",
        )
    return grouping.arrangement


def _known(grouping: Grouping, name: str) -> str:
    labels = [*(column.label for column in grouping.columns), *(measure.label for measure in grouping.measures)]
    if name in labels:
        return name
    raise UnknownFieldError(
        "the rows of the groups have no such key",
        model=grouping.query.schema.name,
        field=name,
        suggestion=spelling.closest(name, labels),
        hint=f"They have: {', '.join(labels)}.",
    )


# --- values -----------------------------------------------------------------------------------------------------


def part_of(grouping: Grouping, label: str) -> Callable[[Any], Part]:
    """Return the function that places values under a key of the rows in their order."""
    source = _source_of(grouping, label)
    return _number_part if source is None else partial(_column_part, ColumnOrder(source.codec, mixes=True))


def _column_part(order: ColumnOrder, value: Any) -> Part:
    return (1, sort_part(order, value)) if value is not None else (0, b"")


def _number_part(value: Any) -> Part:
    if value is None:
        return (0, 0)
    is_nan = isinstance(value, float) and isnan(value)
    return (2, 0) if is_nan else (1, value)


def _source_of(grouping: Grouping, label: str) -> ColumnSource | None:
    """Return the column whose values are under a key of the rows; None for numbers of records and for sums."""
    column = next((one for one in grouping.columns if one.label == label), None)
    if column is not None:
        return column.source
    measure = _measure_of(grouping, label)
    return measure.source if measure.function in ("min", "max") else None


def _measure_of(grouping: Grouping, label: str) -> Measure:
    return next(one for one in grouping.measures if one.label == label)


def _test(grouping: Grouping, keyword: str, operand: Any) -> RowTest:
    label, lookup = _split(grouping, keyword)
    schema, part = grouping.query.schema, part_of(grouping, label)

    def placed(value: Any) -> Part:
        return part(_operand(grouping, label, value))

    def test(passes: Callable[[Part], bool]) -> RowTest:
        def row_passes(row: Row) -> bool:
            return passes(part(row[label]))

        return RowTest(keyword, row_passes)

    if lookup == "isnull":
        is_none = flag(schema, label, operand)
        return test(lambda found: (found[0] == 0) is is_none)
    if lookup in ("in", "not_in"):
        wanted = [placed(value) for value in listed(schema, label, lookup, operand)]
        return test(lambda found: (found in wanted) is (lookup == "in"))
    if lookup in ("exact", "ne"):
        value, compare = placed(operand), eq if lookup == "exact" else ne
        return test(lambda found: compare(found, value))
    if lookup == "range":
        ends = _ends(schema, label, operand)
        low, high = map(placed, ends)
        return test(lambda found: found[0] == 1 and low <= found <= high)
    bound, ordering = placed(operand), _COMPARISONS[lookup]
    return test(lambda found: found[0] == 1 and ordering(found, bound))


def _split(grouping: Grouping, keyword: str) -> tuple[str, str]:
    """Return the key of the rows and the lookup of a keyword; a key may contain two underscores, price__sum."""
    labels = [*(column.label for column in grouping.columns), *(measure.label for measure in grouping.measures)]
    if keyword in labels:
        return keyword, "exact"
    label, _, lookup = keyword.rpartition("__")
    if label not in labels:
        return _known(grouping, keyword if not label or lookup not in _LOOKUPS else label), lookup
    if lookup not in _LOOKUPS:
        raise UnknownLookupError(
            "rows of groups have no such lookup",
            model=grouping.query.schema.name,
            field=label,
            lookup=lookup,
            hint=f"There are: {', '.join(_LOOKUPS)}.",
        )
    return label, lookup


def _ends(schema: ModelSchema, label: str, operand: Any) -> Sequence[Any]:
    given: object = operand
    ends = tuple(cast("list[Any]", given)) if isinstance(given, (tuple, list)) else ()
    if len(ends) == 2:
        return ends
    raise InvalidValueError(
        "range takes two values",
        model=schema.name,
        field=label,
        type=type(operand).__name__,
        hint=f"Write having({label}__range=(low, high)).",
    )


def _operand(grouping: Grouping, label: str, value: Any) -> Any:
    """Return an operand in the form of the rows. Raises InvalidValueError if no row can hold it."""
    source = _source_of(grouping, label)
    if value is None:
        return None
    column = next((one for one in grouping.columns if one.label == label), None)
    if source is not None:
        converted = value_of(grouping.query.schema, source, value)
        return converted if column is None else column.grouped(converted)
    measure = _measure_of(grouping, label)
    is_duration = measure.function != "count" and measure.kind == "timedelta"
    fits = isinstance(value, timedelta if is_duration else (int, float, Decimal)) and not isinstance(value, bool)
    if not fits:
        raise InvalidValueError(
            "this value cannot be compared with the result",
            model=grouping.query.schema.name,
            field=label,
            type=type(value).__name__,
            hint="Compare with a timedelta." if is_duration else "Compare with a number.",
        )
    return value
