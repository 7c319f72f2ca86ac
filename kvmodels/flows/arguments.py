"""Checks of arguments that several methods share, so that a wrong one raises a typed error before anything else.

Rules of this module: pure; a check names the argument and shows a valid one. Durations are converted to whole
milliseconds; deadlines are computed from them inside the operation, by the engine's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from kvmodels.core.operations import parse_versionstamp
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError
from kvmodels.limits import Traits
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.definition.variants import foreign_object
from kvmodels.schema.filters.operands import key_values

T = TypeVar("T")

LONGEST_LIFETIME_MS: Final = 2**53 - 1
"""About 285,000 years, the largest exact JavaScript number and the maximum in Deno."""

KEYS_HINT: Final = 'Give keys in a list: [("users", 1), ("users", 2)].'


def items_of(argument: str, value: Iterable[T], hint: str) -> list[T]:
    """Return the items of an iterable argument; raises like ``iterator_of``.

    Examples:
        >>> items_of("keys", (1, 2), "Give primary keys.")
        [1, 2]
    """
    return list(iterator_of(argument, value, hint))


def iterator_of(argument: str, value: Iterable[T], hint: str) -> Iterator[T]:
    """Return the iterator over an iterable argument.

    Raises InvalidArgumentError if it is not iterable, or is a str or a model object, which would be split into its
    characters or fields.
    """
    try:
        if isinstance(value, (str, bytes, bytearray, BaseModel)):
            raise TypeError
        return iter(cast("Any", value))
    except TypeError:
        raise refusal("this argument must be a list or another iterable", argument, value, hint) from None


def fields_of(argument: str, value: object) -> dict[str, Any]:
    """Return the values of fields by name. Raises InvalidArgumentError if it is not a mapping."""
    fields = cast("Mapping[Any, Any]", value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in fields):
        raise refusal(
            "this method takes fields by name", argument, fields, f'Give a dict: {argument}={{"name": value}}.'
        )
    return dict(fields)


def duration_ms(argument: str, value: object, *, shortest_ms: int = 0, longest_ms: int) -> int:
    """Return seconds or a timedelta as milliseconds, rounded to the nearest; a positive one is at least 1 ms.

    Raises InvalidValueError if it is neither a number nor a timedelta; InvalidArgumentError if it is NaN or outside the
    range.

    Examples:
        >>> duration_ms("delay", 0.5, longest_ms=1000), duration_ms("delay", 1e-9, longest_ms=1000)
        (500, 1)
    """
    hint = f"Give seconds or a timedelta, {shortest_ms / 1000:g} to {longest_ms / 1000:g} seconds."
    milliseconds = _milliseconds(argument, value, "a duration is a number of seconds or a timedelta", hint)
    if not shortest_ms <= milliseconds <= longest_ms:  # also for NaN
        raise refusal("a duration is out of range", argument, value, hint)
    return max(1, round(milliseconds)) if milliseconds else 0


def lifetime_ms(expire_in: object) -> int:
    """Return a lifetime in whole milliseconds, rounded to the nearest; a positive one is at least 1 ms.

    Raises InvalidValueError if it is neither a number nor a timedelta; InvalidArgumentError if it is negative, NaN or
    too large.

    Examples:
        >>> lifetime_ms(0.5), lifetime_ms(timedelta(minutes=1)), lifetime_ms(0.0001), lifetime_ms(0)
        (500, 60000, 1, 0)
    """
    hint = "Give seconds or a timedelta, 0 or more; leave it out to keep the record."
    milliseconds = _milliseconds("expire_in", expire_in, "a lifetime is a number of seconds or a timedelta", hint)
    if not milliseconds >= 0:  # also for NaN
        raise refusal("a lifetime must be 0 or more", "expire_in", expire_in, hint)
    if milliseconds > LONGEST_LIFETIME_MS:
        raise refusal("a lifetime is too long", "expire_in", expire_in, "Leave it out to keep the value.")
    return max(1, round(milliseconds)) if milliseconds else 0


def _milliseconds(argument: str, value: object, message: str, hint: str) -> float:
    if isinstance(value, timedelta):
        # In whole microseconds: total_seconds() is a float and inexact beyond 270 years.
        return (value // timedelta(microseconds=1)) / 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValueError(message, path=argument, type=type(value).__name__, hint=hint)
    return value * 1000


def versionstamp_of(argument: str, value: object, *, expected: str, hint: str) -> bytes:
    """Return a versionstamp as its 10 bytes. Raises InvalidArgumentError if it is not 20 hexadecimal digits."""
    try:
        return parse_versionstamp(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "not a versionstamp", argument=argument, value=value, expected=expected, hint=hint
        ) from None


class OtherVersions(tuple[str, ...]):
    """An ``if_version`` argument for every version but these; without any, for no version (If-None-Match of HTTP)."""

    __slots__ = ()


class AllBut(tuple[bytes, ...]):
    """All versions but some; without any, no version."""

    __slots__ = ()

    def __contains__(self, version: object) -> bool:
        return bool(self) and not super().__contains__(version)


def versions_of(if_version: object) -> tuple[bytes, ...]:
    """Return the versions of an ``if_version`` argument that is not None. Raises InvalidArgumentError."""
    hint = "Give obj.versionstamp of an object that was loaded or stored, or a list; leave it out for any version."
    several = isinstance(if_version, (list, tuple, set, frozenset))
    given = cast("Iterable[object]", if_version) if several else (if_version,)
    expected = "20 hexadecimal digits"
    versions = tuple(versionstamp_of("if_version", one, expected=expected, hint=hint) for one in given)
    if isinstance(if_version, OtherVersions):
        return AllBut(versions)
    if not versions:
        raise refusal("an empty list of versions matches no version", "if_version", if_version, hint)
    return versions


def require_callable(argument: str, value: object, hint: str) -> None:
    """Refuse a value that is not callable. Raises InvalidArgumentError."""
    if not callable(value):
        raise refusal("this is not a function", argument, value, hint)


def require_flag(argument: str, value: object) -> None:
    """Refuse a value that is neither True nor False: ``readonly="no"`` would be true. Raises InvalidArgumentError."""
    if not isinstance(value, bool):
        raise refusal("this is neither True nor False", argument, value, "Give True or False.")


def require_limit(limit: object, hint: str) -> None:
    """Refuse a limit that is not a positive whole number. Raises InvalidArgumentError."""
    if type(limit) is not int or limit < 1:
        raise refusal("a limit is not a positive whole number", "limit", limit, hint)


def require_text(argument: str, value: object, hint: str) -> None:
    """Refuse a value that cannot be a str part of a key. Raises InvalidArgumentError."""
    if not isinstance(value, str) or not value or any("\ud800" <= character <= "\udfff" for character in value):
        raise refusal("this argument must be a str that is not empty and has no lone surrogates", argument, value, hint)


def require_no_counters(schema: ModelSchema) -> None:
    """Refuse a lifetime for records of a model with counters, which would keep expired records.

    Raises InvalidArgumentError with the name of the index.
    """
    for index in schema.indexes.values():
        if index.has_counters:
            option = KINDS[index.kind].without_counters
            other = "remove the index from" if option is None else f"declare the index with {option} in"
            raise InvalidArgumentError(
                "a record that an index counts cannot expire",
                argument="expire_in",
                value=index.name,
                hint=f"Leave expire_in out, or {other} Meta.indexes of the model.",
            )


def key_of_record(schema: ModelSchema, given: object) -> tuple[Any, ...]:
    """Return the primary key of an object of the model, or the key that was given.

    Raises InvalidValueError for neither.
    """
    if isinstance(given, schema.model) or (schema.variants is not None and schema.variant_of(given) is not schema):
        return schema.primary_key_of(given)
    return key_values(schema, given)


def require_object(schema: ModelSchema, instance: object) -> None:
    """Refuse an object of another class than this model. Raises InvalidValueError with its type."""
    if (instance.__class__ is not schema.model or schema.variants is not None) and schema.variant_of(
        instance
    ) is schema:
        raise foreign_object(schema, instance)


def refusal(message: str, argument: str, value: object, hint: str) -> InvalidArgumentError:
    """Return the error for a value of an argument."""
    # A class or a function is shown by its name, because its repr contains a meaningless address.
    shown = getattr(value, "__name__", value)
    return InvalidArgumentError(message, argument=argument, value=shown, hint=hint)


def require_told_deadlines(traits: Traits, schema: ModelSchema) -> None:
    """Refuse records that expire if the engine does not report deadlines: a write would make them permanent.

    Raises UnsupportedError if it does not report them, or may return expired rows.
    """
    if not (traits.tells_deadlines and traits.hides_expired):
        raise UnsupportedError(
            "the engine does not report when rows expire, so records cannot expire",
            reason=f"the record is of {schema.name}",
            hint="Leave out Meta.ttl and expire_in=, and remove old records with a query; or use another engine.",
        )
