"""Partial and Creation: models of the fields that a client may send to change a record, or to create one.

``Partial[User]`` and ``Creation[User]`` are classes derived from a model, once per model. They are used as they are, or
as the base of a class with a name of its own: a class statement is a type to type checkers, which a class that a
function returns is not.

Rules of this module: derived classes have the types, constraints, aliases and validators of single fields; validators
of the whole model would fail on missing fields, and run when the record is stored. In a partial model, a field that was
not set has no value at all, neither a default nor None, so that it cannot be confused with a field that a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, TypeVar, Unpack, cast

import pydantic
from pydantic import BaseModel, ConfigDict
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import FieldInfo

from kvmodels._support import suggest as spelling
from kvmodels._support.annotations import own_annotations
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import InvalidArgumentError, ModelDefinitionError
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.declare.annotations import plain
from kvmodels.schema.declare.markers import FieldMarker, PrimaryKey
from kvmodels.schema.declare.on_write import automatic_of
from kvmodels.schema.definition.forms import require_no_fields
from kvmodels.schema.encryption import fields as encryption

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

_DERIVED: Final = "__kv_bodies__"

# Kept from a FieldInfo besides type and metadata; not exclude and frozen, which a body does not use.
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


class RequestBodyMeta(ModelMetaclass):
    """The metaclass of request bodies."""

    if TYPE_CHECKING:  # fields are derived at run time, so type checkers accept any name

        def __call__(cls: type[T], **values: Any) -> T:  # noqa: N805 - the object of a metaclass is a class
            """Return a new body."""
            ...


class RequestBody(BaseModel, Generic[M], metaclass=RequestBodyMeta):
    """Base class of ``Partial`` and ``Creation``."""

    _left_out: ClassVar[frozenset[str]] = frozenset()

    def __class_getitem__(cls, model: Any) -> Any:
        if isinstance(model, TypeVar):  # a type in an annotation of generic code
            return cast("Any", super()).__class_getitem__(model)
        given: object = model
        if not (isinstance(given, type) and issubclass(given, BaseModel)):
            raise ModelDefinitionError(
                "the fields of a request body come from a model class",
                model=cls.__name__,
                option=getattr(model, "__name__", short_repr(model)),
                hint=f"Write {cls.__name__}[User], with a class that is derived from KvModel.",
            )
        return derived_body(cls, given)

    def __init_subclass__(cls, *, exclude: Iterable[str] = (), **kwargs: Unpack[ConfigDict]) -> None:
        for keyword in kwargs:  # pydantic has removed the settings of ConfigDict
            raise ModelDefinitionError(
                "a class keyword does not exist",
                model=cls.__name__,
                option=keyword,
                hint='Use exclude=("id",) for fields to leave out, or a setting of ConfigDict.',
            )
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, *, exclude: Iterable[str] = (), **_: Any) -> None:
        fields = cls.__pydantic_fields__
        names = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        for name in names:
            if name not in fields:
                close = spelling.closest(name, fields)
                raise ModelDefinitionError(
                    "a field to leave out does not exist",
                    model=cls.__name__,
                    field=name,
                    hint=f"Did you mean {close!r}?" if close else f"The fields are: {', '.join(fields)}.",
                )
        left_out = frozenset(names).union(*(getattr(base, "_left_out", ()) for base in cls.__bases__))
        cls._left_out = left_out - own_annotations(cls).keys()
        gone = cls._left_out & fields.keys()
        for name in gone:
            del fields[name]
        if gone and cls.__pydantic_complete__:
            cls.model_rebuild(force=True)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Partial(RequestBody[M], Generic[M]):
    """A model with every field optional, for the body of a PATCH request: ``class UserPatch(Partial[User])``.

    It has the types, constraints, aliases and field validators of the model, and no defaults: a field that was not set
    is neither an attribute nor part of a dump. Blobs and the fields that the library sets are left out.
    ``patch(key, body)`` changes the fields that were set. ``Partial[User]`` can also be used as it is; it is named
    ``UserPatch``.

    Class keywords: ``exclude``, the names of fields to leave out, and the settings of pydantic's ``ConfigDict``.

    Examples:
        >>> from kvmodels import Database, KvModel, Partial, PrimaryKey
        >>> class Singer(KvModel, collection="singers"):
        ...     id: PrimaryKey[int]
        ...     name: str
        ...     age: int = 0
        >>> class SingerPatch(Partial[Singer], exclude=("id",)):
        ...     pass
        >>> singers = Database("memory://", models=[Singer])[Singer]
        >>> _ = singers.create(id=1, name="Ada", age=36)
        >>> singers.patch(1, SingerPatch(name="Eve"))
        Singer(id=1, name='Eve', age=36)
    """

    def model_post_init(self, _context: Any, /) -> None:
        """Remove the placeholders of fields that were not set."""
        fields = type(self).__pydantic_fields__
        for name in fields.keys() - self.__pydantic_fields_set__:
            if fields[name].default_factory is _nothing:
                vars(self).pop(name, None)


class Creation(RequestBody[M], Generic[M]):
    """A model of the fields that a client sends for a new record: ``class NewUser(Creation[User])``.

    It has the fields of the model with their types, constraints, aliases, defaults and field validators. A primary key
    with a default is left out, and so are blobs and the fields that the library sets. ``create(body)`` stores a record.
    ``Creation[User]`` can also be used as it is; it is named ``NewUser``.

    Class keywords: ``exclude``, the names of fields to leave out, and the settings of pydantic's ``ConfigDict``.

    Examples:
        >>> from kvmodels import ULID, Creation, Database, Field, KvModel, PrimaryKey
        >>> class Song(KvModel, collection="songs"):
        ...     id: PrimaryKey[ULID] = Field(default_factory=ULID)
        ...     title: str
        ...     plays: int = 0
        >>> class NewSong(Creation[Song], exclude=("plays",)):
        ...     pass
        >>> list(NewSong.model_fields)
        ['title']
        >>> songs = Database("memory://", models=[Song])[Song]
        >>> songs.create(NewSong(title="Solo"), plays=1).title
        'Solo'
    """


def _partial_field(info: FieldInfo) -> FieldInfo | None:
    """Return the same field without a default; None if the library sets it."""
    # A factory instead of a default, because an interface document would show the default.
    if automatic_of(info) is not None or _is_blob(info):
        return None
    return _copied(info, default_factory=_nothing)


def _creation_field(info: FieldInfo) -> FieldInfo | None:
    """Return the same field; None if the record gets its value from elsewhere."""
    is_key = any(isinstance(mark, PrimaryKey) for mark in info.metadata)
    if automatic_of(info) is not None or _is_blob(info) or (is_key and not info.is_required()):
        return None
    default = {"default": info.default} if info.default_factory is None else {"default_factory": info.default_factory}
    return _copied(info, **default)


def _is_blob(info: FieldInfo) -> bool:
    """Return whether a field holds a file, whose content no JSON has: the program gives it by keyword."""
    return plain(info.annotation, info.metadata).annotation is Blob


def derived_body(kind: type[RequestBody[Any]], model: type[BaseModel]) -> type[Any]:
    """Return ``Partial[model]`` or ``Creation[model]``; created once per class."""
    known: dict[type[Any], type[Any]] | None = model.__dict__.get(_DERIVED)
    if known is None:
        known = {}
        type.__setattr__(model, _DERIVED, known)
    if kind not in known:
        known[kind] = _made(kind, model)
    return known[kind]


def _made(kind: type[RequestBody[Any]], model: type[BaseModel]) -> type[Any]:
    if not model.__pydantic_complete__:
        model.model_rebuild()
    encryption.hide_values(model)
    field_of, named, described = (
        (_partial_field, "{}Patch", "Changes of {}: fields that are left out stay as they are.")
        if issubclass(kind, Partial)
        else (_creation_field, "New{}", "The fields of a new {}.")
    )
    found = ((name, info, field_of(info)) for name, info in model.__pydantic_fields__.items())
    fields: dict[str, Any] = {name: (_annotation(info), field) for name, info, field in found if field is not None}
    config = model.model_config.copy()
    config |= {"title": None, "frozen": False, "validate_default": False}
    base: Any = type(kind.__name__, (kind,), {"model_config": config, "__module__": model.__module__})
    made: type[Any] = pydantic.create_model(
        named.format(model.__name__),
        __base__=base,
        __module__=model.__module__,
        __doc__=described.format(model.__name__),
        __validators__=dict(_validators(model, fields)),
        **fields,
    )
    return made


def _annotation(info: FieldInfo) -> Any:
    metadata = [mark for mark in info.metadata if not isinstance(mark, FieldMarker)]
    return Annotated[(info.annotation, *metadata)] if metadata else info.annotation


def _copied(info: FieldInfo, **default: Any) -> FieldInfo:
    kept: dict[str, Any] = {name: value for name in _KEPT if (value := getattr(info, name)) is not None}
    return cast("FieldInfo", pydantic.Field(**kept, **default))


def _nothing() -> None:
    """Return the placeholder of a field that was not set, until ``model_post_init`` removes it."""


def _validators(model: type[BaseModel], fields: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the validators of single fields, for the fields of a body."""
    for name, decorator in model.__pydantic_decorators__.field_validators.items():
        info = decorator.info
        of = [field for field in fields if field in info.fields or "*" in info.fields]
        if not of:
            continue
        decorate: Any = pydantic.field_validator  # its overloads need modes that are known statically
        # A class that is derived from the body may leave fields out.
        options = {"mode": info.mode, "check_fields": False, "json_schema_input_type": info.json_schema_input_type}
        # The function is already bound to the model's class.
        yield name, decorate(*of, **options)(staticmethod(decorator.func))


def sent_values(body: Any, values: Mapping[str, Any], *, kind: type[BaseModel], hint: str) -> dict[str, Any]:
    """Return the values in a body and in keywords, by field name; keywords take precedence."""
    if not isinstance(body, kind):
        raise InvalidArgumentError(
            "this is not the body of a request",
            argument="body",
            value=type(body).__name__,
            expected="a pydantic model" if kind is BaseModel else kind.__name__,
            hint=hint,
        )
    given = body.__dict__
    fields = type(body).model_fields
    sent = {name: given[name] for name in fields if name in body.model_fields_set}
    extra = body.__pydantic_extra__ or {}
    require_no_fields(type(body).__name__, extra, fields, path="$")
    return {**sent, **extra, **values}


show_public_path(Partial)
show_public_path(Creation)
