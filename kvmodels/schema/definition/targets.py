"""Objects in place of their keys: verbs and filters accept the target of a foreign key itself.

Rules of this module: pure. The stored value is the key; an object of another model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from kvmodels.errors import InvalidValueError
from kvmodels.schema.definition.definition import ModelSchema


def key_given(schema: ModelSchema, field: str, value: Any) -> Any:
    """Return the primary key of an object that is passed for a foreign key; every other value unchanged.

    Raises:
        InvalidValueError: the object does not belong to the target of the foreign key.
    """
    if not isinstance(value, BaseModel):
        return value
    target = schema.references[field].target
    if isinstance(target, str) or not isinstance(value, target):
        raise InvalidValueError(
            "a foreign key is given an object of another model than its target",
            model=schema.name,
            field=field,
            type=type(value).__name__,
            hint=f"Give an object of {schema.references[field].target_name}, or its primary key.",
        )
    return getattr(value, "pk")  # noqa: B009 - every class of a target has it, which type checkers cannot see


def with_keys(schema: ModelSchema, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values by field name, with objects for foreign keys replaced by their keys; raises like ``key_given``."""
    if not any(isinstance(values.get(field), BaseModel) for field in schema.references):
        return values
    return {
        name: key_given(schema, name, value) if name in schema.references else value for name, value in values.items()
    }
