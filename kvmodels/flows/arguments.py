"""Checks of arguments that several verbs share, so that a wrong one gets a typed error before anything happens.

Rules of this module: pure; a check names the argument and shows a right one. Durations become whole milliseconds; a
deadline is computed from them inside the operation, by the clock of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeGuard, TypeVar, cast

from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError
from kvmodels.limits import Traits
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.variants import foreign_object

T = TypeVar("T")

LONGEST_LIFETIME_MS: Final = 2**53 - 1
"""About 285,000 years, the largest that JavaScript counts exactly and Deno takes."""

KEYS_HINT: Final = 'Give keys in a list: [("users", 1), ("users", 2)].'


def items_of(argument: str, value: Iterable[T], hint: str) -> list[T]:
    """Return the items of an iterable argument.

    Raises InvalidArgumentError: it cannot be iterated over, or is a string, whose letters are hardly meant.

    Examples:
        >>> items_of("keys", (1, 2), "Give primary keys.")
        [1, 2]
    """
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        iterator = iter(cast("Any", value))
    except TypeError:
        raise _refusal("several values are needed, in a list or another iterable", argument, value, hint) from None
    return list(iterator)


def fields_of(argument: str, value: object) -> dict[str, Any]:
    """Return the values of fields by name. Raises InvalidArgumentError: it is no mapping."""
    if not _is_mapping(value) or not all(isinstance(name, str) for name in value):
        raise _refusal("fields are given by name", argument, value, f'Give a dict: {argument}={{"name": value}}.')
    return dict(value)


def duration_ms(argument: str, value: object, *, shortest_ms: int = 0, longest_ms: int) -> int:
    """Return seconds or a timedelta as milliseconds, rounded to the nearest; a positive one is at least 1 ms.

    Raises InvalidValueError: neither a number nor a timedelta; InvalidArgumentError: not a number, or outside the
    range.

    Examples:
        >>> duration_ms("delay", 0.5, longest_ms=1000), duration_ms("delay", 1e-9, longest_ms=1000)
        (500, 1)
    """
    hint = f"Give seconds or a timedelta, {shortest_ms / 1000:g} to {longest_ms / 1000:g} seconds."
    milliseconds = _milliseconds(argument, value, "a duration is a number of seconds or a timedelta", hint)
    if not shortest_ms <= milliseconds <= longest_ms:  # a NaN as well
        raise _refusal("a duration is out of range", argument, value, hint)
    return max(1, round(milliseconds)) if milliseconds else 0


def lifetime_ms(expire_in: object) -> int:
    """Return a lifetime in whole milliseconds, rounded to the nearest; a positive one is at least 1 ms.

    Raises InvalidValueError: neither a number nor a timedelta; InvalidArgumentError: negative, not a number, or too
    large.

    Examples:
        >>> lifetime_ms(0.5), lifetime_ms(timedelta(minutes=1)), lifetime_ms(0.0001), lifetime_ms(0)
        (500, 60000, 1, 0)
    """
    hint = "Give seconds or a timedelta, 0 or more; leave it out to keep the record."
    milliseconds = _milliseconds("expire_in", expire_in, "a lifetime is a number of seconds or a timedelta", hint)
    if not milliseconds >= 0:  # a NaN as well
        raise _refusal("a lifetime must be 0 or more", "expire_in", expire_in, hint)
    if milliseconds > LONGEST_LIFETIME_MS:
        raise _refusal("a lifetime is too long", "expire_in", expire_in, "Leave it out to keep the value.")
    return max(1, round(milliseconds)) if milliseconds else 0


def _milliseconds(argument: str, value: object, message: str, hint: str) -> float:
    if isinstance(value, timedelta):
        # In whole microseconds: total_seconds() is a float and inexact beyond 270 years.
        return (value // timedelta(microseconds=1)) / 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValueError(message, path=argument, type=type(value).__name__, hint=hint)
    return value * 1000


def require_callable(argument: str, value: object, hint: str) -> None:
    """Refuse what cannot be called. Raises InvalidArgumentError."""
    if not callable(value):
        raise _refusal("this is not a function", argument, value, hint)


def require_flag(argument: str, value: object) -> None:
    """Refuse what is neither True nor False: ``readonly="no"`` would be true. Raises InvalidArgumentError."""
    if not isinstance(value, bool):
        raise _refusal("this is neither True nor False", argument, value, "Give True or False.")


def require_text(argument: str, value: object, hint: str) -> None:
    """Refuse what cannot be a text part of a key. Raises InvalidArgumentError."""
    if not isinstance(value, str) or not value or any("\ud800" <= character <= "\udfff" for character in value):
        raise _refusal("this is not a text that can be looked for", argument, value, hint)


def require_no_counters(schema: ModelSchema) -> None:
    """Refuse a lifetime for records of a model with an aggregate index, whose counters would keep expired records.

    Raises InvalidArgumentError: the index is named.
    """
    for index in schema.indexes.values():
        if index.aggregates is not None:
            raise InvalidArgumentError(
                "a record that an aggregate index counts cannot expire",
                argument="expire_in",
                value=index.name,
                hint="Leave expire_in out, or drop the aggregate index from Meta.indexes of the model.",
            )


def require_object(schema: ModelSchema, instance: object) -> None:
    """Refuse what is not an object of exactly this model. Raises InvalidValueError: its type is named."""
    if (instance.__class__ is not schema.model or schema.variants is not None) and schema.variant_of(
        instance
    ) is schema:
        raise foreign_object(schema, instance)


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _refusal(message: str, argument: str, value: object, hint: str) -> InvalidArgumentError:
    # A class or a function is shown by its name: its repr holds an address, which says nothing.
    shown = getattr(value, "__name__", value)
    return InvalidArgumentError(message, argument=argument, value=shown, hint=hint)


def require_told_deadlines(traits: Traits, schema: ModelSchema) -> None:
    """Refuse records that expire on an engine that does not tell deadlines: a write would make them permanent.

    Raises UnsupportedError: it does not, or it may return expired rows.
    """
    if not (traits.tells_deadlines and traits.hides_expired):
        raise UnsupportedError(
            "the engine does not tell when rows expire, so records cannot expire",
            reason=f"the record is of {schema.name}",
            hint="Leave out Meta.ttl and expire_in=, and remove old records with a query; or use another engine.",
        )
