"""The partial model of a model: every field is optional, for the body of a PATCH request.

Rules of this module: created from the declarations of a class, once per class. A field that was not set has no value at
all, neither a default nor None, so that missing fields cannot be confused with fields that a client sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from typing import Annotated, Any, Final

import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.declare.markers import FieldMarker
from kvmodels.schema.declare.on_write import automatic_of
from kvmodels.schema.definition.forms import require_no_fields

_PARTIAL: Final = "__kv_partial__"

# Kept from a FieldInfo besides type and metadata; not default, exclude and frozen, which a change does not use.
_KEPT: Final = (
    "alias",
    "alias_priority",
    "validation_alias",
    "serialization_alias",
    "title",
    "description",
    "examples",
    "discriminator",
    "deprecated",
    "json_schema_extra",
    "repr",
)


class PartialModel(BaseModel):
    """Base class of partial models: a field that was not set is neither an attribute nor part of a dump."""

    def model_post_init(self, _context: Any, /) -> None:
        """Remove the placeholders of fields that were not set."""
        for name in self.__pydantic_fields__.keys() - self.__pydantic_fields_set__:
            vars(self).pop(name, None)


def partial_model(model: type[BaseModel]) -> type[PartialModel]:
    """Return the partial model of a class; see ``KvModel.partial``."""
    known: type[PartialModel] | None = model.__dict__.get(_PARTIAL)
    if known is None:
        known = _made(model)
        type.__setattr__(model, _PARTIAL, known)
    return known


def _made(model: type[BaseModel]) -> type[PartialModel]:
    if not model.__pydantic_complete__:
        model.model_rebuild()
    fields: dict[str, Any] = {
        name: (_annotation(info), _optional(info))
        for name, info in model.__pydantic_fields__.items()
        if automatic_of(info) is None
    }
    config = model.model_config.copy()
    config |= {"title": None, "frozen": False, "validate_default": False}
    base = type("PartialModel", (PartialModel,), {"model_config": config, "__module__": model.__module__})
    return pydantic.create_model(
        f"{model.__name__}Patch",
        __base__=base,
        __module__=model.__module__,
        __doc__=f"Changes of {model.__name__}: fields that are left out stay as they are.",
        __validators__=dict(_validators(model, fields)),
        **fields,
    )


def _annotation(info: FieldInfo) -> Any:
    metadata = [mark for mark in info.metadata if not isinstance(mark, FieldMarker)]
    return Annotated[(info.annotation, *metadata)] if metadata else info.annotation


def _optional(info: FieldInfo) -> Any:
    given = {name: getattr(info, name) for name in _KEPT}
    kept = {name: value for name, value in given.items() if value is not None and value is not PydanticUndefined}
    # A factory instead of a default, because an interface document would show the default.
    return pydantic.Field(default_factory=_nothing, **kept)


def _nothing() -> None:
    """Return the placeholder of a field that was not set, until ``model_post_init`` removes it."""


def _validators(model: type[BaseModel], fields: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the validators of single fields; validators of the whole model would fail on missing fields."""
    for name, decorator in model.__pydantic_decorators__.field_validators.items():
        info = decorator.info
        of = [field for field in fields if field in info.fields or "*" in info.fields]
        if not of:
            continue
        options: dict[str, Any] = {}
        if info.json_schema_input_type is not PydanticUndefined:
            options["json_schema_input_type"] = info.json_schema_input_type
        decorate: Any = pydantic.field_validator  # its overloads need modes that are known statically
        yield name, decorate(*of, mode=info.mode, **options)(_static(decorator.func))


def _static(function: Callable[..., Any]) -> Any:
    """Return the function as a staticmethod, because it is already bound to the model's class."""

    def one(value: Any) -> Any:
        return function(value)

    def two(value: Any, second: Any) -> Any:
        return function(value, second)

    def three(value: Any, handler: Any, info: Any) -> Any:
        return function(value, handler, info)

    # Pydantic decides by the number of parameters whether to pass the ValidationInfo.
    adapted: tuple[Any, ...] = (one, two, three)
    return staticmethod(adapted[len(signature(function).parameters) - 1])


def sent_values(body: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes in a body and keywords, by field name; keywords take precedence.

    Only the fields that were set in the body, a pydantic model or None, count. Raises InvalidArgumentError for another
    body, and InvalidValueError if an extra field of the body has the name of one of its fields.
    """
    if body is None:
        return changes
    if not isinstance(body, BaseModel):
        raise InvalidArgumentError(
            "the body of a change is not a pydantic model",
            argument="body",
            value=type(body).__name__,
            hint="Give the changes as keywords, patch(key, **changes), or an object of the model's partial().",
        )
    values = body.__dict__
    fields = type(body).model_fields
    sent = {name: values[name] for name in fields if name in body.model_fields_set}
    extra = body.__pydantic_extra__ or {}
    require_no_fields(type(body).__name__, extra, fields, path="$")
    return {**sent, **extra, **changes}
