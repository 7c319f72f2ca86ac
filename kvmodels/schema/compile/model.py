"""KvModel, the base class of models, and its metaclass.

Rules of this module: a model is a plain pydantic model with three additions: query attributes on the class, the state
of a stored object in a slot, and a schema that is compiled when the class is created. Query attributes come from the
metaclass's ``__getattr__`` and are never stored on the class, where pydantic and FastAPI would use them as defaults.
"""

from __future__ import annotations

from inspect import currentframe
from sys import modules
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, dataclass_transform

import pydantic
from pydantic import BaseModel, ConfigDict, PrivateAttr
from pydantic._internal import _fields as pydantic_fields
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import FieldInfo

from kvmodels._support.annotations import own_annotations
from kvmodels._support.django_names import missing_of_class, missing_of_record
from kvmodels._support.naming import show_public_path
from kvmodels.errors import DoesNotExist, ModelDefinitionError, MultipleObjectsReturned
from kvmodels.schema.arrow import columns as arrow_columns
from kvmodels.schema.compile import options
from kvmodels.schema.compile import request_bodies as bodies
from kvmodels.schema.compile import schema as compiling
from kvmodels.schema.declare.expressions import FieldRef, ForeignKeyRef, MultiFieldRef, reference
from kvmodels.schema.declare.many_to_many import declare_relations, relations_of
from kvmodels.schema.declare.markers import Field, refuse_marker_default
from kvmodels.schema.declare.on_write import AutoNow, AutoNowAdd, Version, check_hooks, no_hook, refuse_verb_keyword
from kvmodels.schema.definition import definition, variants
from kvmodels.schema.encryption import fields as encryption
from kvmodels.schema.instances import (
    FIELDS_SET,
    STATE_SLOT,
    PendingStamp,
    late_fields_set,
    set_state,
    state_of,
    with_state_of,
)

_OF_PYDANTIC = "__pydantic_base_init__"
_OPTIONS = "__kv_options__"
_KEYWORDS = "__kv_keywords__"

_SPECIFIERS = ((AutoNow, "datetime = AutoNow"), (AutoNowAdd, "datetime = AutoNowAdd"), (Version, "int = Version"))

# Pydantic looks up every field name on the parents, and treats a result as a shadowed default.
_FIELD_COLLECTOR = pydantic_fields.__name__


@dataclass_transform(
    kw_only_default=True, field_specifiers=(Field, AutoNow, AutoNowAdd, Version, pydantic.Field, PrivateAttr)
)
class KvModelMeta(ModelMetaclass):
    """The metaclass of models: checks and compiles a new class; ``User.age`` is a query attribute."""

    # No __new__: pydantic resolves annotations in the namespace of the calling frame, and another frame in between
    # would hide classes that are defined inside a function. For the same reason, no variable is set while a class is
    # being created: it could not be reset after a failure.

    def __init__(cls, *args: Any, **kwargs: Any) -> None:  # noqa: N805 - the object of a metaclass is a class
        super().__init__(*args, **kwargs)
        if any(isinstance(base, KvModelMeta) for base in cls.__bases__):
            _finish(cls)

    if not TYPE_CHECKING:  # otherwise type checkers accept every attribute of a class

        def __getattr__(cls, name: str) -> Any:  # noqa: N805
            is_field = name in cls.__dict__.get("__pydantic_fields__", ())
            if (is_field or _tells_classes(cls, name)) and not _asked_by_pydantic(currentframe()):
                return _reference(cls, name) if is_field else FieldRef(name, cls)
            try:
                return super().__getattr__(name)
            except AttributeError:
                error = missing_of_class(cls, name)
                if error is None:
                    raise
                raise error from None


def _without_relations(self: BaseModel, /, **data: Any) -> None:
    """Validate the fields as pydantic does, which would ignore the name of a many-to-many relation.

    Raises UnknownFieldError.
    """
    __tracebackhide__ = True
    model = type(self)
    if not data.keys() <= model.__pydantic_fields__.keys() and model.model_config.get("extra") != "forbid":
        variants.constructor_of(model).require_names(data.keys() & relations_of(model).keys())
    BaseModel.__init__(self, **data)


setattr(_without_relations, _OF_PYDANTIC, True)  # to pydantic it is no constructor with code of its own


def _reference(cls: type[Any], name: str) -> FieldRef[Any] | MultiFieldRef[Any]:
    schema: definition.ModelSchema | None = cls.__dict__.get(compiling.SCHEMA_ATTRIBUTE)
    if schema is None:
        return reference(cls, name)
    if name in schema.references:
        key: ForeignKeyRef[Any, Any, Any] = ForeignKeyRef(name, cls)
        return key
    source = schema.source(name)
    return (MultiFieldRef if source is not None and source.many else FieldRef)(name, cls)


def _tells_classes(cls: type[Any], name: str) -> bool:
    """Return whether this field distinguishes classes, so the first class need not declare it."""
    # Not options_of: pydantic asks the base class for attributes while it is built, and options must not load then.
    given = (base.__dict__.get(_OPTIONS) for base in cls.__mro__)
    return any(one is not None and one.discriminator == name for one in given)


def _asked_by_pydantic(frame: FrameType | None) -> bool:
    caller = frame and frame.f_back
    return caller is not None and caller.f_globals.get("__name__") == _FIELD_COLLECTOR


class KvModel(BaseModel, metaclass=KvModelMeta, defer_build=True):
    """A pydantic model whose objects are records of a collection.

    Class keywords: ``collection`` (by default the class name in snake_case), ``abstract``, ``discriminator`` (the field
    that distinguishes the subclasses that share this collection), and the settings of pydantic's ``ConfigDict``.
    ``class Meta`` may contain ``indexes``, ``ordering``, ``schema_version``, ``upgrades``, ``trust_validators`` and
    ``ttl``.

    Examples:
        >>> from kvmodels import Field, Indexed, KvModel, PrimaryKey, Unique
        >>> class User(KvModel, collection="users"):
        ...     id: PrimaryKey[int]
        ...     email: Unique[str]
        ...     age: Indexed[int | None] = Field(default=None)
        >>> ada = User(id=1, email="ada@x.org")
        >>> ada.pk, ada.is_persisted
        (1, False)
        >>> User.age >= 18
        Comparison(field='age', lookup='gte', operand=18, model=<class '...User'>)
    """

    __slots__ = (STATE_SLOT,)

    DoesNotExist: ClassVar[type[DoesNotExist]] = DoesNotExist
    MultipleObjectsReturned: ClassVar[type[MultipleObjectsReturned]] = MultipleObjectsReturned

    def __init_subclass__(
        cls,
        *,
        collection: str | None = None,
        abstract: bool = False,
        discriminator: str | None = None,
        **kwargs: Unpack[ConfigDict],
    ) -> None:
        # Before pydantic collects the fields, because it only warns of such a name.
        for field, annotation in own_annotations(cls).items():
            if "ClassVar" not in str(annotation):
                _refuse_reserved(cls.__name__, field)
            _refuse_specifier(cls, field, annotation)
        relations = declare_relations(cls)
        for field in relations:
            _refuse_reserved(cls.__name__, field)
        if relations and getattr(cls.__init__, _OF_PYDANTIC, False):
            type.__setattr__(cls, "__init__", _without_relations)
        # Pydantic has removed the settings of ConfigDict, so the remaining keywords are unknown.
        options.check_class_keywords(cls.__name__, kwargs)
        keywords = {"collection": collection, "abstract": abstract, "discriminator": discriminator}
        type.__setattr__(cls, _KEYWORDS, {k: v for k, v in keywords.items() if v is not None and v is not False})
        super().__init_subclass__()

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        super().__pydantic_on_complete__()
        if _OPTIONS in cls.__dict__:  # its annotations name a later class; any other class is compiled by _finish
            encryption.hide_values(cls)

    @property
    def pk(self) -> Any:
        """The primary key: its value, or a tuple of values if it has several fields.

        Raises:
            ModelDefinitionError: the class is abstract.
        """
        values = compiling.schema_of(type(self)).primary_key_of(self)
        return values[0] if len(values) == 1 else values

    @property
    def versionstamp(self) -> str | None:
        """The versionstamp of the stored record that this object was read from or written to: 20 hex digits, or None.

        Also None for a record that a transaction has written, until the transaction is committed.
        """
        state = state_of(self)
        return None if state is None or isinstance(state.versionstamp, PendingStamp) else state.versionstamp.hex()

    @property
    def is_persisted(self) -> bool:
        """Whether the object was read from a store or written to one (and not detached since)."""
        return state_of(self) is not None

    @classmethod
    def partial(cls) -> type[Any]:
        """Return ``Partial[User]``, the model with every field optional; created once per class.

        A class of your own, ``class UserPatch(Partial[User])``, is also a type for type checkers.

        Returns:
            A subclass of ``Partial`` named ``UserPatch`` for ``User``.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Hero(KvModel, collection="heroes"):
            ...     id: PrimaryKey[int]
            ...     name: str
            ...     age: int = 0
            >>> heroes = Database("memory://", models=[Hero])[Hero]
            >>> _ = heroes.create(id=1, name="Ada", age=36)
            >>> HeroPatch = Hero.partial()
            >>> body = HeroPatch(name="Eve")
            >>> body.model_dump()
            {'name': 'Eve'}
            >>> heroes.patch(1, body)
            Hero(id=1, name='Eve', age=36)
        """
        return bodies.derived_body(bodies.Partial, cls)

    @classmethod
    def arrow_schema(cls) -> Any:
        """Return the Arrow schema of the fields: the columns of ``db[User].to_arrow()``.

        Returns:
            A ``pyarrow.Schema``. The types follow the types of the fields.

        Raises:
            UnsupportedError: pyarrow is not installed.
            InvalidValueError: a field has no Arrow type; ``to_arrow(columns=...)`` leaves it out.
            ModelDefinitionError: the class is abstract.
        """
        return arrow_columns.arrow_schema(arrow_columns.columns_of(compiling.schema_of(cls)))

    @no_hook
    def before_insert(self) -> None:
        """Called before the insert, in every attempt, with a copy of the object; changes to the copy are stored.

        Hooks may be overridden and may call ``super()``. An exception aborts the write.
        """

    @no_hook
    def before_update(self, old: Any) -> None:
        """Called before the record is changed or renamed, like ``before_insert``.

        Args:
            old: the stored object, an instance of this class.
        """

    @no_hook
    def before_remove(self) -> None:
        """Called before the record is removed, in every attempt, with the stored object."""

    @no_hook
    def after_insert(self) -> None:
        """Called once after the commit that inserted the record, with the object of the caller."""

    @no_hook
    def after_update(self, old: Any) -> None:
        """Called once after the commit that changed the record, with the object of the caller.

        Args:
            old: the object that was stored before, an instance of this class.
        """

    @no_hook
    def after_remove(self) -> None:
        """Called once after the commit that removed the record, with the object that was stored."""

    if not TYPE_CHECKING:  # otherwise type checkers accept every attribute

        def __getattr__(self, name: str) -> Any:
            fields = late_fields_set(self) if name == FIELDS_SET else None
            if fields is not None:
                return fields
            try:
                return super().__getattr__(name)
            except AttributeError:
                error = missing_of_record(self, name, relations_of(type(self)))
                if error is None:
                    raise
                raise error from None

    def __copy__(self) -> Self:
        return with_state_of(self, super().__copy__())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return with_state_of(self, super().__deepcopy__(memo))

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), STATE_SLOT: state_of(self)}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        if state.get(STATE_SLOT) is not None:
            set_state(self, state[STATE_SLOT])


def _refuse_reserved(model: str, field: str) -> None:
    if not field.startswith("_") and (hasattr(KvModel, field) or hasattr(KvModelMeta, field)):
        raise ModelDefinitionError(
            "a field has the name of an attribute of every model",
            model=model,
            field=field,
            hint="Rename it; alias= keeps the old name for input and output.",
        )
    refuse_verb_keyword(model, field)


def _refuse_specifier(cls: type[Any], field: str, annotation: object) -> None:
    """Refuse a function as an annotation, which pydantic would mistake for a type and fail with a confusing error."""
    if isinstance(annotation, str):  # all annotations are str in a module that postpones them
        annotation = getattr(modules.get(cls.__module__), annotation, None)
    for specifier, text in _SPECIFIERS:
        if annotation is specifier:
            raise ModelDefinitionError(
                "a field has a function as its type, instead of as its default",
                model=cls.__name__,
                field=field,
                option=specifier.__name__,
                hint=f"Write {field}: {text}().",
            )


def _refuse_default(model: str, field: str, info: FieldInfo) -> None:
    """Refuse a default that was meant as a declaration: a marker, or a function that was not called."""
    refuse_marker_default(model, field, info)
    for function in (AutoNow, AutoNowAdd, Version, Field, pydantic.Field):
        if info.default is function:
            raise ModelDefinitionError(
                "the default of a field is a function that must be called",
                model=model,
                field=field,
                option=function.__name__,
                hint=f"Write {field}: type = {function.__name__}().",
            )


def _refuse_shadowed(cls: type[Any]) -> None:
    """Refuse a field that a method or property of a parent would hide."""
    for field in cls.__pydantic_fields__:
        for base in cls.__mro__:
            if field in base.__dict__:
                raise ModelDefinitionError(
                    "a field has the name of a method or attribute of a parent class",
                    model=cls.__name__,
                    field=field,
                    option=f"{base.__name__}.{field}",
                    hint="Rename one of them.",
                )


def _finish(cls: type[Any]) -> None:
    """Resolve the options of a new class, create its exceptions, and compile it if its annotations are known."""
    for field, info in cls.__pydantic_fields__.items():
        _refuse_reserved(cls.__name__, field)
        _refuse_default(cls.__name__, field, info)
    _refuse_shadowed(cls)
    check_hooks(cls)
    origin = cls.__pydantic_generic_metadata__["origin"]
    resolved = options.resolve_options(
        cls,
        cls.__dict__[_KEYWORDS],
        [given for base in cls.__mro__[1:] if (given := options.options_of(base)) is not None],
        options.options_of(origin),
    )
    type.__setattr__(cls, _OPTIONS, resolved)
    for name in ("DoesNotExist", "MultipleObjectsReturned"):
        type.__setattr__(cls, name, _own_exception(cls, name))
    # A generic class is compiled only if it is used without parameters: an index on a type variable has no column type,
    # and is meant for the parametrised class.
    if not resolved.abstract and cls.__pydantic_complete__ and not cls.__pydantic_generic_metadata__["parameters"]:
        compiling.schema_of(cls)


def _own_exception(cls: type[Any], name: str) -> type[Exception]:
    bases = dict.fromkeys(getattr(base, name) for base in cls.__bases__ if isinstance(base, KvModelMeta))
    namespace = {
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.{name}",
        "__doc__": f"``{name}`` of {cls.__name__}.",
    }
    return type(name, tuple(bases), namespace)


# This class has no instances, and building its pydantic validator takes as long as loading the rest of this library; so
# programs without models do not wait for it. Models themselves are built at once.
del KvModel.model_config["defer_build"]
show_public_path(KvModel)
