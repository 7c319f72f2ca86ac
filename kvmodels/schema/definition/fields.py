"""The complete table of storage forms: how values of each type are stored in a document and read again.

Rules of this module: a form is chosen when the class is created, never during a write; ``model_dump``, serializers,
aliases and ``exclude`` have no effect on it. Forms only convert: pydantic validates before encoding and after decoding.
Values that are stored unchanged have no functions, so that hot paths skip them. A type outside the table raises a
ModelDefinitionError, because a guess would create an undocumented stored format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from operator import attrgetter
from pathlib import PurePath
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import pydantic
from pydantic import BaseModel
from pydantic_core import MultiHostUrl, Url
from typing_extensions import is_typeddict

from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.codecs.columns.scalars import DATETIME
from kvmodels.core.ulid import ULID
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.annotations import has_validators, is_union, is_validator, plain, type_name
from kvmodels.schema.declare.expressions import is_root
from kvmodels.schema.declare.markers import FieldMarker, Stored, refuse_marker_default
from kvmodels.schema.definition.forms import (
    ANYTHING,
    Form,
    Function,
    NestedFields,
    array_form,
    dataclass_fields,
    dataclass_finish,
    dataclass_form,
    dict_form,
    model_fields,
    model_form,
    named_tuple_form,
    optional,
    tuple_form,
    typed_dict_form,
    union_form,
)

_SCALARS = (NoneType, bool, int, float, str, bytes)
_CODEC_TYPES: dict[str, tuple[type[Any], type[Any], *tuple[type[Any], ...]]] = {
    "bool": (bool, bool),
    "int": (int, int),
    "number": (int, int),
    "float": (float, float),
    "str": (str, str),
    "bytes": (bytes, bytes),
    "uuid": (UUID, str),
    "ulid": (ULID, str),
    "date": (date, str),
    "datetime": (datetime, str, datetime),
    "time": (time, str),
    "timedelta": (timedelta, int),
    "decimal": (Decimal, str),
    "ip4": (IPv4Address, str),
    "ip6": (IPv6Address, str),
    "ip": (object, str),
}
"""The types of the values and stored values of each column codec, by its name."""
_PATTERN: type[Any] = re.Pattern
_NAIVE_DATETIME: Any = pydantic.NaiveDatetime
_BY_TEXT = (PurePath, IPv4Network, IPv6Network, IPv4Interface, IPv6Interface)


@cache
def _url_types() -> tuple[Any, ...]:
    return pydantic.AnyUrl.__base__, pydantic.PostgresDsn.__base__, Url, MultiHostUrl


class FormBuilder:
    """Chooses the forms of one model's fields.

    Attributes:
        field: the name of the current field, for errors.
        validators: whether a user function validates any part of a field so far.
        conversions: whether ``Stored`` specifies a user function for any part of a field so far.
    """

    def __init__(self, model: str) -> None:
        self.field = ""
        self.validators = False
        self.conversions = False
        self._model = model
        self._objects: dict[type[Any], Form] = {}

    def form(self, annotation: Any, metadata: Iterable[Any] = ()) -> Form:
        """Return the form of an annotation."""
        inner = plain(annotation, metadata)
        self.validators = self.validators or any(map(is_validator, inner.metadata))
        stored = [mark for mark in inner.metadata if isinstance(mark, Stored)]
        if stored:
            self.conversions = True
            name = type_name(inner.annotation)
            form = Form(name, (object,), frozenset({object}), stored[-1].encode, stored[-1].decode, mutable=True)
        else:
            form = self._plain_form(inner.annotation)
        return optional(form) if inner.nullable and NoneType not in form.stored else form

    def _plain_form(self, annotation: Any) -> Form:
        if annotation is Any or annotation is object:
            return ANYTHING
        if is_union(annotation):
            return self._union(annotation)
        if get_origin(annotation) is Literal:
            return self._literal(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return self._enum(annotation)
        codec = column_codec(annotation)
        if codec is not None:
            return _codec_form(codec)
        form = self._container(annotation)
        if form is None and isinstance(annotation, type):
            form = self._class(annotation)
        if form is None:
            raise self._error(
                "the library does not know how to store this type",
                annotation,
                "Declare Annotated[type, Stored(encode, decode)], or use a type of the documented table.",
            )
        return form

    def _container(self, annotation: Any) -> Form | None:
        kind = get_origin(annotation) or annotation
        arguments = get_args(annotation)
        if kind is _PATTERN:
            return Form("pattern", (_PATTERN,), frozenset({_PATTERN}))
        if kind is list:
            return array_form(list, self.form(arguments[0] if arguments else Any))
        if kind is set or kind is frozenset:
            return array_form(kind, self._hashable(arguments[0] if arguments else Any))
        if kind is dict:
            key, value = arguments or (Any, Any)
            return dict_form(self._hashable(key), self.form(value))
        if kind is tuple:
            variadic = annotation is tuple or (len(arguments) == 2 and arguments[1] is Ellipsis)
            items = (arguments[:1] or (Any,)) if variadic else arguments
            return tuple_form(tuple(map(self.form, items)), variadic=variadic)
        return typed_dict_form(annotation, self._nested) if is_typeddict(annotation) else None

    def _hashable(self, annotation: Any) -> Form:
        form = self.form(annotation)
        if not form.stored.isdisjoint({list, dict, set}):
            raise self._error(
                "the stored form of a set member or dict key cannot be hashed",
                annotation,
                "Use a list, or declare the whole field with Stored(encode, decode).",
            )
        return form

    def _class(self, cls: type[Any]) -> Form | None:
        if issubclass(cls, BaseModel):
            # BaseModel itself has no instances, so the field is for objects of unknown classes.
            return None if "__pydantic_root_model__" in vars(cls) else self._model_form(cls)
        if is_dataclass(cls):
            return self._dataclass_form(cls)
        if tuple in cls.__mro__ and hasattr(cls, "_fields"):
            return named_tuple_form(cls, self._nested)
        if cls is NoneType:
            return Form("None", (NoneType,), frozenset({NoneType}))
        if issubclass(cls, _url_types()):
            # Reading is left to pydantic, because the model's configuration determines how a URL is parsed.
            return Form(cls.__name__, (cls,), frozenset({str}), encode=str)
        if issubclass(cls, _BY_TEXT):
            return Form(cls.__name__, (cls,), frozenset({str}), encode=str, decode=cls)
        if issubclass(cls, (pydantic.SecretStr, pydantic.SecretBytes)):
            kind = str if issubclass(cls, pydantic.SecretStr) else bytes
            return Form(cls.__name__, (cls,), frozenset({kind}), encode=cls.get_secret_value, decode=cls)
        if issubclass(cls, _NAIVE_DATETIME):
            return _codec_form(DATETIME)
        if issubclass(cls, pydantic.ByteSize):
            return Form("int", (cls,), frozenset({int}), encode=int)
        return None

    def _nested(self, annotation: Any, metadata: Iterable[Any]) -> Form:
        return self.form(annotation, [mark for mark in metadata if not isinstance(mark, FieldMarker)])

    def _model_form(self, model: type[BaseModel]) -> Form:
        known = self._objects.get(model)
        if known is not None:
            return known
        self.validators = self.validators or has_validators(model)
        if not model.__pydantic_complete__:
            model.model_rebuild()
        for name, info in model.model_fields.items():
            refuse_marker_default(self._model, f"{self.field}.{name}", info)
        if is_root(model):
            return self._root_model_form(model)
        fields = NestedFields(model, keeps_extra=model.model_config.get("extra") == "allow")
        form = self._objects[model] = model_form(model, fields)
        fields.forms, fields.required = model_fields(model, self._nested)
        return form

    def _root_model_form(self, model: type[BaseModel]) -> Form:
        info = model.model_fields["root"]
        form = self._nested(info.annotation, info.metadata)
        root_of: Function = attrgetter("root")
        encode, inner = form.encode, form.revalidate

        def revalidate(value: Any) -> Any:
            if value.__class__ is not model:
                return value
            root = root_of(value)
            return root if inner is None else inner(root)

        return Form(
            type_name=model.__name__,
            accepts=(model,),
            stored=form.stored,
            encode=root_of if encode is None else lambda value: encode(root_of(value)),
            decode=form.decode,
            revalidate=revalidate,
            mutable=True,
        )

    def _dataclass_form(self, cls: type[Any]) -> Form:
        known = self._objects.get(cls)
        if known is not None:
            return known
        self.validators = self.validators or has_validators(cls)
        keeps_extra = getattr(cls, "__pydantic_config__", {}).get("extra") == "allow"
        fields = NestedFields(cls, keeps_extra=keeps_extra, finish=dataclass_finish(cls))
        form = self._objects[cls] = dataclass_form(cls, fields)
        fields.forms, fields.required = dataclass_fields(cls, self._nested)
        return form

    def _union(self, annotation: Any) -> Form:
        codec = column_codec(annotation)
        if codec is not None:
            return _codec_form(codec)
        form = union_form([self.form(member) for member in get_args(annotation)])
        if form is None:
            raise self._error(
                "the members of a union cannot be told apart by their stored form",
                annotation,
                "Add a Literal field to classes, or declare Annotated[..., Stored(encode, decode)] for the union.",
            )
        return form

    def _literal(self, annotation: Any) -> Form:
        values = get_args(annotation)
        kinds: tuple[type[Any], ...] = tuple({value.__class__ for value in values})
        if all(kind in _SCALARS for kind in kinds):
            return Form("literal", kinds, frozenset(kinds))
        codec = column_codec(annotation) if len(kinds) == 1 else None
        if codec is None:
            raise self._error(
                "the library does not know how to store this type",
                annotation,
                "Use Literal values of one type, or declare Annotated[..., Stored(encode, decode)].",
            )
        return _codec_form(codec, *kinds)

    def _enum(self, enum: type[Enum]) -> Form:
        values = [member.value for member in enum]
        kinds: set[type[Any]] = {type(value) for value in values}
        codec = column_codec(enum) if len(kinds) == 1 else None
        if codec is not None:
            return _codec_form(codec, enum, *kinds)
        if not values or not all(kind in _SCALARS for kind in kinds):
            raise self._error(
                "the library does not know how to store this type",
                enum,
                "Use plain values in the Enum, or declare Annotated[..., Stored(encode, decode)].",
            )
        return Form(
            enum.__name__, (enum, *kinds), frozenset(kinds), encode=lambda member: enum(member).value, decode=enum
        )

    def _error(self, message: str, annotation: Any, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(
            message, model=self._model, field=self.field or None, option=type_name(annotation), hint=hint
        )


def _codec_form(codec: ColumnCodec, *accepts: type[Any]) -> Form:
    value, *stored = _CODEC_TYPES[codec.name]
    return Form(codec.name, accepts or (value,), frozenset(stored), codec.to_stored, codec.from_stored)
