"""Validate operands of equality like the values of a new object, so that a lookup finds what a write has stored.

A type may change its values: ``EmailStr`` lowers the domain, ``StringConstraints(to_lower=True)`` the whole text, and
an ``AfterValidator`` does anything. Fields store the changed value, so a comparison for equality has to use it too.
Other comparisons take their operands unchanged: a function that limits a number would move the end of a range.

Rules of this module: an operand that the type refuses stays as it is, because it may still be compared with stored
values. Only the type of the field counts, not validators of the class, which may depend on other fields. Types that
change no value cost nothing: they have no validator here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Optional, cast

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter

from kvmodels.errors import InvalidValueError
from kvmodels.schema.declare.annotations import Plain, types_at
from kvmodels.schema.declare.expressions import is_list_of_values
from kvmodels.schema.declare.markers import FieldMarker
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema, Validate
from kvmodels.schema.definition.fields import is_validator
from kvmodels.schema.definition.values import field_validator

_OF_TEXTS: Final = ("str_to_lower", "str_to_upper", "str_strip_whitespace")
"""The settings of a model that change the values of its ``str`` fields."""


def validated(schema: ModelSchema, source: ColumnSource, value: Any) -> Any:
    """Return a value as the type of its column stores it; unchanged if the type refuses it."""
    validate = value_validator(schema, source)
    return value if validate is None or value is None else validate(value)


def validated_list(schema: ModelSchema, source: ColumnSource, operand: Any) -> Any:
    """Return the operand of ``in`` or a similar lookup with its values validated; unchanged if it is no list."""
    validate = value_validator(schema, source)
    if validate is None or not is_list_of_values(operand):
        return operand
    return [None if value is None else validate(value) for value in operand]


def validated_whole(schema: ModelSchema, name: str, value: Any) -> Any:
    """Return a value that is compared with a whole field as the field would store it."""
    validators = schema.compiled.whole_validators
    if name not in validators:
        validators[name] = _of_field(schema, name)
    return validators[name](value)


def value_validator(schema: ModelSchema, source: ColumnSource) -> Validate | None:
    """Return the validation of one value of a column; None if its type changes no value."""
    validators = schema.compiled.validators
    if source.name not in validators:
        validators[source.name] = _of_column(schema, source)
    return validators[source.name]


def _of_field(schema: ModelSchema, name: str) -> Validate:
    validate = field_validator(schema, name)

    def of_field(value: Any) -> Any:
        return validate({name: value}, by_alias=False, by_name=True).__dict__[name]

    return _lenient(of_field, lambda made: made is not None)


def _of_column(schema: ModelSchema, source: ColumnSource) -> Validate | None:
    types = [(inner, _settings(schema, owner)) for inner, owner in types_at(schema.shape, source.name)]
    if not any(_changes_values(inner, config) for inner, config in types):
        return None

    def is_stored(made: Any) -> bool:
        if made is None:
            return source.nullable
        try:
            (source.given or source).codec.pack(made)
        except InvalidValueError:
            return False
        return True

    lenient = [_lenient(_of_type(inner, config), is_stored) for inner, config in types]
    return lenient[0] if len(lenient) == 1 else _agreeing(lenient)


def _settings(schema: ModelSchema, owner: type[BaseModel]) -> ConfigDict:
    return schema.model.model_config if owner is schema.shape else owner.model_config


def _changes_values(inner: Plain, config: ConfigDict) -> bool:
    """Return whether the validation of a type may return another value than it is given."""
    if inner.annotation is str and any(config.get(setting) for setting in _OF_TEXTS):
        return True
    # Columns of pydantic's own classes, of which EmailStr changes values.
    return getattr(inner.annotation, "__module__", "") == "pydantic.networks" or any(map(_may_change, inner.metadata))


def _may_change(mark: Any) -> bool:
    if isinstance(mark, StringConstraints):
        return bool(mark.to_lower or mark.to_upper or mark.strip_whitespace)
    return is_validator(mark)


def _of_type(inner: Plain, config: ConfigDict) -> Validate:
    kind: Any = Optional[inner.annotation] if inner.nullable else inner.annotation  # noqa: UP045 - made at run time
    marks = [mark for mark in inner.metadata if not _is_marker(mark)]
    if marks:
        kind = cast("Any", Annotated)[(kind, *marks)]
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=config)
    return adapter.validate_python


def _is_marker(mark: Any) -> bool:
    return isinstance(mark, FieldMarker) or (isinstance(mark, type) and issubclass(mark, FieldMarker))


def _lenient(validate: Validate, is_stored: Callable[[Any], bool]) -> Validate:
    """Return a validation that leaves a value as it is if the type refuses it, or makes a value that it cannot hold."""

    def lenient(value: Any) -> Any:
        try:
            made = validate(value)
        except Exception:  # noqa: BLE001 - a user function may raise anything
            return value
        return made if is_stored(made) else value

    return lenient


def _agreeing(validations: list[Validate]) -> Validate:
    """Return a validation by several types, for a path through several models; a value stays if they disagree."""

    def agreeing(value: Any) -> Any:
        made, *others = (validate(value) for validate in validations)
        return made if all(type(other) is type(made) and other == made for other in others) else value

    return agreeing
