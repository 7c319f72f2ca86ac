"""Results of ranked queries.

Rules of this module: a hit unpacks like any tuple, ``for shop, metres in hits``, and is compared like one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.schema.words.highlight import Extent

M = TypeVar("M")


class Hit(NamedTuple, Generic[M]):
    """A record that a ranked query has found, and its distance.

    Attributes:
        record: the object.
        distance: the distance from the origin of the query; of places, in metres.
    """

    record: M
    distance: float


class _ScoredRecord(NamedTuple, Generic[M]):
    """The items of a ``SearchHit``."""

    record: M
    score: float


class SearchHit(_ScoredRecord[M]):
    """A record that ``search()`` has found, and its score.

    Attributes:
        record: the object.
        score: the score by BM25, which means something only beside others of the same query.
    """

    record: M  # pyright: ignore[reportIncompatibleVariableOverride] -- so that its annotations are all here
    score: float  # pyright: ignore[reportIncompatibleVariableOverride]
    _highlight: Callable[[Any, str, Extent], str]

    def highlight(
        self,
        field: str,
        *,
        before: str = "<b>",
        after: str = "</b>",
        words: int | None = 30,
        characters: int | None = None,
    ) -> str:
        """Return the part of a text of the record that has most of the searched words, escaped for HTML.

        Args:
            field: a field of the index.
            before: the text before each searched word, which is not escaped; at most 1,000 characters.
            after: the text after it; the same.
            words: the maximum number of words of the part; None: the whole text.
            characters: the maximum number of characters, without marks and before the text is escaped; 40 for each word
                unless given.

        Returns:
            The text, with ``…`` where it was cut; empty if the field has no text.

        Raises:
            InvalidArgumentError: no field of the index, a number below 1, or a mark that is not a short text.
        """
        return self._highlight(self.record, field, Extent(before, after, words, characters))


def hit_with_highlights(record: Any, score: float, highlight: Callable[[Any, str, Extent], str]) -> SearchHit[Any]:
    """Return a hit with the function that makes its highlights."""
    hit = SearchHit[Any](record, score)
    object.__setattr__(hit, "_highlight", highlight)
    return hit


show_public_path(Hit)
show_public_path(SearchHit)
