"""The link models of many-to-many relations, and the relations of the models of a database.

Without ``through=``, the link model is made by a rule, which is a promise about what is stored: its collection is
``<collection of the owner>_<name of the relation>``, and its fields, in this order, are the foreign keys ``owner_id``
and ``target_id``, both CASCADE and together the primary key. Names of classes play no part, so a class may be renamed.

Rules of this module: both models are among those of the database. Every fault raises a ModelDefinitionError that names
the owner and the relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import pydantic

from kvmodels._support import suggest as spelling
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.polymorphic import collection_schema
from kvmodels.schema.declare.many_to_many import DeclaredRelation, relations_of
from kvmodels.schema.declare.markers import CASCADE, FieldMarker, ForeignKey, PrimaryKey
from kvmodels.schema.definition.definition import ModelSchema, Relation

OWNER: Final = "owner_id"
"""The foreign key of a made link model to the model that declares the relation."""

TARGET: Final = "target_id"
"""The foreign key of a made link model to the target."""


class _Declared(NamedTuple):
    """A relation, the schema of the model that declares it, and that of its target."""

    relation: DeclaredRelation
    owner: ModelSchema
    target: ModelSchema

    def refusal(self, message: str, hint: str, option: str = "ManyToMany") -> ModelDefinitionError:
        return ModelDefinitionError(message, model=self.owner.name, field=self.relation.name, option=option, hint=hint)


def link_models(schemas: Mapping[str, ModelSchema]) -> list[type[Any]]:
    """Return the link models of the relations of a database that are not among its models."""
    known = {schema.model for schema in schemas.values()}
    models = [_link_model(declared, schemas) for declared in _declarations(schemas)]
    return [model for model in dict.fromkeys(models) if model not in known]


def relations_in(schemas: Mapping[str, ModelSchema]) -> dict[str, dict[str, Relation]]:
    """Return the many-to-many relations of each collection that has any, by name; of both sides."""
    found: dict[str, dict[str, Relation]] = {}
    for declared in _declarations(schemas):
        links = collection_schema(_link_model(declared, schemas))
        own, other = _keys(declared, links)
        name = declared.relation.name
        reverse = declared.relation.related_name or declared.owner.name.lower()
        _add(found, declared, declared.owner, Relation(name, links, own, other, True))
        _add(found, declared, declared.target, Relation(reverse, links, other, own, False))
    return found


def _declarations(schemas: Mapping[str, ModelSchema]) -> Iterator[_Declared]:
    for schema in schemas.values():
        relations = relations_of(schema.model)
        for variant in () if schema.variants is None else schema.variants.by_class.values():
            for name in relations_of(variant.model).keys() - relations.keys():
                raise ModelDefinitionError(
                    "a many-to-many relation is declared by some classes of a collection only",
                    model=variant.name,
                    field=name,
                    option="ManyToMany",
                    hint=f"Declare it in {schema.name}, the first class of the collection.",
                )
        for relation in relations.values():
            declared = _Declared(relation, schema, _target_of(schema, relation, schemas))
            for one in (schema, declared.target):
                if len(one.primary_key) > 1:
                    raise declared.refusal(
                        "a model of a many-to-many relation has a primary key of several fields",
                        f"Give {one.name} a primary key of one field, and keep the others unique.",
                    )
            yield declared


def _target_of(owner: ModelSchema, relation: DeclaredRelation, schemas: Mapping[str, ModelSchema]) -> ModelSchema:
    found = [one for one in schemas.values() if one.model is relation.target or one.name == relation.target]
    if len(found) == 1:
        return found[0]
    name = _name_of(relation.target)
    raise ModelDefinitionError(
        "two models of the database have the name of the target of a many-to-many relation"
        if found
        else "the target of a many-to-many relation is not among the models of the database",
        model=owner.name,
        field=relation.name,
        option=name,
        suggestion=None if found else spelling.closest(name, [one.name for one in schemas.values()]),
        hint=f"Give the class instead of its name: ManyToMany[{name}]."
        if found
        else f"Name both where the database is opened, {owner.name} and {name}: the first class of its collection, and "
        "on the same side, models= or tenant_models=.",
    )


def _name_of(model: type[Any] | str) -> str:
    return model if isinstance(model, str) else model.__name__


# --- link models ------------------------------------------------------------------------------------------------


def _link_model(declared: _Declared, schemas: Mapping[str, ModelSchema]) -> type[Any]:
    through = declared.relation.through
    if through is None:
        known = declared.owner.compiled.links
        key = (declared.relation.name, declared.target.model)
        if key not in known:
            known[key] = _made(declared)
        return known[key]
    if isinstance(through, type):
        return through
    found = [schema.model for schema in schemas.values() if schema.name == through]
    if len(found) != 1:
        raise declared.refusal(
            "no single model of the database has the name of a link model",
            f"Name the class {through} in Database(url, models=[...]), or give the class instead of its name.",
            option=f"through={through!r}",
        )
    return found[0]


def _made(declared: _Declared) -> type[Any]:
    relation, owner, target = declared
    words = "".join(word.title() for word in relation.name.split("_"))
    fields: Any = {
        name: (Annotated[(_key_type(schema), ForeignKey(schema.model), PrimaryKey(), CASCADE)], ...)
        for name, schema in ((OWNER, owner), (TARGET, target))
    }
    collection: Any = {"collection": f"{owner.collection}_{relation.name}"}
    model: type[Any] = pydantic.create_model(
        "".join(letter for letter in f"{owner.name}{words}" if letter == "_" or letter.isalnum()),
        __base__=KvModel,
        __module__=owner.model.__module__,
        __doc__=f"A link of {owner.name}.{relation.name}.",
        __cls_kwargs__=collection,
        **fields,
    )
    return model


def _key_type(schema: ModelSchema) -> Any:
    """Return the type of a primary key, as a foreign key to it is annotated."""
    info = schema.model.model_fields[schema.primary_key[0].field]
    marks = tuple(mark for mark in info.metadata if not isinstance(mark, FieldMarker))
    return Annotated[(info.annotation, *marks)] if marks else info.annotation


# --- their foreign keys -----------------------------------------------------------------------------------------


def _keys(declared: _Declared, links: ModelSchema) -> tuple[str, str]:
    """Return the foreign keys of a link model to the owner and to the target."""
    relation, owner, target = declared
    if relation.through is None:
        return OWNER, TARGET
    fields = [column.field for column in links.primary_key]
    given = relation.through_fields
    pairs = [(own, other) for own in fields for other in fields if own != other] if given is None else [given]
    found = [
        (own, other)
        for own, other in pairs
        if {own, other} == {*fields} and _refers(links, own, owner) and _refers(links, other, target)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise declared.refusal(
            "a link model has two foreign keys to one model",
            f"Say which one refers to {owner.name} as the owner, as the first of two names: "
            f"through_fields={found[0]!r}.",
            option=f"through={links.name}",
        )
    raise declared.refusal(
        "the primary key of a link model is not a foreign key to the owner and one to the target",
        f"Declare these two fields as the primary key of {links.name}, and its other fields without: "
        f"{owner.name.lower()}_id: Annotated[ForeignKey[..., {owner.name}], PrimaryKey(), CASCADE], "
        f"{target.name.lower()}_id: Annotated[ForeignKey[..., {target.name}], PrimaryKey(), CASCADE].",
        option=f"through={links.name}" if given is None else f"through_fields={given!r}",
    )


def _refers(links: ModelSchema, field: str, target: ModelSchema) -> bool:
    key = links.references.get(field)
    return key is not None and key.target in (target.model, target.name)


def _add(found: dict[str, dict[str, Relation]], declared: _Declared, schema: ModelSchema, relation: Relation) -> None:
    """Add a relation to those of a model, unless its name means something else there."""
    relations = found.setdefault(schema.collection, {})
    name = relation.name
    taken = (*schema.fields, *schema.computed, "pk")
    if name not in relations and name not in taken and f"{name}_id" not in schema.references:
        relations[name] = relation
        return
    raise declared.refusal(
        "the name of a many-to-many relation has another meaning in filters of one of its models",
        f"{schema.name} has a field or another relation of the name {name}. Rename one, or name the relation on the "
        'other side: ManyToMany(related_name="...").',
        option=name,
    )
