"""The proof that a filter matches only records that a partial index holds.

Rules of this module: pure and sound, so that "no" may be wrong and "yes" never is. A filter that says what the
condition of the index says, in whatever form, and possibly more, is always recognised within the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvmodels.schema.definition import ModelSchema, Partial, SpanTest
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.predicate import AnyOf, Condition, Predicate, conditions_of, conjunction
from kvmodels.schema.spans import Span, ascending_column, covers, intersection, matching_parts

__all__ = ["MOST_BRANCHES", "implies"]

MOST_BRANCHES: Final = 1_000
"""Combinations of "any of" parts of one filter that are tried before the answer is "no"."""


def implies(schema: ModelSchema, where: Iterable[Predicate], partial: Partial) -> bool:
    """Whether every record that a filter matches is in a partial index.

    The filter is written out as alternatives. The conditions of each must contradict each other, or leave nothing
    outside of the spans of any column of one alternative of the index.

    Args:
        schema: the model.
        where: the filter, predicates that all hold.
        partial: the condition of the index.

    Cost: linear in the conditions times the alternatives, for each combination of the "any of" parts that compare a
    column of the index; no more than 1,000 of them.
    """
    return _Proof(schema, partial).holds((), tuple(where))


class _Proof:
    """One proof, with what is left of its bound."""

    def __init__(self, schema: ModelSchema, partial: Partial) -> None:
        self._schema = schema
        self._alternatives = partial.alternatives
        self._fields = {test.column.field for tests in partial.alternatives for test in tests}
        self._left = MOST_BRANCHES

    def holds(self, known: Sequence[Condition], parts: Iterable[Predicate]) -> bool:
        """Whether the index holds every record of which all these parts hold."""
        conditions, choices = list(known), list[AnyOf]()
        for part in conjunction(parts):
            if isinstance(part, AnyOf):
                choices.append(part)
            else:
                conditions.append(part)
        if self._left == 0:
            return False
        self._left -= 1
        if any(self._all_pass(conditions, tests) for tests in self._alternatives) or self._contradict(conditions):
            return True
        for number, choice in enumerate(choices):
            others = choices[number + 1 :]
            if not choice.parts or any(condition.field in self._fields for condition in conditions_of(choice)):
                return all(self.holds(conditions, (branch, *others)) for branch in choice.parts)
        return False

    def _all_pass(self, conditions: Sequence[Condition], tests: Iterable[SpanTest]) -> bool:
        return all(self._passes(conditions, test) for test in tests)

    def _passes(self, conditions: Iterable[Condition], test: SpanTest) -> bool:
        theirs = test.column
        source = self._schema.source(theirs.field)
        if source is None or source.many or source.codec.name != theirs.codec.name or source.path != theirs.path:
            return False
        # The column of the model and not that of the index: a catalogue knows no Enum. Their parts are the same.
        column = ascending_column(source, is_nullable=theirs.nullable)
        spans = matching_parts([condition for condition in conditions if condition.field == theirs.field], column)
        if column.nullable:
            spans = intersection(spans, (Span(column.codec.pack(None), b"\xff"),))  # no part is below that of None
        return covers(test.spans, spans)

    def _contradict(self, conditions: Iterable[Condition]) -> bool:
        """Whether no value of some column satisfies its conditions."""
        by_field: dict[str, list[Condition]] = {}
        for condition in conditions:
            by_field.setdefault(condition.field, []).append(condition)
        for field, group in by_field.items():
            source = None if field == PRIMARY_KEY else self._schema.source(field)
            column = None if source is None or source.many else ascending_column(source, is_nullable=source.nullable)
            if column is not None and not matching_parts(group, column):
                return True
        return False
