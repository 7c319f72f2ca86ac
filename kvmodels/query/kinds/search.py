"""Access to an index of words: the lists of entries of terms.

Rules of this module: pure. Of words that must all be found, the entries of one are read, and the records tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvmodels.codecs.columns.scalars import STR
from kvmodels.core.keys import encode_part
from kvmodels.query.kinds.contract import KindAccess, point
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.filters.predicate import Span, Spans
from kvmodels.schema.kinds.search import Searched
from kvmodels.schema.words.conditions import NOTHING, WordTerm, cover_of, terms_decide


class SearchAccess(KindAccess):
    """Access to an index of words."""

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the column of the word."""
        return (Column(f"word of {definition.name}", STR, many=True),)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Searched) -> Spans:
        """Return the entries of terms of which each record has at least one."""
        del definition, lookup
        return () if operand.node == NOTHING else tuple(_disjoint(map(span_of, cover_of(operand.node))))

    def decides(self, lookup: str, operand: Searched) -> bool:
        """Return whether the words are alternatives, each of which has its list."""
        del lookup
        return terms_decide(operand.node)


def span_of(term: WordTerm) -> Span:
    """Return the span of the entries of a term, or of all terms that begin with it."""
    part = encode_part(term.term)
    if not term.prefix:
        return point(part)
    return Span(part[:-1], part[:-1] + b"\xff")


def _disjoint(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield sorted spans without those that lie within another one: none overlaps another one in part."""
    end = b""
    for span in sorted(spans, key=lambda one: (one.start, one.point)):
        if span.start >= end:
            end = span.end
            yield span


ACCESS: Final = SearchAccess()
