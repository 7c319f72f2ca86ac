"""Durations that users give, as whole milliseconds: lifetimes of keys and records, queues, locks.

Rules of this module: pure; a refusal names the argument and the range. The deadline itself is computed inside the
operation, by the clock of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.writing.encode import Deadline, Keep
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.variants import constructor_of, made_of


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


def created_object(schema: ModelSchema, fields: Mapping[str, Any], expire_in: object) -> Any:
    """The object that ``create`` inserts.

    Raises:
        InvalidArgumentError: ``expire_in`` is given, and it is the alias of a field too.
        UnknownFieldError, pydantic.ValidationError: as ``made_of``.
    """
    made: BaseModel = made_of(schema, fields)
    if not isinstance(expire_in, Keep) and "expire_in" in constructor_of(type(made)).takes:
        raise InvalidArgumentError(
            "expire_in is the lifetime of the record and the alias of a field",
            argument="expire_in",
            value=expire_in,
            hint=f"Write insert({schema.name}(...), expire_in=...), where each of the two has a place of its own.",
        )
    return made
