"""Conditions on the target of a foreign key, such as ``project__owner__email="a@b.c"``.

A path of foreign keys becomes one condition on the first key: its value is, or is not, the key of a target that
satisfies the rest of the path. A record whose key is None has None in every field of its target.

Rules of this module: pure; the conditions on the target are parsed and checked with the schema of the target.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.declare.expressions import Subquery
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.predicate import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Condition,
    Conjunction,
    Predicate,
    all_of,
    any_of,
    conditions_of,
    conjunction,
)

MOST_LEVELS: Final = 3
"""The maximum number of foreign keys of a path."""


@dataclass(frozen=True, slots=True)
class TargetFilter:
    """The conditions on the records that a foreign key refers to.

    Attributes:
        schema: of the target.
        where: conditions on it, which may have paths too.
        levels: the number of foreign keys of the longest path, with the one to this target.
    """

    schema: ModelSchema
    where: Conjunction
    levels: int

    def summary(self, name: str) -> str:
        """Return a one-line description without operands."""
        fields = dict.fromkeys(condition.field for part in self.where for condition in conditions_of(part))
        return f"<{name}[{self.schema.name}] filtered by {', '.join(fields)}>"

    @property
    def fixes_target(self) -> bool:
        """Whether a unique index leaves at most one target."""
        unique = {
            index.columns[0].field
            for index in self.schema.indexes.values()
            if index.unique and index.where is None and len(index.columns) == 1 and not index.fans_out
        }
        return any(
            isinstance(part, Condition)
            and part.lookup == "exact"
            and not part.negated
            and not part.any
            and part.field in unique
            for part in self.where
        )


def target_filter_of(part: Predicate) -> TargetFilter | None:
    """Return the conditions on the target of a foreign key; None for any other predicate."""
    operand = part.operand if isinstance(part, Condition) else None
    return operand.query if isinstance(operand, Subquery) and isinstance(operand.query, TargetFilter) else None


def has_path(part: Predicate) -> bool:
    """Return whether a predicate has conditions on the target of a foreign key."""
    return any(target_filter_of(condition) is not None for condition in conditions_of(part))


def on_target(schema: ModelSchema, field: str, predicate: Predicate, inverse: Predicate) -> Predicate:
    """Return a predicate on the target of a foreign key as one on its records; ``inverse``: the negated predicate."""
    if predicate in (ALWAYS, NEVER):
        return predicate
    negative = isinstance(predicate, Condition) and (predicate.negated or predicate.lookup in ("ne", "not_in"))
    found = _target_filter(schema, field, inverse if negative else predicate)
    leaf = Condition(field, "not_in" if negative else "in", Subquery(found, None))
    matches_none = _holds_for_none(predicate)
    if not schema.references[field].optional or matches_none is negative:
        return leaf
    missing = Condition(field, "isnull", matches_none)
    return any_of((missing, leaf)) if matches_none else all_of((missing, leaf))


def joined_on_targets(where: Conjunction) -> Conjunction:
    """Return a filter with one condition for all that must hold for the target of one foreign key."""
    filters: dict[str, list[TargetFilter]] = {}
    for part in where:
        found = target_filter_of(part)
        if found is not None and isinstance(part, Condition) and part.lookup == "in":
            filters.setdefault(part.field, []).append(found)
    joined: dict[str, Condition] = {}
    for field, several in filters.items():
        both = conjunction(part for one in several for part in one.where)
        target = TargetFilter(several[0].schema, both, max(one.levels for one in several))
        joined[field] = Condition(field, "in", Subquery(target, None))
    kept: list[Condition | AnyOf] = []
    for part in where:
        if target_filter_of(part) is not None and isinstance(part, Condition) and part.lookup == "in":
            part = joined[part.field]
        if part not in kept:
            kept.append(part)
    return tuple(kept)


def _target_filter(schema: ModelSchema, field: str, predicate: Predicate) -> TargetFilter:
    nested = [one for condition in conditions_of(predicate) if (one := target_filter_of(condition)) is not None]
    levels = 1 + max((one.levels for one in nested), default=0)
    if levels > MOST_LEVELS:
        raise InvalidArgumentError(
            "a path has more foreign keys than can be followed",
            argument=field,
            value=levels,
            expected=(f"at most {MOST_LEVELS}",),
            hint=f"Filter by a query of the target: {schema.name}.{field}.in_(db[{schema.targets[field].name}]"
            ".filter(...)).",
        )
    return TargetFilter(schema.targets[field], conjunction((predicate,)), levels)


def _holds_for_none(predicate: Predicate) -> bool:
    """Return whether a predicate on a target holds if every field of the target is None."""
    if isinstance(predicate, AllOf):
        return all(map(_holds_for_none, predicate.parts))
    if isinstance(predicate, AnyOf):
        return any(map(_holds_for_none, predicate.parts))
    return _is_satisfied_by_none(predicate) is not predicate.negated


def _is_satisfied_by_none(condition: Condition) -> bool:
    lookup, operand = condition.lookup, condition.operand
    if condition.any:
        return False
    if lookup == "isnull":
        return bool(operand)
    if lookup in ("in", "not_in"):
        target = target_filter_of(condition)
        if target is not None:  # of a path, so its target has None in every field too
            return all(map(_holds_for_none, target.where)) is (lookup == "in")
        listed: Any = () if isinstance(operand, Subquery) else operand
        return any(value is None for value in listed) is (lookup == "in")
    return lookup == "ne"
