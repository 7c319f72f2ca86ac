"""One page of a query, as callers get it.

Rules of this module: data only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Page"]

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """One page of a query; iterating over it gives its items.

    Attributes:
        items: the objects, in the order of the query.
        next_cursor: what to pass as ``after`` for the next page; None at the end.
        has_more: whether there is a next page.
    """

    items: list[M]
    next_cursor: str | None
    has_more: bool

    def __iter__(self) -> Iterator[M]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
