"""The columns of a model by name: fields, paths through nested models, and computed columns with their functions.

The values of a computed column are computed from the validated object at every write, and stored with it. Later
comparisons and index entries use the stored value, so a function is called once per write and never while reading
records.

Rules of this module: a name is resolved at its first use, from the annotations alone, so that a recursive model has as
many paths as are used. Column sources are cached up to a maximum, because names come from queries. A user function may
raise or return anything; each of its faults is an InvalidValueError that names model and column, before anything is
written. It never receives None, nor a reference through which it could change the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Final, cast, get_type_hints

from kvmodels._support import suggest as spelling
from kvmodels._support.annotations import signature_of
from kvmodels.codecs.columns.base import ColumnCodec, descending, nullable
from kvmodels.errors import InvalidValueError, KvModelsError, ModelDefinitionError
from kvmodels.schema.declare.annotations import (
    Leaf,
    Plain,
    element_of,
    fields_named,
    leaf_of,
    models_of,
    plain,
    type_name,
)
from kvmodels.schema.declare.declarations import Index, KeyFunction, fold_of
from kvmodels.schema.declare.markers import EntryMarker
from kvmodels.schema.definition.definition import Column, ColumnSource, Computed
from kvmodels.schema.definition.values import computed_path

MOST_REMEMBERED: Final = 1_000
"""The maximum number of cached names; a recursive model has infinitely many."""

DEEPEST_PATH: Final = 32
"""The maximum number of names in a path; longer paths are unknown."""

SUMMED_TYPES: Final = frozenset({"int", "number", "timedelta"})
"""The names of the codecs of columns that an aggregate index can add up exactly."""


def column_sources(
    model: str, fields: Mapping[str, Plain], computed: Mapping[str, ColumnSource]
) -> Callable[[str], ColumnSource | None]:
    """Return the function that resolves names to column sources, for one model.

    ``fields`` holds the annotations of its fields, ``computed`` the sources of computed columns and folded fields.
    """
    known = dict(computed)

    def source(name: str) -> ColumnSource | None:
        found = known.get(name)
        if found is None:
            found = stored_source(model, fields, name)
            if found is not None and len(known) < MOST_REMEMBERED:  # unknown names, of which clients can send any
                known[name] = found
        return found

    return source


def stored_source(model: str, fields: Mapping[str, Plain], name: str) -> ColumnSource | None:
    """Return the source of a field or path in its stored, unfolded form; None if it cannot be a column."""
    names = tuple(name.split("."))
    inner = fields.get(names[0])
    leaf = leaf_of(inner, names[1:]) if inner is not None and len(names) <= DEEPEST_PATH else None
    if leaf is None:
        return None
    return ColumnSource(name, names, naming(leaf.codec, model, name), leaf.nullable, leaf.many)


def value_at(fields: Mapping[str, Plain], name: str) -> tuple[Plain, bool] | None:
    """Return the annotation of a field or path that a function takes, and whether the value may be None."""
    first, *names = name.split(".")
    inner = fields.get(first)
    is_nullable = inner is not None and inner.nullable
    for part in names[:DEEPEST_PATH]:
        below = list(fields_named(inner, part)) if inner is not None else []
        inner = below[0] if len(below) == 1 else None
        is_nullable = is_nullable or (inner is not None and inner.nullable)
    return None if inner is None else (inner, is_nullable)


def nearest(fields: Mapping[str, Plain], more: Iterable[str], name: str) -> str | None:
    """Return the known name, field or path most similar to an unknown one; None if there is none."""
    names = name.split(".")
    known = [*fields, *(one for one in more if " " not in one)]  # a name with a space belongs to an index
    for position, part in enumerate(names):
        close = spelling.closest(part, known)
        if close is None:
            return None
        names[position] = close
        value = value_at(fields, ".".join(names[: position + 1]))
        models = () if value is None else models_of((element_of(value[0]) or value[0]).annotation)
        known = [field for model in models for field in model.model_fields]
    return ".".join(names)


def column_of(source: ColumnSource, *, is_descending: bool = False) -> Column:
    """Return the index column for a column source."""
    codec = nullable(source.codec) if source.nullable else source.codec
    codec = descending(codec) if is_descending else codec
    return Column(source.name, codec, is_descending, source.nullable, source.many, source.path)


def naming(codec: ColumnCodec, model: str, field: str) -> ColumnCodec:
    """Return the codec with model and field added to its errors."""

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


_PLAIN: Final = frozenset((bool, int, float, str, bytes))
"""Types that a document stores unchanged, and whose values are immutable."""


def computed_values(model: str, sources: Iterable[ColumnSource]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that computes the stored values of computed columns and folded fields, by stored names."""
    makers = [
        (source.computed.stored_as, _stored_value(model, source, source.computed))
        for source in sources
        if source.computed is not None
    ]
    return lambda values: {stored_as: make(values) for stored_as, make in makers}


def _stored_value(model: str, source: ColumnSource, computed: Computed) -> Callable[[Mapping[str, Any]], Any]:
    function = computed.function
    to_stored = _several if computed.many else _single
    paths = [name.split(".") for name in computed.of]

    def made(values: Mapping[str, Any]) -> Any:
        arguments = [_attribute(values[first], rest) for first, *rest in paths]
        if not computed.takes_none and any(argument is None for argument in arguments):
            return None
        try:
            if computed.folds and computed.many:
                result: Any = [function(item) for item in arguments[0] if item is not None]
            else:
                # Functions get copies of lists and models, because the document contains the same objects.
                result = function(*[one if type(one) in _PLAIN else deepcopy(one) for one in arguments])
            if result is None and source.nullable and not computed.folds:
                return None
            return to_stored(computed, result)
        except InvalidValueError as error:
            error.model, error.field = model, source.name
            raise
        except Exception as error:
            raise InvalidValueError(
                "the function of a computed column failed",
                model=model,
                field=source.name,
                type=type(error).__name__,
                hint="It must take every value that its fields may have, except None.",
            ) from error

    return made


def failed_function(error: KvModelsError) -> str | None:
    """Return the type name of a user's exception, if it prevented a document from being created."""
    if isinstance(error, InvalidValueError) and error.message == "the function of a computed column failed":
        return error.type
    return None


def _attribute(value: Any, names: list[str]) -> Any:
    for name in names:
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _single(computed: Computed, result: Any) -> Any:
    codec = computed.codec
    codec.pack(result)  # raises for a value that the column cannot hold
    if codec.to_stored is not None:
        return codec.to_stored(result)
    kind: type[Any] = result.__class__
    if codec.name == "float" and kind is int:
        return float(result)
    if kind in _PLAIN:
        return result
    if kind is bytearray:
        return bytes(result)
    raise InvalidValueError(
        "a subclass of a storable type cannot be stored",
        type=kind.__name__,
        hint="It would come back as its base type: convert it (of an Enum, return .value).",
    )


def _several(computed: Computed, results: Any) -> list[Any]:
    if not isinstance(results, (list, tuple, set, frozenset)):
        raise InvalidValueError(
            "a computed column with several values takes a list, set, frozenset or tuple",
            type=type(results).__name__,
            hint="The function must return what its annotation says.",
        )
    # Sorted and distinct, so that the stored bytes do not depend on the order of a set.
    items = [item for item in cast("list[Any]", results) if item is not None or computed.folds]
    parts = {computed.codec.pack(item): item for item in items}
    return [_single(computed, parts[part]) for part in sorted(parts)]


def folded_field(model: str, field: str, inner: Plain, marks: Iterable[EntryMarker[Any]]) -> ColumnSource | None:
    """Return the source of a field that ``key=`` folds; None if no marker has ``key=``."""
    functions = [(mark.key, mark.version) for mark in marks if mark.key is not None]
    if not functions:
        return None
    key, version = functions[0]
    assert key is not None
    _require_arity(model, field, key, (field,))
    refused = partial(ModelDefinitionError, model=model, field=field, option=f"key={_shown(key)}")
    if any(other != functions[0] for other in functions):
        raise refused(
            "a field is folded by two different functions",
            hint="Comparisons of a field have one meaning: give every marker of the field the same key= and version=. "
            "Other functions belong into Meta: Index(field, key=..., name=...).",
        )
    stored = stored_source(model, {field: inner}, field)
    if stored is None:
        return None  # its index refuses it, and says what a column may be
    fold = fold_of(key)
    if fold is not None and not _is_text(stored.codec):
        raise refused(
            "a function for str folds a field of another type",
            hint="str.casefold, str.lower and str.upper fold fields of type str.",
        )
    stored_as = f"{field}~{fold or version}"
    computed = Computed(field, stored_as, (field,), key, stored.codec, stored.many, folds=True)
    return replace(stored, path=computed_path(stored_as), computed=computed, normalise=key)


def declared_column(model: str, fields: Mapping[str, Plain], index: Index, key: KeyFunction) -> ColumnSource:
    """Return the column that an index of ``Meta`` declares, computed by its function."""
    name = _column_name(model, fields, index)
    names = tuple(field.removeprefix("-") for field in index.fields)
    if len(names) > 1 and any(field.startswith("-") for field in index.fields):
        raise ModelDefinitionError(
            "one of several fields of a computed column has a direction",
            model=model,
            option=repr(index),
            hint="The fields are the arguments of the function; order the column in another index: "
            f'Index("-{name}", name=...).',
        )
    is_nullable = _may_be_none(model, fields, index, names)
    leaf = _returned(model, fields, index, key)
    _require_arity(model, name, key, names)
    codec = naming(leaf.codec, model, name)
    # The name includes the fields: a function of other fields computes other values, even with the same version.
    stored_as = f"{name}({','.join(names)})~{fold_of(key) or index.version}"
    computed = Computed(name, stored_as, names, key, codec, leaf.many)
    path = computed_path(stored_as)
    return ColumnSource(name, path, codec, is_nullable or leaf.nullable, leaf.many, computed)


def _may_be_none(model: str, fields: Mapping[str, Plain], index: Index, names: tuple[str, ...]) -> bool:
    """Return whether any value that a function takes may be None; refuse an unknown field."""
    is_nullable = False
    for field in names:
        value = value_at(fields, field)
        if value is None:
            raise ModelDefinitionError(
                "an index names a field that does not exist",
                model=model,
                field=field,
                option=repr(index),
                suggestion=nearest(fields, (), field),
                hint="The function of a computed column takes the values of fields, or of paths to one value.",
            )
        is_nullable = is_nullable or value[1]
    return is_nullable


def _require_arity(model: str, column: str, key: KeyFunction, names: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called with the values of its fields."""
    try:
        parameters = signature_of(key)
    except (ValueError, TypeError):
        return  # a builtin without a signature
    try:
        parameters.bind(*names)
    except TypeError as error:
        raise ModelDefinitionError(
            "the function of a computed column does not take the values of its fields",
            model=model,
            field=column,
            option=f"key={_shown(key)}",
            suggestion=", ".join(names),
            hint="It is called with the values of the fields that are listed, in order, and with nothing else.",
        ) from error


def _column_name(model: str, fields: Mapping[str, Plain], index: Index) -> str:
    name = index.name
    refused = partial(ModelDefinitionError, model=model, option=repr(index))
    if name is None:
        raise refused("a computed column has no name", hint='Write name="initial": queries compare it by that name.')
    if name in fields or name == "pk":
        raise refused(
            "a computed column has the name of a field",
            field=name,
            hint="Give it another name=; to fold the field itself write key= in its marker.",
        )
    if not isinstance(cast("Any", name), str) or not name.isidentifier() or "__" in name:
        raise refused(
            "the name of a computed column cannot be a keyword of filter",
            hint="Use a Python identifier without a double underscore, because queries write filter(name=...).",
        )
    return name


def _returned(model: str, fields: Mapping[str, Plain], index: Index, key: KeyFunction) -> Leaf:
    """Return the codec of the results of a function; refuse a type that cannot be a column."""
    refused = partial(ModelDefinitionError, model=model, field=index.name, option=f"key={_shown(key)}")
    if index.returns is None and fold_of(key) is not None:
        source = stored_source(model, fields, index.fields[0].removeprefix("-"))
        if len(index.fields) > 1 or source is None or source.many or not _is_text(source.codec):
            raise refused(
                "a function for str folds a field of another type",
                hint="str.casefold, str.lower and str.upper take one field of type str.",
            )
        return Leaf(source.codec, False, False)
    annotation = index.returns if index.returns is not None else _return_annotation(key)
    if annotation is None:
        raise refused(
            "the function of a computed column has no return type",
            hint="Annotate its return type, or write returns=str.",
        )
    leaf = leaf_of(plain(annotation))
    if leaf is None:
        raise refused(
            "the return type of the function of a computed column cannot be in a key or index",
            suggestion=type_name(annotation),
            hint="A column is of a type such as str, int, date or Decimal, or a list of one; say which by returns=.",
        )
    return leaf


def _return_annotation(key: KeyFunction) -> Any:
    """Return the return annotation of a function; None without one, or if it names an unknown class."""
    function: Any = key if hasattr(key, "__code__") or isinstance(key, type) else getattr(key, "__call__", key)  # noqa: B004
    try:
        return get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def _is_text(codec: ColumnCodec) -> bool:
    return codec.name == "str" and codec.to_stored is None


def _shown(key: Any) -> str:
    return str(getattr(key, "__qualname__", repr(key)))


def is_summed(source: ColumnSource) -> bool:
    """Return whether an aggregate index can keep sums of a column with one value."""
    codec = source.codec
    # An Enum of ints has the codec of ints, but its members cannot be added.
    return codec.name in SUMMED_TYPES and (codec.to_stored is None or codec.name == "timedelta")
