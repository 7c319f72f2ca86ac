"""Reads the values of a column out of a stored document: of a field, of a field of nested models, of a list.

A column of one value is read as that value, or None. A column of several is read as None, when the list itself (or a
model on the way to it) is None, or as a list of its elements. Elements that are None are no elements: they have no
entry and match nothing, so that "is None" means the same for an entry, for a stored document and for an object.

Rules of this module: works on stored documents alone and never decodes. What a document does not hold, or holds in
another form than its model stores it, is a KeyError: the record must then be decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, cast

from kvmodels.schema.definition import Column, Document

__all__ = ["COMPUTED", "RESERVED_FIELD", "Reader", "computed_path", "reader", "reader_of", "stored_name"]

RESERVED_FIELD = "$kv"
"""Key of a document under which the library keeps its own data: ``v``, the schema version when it is above 1, and
``c``, the values of computed columns."""

COMPUTED = "c"
"""Key in the library's own data under which a document holds the values of computed columns."""

_CONTAINERS: Final = (list, set, frozenset)

Reader = Callable[[Document], Any]


def computed_path(stored_as: str) -> tuple[str, ...]:
    """Where a document holds the value of a computed column."""
    return (RESERVED_FIELD, COMPUTED, stored_as)


def stored_name(path: tuple[str, ...]) -> str | None:
    """The name under which a computed column is stored, or None for the path of anything else."""
    return path[2] if path[:2] == (RESERVED_FIELD, COMPUTED) else None


def reader_of(column: Column) -> Reader:
    """What reads a column out of a document; see ``reader``."""
    return reader(column.path or (column.field,), many=column.many)


def reader(path: tuple[str, ...], *, many: bool) -> Reader:
    """What reads the value or the values at a path out of a document; it raises KeyError when they are not there.

    Examples:
        >>> city = reader(("address", "city"), many=False)
        >>> city({"address": {"city": "Rome"}}), city({"address": None})
        ('Rome', None)
        >>> cities = reader(("homes", "city"), many=True)
        >>> cities({"homes": [{"city": "Rome"}, {"city": None}, {"city": "Oslo"}]}), cities({"homes": None})
        (['Rome', 'Oslo'], None)
    """
    if many:
        return lambda document: _several(document, path)
    if len(path) == 1:
        return itemgetter(path[0])
    if path[0] == RESERVED_FIELD:
        return _computed(path[-1])
    return lambda document: _one(document, path)


def _computed(stored_as: str) -> Reader:
    def read(document: Document) -> Any:
        try:
            return document[RESERVED_FIELD][COMPUTED][stored_as]
        except TypeError:
            raise KeyError(stored_as) from None

    return read


def _one(document: Document, path: tuple[str, ...]) -> Any:
    value: Any = document
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise KeyError(name)
        value = cast("dict[str, Any]", value)[name]
    return value


def _several(document: Document, path: tuple[str, ...]) -> list[Any] | None:
    # The list of a computed column is at the end of its path, and nothing on the way to it is one.
    found = _one(document, path) if path[0] == RESERVED_FIELD else _walk(document, path)
    if found is not None and found.__class__ is not list:
        raise KeyError(path[-1])
    values: list[Any] | None = found
    return values


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path, or the list of those in all elements of the containers on the way and at its end."""
    for position, name in enumerate(path):
        if value is None:
            return None
        if isinstance(value, _CONTAINERS):
            return _elements(_walk(item, path[position:]) for item in cast("list[Any]", value))
        if not isinstance(value, dict):
            raise KeyError(name)
        value = cast("dict[str, Any]", value)[name]
    return _elements(cast("list[Any]", value)) if isinstance(value, _CONTAINERS) else value


def _elements(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value.__class__ is list:
            found.extend(value)
        elif value is not None:
            found.append(value)
    return found
