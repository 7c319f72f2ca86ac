"""Hints for the properties and computed fields of a class, which look like fields and are not stored.

Rules of this module: pure; it is asked only for a name that is not a field, and never evaluates a property.
"""

from __future__ import annotations

from functools import cached_property
from inspect import getattr_static
from typing import Any


def _hint(model: type[Any], name: str, remedy: str) -> str | None:
    computed = model.__pydantic_decorators__.computed_fields
    if name in computed or isinstance(getattr_static(model, name, None), (property, cached_property)):
        return f"{name} is a property, which is not stored. {remedy}"
    return None


def hint_to_query(model: type[Any], name: str) -> str | None:
    """Return how to filter and order by a property; None if the class has no such property."""
    remedy = 'Declare an index with the fields that it is computed from: Index("field", key=function, version=1, name='
    return _hint(model, name, f'{remedy}"{name}").')


def hint_to_write(model: type[Any], name: str) -> str | None:
    """Return what to write in place of a property; None if the class has no such property."""
    return _hint(model, name, "Name the fields that it is computed from.")
