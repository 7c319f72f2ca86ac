"""Add conditions on entries that the matches of a lookup have: the trigrams of a part of a name, words of a search.

An index of trigrams has no range with exactly the texts that contain a part. But every match has an entry for each
trigram of the part, so the filter gets conditions of some of these entries, which the planner serves like any other.
The lookup stays in the filter, and is tested on the records; the added conditions are ``implied`` and never tested.
A search for several words is narrowed in the same way: each match has an entry for each of its words.

Which entries are used decides only how much is read. The *choice* of a query has for each lookup the numbers of at most
``MOST`` of its candidates, the rarest first; ``flows/reading/rarest.py`` counts them. A cursor contains the choice,
because its position is one in the entries that were read.

Rules of this module: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.filters.kind_lookups import OF_KIND, KindOperand
from kvmodels.schema.filters.predicate import (
    TEXT_TESTS,
    AllOf,
    AnyOf,
    Condition,
    Predicate,
    all_of,
    any_of,
    conditions_of,
    conjunction,
)

MOST: Final = 3
"""The maximum number of entries that are looked up for one lookup."""

MOST_CANDIDATES: Final = 32
"""The maximum number of entries to choose from; those of a longer operand are taken at regular distances."""

Choice = tuple[tuple[int, ...], ...]
"""For each lookup the numbers of the chosen candidates, the rarest first."""


class NarrowedLookup(NamedTuple):
    """A lookup of a text that an index narrows.

    Attributes:
        condition: the lookup, of a text or of the kind of the index.
        indexes: the declared indexes that narrow it.
        name: the name of the conditions of entries.
        candidates: their operands; every match satisfies all of them.
    """

    condition: Condition
    indexes: tuple[IndexDefinition, ...]
    name: str
    candidates: tuple[Any, ...]

    @property
    def usual(self) -> tuple[int, ...]:
        """The choice without knowledge of their numbers: the first, the middle and the last candidate."""
        last = len(self.candidates) - 1
        return tuple(range(last + 1)) if last < MOST else (0, last // 2, last)

    def entries(self, chosen: Iterable[int]) -> list[Condition]:
        """Return the conditions of the chosen entries."""
        field, index = self.condition.field, self.indexes[0].name
        operands = (KindOperand(index, self.name, self.candidates[at], implied=True) for at in chosen)
        return [Condition(field, OF_KIND, operand) for operand in operands]


def narrowing_indexes(schema: ModelSchema, condition: Condition) -> tuple[IndexDefinition, ...]:
    """Return the declared indexes whose entries narrow a lookup of a text, or a lookup of their own."""
    if condition.negated:
        return ()
    if condition.lookup == OF_KIND:
        return (schema.indexes[condition.operand.index_name],) if condition.operand.narrowed else ()
    if condition.lookup not in TEXT_TESTS:
        return ()
    return tuple(
        index
        for index in schema.indexes.values()
        if condition.lookup in KINDS[index.kind].narrowed and index.lookup_name == condition.field
    )


def narrowed_lookups(query: Query) -> list[NarrowedLookup]:
    """Return the distinct lookups of a filter that an index narrows, in order; none of a ranked query."""
    if query.ranked is not None:
        return []
    found: dict[Condition, NarrowedLookup] = {}
    for part in query.where:
        for condition in conditions_of(part):
            indexes = narrowing_indexes(query.schema, condition)
            if indexes and condition not in found:
                name, operands = _implied(indexes[0], condition)
                if operands:
                    found[condition] = NarrowedLookup(condition, indexes, name, _spread(operands))
    return list(found.values())


def _implied(index: IndexDefinition, condition: Condition) -> tuple[str, Sequence[Any]]:
    lookup, operand = condition.lookup, condition.operand
    if lookup == OF_KIND:
        lookup, operand = operand.lookup, operand.value
    return KINDS[index.kind].implied(lookup, operand)


def _spread(operands: Sequence[Any]) -> tuple[Any, ...]:
    size = len(operands)
    if size <= MOST_CANDIDATES:
        return tuple(operands)
    return tuple(operands[at * (size - 1) // (MOST_CANDIDATES - 1)] for at in range(MOST_CANDIDATES))


def with_choice(query: Query, lookups: Iterable[NarrowedLookup], choice: Choice) -> Query:
    """Return the query with conditions of the chosen entries beside each lookup."""
    entries = {one.condition: one.entries(chosen) for one, chosen in zip(lookups, choice, strict=True)}
    if not entries:
        return query

    def beside(condition: Condition) -> Predicate:
        return all_of((condition, *entries.get(condition, ())))

    where = conjunction(_mapped(part, beside) for part in query.where)
    return replace(query, where=where, choice=choice)


def without_choice(query: Query) -> Query:
    """Return the query without conditions of entries."""
    return replace(query, where=stated(query.where), choice=()) if query.choice else query


def chosen_again(query: Query, numbers: Any) -> Query | None:
    """Return the query with the choice in a cursor, which comes from outside; None if it is no choice of this query."""
    query = without_choice(query)
    lookups = narrowed_lookups(query)
    given: list[Any] = [*numbers] if isinstance(numbers, list) else []
    if not given:
        return query
    choice: Choice = tuple(tuple(cast("list[int]", one)) if isinstance(one, list) else () for one in given)
    if len(choice) != len(lookups):
        return None
    for one, chosen in zip(lookups, choice, strict=True):
        known = range(len(one.candidates))
        if not 1 <= len(chosen) <= MOST or any(type(at) is not int or at not in known for at in chosen):
            return None
    return with_choice(query, lookups, choice)


def is_stated(predicate: Predicate) -> bool:
    """Return whether a predicate is not a condition that another one implies."""
    return not (isinstance(predicate, Condition) and predicate.lookup == OF_KIND and predicate.operand.implied)


def stated(parts: Iterable[Predicate]) -> tuple[Condition | AnyOf, ...]:
    """Return the parts of a filter without conditions that others imply."""
    return conjunction(_stated(part) for part in parts if is_stated(part))


def _stated(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Condition):
        return predicate
    parts = [_stated(part) for part in predicate.parts if is_stated(part)]
    return all_of(parts) if isinstance(predicate, AllOf) else any_of(parts)


def _mapped(predicate: Predicate, change: Callable[[Condition], Predicate]) -> Predicate:
    if isinstance(predicate, Condition):
        return change(predicate)
    parts = [_mapped(part, change) for part in predicate.parts]
    return all_of(parts) if isinstance(predicate, AllOf) else any_of(parts)
