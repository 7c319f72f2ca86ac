"""What queries mean, in plain Python over lists; nothing of the package is used but the objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any


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
    value = ordinal(value)
    if lookup == "range":
        return bool(ordinal(operand[0]) <= value <= ordinal(operand[1]))
    other = ordinal(operand)
    answers = {"gt": value > other, "gte": value >= other, "lt": value < other, "lte": value <= other}
    return bool(answers[lookup])


Group = Sequence[tuple[str, str, Any]]


def matches(record: Any, where: Group, excluded: Iterable[Group] = ()) -> bool:
    """Whether a record satisfies all conditions and no excluded group as a whole."""

    def all_hold(group: Group) -> bool:
        return all(holds(getattr(record, field), lookup, operand) for field, lookup, operand in group)

    return all_hold(where) and not any(all_hold(group) for group in excluded)


def ordered(records: Iterable[Any], order: Sequence[str]) -> list[Any]:
    """Sorted by fields with ``-`` for descending; None below every value."""

    def position(value: Any) -> tuple[Any, ...]:
        return (False,) if value is None else (True, ordinal(value))

    result = list(records)
    for column in reversed(order):
        field = column.lstrip("-")
        result.sort(key=lambda record: position(getattr(record, field)), reverse=column.startswith("-"))
    return result
