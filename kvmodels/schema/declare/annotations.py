"""Analysis of type annotations: Annotated, aliases, NewType, type variables, Optional, and paths into nested models.

Rules of this module: it only reads annotations; all spellings of one type give the same result.
"""

from __future__ import annotations

import collections.abc as abstract
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvmodels._support.naming import show_public_path
from kvmodels.codecs.columns import registry as columns
from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.aliases import is_alias, value_of_alias


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
        elif is_alias(annotation):
            annotation = value_of_alias(annotation)
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
        members = tuple(_members(annotation))
        rest = tuple(member for member in members if member is not NoneType)
        if members != get_args(annotation) or len(rest) < len(members):
            return Union[rest or NoneType], len(rest) < len(members)  # noqa: UP007 - built from a tuple
    elif get_origin(annotation) is Literal:
        values = get_args(annotation)
        named = tuple(value for value in values if value is not None)
        if named and len(named) < len(values):
            return Literal[named], True
    return annotation, False


def _members(union: Any) -> Iterator[Any]:
    """Yield the members of a union; those of an alias of a union instead of the alias, as for type checkers."""
    for member in get_args(union):
        inner, metadata = _unwrap(member)
        if inner is None or inner is NoneType:
            yield NoneType
        elif metadata or not is_alias(member):
            yield member
        elif is_union(inner):
            yield from _members(inner)
        else:
            yield inner


def are_same(first: Any, second: Any) -> bool:
    """Return whether two annotations are the same type."""
    try:
        return bool(first == second)
    except TypeError:  # a union compares by hashes, which its metadata may not have
        return repr(first) == repr(second)


def literal_values(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a Literal; an empty tuple for any other annotation."""
    inner = plain(annotation).annotation
    return get_args(inner) if get_origin(inner) is Literal else ()


def type_name(annotation: Any) -> str:
    """Return a short readable name, which is stored in the catalogue."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


class Stored:
    """Defines how a custom type is stored, as in ``Annotated[Money, Stored(encode, decode)]``.

    Args:
        encode: converts a Python value to a storable one: None, bool, int, float, str, bytes, datetime, a compiled
            pattern, or lists, dicts and sets of them. It is not called for None if the field is optional.
        decode: the inverse; pydantic validates the result. ``decode(encode(value)) == value`` must hold.

    Raises:
        ModelDefinitionError: one of them is not callable.
    """

    __slots__ = ("decode", "encode")

    def __init__(self, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
        for name, function in (("encode", encode), ("decode", decode)):
            if not callable(function):
                raise ModelDefinitionError(
                    "a storage function cannot be called", option=name, hint="Write Stored(encode, decode)."
                )
        self.encode = encode
        self.decode = decode


class Leaf(NamedTuple):
    """The value at the end of a path: its codec, whether it may be None, and whether there may be several."""

    codec: ColumnCodec
    nullable: bool
    many: bool


def leaf_of(inner: Plain, names: tuple[str, ...] = ()) -> Leaf | None:
    """Return the value at the end of a path below an annotation; None if there is none, or it cannot be a column."""
    if any(isinstance(mark, Stored) for mark in inner.metadata):
        return None
    element = element_of(inner)
    if element is not None:
        leaf = None if element_of(element) is not None else leaf_of(element, names)
        return None if leaf is None else Leaf(leaf.codec, inner.nullable, True)
    if not names:
        codec = _codec_of(inner)
        return None if codec is None else Leaf(codec, inner.nullable, False)
    leaves = [leaf_of(below, names[1:]) if below is not None else None for below in fields_named(inner, names[0])]
    found = [leaf for leaf in leaves if leaf is not None]
    if not found or len(found) < len(leaves) or len({(leaf.codec.name, leaf.many) for leaf in found}) > 1:
        return None
    codec = found[0].codec
    if any(leaf.codec is not codec for leaf in found):
        # For example, two Enums of str have only str in common.
        codec = columns.column_codec_named(codec.name) or codec
    return Leaf(codec, inner.nullable or any(leaf.nullable for leaf in found), found[0].many)


def types_at(model: type[BaseModel], path: str) -> Iterator[tuple[Plain, type[BaseModel]]]:
    """Yield the types of one value at a path, of elements in place of lists, each with the model that declares it."""
    first, *names = path.split(".")
    info = model.model_fields.get(first)
    if info is not None:
        yield from _types_below(plain(info.annotation, info.metadata), names, model)


def _types_below(inner: Plain, names: list[str], owner: type[BaseModel]) -> Iterator[tuple[Plain, type[BaseModel]]]:
    element = element_of(inner)
    if element is not None:
        yield from _types_below(element, names, owner)
    elif not names:
        yield inner, owner
    else:
        for model in models_of(inner.annotation):
            info = model.model_fields.get(names[0])
            if info is not None:
                yield from _types_below(plain(info.annotation, info.metadata), names[1:], model)


def fields_named(inner: Plain, name: str) -> Iterator[Plain | None]:
    """Yield the field of a name in each nested model of an annotation; None for a model without it."""
    for model in models_of(inner.annotation):
        info = model.model_fields.get(name)
        yield None if info is None else plain(info.annotation, info.metadata)


def models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the nested models whose objects are the values of an annotation; empty if it allows other values."""
    members = get_args(annotation) if is_union(annotation) else (annotation,)
    classes = [plain(member).annotation for member in members]
    if all(isinstance(cls, type) and issubclass(cls, BaseModel) and not is_root(cls) for cls in classes):
        return tuple(classes)
    return ()


ABSTRACT_CONTAINERS: Final[Mapping[Any, type[Any]]] = {
    abstract.Sequence: list,
    abstract.MutableSequence: list,
    abstract.Set: frozenset,
    abstract.MutableSet: set,
    abstract.Mapping: dict,
    abstract.MutableMapping: dict,
}
"""For each abstract type of a container, the type as which its values are stored and read."""


def container_kind(annotation: Any) -> Any:
    """Return the type of a container without its arguments, such as list for ``Sequence[int]``; other types as given.

    Examples:
        >>> container_kind(abstract.Sequence[int]), container_kind(set[int]), container_kind(str)
        (<class 'list'>, <class 'set'>, <class 'str'>)
    """
    kind = get_origin(annotation) or annotation
    try:
        return ABSTRACT_CONTAINERS.get(kind, kind)
    except TypeError:  # an unhashable annotation
        return kind


def element_of(inner: Plain) -> Plain | None:
    """Return the annotation of the elements of a list, set, frozenset or ``tuple[T, ...]``; None for other types.

    A ``Sequence`` counts as a list, a ``Set`` as a frozenset.

    Examples:
        >>> element_of(plain(list[int])), element_of(plain(tuple[int, int])), element_of(plain(str))
        (Plain(annotation=<class 'int'>, metadata=(), nullable=False), None, None)
    """
    kind, arguments = container_kind(inner.annotation), get_args(inner.annotation)
    variadic = kind is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    return plain(arguments[0]) if (kind in (list, set, frozenset) and arguments) or variadic else None


def _codec_of(inner: Plain) -> ColumnCodec | None:
    try:
        return columns.column_codec(inner.annotation, inner.metadata)
    except ModelDefinitionError:
        return None  # not a column: values of several types, or KeyNumber on a str


def is_root(model: type[Any]) -> bool:
    """Return whether it is a ``RootModel``, without loading that class, which pydantic creates at its first use."""
    return bool(getattr(model, "__pydantic_root_model__", False))


def nested_fields(model: type[Any], path: str) -> Mapping[str, FieldInfo]:
    """Return the fields, by name, of the nested model at a path with dots; empty if there is no model."""
    fields: Mapping[str, FieldInfo] = model.__pydantic_fields__
    for name in path.split("."):
        if name not in fields:
            return {}
        inner = plain(fields[name].annotation)
        inside = (element_of(inner) or inner).annotation
        members = get_args(inside) if is_union(inside) else (inside,)
        models = [model for member in members for model in models_of(member)]
        fields = models[0].__pydantic_fields__ if len(models) == 1 else {}
    return fields


def has_several_values(model: type[Any], path: str) -> bool:
    """Return whether a field, or a path with dots, leads to several values of a type that can be a column."""
    first, *names = path.split(".")
    info: FieldInfo | None = model.__pydantic_fields__.get(first)
    leaf = None if info is None else leaf_of(plain(info.annotation, info.metadata), tuple(names))
    return leaf is not None and leaf.many


show_public_path(Stored)
