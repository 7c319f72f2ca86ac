"""Comparisons that ``==`` gets wrong for storage: stored values by type and bits, live values by what they hold.

Rules of this module: neither function raises and neither calls an ``__eq__`` of the user.
"""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from struct import pack
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from kvmodels.ulid import ULID

__all__ = ["same_stored", "unchanged"]

_SCALARS = frozenset({bool, int, float, str, bytes, type(None), date, datetime, time, timedelta, Decimal, UUID, ULID})


def same_stored(first: Any, second: Any) -> bool:
    """Whether two stored values have the same bytes; ``1``, ``1.0`` and ``True`` differ, and NaN equals itself.

    Examples:
        >>> same_stored([float("nan")], [float("nan")]), same_stored({1}, {True}), same_stored(0.0, -0.0)
        (True, False, False)
    """
    kind: type[Any] = first.__class__
    if kind is not second.__class__:
        return False
    if kind is float:
        return pack(">d", first) == pack(">d", second)
    if kind is list:
        return len(first) == len(second) and all(map(same_stored, first, second))
    if kind is dict:
        return len(first) == len(second) and all(
            same_stored(k, other) and same_stored(v, w)
            for (k, v), (other, w) in zip(first.items(), second.items(), strict=True)
        )
    if kind is set or kind is frozenset:
        return {(item.__class__, item) for item in first} == {(item.__class__, item) for item in second}
    if kind is datetime:
        return bool(first.isoformat() == second.isoformat())
    return first is second or bool(first == second)


def unchanged(old: Any, new: Any) -> bool:
    """Whether a value validated again holds what it held before, so that the old one may stay.

    Examples:
        >>> unchanged([1, ["a"]], [1, ["a"]]), unchanged([1], [True]), unchanged((1,), [1])
        (True, False, False)
    """
    if old is new:
        return True
    kind: type[Any] = old.__class__
    if kind is not new.__class__:
        return False
    if _is_leaf(old):
        return bool(old == new)
    if kind is list or kind is tuple:
        return len(old) == len(new) and all(map(unchanged, old, new))
    if kind is dict:
        return len(old) == len(new) and all(k in new and unchanged(v, new[k]) for k, v in old.items())
    if kind is set or kind is frozenset:
        return all(map(_is_leaf, old)) and all(map(_is_leaf, new)) and bool(old == new)
    if isinstance(old, BaseModel):
        return unchanged(old.__dict__, new.__dict__) and unchanged(old.__pydantic_extra__, new.__pydantic_extra__)
    if dataclasses.is_dataclass(old):
        names = [field.name for field in dataclasses.fields(old)]
        return all(unchanged(getattr(old, name, old), getattr(new, name, new)) for name in names)
    return False


def _is_leaf(value: Any) -> bool:
    return value.__class__ in _SCALARS or isinstance(value, Enum)
