"""Half-open intervals as whole numbers: the classes of their lengths, and the starts of those that a query may find.

An interval [start, end) has the class ``k`` if ``end - start`` has ``k`` bits, so it is shorter than ``2 ** k``. An
interval of this class that shares a number with [low, high) starts after ``low - 2 ** k`` and before ``high``. So a
query reads one range of starts for each class, however long the longest interval is.

Rules of this module: pure. Every type of ends has a scale, which maps its values to whole numbers in their order. An
interval without end has a class of its own, above all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from kvmodels.core.values import MAX_SAFE_INTEGER

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

UNBOUNDED: Final = 255
"""The class of an interval without end: the greatest number of one byte, above the class of every other interval."""


Numbers = tuple[int, int]
"""An interval of numbers with at least one: its first number, and the number after its last."""


class Scale(NamedTuple):
    """The values of one type as whole numbers.

    Attributes:
        number: returns the number of a value; also of a value outside of the range, if the type has any.
        value: returns the value of a number in the range.
        least, greatest: the range of the numbers of values that an index can hold.
    """

    number: Callable[[Any], int]
    value: Callable[[int], Any]
    least: int
    greatest: int

    @property
    def classes(self) -> int:
        """The highest class of an interval with an end."""
        return (self.greatest - self.least).bit_length()


def _microseconds(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def _datetime_of(number: int) -> datetime:
    return _EPOCH + number * _MICROSECOND


def _length(value: timedelta) -> int:
    return value // _MICROSECOND


def _timedelta_of(number: int) -> timedelta:
    return number * _MICROSECOND


_LEAST_DATETIME: Final = datetime.min.replace(tzinfo=UTC)
_GREATEST_DATETIME: Final = datetime.max.replace(tzinfo=UTC)

SCALES: Final[Mapping[str, Scale]] = {
    "int": Scale(int, int, -(1 << 63), (1 << 63) - 1),
    "number": Scale(int, int, -MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
    "date": Scale(date.toordinal, date.fromordinal, date.min.toordinal(), date.max.toordinal()),
    "datetime": Scale(
        _microseconds, _datetime_of, _microseconds(_LEAST_DATETIME), _microseconds(_GREATEST_DATETIME)
    ),
    "timedelta": Scale(_length, _timedelta_of, _length(timedelta.min), _length(timedelta.max)),
}  # fmt: skip
"""The scale of each type of ends, by the name of its codec."""


class Starts(NamedTuple):
    """The starts from ``first`` to ``last`` of the intervals of one class."""

    size: int
    first: int
    last: int


def class_of(start: int, end: int | None) -> int:
    """Return the class of an interval that is not empty.

    Examples:
        >>> class_of(0, 1), class_of(0, 255), class_of(0, 256), class_of(0, None)
        (1, 8, 9, 255)
    """
    return UNBOUNDED if end is None else (end - start).bit_length()


def wanted_numbers(scale: Scale, low: Any, high: Any) -> Numbers | None:
    """Return the interval of a query in numbers of the scale; ``high`` None: without end. None if it is empty.

    A number above the greatest means the greatest, which only intervals without end contain.

    Examples:
        >>> wanted_numbers(SCALES["int"], 1, 3), wanted_numbers(SCALES["int"], 3, 3)
        ((1, 3), None)
        >>> wanted_numbers(SCALES["number"], 2**60, 2**61) == (2**53 - 1, 2**53)
        True
    """
    first = scale.number(low)
    after = scale.greatest + 1 if high is None else scale.number(high)
    if high is not None and first >= after:
        return None
    first, after = min(max(first, scale.least), scale.greatest), min(after, scale.greatest + 1)
    return (first, after) if first < after else None


def numbers_of_value(scale: Scale, value: Any) -> Numbers | None:
    """Return the interval that has only the number of one value; None if no interval can contain the value."""
    number = scale.number(value)
    return None if number < scale.least else (min(number, scale.greatest), min(number, scale.greatest) + 1)


def starts_for(scale: Scale, wanted: Numbers | None, *, has_unbounded: bool) -> Iterator[Starts]:
    """Yield the starts of all intervals that may share a number with the wanted ones, by ascending class.

    ``has_unbounded``: there may be intervals without end.

    Examples:
        >>> list(starts_for(SCALES["date"], (10, 20), has_unbounded=True))[:3]
        [Starts(size=1, first=10, last=19), Starts(size=2, first=8, last=19), Starts(size=3, first=4, last=19)]
    """
    if wanted is None:
        return
    low, high = wanted
    for size in range(1, scale.classes + 1):
        # The longest interval of the class has one number less than 2 ** size.
        yield Starts(size, max(scale.least, low - (1 << size) + 2), high - 1)
    if has_unbounded:
        yield Starts(UNBOUNDED, scale.least, high - 1)


def overlap(start: int, end: int | None, wanted: Numbers | None) -> bool:
    """Return whether an interval shares a number with the wanted ones.

    Examples:
        >>> overlap(1, 3, (3, 5)), overlap(1, 4, (3, 5)), overlap(1, None, (3, 5))
        (False, True, True)
    """
    if wanted is None or (end is not None and start >= end):
        return False
    low, high = wanted
    return start < high and (end is None or end > low)
