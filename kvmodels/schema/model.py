"""KvModel, the class that models derive from, and its metaclass.

Rules of this module: a model is a plain pydantic model with three more things: query attributes on the class, the
state of a stored object in a slot, and a schema compiled when the class is created. Query attributes come from the
metaclass's ``__getattr__`` and are never stored on the class, where pydantic and FastAPI would take them for defaults.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, ClassVar, Unpack, dataclass_transform

import pydantic
from pydantic import ConfigDict, PrivateAttr
from pydantic._internal._model_construction import ModelMetaclass

from kvmodels.errors import DoesNotExist, ModelDefinitionError, MultipleObjectsReturned
from kvmodels.schema.compile import schema_of
from kvmodels.schema.expressions import FieldRef
from kvmodels.schema.markers import Field
from kvmodels.schema.options import check_class_keywords, resolve_options
from kvmodels.schema.state import StatefulModel, state_of

__all__ = ["KvModel", "KvModelMeta"]

_OPTIONS = "__kv_options__"
_KEYWORDS = "__kv_keywords__"

_building: ContextVar[bool] = ContextVar("kvmodels_building_a_class", default=False)
"""Set while pydantic creates a class in this context: it asks parents for attributes and takes answers for defaults."""


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, pydantic.Field, PrivateAttr))
class KvModelMeta(ModelMetaclass):
    """Metaclass of models: creates the class, then checks and compiles it; ``User.age`` is a query attribute."""

    def __new__(mcs, name: str, bases: tuple[type[Any], ...], namespace: dict[str, Any], **kwargs: Any) -> type[Any]:
        if any(isinstance(base, KvModelMeta) for base in bases):
            for field, annotation in namespace.get("__annotations__", {}).items():
                if "ClassVar" not in str(annotation):
                    _refuse_reserved(name, field)
        token = _building.set(True)
        try:
            cls: type[Any] = super().__new__(mcs, name, bases, namespace, **kwargs)
        finally:
            _building.reset(token)
        if any(isinstance(base, KvModelMeta) for base in bases):
            _finish(cls)
        return cls

    def __getattr__(cls, name: str) -> Any:
        fields = cls.__dict__.get("__pydantic_fields__", {})
        if name in fields and not _building.get():
            return FieldRef[Any](name, cls)
        return super().__getattr__(name)  # type: ignore[misc]


class KvModel(StatefulModel, metaclass=KvModelMeta):
    """A pydantic model whose objects are records of a collection.

    Class keywords: ``collection`` (the class name in snake_case, unless given), ``abstract``, and the settings of
    pydantic's ``ConfigDict``. ``class Meta`` may hold ``indexes``, ``schema_version`` and ``trust_validators`` too.

    Example:
        >>> from kvmodels.schema.markers import Indexed, PrimaryKey, Unique
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

    DoesNotExist: ClassVar[type[DoesNotExist]] = DoesNotExist
    MultipleObjectsReturned: ClassVar[type[MultipleObjectsReturned]] = MultipleObjectsReturned

    def __init_subclass__(
        cls, *, collection: str | None = None, abstract: bool = False, **kwargs: Unpack[ConfigDict]
    ) -> None:
        # The metaclass has taken the settings of ConfigDict out, so what is left here is known to nobody.
        check_class_keywords(cls.__name__, kwargs)
        keywords = {"collection": collection, "abstract": abstract}
        type.__setattr__(cls, _KEYWORDS, {k: v for k, v in keywords.items() if v is not None and v is not False})
        super().__init_subclass__()

    @property
    def pk(self) -> Any:
        """The primary key: its value, or the tuple of its values if several fields make it up.

        Raises:
            ModelDefinitionError: the class is abstract.
        """
        values = schema_of(type(self)).primary_key_of(self)
        return values[0] if len(values) == 1 else values

    @property
    def versionstamp(self) -> str | None:
        """The version of the stored record that this object was read from or written as: 20 hex digits, or None."""
        state = state_of(self)
        return None if state is None else state.versionstamp.hex()

    @property
    def is_persisted(self) -> bool:
        """Whether the object was read from a store or written to one (and not detached since)."""
        return state_of(self) is not None


def _refuse_reserved(model: str, field: str) -> None:
    if not field.startswith("_") and (hasattr(KvModel, field) or hasattr(KvModelMeta, field)):
        raise ModelDefinitionError(
            "a field has the name of an attribute of every model",
            model=model,
            field=field,
            hint="Rename it; alias= keeps the old name for input and output.",
        )


def _refuse_shadowed(cls: type[Any]) -> None:
    """A method or property of a parent would hide the query attribute of a field."""
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
    """Resolve the options of a new class, give it its own exceptions, and compile it if its annotations are known."""
    parents = [base for base in cls.__mro__[1:] if _OPTIONS in base.__dict__]
    for field in cls.__pydantic_fields__:
        _refuse_reserved(cls.__name__, field)
    _refuse_shadowed(cls)
    origin = cls.__pydantic_generic_metadata__["origin"]
    options = resolve_options(
        cls,
        cls.__dict__[_KEYWORDS],
        [base.__dict__[_OPTIONS] for base in parents],
        origin.__dict__[_OPTIONS] if origin else None,
    )
    type.__setattr__(cls, _OPTIONS, options)
    for name in ("DoesNotExist", "MultipleObjectsReturned"):
        type.__setattr__(cls, name, _own_exception(cls, name))
    if not options.abstract and cls.__pydantic_complete__:
        schema_of(cls)


def _own_exception(cls: type[Any], name: str) -> type[Exception]:
    bases = dict.fromkeys(getattr(base, name) for base in cls.__bases__ if isinstance(base, KvModelMeta))
    namespace = {
        "__module__": cls.__module__,
        "__qualname__": f"{cls.__qualname__}.{name}",
        "__doc__": f"``{name}`` of {cls.__name__}.",
    }
    return type(name, tuple(bases), namespace)
