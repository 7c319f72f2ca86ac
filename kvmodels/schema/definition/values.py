"""Access to the values in a stored document by column and by field, and their comparison.

A column with one value is read as that value, or None. A column with several values is read as None if the list itself
(or a model on the path to it) is None, and otherwise as a list of its elements. Elements that are None do not count:
they have no entry and match nothing, so that "is None" means the same for an entry, a stored document and an object.
Stored values are compared by type and bits, live values by their content, because ``==`` is wrong for both.

Rules of this module: it reads stored documents. A document that lacks a column, or holds it in another form than its
model stores, raises KeyError: the record must then be decoded and encoded again. A single field that is not a column is
decoded separately. Comparisons never raise and never call a user's ``__eq__``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from copy import copy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import itemgetter
from struct import pack
from typing import Any, Final, cast
from uuid import UUID

import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvmodels.core.ulid import ULID
from kvmodels.schema.definition.definition import Column, Document, ModelSchema

RESERVED_FIELD = "$kv"
"""The key of the library's own data in a document: ``v``, the schema version if it is above 1; ``c``, the values of
computed columns; ``e``, the names of sealed fields; and ``h``."""

COMPUTED = "c"
"""The key of the values of computed columns in the library's own data."""

SEALED: Final = "e"
"""The key of the names of sealed fields, in order."""

VERSION_NOTE: Final = "h"
"""The key of the begin of the version, its writer and its time, in a collection with a history."""

_CONTAINERS: Final = (list, set, frozenset)

Reader = Callable[[Document], Any]


def computed_path(stored_as: str) -> tuple[str, ...]:
    """Return the path of a computed column in a document."""
    return (RESERVED_FIELD, COMPUTED, stored_as)


def stored_name(path: tuple[str, ...]) -> str | None:
    """Return the stored name of a computed column, or None for the path of any other column."""
    return path[2] if path[:2] == (RESERVED_FIELD, COMPUTED) else None


def reader_of(column: Column) -> Reader:
    """Return a function that reads a column from a document; see ``reader``."""
    return reader(column.path or (column.field,), many=column.many)


def reader(path: tuple[str, ...], *, many: bool) -> Reader:
    """Return a function that reads the value or values at a path of a document, or raises KeyError.

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
    # The list of a computed column is at the end of its path; no other value along the path is a list.
    found = _one(document, path) if path[0] == RESERVED_FIELD else _walk(document, path)
    if found is not None and found.__class__ is not list:
        raise KeyError(path[-1])
    values: list[Any] | None = found
    return values


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path, or the values in all elements of containers along the path and at its end."""
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


def field_reader(schema: ModelSchema, name: str) -> Callable[[Document], Any]:
    """Return a function that reads a field of a stored document.

    It raises KeyError if the document lacks the field. If the stored value does not fit the field, it raises TypeError,
    ValueError (such as pydantic's ValidationError) or an error of the library.
    """
    storage = schema.fields[name]
    if storage.encode is None and storage.decode is None:
        return itemgetter(name)  # stored unchanged
    validate, decode = field_validator(schema, name), storage.decode

    def read(document: Document) -> Any:
        stored = document[name]
        given = {name: stored if decode is None else decode(stored)}
        return validate(given, by_alias=False, by_name=True).__dict__[name]

    return read


def field_validator(schema: ModelSchema, name: str) -> Callable[..., Any]:
    """Return the validation of one field: that of a model with only this field and the same settings."""
    return validator_of(schema.model, name, cast("FieldInfo", schema.shape.model_fields[name]))


def validator_of(model: type[BaseModel], name: str, info: FieldInfo) -> Callable[..., Any]:
    """Return the validation of a model with this field only and the settings of another model."""
    # A copy, because pydantic modifies the FieldInfo that it receives.
    fields: Any = {name: (info.annotation, copy(info))}
    part: type[BaseModel] = pydantic.create_model(model.__name__, __config__=model.model_config, **fields)
    return part.__pydantic_validator__.validate_python


_DICTS = frozenset({OrderedDict, Counter, defaultdict})
_SCALARS = frozenset({bool, int, float, str, bytes, type(None), date, datetime, time, timedelta, Decimal, UUID, ULID})

_EQUAL_AS_STORED = frozenset({bool, int, str, bytes, type(None), date, timedelta, UUID, ULID})
"""Types whose equal values are identical."""


def same_stored(first: Any, second: Any) -> bool:
    """Return whether two values have the same stored bytes; ``1``, ``1.0`` and ``True`` differ, NaN equals itself.

    Examples:
        >>> same_stored([float("nan")], [float("nan")]), same_stored({1}, {True}), same_stored(0.0, -0.0)
        (True, False, False)
    """
    kind: type[Any] = first.__class__
    if kind is not second.__class__:
        return False
    if kind is list:
        return len(first) == len(second) and all(map(same_stored, first, second))
    if kind is dict:
        return len(first) == len(second) and all(
            same_stored(k, other) and same_stored(v, w)
            for (k, v), (other, w) in zip(first.items(), second.items(), strict=True)
        )
    if kind is set or kind is frozenset:
        return set(map(_exact, first)) == set(map(_exact, second))
    if kind is float or kind is datetime:
        return bool(_exact(first) == _exact(second))
    return first is second or bool(first == second)


def unchanged(old: Any, new: Any) -> bool:
    """Return whether validation has not changed a value, so that the old object may stay.

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
        return bool(old == new) if kind in _EQUAL_AS_STORED else _exact(old) == _exact(new)
    if kind is list or kind is tuple or kind is deque:
        return len(old) == len(new) and all(map(unchanged, old, new))
    if kind is dict:
        return len(old) == len(new) and all(k in new and unchanged(v, new[k]) for k, v in old.items())
    if kind in _DICTS:
        same_order = kind is not OrderedDict or [*old] == [*new]
        same_factory = kind is not defaultdict or old.default_factory is new.default_factory
        return same_order and same_factory and unchanged(dict(old), dict(new))
    if kind is set or kind is frozenset:
        return all(map(_is_leaf, old)) and all(map(_is_leaf, new)) and set(map(_exact, old)) == set(map(_exact, new))
    if isinstance(old, BaseModel):
        return unchanged(old.__dict__, new.__dict__) and unchanged(old.__pydantic_extra__, new.__pydantic_extra__)
    if dataclasses.is_dataclass(old):
        names = {field.name for field in dataclasses.fields(old)}
        # Extra fields too, but not the values of a cached_property.
        held = (*getattr(old, "__dict__", ()), *getattr(new, "__dict__", ()))
        names |= {name for name in held if not hasattr(kind, name)}
        return all(unchanged(getattr(old, name, old), getattr(new, name, new)) for name in names)
    return False


def _exact(value: Any) -> Any:
    """Return a hashable that is equal only for the same type and bits, unlike ``==``."""
    kind: type[Any] = value.__class__
    if kind is float:
        return kind, pack(">d", value)
    if kind is datetime or kind is time:
        return kind, value.isoformat(), value.fold if value.utcoffset() is None else 0
    if kind is Decimal:
        return kind, str(value)
    if kind is tuple:
        return kind, tuple(map(_exact, value))
    if kind is frozenset:
        return kind, frozenset(map(_exact, value))
    return kind, value


def _is_leaf(value: Any) -> bool:
    return value.__class__ in _SCALARS or isinstance(value, Enum)
