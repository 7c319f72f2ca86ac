"""Objects in place of their keys: verbs and filters accept the target of a foreign key itself.

Rules of this module: pure. The stored value is the key; an object of another model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from kvmodels.errors import InvalidValueError
from kvmodels.schema.definition.definition import ModelSchema

_OPTIONS = "__kv_options__"
_NO_ALIASES: Final[Mapping[str, str]] = {}


def key_given(schema: ModelSchema, field: str, value: Any) -> Any:
    """Return the primary key of an object that is passed for a foreign key; every other value unchanged."""
    if not isinstance(value, BaseModel):
        return value
    reference = schema.references[field]
    if collection_of(type(value)) != schema.indexes[reference.index_name].reference:
        raise InvalidValueError(
            "a foreign key is given an object of another model than its target",
            model=schema.name,
            field=field,
            type=type(value).__name__,
            hint=f"Give an object of {reference.target_name}, or its primary key.",
        )
    return getattr(value, "pk")  # noqa: B009 - every class of a target has it, which type checkers cannot see


def collection_of(model: type[Any]) -> str | None:
    """Return the collection that stores the objects of a class.

    A class may derive from the target of a foreign key and have a collection of its own, with other records.
    """
    options = getattr(model, _OPTIONS, None)
    return None if options is None else options.collection


def with_keys(
    schema: ModelSchema, values: Mapping[str, Any], aliases: Mapping[str, str] = _NO_ALIASES
) -> Mapping[str, Any]:
    """Return values by name with the keys of objects that are given for foreign keys; raises as ``key_given``."""
    if not schema.references:
        return values
    fields = {name: aliases.get(name, name) for name, value in values.items() if isinstance(value, BaseModel)}
    keys = {
        name: key_given(schema, field, values[name]) for name, field in fields.items() if field in schema.references
    }
    return {**values, **keys} if keys else values
