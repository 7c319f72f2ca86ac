"""Containers that hash and compare by identity, as JavaScript's do when they are keys of a Map or members of a Set.

Rules of this module: only the reader makes them, and only of containers in such a place; everywhere else a container is
a plain dict, list or set.
"""

from __future__ import annotations

from typing import Any

from kvmodels.values import KvArray, KvMap

__all__ = ["IdentityDict", "IdentityList", "IdentityMap", "IdentitySet"]


class IdentityDict(dict[Any, Any]):
    """A JavaScript object that is a key or a member."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class IdentityMap(KvMap):
    """A Map that is a key or a member."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class IdentityList(KvArray):
    """An array that is a key or a member."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class IdentitySet(set[Any]):
    """A Set that is a key or a member."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)
