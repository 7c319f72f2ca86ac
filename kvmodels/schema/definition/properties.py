"""Hints for the properties and computed fields of a class, which look like fields and are not stored.

Rules of this module: pure; it is asked only for a name that is not a field, and never evaluates a property.
"""

from __future__ import annotations

from functools import cached_property
from inspect import getattr_static
from typing import Any


def is_property(model: type[Any], name: str) -> bool:
    """Return whether a name is a property of the class, with or without ``computed_field`` of pydantic."""
    return name in model.__pydantic_decorators__.computed_fields or isinstance(
        getattr_static(model, name, None), (property, cached_property)
    )


def hint_to_query(model: type[Any], name: str) -> str | None:
    """Return how to filter and order by a property; None if the class has no such property."""
    if not is_property(model, name):
        return None
    return (
        f"{name} is a property, which is not stored. Declare an index with the fields that it is computed from: "
        f'Index("field", key=function, version=1, name="{name}").'
    )


def hint_to_write(model: type[Any], name: str) -> str | None:
    """Return what to write in place of a property; None if the class has no such property."""
    if not is_property(model, name):
        return None
    return f"{name} is a property, which is not stored. Name the fields that it is computed from."
