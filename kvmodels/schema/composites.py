"""Storage forms of nested models, dataclasses, named tuples and typed dicts.

Rules of this module: a nested object is stored by the NAMES of its fields, all of them, whatever aliases, ``exclude``
or serializers say. A form exists before its fields are known, so that types may refer to themselves. An object of a
subclass is refused: storing it by the fields of the declared class would lose the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import ReadOnly

from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError
from kvmodels.schema.annotations import literal_values
from kvmodels.schema.automatic import Automatic
from kvmodels.schema.forms import Form, Function

__all__ = ["CONTAINER_FACTORIES", "NestedFields", "dataclass_form", "model_form", "named_tuple_form", "typed_dict_form"]

CONTAINER_FACTORIES: frozenset[Any] = frozenset({list, dict, set, frozenset, tuple})
"""Default factories whose result is always the same, so that they may fill in what a stored record lacks."""

BuildForm = Callable[[Any, Iterable[Any]], Form]


class NestedFields:
    """The fields of one nested class; filled in after its form is made, because a class may contain itself.

    Args:
        cls: the class.
        keeps_extra: whether undeclared attributes are kept (``extra="allow"``).
        finish: decoded fields to what pydantic validates; None: the dict of them.
    """

    __slots__ = ("_finish", "_keeps_extra", "cls", "forms", "required")

    def __init__(self, cls: type[Any], *, keeps_extra: bool = False, finish: Function | None = None) -> None:
        self.cls = cls
        self.forms: dict[str, Form] = {}
        self.required: frozenset[str] = frozenset()
        self._keeps_extra = keeps_extra
        self._finish = finish

    def encode(self, value: Any) -> dict[str, Any]:
        """The stored dict of an instance."""
        if type(value) is not self.cls:
            raise InvalidValueError(
                "an object of another class than the declared one would lose its own fields",
                type=type(value).__name__,
                hint="Declare the field with that class, or as a union of classes told apart by a Literal field.",
            )
        present = value.__dict__
        document = {
            name: present[name] if form.encode is None else form.encode(present[name])
            for name, form in self.forms.items()
        }
        if self._keeps_extra:
            document.update(value.__pydantic_extra__ or {})
        return document

    def decode(self, stored: Any) -> Any:
        """What pydantic makes an instance of; stored fields that the class does not have are left out."""
        if stored.__class__ is not dict:
            raise TypeError("expected a stored object")
        values: dict[str, Any] = {}
        for name, form in self.forms.items():
            if name in stored:
                values[name] = stored[name] if form.decode is None else form.decode(stored[name])
            elif name in self.required:
                raise DecodeError(
                    "a nested object lacks a field that has no plain default", reason=f"{self.cls.__name__}.{name}"
                )
        if self._keeps_extra:
            values.update((name, stored[name]) for name in stored.keys() - self.forms.keys())
        return values if self._finish is None else self._finish(values)

    def revalidate(self, value: Any) -> Any:
        """What makes pydantic validate the present values of an instance."""
        if type(value) is not self.cls:
            return value
        present = value.__dict__
        values = {
            name: present[name] if form.revalidate is None else form.revalidate(present[name])
            for name, form in self.forms.items()
            if name in present
        }
        if self._keeps_extra:
            values.update(value.__pydantic_extra__ or {})
        return values if self._finish is None else self._finish(values)


def model_form(model: type[BaseModel], fields: NestedFields) -> Form:
    """The form of a nested pydantic model, whose field forms are added to ``fields`` later."""
    hints = {name: info.annotation for name, info in model.model_fields.items()}
    return _object_form(model, fields, hints)


def dataclass_form(cls: type[Any], fields: NestedFields) -> Form:
    """The form of a nested dataclass, standard or pydantic's."""
    return _object_form(cls, fields, get_type_hints(cls))


def _object_form(cls: type[Any], fields: NestedFields, hints: Mapping[str, Any]) -> Form:
    return Form(
        type_name=cls.__name__,
        accepts=(cls,),
        stored=frozenset({dict}),
        encode=fields.encode,
        decode=fields.decode,
        revalidate=fields.revalidate,
        mutable=True,
        tags=_tags(hints),
    )


def _tags(hints: Mapping[str, Any]) -> dict[str, frozenset[Any]]:
    found = {name: literal_values(hint) for name, hint in hints.items()}
    return {
        name: frozenset(value.value if isinstance(value, Enum) else value for value in values)
        for name, values in found.items()
        if values
    }


def model_fields(model: type[BaseModel], build: BuildForm) -> tuple[dict[str, Form], frozenset[str]]:
    """Forms of the fields of a model, and the names that a stored object must have."""
    infos: Mapping[str, FieldInfo] = model.model_fields
    forms = {name: build(info.annotation, info.metadata) for name, info in infos.items()}
    return forms, frozenset(name for name, info in infos.items() if must_be_stored(info))


def must_be_stored(info: FieldInfo) -> bool:
    """Whether nothing can stand for a missing stored value: no default, or a factory that may differ in every read."""
    if info.default_factory is not None:
        return info.default_factory not in CONTAINER_FACTORIES and not isinstance(info.default_factory, Automatic)
    return info.default is PydanticUndefined


def dataclass_fields(cls: type[Any], build: BuildForm) -> tuple[dict[str, Form], frozenset[str]]:
    """Forms of the fields of a dataclass, and the names that a stored object must have.

    Raises:
        ModelDefinitionError: a field that the constructor does not take, or a parameter that is no field.
    """
    hints = get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    lost = [item.name for item in fields if not item.init]
    lost += [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]
    if lost:
        raise ModelDefinitionError(
            "a dataclass cannot be stored by its fields",
            option=f"{cls.__name__}.{lost[0]}",
            hint="It has an InitVar or a field with init=False; declare Annotated[..., Stored(encode, decode)].",
        )
    missing = dataclasses.MISSING
    required = frozenset(
        item.name
        for item in fields
        if (item.default is missing and item.default_factory is missing)
        or (item.default_factory is not missing and item.default_factory not in CONTAINER_FACTORIES)
    )
    return {item.name: build(hints[item.name], ()) for item in fields}, required


def dataclass_finish(cls: type[Any]) -> Function:
    """Validated instance from a dict; a strict model takes a dataclass only as an instance."""
    validate = TypeAdapter(cls).validate_python
    return lambda values: validate(values, by_alias=False, by_name=True)


def named_tuple_form(cls: type[Any], build: BuildForm) -> Form:
    """A named tuple, stored as the list of its items."""
    hints = get_type_hints(cls, include_extras=True)
    names: tuple[str, ...] = cls._fields
    forms = [build(hints.get(name, Any), ()) for name in names]
    encoders, decoders = [form.encode for form in forms], [form.decode for form in forms]

    def encode(value: Any) -> list[Any]:
        if type(value) is not cls:
            raise TypeError(f"expected {cls.__name__}")
        return [item if f is None else f(item) for f, item in zip(encoders, value, strict=True)]

    def decode(stored: Any) -> Any:
        # Items may have been added since, with defaults: a shorter list is for the constructor to judge.
        return cls(*[item if f is None else f(item) for f, item in zip(decoders, stored, strict=False)])

    return Form(
        type_name=cls.__name__,
        accepts=(cls,),
        stored=frozenset({list}),
        encode=encode,
        decode=decode,
        mutable=any(form.mutable for form in forms),
    )


def typed_dict_form(cls: Any, build: BuildForm) -> Form:
    """A typed dict, stored as a dict; keys that it does not declare are stored as they are."""
    forms = {name: build(_item_type(hint), ()) for name, hint in get_type_hints(cls, include_extras=True).items()}

    def over(functions: dict[str, Function]) -> Function | None:
        if not functions:
            return None

        def mapped(values: Any) -> Any:
            if values.__class__ is not dict:
                raise TypeError("expected dict")
            return {k: functions[k](v) if k in functions else v for k, v in values.items()}

        return mapped

    revalidate = over({name: form.revalidate for name, form in forms.items() if form.revalidate})
    return Form(
        type_name=cls.__name__,
        accepts=(dict,),
        stored=frozenset({dict}),
        encode=over({name: form.encode for name, form in forms.items() if form.encode}),
        decode=over({name: form.decode for name, form in forms.items() if form.decode}),
        revalidate=None
        if revalidate is None
        else lambda value: revalidate(value) if value.__class__ is dict else value,
        mutable=True,
    )


def _item_type(hint: Any) -> Any:
    while get_origin(hint) in {Required, NotRequired, ReadOnly}:
        (hint,) = get_args(hint)
    return hint
