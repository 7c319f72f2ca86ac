"""Members of sets and keys of dicts that differ in Python, and would be equal when they are read again.

A stored datetime keeps its offset, not its time zone. In an hour that the clocks of a zone repeat or skip, Python
considers a datetime unequal to the same instant in every other zone; as read, with fixed offsets, they are equal.

Rules of this module: nothing else changes its equality in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timezone
from typing import Any, Final, cast

from kvmodels.errors import InvalidValueError

_MAY_CHANGE: Final = frozenset({datetime, tuple, frozenset})


def is_repeated(value: datetime) -> bool:
    """Return whether the offset of a datetime depends on ``fold``, because its zone repeats or skips the hour."""
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return False
    return value.utcoffset() != value.replace(fold=1 - value.fold).utcoffset()


def equal_when_read() -> InvalidValueError:
    """Return the error for members or keys of which one would be lost."""
    return InvalidValueError(
        "two members or keys would be equal when they are read, so that one of them would be lost",
        hint="They are one value written in two ways, such as one instant in two time zones: leave one out.",
    )


def require_distinct(members: Collection[object], kind: str) -> None:
    """Refuse members or keys that are equal when they are read. Raises InvalidValueError without a path."""
    for member in members:
        if type(member) in _MAY_CHANGE:
            break
    else:
        return
    if len({_as_read(member) for member in members}) != len(members):
        error = equal_when_read()
        error.type = kind
        raise error


def _as_read(value: Any) -> Any:
    """Return a member as it is read again."""
    kind = cast("type[object]", type(value))
    if kind is datetime:
        offset = value.utcoffset()
        return value if offset is None else value.replace(tzinfo=timezone(offset), fold=0)
    if kind is tuple or kind is frozenset:
        return cast("Callable[[list[Any]], object]", kind)([_as_read(item) for item in value])
    return value
