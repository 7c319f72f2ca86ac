"""What can be compared and indexed in a model, by name: fields, paths through nested models, computed columns.

Rules of this module: a name is resolved when it is asked for, from the annotations alone, so that models which contain
themselves have as many paths as somebody uses; answers are remembered, up to a bound, because names come from queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from kvmodels import spelling
from kvmodels.encoding.columns import ColumnCodec, column_codec, column_codec_named, descending, nullable
from kvmodels.errors import InvalidValueError, ModelDefinitionError
from kvmodels.schema.annotations import Plain, is_union, plain
from kvmodels.schema.definition import Column, ColumnSource
from kvmodels.schema.markers import Stored
from kvmodels.schema.nesting import is_root

__all__ = [
    "Leaf",
    "Sources",
    "column_of",
    "element_of",
    "leaf_of",
    "naming",
    "nearest",
    "stored_source",
    "value_at",
]

MOST_REMEMBERED: Final = 1_000
"""Names; a model that contains itself has endlessly many."""

DEEPEST_PATH: Final = 32
"""Names in a path; a longer one is unknown."""


class Leaf(NamedTuple):
    """What stands at the end of a path: codec of one value, whether it may be None, whether there may be several."""

    codec: ColumnCodec
    nullable: bool
    many: bool


class Sources:
    """Resolves names to column sources, for one model.

    Args:
        model: name of the model, for errors.
        fields: the annotations of its fields.
        computed: the sources of its computed columns and folded fields, by name.
    """

    __slots__ = ("_fields", "_known", "_model")

    def __init__(self, model: str, fields: Mapping[str, Plain], computed: Mapping[str, ColumnSource]) -> None:
        self._model = model
        self._fields = fields
        self._known: dict[str, ColumnSource] = dict(computed)

    def __call__(self, name: str) -> ColumnSource | None:
        """The source of a name, or None; see ``ModelSchema.source``. Cost: one dict lookup after the first time."""
        known = self._known.get(name)
        if known is None:
            known = stored_source(self._model, self._fields, name)
            if known is not None and len(self._known) < MOST_REMEMBERED:
                self._known[name] = known
        return known


def stored_source(model: str, fields: Mapping[str, Plain], name: str) -> ColumnSource | None:
    """The source of a field or a path as it is stored, even if the field is folded; None if it cannot be a column."""
    names = tuple(name.split("."))
    inner = fields.get(names[0])
    leaf = leaf_of(inner, names[1:]) if inner is not None and len(names) <= DEEPEST_PATH else None
    if leaf is None:
        return None
    return ColumnSource(name, names, naming(leaf.codec, model, name), leaf.nullable, leaf.many)


def leaf_of(inner: Plain, names: tuple[str, ...] = ()) -> Leaf | None:
    """What stands at a path below an annotation; None when there is nothing, or nothing that can be a column."""
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
        # Two Enums of texts, say: what they have in common are the texts.
        codec = column_codec_named(codec.name) or codec
    return Leaf(codec, inner.nullable or any(leaf.nullable for leaf in found), found[0].many)


def fields_named(inner: Plain, name: str) -> Iterator[Plain | None]:
    """The field of a name in the nested model of an annotation, or in each model of a union; None where it lacks it."""
    for model in models_of(inner.annotation):
        info = model.model_fields.get(name)
        yield None if info is None else plain(info.annotation, info.metadata)


def models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The nested models that values of an annotation are objects of; none if they may be anything else."""
    members = get_args(annotation) if is_union(annotation) else (annotation,)
    classes = [plain(member).annotation for member in members]
    if all(isinstance(cls, type) and issubclass(cls, BaseModel) and not is_root(cls) for cls in classes):
        return tuple(classes)
    return ()


def element_of(inner: Plain) -> Plain | None:
    """The annotation of the elements of a list, set, frozenset or ``tuple[T, ...]``; None for anything else.

    Examples:
        >>> element_of(plain(list[int])), element_of(plain(tuple[int, int])), element_of(plain(str))
        (Plain(annotation=<class 'int'>, metadata=(), nullable=False), None, None)
    """
    kind, arguments = get_origin(inner.annotation), get_args(inner.annotation)
    variadic = kind is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    return plain(arguments[0]) if (kind in (list, set, frozenset) and arguments) or variadic else None


def _codec_of(inner: Plain) -> ColumnCodec | None:
    try:
        return column_codec(inner.annotation, inner.metadata)
    except ModelDefinitionError:
        return None  # values of several types, or KeyNumber on a text: no column


def value_at(fields: Mapping[str, Plain], name: str) -> tuple[Plain, bool] | None:
    """The annotation of a field or path, of whatever type, for a function of its value; and whether it may be None.

    None for an unknown one, and for a path through a list or a union of models, where it is no single value.
    """
    first, *names = name.split(".")
    inner = fields.get(first)
    is_nullable = inner is not None and inner.nullable
    for part in names[:DEEPEST_PATH]:
        below = list(fields_named(inner, part)) if inner is not None else []
        inner = below[0] if len(below) == 1 else None
        is_nullable = is_nullable or (inner is not None and inner.nullable)
    return None if inner is None else (inner, is_nullable)


def nearest(fields: Mapping[str, Plain], more: Iterable[str], name: str) -> str | None:
    """The known name, field or path most like an unknown one; None if there is none like it."""
    names = name.split(".")
    known = [*fields, *more]
    for position, part in enumerate(names):
        close = spelling.get_close_matches(part, known, 1)
        if not close:
            return None
        names[position] = close[0]
        inner = _inside(value_at(fields, ".".join(names[: position + 1])))
        known = (
            [] if inner is None else [field for model in models_of(inner.annotation) for field in model.model_fields]
        )
    return ".".join(names)


def _inside(value: tuple[Plain, bool] | None) -> Plain | None:
    if value is None:
        return None
    return element_of(value[0]) or value[0]


def column_of(source: ColumnSource, *, is_descending: bool = False) -> Column:
    """The column of an index that is made of a source."""
    codec = nullable(source.codec) if source.nullable else source.codec
    codec = descending(codec) if is_descending else codec
    return Column(source.name, codec, is_descending, source.nullable, source.many, source.path)


def naming(codec: ColumnCodec, model: str, field: str) -> ColumnCodec:
    """The codec with model and field in its errors, which by itself it cannot know."""

    def named(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        @wraps(pack)
        def packed(value: Any) -> bytes:
            try:
                return pack(value)
            except InvalidValueError as error:
                raise InvalidValueError(
                    error.message, model=model, field=field, path=error.path, type=error.type, hint=error.hint
                ) from None

        return packed

    return replace(
        codec,
        pack=named(codec.pack),
        pack_stored=named(codec.pack_stored),
        pack_prefix=codec.pack_prefix and named(codec.pack_prefix),
    )
