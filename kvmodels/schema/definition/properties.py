"""Hints for properties, computed fields and many-to-many relations of a class, which look like fields.

Rules of this module: pure; it is asked only for a name that is not a field, and never evaluates a property.
"""

from __future__ import annotations

from functools import cached_property
from inspect import getattr_static
from typing import Any

from kvmodels.schema.declare.many_to_many import ManyToMany


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
    """Return what to write in place of a property or relation; None if the class has none of this name."""
    if isinstance(getattr_static(model, name, None), ManyToMany):
        links = f"db[{model.__name__}].links({model.__name__}.{name})"
        return (
            f"Nothing of a many-to-many relation is stored in the record. Store it, then its links: {links}.add(...)."
        )
    return _hint(model, name, "Name the fields that it is computed from.")
