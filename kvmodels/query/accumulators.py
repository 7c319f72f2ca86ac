"""What one pass over values adds up to: numbers of values, exact sums, extremes, averages.

An int sum is exact at any size. A Decimal sum is exact: it is added without rounding to the context of the caller. A
float sum is exact inside (in units of the smallest float there is, as one int) and rounded once, at the end: its error
is half a unit in the last place at most, in whichever order the values come, as with ``math.fsum``, and memory does
not grow with the number of values. A timedelta is summed as whole microseconds.

Rules of this module: pure; None is not counted, summed or compared. The sum and the average of nothing are None, as in
SQL and Django, and so are the least and the greatest of nothing; only a count of nothing is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any, Final, Protocol

from kvmodels.errors import InvalidValueError

__all__ = ["Accumulator", "Counting", "Extreme", "Summing", "average", "summed"]

_SMALLEST_FLOAT: Final = 2**1074
"""The denominator of the smallest positive float; that of every other float divides it."""
_MICROSECOND: Final = timedelta(microseconds=1)
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_DECIMAL_DIGITS: Final = 28
"""Digits of an average of Decimals, as of Python's own context; more if the sum has more."""


class Accumulator(Protocol):
    """Takes values one by one and has a result at any time."""

    def add(self, value: Any) -> None:
        """Take one more value, which may be None."""
        ...

    def result(self) -> Any:
        """What the values so far come to."""
        ...


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
        """How many there were."""
        return self._count


class Extreme:
    """The least value, or the greatest, in the order of a column.

    Args:
        pack: value to key part, which sorts as the values do; a value that it refuses (NaN) has no place in the order
            and is passed over.
        greatest: the greatest instead of the least.
    """

    __slots__ = ("_greatest", "_pack", "_part", "_value")

    def __init__(self, pack: Callable[[Any], bytes], *, greatest: bool) -> None:
        self._pack = pack
        self._greatest = greatest
        self._part: bytes | None = None
        self._value: Any = None

    def add(self, value: Any) -> None:
        """Compare one more value; of equal ones the first stays."""
        if value is None:
            return
        try:
            part = self._pack(value)
        except InvalidValueError:
            return
        if self._part is None or (part > self._part if self._greatest else part < self._part):
            self._part, self._value = part, value

    def result(self) -> Any:
        """The extreme value; None when there was none."""
        return self._value


class Summing:
    """The exact sum of values of one kind, or their average.

    Args:
        kind: of the values: ``int``, ``float``, ``decimal`` or ``timedelta``.
        mean: the average instead of the sum.
    """

    __slots__ = ("_count", "_kind", "_mean", "_special", "_total")

    def __init__(self, kind: str, *, mean: bool = False) -> None:
        self._kind = kind
        self._mean = mean
        self._count = 0
        self._special = 0.0
        self._total: Any = Decimal(0) if kind == "decimal" else 0

    def add(self, value: Any) -> None:
        """Add one more value."""
        if value is None:
            return
        self._count += 1
        if self._kind == "int":
            self._total += int(value)
        elif self._kind == "timedelta":
            self._total += value // _MICROSECOND
        elif self._kind == "decimal":
            self._total = _EXACT.add(self._total, value)
        elif math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._total += numerator * (_SMALLEST_FLOAT // denominator)
        else:
            self._special += value  # infinities of both signs make NaN, as they do in IEEE 754

    def result(self) -> Any:
        """The sum or the average; None when there was no value.

        Raises:
            InvalidValueError: see ``summed`` and ``average``.
        """
        if not self._count:
            return None
        if self._kind == "float" and (self._special or math.isnan(self._special)):
            return self._special
        return average(self._kind, self._total, self._count) if self._mean else summed(self._kind, self._total)


def summed(kind: str, total: Any) -> Any:
    """A sum as a value of its kind: of an exact int total (units of the smallest float; microseconds).

    Raises:
        InvalidValueError: a timedelta cannot be so long.
    """
    if kind == "timedelta":
        return _duration(total)
    return _ratio(total, _SMALLEST_FLOAT) if kind == "float" else total


def average(kind: str, total: Any, count: int) -> Any:
    """The average of ``count`` values, one or more, of an exact total: of int a float, else of the kind of the values.

    Rounded once: a float to the nearest, a timedelta to the nearest microsecond (halves to even), a Decimal to 28
    digits or as many as the sum has.

    Raises:
        InvalidValueError: a timedelta cannot be so long, or no float is so large.
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
            hint="Ask for Sum and Count, and divide them as your program needs it.",
        ) from None


def _ratio(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator  # of two ints: rounded once
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
