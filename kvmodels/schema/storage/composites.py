"""Storage forms of nested models, dataclasses, named tuples, typed dicts and unions.

Rules of this module: a nested object is stored by the NAMES of its fields, all of them, whatever aliases, ``exclude``
or serializers say. A form exists before its fields are known, so that types may refer to themselves. An object of a
subclass is refused: storing it by the fields of the declared class would lose the others. The stored value must decide
which member of a union wrote it: every two members differ in the type of their stored values, or are classes with a
Literal field in common whose values differ; other unions are refused when the class is created.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import ReadOnly

from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError
from kvmodels.schema.declare.annotations import literal_values
from kvmodels.schema.declare.time_fields import Automatic
from kvmodels.schema.storage.forms import Form, Function, require_no_fields


def union_form(members: Sequence[Form]) -> Form | None:
    """Return the form of a union (None is no member here), or None if stored values could not be told apart.

    Examples:
        >>> text, number = Form("str", (str,), frozenset({str})), Form("int", (int,), frozenset({int}))
        >>> union_form([text, number]).type_name
        'str | int'
        >>> date = Form("date", (object,), frozenset({str}), encode=str)
        >>> union_form([text, date]) is None
        True
    """
    name = " | ".join(form.type_name for form in members)
    accepts = tuple(kind for form in members for kind in form.accepts)
    stored = frozenset[type[Any]]().union(*(form.stored for form in members))
    mutable = any(form.mutable for form in members)
    if all(form.is_identity for form in members):
        return Form(name, accepts, stored, mutable=mutable)
    tag = _common_tag([form for form in members if form.tags])
    for position, first in enumerate(members):
        for second in members[position + 1 :]:
            if _overlap(first.stored, second.stored) and not (tag and first.tags and second.tags):
                return None
    return Form(
        name,
        accepts,
        stored,
        encode=_by_type_of_value(members, "encode", strict=True),
        decode=_by_stored(members, tag),
        revalidate=_by_type_of_value(members, "revalidate", strict=False),
        mutable=mutable,
    )


def _overlap(first: frozenset[type[Any]], second: frozenset[type[Any]]) -> bool:
    return object in first or object in second or not first.isdisjoint(second)


def _common_tag(objects: list[Form]) -> str | None:
    if not objects:
        return None
    for name in objects[0].tags:
        values = [form.tags.get(name, frozenset[Any]()) for form in objects]
        if all(values) and len(frozenset[Any]().union(*values)) == sum(map(len, values)):
            return name
    return None


def _by_type_of_value(members: Sequence[Form], function: str, *, strict: bool) -> Function | None:
    """Apply the function of the member that has this value's type: exactly, else as a subclass, in order."""
    if not any(getattr(form, function) for form in members):
        return None
    exact: dict[type[Any], Function | None] = {}
    for form in members:
        for kind in form.accepts:
            exact.setdefault(kind, getattr(form, function))

    def dispatched(value: Any) -> Any:
        kind: type[Any] = value.__class__
        if kind not in exact:
            base = next((base for base in exact if isinstance(value, base)), None)
            if base is None:
                if strict:
                    raise TypeError("the value has the type of no member of the union")
                return value
            kind = base
        apply = exact[kind]
        return value if apply is None else apply(value)

    return dispatched


def _by_stored(members: Sequence[Form], tag: str | None) -> Function | None:
    tagged = {value: form.decode for form in members if tag and form.tags for value in form.tags[tag]}
    exact = {kind: form.decode for form in members if not (tag and form.tags) for kind in form.stored}

    def dispatched(stored: Any) -> Any:
        if tagged and stored.__class__ is dict:
            apply = tagged[stored[tag]]
        else:
            apply = exact[_stored_kind(stored.__class__, exact)]
        return stored if apply is None else apply(stored)

    return dispatched


def _stored_kind(kind: type[Any], known: Mapping[type[Any], Function | None]) -> type[Any]:
    """Return the type that stands for the type of a stored value.

    Only values of JavaScript have another than their own.
    """
    if kind in known:
        return kind
    if kind is int and float in known:
        return float
    return dict if issubclass(kind, dict) else list if issubclass(kind, list) else kind


CONTAINER_FACTORIES: frozenset[Any] = frozenset({list, dict, set, frozenset, tuple})
"""Default factories whose result is always the same, so that they may fill in what a stored record lacks."""

BuildForm = Callable[[Any, Iterable[Any]], Form]


class NestedFields:
    """The fields of one nested class; filled in after its form is made, because a class may contain itself.

    With ``keeps_extra``, undeclared attributes are kept (``extra="allow"``). ``finish`` turns decoded fields into input
    for pydantic; None: the dict of them.
    """

    __slots__ = ("_finish", "_keeps_extra", "cls", "forms", "required")

    def __init__(self, cls: type[Any], *, keeps_extra: bool = False, finish: Function | None = None) -> None:
        self.cls = cls
        self.forms: dict[str, Form] = {}
        self.required: frozenset[str] = frozenset()
        self._keeps_extra = keeps_extra
        self._finish = finish

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the stored dict of an instance."""
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
            document.update(self._extra(value))
        return document

    def decode(self, stored: Any) -> Any:
        """Return pydantic's input for an instance, without stored fields that the class does not have."""
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
        """Return input with which pydantic validates the present values of an instance."""
        if type(value) is not self.cls:
            return value
        present = value.__dict__
        values = {
            name: present[name] if form.revalidate is None else form.revalidate(present[name])
            for name, form in self.forms.items()
            if name in present
        }
        if self._keeps_extra:
            values.update(self._extra(value))
        return values if self._finish is None else self._finish(values)

    def _extra(self, value: Any) -> dict[str, Any]:
        present: dict[str, Any] = value.__dict__
        if not isinstance(value, BaseModel):
            # A dataclass keeps them beside its fields, and what a cached_property has computed too.
            return {n: item for n, item in present.items() if n not in self.forms and not hasattr(self.cls, n)}
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        require_no_fields(self.cls.__name__, extra, self.forms)
        return extra


def model_form(model: type[BaseModel], fields: NestedFields) -> Form:
    """Return the form of a nested pydantic model, whose field forms are added to ``fields`` later."""
    hints = {name: info.annotation for name, info in model.model_fields.items()}
    return _object_form(model, fields, hints)


def dataclass_form(cls: type[Any], fields: NestedFields) -> Form:
    """Return the form of a nested dataclass, standard or pydantic's."""
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
    """Return the forms of the fields of a model, and the names that a stored object must have."""
    infos: Mapping[str, FieldInfo] = model.model_fields
    forms = {name: build(info.annotation, info.metadata) for name, info in infos.items()}
    return forms, frozenset(name for name, info in infos.items() if must_be_stored(info))


def must_be_stored(info: FieldInfo) -> bool:
    """Whether a stored value is needed: the field has no default, or a factory that may differ in every read."""
    if info.default_factory is not None:
        return info.default_factory not in CONTAINER_FACTORIES and not isinstance(info.default_factory, Automatic)
    return info.default is PydanticUndefined


def dataclass_fields(cls: type[Any], build: BuildForm) -> tuple[dict[str, Form], frozenset[str]]:
    """Return the forms of the fields of a dataclass, and the names that a stored object must have.

    Raises ModelDefinitionError for a field that the constructor does not take, or a parameter that is no field.
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
    """Return a function from a dict to a validated instance; a strict model takes a dataclass only as an instance."""
    validate = TypeAdapter(cls).validate_python
    return lambda values: validate(values, by_alias=False, by_name=True)


def named_tuple_form(cls: type[Any], build: BuildForm) -> Form:
    """Return the form of a named tuple, stored as the list of its items."""
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
    """Return the form of a typed dict, stored as a dict; undeclared keys are stored as they are."""
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
