"""Columns whose values functions make: folded fields, and the named columns of ``Index(key=...)``.

The values are made of the validated object when it is written, and stored with it; what is written, compared and
indexed later is the stored value. So a function is called once per write and never while reading records.

Rules of this module: a function of the user may raise and return anything; whatever it does wrong is an
InvalidValueError that names model and column, before anything is written. It is never given None, nor anything by which
it could change the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, Final, cast, get_type_hints

from kvmodels.encoding.columns import ColumnCodec
from kvmodels.errors import InvalidValueError, KvModelsError, ModelDefinitionError
from kvmodels.schema.annotations import Plain, plain, type_name
from kvmodels.schema.declarations import Index, KeyFunction, fold_of
from kvmodels.schema.definition import ColumnSource, Computed
from kvmodels.schema.markers import EntryMarker
from kvmodels.schema.paths import computed_path
from kvmodels.schema.sources import Leaf, leaf_of, naming, nearest, stored_source, value_at

__all__ = ["ComputedValues", "declared_column", "failed_function", "folded_field"]

_PLAIN: Final = frozenset((bool, int, float, str, bytes))
"""Types that a document stores as they are, and whose values nobody can change."""


class ComputedValues:
    """Makes the values of the computed columns of one model.

    Args:
        model: name of the model, for errors.
        sources: its computed columns and folded fields.
    """

    __slots__ = ("_columns",)

    def __init__(self, model: str, sources: Iterable[ColumnSource]) -> None:
        self._columns = tuple(
            (source.computed.stored_as, _stored_value(model, source, source.computed))
            for source in sources
            if source.computed is not None
        )

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a document stores, by the names that the columns are stored under.

        Args:
            values: the validated values of the object, by field name.

        Raises:
            InvalidValueError: a function raised, or returned what its column cannot hold.
        """
        return {stored_as: make(values) for stored_as, make in self._columns}


def _stored_value(model: str, source: ColumnSource, computed: Computed) -> Callable[[Mapping[str, Any]], Any]:
    read = _arguments(computed.of)

    def made(values: Mapping[str, Any]) -> Any:
        arguments = read(values)
        if any(argument is None for argument in arguments):
            return None
        try:
            if computed.folds and computed.many:
                items = [computed.function(item) for item in arguments[0] if item is not None]
                return _several(source.codec, computed, items)
            # Of lists and models a copy: the document has the same ones in it.
            result = computed.function(*[one if type(one) in _PLAIN else deepcopy(one) for one in arguments])
            if result is None and source.nullable and not computed.folds:
                return None
            return (
                _several(source.codec, computed, result) if computed.many else _single(source.codec, computed, result)
            )
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
    """The name of the type of what a function of the user raised, if that is why a document could not be made."""
    if isinstance(error, InvalidValueError) and error.message == "the function of a computed column failed":
        return error.type
    return None


def _arguments(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], list[Any]]:
    if all("." not in name for name in names):
        return lambda values: [values[name] for name in names]
    paths = [name.split(".") for name in names]
    return lambda values: [_attribute(values[first], rest) for first, *rest in paths]


def _attribute(value: Any, names: list[str]) -> Any:
    for name in names:
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _single(codec: ColumnCodec, computed: Computed, result: Any) -> Any:
    codec.pack(result)  # refuses what the column cannot hold
    if computed.to_stored is not None:
        return computed.to_stored(result)
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


def _several(codec: ColumnCodec, computed: Computed, results: Any) -> list[Any]:
    if not isinstance(results, (list, tuple, set, frozenset)):
        raise InvalidValueError(
            "a computed column with several values takes a list, set, frozenset or tuple",
            type=type(results).__name__,
            hint="The function must return what its annotation says.",
        )
    # Sorted and without duplicates, so that the stored bytes do not depend on the order of a set.
    parts = {codec.pack(item): item for item in cast("list[Any]", results) if item is not None or computed.folds}
    return [_single(codec, computed, parts[part]) for part in sorted(parts)]


def folded_field(model: str, field: str, inner: Plain, marks: Iterable[EntryMarker[Any]]) -> ColumnSource | None:
    """The source of a field that ``key=`` folds, or None if no marker does.

    Raises:
        ModelDefinitionError: two different functions, a type that is no column, or a text function on another type.
    """
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
        return None  # refused with its index, which says what a column may be
    fold = fold_of(key)
    if fold is not None and not _is_text(stored.codec):
        raise refused(
            "a function of texts folds a field of another type",
            hint="str.casefold, str.lower and str.upper fold fields of type str.",
        )
    computed = Computed(
        name=field,
        stored_as=f"{field}~{fold or version}",
        of=(field,),
        function=key,
        codec=stored.codec,
        many=stored.many,
        to_stored=stored.codec.to_stored,
        folds=True,
    )
    return replace(stored, path=computed_path(computed.stored_as), computed=computed, normalise=key)


def declared_column(model: str, fields: Mapping[str, Plain], index: Index) -> tuple[ColumnSource, bool]:
    """The computed column that an index of ``Meta`` names, and whether its index is descending.

    Raises:
        ModelDefinitionError: no name, a name that is taken or cannot be a keyword, an unknown field, a direction of one
            of several fields, or a function that does not say what type it returns.
    """
    key = index.key
    assert key is not None
    name = _column_name(model, fields, index)
    names = tuple(field.removeprefix("-") for field in index.fields)
    is_descending = index.fields[0].startswith("-")
    if len(names) > 1 and any(field.startswith("-") for field in index.fields):
        raise ModelDefinitionError(
            "one of several fields of a computed column has a direction",
            model=model,
            option=repr(index),
            hint="The fields are the arguments of the function; order the column in another index: "
            f'Index("-{name}", name=...).',
        )
    is_nullable = _may_be_none(model, fields, index, names)
    leaf = _returned(model, fields, index, names)
    _require_arity(model, name, key, names)
    codec = naming(leaf.codec, model, name)
    computed = Computed(
        name=name,
        # With the fields: a function of other ones makes other values, although its version may stay.
        stored_as=f"{name}({','.join(names)})~{fold_of(key) or index.version}",
        of=names,
        function=key,
        codec=codec,
        many=leaf.many,
        to_stored=codec.to_stored,
    )
    source = ColumnSource(
        name=name,
        path=computed_path(computed.stored_as),
        codec=codec,
        nullable=is_nullable or leaf.nullable,
        many=leaf.many,
        computed=computed,
    )
    return source, is_descending


def _may_be_none(model: str, fields: Mapping[str, Plain], index: Index, names: tuple[str, ...]) -> bool:
    """Whether any of the values that a function takes may be None; an unknown one is refused."""
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
    """Refuse a function that cannot be called with the values of its fields.

    Raises:
        ModelDefinitionError: it takes fewer or more arguments, or one that must be named.
    """
    try:
        parameters = signature(key)
    except (ValueError, TypeError):
        return  # a builtin that does not tell what it takes
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


def _returned(model: str, fields: Mapping[str, Plain], index: Index, names: tuple[str, ...]) -> Leaf:
    key = index.key
    assert key is not None
    refused = partial(ModelDefinitionError, model=model, field=index.name, option=f"key={_shown(key)}")
    if index.returns is None and fold_of(key) is not None:
        source = stored_source(model, fields, names[0])
        if len(names) > 1 or source is None or source.many or not _is_text(source.codec):
            raise refused(
                "a function of texts folds a field of another type",
                hint="str.casefold, str.lower and str.upper take one field of type str.",
            )
        return Leaf(source.codec, False, False)
    annotation = index.returns if index.returns is not None else _return_annotation(key)
    if annotation is None:
        raise refused(
            "the function of a computed column does not say what it returns",
            hint="Annotate its return type, or write returns=str.",
        )
    leaf = leaf_of(plain(annotation))
    if leaf is None:
        raise refused(
            "what the function of a computed column returns cannot be in a key or index",
            suggestion=type_name(annotation),
            hint="A column is of a type such as str, int, date or Decimal, or a list of one; say which by returns=.",
        )
    return leaf


def _return_annotation(key: KeyFunction) -> Any:
    """The annotation of what a function returns; None if there is none, or if it names what does not exist."""
    function: Any = key if hasattr(key, "__code__") or isinstance(key, type) else getattr(key, "__call__", key)  # noqa: B004
    try:
        return get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def _is_text(codec: ColumnCodec) -> bool:
    return codec.name == "str" and codec.to_stored is None


def _shown(key: Any) -> str:
    return str(getattr(key, "__qualname__", repr(key)))
