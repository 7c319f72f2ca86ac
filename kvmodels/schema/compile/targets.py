"""The targets of foreign keys and the links of many-to-many relations, which are resolved when a database is opened.

Rules of this module: a target is one of the models of the database, or a class that the foreign key names. Every fault
raises a ModelDefinitionError that names the model and the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvmodels._support import suggest as spelling
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.foreign_keys import refusal
from kvmodels.schema.compile.links import relations_in
from kvmodels.schema.compile.polymorphic import collection_schema
from kvmodels.schema.definition.definition import ModelSchema, Reference, Relation

_Relations = Mapping[str, Mapping[str, Relation]]
"""The relations of each collection, by name."""


def resolved_targets(schemas: Mapping[str, ModelSchema]) -> dict[str, ModelSchema]:
    """Return the schemas of a database with the targets of all foreign keys, and with many-to-many relations.

    The link models of the relations are among the schemas.
    """
    found = {name: _found(schema, schemas) for name, schema in schemas.items()}
    relations = relations_in(schemas)
    resolved = {name: _resolved(schema, found, relations) for name, schema in schemas.items()}
    for name, schema in resolved.items():
        if not schema.targets:
            opened = {field: resolved.get(one.collection) for field, one in found[name].items()}
            schema.targets.update((field, one) for field, one in opened.items() if one is not None)
        for relation in () if schema.relations else relations.get(name, {}).values():
            schema.relations[relation.name] = relation._replace(links=resolved[relation.links.collection])
    return resolved


def _found(schema: ModelSchema, schemas: Mapping[str, ModelSchema]) -> dict[str, ModelSchema]:
    """Return the targets of a model by foreign key, checked; they are not resolved themselves."""
    keys = schema.references
    for variant in () if schema.variants is None else schema.variants.by_class.values():
        for field in variant.references.keys() - keys.keys():
            raise refusal(variant, field)(
                "a foreign key is declared by some classes of a collection only",
                f"Declare it in {schema.name}, the first class of the collection.",
            )
    found = {field: _target_of(schema, key, schemas) for field, key in keys.items()}
    for field, key in keys.items():
        _check_target(schema, key, found[field])
    return found


def _resolved(
    schema: ModelSchema, found: Mapping[str, Mapping[str, ModelSchema]], relations: _Relations
) -> ModelSchema:
    if not schema.references and schema.collection not in relations:
        return schema
    targets = _reached(schema, found, relations)
    known = schema.compiled.resolved.get(targets)
    if known is None:
        known = schema.compiled.resolved[targets] = _with_targets(schema, found[schema.collection])
    return known


def _reached(
    schema: ModelSchema, found: Mapping[str, Mapping[str, ModelSchema]], relations: _Relations
) -> tuple[tuple[str, type[Any]], ...]:
    """Return collection and class of every target and link model that can be reached, in a fixed order.

    The collection is empty for a target that is no model of the database.
    """
    reached: list[tuple[str, type[Any]]] = []
    waiting = [schema.collection]
    known = {schema.collection}
    while waiting:
        at = waiting.pop(0)
        links = [relation.links for relation in relations.get(at, {}).values()]
        for one in (*found.get(at, {}).values(), *links):
            reached.append((one.collection if one.collection in found else "", one.model))
            if one.collection not in known:
                known.add(one.collection)
                waiting.append(one.collection)
    return tuple(reached)


def _with_targets(schema: ModelSchema, found: Mapping[str, ModelSchema]) -> ModelSchema:
    keys = schema.references
    indexes = {**schema.indexes}
    for field, key in keys.items():
        indexes[key.index_name] = replace(indexes[key.index_name], reference=found[field].collection)
    references = {field: key._replace(target=found[field].model) for field, key in keys.items()}
    return replace(schema, indexes=indexes, references=references, targets={}, relations={})


def _target_of(schema: ModelSchema, key: Reference, schemas: Mapping[str, ModelSchema]) -> ModelSchema:
    refused = refusal(schema, key.field)
    found = [one for one in schemas.values() if one.model is key.target or one.name == key.target]
    if len(found) == 1:
        return found[0]
    if not isinstance(key.target, str):
        try:
            return collection_schema(key.target)  # the database was opened without it
        except ModelDefinitionError as error:
            raise refused(
                "the target of a foreign key is not a model with records", f"{key.target_name}: {error.message}."
            ) from error
    if found:
        raise refused(
            "two models of the database have the name of the target of a foreign key",
            f"Give the class instead of its name: ForeignKey[..., {key.target}].",
        )
    raise ModelDefinitionError(
        "no model of the database has the name of the target of a foreign key",
        model=schema.name,
        field=key.field,
        option=key.target,
        suggestion=spelling.closest(key.target, [one.name for one in schemas.values()]),
        hint="Name the class of the target in Database(url, models=[...]), or give the class instead of its name.",
    )


def _check_target(schema: ModelSchema, key: Reference, target: ModelSchema) -> None:
    """Refuse a target that does not allow references, or none by a key of this type."""
    refused = refusal(schema, key.field)
    if not isinstance(key.target, str) and key.target is not target.model:
        raise refused(
            "the target of a foreign key is one class of several that share a collection",
            f"Refer to {target.name}, the first class of the collection.",
        )
    column, *others = target.primary_key
    if others:
        raise refused(
            "the target of a foreign key has a primary key of several fields",
            f"Give {target.name} a primary key of one field, and keep the others unique.",
        )
    if schema.column_codecs[key.field].name != column.codec.name:
        raise refused(
            "a foreign key has another type than the primary key of its target",
            f"The primary key of {target.name} is of the type {target.fields[column.field].type_name}.",
        )
    if target.ttl_ms is not None:
        raise refused(
            "the records of the target of a foreign key expire",
            f"Remove Meta.ttl of {target.name}: a record that is referred to must stay.",
        )
