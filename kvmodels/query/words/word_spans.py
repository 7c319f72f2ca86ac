"""The ranges of entries of words in an index of words.

Rules of this module: pure.
"""

from __future__ import annotations

from kvmodels.core.keys import encode_part
from kvmodels.query.kinds.contract import point
from kvmodels.schema.filters.predicate import Span
from kvmodels.schema.words.conditions import WordTerm


def span_of(term: WordTerm) -> Span:
    """Return the span of the entries of a term, or of all terms that begin with it."""
    part = encode_part(term.term)
    if not term.prefix:
        return point(part)
    return Span(part[:-1], part[:-1] + b"\xff")
