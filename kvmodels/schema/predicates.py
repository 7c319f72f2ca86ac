"""From keyword lookups and typed expressions to conditions that are known to make sense.

What a comparison means where None is involved:

- ``field=None`` and ``field__exact=None`` are ``field__isnull=True``; ``field__ne=None`` is ``field__isnull=False``;
- None in the list of ``in`` matches None, as Python's ``in`` does;
- ``gt``, ``gte``, ``lt``, ``lte``, ``range`` and ``startswith`` never match None and refuse it as an operand;
- ``ne``, ``not_in`` and ``exclude()`` are plain negation: a record whose field is None is "not equal to 5" and is
  returned, as with Django's ``exclude()`` (SQL's ``<>`` would lose it silently).

Rules of this module: pure; every operand is converted to the Python type of its field and checked here, before
anything is planned or read. A field whose type cannot be a column is compared with Python's ``==``, and has no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeGuard, get_args

from kvmodels.errors import DecodeError, InvalidValueError, UnknownFieldError, UnknownLookupError
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.expressions import Comparison, Expression, Lookup

__all__ = ["PRIMARY_KEY", "Condition", "key_values", "known_field", "negated", "parse"]

PRIMARY_KEY: Final = "pk"
"""The name that stands for the primary key in lookups and orders, as in Django."""

_LOOKUPS: Final = frozenset(get_args(Lookup))
_UNORDERED: Final = frozenset({"exact", "ne", "in", "not_in", "isnull"})
_OPPOSITES: Final[Mapping[str, Lookup]] = {"exact": "ne", "ne": "exact", "in": "not_in", "not_in": "in"}
_REVERSED: Final[Mapping[str, Lookup]] = {"gt": "lte", "lte": "gt", "lt": "gte", "gte": "lt"}
_PARTIALLY_ORDERED: Final = frozenset({"float", "decimal"})
"""Columns whose fields may hold NaN while they are not indexed: then "not greater" is not "less or equal"."""


class Condition(NamedTuple):
    """One field compared with an operand that was converted and checked.

    ``operand`` is a value; a tuple of distinct values for ``in`` and ``not_in``; ``(low, high, bounds)`` for
    ``range``; a bool for ``isnull``. ``exact`` and ``ne`` never hold None. The field ``pk`` with ``in`` or ``not_in``
    is a composite primary key, and its operand holds tuples.
    """

    field: str
    lookup: Lookup
    operand: Any


def parse(schema: ModelSchema, expressions: Iterable[Expression], keywords: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions, all of which must hold, of the arguments of one ``filter()`` or ``exclude()``.

    Raises:
        UnknownFieldError: no such field; the nearest name is suggested.
        UnknownLookupError: no such lookup, or not for this field.
        InvalidValueError: an operand that the field cannot hold; the field is named.
    """
    conditions: list[Condition] = []
    for given in expressions:
        comparison = _comparison(schema, given)
        name = known_field(schema, comparison.field)
        conditions += _conditions(schema, name, comparison.lookup, comparison.operand)
    for keyword, operand in keywords.items():
        name, lookup = _split(schema, keyword)
        conditions += _conditions(schema, name, lookup, operand)
    return tuple(conditions)


def negated(schema: ModelSchema, condition: Condition) -> Condition | None:
    """The one condition that holds exactly where this one does not, or None when there is no such condition."""
    field, lookup, operand = condition
    if lookup in _OPPOSITES:
        return Condition(field, _OPPOSITES[lookup], operand)
    if lookup == "isnull":
        return Condition(field, "isnull", not operand)
    codec = schema.column_codecs.get(field)
    total = codec is not None and codec.name not in _PARTIALLY_ORDERED and field not in schema.nullable_fields
    return Condition(field, _REVERSED[lookup], operand) if total and lookup in _REVERSED else None


def key_values(schema: ModelSchema, key: Any) -> tuple[Any, ...]:
    """The values of a primary key as people give it: the value, or a tuple when it is composite.

    Raises:
        InvalidValueError: not a tuple of the right length, or a value that its field cannot hold.
    """
    columns = schema.primary_key
    if len(columns) == 1:
        return (_converted(schema, columns[0].field, key),)
    values = key if _is_tuple(key) else ()
    if len(values) != len(columns):
        raise InvalidValueError(
            "a composite primary key is given as a tuple of all its values",
            model=schema.name,
            field=PRIMARY_KEY,
            type=type(key).__name__,
            hint=f"Give ({', '.join(column.field for column in columns)}).",
        )
    return tuple(_converted(schema, column.field, value) for column, value in zip(columns, values, strict=True))


def known_field(schema: ModelSchema, name: str) -> str:
    """The name of a stored field, or ``pk``.

    Raises:
        UnknownFieldError: there is no such field.
    """
    if name in schema.fields or name == PRIMARY_KEY:
        return name
    near = get_close_matches(name, [*schema.fields, PRIMARY_KEY], n=1)
    raise UnknownFieldError(
        "the model has no field of this name",
        model=schema.name,
        field=name,
        suggestion=near[0] if near else None,
        hint=f"Its fields are: {', '.join(schema.fields)}.",
    )


def _comparison(schema: ModelSchema, expression: object) -> Comparison:
    # Callers without a type checker may pass anything, for example the result of `18 == 18`.
    if not isinstance(expression, Comparison):
        raise InvalidValueError(
            "this is not an expression",
            model=schema.name,
            type=type(expression).__name__,
            hint=f"Write an expression such as {schema.name}.field >= 18, or a keyword such as field__gte=18.",
        )
    model = expression.model
    if model is not None and not issubclass(schema.model, model):
        raise UnknownFieldError(
            "the expression is about another model",
            model=schema.name,
            field=f"{model.__name__}.{expression.field}",
            hint=f"Take the field from the class: {schema.name}.{expression.field}.",
        )
    return expression


def _split(schema: ModelSchema, keyword: str) -> tuple[str, Lookup]:
    if keyword in schema.fields or keyword == PRIMARY_KEY:
        return keyword, "exact"
    name, separator, lookup = keyword.rpartition("__")
    if not separator:
        return known_field(schema, keyword), "exact"
    if lookup not in _LOOKUPS and name not in schema.fields:
        name = keyword.partition("__")[0]
    known_field(schema, name)
    for known in get_args(Lookup):
        if known == lookup:
            return name, known
    raise _unknown_lookup(schema, name, lookup, _LOOKUPS)


def _unknown_lookup(schema: ModelSchema, field: str, lookup: str, known: Iterable[str]) -> UnknownLookupError:
    names = sorted(known)
    near = get_close_matches(lookup, names, n=1)
    return UnknownLookupError(
        "this lookup does not exist for this field",
        model=schema.name,
        field=field,
        lookup=lookup,
        suggestion=near[0] if near else None,
        hint=f"It has: {', '.join(names)}.",
    )


def _conditions(schema: ModelSchema, field: str, lookup: Lookup, operand: Any) -> Iterable[Condition]:
    if field == PRIMARY_KEY:
        if len(schema.primary_key) > 1:
            return _composite(schema, lookup, operand)
        field = next(column.field for column in schema.primary_key)
    available = _available(schema, field)
    if lookup not in available:
        raise _unknown_lookup(schema, field, lookup, available)
    return (_condition(schema, field, lookup, operand),)


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (tuple, list))


def _is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable)


def _available(schema: ModelSchema, field: str) -> frozenset[str]:
    codec = schema.column_codecs.get(field)
    if codec is None:
        return _UNORDERED
    return _LOOKUPS if codec.pack_prefix is not None else _LOOKUPS - {"startswith"}


def _composite(schema: ModelSchema, lookup: Lookup, operand: Any) -> Iterable[Condition]:
    if lookup == "exact":
        values = key_values(schema, operand)
        return [Condition(column.field, "exact", v) for column, v in zip(schema.primary_key, values, strict=True)]
    if lookup in ("in", "not_in"):
        keys = tuple(key_values(schema, key) for key in _listed(schema, PRIMARY_KEY, operand))
        return (Condition(PRIMARY_KEY, lookup, keys),)
    raise _unknown_lookup(schema, PRIMARY_KEY, lookup, ("exact", "in", "not_in"))


def _condition(schema: ModelSchema, field: str, lookup: Lookup, operand: Any) -> Condition:
    if lookup == "isnull":
        if not isinstance(operand, bool):
            raise _wrong(schema, field, operand, "isnull takes True or False", "Write field__isnull=True.")
        return Condition(field, lookup, operand)
    if operand is None and lookup in ("exact", "ne"):
        return Condition(field, "isnull", lookup == "exact")
    if lookup in ("in", "not_in"):
        values = _listed(schema, field, operand)
        return Condition(
            field, lookup, tuple(None if value is None else _converted(schema, field, value) for value in values)
        )
    if lookup == "range":
        return Condition(field, lookup, _range(schema, field, operand))
    if lookup == "startswith":
        codec = schema.column_codecs[field]
        assert codec.pack_prefix is not None  # _available saw to it
        _checked(schema, field, codec.pack_prefix, operand)
        return Condition(field, lookup, operand)
    return Condition(field, lookup, _converted(schema, field, operand))


def _wrong(schema: ModelSchema, field: str, operand: Any, message: str, hint: str) -> InvalidValueError:
    return InvalidValueError(message, model=schema.name, field=field, type=type(operand).__name__, hint=hint)


def _listed(schema: ModelSchema, field: str, operand: Any) -> tuple[Any, ...]:
    if isinstance(operand, (str, bytes, bytearray, Mapping)) or not _is_iterable(operand):
        raise _wrong(schema, field, operand, "in takes a list of values", "Write field__in=[...], or field=value.")
    return tuple(operand)


def _range(schema: ModelSchema, field: str, operand: Any) -> tuple[Any, Any, str]:
    # A keyword gives (low, high), with both ends, as Django's range; User.age.between() adds its bounds.
    ends = tuple(operand) if _is_sequence(operand) else ()
    if len(ends) == 2:
        ends = (*ends, "[]")
    if len(ends) != 3 or ends[2] not in ("[]", "[)", "(]", "()"):
        raise _wrong(schema, field, operand, "range takes two values", "Write field__range=(low, high).")
    return _converted(schema, field, ends[0]), _converted(schema, field, ends[1]), ends[2]


def _checked(schema: ModelSchema, field: str, check: Callable[[Any], object], value: Any) -> None:
    try:
        check(value)
    except InvalidValueError as error:
        error.model, error.field = schema.name, field
        raise


def _converted(schema: ModelSchema, field: str, value: Any) -> Any:
    """The value as the field holds it: text is read as the value that it stands for, as of a UUID or a date."""
    codec = schema.column_codecs.get(field)
    if codec is None:
        return value
    if isinstance(value, str) and codec.from_stored is not None:
        try:
            parsed = codec.from_stored(value)
            codec.pack(parsed)
        except (DecodeError, InvalidValueError):
            parsed = value  # then the codec says below what is wrong with the value as it was given
        value = parsed
    _checked(schema, field, codec.pack, value)
    return value
