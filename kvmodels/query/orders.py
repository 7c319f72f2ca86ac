"""The columns of an order as text, as plans and errors show them.

Rules of this module: pure. A column is ``"age"`` or ``"-age"``; if its None comes at the end where indexes do not have
it, ``"age nulls last"`` or ``"-age nulls first"``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kvmodels.errors import InvalidArgumentError

_NULLS_FIRST: Final = " nulls first"
_NULLS_LAST: Final = " nulls last"


def order_names(directions: Iterable[tuple[str, bool]], placed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns of an order as text, ``-`` for descending; ``placed``: as ``Query.placed``."""
    names = tuple(f"-{field}" if descending else field for field, descending in directions)
    return placed_names(names, placed) if placed else names


def placed_names(names: Iterable[str], placed: Collection[str]) -> tuple[str, ...]:
    """Return the columns with the end of None for those that are placed."""
    return tuple(
        name + (_NULLS_FIRST if name.startswith("-") else _NULLS_LAST) if name.removeprefix("-") in placed else name
        for name in names
    )


def refuse_placed(placed: tuple[str, ...], method: str) -> None:
    """Raise InvalidArgumentError if None comes at the end of the order where indexes do not have it."""
    if placed:
        raise InvalidArgumentError(
            "groups and distinct values have None where indexes have it",
            argument="order_by",
            value=placed,
            expected=method,
            hint="Leave out nulls_first and nulls_last, or sort the rows in Python.",
        )


def turned_name(name: str) -> str:
    """Return a column with the direction reversed."""
    turned = name[1:] if name.startswith("-") else f"-{name}"
    if turned.endswith(_NULLS_LAST):
        return turned.removesuffix(_NULLS_LAST) + _NULLS_FIRST
    return turned.removesuffix(_NULLS_FIRST) + _NULLS_LAST if turned.endswith(_NULLS_FIRST) else turned
