"""Compilation of a model class to its ``ModelSchema``: storage forms, columns and indexes.

Rules of this module: every fault of a declaration is found here, before any object exists, and raises a
ModelDefinitionError that names model, field and option. The result depends only on the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, cast

from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo

from kvmodels._support.naming import short_repr
from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.compile.blobs import blob_form, check_blobs
from kvmodels.schema.compile.columns import column_sources, declared_column, folded_field, naming, stored_source
from kvmodels.schema.compile.defaults import refuse_invalid_defaults
from kvmodels.schema.compile.foreign_keys import foreign_keys
from kvmodels.schema.compile.histories import check_history
from kvmodels.schema.compile.indexes import Declarations
from kvmodels.schema.compile.lasting_types import require_lasting_types
from kvmodels.schema.compile.options import ModelOptions, options_of
from kvmodels.schema.compile.record_codec import RecordCodec
from kvmodels.schema.declare.annotations import Plain, Stored, are_same, literal_values, plain, type_name
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.markers import EntryMarker, FieldMarker, PrimaryKey
from kvmodels.schema.declare.on_write import automatic_key, model_hooks, time_fields
from kvmodels.schema.definition.definition import Column, ColumnSource, FieldStorage, IndexDefinition, ModelSchema
from kvmodels.schema.definition.fields import FormBuilder, has_validators
from kvmodels.schema.definition.forms import Form, must_be_stored
from kvmodels.schema.definition.kinds import kind_of
from kvmodels.schema.definition.upgrades import Upgrades
from kvmodels.schema.definition.values import RESERVED_FIELD
from kvmodels.schema.encryption.fields import (
    blind_sources,
    check_encrypted,
    encrypted_fields,
    hide_values,
    without_blind,
)
from kvmodels.schema.filters.ordering import default_order

SCHEMA_ATTRIBUTE = "__kv_schema__"
"""The class attribute for the compiled schema."""


def schema_of(model: type[Any]) -> ModelSchema:
    """Return the schema of a model class, compiled once; at its first use if annotations name later classes."""
    schema: ModelSchema | None = getattr(model, "__dict__", {}).get(SCHEMA_ATTRIBUTE)
    if schema is None:
        schema = compile_schema(model)
        type.__setattr__(model, SCHEMA_ATTRIBUTE, schema)
    return schema


def compile_schema(model: type[Any], shape: type[Any] | None = None) -> ModelSchema:
    """Compile a model class; call ``schema_of``, which does it once and raises the same errors."""
    options = _options(model, may_be_abstract=shape is not None)
    _complete(model)
    if shape is None:  # otherwise the fields of classes that are already compiled
        require_lasting_types(model)
        hide_values(model)
    builder = FormBuilder(model.__name__)
    builder.validators = has_validators(model)
    fields = _Fields(model if shape is None else shape, builder)
    if shape is None:
        refuse_invalid_defaults(model, fields.forms)
    check_history(model, options, fields.key_names)
    check_blobs(model, options, fields.blobs)
    fields.check_encrypted(options)
    computed = fields.folded() | fields.blind(options)
    for index in options.indexes:
        if isinstance(index, Index) and index.key is not None:
            source = declared_column(model.__name__, fields.plain, index, index.key)
            computed.setdefault(source.name, source)  # the index of a second column of this name is refused below
        needed = kind_of(index).computed(index, model.__name__, fields.plain)
        if needed is not None:
            computed.setdefault(needed.name, needed)
    schema = _without_indexes(model, options, fields, computed)
    declarations = Declarations(schema, fields.plain, options.discriminator)
    marked = [(field, mark) for field, marks in fields.entries.items() for mark in marks]
    indexes = [one for field, mark in marked for one in declarations.all_of_field(field, mark)]
    indexes += [one for index in options.indexes for one in declarations.all_of_meta(index)]
    _check_discriminator(model, options)
    references, own = foreign_keys(schema, declarations, fields.markers)
    indexes = [own.pop(index.name, index) if index.unique else index for index in indexes]
    ordering = default_order(schema, options.ordering)
    named = _by_name(model.__name__, [*indexes, *own.values()])
    return replace(schema, indexes=named, references=references, ordering=ordering, blobs=fields.blobs)


def _check_discriminator(model: type[Any], options: ModelOptions) -> None:
    """Refuse a class without a value that distinguishes it from the others of its collection."""
    name = options.discriminator
    parents = [options_of(base) for base in model.__mro__[1:]]
    shares = any(parent is not None and parent.discriminator for parent in parents)
    if name is not None and shares and not options.abstract and not tags_of(model, name):
        tag = model.__name__.lower()
        raise ModelDefinitionError(
            "a class that shares its collection has no discriminator value",
            model=model.__name__,
            field=name,
            hint=f'Write {name}: Literal["{tag}"] = "{tag}", or set abstract=True.',
        )


def tags_of(model: type[Any], discriminator: str) -> tuple[Any, ...]:
    """Return the stored values of the Literal field that determines the class of an object; empty for another field."""
    info: FieldInfo | None = model.model_fields.get(discriminator)
    values = () if info is None else literal_values(info.annotation)
    return tuple(value.value if isinstance(value, Enum) else value for value in values)


def _without_indexes(
    model: type[Any], options: ModelOptions, fields: _Fields, computed: Mapping[str, ColumnSource]
) -> ModelSchema:
    """Return the schema without indexes, which is used to parse the conditions of indexes."""
    upgrades = _upgrades(model, options, fields) if options.upgrades else None
    records = RecordCodec(
        model,
        fields.forms,
        primary_key=fields.key_names,
        computed=without_blind(computed.values()),
        schema_version=options.schema_version,
        proves=fields.has_validators and not options.trust_validators,
        runs_user_code=fields.has_validators or fields.has_conversions,
        upgrades=upgrades,
    )
    steps: Mapping[str, Any] = {} if upgrades is None else upgrades.in_schema
    return ModelSchema(
        model=model,
        name=model.__name__,
        collection=options.collection,
        fields=fields.storage,
        primary_key=fields.primary_key,
        indexes={},
        column_codecs=fields.codecs,
        nullable_fields=frozenset(name for name, inner in fields.plain.items() if inner.nullable),
        computed={name: source.computed for name, source in computed.items() if source.computed is not None},
        source=column_sources(model.__name__, fields.unencrypted, computed),
        schema_version=options.schema_version,
        ttl_ms=options.ttl_ms,
        history=options.history,
        decode=records.decode,
        primary_key_of=records.primary_key_of,
        prepare=records.prepare,
        accept=records.accept,
        hooks=model_hooks(model),
        time_fields=fields.time_fields,
        automatic_key=fields.automatic_key,
        shape=fields.shape,
        **steps,
        fast_decoding=records.fast_decoding,
        revise=records.revise,
        prepare_many=records.prepare_many,
        encrypted=tuple(fields.encrypted),
    )


def _upgrades(model: type[Any], options: ModelOptions, fields: _Fields) -> Upgrades:
    for column in fields.primary_key:
        if any(column.field in step.touches for step in options.upgrades):
            raise ModelDefinitionError(
                "an upgrade touches the primary key",
                model=model.__name__,
                field=column.field,
                hint="A record keeps its primary key. Write the records to a new collection.",
            )
    return Upgrades(model.__name__, options.upgrades)


def _options(model: type[Any], *, may_be_abstract: bool) -> ModelOptions:
    options = options_of(model)
    if options is None:
        raise ModelDefinitionError(
            "this is not a model class",
            model=getattr(model, "__name__", None) or short_repr(model),
            hint="Give a class that derives from KvModel.",
        )
    if options.abstract and not may_be_abstract:
        raise ModelDefinitionError(
            "an abstract model has no records",
            model=model.__name__,
            option="abstract",
            hint="Use a class that derives from it.",
        )
    return options


def _complete(model: type[Any]) -> None:
    if model.__pydantic_complete__:
        return
    try:
        model.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise ModelDefinitionError(
            "an annotation names a class that does not exist",
            model=model.__name__,
            option=error.name,
            hint="Define the class before the model is used, or call model_rebuild() where it is visible.",
        ) from error


class _Fields:
    """The fields of one model: storage forms, columns and markers."""

    def __init__(self, model: type[Any], builder: FormBuilder) -> None:
        self.model = model.__name__
        self.shape = model
        infos = cast("dict[str, FieldInfo]", model.model_fields)
        self.plain = {name: plain(info.annotation, info.metadata) for name, info in infos.items()}
        self.markers = {name: tuple(self._markers_of(name, inner)) for name, inner in self.plain.items()}
        self.entries = {
            name: [mark for mark in marks if isinstance(mark, EntryMarker)] for name, marks in self.markers.items()
        }
        self.encrypted = encrypted_fields(self.markers)
        self.unencrypted = {name: inner for name, inner in self.plain.items() if name not in self.encrypted}
        self.forms: dict[str, Form] = {}
        for name, info in infos.items():
            builder.field = name
            form = blob_form(self.plain[name])
            self.forms[name] = builder.form(info.annotation, info.metadata) if form is None else form
        self.blobs = tuple(name for name, inner in self.plain.items() if inner.annotation is Blob)
        self.has_validators, self.has_conversions = builder.validators, builder.conversions
        self.storage = {
            name: FieldStorage(name, self._type_name(name, form), form.encode, form.decode, must_be_stored(infos[name]))
            for name, form in self.forms.items()
        }
        codecs = {name: codec for name in infos if (codec := self._codec_of(name)) is not None}
        self.codecs = {name: codec for name, codec in codecs.items() if name not in self.encrypted}
        self._refuse_encrypted_keys()
        self.primary_key = tuple(self._primary_key())
        self.key_names = tuple(column.field for column in self.primary_key)
        types = {name: inner.annotation for name, inner in self.plain.items()}
        self.time_fields = tuple(time_fields(model, types, self.key_names))
        self.automatic_key = automatic_key(model, types, self.key_names)

    def _type_name(self, name: str, form: Form) -> str:
        return f"encrypted[{form.type_name}]" if name in self.encrypted else form.type_name

    def _refuse_encrypted_keys(self) -> None:
        """Refuse an encrypted primary key, before it is missing as a column."""
        for name in self.encrypted:
            if any(isinstance(mark, PrimaryKey) for mark in self.markers[name]):
                hint = "Keys are stored in plain: give the record a random key, and index the field."
                raise self._error("a primary key is encrypted", name, option="PrimaryKey", hint=hint)

    def check_encrypted(self, options: ModelOptions) -> None:
        """Refuse every place that an encrypted field cannot have."""
        if self.encrypted:
            set_apart = dict.fromkeys([field.name for field in self.time_fields], "set")
            set_apart |= {options.discriminator or "": "discriminator", **dict.fromkeys(self.blobs, "blob")}
            check_encrypted(self.model, self.encrypted, self.markers, options.indexes, set_apart)

    def blind(self, options: ModelOptions) -> dict[str, ColumnSource]:
        """Return the sources of the blind values of encrypted fields with an index."""
        named = {name for index in options.indexes for name in index.fields}
        found: dict[str, ColumnSource] = {}
        for field, mark in self.encrypted.items():
            stored = stored_source(self.model, self.plain, field)
            if stored is not None and (self.entries[field] or field in named):
                found.update(blind_sources(field, mark, stored, self.entries[field]))
        return found

    def _markers_of(self, field: str, inner: Plain) -> Iterator[FieldMarker[Any]]:
        if field.startswith(RESERVED_FIELD):
            raise self._error("the name of a field is reserved", field, hint="Choose one that does not begin with $kv.")
        for nested in _nested_metadata(inner.annotation):
            if issubclass(_class_of(nested), FieldMarker):
                raise self._error(
                    "a marker is inside the type",
                    field,
                    option=_class_of(nested).__name__,
                    hint="Put it around the whole type of the field: Indexed[int | None].",
                )
        for mark in inner.metadata:
            if issubclass(_class_of(mark), FieldMarker):
                yield mark() if isinstance(mark, type) else mark

    def _codec_of(self, field: str) -> ColumnCodec | None:
        inner = self.plain[field]
        try:
            codec = column_codec(inner.annotation, inner.metadata)
        except ModelDefinitionError as error:
            if not self.markers[field]:
                return None  # not a column, and not declared as one
            raise self._error(error.message, field, option=error.option, hint=error.hint) from error
        if codec is None or any(isinstance(mark, Stored) for mark in inner.metadata):
            return None
        return naming(codec, self.model, field)

    def _primary_key(self) -> Iterator[Column]:
        names = [name for name, marks in self.markers.items() if any(isinstance(mark, PrimaryKey) for mark in marks)]
        if not names:
            raise ModelDefinitionError(
                "a model has no primary key",
                model=self.model,
                hint="Mark a field, id: PrimaryKey[ULID] = Field(default_factory=ULID), or set abstract=True.",
            )
        for name in names:
            if self.plain[name].nullable:
                raise self._error("a primary key field is optional", name, hint="A primary key is never None.")
            if name not in self.codecs:
                raise self._error(
                    "a field of this type cannot be in a key or index",
                    name,
                    option=type_name(self.plain[name].annotation),
                    hint="Columns are bool, int, float, str, bytes, UUID, ULID, date, datetime, time, timedelta, "
                    "Decimal, IP addresses, and Enum and Literal of one of them; without Stored().",
                )
            yield Column(name, self.codecs[name], path=(name,))

    def folded(self) -> dict[str, ColumnSource]:
        """Return the sources of the fields that ``key=`` in a marker folds."""
        folded: dict[str, ColumnSource] = {}
        for field, marks in self.entries.items():
            if field in self.encrypted:
                continue  # its blind values are those of the folded ones
            source = folded_field(self.model, field, self.plain[field], marks)
            if source is None:
                continue
            folded[field] = source
            if any(column.field == field for column in self.primary_key):
                raise self._error(
                    "a field of the primary key is folded",
                    field,
                    option="key",
                    hint="Keys are compared as they are: fold the value in a validator, or declare "
                    f'Index("{field}", key=..., name=...) in Meta.',
                )
        return folded

    def _error(self, message: str, field: str, *, option: str | None = None, hint: str | None) -> ModelDefinitionError:
        return ModelDefinitionError(message, model=self.model, field=field, option=option, hint=hint)


def _class_of(mark: Any) -> type[Any]:
    return mark if isinstance(mark, type) else type(mark)


def _nested_metadata(annotation: Any) -> Iterator[Any]:
    waiting = [annotation]
    for outer in waiting:  # grows during the loop
        for argument in getattr(outer, "__args__", ()):
            inner = plain(argument)
            yield from inner.metadata
            if not any(are_same(inner.annotation, known) for known in waiting):  # an alias may contain itself
                waiting.append(inner.annotation)


def _by_name(model: str, indexes: Iterable[IndexDefinition]) -> dict[str, IndexDefinition]:
    named: dict[str, IndexDefinition] = {}
    for index in indexes:
        if index.name in named:
            raise ModelDefinitionError(
                "two indexes have one name",
                model=model,
                option=index.name,
                hint="Give one of them another name=.",
            )
        named[index.name] = index
    return named
