"""Access to an index of trigrams: the entries of one trigram, in the order of the primary key.

Rules of this module: pure. The entries of a trigram decide only whether a text has it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kvmodels.codecs.columns.scalars import STR
from kvmodels.query.kinds.contract import KindAccess, point
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.filters.predicate import Spans
from kvmodels.schema.kinds.trigram import HAS_TRIGRAM, options_of


class TrigramAccess(KindAccess):
    """Access to an index of trigrams."""

    exact: ClassVar[frozenset[str]] = frozenset({HAS_TRIGRAM})
    lists: ClassVar[bool] = True

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the column of the trigram."""
        return (Column(f"trigram of {options_of(definition).looked_up}", STR, many=True),)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Any) -> Spans:
        """Return the entries of a trigram."""
        del definition, lookup
        return (point(STR.pack(operand)),)


ACCESS: Final = TrigramAccess()
