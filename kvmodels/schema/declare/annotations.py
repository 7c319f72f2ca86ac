"""Analysis of type annotations (Annotated, aliases, NewType, type variables, Optional) and of validator functions.

Rules of this module: it only reads annotations and decides nothing about storage or columns; all spellings of one type
give the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

import annotated_types
import pydantic
from typing_extensions import TypeAliasType

from kvmodels.schema.declare.markers import FieldMarker, KeyNumber, Stored
from kvmodels.schema.declare.on_write import Automatic


class Plain(NamedTuple):
    """An annotation without its wrappers.

    ``annotation`` has no Annotated, alias or NewType at the top level and, if ``nullable``, no None. ``metadata`` is
    the metadata around it, innermost first.
    """

    annotation: Any
    metadata: tuple[Any, ...]
    nullable: bool


def plain(annotation: Any, metadata: Iterable[Any] = ()) -> Plain:
    """Return an annotation without its wrappers.

    Examples:
        >>> from typing import Optional
        >>> plain(Annotated[Optional[int], "x"])
        Plain(annotation=<class 'int'>, metadata=('x',), nullable=True)
        >>> plain(Literal["a", None]).annotation
        typing.Literal['a']
    """
    collected = tuple(metadata)
    nullable = False
    while True:
        annotation, inner = _unwrap(annotation)
        collected = inner + collected
        rest, has_none = _without_none(annotation)
        nullable = nullable or has_none
        if rest is annotation:
            return Plain(annotation, collected, nullable)
        annotation = rest


def _unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    metadata: tuple[Any, ...] = ()
    while True:
        if get_origin(annotation) is Annotated:
            metadata = tuple(annotation.__metadata__) + metadata
            annotation = annotation.__origin__
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif isinstance(get_origin(annotation), TypeAliasType):
            alias = get_origin(annotation)
            annotation = alias.__value__[get_args(annotation)]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            annotation = _bound_of(annotation)
        else:
            return annotation, metadata


def _bound_of(variable: TypeVar) -> Any:
    if variable.__constraints__:
        return Union[variable.__constraints__]  # noqa: UP007 - built from a tuple
    return Any if variable.__bound__ is None else variable.__bound__


def is_union(annotation: Any) -> bool:
    """Return whether it is ``A | B`` in either spelling."""
    return get_origin(annotation) in {Union, UnionType}


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if is_union(annotation):
        members = get_args(annotation)
        rest = tuple(member for member in members if member is not NoneType)
        if len(rest) < len(members):
            return Union[rest], True  # noqa: UP007 - built from a tuple
    elif get_origin(annotation) is Literal:
        values = get_args(annotation)
        named = tuple(value for value in values if value is not None)
        if named and len(named) < len(values):
            return Literal[named], True
    return annotation, False


def literal_values(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a Literal; an empty tuple for any other annotation."""
    inner = plain(annotation).annotation
    return get_args(inner) if get_origin(inner) is Literal else ()


def type_name(annotation: Any) -> str:
    """Return a short readable name, which is stored in the catalogue."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


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
    """Return whether this metadata may run a user function on the value."""
    if isinstance(metadata, _HARMLESS) or not hasattr(metadata, "__get_pydantic_core_schema__"):
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
