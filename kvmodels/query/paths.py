"""Paths of foreign keys to fields of targets, such as ``project__owner__email``, in orders and results.

A path in a query is canonical: the names of its foreign keys, then that of the field, joined by ``__``. The primary key
of a target is the foreign key to it, so a path never ends with one.

Rules of this module: pure; names are checked at once, with the schema of the model that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY, PathKeyword, is_own, path_keyword, require_own
from kvmodels.schema.filters.target_filters import MOST_LEVELS

_OTHER_WAYS: Final = {
    "fields": "Select the last key that can be reached, and read its targets with get_many().",
    "order_by": "Keep the value in a field of the model, and order by that.",
}

FieldNamer = Callable[[ModelSchema, str], str]
"""A function that returns the known name of a field of a model, or raises."""


def path_of(
    schema: ModelSchema, name: str, model: type[Any] | None, named: FieldNamer, argument: str
) -> list[str] | None:
    """Return the names of a path to a field of a target; None for a field of the model itself.

    A path to a primary key is only its foreign keys. ``model``: the class that a field was taken from. Raises
    InvalidArgumentError for too many keys, and like ``named`` for a wrong name.
    """
    if name in schema.fields:
        return None
    words = name.replace(".", "__").split("__")
    found = None if is_own(schema, name) else path_keyword(schema, words)
    if found is None and len(words) > 1 and words[0] in schema.targets:
        found = PathKeyword(words[0], "__".join(words[1:]))  # a wrong name, which the target refuses
    if found is None:
        return None
    require_own(schema, "the field is one of another model", model, name)
    names = _names_on(schema, found, named)
    if len(names) > MOST_LEVELS + 1:
        raise InvalidArgumentError(
            "a path has more foreign keys than can be followed",
            argument=argument,
            value=name,
            expected=(f"at most {MOST_LEVELS}",),
            hint=_OTHER_WAYS[argument],
        )
    return names


def _names_on(schema: ModelSchema, path: PathKeyword, named: FieldNamer) -> list[str]:
    target = schema.targets[path.field]
    further = None if is_own(target, path.rest) else path_keyword(target, path.rest.split("__"))
    if further is not None:
        return [path.field, *_names_on(target, further, named)]
    name = named(target, path.rest)
    return [path.field] if name in (PRIMARY_KEY, target.primary_key[0].field) else [path.field, name]


def split_path(schema: ModelSchema, path: str) -> list[str]:
    """Return the foreign key that a canonical path begins with, and the rest; the name alone of an own field."""
    if path not in schema.fields:
        for field in schema.targets:
            if path.startswith(f"{field}__"):
                return [field, path[len(field) + 2 :]]
    return [path]


def source_at(schema: ModelSchema, path: str) -> ColumnSource | None:
    """Return the column source at the end of a canonical path; None for a type that cannot be a column."""
    name, *rest = split_path(schema, path)
    return source_at(schema.targets[name], rest[0]) if rest else schema.source(name)
