"""The meaning of queries, in plain Python over lists; nothing of the package is used but the objects.

A filter with ``&``, ``|`` and ``~`` is a tree of ``Is``, ``Both``, ``Either`` and ``Neg``. What a name means for a
record, folded and nested values included, is told by a ``Reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple, Protocol, TypeAlias


def ordinal(value: Any) -> Any:
    """A value that Python can compare, for types that have an order only here."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, IPv4Address | IPv6Address):
        return (value.version, int(value))
    return value


def holds(value: Any, lookup: str, operand: Any) -> bool:
    """Whether one comparison holds."""
    if lookup == "isnull":
        return (value is None) is operand
    if lookup in ("exact", "ne"):
        return (value == operand) is (lookup == "exact")
    if lookup in ("in", "not_in"):
        return any(value == one for one in operand) is (lookup == "in")
    if value is None:
        return False
    if lookup == "startswith":
        return bool(value[: len(operand)] == operand)
    if lookup == "contains":
        return operand in value
    value = ordinal(value)
    if lookup == "range":
        low, high, bounds = (*operand, "[]") if len(operand) == 2 else operand
        above = ordinal(low) <= value if bounds[0] == "[" else ordinal(low) < value
        return bool(above and (value <= ordinal(high) if bounds[1] == "]" else value < ordinal(high)))
    other = ordinal(operand)
    answers = {"gt": value > other, "gte": value >= other, "lt": value < other, "lte": value <= other}
    return bool(answers[lookup])


WHOLE = ("exact", "ne", "in", "not_in")
"""Lookups that compare a field with several values as a whole, unless they are about any of its elements."""

Group = Sequence[tuple[str, str, Any]]


def matches(record: Any, where: Group, excluded: Iterable[Group] = ()) -> bool:
    """Whether a record satisfies all conditions and no excluded group as a whole."""

    def all_hold(group: Group) -> bool:
        return all(holds(getattr(record, field), lookup, operand) for field, lookup, operand in group)

    return all_hold(where) and not any(all_hold(group) for group in excluded)


class Is(NamedTuple):
    """One comparison; with ``any`` it is about one element of a field with several values at least."""

    field: str
    lookup: str
    operand: Any
    any: bool = False


class Both(NamedTuple):
    """All parts hold."""

    parts: tuple[Tree, ...]


class Either(NamedTuple):
    """One part holds at least."""

    parts: tuple[Tree, ...]


class Neg(NamedTuple):
    """The part does not hold."""

    part: Tree


Tree: TypeAlias = Is | Both | Either | Neg


class Reader(Protocol):
    """The meaning of the names of a model."""

    def value(self, record: Any, name: str) -> Any:
        """The value to compare, folded if the field is; a list, a set or None for a field with several values."""
        ...

    def fold(self, name: str) -> Callable[[Any], Any]:
        """Return the operands in the form in which they are compared."""
        ...

    def many(self, name: str) -> bool:
        """Whether the field has several values."""
        ...


def satisfies(reader: Reader, record: Any, tree: Tree) -> bool:
    """Whether a record satisfies a tree of conditions."""
    match tree:
        case Both(parts):
            return all(satisfies(reader, record, part) for part in parts)
        case Either(parts):
            return any(satisfies(reader, record, part) for part in parts)
        case Neg(part):
            return not satisfies(reader, record, part)
    value, lookup = reader.value(record, tree.field), tree.lookup
    if lookup == "isnull":
        return (value is None) is tree.operand
    if reader.many(tree.field) and not tree.any and lookup in WHOLE:
        return holds(value, lookup, whole(lookup, tree.operand, reader.fold(tree.field)))
    operand = folded(lookup, tree.operand, reader.fold(tree.field))
    if tree.any:
        return any(holds(element, lookup, operand) for element in value or ())
    if not reader.many(tree.field):
        return holds(value, lookup, operand)
    elements = value or ()
    if lookup == "contains":
        return operand in elements
    found = [one in elements for one in operand]
    return any(found) if lookup == "contains_any" else all(found)


def folded(lookup: str, operand: Any, fold: Callable[[Any], Any]) -> Any:
    """The operand as the values that it is compared with are; None stands for itself."""
    if lookup in ("in", "not_in", "contains_any", "contains_all"):
        return tuple(None if one is None else fold(one) for one in operand)
    if lookup == "range":
        return (fold(operand[0]), fold(operand[1]), *operand[2:])
    return None if operand is None else fold(operand)


def whole(lookup: str, operand: Any, fold: Callable[[Any], Any]) -> Any:
    """The same for an operand that is compared with a whole list or set, or several such."""
    if lookup in ("in", "not_in"):
        return [whole("exact", one, fold) for one in operand]
    return None if operand is None else type(operand)(map(fold, operand))


def position(value: Any) -> tuple[Any, ...]:
    """Where a value stands in an order: None is below every other one."""
    return (False,) if value is None else (True, ordinal(value))


def sorted_by(reader: Reader, records: Iterable[Any], order: Sequence[str]) -> list[Any]:
    """Sorted by names with ``-`` for descending."""
    result = list(records)
    for column in reversed(order):
        name = column.removeprefix("-")
        result.sort(key=lambda record: position(reader.value(record, name)), reverse=column.startswith("-"))
    return result


def ordered(records: Iterable[Any], order: Sequence[str]) -> list[Any]:
    """Sorted by attributes with ``-`` for descending; None below every value."""
    result = list(records)
    for column in reversed(order):
        field = column.lstrip("-")
        result.sort(key=lambda record: position(getattr(record, field)), reverse=column.startswith("-"))
    return result
