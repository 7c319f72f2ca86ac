"""Refusal of defaults that are no values of their fields, such as ``description: str = None``.

Pydantic does not validate defaults, so an object may be made with one. Every write validates the whole object and
would refuse it, at the first record that is made without the field.

Rules of this module: a default that validation converts is valid; so is every default of a field with functions of the
user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kvmodels._support.naming import short_repr
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import literal_values, type_name
from kvmodels.schema.definition.fields import is_validated_by_functions
from kvmodels.schema.definition.forms import Form
from kvmodels.schema.definition.values import validator_of


def refuse_invalid_defaults(model: type[BaseModel], forms: Mapping[str, Form]) -> None:
    """Refuse a model with a field whose default is of another type than the field.

    Raises:
        ModelDefinitionError: there is such a field.
    """
    for name, info in model.model_fields.items():
        default: Any = info.default
        if not (_fits(info, forms[name]) or is_validated_by_functions(model, name) or _is_valid(model, name, info)):
            shown = short_repr(default)
            kind = type_name(info.annotation)
            hint = f"Write {name}: {kind} | None = None." if default is None else "Give a default of this type."
            raise ModelDefinitionError(
                "the default of a field is not a value of its type",
                model=model.__name__,
                field=name,
                option=f"{kind} = {shown}",
                hint=hint,
            )


def _fits(info: FieldInfo, form: Form) -> bool:
    """Return whether the type of a default says that it is valid, which is much faster than to validate it."""
    default: Any = info.default
    if default is PydanticUndefined or (type(default) is int and float in form.accepts):
        return True
    return isinstance(default, form.accepts) and not literal_values(info.annotation)


def _is_valid(model: type[BaseModel], name: str, info: FieldInfo) -> bool:
    validate = validator_of(model, name, info)
    try:
        validate({name: info.default}, by_alias=False, by_name=True)
    except ValidationError:
        return False
    return True
