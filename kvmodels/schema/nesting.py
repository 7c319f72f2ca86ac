"""What is inside of the annotations of model fields: nested models, containers, types that can be columns.

Rules of this module: reads annotations of classes that exist, for names in expressions; it decides nothing, and what
it does not understand is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args, get_origin

from kvmodels.encoding import columns
from kvmodels.errors import ModelDefinitionError

__all__ = ["container_kinds", "has_several_values", "is_root", "nested_fields"]


def has_several_values(model: type[Any], path: str) -> bool:
    """Whether a field, or a path with dots, leads to several values of a type that can be a column.

    That is a list, set, frozenset or ``tuple[T, ...]`` at its end, or on the way to it.
    """
    annotation: Any = None
    several = False
    if "." not in path and path in getattr(model, "__pydantic_fields__", {}):
        annotation = model.__pydantic_fields__[path].annotation
        if isinstance(annotation, type) and get_origin(annotation) is None:
            return False  # the usual case
    fields: Mapping[str, Any] = getattr(model, "__pydantic_fields__", {})
    for name in path.split("."):
        annotation = fields[name].annotation if name in fields else None
        several = several or _is_several(annotation)
        fields = _fields_inside(annotation)
    return several and not fields and _is_column(annotation)


def nested_fields(model: type[Any], path: str) -> Mapping[str, Any]:
    """The fields of the model that is nested at a path with dots, by name; none where there is no model."""
    fields: Mapping[str, Any] = getattr(model, "__pydantic_fields__", {})
    for name in path.split("."):
        fields = _fields_inside(fields[name].annotation) if name in fields else {}
    return fields


def is_root(model: type[Any]) -> bool:
    """Whether it is a ``RootModel``, asked without loading that, which pydantic makes when it is first named."""
    return bool(getattr(model, "__pydantic_root_model__", False))


def container_kinds(model: type[Any], name: str) -> tuple[type, ...]:
    """The types whose objects can be equal to a field with several values, that of the field first."""
    annotation = _unwrapped(model.__pydantic_fields__[name].annotation)
    kind = get_origin(annotation)
    if kind not in (list, set, frozenset, tuple):  # optional
        members = [_unwrapped(member) for member in get_args(annotation) if member is not NoneType]
        kind = get_origin(members[0])
    kinds: Mapping[Any, tuple[type, ...]] = {set: (set, frozenset), frozenset: (frozenset, set)}
    return kinds.get(kind, (kind,))


def _fields_inside(annotation: Any) -> Mapping[str, Any]:
    """The fields of the one model class in an annotation, optional or in a list; ``dict`` values are not reached."""
    annotation = _unwrapped(annotation)
    found: Mapping[str, Any] = getattr(annotation, "__pydantic_fields__", {})
    if found or get_origin(annotation) is dict:
        return found
    inner = [fields for argument in get_args(annotation) if (fields := _fields_inside(argument))]
    return inner[0] if len(inner) == 1 else {}


def _is_several(annotation: Any) -> bool:
    annotation = _unwrapped(annotation)
    if get_origin(annotation) in (list, set, frozenset):
        return True
    if get_origin(annotation) is tuple:
        return get_args(annotation)[1:] == (Ellipsis,)
    members = [member for member in get_args(annotation) if member is not NoneType]
    return len(members) == 1 and len(get_args(annotation)) == 2 and _is_several(members[0])


def _is_column(annotation: Any) -> bool:
    """Whether a type, or the elements of a container, can be a column."""
    annotation = _unwrapped(annotation)
    members = [member for member in get_args(annotation) if member not in (NoneType, Ellipsis)]
    if get_origin(annotation) in (list, set, frozenset, tuple) or len(members) < len(get_args(annotation)):
        return len(members) == 1 and _is_column(members[0])
    try:
        return columns.column_codec(annotation) is not None
    except ModelDefinitionError:
        return False


def _unwrapped(annotation: Any) -> Any:
    """Without ``Annotated``, aliases and ``NewType``."""
    while True:
        inner = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
        if inner is None and hasattr(annotation, "__metadata__"):
            inner = annotation.__origin__
        if inner is None:
            return annotation
        annotation = inner
