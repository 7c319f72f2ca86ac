"""The complete table of storage forms: how values of each type are stored in a document and read again.

Rules of this module: a form is chosen when the class is created, never during a write; ``model_dump``, serializers,
aliases and ``exclude`` have no effect on it. Forms only convert: pydantic validates before encoding and after decoding.
Values that are stored unchanged have no functions, so that hot paths skip them. A type outside the table raises a
ModelDefinitionError, because a guess would create an undocumented stored format.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
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

import annotated_types
import pydantic
from pydantic import BaseModel
from pydantic_core import MultiHostUrl, Url
from typing_extensions import is_typeddict

from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.codecs.columns.scalars import DATETIME
from kvmodels.core.ulid import ULID
from kvmodels.core.values import KeyNumber
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.declare.annotations import Stored, container_kind, is_root, is_union, plain, type_name
from kvmodels.schema.declare.encrypted import Encrypted
from kvmodels.schema.declare.markers import FieldMarker, refuse_marker_default
from kvmodels.schema.declare.on_write import Automatic
from kvmodels.schema.definition.collections import DICTS, deque_form, dict_like_form, secret_form, sequence_form
from kvmodels.schema.definition.forms import (
    ANYTHING,
    Form,
    Function,
    NestedFields,
    array_form,
    dict_form,
    named_tuple_form,
    optional,
    tuple_form,
    typed_dict_form,
    union_form,
)
from kvmodels.schema.definition.recursion import Recursion

_SCALARS = (NoneType, bool, int, float, str, bytes)
CODEC_TYPES: dict[str, tuple[type[Any], type[Any], *tuple[type[Any], ...]]] = {
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
_OF_JSON_VALUE: Any = getattr(pydantic.types, "_AllowAnyJson", None)  # in the metadata of JsonValue
BY_TEXT = (PurePath, IPv4Network, IPv6Network, IPv4Interface, IPv6Interface)
"""Classes whose values are stored as their text."""


@cache
def url_types() -> tuple[Any, ...]:
    """Return the base classes of URLs."""
    return pydantic.AnyUrl.__base__, pydantic.PostgresDsn.__base__, Url, MultiHostUrl


# Metadata with a pydantic hook that only constrains or describes a value: applying it to its own result changes
# nothing.
_HARMLESS = (
    Automatic,
    FieldMarker,
    KeyNumber,
    Stored,
    annotated_types.BaseMetadata,
    annotated_types.GroupedMetadata,
    pydantic.AllowInfNan,
    pydantic.Discriminator,
    pydantic.Strict,
    pydantic.StringConstraints,
    pydantic.Tag,
    pydantic.WithJsonSchema,
    pydantic.types.UuidVersion,
)


def is_validator(metadata: Any) -> bool:
    """Return whether metadata of an annotation is a function that may change or refuse a value."""
    if isinstance(metadata, _HARMLESS) or not hasattr(metadata, "__get_pydantic_core_schema__"):
        return False
    if metadata is _OF_JSON_VALUE:
        return False
    return not isinstance(metadata, pydantic.UrlConstraints)  # checked last, because its module loads slowly


def has_validators(model: type[Any]) -> bool:
    """Return whether a model or pydantic dataclass itself, without its field types, has validator functions."""
    decorators = getattr(model, "__pydantic_decorators__", None)
    if decorators is not None and any(
        getattr(decorators, kind) for kind in ("validators", "field_validators", "root_validators", "model_validators")
    ):
        return True
    if not issubclass(model, pydantic.BaseModel):
        return hasattr(model, "__post_init__")
    own_post_init = model.model_post_init is not pydantic.BaseModel.model_post_init and not (
        model.__private_attributes__ and model.model_post_init.__name__ == "init_private_attributes"
    )
    return own_post_init or bool(model.__pydantic_custom_init__)


def is_validated_by_functions(model: type[BaseModel], field: str) -> bool:
    """Return whether functions of the user may convert the value of a field, so that it may take any input."""
    decorators = model.__pydantic_decorators__
    info = model.model_fields[field]
    validated = {name for one in decorators.field_validators.values() for name in one.info.fields}
    validated |= {name for one in decorators.validators.values() for name in one.info.fields}
    return (
        bool(decorators.model_validators or decorators.root_validators)
        or not validated.isdisjoint({field, "*"})
        or any(map(is_validator, plain(info.annotation, info.metadata).metadata))
    )


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
        self._recursion = Recursion()

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
        if get_origin(annotation) is Literal:
            return self._literal(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return self._enum(annotation)
        codec = column_codec(annotation)
        if codec is not None:
            return _codec_form(codec)
        kind = container_kind(annotation)
        form = self._recursion.form(annotation, kind, lambda: self._composed(annotation, kind))
        if form is None:
            raise self._unknown(
                annotation,
                "Declare Annotated[type, Stored(encode, decode)], or a type that the page 'Fields and types' lists.",
            )
        return form

    def _composed(self, annotation: Any, kind: Any) -> Form | None:
        if is_union(annotation):
            return self._union(annotation)
        form = self._container(annotation, kind)
        if form is None and _is_secret(kind):
            return secret_form(kind, self.form(_secret_type(annotation)))
        if form is None and isinstance(annotation, type):
            form = self._class(annotation)
        return form

    def _container(self, annotation: Any, kind: Any) -> Form | None:
        arguments = get_args(annotation)
        if kind is _PATTERN:
            return Form("pattern", (_PATTERN,), frozenset({_PATTERN}))
        if kind is list or kind is deque:
            item = self.form(arguments[0] if arguments else Any)
            if kind is deque:
                return deque_form(item)
            is_sequence = (get_origin(annotation) or annotation) is Sequence
            return sequence_form(item) if is_sequence else array_form(list, item)
        if kind is set or kind is frozenset:
            return array_form(kind, self._hashable(arguments[0] if arguments else Any))
        if kind is dict or kind in DICTS:
            key, value = (*arguments, int) if len(arguments) == 1 else arguments or (Any, Any)  # Counter has one
            forms = self._hashable(key), self.form(value)
            return dict_form(*forms) if kind is dict else dict_like_form(kind, *forms, annotation)
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
        if issubclass(cls, Blob):
            raise self._error(
                "a blob can only be a field of a model itself, not inside another type",
                cls,
                "Write scan: Blob or scan: Blob | None; keep several files of a record as records of a child model.",
            )
        if issubclass(cls, BaseModel) and "__pydantic_root_model__" in vars(cls):
            return None  # BaseModel itself has no instances, so the field is for objects of unknown classes
        if issubclass(cls, BaseModel) or is_dataclass(cls):
            return self._object_form(cls)
        if tuple in cls.__mro__ and hasattr(cls, "_fields"):
            return named_tuple_form(cls, self._nested)
        if cls is NoneType:
            return Form("None", (NoneType,), frozenset({NoneType}))
        if issubclass(cls, url_types()):
            # Reading is left to pydantic, because the model's configuration determines how a URL is parsed.
            return Form(cls.__name__, (cls,), frozenset({str}), encode=str)
        if issubclass(cls, BY_TEXT):
            return Form(cls.__name__, (cls,), frozenset({str}), encode=str, decode=cls)
        if issubclass(cls, (pydantic.SecretStr, pydantic.SecretBytes)):
            kind = str if issubclass(cls, pydantic.SecretStr) else bytes
            return Form(cls.__name__, (cls,), frozenset({kind}), encode=cls.get_secret_value, decode=cls)
        if vars(cls).get("__kv_bytes__"):  # a Vector, whose module is not loaded for other models
            return Form(cls.__name__, (cls,), frozenset({bytes}), encode=cls.tobytes, decode=cls.frombytes)
        if issubclass(cls, _NAIVE_DATETIME):
            return _codec_form(DATETIME)
        if issubclass(cls, pydantic.ByteSize):
            return Form("int", (cls,), frozenset({int}), encode=int)
        return None

    def _nested(self, annotation: Any, metadata: Iterable[Any]) -> Form:
        metadata = tuple(metadata)
        if any(mark is Encrypted or isinstance(mark, Encrypted) for mark in plain(annotation, metadata).metadata):
            raise self._error(
                "a part of a field is encrypted", annotation, "Encrypt the whole field of the record: Encrypted[...]."
            )
        return self.form(annotation, [mark for mark in metadata if not isinstance(mark, FieldMarker)])

    def _object_form(self, cls: type[Any]) -> Form:
        if cls in self._objects:
            return self._objects[cls]
        self.validators = self.validators or has_validators(cls)
        if issubclass(cls, BaseModel):
            if not cls.__pydantic_complete__:
                cls.model_rebuild()
            for name, info in cls.model_fields.items():
                refuse_marker_default(self._model, f"{self.field}.{name}", info)
            if is_root(cls):
                return self._root_model_form(cls)
        fields = NestedFields(cls)
        self._objects[cls] = fields.form()
        outer, self._recursion = self._recursion, Recursion()
        try:
            fields.fill(self._nested)  # kept for all uses of the class, so without references into the outer types
        finally:
            self._recursion = outer
        return self._objects[cls]

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

    def _union(self, annotation: Any) -> Form:
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
            raise self._unknown(
                annotation, "Use Literal values of one type, or declare Annotated[..., Stored(encode, decode)]."
            )
        return _codec_form(codec, *kinds)

    def _enum(self, enum: type[Enum]) -> Form:
        values = [member.value for member in enum]
        kinds: set[type[Any]] = {type(value) for value in values}
        codec = column_codec(enum) if len(kinds) == 1 else None
        if codec is not None:
            return _codec_form(codec, enum, *kinds)
        if not values or not all(kind in _SCALARS for kind in kinds):
            raise self._unknown(
                enum, "Use plain values in the Enum, or declare Annotated[..., Stored(encode, decode)]."
            )
        return Form(
            enum.__name__, (enum, *kinds), frozenset(kinds), encode=lambda member: enum(member).value, decode=enum
        )

    def _unknown(self, annotation: Any, hint: str) -> ModelDefinitionError:
        return self._error("the library does not know how to store this type", annotation, hint)

    def _error(self, message: str, annotation: Any, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(
            message, model=self._model, field=self.field or None, option=type_name(annotation), hint=hint
        )


def _is_secret(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pydantic.Secret)


def _secret_type(annotation: Any) -> Any:
    """Return the type of the value of ``Secret[T]``, or of a subclass of one."""
    arguments = get_args(annotation)
    if arguments:
        return arguments[0]
    bases = getattr(annotation, "__orig_bases__", ())
    return next((get_args(base)[0] for base in bases if get_args(base)), Any)


def _codec_form(codec: ColumnCodec, *accepts: type[Any]) -> Form:
    value, *stored = CODEC_TYPES[codec.name]
    return Form(codec.name, accepts or (value,), frozenset(stored), codec.to_stored, codec.from_stored)
