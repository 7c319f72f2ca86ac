"""One page of a query, as callers get it.

Rules of this module: data only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from kvmodels.public_path import show_public_path
from kvmodels.slotted import dataclass

__all__ = ["Page"]

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """One page of a query; iterating over it gives its items.

    A cursor is a place between two items, so either one may be passed as ``after`` or as ``before``.

    Attributes:
        items: the objects, in the order of the query.
        next_cursor: the place behind the last item, to pass as ``after`` for the next page; None at the end.
        has_more: whether there is a next page.
        previous_cursor: the place before the first item, to pass as ``before`` for the page before; None at the
            beginning.
        has_previous: whether there is a page before this one. Of the two directions only the one that was read is
            known for certain: what lies on the side of the cursor that was given may have been removed since.
    """

    items: list[M]
    next_cursor: str | None
    has_more: bool
    previous_cursor: str | None = None
    has_previous: bool = False

    def __iter__(self) -> Iterator[M]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


show_public_path(Page)
