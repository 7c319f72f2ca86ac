"""Which fields of an object were given: the set that pydantic makes for each, and of which few are ever asked for.

It takes 730 bytes, as much as the values of a small record, and the garbage collector goes over it. A record stores
every field, so the set of an object that was read holds all of them. Objects that are read by the hundred are left
without it, and have it from the moment that somebody asks: pydantic, which only asks by name, or the program.

Rules of this module: an object is left without its set only where validation is sure to have given it this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

__all__ = ["FIELDS_SET", "is_every_field", "late_fields_set", "leave_out_fields_sets"]

FIELDS_SET: Final = "__pydantic_fields_set__"
"""The slot of pydantic's, which is empty in an object that was left without."""

_EXTRA: Final = "__pydantic_extra__"
"""A slot that is filled with the other one, and stays filled."""


def is_every_field(model: type[Any], names: Iterable[str], late: object) -> bool:
    """Whether all objects that are validated from exactly these names have them as their set, and can be left without.

    False wherever code of the user sees an object while it is made, or answers for attributes that it lacks.

    Args:
        model: the class, complete.
        names: the fields of the document.
        late: the ``__getattr__`` that gives the set.
    """
    given: object = model.__dict__.get("__pydantic_core_schema__")
    if not isinstance(given, dict) or _in_class(model, "__getattribute__") is not object.__getattribute__:
        return False
    if _in_class(model, "__getattr__") is not late or set(names) != model.__pydantic_fields__.keys():
        return False
    schema = cast("dict[str, Any]", given)
    if schema["type"] == "definitions":
        schema = schema["schema"]
    # Validators of the model would stand around it, or in it.
    if schema["type"] != "model" or schema["cls"] is not model or schema["schema"]["type"] != "model-fields":
        return False
    return not any(schema.get(name) for name in ("custom_init", "post_init", "root_model", "generic_origin"))


def _in_class(model: type[Any], name: str) -> object:
    return getattr(model, name, None)


def leave_out_fields_sets(model: type[Any], instances: Iterable[object]) -> None:
    """Take the sets of many objects of a class away, for which ``is_every_field``."""
    take: Callable[[object], None] = getattr(model, FIELDS_SET).__delete__
    deque(map(take, instances), maxlen=0)  # a loop without Python code


def late_fields_set(instance: object) -> set[str] | None:
    """Give an object that was left without it its set; None for one that was never validated."""
    try:
        object.__getattribute__(instance, _EXTRA)
    except AttributeError:
        return None
    model: Any = type(instance)
    fields = set(model.__pydantic_fields__)
    object.__setattr__(instance, FIELDS_SET, fields)
    return fields
