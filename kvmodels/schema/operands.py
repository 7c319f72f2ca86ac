"""Operands of comparisons: converted to what their column holds, normalised as the column is, and checked.

Rules of this module: pure. An operand that the column cannot hold is an InvalidValueError that names the field, before
anything is planned or read. None is never given to the function of a folded field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.schema.definition import ColumnSource, ModelSchema
from kvmodels.schema.names import PRIMARY_KEY

__all__ = ["bounds_of", "flag", "folded_whole", "key_values", "listed", "prefix_of", "value_of", "values_of"]

_CONTAINERS = (list, tuple, set, frozenset)


def key_values(schema: ModelSchema, key: Any) -> tuple[Any, ...]:
    """The values of a primary key as people give it: the value, or a tuple when it is composite.

    Raises:
        InvalidValueError: not a tuple of the right length, or a value that its field cannot hold.
    """
    columns = schema.primary_key
    if len(columns) == 1:
        return (_converted(schema, columns[0].field, columns[0], key),)
    values = key if _is_tuple(key) else ()
    if len(values) != len(columns):
        raise InvalidValueError(
            "a composite primary key is given as a tuple of all its values",
            model=schema.name,
            field=PRIMARY_KEY,
            type=type(key).__name__,
            hint=f"Give ({', '.join(column.field for column in columns)}).",
        )
    return tuple(_converted(schema, column.field, column, value) for column, value in zip(columns, values, strict=True))


def value_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """The value as the column holds it: text is read as what it stands for (a UUID, a date), then it is folded.

    Raises:
        InvalidValueError: the column cannot hold it; None never can.
    """
    converted = _converted(schema, source.name, source, value)
    return converted if source.normalise is None else _normalised(schema, source, converted, source.codec.pack)


def values_of(schema: ModelSchema, source: ColumnSource, operand: Any, *, nulls: bool) -> tuple[Any, ...]:
    """A list of values, each once, because equal values have one packed part; with ``nulls`` one may be None.

    Raises:
        InvalidValueError: no list, or a value that the column cannot hold.
    """
    given = listed(schema, source.name, operand)
    held = (None if value is None and nulls else value_of(schema, source, value) for value in given)
    return tuple(dict.fromkeys(held))


def prefix_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """A text, or bytes, that values begin with or have in them.

    Raises:
        InvalidValueError: not of the type of the column.
    """
    check = source.codec.pack_prefix
    assert check is not None  # the lookup does not exist for other columns
    _checked(schema, source.name, check, value)
    return value if source.normalise is None else _normalised(schema, source, value, check)


def bounds_of(schema: ModelSchema, source: ColumnSource, operand: Any) -> tuple[Any, Any, str]:
    """The two ends of a range, and which of them belong to it.

    Raises:
        InvalidValueError: not two values, or one that the column cannot hold.
    """
    # A keyword gives (low, high), with both ends, as Django's range; User.age.between() adds its bounds.
    ends = tuple(operand) if _is_sequence(operand) else ()
    if len(ends) == 2:
        ends = (*ends, "[]")
    if len(ends) != 3 or ends[2] not in ("[]", "[)", "(]", "()"):
        hint = f"Write {_keyword(source.name)}__range=(low, high)."
        raise _wrong(schema, source.name, operand, "range takes two values", hint)
    return value_of(schema, source, ends[0]), value_of(schema, source, ends[1]), ends[2]


def flag(schema: ModelSchema, field: str, operand: Any) -> bool:
    """The operand of ``isnull``.

    Raises:
        InvalidValueError: neither True nor False.
    """
    if not isinstance(operand, bool):
        raise _wrong(schema, field, operand, "isnull takes True or False", f"Write {_keyword(field)}__isnull=True.")
    return operand


def listed(schema: ModelSchema, field: str, operand: Any) -> tuple[Any, ...]:
    """The operand of ``in`` and its like.

    Raises:
        InvalidValueError: a text or a mapping, or nothing that can be iterated.
    """
    if isinstance(operand, (str, bytes, bytearray, Mapping)) or not _is_iterable(operand):
        name = _keyword(field)
        raise _wrong(schema, field, operand, "in takes a list of values", f"Write {name}__in=[...], or {name}=value.")
    return tuple(operand)


def folded_whole(source: ColumnSource | None, value: Any) -> Any:
    """A whole list, set or tuple with each element given to the function of its folded field."""
    if source is None or source.normalise is None or not _is_container(value):
        return value
    fold, kind = source.normalise, type(value)
    return kind(None if element is None else fold(element) for element in value)


def _converted(schema: ModelSchema, field: str, source: Any, value: Any) -> Any:
    codec = source.codec
    if isinstance(value, str) and codec.from_stored is not None:
        try:
            parsed = codec.from_stored(value)
            codec.pack(parsed)
        except (DecodeError, InvalidValueError):
            parsed = value  # then the codec says below what is wrong with the value as it was given
        value = parsed
    _checked(schema, field, codec.pack, value)
    return value


def _normalised(schema: ModelSchema, source: ColumnSource, value: Any, check: Callable[[Any], object]) -> Any:
    assert source.normalise is not None  # callers have looked
    try:
        folded = source.normalise(value)
    except Exception as error:  # a function of the user may raise anything
        raise InvalidValueError(
            "the key function of a field failed for an operand",
            model=schema.name,
            field=source.name,
            type=type(error).__name__,
            hint="It must take every value that the field can hold.",
        ) from error
    _checked(schema, source.name, check, folded)
    return folded


def _checked(schema: ModelSchema, field: str, check: Callable[[Any], object], value: Any) -> None:
    try:
        check(value)
    except InvalidValueError as error:
        error.model, error.field = schema.name, field
        raise


def _wrong(schema: ModelSchema, field: str, operand: Any, message: str, hint: str) -> InvalidValueError:
    return InvalidValueError(message, model=schema.name, field=field, type=type(operand).__name__, hint=hint)


def _keyword(field: str) -> str:
    return field.replace(".", "__")


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (tuple, list))


def _is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)


def _is_container(value: object) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    return type(value) in _CONTAINERS
