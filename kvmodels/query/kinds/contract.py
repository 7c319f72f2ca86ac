"""The access of one kind of index: the rows and counters that queries may use.

Rules of this module: pure. Without an answer of its kind an index serves no query, so that a kind that says nothing
about counters never makes a count wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from kvmodels.query.aggregates import Measure
from kvmodels.query.kinds.ranking import KindRanking
from kvmodels.schema.definition.definition import Column, IndexDefinition


class KindAccess:
    """The access of one kind of index; one object for each kind."""

    shown: ClassVar[str | None] = None
    """The word for the kind in a list of the indexes of a model; None for entries."""

    rankings: ClassVar[Mapping[str, KindRanking]] = MappingProxyType({})
    """The orders by distance that the index supplies, by the name of their method."""

    def columns(self, definition: IndexDefinition, primary_key: tuple[Column, ...]) -> tuple[Column, ...] | None:
        """Return the columns of the keys of entries, which conditions and orders use; None: they use none of its rows.

        There is an entry for each record that satisfies the condition of the index, or for each of its values.
        """
        del definition, primary_key
        return None

    def why_not(self, definition: IndexDefinition) -> str | None:
        """Return why conditions and orders on its columns do not use the index; None if they do."""
        return f"it answers only lookups of its own, as an index of kind {definition.kind}"

    def counters(self, definition: IndexDefinition, measure: Measure) -> tuple[str, ...] | None:
        """Return the counters for a result, besides the number of records; None if the index does not keep them."""
        del definition, measure
        return None
