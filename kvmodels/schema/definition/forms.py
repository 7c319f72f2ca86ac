"""Storage forms of None, containers, unions and nested objects, and the paths and extra fields in their errors.

Pydantic accepts an extra field with the name of a declared field that has an alias: from ``{"memberId": 7, "id": 8}``
the field ``id`` becomes 7 and an extra field named ``id`` becomes 8. A document stores fields by name, so it can hold
only one of the two.

Rules of this module: a form without functions stores values unchanged, and so does a container of such forms. Functions
here expect values that pydantic has validated; for others they raise TypeError, ValueError or AttributeError, which the
record codec converts to errors that name the field. An extra field with the name of a declared field is refused. Paths
are computed only for an error, so that ordinary writes do not pay for them.

A nested object is stored with the NAMES of all its fields, whatever aliases, ``exclude`` or serializers say. A form
exists before its fields are known, so that types may refer to themselves. An object of a subclass is refused: storing
it as the declared class would lose its other fields. The stored value must determine which member of a union wrote it:
each two members differ in the type of their stored values, or are classes with a common Literal field whose values
differ. Other unions are refused when the class is created.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, is_dataclass, replace
from datetime import datetime, time
from enum import Enum
from itertools import combinations
from types import NoneType
from typing import Any, Final, NamedTuple, NotRequired, Required, TypeAlias, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import ReadOnly

from kvmodels._support.naming import step_text
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import stored_datetime, stored_time
from kvmodels.codecs.distinct import equal_when_read
from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError
from kvmodels.schema.declare.annotations import literal_values
from kvmodels.schema.declare.on_write import Automatic


def parts_with_paths(value: object) -> Iterator[tuple[str, Any]]:
    """Yield a value and all distinct objects and containers inside it, breadth first, each with its path."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", value)]
    for path, part in waiting:  # grows during the loop
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        waiting += [(path + step_text(step), inner) for step, inner in _parts(part)]


def refused_time_path(value: object) -> str | None:
    """Return the path of the first date or time inside a value that no document can hold, or None."""
    for path, part in parts_with_paths(value):
        try:
            if isinstance(part, datetime):
                stored_datetime(part)
            elif isinstance(part, time):
                stored_time(part)
        except InvalidValueError:
            return path
    return None


def _parts(value: Any) -> Iterator[tuple[object, Any]]:
    """Yield the parts of an object or container, with the field, key or index of each."""
    if isinstance(value, BaseModel) or is_dataclass(value):
        yield from getattr(value, "__dict__", {}).items()
    elif isinstance(value, Mapping):
        yield from cast("Mapping[object, Any]", value).items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from enumerate(cast("Iterable[Any]", value))


def require_no_fields(model: str, extra: Iterable[str], fields: Container[str], *, path: str | None = None) -> None:
    """Raise InvalidValueError for an extra field of the class ``model`` that has the name of one of its ``fields``."""
    for name in extra:
        if name in fields:
            raise InvalidValueError(
                "an extra field has the name of a declared field, which it would overwrite",
                model=model,
                field=name,
                path=None if path is None else path + step_text(name),
                type=model,
                hint="Send the value under the alias of the field only, remove the extra key, or do without "
                'extra="allow".',
            )


def extra_path(value: object) -> str | None:
    """Return the path of the first extra field inside a value that has the name of a declared field, or None."""
    for path, part in parts_with_paths(value):
        if isinstance(part, BaseModel):
            names: Iterable[str] = part.__pydantic_extra__ or ()
            found = next((name for name in names if name in type(part).model_fields), None)
            if found is not None:
                return path + step_text(found)
    return None


Function: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """The storage form of one annotation.

    Attributes:
        type_name: the description of the type in the catalogue.
        accepts: the Python types of the values.
        stored: the Python types of the stored values; ``object`` means any.
        encode: converts a value to its stored value; None: stored unchanged.
        decode: converts a stored value to pydantic's input; None: unchanged.
        revalidate: converts a value to input that pydantic validates in depth (otherwise it accepts instances of models
            unchecked); None: pydantic validates the value itself in depth.
        mutable: whether a value can be changed in place, so that its identity matters to the caller.
        tags: for models, the stored values of their Literal fields, by field name.
    """

    type_name: str
    accepts: tuple[type[Any], ...]
    stored: frozenset[type[Any]]
    encode: Function | None = None
    decode: Function | None = None
    revalidate: Function | None = None
    mutable: bool = False
    tags: dict[str, frozenset[Any]] = field(default_factory=dict[str, frozenset[Any]])


ANYTHING = Form("any", (object,), frozenset({object}), mutable=True)
"""Values of ``Any`` and ``object``: all values that the codec can store."""


def optional(form: Form) -> Form:
    """Return the form with None, which is stored as None."""
    return replace(
        form,
        type_name=f"{form.type_name} | None",
        accepts=(*form.accepts, NoneType),
        stored=form.stored | {NoneType},
        encode=_or_none(form.encode),
        decode=_or_none(form.decode),
        revalidate=_or_none(form.revalidate),
        tags={},
    )


def _or_none(function: Function | None) -> Function | None:
    if function is None:
        return None
    return lambda value: None if value is None else function(value)


def _guarded(kind: type[Any], function: Function, *, refuses: bool) -> Function:
    """Return the function for values of one type; others are refused, or returned for pydantic to convert or refuse."""

    def guarded(value: Any) -> Any:
        if value.__class__ is kind:
            return function(value)
        if refuses:
            raise TypeError(f"expected {kind.__name__}")
        return value

    return guarded


def array_form(kind: type[Any], item: Form) -> Form:
    """Return the form of a list, set or frozenset, which are stored as the same type."""

    def each(function: Function | None, collect: Function, *, refuses: bool = True) -> Function | None:
        return function and _guarded(kind, lambda values: collect(map(function, values)), refuses=refuses)

    return Form(
        type_name=f"{kind.__name__}[{item.type_name}]",
        accepts=(kind,),
        stored=frozenset({kind}),
        encode=_without_loss(kind, each(item.encode, kind), item.decode),
        decode=each(item.decode, kind),
        # A list also for a set of models, because the dicts that pydantic validates instead of them cannot be in a set.
        revalidate=each(item.revalidate, list, refuses=False),
        mutable=True,
    )


def _without_loss(kind: type[Any], encode: Function | None, decode: Function | None) -> Function | None:
    """Return the function, with a check that all members or keys of a set or dict stay different.

    They must have different stored forms, which ``decode`` turns into different values.
    """
    if encode is None or kind is list:
        return encode

    def encoded(values: Any) -> Any:
        stored = encode(values)
        if len(stored) != len(values):
            raise InvalidValueError(
                "two members or keys have one stored form, so that one of them would be lost",
                type=kind.__name__,
                hint="They are one value written in two ways, such as one instant in two time zones: leave one out.",
            )
        if decode is not None and len(values) > 1 and len(set(map(decode, stored))) != len(values):
            error = equal_when_read()
            error.type = kind.__name__
            raise error
        return stored

    return encoded


def _by_position(functions: Iterable[Function | None], values: Iterable[Any]) -> list[Any]:
    return [item if apply is None else apply(item) for apply, item in zip(functions, values, strict=False)]


def tuple_form(items: tuple[Form, ...], *, variadic: bool) -> Form:
    """Return the form of a tuple, which is stored as a list; ``variadic`` means ``tuple[T, ...]``, with one form."""

    def per_item(values: Any, name: str) -> list[Any]:
        if values.__class__ not in {tuple, list} or not (variadic or len(values) == len(items)):
            raise TypeError("expected a tuple of the declared length")
        forms = items * len(values) if variadic else items
        return _by_position([getattr(form, name) for form in forms], values)

    def revalidate(values: Any) -> Any:
        fits = values.__class__ is tuple and (variadic or len(values) == len(items))
        return tuple(per_item(values, "revalidate")) if fits else values

    names = ", ".join(item.type_name for item in items) + (", ..." if variadic else "")
    return Form(
        type_name=f"tuple[{names}]",
        accepts=(tuple,),
        stored=frozenset({list}),
        encode=lambda values: per_item(values, "encode"),
        decode=lambda stored: tuple(per_item(stored, "decode")),
        revalidate=revalidate if any(item.revalidate for item in items) else None,
        mutable=any(item.mutable for item in items),
    )


def dict_form(key: Form, value: Form) -> Form:
    """Return the form of a dict, which is stored as a dict with its keys and values in their forms."""

    def over(key: Function | None, value: Function | None, *, refuses: bool = True) -> Function | None:
        if key is None and value is None:
            return None

        def mapped(pairs: Any) -> dict[Any, Any]:
            return {(k if key is None else key(k)): (v if value is None else value(v)) for k, v in pairs.items()}

        return _guarded(dict, mapped, refuses=refuses)

    return Form(
        type_name=f"dict[{key.type_name}, {value.type_name}]",
        accepts=(dict,),
        stored=frozenset({dict}),
        encode=_without_loss(dict, over(key.encode, value.encode), key.decode),
        decode=over(key.decode, value.decode),
        revalidate=over(None, value.revalidate, refuses=False),
        mutable=True,
    )


def union_form(members: Sequence[Form]) -> Form | None:
    """Return the form of a union without None, or None if stored values could not be distinguished.

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
    if not any(form.encode or form.decode or form.revalidate for form in members):
        return Form(name, accepts, stored, mutable=mutable)
    tag = _common_tag([form for form in members if form.tags])
    for first, second in combinations(members, 2):
        overlap = object in first.stored | second.stored or not first.stored.isdisjoint(second.stored)
        if overlap and not (tag and first.tags and second.tags):
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


def _common_tag(objects: list[Form]) -> str | None:
    if not objects:
        return None
    for name in objects[0].tags:
        values = [form.tags.get(name, frozenset[Any]()) for form in objects]
        if all(values) and len(frozenset[Any]().union(*values)) == sum(map(len, values)):
            return name
    return None


def _by_type_of_value(members: Sequence[Form], function: str, *, strict: bool) -> Function | None:
    """Apply the function of the member with this value's type, or with its first matching base type."""
    if not any(getattr(form, function) for form in members):
        return None
    exact: dict[type[Any], Function | None] = {}
    for form in members:
        for kind in form.accepts:
            exact.setdefault(kind, getattr(form, function))

    def dispatched(value: Any) -> Any:
        kind: type[Any] | None = value.__class__
        if kind not in exact:
            kind = next((base for base in exact if isinstance(value, base)), None)
            if kind is None and strict:
                raise TypeError("the value has the type of no member of the union")
        apply = None if kind is None else exact[kind]
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
    """Return the type under which a stored value is compared; another than its own only for values of JavaScript."""
    if kind in known:
        return kind
    if kind is int and float in known:
        return float
    return dict if issubclass(kind, dict) else list if issubclass(kind, list) else kind


_CONTAINER_FACTORIES: Final[frozenset[Any]] = frozenset(
    {list, dict, set, frozenset, tuple, deque, OrderedDict, Counter}
)
"""Default factories with a constant result, so that they may fill in missing stored values."""

BuildForm = Callable[[Any, Iterable[Any]], Form]


class _NestedField(NamedTuple):
    """A field of a nested class: its annotation, the metadata around it, and whether a stored object must have it."""

    annotation: Any
    metadata: Iterable[Any]
    required: bool


class NestedFields:
    """The fields of one nested model or dataclass; ``fill`` completes them, because a class may contain itself."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._forms: dict[str, Form] = {}
        self._finish: Function | None = None
        if issubclass(cls, BaseModel):
            self._declared = _model_fields(cls)
            config: Mapping[str, Any] = cls.model_config
        else:
            self._declared = _dataclass_fields(cls)
            self._finish = _dataclass_finish(cls)
            config = getattr(cls, "__pydantic_config__", {})
        self._keeps_extra = config.get("extra") == "allow"

    def form(self) -> Form:
        """Return the form of the class."""
        literals = {name: literal_values(field.annotation) for name, field in self._declared.items()}
        return Form(
            type_name=self._cls.__name__,
            accepts=(self._cls,),
            stored=frozenset({dict}),
            encode=self.encode,
            decode=self.decode,
            revalidate=self.revalidate,
            mutable=True,
            tags={
                name: frozenset(value.value if isinstance(value, Enum) else value for value in values)
                for name, values in literals.items()
                if values
            },
        )

    def fill(self, build: BuildForm) -> None:
        """Build the forms of the fields, which may refer to the form of the class."""
        self._forms |= {name: build(field.annotation, field.metadata) for name, field in self._declared.items()}

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the stored dict of an instance."""
        if type(value) is not self._cls:
            raise InvalidValueError(
                "an object of another class than the declared one would lose its own fields",
                type=type(value).__name__,
                hint="Declare the field with that class, or as a union of classes told apart by a Literal field.",
            )
        present = value.__dict__
        document = {
            name: present[name] if form.encode is None else form.encode(present[name])
            for name, form in self._forms.items()
        }
        if self._keeps_extra:
            document.update(self._extra(value))
        return document

    def decode(self, stored: Any) -> Any:
        """Return pydantic's input for an instance, without stored fields that the class does not declare."""
        if stored.__class__ is not dict:
            raise TypeError("expected a stored object")
        values: dict[str, Any] = {}
        for name, form in self._forms.items():
            if name in stored:
                values[name] = stored[name] if form.decode is None else form.decode(stored[name])
            elif self._declared[name].required:
                raise DecodeError(
                    "a nested object lacks a field that has no plain default", reason=f"{self._cls.__name__}.{name}"
                )
        if self._keeps_extra:
            values.update((name, stored[name]) for name in stored.keys() - self._forms.keys())
        return values if self._finish is None else self._finish(values)

    def revalidate(self, value: Any) -> Any:
        """Return input for pydantic to validate the current values of an instance."""
        if type(value) is not self._cls:
            return value
        present = value.__dict__
        values = {
            name: present[name] if form.revalidate is None else form.revalidate(present[name])
            for name, form in self._forms.items()
            if name in present
        }
        if self._keeps_extra:
            values.update(self._extra(value))
        return values if self._finish is None else self._finish(values)

    def _extra(self, value: Any) -> dict[str, Any]:
        present: dict[str, Any] = value.__dict__
        if not isinstance(value, BaseModel):
            # A dataclass keeps extra fields next to its fields, like values of a cached_property.
            return {n: item for n, item in present.items() if n not in self._forms and not hasattr(self._cls, n)}
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        require_no_fields(self._cls.__name__, extra, self._forms)
        return extra


def _model_fields(model: type[BaseModel]) -> dict[str, _NestedField]:
    infos: Mapping[str, FieldInfo] = model.model_fields
    return {name: _NestedField(info.annotation, info.metadata, must_be_stored(info)) for name, info in infos.items()}


def must_be_stored(info: FieldInfo) -> bool:
    """Return whether a stored value is required: there is no default, or a factory that may vary between reads."""
    if info.default_factory is not None:
        return info.default_factory not in _CONTAINER_FACTORIES and not isinstance(info.default_factory, Automatic)
    return info.default is PydanticUndefined


def _dataclass_fields(cls: type[Any]) -> dict[str, _NestedField]:
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
    return {item.name: _NestedField(hints[item.name], (), _is_required(item)) for item in fields}


def _is_required(item: dataclasses.Field[Any]) -> bool:
    if item.default_factory is dataclasses.MISSING:
        return item.default is dataclasses.MISSING
    return item.default_factory not in _CONTAINER_FACTORIES


def _dataclass_finish(cls: type[Any]) -> Function:
    """Return a function from a dict to a validated instance; strict models accept only instances of dataclasses."""
    validate = TypeAdapter(cls).validate_python
    return lambda values: validate(values, by_alias=False, by_name=True)


def named_tuple_form(cls: type[Any], build: BuildForm) -> Form:
    """Return the form of a named tuple, which is stored as the list of its items."""
    hints = get_type_hints(cls, include_extras=True)
    names: tuple[str, ...] = cls._fields
    forms = [build(hints.get(name, Any), ()) for name in names]
    encoders, decoders = [form.encode for form in forms], [form.decode for form in forms]

    def encode(value: Any) -> list[Any]:
        if type(value) is not cls:
            raise TypeError(f"expected {cls.__name__}")
        return _by_position(encoders, value)

    def decode(stored: Any) -> Any:
        # Items with defaults may have been added since, so the constructor decides about a shorter list.
        return cls(*_by_position(decoders, stored))

    return Form(
        type_name=cls.__name__,
        accepts=(cls,),
        stored=frozenset({list}),
        encode=encode,
        decode=decode,
        mutable=any(form.mutable for form in forms),
    )


def typed_dict_form(cls: Any, build: BuildForm) -> Form:
    """Return the form of a typed dict, which is stored as a dict; undeclared keys are stored unchanged."""
    forms = {name: build(item_type(hint), ()) for name, hint in get_type_hints(cls, include_extras=True).items()}

    def over(name: str, *, refuses: bool = True) -> Function | None:
        found: dict[str, Function | None] = {key: getattr(form, name) for key, form in forms.items()}
        functions = {key: function for key, function in found.items() if function is not None}

        def mapped(values: Any) -> dict[Any, Any]:
            return {k: functions[k](v) if k in functions else v for k, v in values.items()}

        return _guarded(dict, mapped, refuses=refuses) if functions else None

    return Form(
        type_name=cls.__name__,
        accepts=(dict,),
        stored=frozenset({dict}),
        encode=over("encode"),
        decode=over("decode"),
        revalidate=over("revalidate", refuses=False),
        mutable=True,
    )


def item_type(hint: Any) -> Any:
    """Return the annotation of a key of a typed dict without Required, NotRequired and ReadOnly."""
    while get_origin(hint) in {Required, NotRequired, ReadOnly}:
        (hint,) = get_args(hint)
    return hint
