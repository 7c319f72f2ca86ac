"""Read the values of some fields of a stored document, equal to the attributes of its object.

Each field is decoded and validated separately, so a document may be complete or contain only the fields of a covering
index entry. If user functions see the whole object (validators of the class, ``model_post_init``), a complete document
is read as an object; the fields in an entry were validated when they were written.

Rules of this module: pure. A field that is missing in an older document has its plain default, as when the object is
read; without one, a DecodeError names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from kvmodels._support.naming import key_argument
from kvmodels.errors import DecodeError, KvModelsError
from kvmodels.schema.declare.annotations import plain
from kvmodels.schema.declare.markers import FieldMarker
from kvmodels.schema.definition.definition import ColumnSource, Document, ModelSchema
from kvmodels.schema.definition.fields import has_validators
from kvmodels.schema.definition.forms import must_be_stored
from kvmodels.schema.definition.values import field_validator, reader

_PROJECTORS: Final = "__kv_projectors__"
_PLAIN: Final = frozenset({str, int, float, bool, bytes})
_MISSING: Final = object()

Reader = Callable[[Document], Any]


def projector(schema: ModelSchema, fields: tuple[str, ...]) -> Projector:
    """Return the projector of some fields, created once for each model class and selection of fields."""
    # On the class, like its schema, so that both are collected together: a table in this module would keep every class
    # alive.
    known: dict[tuple[str, ...], Projector] | None = schema.model.__dict__.get(_PROJECTORS)
    if schema.sealer is not None:
        known = schema.compiled.projectors  # with the keys of a database
    if known is None:
        known = {}
        type.__setattr__(schema.model, _PROJECTORS, known)
    found = known.get(fields)
    if found is None:
        found = known[fields] = Projector(schema, fields)
    return found


class Projector:
    """Reads certain fields of the documents of one model."""

    def __init__(self, schema: ModelSchema, fields: tuple[str, ...]) -> None:
        self._schema = schema
        self._whole = has_validators(schema.model)
        self._computed = schema.computed.keys() - schema.fields.keys()
        self._readers = [(name, self._reader(name)) for name in fields]
        self._heads = frozenset(name.partition(".")[0] for name in fields)

    def __call__(self, document: Document) -> dict[str, Any]:
        """Return the values of the fields of one document by name, in the order of the names.

        Each equals the attribute of the object; a computed column is in its stored form, a column with several values
        without duplicates. Only these fields are decrypted. Raises DecodeError if a field is missing and has no plain
        default, or a value is invalid.
        """
        sealer = self._schema.sealer
        if sealer is not None and not self._whole:
            document = sealer.opened(document, (), self._heads)
        if self._whole and document.keys() >= self._schema.fields.keys():
            instance = _instance(self._schema, document)
            return {
                name: read(document) if name in self._computed else _attribute(instance, name.split("."))
                for name, read in self._readers
            }
        return {name: read(document) for name, read in self._readers}

    def _reader(self, name: str) -> Reader:
        schema = self._schema
        if name in schema.fields:
            return _FieldReader(schema, name).read
        source = schema.source(name)
        if name in schema.computed:
            assert source is not None  # every computed column has a source
            computed = source
            return lambda document: column_values(schema, document, computed)
        return _PathReader(schema, name, source).read


class _FieldReader:
    """Reads one field: decodes its stored value and validates it like the class does."""

    def __init__(self, schema: ModelSchema, name: str) -> None:
        info = cast("FieldInfo", schema.shape.model_fields[name])
        inner = plain(info.annotation, info.metadata)
        self._schema = schema
        self._name = name
        self._decode = schema.fields[name].decode
        self._nullable = inner.nullable
        self._required = must_be_stored(info)
        # A value of exactly the field's type, or decoded to it, is valid if nothing constrains or converts it.
        bare = all(_is_marker(mark) for mark in inner.metadata) and not schema.model.model_config.get("use_enum_values")
        self._exact = inner.annotation if bare and self._decode is None and inner.annotation in _PLAIN else None
        self._trusted = bare and self._decode is not None and name in schema.column_codecs
        self._validate: Callable[..., Any] | None = None

    def read(self, document: Document) -> Any:
        stored = document.get(self._name, _MISSING)
        if type(stored) is self._exact or (stored is None and self._nullable and (self._exact or self._trusted)):
            return stored
        if stored is _MISSING and self._required:
            _unreadable(self._schema, document, self._name, "missing", None)
        try:
            if stored is _MISSING:
                return self._validated({})
            value = self._decode(stored) if self._decode else stored
            return value if self._trusted and stored is not None else self._validated({self._name: value})
        except ValidationError as error:
            _unreadable(self._schema, document, self._name, error.errors(include_url=False)[0]["type"], error)
        except KvModelsError as error:
            _unreadable(self._schema, document, self._name, error.message, error)
        except Exception as error:  # noqa: BLE001 - functions of the user may raise anything, and so may foreign data
            _unreadable(self._schema, document, self._name, type(error).__name__, error)

    def _validated(self, given: dict[str, Any]) -> Any:
        if self._validate is None:
            self._validate = field_validator(self._schema, self._name)
        return self._validate(given, by_alias=False, by_name=True).__dict__[self._name]


class _PathReader:
    """Reads a field of a nested object, from its stored map if that lacks other fields, as in an index entry."""

    def __init__(self, schema: ModelSchema, name: str, source: ColumnSource | None) -> None:
        self._head_name, *self._path = name.split(".")
        self._head = _FieldReader(schema, self._head_name)
        self._leaf = None if source is None else reader(source.path, many=False)
        self._decode = None if source is None else source.codec.from_stored
        inner = plain(schema.shape.model_fields[self._head_name].annotation).annotation
        self._names: frozenset[str] = frozenset(getattr(inner, "model_fields", ()))

    def read(self, document: Document) -> Any:
        stored = document.get(self._head_name)
        if self._leaf is not None and type(stored) is dict and not self._names <= stored.keys():
            try:
                leaf = self._leaf(document)
            except KeyError:
                pass  # nothing is stored there
            else:
                return leaf if leaf is None or self._decode is None else self._decode(leaf)
        return _attribute(self._head.read(document), self._path)


def column_values(schema: ModelSchema, document: Document, source: ColumnSource) -> Any:
    """Return the value of a computed column as its function returned it, or the list of its values."""
    read = reader(source.path, many=source.many)
    try:
        stored = read(document)
    except KeyError:
        # Written before the column was declared: use the value that a rewrite of the record would store.
        stored = read(schema.prepare(_instance(schema, document)).document)
    decode = source.codec.from_stored
    if decode is None or stored is None:
        return stored
    return [decode(value) for value in stored] if source.many else decode(stored)


def _attribute(value: Any, path: Sequence[str]) -> Any:
    """Follow a path by attribute access, for each item of a list; None if there is no object."""
    for position, name in enumerate(path):
        if value is None:
            return None
        if isinstance(value, (list, tuple, set, frozenset)):
            items = cast("Sequence[Any]", value)
            return [_attribute(item, path[position:]) for item in items]
        value = getattr(value, name)
    return value


def _instance(schema: ModelSchema, document: Document) -> Any:
    # A copy, because decoding reuses and changes the document.
    return schema.decode(dict(document), () if schema.sealer is not None else _key(schema, document))[0]


def _is_marker(mark: Any) -> bool:
    return isinstance(mark, FieldMarker) or (isinstance(mark, type) and issubclass(mark, FieldMarker))


def _key(schema: ModelSchema, document: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(document.get(column.field) for column in schema.primary_key)


def _unreadable(schema: ModelSchema, document: Document, name: str, reason: str, error: Exception | None) -> NoReturn:
    """Raise DecodeError for a field of a record; without an ``error``, the record lacks the field."""
    key = _key(schema, document)
    way = "Let the model accept what is stored (kv.get shows it), or"
    if error is None:
        way = "The record was written before the field existed: give the field a plain default, write an "
        way += "upgrade that fills it, or"
    raise DecodeError(
        "a stored record lacks a field that has no plain default"
        if error is None
        else "a stored record is not a valid object of its model",
        key=key,
        model=schema.name,
        field=name,
        reason=reason,
        hint=f"{way} remove the record: repository.remove({key_argument(key)}).",
    ) from error
