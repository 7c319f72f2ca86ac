"""Buckets of the values of an index of ranks: numbers that ascend with the values, and the least value of each.

A *scale* divides the values between ``low`` and ``high`` into ``16 ** levels`` buckets of equal width. The first bucket
also has all lower values, the last one all higher values, so every value has a bucket.

Rules of this module: pure. The bucket of a value is a monotone function of it: exact for whole numbers and Decimals, a
difference and a product of doubles for floats, each of which is rounded monotonically. The bound of a bucket is the
least value of it, exactly, so a bucket is a range of keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from fractions import Fraction
from math import inf, isfinite
from struct import pack, unpack
from typing import Any, Final, NamedTuple

from kvmodels.codecs.columns.scalars import decode_decimal, encode_decimal
from kvmodels.schema.kinds.interval_spans import SCALES

BASE: Final = 16
"""The number of buckets, or of groups of buckets, that a bucket of the level above is divided into."""

MAX_LEVELS: Final = 6


class RankScale(ABC):
    """The buckets between two values of one type.

    Args:
        low, high: the values; ``low`` is less than ``high``.
        count: the number of buckets.

    Raises:
        ValueError: the values are no bounds of buckets.
    """

    def __init__(self, low: Any, high: Any, count: int) -> None:
        if not low < high:
            raise ValueError("low is not less than high")
        self.low = low
        self.high = high
        self.count = count

    @abstractmethod
    def bucket(self, value: Any) -> int:
        """Return the bucket of a value."""

    @abstractmethod
    def bound(self, bucket: int) -> Any:
        """Return the least value of a bucket from 1 to the last one; all values of the buckets before are less."""

    def _clamped(self, bucket: int) -> int:
        return min(max(bucket, 0), self.count - 1)


class WholeScale(RankScale):
    """Buckets of whole numbers: the bounds are counted in, so 16 numbers in 16 buckets have one each.

    Examples:
        >>> scale = WholeScale(0, 99, 16)
        >>> scale.bucket(-5), scale.bucket(0), scale.bucket(50), scale.bucket(99), scale.bucket(10**30), scale.bound(8)
        (0, 0, 8, 15, 15, 50)
    """

    def bucket(self, value: Any) -> int:
        """Return the bucket of a number."""
        return self._clamped((value - self.low) * self.count // (self.high - self.low + 1))

    def bound(self, bucket: int) -> int:
        """Return the least number of a bucket."""
        number: int = self.low - (-bucket * (self.high - self.low + 1) // self.count)
        return number


class FloatScale(RankScale):
    """Buckets of floats.

    Examples:
        >>> scale = FloatScale(0.0, 1.0, 16)
        >>> scale.bucket(-1e300), scale.bucket(0.5), scale.bucket(1.0), scale.bucket(float("inf")), scale.bound(8)
        (0, 8, 15, 15, 0.5)
    """

    def __init__(self, low: float, high: float, count: int) -> None:
        super().__init__(low, high, count)
        self._factor = count / (high - low)
        if not isfinite(high - low) or not isfinite(self._factor) or self.bucket(high) != count - 1:
            raise ValueError("the buckets would be too wide, or too narrow, for floats")

    def bucket(self, value: Any) -> int:
        """Return the bucket of a float that is not NaN."""
        scaled = (value - self.low) * self._factor
        return self.count - 1 if scaled >= self.count - 1 else self._clamped(int(max(scaled, 0.0)))

    def bound(self, bucket: int) -> float:
        """Return the least float of a bucket, found by bisection of the floats in their order."""
        least, greatest = _place_of(self.low), _place_of(self.high)
        while least < greatest:
            middle = (least + greatest) // 2
            if self.bucket(_float_at(middle)) >= bucket:
                greatest = middle
            else:
                least = middle + 1
        return _float_at(least)


class DecimalScale(RankScale):
    """Buckets of Decimals, by exact fractions.

    Examples:
        >>> scale = DecimalScale(Decimal(0), Decimal("0.1"), 16)
        >>> scale.bucket(Decimal("0.05")), scale.bound(8), scale.bound(1)
        (8, Decimal('0.05'), Decimal('0.00625'))
    """

    def __init__(self, low: Decimal, high: Decimal, count: int) -> None:
        super().__init__(low, high, count)
        self._low, self._width = Fraction(low), Fraction(high) - Fraction(low)
        for bucket in (1, count - 1):
            encode_decimal(self.bound(bucket))

    def bucket(self, value: Any) -> int:
        """Return the bucket of a finite Decimal."""
        if value <= self.low or value >= self.high:
            return 0 if value <= self.low else self.count - 1
        return self._clamped((Fraction(value) - self._low) * self.count // self._width)

    def bound(self, bucket: int) -> Decimal:
        """Return the least Decimal of a bucket; the number of buckets is a power of 2, so it has an end."""
        exact = self._low + self._width * bucket / self.count
        return _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))


_EXACT: Final = Context(prec=13_000, Emin=-99_999, Emax=99_999)
"""More digits than any Decimal of a column has between its first and its last possible place."""


def _place_of(value: float) -> int:
    """Return the place of a float in the order of all floats that are not NaN; 0.0 and -0.0 share it."""
    (bits,) = unpack(">q", pack(">d", value))
    return int(bits) if bits >= 0 else -(int(bits) & _MAGNITUDE)


def _float_at(place: int) -> float:
    (value,) = unpack(">d", pack(">q", abs(place)))
    return float(value) if place >= 0 else -float(value)


_MAGNITUDE: Final = (1 << 63) - 1


class RankedType(NamedTuple):
    """A type whose values have ranks.

    Attributes:
        scale: the class of its buckets.
        number: converts a value, or a number that stands for one, to what the scale takes.
        value: converts a bound of the scale to a value.
        text: returns the stored text of a bound.
        parse: the inverse of ``text``; raises ValueError.
    """

    scale: Callable[[Any, Any, int], RankScale]
    number: Callable[[Any], Any]
    value: Callable[[Any], Any]
    text: Callable[[Any], str]
    parse: Callable[[str], Any]


def _whole(codec: str, text: Callable[[Any], str], parse: Callable[[str], Any]) -> RankedType:
    scale = SCALES[codec]
    return RankedType(WholeScale, scale.number, scale.value, text, parse)


def _utc_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()


def _utc_of(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.utcoffset() is None:
        raise ValueError("a datetime without a time zone")
    return value


def _decimal_text(value: Any) -> str:
    shortest = _shortest(value)
    return f"{shortest:f}" if abs(shortest.adjusted()) < _LONG else str(shortest)


_LONG: Final = 20
"""The exponent from which a Decimal is written with it."""


def _decimal_of(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError("not a Decimal") from None


def _shortest(value: Any) -> Decimal:
    """Return a Decimal, or an int as one, without trailing zeros. Raises InvalidValueError."""
    return decode_decimal(encode_decimal(Decimal(value)))


def _as_float(value: Any) -> float:
    return float(value) + 0.0  # -0.0 + 0.0 is 0.0


def _float_text(value: Any) -> str:
    return repr(_as_float(value))


def _float_of(text: str) -> float:
    value = float(text)
    if value in (inf, -inf) or value != value:
        raise ValueError("not a finite float")
    return value


_DURATION: Final = SCALES["timedelta"]


def _duration_text(value: Any) -> str:
    return str(_DURATION.number(value))


RANKED_TYPES: Final[Mapping[str, RankedType]] = {
    "int": _whole("int", str, int),
    "number": _whole("number", str, int),
    "date": _whole("date", date.isoformat, date.fromisoformat),
    "datetime": _whole("datetime", _utc_text, _utc_of),
    "timedelta": _whole("timedelta", _duration_text, lambda text: _DURATION.value(int(text))),
    "float": RankedType(FloatScale, _as_float, float, _float_text, _float_of),
    "decimal": RankedType(DecimalScale, Decimal, Decimal, _decimal_text, _decimal_of),
}  # fmt: skip
"""The types that have ranks, by the names of their codecs."""
