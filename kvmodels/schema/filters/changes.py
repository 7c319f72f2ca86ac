"""New values computed from stored ones, such as ``F("n") + 1``, and checks of the changes of a model.

Rules of this module: pure. A term is data until it is evaluated for an object; its names are looked up in the model
before anything is read, so that a misspelt field fails before the first record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError, PrimaryKeyChangedError, UnknownFieldError
from kvmodels.schema.declare.expressions import Comparison, FieldRef, Lookup, MultiFieldRef, Order, nulls_of, origin
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.properties import hint_to_write
from kvmodels.schema.definition.variants import constructor_of
from kvmodels.schema.filters.operands import nearest_field

_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}

_Method = Callable[["Term", Any], "FieldArithmetic"]


def _methods(symbol: str) -> tuple[_Method, _Method]:
    """Return the methods of ``Term`` for an operator with the term on its left, and on its right."""
    return (
        lambda term, other: FieldArithmetic(symbol, term, other),
        lambda term, other: FieldArithmetic(symbol, other, term),
    )


class Term:
    """Base class of values computed from the stored record: a field, or arithmetic with terms and values.

    Arithmetic is Python's, on the values of the object: ints are exact, and ``Decimal``, ``timedelta`` and str work as
    usual.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError("a Term has no truth value: it has no value before it meets a record")

    __add__, __radd__ = _methods("+")
    __sub__, __rsub__ = _methods("-")
    __mul__, __rmul__ = _methods("*")
    __truediv__, __rtruediv__ = _methods("/")
    __floordiv__, __rfloordiv__ = _methods("//")
    __mod__, __rmod__ = _methods("%")


@dataclass(frozen=True, slots=True, init=False)
class F(Term):
    """The stored value of a field, to compute a new value: ``update(n=F("n") + 1)``.

    It is evaluated for each record in the attempt that writes it, so no change of another writer is lost. All changes
    of one record use its old values: ``update(a=F("b"), b=F("a"))`` swaps them.

    In a filter it is another field of the record: ``filter(sold__gte=F("ordered"))`` or ``F("sold") >= F("ordered")``.
    None equals None and has no order. Such a condition is tested on each record that the rest of the filter finds.

    Args:
        field: the name of a field, a path with dots into nested models, or ``User.n``.

    Examples:
        >>> F("price") * F("count") - 1
        F('price') * F('count') - 1
        >>> from kvmodels import Database, KvModel, PrimaryKey
        >>> class Stock(KvModel, collection="stocks"):
        ...     sku: PrimaryKey[str]
        ...     left: int
        >>> stocks = Database("memory://", models=[Stock])[Stock]
        >>> _ = stocks.bulk_create([Stock(sku="nut", left=5), Stock(sku="bolt", left=7)])
        >>> stocks.all().update(left=F("left") - 2).written
        2
        >>> stocks.get("nut").left
        3
    """

    field: str

    def __init__(self, field: str | FieldRef[Any] | MultiFieldRef[Any]) -> None:
        # Callers without a type checker may pass anything.
        given = cast("object", field)
        if isinstance(given, (FieldRef, MultiFieldRef)):
            given, _ = origin(cast("FieldRef[Any]", given))
        if not isinstance(given, str) or not given:
            raise InvalidValueError(
                "a term needs the name of a field",
                field="field",
                type=type(given).__name__,
                hint='Write F("n") or F(User.n).',
            )
        object.__setattr__(self, "field", given)

    def __repr__(self) -> str:
        return f"F({self.field!r})"

    def asc(self, *, nulls_first: bool = False, nulls_last: bool = False) -> Order:
        """Return the ascending order by the field, for ``order_by``; None comes first unless ``nulls_last`` is set."""
        return Order(self.field, none_at=nulls_of(self.field, nulls_first=nulls_first, nulls_last=nulls_last))

    def desc(self, *, nulls_first: bool = False, nulls_last: bool = False) -> Order:
        """Return the descending order by the field, for ``order_by``; None comes last unless ``nulls_first`` is set."""
        return Order(self.field, True, none_at=nulls_of(self.field, nulls_first=nulls_first, nulls_last=nulls_last))

    def __lt__(self, other: F) -> Comparison:
        return self._compared("lt", other)

    def __le__(self, other: F) -> Comparison:
        return self._compared("lte", other)

    def __gt__(self, other: F) -> Comparison:
        return self._compared("gt", other)

    def __ge__(self, other: F) -> Comparison:
        return self._compared("gte", other)

    def _compared(self, lookup: Lookup, other: F) -> Comparison:
        return Comparison(self.field, lookup, other)


@dataclass(frozen=True, slots=True)
class FieldArithmetic(Term):
    """Two terms, or a term and a value, combined by an arithmetic operator."""

    operator: str
    left: Any
    right: Any

    def __repr__(self) -> str:
        return f"{_shown(self.left)} {self.operator} {_shown(self.right)}"


def _value(part: Any, instance: Any, model: str) -> Any:
    """Return the value of a term for one record; other values unchanged. ``model`` is the name used in errors."""
    if isinstance(part, F):
        return _field_value(part.field, instance, model)
    if not isinstance(part, FieldArithmetic):
        return part
    left, right = _value(part.left, instance, model), _value(part.right, instance, model)
    try:
        return _OPERATIONS[part.operator](left, right)
    except (TypeError, ArithmeticError, ValueError) as error:
        raise InvalidValueError(
            "a new value cannot be computed from the stored ones",
            model=model,
            field=", ".join(dict.fromkeys(_names(part))),
            type=f"{type(left).__name__} {part.operator} {type(right).__name__}",
            hint=_remedy(error, left, right),
        ) from error


def _field_value(field: str, instance: Any, model: str) -> Any:
    value: Any = instance
    for name in field.split("."):
        if value is None:
            raise InvalidValueError(
                "a nested model of a term is None", model=model, field=field, hint="Filter such records out first."
            )
        value = getattr(value, name)
    return value


def _names(part: Any) -> list[str]:
    """Return the names of the fields that a term reads; of other values none."""
    if isinstance(part, FieldArithmetic):
        return [*_names(part.left), *_names(part.right)]
    return [part.field] if isinstance(part, F) else []


def _remedy(error: Exception, left: Any, right: Any) -> str:
    if left is None or right is None:
        return "None takes no part in arithmetic: filter such records out first."
    if isinstance(error, ZeroDivisionError):
        return "Nothing is divided by 0: filter such records out first."
    if isinstance(error, TypeError):
        return "Python has no such operation: give an operand that goes with the type of the field, or use mutate()."
    return "The result is out of the range of its type: filter such records out first."


def _shown(part: Any) -> str:
    return f"({part!r})" if isinstance(part, FieldArithmetic) and part.operator in "+-" else repr(part)


def evaluated(schema: ModelSchema, instance: Any, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return changes with terms replaced by their values for an object; all terms use its old values."""
    for value in changes.values():
        if isinstance(value, Term):
            break
    else:
        return changes
    require_terms(schema, changes)
    return {name: _value(value, instance, schema.name) for name, value in changes.items()}


def require_changes(schema: ModelSchema, changes: Mapping[str, Any]) -> None:
    """Refuse changes that are invalid for every record of the model, before anything is read."""
    keys = {column.field for column in schema.primary_key}
    automatic = {field.name: field for field in schema.time_fields}
    for name in changes:
        if name in keys:
            raise PrimaryKeyChangedError(
                "a change of several records names a field of the primary key", model=schema.name, key=name
            )
        if name in automatic:
            raise InvalidArgumentError(
                "a change names a field that the library sets",
                argument=name,
                value=automatic[name].automatic,
                hint="Leave it out: every write sets it.",
            )
    require_fields(schema, changes)
    require_terms(schema, changes)


def require_fields(schema: ModelSchema, changes: Iterable[str]) -> None:
    """Raise UnknownFieldError for a name that is not a field of the model, nor of any class of its collection.

    A class that keeps extra fields accepts any name except the alias of a field, which would be stored as a second
    value of the field.
    """
    schemas = (schema,) if schema.variants is None else (schema, *schema.variants.by_class.values())
    for name in changes:
        if not any(name in one.fields or keeps_extra(one, name) for one in schemas):
            raise unknown_field(schema, name, "a change names a field that the model does not have")


def keeps_extra(schema: ModelSchema, name: str) -> bool:
    """Return whether a change with this name, which is not a field, sets an extra field."""
    model = schema.model
    return model.model_config.get("extra") == "allow" and name not in constructor_of(model).aliases


def require_terms(schema: ModelSchema, changes: Mapping[str, Any]) -> None:
    """Raise UnknownFieldError for a term with a field that the model does not have."""
    for value in changes.values():
        for name in _names(value):
            head, _, rest = name.partition(".")
            source = schema.source(name) if rest else None
            if head not in schema.fields or (rest and (source is None or source.many)):
                raise unknown_field(schema, name, "a term names a field that the model does not have")


def unknown_field(schema: ModelSchema, name: str, message: str) -> UnknownFieldError:
    """Return the error for a change or term with a field that the model does not have."""
    return UnknownFieldError(
        message,
        model=schema.name,
        field=name,
        suggestion=nearest_field(schema, name),
        hint=hint_to_write(schema.model, name) or "Use the names of fields, not aliases.",
    )


show_public_path(F)
