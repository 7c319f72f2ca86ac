"""Maintenance of indexes that are not plain, for the writer of complete indexes.

Rules of this module: pure. What is said to be unchanged certainly is: a document has the same contents in an index if
every field that the index needs has the same stored value.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import Delete, Mutation, Set
from kvmodels.indexing.kinds.contract import Contents
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import Document

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
_LARGEST: Final = 1 << 63
"""Every column of integers holds one of a smaller magnitude."""


def _is_same_stored(one: Any, other: Any) -> bool:
    """Return whether two stored values are certainly packed to the same bytes, and accepted by the same columns."""
    kind: object = one.__class__
    if kind is not other.__class__:
        return False
    if kind is list:
        return len(one) == len(other) and all(map(_is_same_stored, one, other))
    if kind is dict:
        return one.keys() == other.keys() and all(_is_same_stored(one[name], other[name]) for name in one)
    if kind is int:
        return bool(one == other) and -_LARGEST < one < _LARGEST
    if kind is float:
        return bool(one == other) and (one != 0.0 or str(one) == str(other))  # 0.0 equals -0.0
    return kind in _COMPARED and bool(one == other)


_COMPARED: Final[frozenset[object]] = frozenset({str, bool, bytes, NoneType})
_ABSENT: Final = object()


class OtherIndex:
    """An index that is not plain, as the writer maintains it: by the contents of the old and the new record."""

    __slots__ = ("contents", "counts", "fields", "most", "writes_always")

    def __init__(self, index: LiveIndex) -> None:
        kind, definition = maintenance_of(index), index.definition
        heads = (column.path[0] if column.path else column.field for column in definition.needed_columns)
        self.fields = tuple(dict.fromkeys((*heads, *definition.include)))
        self.contents = kind.contents
        self.counts = kind.has_counters
        self.writes_always = kind.writes_always
        self.most = definition.max_fan_out

    def is_same(self, before: Document, after: Document) -> bool:
        """Return whether two documents certainly have the same contents."""
        for name in self.fields:
            old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
            if old is not new and not _is_same_stored(old, new):
                return False
        return not self.writes_always


def add_difference(had: Contents, has: Contents, mutations: list[Mutation], *, always: bool) -> None:
    """Set the entries that a record has, if they differ or ``always``, and delete those that it has no more."""
    for key, value in has.entries.items():
        if always or had.entries.get(key) != value:
            mutations.append(_new(Set, (key, *value, None, False)))
    mutations += [_new(Delete, (key,)) for key in had.entries if key not in has.entries]
