"""Names of many-to-many relations in queries, such as ``tags`` in ``tags__name``.

Rules of this module: pure; a relation is a part of filters only, because it has no value of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from kvmodels.errors import UnknownFieldError
from kvmodels.schema.declare.expressions import Lookup
from kvmodels.schema.definition.definition import ModelSchema, Relation


class RelationKeyword(NamedTuple):
    """A keyword about a many-to-many relation: its name, and the keyword of the other model, which may be empty."""

    field: str
    rest: str


def relation_keyword(schema: ModelSchema, keyword: str) -> RelationKeyword | None:
    """Return the many-to-many relation that a keyword begins with, and the rest of it."""
    for name in schema.relations:
        if keyword == name or keyword.startswith(f"{name}__"):
            return RelationKeyword(name, keyword[len(name) + 2 :])
    return None


_OF_KEYS: Final = frozenset({"", "exact", "ne", "in", "not_in"})
"""Lookups that compare the records of the other side of a many-to-many relation, by objects or keys."""


def compares_keys(relation: Relation, rest: str) -> bool:
    """Return whether the rest of a keyword compares the records of the other side, and is no field of them."""
    return rest in _OF_KEYS and rest not in relation.links.targets[relation.other].fields


def refuse_lookup(schema: ModelSchema, relation: Relation, rest: str) -> None:
    """Refuse a lookup that a many-to-many relation does not have. Raises UnknownFieldError."""
    if rest not in get_args(Lookup) or rest in relation.links.targets[relation.other].fields:
        return
    name = relation.name
    raise UnknownFieldError(
        "a many-to-many relation has no lookup of this name",
        model=schema.name,
        field=f"{name}__{rest}",
        suggestion=None,
        hint=f"Any of some records: filter({name}__in=[1, 2]). All of them: filter({name}=1).filter({name}=2).",
    )


def refuse_relation(schema: ModelSchema, name: str) -> None:
    """Refuse a many-to-many relation where a field is wanted, as in an order and in results."""
    found = relation_keyword(schema, name.replace(".", "__"))
    if found is not None:
        relation = schema.relations[found.field]
        raise UnknownFieldError(
            "a many-to-many relation can be used in filters only",
            model=schema.name,
            field=name,
            suggestion=None,
            hint=f"Read the records with links: {_call(schema, relation)}, which returns a list for each.",
        )


def _call(schema: ModelSchema, relation: Relation) -> str:
    """Return the call that reads the records of the other side."""
    if relation.declared:
        return f"db[{schema.name}].links({schema.name}.{relation.name}).fetch([...])"
    owner = relation.links.targets[relation.other]
    (name,) = [one.name for one in owner.relations.values() if one.declared and one[1:4] == relation.turned()[1:4]]
    return f"db[{owner.name}].links({owner.name}.{name}).fetch_owners([...])"
