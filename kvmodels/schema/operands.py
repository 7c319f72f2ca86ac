"""Operands of comparisons: converted to what their column holds, normalised as the column is, and checked.

Rules of this module: pure. An operand that the column cannot hold is an InvalidValueError that names the field, before
anything is planned or read. None is never given to the function of a folded field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeGuard

from kvmodels.encoding.column_scalars import DECIMAL
from kvmodels.encoding.columns import ColumnCodec
from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.schema.definition import ColumnSource, ModelSchema
from kvmodels.schema.expressions import (
    Comparable,
    Expression,
    MultiFieldRef,
    Order,
    is_bounds,
    is_list_of_values,
)
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.nesting import container_kinds

__all__ = [
    "bounds_of",
    "flag",
    "folded_whole",
    "key_values",
    "listed",
    "prefix_of",
    "refuse_reference",
    "takes_as_given",
    "value_of",
    "values_of",
    "whole_of",
]

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


def takes_as_given(codec: ColumnCodec) -> bool:
    """Whether an operand is packed as it is: no text is read as what it stands for, no number is converted."""
    return codec.from_stored is None and codec.name != DECIMAL.name


def value_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """The value as the column holds it: text is read as what it stands for (a UUID, a date), then it is folded.

    Raises:
        InvalidValueError: the column cannot hold it; None never can.
    """
    converted = _converted(schema, source.name, source, value)
    return converted if source.normalise is None else _normalised(schema, source, converted, source.codec.pack)


def values_of(schema: ModelSchema, source: ColumnSource, written: str, operand: Any, *, nulls: bool) -> tuple[Any, ...]:
    """A list of values, each once, because equal values have one packed part; with ``nulls`` one may be None.

    ``written`` is the lookup as people write it behind the name of the field.

    Raises:
        InvalidValueError: no list, or a value that the column cannot hold.
    """
    given = listed(schema, source.name, written, operand)
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
    if len(ends) != 3 or not is_bounds(ends[2]):
        hint = f"Write {_keyword(source.name)}__range=(low, high)."
        raise _wrong(schema, source.name, operand, "range takes two values", hint)
    return value_of(schema, source, ends[0]), value_of(schema, source, ends[1]), ends[2]


def flag(schema: ModelSchema, field: str, operand: Any) -> bool:
    """The operand of ``isnull``.

    Raises:
        InvalidValueError: neither True nor False.
    """
    if not isinstance(operand, bool):
        raise _wrong(
            schema, field, operand, "isnull takes True or False", f"Write {_keyword(field)}__isnull=True, or False."
        )
    return operand


def listed(schema: ModelSchema, field: str, written: str, operand: Any) -> tuple[Any, ...]:
    """The operand of ``in`` and its like; ``written`` is the lookup as people write it behind the name of the field.

    Raises:
        InvalidValueError: a text or a mapping, or nothing that can be iterated.
    """
    if not is_list_of_values(operand):
        hint = f"Write {_keyword(field)}__{written}=[...], with the values in brackets."
        raise _wrong(schema, field, operand, "this lookup takes a list of values", hint)
    return tuple(operand)


def refuse_reference(schema: ModelSchema, field: str, operand: Any) -> None:
    """Refuse a field or an expression where a value belongs: two fields of a record cannot be compared.

    Raises:
        InvalidValueError: the operand is one, or has one among its values.
    """
    for part in operand if type(operand) in _CONTAINERS else (operand,):
        if isinstance(part, (Comparable, MultiFieldRef, Expression, Order)):
            hint = "Give a value. To compare two fields with each other, declare a computed column of both."
            raise _wrong(schema, field, part, "a field is compared with a value", hint)


def whole_of(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """All the values of a field with several, to be compared with the whole field, each folded if the field is.

    Raises:
        InvalidValueError: one value, which would never be equal, or a list for a set.
    """
    kinds = container_kinds(schema.model, source.name)
    if not isinstance(value, kinds):
        name = _keyword(source.name)
        hint = f"Give a {kinds[0].__name__} of them, or write {name}__contains=value to find one among them."
        raise _wrong(schema, source.name, value, "a field with several values is compared with all of them", hint)
    return folded_whole(source, value)


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
    elif type(value) is int and codec.name == DECIMAL.name:
        value = Decimal(value)  # exact; a float is not, and is refused
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


def _is_container(value: object) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    return type(value) in _CONTAINERS
