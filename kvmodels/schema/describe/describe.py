"""Describe a model class, and an index from its definition.

Rules of this module: pure; nothing is read from a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvmodels._support.naming import show_public_path
from kvmodels.schema.compile.polymorphic import collection_schema, view_of
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import FOLDS
from kvmodels.schema.declare.on_write import Kind
from kvmodels.schema.definition.definition import UNRESOLVED, Column, IndexDefinition, ModelSchema
from kvmodels.schema.definition.values import RESERVED_FIELD, stored_name
from kvmodels.schema.describe.conditions import condition_text
from kvmodels.schema.describe.descriptions import (
    ColumnDescription,
    FieldDescription,
    IndexDescription,
    IndexKind,
    ModelDescription,
)


def describe(model: type[Any]) -> ModelDescription:
    """Return the fields, the primary key, the indexes and the options of a model class as plain data.

    Args:
        model: a class that derives from ``KvModel``; no database is needed.

    Returns:
        The description, without functions and classes. Of a class that shares its collection with others, it has the
        fields that all its objects have. Cost: none.

    Raises:
        ModelDefinitionError: it is not a model class, or it is abstract.

    Examples:
        >>> from kvmodels import Indexed, KvModel, PrimaryKey, Unique
        >>> class User(KvModel, collection="users"):
        ...     id: PrimaryKey[int]
        ...     email: Unique[str]
        ...     age: Indexed[int | None] = None
        >>> [(field.name, field.type, field.required) for field in describe(User).fields]
        [('id', 'int', True), ('email', 'str', True), ('age', 'int | None', False)]
        >>> [str(index) for index in describe(User).indexes]
        ['unique email (email)', 'index age (age)']
    """
    collection = collection_schema(model)
    schema = view_of(collection, model) or collection
    automatic: dict[str, Kind] = {field.name: field.automatic.kind for field in schema.time_fields}
    fields = [
        FieldDescription(name, field.type_name, field.required, name in schema.nullable_fields, automatic.get(name))
        for name, field in schema.fields.items()
    ]
    variants = schema.variants
    return ModelDescription(
        name=schema.name,
        collection=schema.collection,
        schema_version=schema.schema_version,
        fields=tuple(fields),
        primary_key=describe_columns(schema.primary_key),
        indexes=tuple(describe_index(index, _target_of(schema, index)) for index in schema.indexes.values()),
        hooks=() if schema.hooks is None else tuple(name for name, found in schema.hooks._asdict().items() if found),
        ttl_seconds=None if schema.ttl_ms is None else schema.ttl_ms / 1000,
        discriminator=None if variants is None else variants.discriminator,
        classes=() if variants is None else tuple(cls.__name__ for cls in variants.by_class),
    )


def describe_index(index: IndexDefinition, target: str | None) -> IndexDescription:
    """Return the description of a declared or stored index; ``target`` is the collection of a foreign key's target."""
    return IndexDescription(
        name=index.name,
        kind=_kind_of(index),
        columns=describe_columns(index.columns),
        unique=index.unique,
        nulls=index.nulls,
        condition=None if index.where is None else condition_text(index.where),
        included=index.include,
        stores_record=index.store == "record",
        sums=() if index.aggregates is None else tuple(column.field for column in index.aggregates.sums),
        references=target,
        on_delete=None if target is None else index.on_delete,
    )


def describe_columns(columns: Iterable[Column]) -> tuple[ColumnDescription, ...]:
    """Return the descriptions of columns in order."""
    return tuple(
        ColumnDescription(
            name=column.field,
            type=column.codec.name,
            descending=column.descending,
            nullable=column.nullable,
            many=column.many,
            computed=column.path[:1] == (RESERVED_FIELD,),
            fold=_fold_of(column),
        )
        for column in columns
    )


def _fold_of(column: Column) -> str | None:
    # Only a fold of the field itself: a named column has its fields in parentheses before the tilde.
    field, _, fold = (stored_name(column.path) or "").rpartition("~")
    return fold if field == column.field and fold in FOLDS.values() else None


def _kind_of(index: IndexDefinition) -> IndexKind:
    if index.aggregates is not None:
        return "aggregate"
    if index.reference is not None:
        return "foreign_key"
    return "unique" if index.unique else "index"


def _target_of(schema: ModelSchema, index: IndexDefinition) -> str | None:
    """Return the collection of the target of a foreign key, or the name of its class before a database is opened."""
    if index.reference != UNRESOLVED:
        return index.reference
    reference = next(one for one in schema.references.values() if one.index_name == index.name)
    return reference.target if isinstance(reference.target, str) else schema_of(reference.target).collection


show_public_path(describe)
