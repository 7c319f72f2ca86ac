"""The access of one kind of index: the rows and counters that queries may use.

A kind with lookups of its own has key parts between the group (``IndexDefinition.columns``) and the primary key. A
lookup is a list of ranges of these parts (``spans``), so ranges, unions, merges, lists and pages of the planner work as
they do for columns. The filter must bind each column of the group to single values. A lookup that is not ``exact`` is
tested on the row, if the row holds the columns of the test, and else on the record.

Rules of this module: pure. Without an answer of its kind an index serves no query, so that a kind that says nothing
about counters never makes a count wrong. All indexes of one kind that answer the lookups of one field have equal spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from kvmodels.query.aggregates import Measure
from kvmodels.query.kinds.boards import KindBoard
from kvmodels.query.kinds.ranking import KindRanking
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.filters.predicate import EVERYTHING, Span, Spans


class KindAccess:
    """The access of one kind of index; one object for each kind."""

    shown: ClassVar[str | None] = None
    """The word for the kind in a list of the indexes of a model; None for entries."""

    rankings: ClassVar[Mapping[str, KindRanking]] = MappingProxyType({})
    """The orders by distance that the index supplies, by the name of their method."""

    exact: ClassVar[frozenset[str]] = frozenset()
    """The lookups that their spans alone decide; the condition is not tested again."""

    splits: ClassVar[bool] = False
    """Whether each span lies within one value of the first part: then its rows are in the order of the next ones."""

    lists: ClassVar[bool] = False
    """Whether the first key part is a text, such as a word, whose entries are a list that analyses and numbers name."""

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return a column for each key part between group and primary key; none: the kind has no lookups.

        The first is bound by a lookup, and stands for a name that no field has, such as ``cell of location``; ``many``
        if a record may have several entries. In ``columns`` it may be a column of the model. A later one may be one
        too, with its codec, which rows of one span are ordered by.
        """
        del definition
        return ()

    def spans(self, definition: IndexDefinition, lookup: str, operand: Any) -> Spans:
        """Return the sorted, disjoint ranges of packed parts in which all records of a lookup have an entry.

        The parts begin after the group; a span may contain several of them, one after the other. A point has all parts.
        Empty: no record matches. By default all parts, of which each row is tested.
        """
        del definition, lookup, operand
        return EVERYTHING

    def decides(self, lookup: str, operand: Any) -> bool:
        """Return whether the spans of an operand alone decide; by default those of an ``exact`` lookup do."""
        del operand
        return lookup in self.exact

    def held(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the columns whose stored values each row has, besides the group and the primary key."""
        del definition
        return ()

    def values(self, definition: IndexDefinition, parts: Sequence[Any], value: bytes) -> Iterable[Any]:
        """Return the stored values of ``held`` in a row; ``parts`` are the decoded key parts after the group.

        Raises ValueError or TypeError for a row that this release has not written.
        """
        del definition, parts, value
        return ()

    def columns(self, definition: IndexDefinition, primary_key: tuple[Column, ...]) -> tuple[Column, ...] | None:
        """Return the columns of the keys of entries, which conditions and orders use; None: they use none of its rows.

        There is an entry for each record that satisfies the condition of the index, or for each of its values.
        """
        parts = self.parts(definition)
        return definition.columns + parts + primary_key if parts else None

    def board(self, definition: IndexDefinition) -> KindBoard | None:
        """Return the buckets that count places in a group; None: the kind counts none."""
        del definition
        return None

    def why_not(self, definition: IndexDefinition) -> str | None:
        """Return why conditions and orders on its columns do not use the index; None if they do."""
        return f"it answers only lookups of its own, as an index of kind {definition.kind}"

    def counters(self, definition: IndexDefinition, measure: Measure) -> tuple[str, ...] | None:
        """Return the counters for a result, besides the number of records; None if the index does not keep them."""
        del definition, measure
        return None


def point(parts: bytes) -> Span:
    """Return the span of all keys with these packed parts."""
    return Span(parts, parts + b"\xff", point=True)


def between(first: bytes, last: bytes) -> Span:
    """Return the span of the keys from one packed part to another, both included."""
    return Span(first, last + b"\xff")
