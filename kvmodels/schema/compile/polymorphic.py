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
from kvmodels.schema.compile.options import options_of
from kvmodels.schema.compile.schema import compile_schema, schema_of, tags_of
from kvmodels.schema.declare.annotations import literal_values, plain
from kvmodels.schema.declare.declarations import Index
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.definition.definition import (
    ColumnSource,
    Document,
    IndexDefinition,
    ModelSchema,
    PartialCondition,
    Variants,
)
from kvmodels.schema.definition.variants import foreign_object, unknown_class
from kvmodels.schema.encryption.blind_values import key_ids
from kvmodels.schema.filters.parse import parse


def root_of(model: type[Any]) -> type[Any]:
    """Return the class whose collection stores a model: itself, unless it derives from one with a discriminator."""
    options = {base: options_of(base) for base in model.__mro__}
    united = [base for base, one in options.items() if one is not None and one.discriminator is not None]
    return united[-1] if united else model


def collection_schema(model: type[Any]) -> ModelSchema:
    """Return the schema of the collection that stores a model; the model's own schema if no other class shares it."""
    if not isinstance(cast("object", model), type):
        return schema_of(model)  # raises for such a model
    root = root_of(model)
    options = options_of(root)
    if options is None or options.discriminator is None:
        return schema_of(model)
    return _Collection(root, options.discriminator).schema()


def view_of(collection: ModelSchema, model: type[Any]) -> ModelSchema | None:
    """Return the schema for writes and queries of a class; None if the class is not in the collection."""
    if collection.variants is None:
        return collection if collection.model is model else None
    if not issubclass(model, collection.model) or options_of(model) is None:
        return None
    return _view(collection, collection.variants, model)


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

    def schema(self) -> ModelSchema:
        shaped, variants = _shaped(self._root, self._discriminator, self._by_class, self._by_tag)
        indexes = self._indexes(shaped)
        members = list(self._by_class.values())
        schemas = [shaped, *members]
        self._check_columns(indexes.values(), schemas)
        self._check_encrypted(schemas)

        def source(name: str) -> ColumnSource | None:
            return next(_sources(schemas, name), None)

        # Fields of single classes are no missing fields in records of the others.
        optional = {name: replace(one, required=False) for member in members for name, one in member.fields.items()}
        return replace(
            shaped,
            indexes=indexes,
            fields={**optional, **shaped.fields},
            computed={name: one for member in members for name, one in member.computed.items()},
            column_codecs={name: one for schema in (*members, shaped) for name, one in schema.column_codecs.items()},
            encrypted=tuple(dict.fromkeys(name for schema in schemas for name in schema.encrypted)),
            source=source,
            blobs=_blobs_of(self._by_class),
            **dispatched(shaped, variants, self._by_tag),
        )

    def _indexes(self, shaped: ModelSchema) -> dict[str, IndexDefinition]:
        kind = shaped.source(self._discriminator)
        assert kind is not None, "a discriminator is a column"
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
                column_of(kind, is_descending=column.descending) if column.field == kind.name else column
                for column in index.columns
            )
            index = replace(index, columns=columns)
            if name not in self._own.indexes:
                # Even if all current classes have it: later ones may not, and queries of a class test for the class
                # anyway.
                index = replace(index, where=self._only(shaped, [one for one, _ in holders], index.where))
            found[name] = index
        if self._discriminator not in found:
            fields = {name: plain(info.annotation, info.metadata) for name, info in shaped.shape.model_fields.items()}
            found[self._discriminator] = Declarations(shaped, fields).of_meta(Index(self._discriminator))
        return found

    def _only(
        self, shaped: ModelSchema, holders: list[ModelSchema], where: PartialCondition | None
    ) -> PartialCondition:
        """Return the condition of an index that only these classes have."""
        condition = _one_of([one.model for one in holders], self._discriminator)
        kinds = partial_of(shaped, condition, f"index of {holders[0].name}")
        if where is None:
            return kinds
        ((test,),) = kinds.alternatives
        # First, because documents of other classes lack the values of the other tests.
        alternatives = tuple(
            tests if any(one.column.field == test.column.field for one in tests) else (test, *tests)
            for tests in where.alternatives
        )
        return PartialCondition(alternatives, f"{kinds.text} & {where.text}")

    def _check_columns(self, indexes: Iterable[IndexDefinition], schemas: Iterable[ModelSchema]) -> None:
        """Refuse a column with different types in different classes: entries and the catalogue identify it by name."""
        for index in indexes:
            for column in index.entry_columns:
                if len({(one.codec.name, one.many) for one in _sources(schemas, column.field)}) > 1:
                    raise self._error(
                        "two classes of a collection have columns of one name and two types", None, column.field
                    )

    def _check_encrypted(self, schemas: Iterable[ModelSchema]) -> None:
        """Refuse a field that is encrypted in some classes alone: the header lists it for all of them."""
        declared = [(name, schema) for schema in schemas for name in schema.fields]
        sealing = {name: schema for name, schema in declared if name in schema.encrypted}
        for name, schema in declared:
            if name not in sealing:
                continue
            if name not in schema.encrypted:
                raise self._error(
                    "two classes of a collection declare one field encrypted and plain",
                    schema.model,
                    name,
                    sealing[name].name,
                )
            if len({key_ids(one, (name,)) for one in (sealing[name], schema)} - {(None,)}) > 1:
                raise self._error(
                    "two classes of a collection declare one encrypted field with different index keys",
                    schema.model,
                    name,
                    sealing[name].name,
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


def _signature(schema: ModelSchema) -> list[Any]:
    return [column.signature() for column in schema.primary_key]


def _concrete(root: type[Any], discriminator: str) -> Iterator[type[Any]]:
    """Return the classes that have records; if two have the same name, as in a notebook, the later one."""
    found: dict[tuple[str, str], type[Any]] = {}
    waiting = [root]
    while waiting:
        cls = waiting.pop(0)
        options = options_of(cls)
        if options is None:
            continue  # refused when it was declared, and not collected yet
        waiting.extend(cls.__subclasses__())
        generic = bool(cls.__pydantic_generic_metadata__["parameters"])
        if not options.abstract and not generic:
            schema_of(cls)  # completes its annotations, and refuses a class without the field
            if tags_of(cls, discriminator):
                found[cls.__module__, cls.__qualname__] = cls
    yield from found.values()


def _shaped(
    model: type[Any],
    discriminator: str,
    by_class: Mapping[type[Any], ModelSchema],
    by_tag: Mapping[Any, ModelSchema],
) -> tuple[ModelSchema, Variants]:
    """Return the schema of the fields that all objects of a class have, and the classes that they may have."""
    if not by_class:
        raise ModelDefinitionError(
            "no class of a collection has records",
            model=model.__name__,
            option=discriminator,
            hint="Import the classes that derive from it before the database is opened.",
        )
    shaped = compile_schema(model, _shape(model, discriminator, by_class))
    upgrade = shaped.upgrade if discriminator in shaped.touched else None
    return shaped, Variants(discriminator, by_class, by_tag, upgrade=upgrade)


def _shape(model: type[Any], discriminator: str, classes: Iterable[type[Any]]) -> type[Any]:
    """Return a pydantic model with the fields of a class, and the discriminator with its values for these classes."""
    infos: dict[str, Any] = {name: (info.annotation, copy(info)) for name, info in model.model_fields.items()}
    info: Any = pydantic.Field()
    if discriminator in infos:
        info.metadata.extend(infos[discriminator][1].metadata)
    infos[discriminator] = (Literal[_values(classes, discriminator)], info)
    shape: type[Any] = pydantic.create_model(model.__name__, __config__=model.model_config, **infos)
    return shape


def _values(classes: Iterable[type[Any]], discriminator: str) -> tuple[Any, ...]:
    """Return the values of the discriminator of some classes, as Python values."""
    return tuple(value for cls in classes for value in literal_values(cls.model_fields[discriminator].annotation))


def _one_of(classes: Iterable[type[Any]], discriminator: str) -> Q:
    """Return the condition for the records of some classes."""
    return Q(**{f"{discriminator}__in": _values(classes, discriminator)})


def _sources(schemas: Iterable[ModelSchema], name: str) -> Iterator[ColumnSource]:
    """Yield the column source of each schema that has the name."""
    return (source for schema in schemas if (source := schema.source(name)) is not None)


def _view(collection: ModelSchema, variants: Variants, model: type[Any]) -> ModelSchema:
    by_class = {cls: schema for cls, schema in variants.by_class.items() if issubclass(cls, model)}
    by_tag = {tag: schema for tag, schema in variants.by_tag.items() if schema.model in by_class}
    shaped, own = _shaped(model, variants.discriminator, by_class, by_tag)
    if model is not collection.model:
        own = replace(own, where=parse(shaped, (_one_of(by_class, own.discriminator),), {}))
    return replace(
        shaped,
        collection=collection.collection,
        indexes={
            name: index
            for name, index in collection.indexes.items()
            if all(shaped.source(column.field) is not None for column in index.entry_columns)
        },
        references=collection.references,
        relations=collection.relations,
        blobs=_blobs_of(by_class),
        time_fields=tuple({field.name: field for one in by_class.values() for field in one.time_fields}.values()),
        **dispatched(shaped, own, variants.by_tag),
    )


def _blobs_of(by_class: Mapping[type[Any], ModelSchema]) -> tuple[str, ...]:
    """Return the names of the blob fields of some classes."""
    return tuple(dict.fromkeys(name for schema in by_class.values() for name in schema.blobs))


def dispatched(shaped: ModelSchema, variants: Variants, by_tag: Mapping[Any, ModelSchema]) -> dict[str, Any]:
    """Return the classes of a schema and the functions that dispatch by them; ``by_tag`` holds all readable classes."""
    readable = replace(variants, by_tag=by_tag)

    def of(instance: Any) -> ModelSchema:
        schema = variants.by_class.get(instance.__class__)
        if schema is None:
            raise foreign_object(replace(shaped, variants=variants), instance)
        return schema

    def decode(document: Document, key: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        document = document if readable.upgrade is None else readable.upgrade(document, key)
        tag = document.get(readable.discriminator)
        schema = readable.of_tag(tag)
        if schema is None:
            raise unknown_class(shaped.name, readable.discriminator, tag, key)
        return schema.decode(document, key)

    def primary_key_of(instance: Any) -> tuple[Any, ...]:
        return of(instance).primary_key_of(instance)

    def prepare(instance: Any) -> Any:
        return of(instance).prepare(instance)

    def accept(instance: Any, prepared: Any) -> None:
        of(instance).accept(instance, prepared)

    return {
        "variants": variants,
        "decode": decode,
        "primary_key_of": primary_key_of,
        "prepare": prepare,
        "accept": accept,
        "fast_decoding": None,
        "revise": None,
        "prepare_many": None,
    }
