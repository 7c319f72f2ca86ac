"""Access to an index of words: the lists of entries of terms, and the order of records by their score.

Rules of this module: pure. Of words that must all be found, the lookup reads the entries of the rarest, as
``query/planning/narrowing.py`` has chosen them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import STR
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.query.hits import SearchHit, hit_with_highlights
from kvmodels.query.kinds.contract import KindAccess, point
from kvmodels.query.kinds.ranking import KindRanking, Ranking, Reach
from kvmodels.query.query import MAX_POSTINGS
from kvmodels.query.words.bm25 import WordRanking, statistics_in
from kvmodels.query.words.word_spans import span_of
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.predicate import Span, Spans
from kvmodels.schema.kinds.search import HAS_WORD, Searched, SearchOptions, options_of, searched
from kvmodels.schema.words.conditions import (
    NOTHING,
    cover_of,
    is_verified,
    plain_of,
    scored_terms,
    terms_decide,
)
from kvmodels.schema.words.highlight import CHARACTERS_OF_A_WORD, Extent, highlighted
from kvmodels.schema.words.stored_terms import texts_of

LONGEST_MARK: Final = 1_000
"""Characters before or after a searched word."""


@dataclass(frozen=True, slots=True)
class RankedWords:
    """The origin of a ranked search: its condition, and the maximum number of entries that it reads."""

    searched: Searched
    most: int

    def __repr__(self) -> str:
        return repr(self.searched)


class BestWords(KindRanking):
    """The order by the score of words, the best first."""

    scores: ClassVar[bool] = True
    named: ClassVar[bool] = True

    def verifies(self, origin: RankedWords) -> bool:
        """Return whether phrases or excluded words are verified on records."""
        return is_verified(origin.searched.node)

    def is_frozen(self, origin: RankedWords, frozen: Any) -> bool:
        """Return whether data of a cursor are statistics of the words."""
        return statistics_in(frozen, len(scored_terms(origin.searched.node))) is not None

    def origin(self, schema: ModelSchema, field: str, given: Any) -> RankedWords:
        """Return the search; ``given`` are the words and the maximum number of entries."""
        words, most = given
        definition = schema.indexes[field]
        if not options_of(definition).ranks:
            raise InvalidArgumentError(
                "an index without statistics ranks no records",
                argument="index",
                value=field,
                hint=f"Leave out rank=False, or find records in another order: filter({field}__search=...).",
            )
        if type(most) is not int or most < 1:
            raise InvalidArgumentError(
                "a limit is not a positive whole number",
                argument="max_postings",
                value=most,
                hint=f"It is {MAX_POSTINGS:,} unless given.",
            )
        try:
            return RankedWords(searched(definition, words), most)
        except InvalidValueError as error:
            error.model, error.field = schema.name, field
            raise

    def digest(self, origin: RankedWords) -> Any:
        """Return the condition as plain data."""
        return plain_of(origin.searched.node)

    def rings(self, definition: IndexDefinition, origin: RankedWords, reach: Reach) -> Ranking:
        """Yield the records that the entries of words find, all at once."""
        if origin.searched.node != NOTHING:
            yield from WordRanking(definition, origin.searched, origin.most, reach.frozen).steps()

    def hit(self, definition: IndexDefinition, origin: RankedWords, record: Any, distance: float) -> SearchHit[Any]:
        """Return the record with its score."""
        options, terms = options_of(definition), scored_terms(origin.searched.node)
        tokenizer = options.tokenizer
        assert tokenizer is not None  # a declared index has one

        def highlight(record: Any, field: str, extent: Extent) -> str:
            _require_field(options, field)
            _require_marks(extent)
            number = options.fields.index(field)
            kept = [term for term in terms if term.field in (None, number)]
            value = record
            for name in field.split("."):
                value = getattr(value, name, None)
            return highlighted("\n".join(texts_of(value)), tokenizer, kept, _bounded(extent))

        return hit_with_highlights(record, -distance, highlight)

    def declaration(self, schema: ModelSchema, field: str) -> str | None:
        """Return an index of a field of type str."""
        source = schema.source(field)
        is_text = source is not None and source.codec.name == "str"
        return f'SearchIndex("{field}", name="by_text")' if is_text else None


class SearchAccess(KindAccess):
    """Access to an index of words."""

    rankings: ClassVar[Mapping[str, KindRanking]] = {"search": BestWords()}
    lists: ClassVar[bool] = True

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the column of the word."""
        return (Column(f"word of {definition.name}", STR, many=True),)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Any) -> Spans:
        """Return the entries of a term, or of terms of which each record has at least one."""
        del definition
        if lookup == HAS_WORD:
            return (point(STR.pack(operand)),)
        return () if operand.node == NOTHING else tuple(_disjoint(map(span_of, cover_of(operand.node))))

    def decides(self, lookup: str, operand: Any) -> bool:
        """Return whether it is one term, or alternatives, each of which has its list."""
        return lookup == HAS_WORD or terms_decide(operand.node)


def _check_mark(name: str, mark: object) -> None:
    """Refuse a text around searched words that is no text, or a long one.

    Raises:
        InvalidArgumentError: says which argument.
    """
    if type(mark) is not str or len(mark) > LONGEST_MARK:
        raise InvalidArgumentError(
            "a mark of searched words is not a short text",
            argument=name,
            value=mark,
            expected=f"a text of at most {LONGEST_MARK:,} characters",
            hint='Give a tag, such as "<mark>" and "</mark>", or "" for none.',
        )


def _disjoint(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield sorted spans without those that lie within another one: none overlaps another one in part."""
    end = b""
    for span in sorted(spans, key=lambda one: (one.start, one.point)):
        if span.start >= end:
            end = span.end
            yield span


def _require_field(options: SearchOptions, field: object) -> None:
    if field not in options.fields:
        raise InvalidArgumentError(
            "the index has no such field",
            argument="field",
            value=field,
            expected=options.fields,
            hint=f"The fields of the index are {', '.join(options.fields)}.",
        )


def _require_marks(extent: Extent) -> None:
    """Refuse marks that are no texts, and sizes that are no numbers."""
    for name in ("before", "after"):
        _check_mark(name, getattr(extent, name))
    for name, whole in (("words", "None for the whole text"), ("characters", "leave it out for a bound by words")):
        number = getattr(extent, name)
        if number is not None and (type(number) is not int or number < 1):
            hint = f"Give a whole number from 1 on, or {whole}."
            raise InvalidArgumentError(
                "a size of a highlighted part is below 1", argument=name, value=number, hint=hint
            )


def _bounded(extent: Extent) -> Extent:
    """Return the extent with a number of characters, because a word may be as long as a text."""
    if extent.characters is not None or extent.words is None:
        return extent
    return extent._replace(characters=extent.words * CHARACTERS_OF_A_WORD)


ACCESS: Final = SearchAccess()
