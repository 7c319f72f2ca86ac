"""Durations of queues and locks as people give them, to whole milliseconds.

Rules of this module: pure; a refusal names the argument and the range.
"""

from __future__ import annotations

from datetime import timedelta

from kvmodels.errors import InvalidArgumentError, InvalidValueError

__all__ = ["duration_ms"]


def duration_ms(argument: str, value: object, *, shortest_ms: int = 0, longest_ms: int) -> int:
    """Seconds or a timedelta as milliseconds, rounded to the nearest; a positive one is 1 ms at least.

    Args:
        argument: its name, for the error.
        value: as the caller gave it.
        shortest_ms: the smallest that is allowed.
        longest_ms: the largest that is allowed.

    Raises:
        InvalidValueError: neither a number nor a timedelta.
        InvalidArgumentError: not a number, or outside the range.

    Example:
        >>> duration_ms("delay", 0.5, longest_ms=1000), duration_ms("delay", 1e-9, longest_ms=1000)
        (500, 1)
    """
    hint = f"Give seconds or a timedelta, {shortest_ms / 1000:g} to {longest_ms / 1000:g} seconds."
    if isinstance(value, timedelta):
        milliseconds: float = (value // timedelta(microseconds=1)) / 1000
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValueError(
            "a duration is a number of seconds or a timedelta", path=argument, type=type(value).__name__, hint=hint
        )
    else:
        milliseconds = value * 1000
    if not shortest_ms <= milliseconds <= longest_ms:  # a NaN as well
        raise InvalidArgumentError("a duration is out of range", argument=argument, value=value, hint=hint)
    return max(1, round(milliseconds)) if milliseconds else 0
