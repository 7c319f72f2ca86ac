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
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


class IdentityMap(KvMap):
    """A Map that is a key or a member."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


class IdentityList(KvArray):
    """An array that is a key or a member."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__


class IdentitySet(set[Any]):
    """A Set that is a key or a member."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__
