"""Conditions on the other side of a many-to-many relation, such as ``tags__name="red"``.

They become one condition on the primary key: it is, or is not, the key of a record with a link that satisfies them.
Conditions of one ``filter()`` on one relation hold for the same link. Negation is plain: no link satisfies them.

Rules of this module: pure; the conditions on the links are parsed with the schema of the link model.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.declare.expressions import Subquery
from kvmodels.schema.definition.definition import ModelSchema, Relation
from kvmodels.schema.filters.predicate import (
    NEVER,
    AnyOf,
    Condition,
    Conjunction,
    Predicate,
    all_of,
    any_of,
    conditions_of,
    conjunction,
)


@dataclass(frozen=True, slots=True)
class LinkFilter:
    """The conditions on the links of a relation, which lead to the records of one of its models."""

    relation: Relation
    where: Conjunction

    def summary(self, name: str) -> str:
        """Return a one-line description without operands."""
        fields = dict.fromkeys(condition.field for part in self.where for condition in conditions_of(part))
        return f"<{name}[{self.relation.links.name}] filtered by {', '.join(fields)}>"


def link_filter_of(part: Predicate) -> LinkFilter | None:
    """Return the conditions on the links of a relation; None for any other predicate."""
    operand = part.operand if isinstance(part, Condition) else None
    return operand.query if isinstance(operand, Subquery) and isinstance(operand.query, LinkFilter) else None


def on_links(schema: ModelSchema, relation: Relation, predicate: Predicate) -> Predicate:
    """Return a predicate on the links of a relation as one on the records of a model: one of their links satisfies it.

    Always true on a link, it means that there is a link.
    """
    if predicate == NEVER:
        return NEVER
    found = LinkFilter(relation, conjunction((predicate,)))
    return Condition(schema.primary_key[0].field, "in", Subquery(found, None))


def refuse_links(target: ModelSchema, said: str, predicate: Predicate) -> None:
    """Refuse conditions on a many-to-many relation of a target that a path leads to; ``said``: the path to the target.

    Raises InvalidArgumentError.
    """
    for condition in conditions_of(predicate):
        found = link_filter_of(condition)
        if found is not None:
            name = found.relation.name
            raise InvalidArgumentError(
                "a path leads through a foreign key to a many-to-many relation, or through two of these",
                argument=f"{said}__{name}",
                hint=f"Filter by a query: {said}__in=db[{target.name}].filter({name}__...=...).",
            )


def together(parts: Iterable[Predicate]) -> Predicate:
    """Return a predicate that holds if every part holds; conditions on one relation hold for the same link."""
    flat = conjunction(parts)
    counted: dict[str, int] = {}
    for part in flat:
        for name in _relations_in(part):
            counted[name] = counted.get(name, 0) + 1
    several = {name for name, count in counted.items() if count > 1}
    if not several:
        return all_of(flat)
    for part in flat:
        if isinstance(part, AnyOf) and several & _relations_in(part):
            others = [one for one in flat if one is not part]
            return any_of(together((one, *others)) for one in part.parts)
    return all_of(_merged(flat))


def _relations_in(part: Predicate) -> set[str]:
    """Return the names of the relations of which a link must satisfy something."""
    found = ((one.lookup, link_filter_of(one)) for one in conditions_of(part))
    return {link.relation.name for lookup, link in found if link is not None and lookup == "in"}


def _merged(parts: Conjunction) -> list[Predicate]:
    """Return the parts with one condition for all that a link of the same relation must satisfy."""
    merged: list[Predicate] = []
    wanted: dict[str, list[LinkFilter]] = {}
    conditions: dict[str, Condition] = {}
    for part in parts:
        found = link_filter_of(part)
        if found is None or not isinstance(part, Condition) or part.lookup != "in":
            merged.append(part)
        else:
            wanted.setdefault(found.relation.name, []).append(found)
            conditions[found.relation.name] = part
    for name, filters in wanted.items():
        where = conjunction(part for one in filters for part in one.where)
        link = LinkFilter(filters[0].relation, where)
        merged.append(conditions[name]._replace(operand=Subquery(link, None)))
    return merged
