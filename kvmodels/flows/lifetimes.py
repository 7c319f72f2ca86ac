"""Lifetimes as people give them to milliseconds.

Rules of this module: pure; the deadline itself is computed inside the operation, by the clock of the engine.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.storing import Deadline, Keep

__all__ = ["deadline_of", "lifetime_ms"]

LONGEST_LIFETIME_MS: Final = 2**53 - 1
"""About 285,000 years, the largest that JavaScript counts exactly and Deno takes."""


_HINT: Final = "Give seconds or a timedelta, 0 or more; leave it out to keep the record for ever."


def lifetime_ms(expire_in: object) -> int:
    """A lifetime in whole milliseconds, rounded to the nearest; a positive one lasts at least 1 ms.

    Raises:
        InvalidValueError: neither a number nor a timedelta.
        InvalidArgumentError: negative, not a number, or too large.

    Examples:
        >>> lifetime_ms(0.5), lifetime_ms(timedelta(minutes=1)), lifetime_ms(0.0001), lifetime_ms(0)
        (500, 60000, 1, 0)
    """
    if isinstance(expire_in, timedelta):
        # In whole microseconds: total_seconds() is a float and inexact beyond 270 years.
        milliseconds: float = (expire_in // timedelta(microseconds=1)) / 1000
    elif isinstance(expire_in, bool) or not isinstance(expire_in, (int, float)):
        raise InvalidValueError(
            "a lifetime is a number of seconds or a timedelta",
            path="expire_in",
            type=type(expire_in).__name__,
            hint=_HINT,
        )
    else:
        milliseconds = expire_in * 1000
    if not milliseconds >= 0:  # a NaN as well
        raise InvalidArgumentError("a lifetime must be 0 or more", argument="expire_in", value=expire_in, hint=_HINT)
    if milliseconds > LONGEST_LIFETIME_MS:
        raise InvalidArgumentError(
            "a lifetime is too long",
            argument="expire_in",
            value=expire_in,
            hint="Leave it out to keep the value for ever.",
        )
    return max(1, round(milliseconds)) if milliseconds else 0


def deadline_of(expire_in: float | timedelta | Keep | None) -> Deadline:
    """Milliseconds until a record expires, None for never, or KEEP; raises what ``lifetime_ms`` raises."""
    return expire_in if expire_in is None or isinstance(expire_in, Keep) else lifetime_ms(expire_in)
