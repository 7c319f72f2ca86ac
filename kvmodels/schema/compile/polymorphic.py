"""Several classes in one collection: a class with ``discriminator=`` and its subclasses.

Records of all classes share one prefix and one kind of primary key; the value of a Literal field determines the class
of each. The schema of the collection maintains the indexes of all classes. The schema of one class, for its writes and
queries, has only the fields that all its objects have, and finds no records of other classes. An index that the first
class does not declare is partial: it contains the records of the classes that declare it.

Rules of this module: schemas are created when a database is opened, for the classes that exist then; the stored form of
a record depends only on its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, cast

import pydantic

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.columns import column_of
from kvmodels.schema.compile.indexes import Declarations, partial_of
from kvmodels.schema.compile.options import ModelOptions
from kvmodels.schema.compile.schema import compile_schema, schema_of, tags_of
from kvmodels.schema.declare.annotations import literal_values, plain
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.definition.definition import (
    ColumnSource,
    Document,
    FieldStorage,
    IndexDefinition,
    ModelSchema,
    PartialCondition,
    SpanTest,
    Variants,
)
from kvmodels.schema.definition.variants import foreign_object, unknown_class
from kvmodels.schema.filters.parse import parse

_OPTIONS = "__kv_options__"


def root_of(model: type[Any]) -> type[Any]:
    """Return the class whose collection stores a model: itself, unless it derives from one with a discriminator."""
    united = [base for base in model.__mro__ if _options(base) is not None and _options(base).discriminator is not None]
    return united[-1] if united else model


def _options(model: type[Any]) -> Any:
    options: ModelOptions | None = model.__dict__.get(_OPTIONS)
    return options


def collection_schema(model: type[Any]) -> ModelSchema:
    """Return the schema of the collection that stores a model; the model's own schema if no other class shares it."""
    if not isinstance(cast("object", model), type):
        return schema_of(model)  # raises for such a model
    root = root_of(model)
    options = _options(root)
    if options is None or options.discriminator is None:
        return schema_of(model)
    return _Collection(root, options.discriminator).schema()


def view_of(collection: ModelSchema, model: type[Any]) -> ModelSchema | None:
    """Return the schema for writes and queries of a class; None if the class is not in the collection."""
    if collection.variants is None:
        return collection if collection.model is model else None
    options = None if not issubclass(model, collection.model) else _options(model)
    return None if options is None else _view(collection, collection.variants, model)


class _Collection:
    """Combines the schemas of the classes of one collection."""

    def __init__(self, root: type[Any], discriminator: str) -> None:
        self._root = root
        self._discriminator = discriminator
        self._own = schema_of(root)
        self._by_class = {cls: schema_of(cls) for cls in _concrete(root, discriminator)}
        self._by_tag: dict[Any, ModelSchema] = {}
        for cls, schema in self._by_class.items():
            for tag in tags_of(cls, discriminator):
                other = self._by_tag.setdefault(tag, schema)
                if other is not schema:
                    raise self._error(
                        "two classes of a collection have the same discriminator value", cls, f"{tag!r}", other.name
                    )
            if _signature(schema) != _signature(self._own):
                raise self._error("a class of a collection has another primary key", cls, None, self._own.name)
        if not self._by_class:
            raise ModelDefinitionError(
                "no class of a collection has records",
                model=root.__name__,
                option=discriminator,
                hint="Import the classes that derive from it before the database is opened.",
            )

    def schema(self) -> ModelSchema:
        variants = Variants(self._discriminator, self._by_class, self._by_tag)
        shaped = compile_schema(self._root, _shape(self._root, variants))
        variants = replace(variants, upgrade=_telling(shaped, self._discriminator))
        members = list(self._by_class.values())
        sources = _Sources([shaped, *members])
        schema = replace(
            shaped,
            fields={**_optional_fields(members), **shaped.fields},
            computed={name: one for member in members for name, one in member.computed.items()},
            column_codecs={
                **{name: codec for member in members for name, codec in member.column_codecs.items()},
                **shaped.column_codecs,
            },
            source=sources,
            variants=variants,
            **_dispatched(shaped, variants, self._by_tag),
        )
        indexes = self._indexes(shaped)
        self._check_columns(indexes.values(), sources)
        return replace(schema, indexes=indexes)

    def _indexes(self, shaped: ModelSchema) -> dict[str, IndexDefinition]:
        kind = column_of(_present(shaped.source(self._discriminator)))
        declared: dict[str, list[tuple[ModelSchema, IndexDefinition]]] = {}
        for schema in self._by_class.values():
            for name, index in schema.indexes.items():
                declared.setdefault(name, []).append((schema, index))
        found: dict[str, IndexDefinition] = {}
        for name in dict.fromkeys((*self._own.indexes, *declared)):
            holders = declared.get(name) or [(self._own, self._own.indexes[name])]
            index = holders[0][1]
            if any(other.signature() != index.signature() for _, other in holders):
                raise self._error(
                    "two classes of a collection declare one index in two ways", holders[0][0].model, name
                )
            columns = tuple(
                column_of(_present(shaped.source(column.field)), is_descending=column.descending)
                if column.field == self._discriminator
                else column
                for column in index.columns
            )
            index = replace(index, columns=columns)
            if name not in self._own.indexes:
                # Even if all current classes have it: later ones may not, and queries of a class test for the class
                # anyway.
                index = replace(index, where=self._only(shaped, kind.field, [one for one, _ in holders], index.where))
            found[name] = index
        if self._discriminator not in found:
            fields = {name: plain(info.annotation, info.metadata) for name, info in shaped.shape.model_fields.items()}
            found[self._discriminator] = Declarations(shaped, fields).of_meta(Index(self._discriminator), {})
        return found

    def _only(
        self, shaped: ModelSchema, field: str, holders: list[ModelSchema], where: PartialCondition | None
    ) -> PartialCondition:
        """Return the condition of an index that only these classes have."""
        values = _values([one.model for one in holders], self._discriminator)
        kinds = partial_of(shaped, Q(**{f"{field}__in": values}), f"index of {holders[0].name}")
        ((test,),) = kinds.alternatives
        if where is None:
            return kinds
        # First, because documents of other classes lack the values of the other tests.
        return PartialCondition(
            tuple(_with_first(test, tests) for tests in where.alternatives), f"{kinds.text} & {where.text}"
        )

    def _check_columns(self, indexes: Iterable[IndexDefinition], sources: _Sources) -> None:
        """Refuse a column with different types in different classes: entries and the catalogue identify it by name."""
        for index in indexes:
            for column in index.columns:
                if len({(one.codec.name, one.many) for one in sources.all(column.field)}) > 1:
                    raise self._error(
                        "two classes of a collection have columns of one name and two types", None, column.field
                    )

    def _error(
        self, message: str, cls: type[Any] | None, option: str | None, other: str | None = None
    ) -> ModelDefinitionError:
        named = f"{other} is the other one. " if other else ""
        return ModelDefinitionError(
            message,
            model=(cls or self._root).__name__,
            option=option,
            hint=f"{named}Give one of them another name or value, or declare it once in a class that both derive from.",
        )


def _with_first(test: SpanTest, tests: tuple[SpanTest, ...]) -> tuple[SpanTest, ...]:
    return tests if any(one.column.field == test.column.field for one in tests) else (test, *tests)


def _present(source: ColumnSource | None) -> ColumnSource:
    assert source is not None, "a discriminator is a column"
    return source


def _signature(schema: ModelSchema) -> list[Any]:
    return [column.signature() for column in schema.primary_key]


def _concrete(root: type[Any], discriminator: str) -> Iterator[type[Any]]:
    """Return the classes that have records; if two have the same name, as in a notebook, the later one."""
    found: dict[tuple[str, str], type[Any]] = {}
    waiting = [root]
    while waiting:
        cls = waiting.pop(0)
        options = _options(cls)
        if options is None:
            continue  # refused when it was declared, and not collected yet
        waiting.extend(cls.__subclasses__())
        generic = bool(cls.__pydantic_generic_metadata__["parameters"])
        if not options.abstract and not generic:
            schema_of(cls)  # completes its annotations, and refuses a class without the field
            if tags_of(cls, discriminator):
                found[cls.__module__, cls.__qualname__] = cls
    yield from found.values()


def _shape(model: type[Any], variants: Variants) -> type[Any]:
    """Return the fields that all objects of a class have, and the discriminator with its values for all of them."""
    infos: dict[str, Any] = {name: (info.annotation, copy(info)) for name, info in model.model_fields.items()}
    given = infos.get(variants.discriminator)
    metadata = list(given[1].metadata) if given is not None else []
    kinds: Any = Literal[_values(variants.by_class, variants.discriminator)]
    infos[variants.discriminator] = (kinds, _field_with(metadata))
    config = model.model_config
    shape: type[Any] = pydantic.create_model(model.__name__, __config__=config, **infos)
    return shape


def _values(classes: Iterable[type[Any]], discriminator: str) -> tuple[Any, ...]:
    """Return the values of the discriminator of some classes, as Python values."""
    return tuple(value for cls in classes for value in literal_values(cls.model_fields[discriminator].annotation))


def _field_with(metadata: list[Any]) -> Any:
    info: Any = pydantic.Field()
    info.metadata.extend(metadata)
    return info


def _optional_fields(members: Iterable[ModelSchema]) -> dict[str, FieldStorage]:
    """Return the fields of single classes, which are no missing fields in records of the others."""
    return {name: replace(field, required=False) for member in members for name, field in member.fields.items()}


class _Sources:
    """The column sources of all classes of a collection."""

    __slots__ = ("_schemas",)

    def __init__(self, schemas: list[ModelSchema]) -> None:
        self._schemas = schemas

    def __call__(self, name: str) -> ColumnSource | None:
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[ColumnSource]:
        """Return the column source of each class."""
        return [source for schema in self._schemas if (source := schema.source(name)) is not None]


def _view(collection: ModelSchema, variants: Variants, model: type[Any]) -> ModelSchema:
    by_class = {cls: schema for cls, schema in variants.by_class.items() if issubclass(cls, model)}
    by_tag = {tag: schema for tag, schema in variants.by_tag.items() if schema.model in by_class}
    if not by_class:
        raise ModelDefinitionError(
            "no class of a collection has records",
            model=model.__name__,
            option=variants.discriminator,
            hint="Import the classes that derive from it before the database is opened.",
        )
    own = Variants(variants.discriminator, by_class, by_tag)
    base = compile_schema(model, _shape(model, own))
    own = replace(own, upgrade=_telling(base, own.discriminator))
    if model is not collection.model:
        condition = Q(**{f"{own.discriminator}__in": _values(by_class, own.discriminator)})
        own = replace(own, where=parse(base, (condition,), {}))
    return replace(
        base,
        collection=collection.collection,
        indexes={name: index for name, index in collection.indexes.items() if _knows(base, index)},
        references=collection.references,
        time_fields=tuple({field.name: field for one in by_class.values() for field in one.time_fields}.values()),
        variants=own,
        **_dispatched(base, own, variants.by_tag),
    )


def _telling(schema: ModelSchema, discriminator: str) -> Any:
    """Return the upgrade if it changes the discriminator."""
    return schema.upgrade if discriminator in schema.touched else None


def _knows(schema: ModelSchema, index: IndexDefinition) -> bool:
    return all(schema.source(column.field) is not None for column in index.columns)


class _Dispatcher:
    """Calls the functions of a schema for the class of an object or stored record."""

    def __init__(self, shaped: ModelSchema, variants: Variants, by_tag: Mapping[Any, ModelSchema]) -> None:
        self._name = shaped.name
        self._shaped = replace(shaped, variants=variants)
        self._by_class = variants.by_class
        self._read = replace(variants, by_tag=by_tag)

    def _of(self, instance: Any) -> ModelSchema:
        schema = self._by_class.get(instance.__class__)
        if schema is None:
            raise foreign_object(self._shaped, instance)
        return schema

    def decode(self, document: Document, key: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        read = self._read
        document = document if read.upgrade is None else read.upgrade(document, key)
        tag = document.get(read.discriminator)
        schema = read.of_tag(tag)
        if schema is None:
            raise unknown_class(self._name, read.discriminator, tag, key)
        return schema.decode(document, key)

    def encode(self, instance: Any) -> Document:
        return self._of(instance).encode(instance)

    def primary_key_of(self, instance: Any) -> tuple[Any, ...]:
        return self._of(instance).primary_key_of(instance)

    def prepare(self, instance: Any) -> Any:
        return self._of(instance).prepare(instance)

    def accept(self, instance: Any, prepared: Any) -> None:
        self._of(instance).accept(instance, prepared)


def _dispatched(shaped: ModelSchema, variants: Variants, by_tag: Mapping[Any, ModelSchema]) -> dict[str, Any]:
    """Return schema functions that dispatch by class; ``by_tag`` holds the classes that can be read."""
    dispatcher = _Dispatcher(shaped, variants, by_tag)
    return {
        "encode": dispatcher.encode,
        "decode": dispatcher.decode,
        "primary_key_of": dispatcher.primary_key_of,
        "prepare": dispatcher.prepare,
        "accept": dispatcher.accept,
        "fast_decoding": None,
        "revise": None,
        "prepare_many": None,
    }
