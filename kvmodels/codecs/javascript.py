"""JavaScript's numbers, Date and RegExp in Python, for every format that exchanges values with JavaScript.

Rules of this module: a conversion is exact or refused; nothing depends on the bytes of a format.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kvmodels.codecs.msgpack_extensions import MalformedError
from kvmodels.core.values import MAX_SAFE_INTEGER
from kvmodels.errors import InvalidValueError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PER_MILLISECOND: Final = 1_000
_FIRST_MICROSECOND: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_MICROSECOND: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def is_safe_integral(number: float) -> bool:
    """Return whether a number counts as an int in a document: integral, within ±(2**53 - 1), and not -0.0."""
    return number.is_integer() and abs(number) <= MAX_SAFE_INTEGER and (number != 0 or math.copysign(1, number) > 0)


# -- Date


def milliseconds_of(value: datetime) -> float:
    """Return the milliseconds since the epoch, with microseconds as a fraction, which JavaScript truncates."""
    if value.utcoffset() is None:
        raise InvalidValueError(
            "a datetime without a timezone cannot be a JavaScript Date",
            type="datetime",
            hint="A Date is a moment: give it a timezone, such as datetime.now(UTC).",
        )
    microseconds = (value - _EPOCH) // _MICROSECOND
    if not _FIRST_MICROSECOND <= microseconds <= _LAST_MICROSECOND:
        raise InvalidValueError(
            "this datetime has no equal in UTC, in which a JavaScript Date is read",
            type="datetime",
            hint="In UTC its year must be from 1 to 9999.",
        )
    milliseconds = microseconds / _PER_MILLISECOND
    if _microseconds_of(milliseconds) != microseconds:
        raise InvalidValueError(
            "the microseconds of this datetime cannot be a JavaScript Date",
            type="datetime",
            hint="Between 1691 and 2248 they can; for others use whole milliseconds.",
        )
    return milliseconds


def datetime_of(milliseconds: float) -> datetime:
    """Return the time in UTC. Raises MalformedError outside Python's years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=_microseconds_of(milliseconds))
    except (OverflowError, ValueError):
        raise MalformedError("a Date that Python's datetime cannot hold") from None


def _microseconds_of(milliseconds: float) -> int:
    # In two parts, because the product as a whole would exceed the exact range of a double.
    whole = math.floor(milliseconds)
    return whole * _PER_MILLISECOND + round((milliseconds - whole) * _PER_MILLISECOND)


# -- RegExp

_TO_PYTHON: Final[dict[str, re.RegexFlag]] = {
    "i": re.IGNORECASE,
    "m": re.MULTILINE,
    "s": re.DOTALL,
    # These flags control how JavaScript's methods continue after a match, or always apply to Python's str patterns.
    "g": re.NOFLAG,
    "y": re.NOFLAG,
    "d": re.NOFLAG,
    "u": re.NOFLAG,
    "v": re.NOFLAG,
}
_TO_JAVASCRIPT: Final = {python: flag for flag, python in _TO_PYTHON.items() if python}
_TRANSLATABLE: Final = int(re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE)
_COMMON_SYNTAX: Final = re.compile(
    r"[^\\\[(*+?}]|\\[^AZNUa]|\[\^?(?!\])(?:[^\\\]]|\\[^NUa])+\]|\((?!\?)|\(\?(?:[:=!]|<[=!])|[*+?}](?!\+)",
    re.DOTALL,
)
"""Matches one character, escape, class, group opening or quantifier that has the same meaning in JavaScript and
Python."""


def source_of(pattern: re.Pattern[Any]) -> tuple[str, str]:
    """Return the source and the flags of a pattern as a JavaScript RegExp."""
    source: object = pattern.pattern
    if type(source) is not str:
        raise InvalidValueError(
            "a re.Pattern of bytes cannot be a JavaScript RegExp", type="Pattern", hint="Compile it from a str."
        )
    if pattern.flags & ~_TRANSLATABLE:
        raise InvalidValueError(
            "a re.Pattern with this flag cannot be a JavaScript RegExp",
            type="Pattern",
            hint="JavaScript has re.IGNORECASE, re.MULTILINE and re.DOTALL.",
        )
    if not _has_common_syntax(source):
        raise InvalidValueError(
            "this re.Pattern has a construct that JavaScript lacks",
            type="Pattern",
            hint=r"Named groups, inline flags, \A, \Z, atomic groups and possessive quantifiers are Python's own.",
        )
    return source, "".join([flag for python, flag in _TO_JAVASCRIPT.items() if pattern.flags & python])


def _has_common_syntax(source: str) -> bool:
    # One element at a time, not one possessive repetition: Python 3.11.2 backtracks into that.
    at = 0
    while at < len(source):
        element = _COMMON_SYNTAX.match(source, at)
        if element is None:
            return False
        at = element.end()
    return True


def pattern_of(source: str, flags: str) -> re.Pattern[str]:
    """Return the compiled pattern. Raises MalformedError for a flag or source that Python does not support."""
    python = re.NOFLAG
    for flag in flags:
        if flag not in _TO_PYTHON:
            raise MalformedError("a RegExp with a flag that Python lacks")
        python |= _TO_PYTHON[flag]
    try:
        return re.compile(source, python)
    except (re.error, OverflowError, RecursionError, Warning):  # warnings may be errors
        raise MalformedError("a RegExp that Python does not compile") from None
