"""The order of records by the score of a search: BM25 over the entries of its words.

    score = sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))
    tf    = sum over fields of weight * frequency,  idf = ln(1 + (n - df + 0.5) / (df + 0.5))

``n`` and the mean length are the statistics of the groups, ``df`` is the number of entries of a word. Words count that
are in a bounded part of the search; the beginning of words counts as one word.

The lists of words are read rarest first. Of words that must all be found, a list that is much longer than the records
found so far is not read: their entries are looked up one by one.

Rules of this module: pure. The score of a record follows from its stored terms and from the numbers of the first page
alone, so a reader can compute it again from the record, and pages agree.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from math import log
from typing import Any, Final, NamedTuple

from kvmodels.core.keys import key_successor
from kvmodels.errors import OperationTooLargeError
from kvmodels.query.kinds.ranking import (
    CountEntries,
    EntrySpan,
    Posting,
    RankingStep,
    RankRecords,
    ReadCounters,
    ReadPostings,
)
from kvmodels.query.kinds.word_spans import span_of
from kvmodels.schema.definition.definition import Document, IndexDefinition
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.search import COUNT, LENGTH, Searched, SearchLookup, options_of
from kvmodels.schema.words.conditions import (
    AllWords,
    AnyWords,
    Node,
    Phrase,
    WordTerm,
    frequencies_of,
    is_bounded,
    scored_terms,
)
from kvmodels.schema.words.stored_terms import length_of

K1: Final = 1.2
B: Final = 0.75

MUCH_LONGER: Final = 20
"""A list with so many entries for each record found is not read; the entries of the records are looked up."""

Steps = Generator[RankingStep, Any, Any]


class WordStatistics(NamedTuple):
    """The numbers that scores use.

    Attributes:
        records: the number of records of the groups.
        length: the sum of their lengths.
        found: the number of entries of each scored term.
    """

    records: int
    length: int
    found: tuple[int, ...]

    def plain(self) -> list[Any]:
        """Return the numbers for a cursor."""
        return [self.records, self.length, list(self.found)]


def statistics_in(plain: Any, terms: int) -> WordStatistics | None:
    """Return the numbers in a cursor; None if they are no numbers for so many terms."""
    try:
        records, length, found = plain
        numbers = (records, length, *found)
    except (TypeError, ValueError):
        return None
    if len(numbers) != 2 + terms or not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        return None
    return WordStatistics(numbers[0], numbers[1], numbers[2:])


class Scoring:
    """The score of records of one search, in the order of its scored terms."""

    def __init__(self, terms: Sequence[WordTerm], weights: Sequence[float], numbers: WordStatistics) -> None:
        self._terms = terms
        self._weights = weights
        # The beginning of words may have more entries than there are records; writers may add some between two reads.
        records = max(numbers.records, *numbers.found, 1)
        self._mean = max(numbers.length / max(numbers.records, 1), 1.0)
        self._idf = [log(1 + (records - found + 0.5) / (found + 0.5)) for found in numbers.found]
        self._known: list[dict[Hashable, float]] = [{} for _ in terms]

    def score(self, norm: int, counts: Iterable[Iterable[bytes]]) -> float:
        """Return the score for the frequencies of each term, or of each word that begins with it."""
        total = 0.0
        for at, (_, found) in enumerate(zip(self._terms, counts, strict=True)):
            total += self._part(at, norm, found)
        return total

    def score_of_entries(self, values: Sequence[Sequence[bytes]]) -> float:
        """Return the score for the values of the entries of each term; many records have equal ones."""
        norm = next(value[0] for found in values for value in found)
        total = 0.0
        for at, found in enumerate(values):
            if not found:
                continue
            entry = found[0] if len(found) == 1 and found[0][0] == norm else (norm, *found)
            known = self._known[at]
            part = known.get(entry)
            if part is None:
                part = known[entry] = self._part(at, norm, [value[1:] for value in found])
            total += part
        return total

    def _part(self, at: int, norm: int, found: Iterable[bytes]) -> float:
        """Return the share of one term."""
        frequency = sum(self._weighted(self._terms[at], one) for one in found)
        if not frequency:
            return 0.0
        return self._idf[at] * frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * length_of(norm) / self._mean))

    def _weighted(self, term: WordTerm, counts: bytes) -> float:
        if term.field is not None:
            return self._weights[term.field] * counts[term.field]
        return sum(weight * count for weight, count in zip(self._weights, counts, strict=True))


class WordRanking:
    """The ranking of one search: reads the lists of its words, and scores the records that they find."""

    def __init__(self, definition: IndexDefinition, searched: Searched, most: int, frozen: Any) -> None:
        options = options_of(definition)
        self._definition = definition
        self._searched = searched
        self._weights = options.weights
        self._size = 1 + len(options.fields)
        self._most = most
        self._terms = scored_terms(searched.node)
        self._frozen = statistics_in(frozen, len(self._terms))
        self._rows = 0
        self._lists: dict[WordTerm, dict[bytes, Sequence[bytes]]] = {}
        self._whole: set[WordTerm] = set()
        self._sizes: dict[WordTerm, int] = {}

    def steps(self) -> Steps:
        """Yield the requests, and the records with their scores as the last of them."""
        numbers = self._frozen
        if numbers is not None:
            self._sizes = dict(zip(self._terms, numbers.found, strict=True))
        else:
            counted = yield CountEntries([_span(term) for term in self._terms])
            if counted is not None:
                self._sizes = dict(zip(self._terms, counted, strict=True))
        found = yield from self._records(self._searched.node)
        yield from self._complete(found)
        if numbers is None:
            records, length = yield ReadCounters((COUNT, LENGTH))
            entries = [self._sizes[term] if term in self._sizes else self._entries(term) for term in self._terms]
            numbers = WordStatistics(max(records, 0), max(length, 0), tuple(entries))
        scoring = Scoring(self._terms, self._weights, numbers)
        lists = [self._lists[term] for term in self._terms]
        distances = {pk: -scoring.score_of_entries([held.get(pk, ()) for held in lists]) for pk in found}
        distance = _distance_of(self._definition, self._searched, self._terms, scoring)
        yield RankRecords(distances, distance, numbers.plain())

    def _entries(self, term: WordTerm) -> int:
        return sum(map(len, self._lists[term].values()))

    # --- records ----------------------------------------------------------------------------------------------

    def _records(self, node: Node) -> Generator[RankingStep, Any, set[bytes]]:
        """Return the records whose entries satisfy a bounded condition, as far as entries decide."""
        if isinstance(node, WordTerm):
            found = yield from self._list(node)
            if all(_counts(node, value) for value in {value for values in found.values() for value in values}):
                return set(found)
            return {pk for pk, values in found.items() if any(_counts(node, value) for value in values)}
        if isinstance(node, AnyWords):
            union = set[bytes]()
            for part in node.any_of:
                union |= yield from self._records(part)
            return union
        return (yield from self._common([*_conjuncts(node)]))

    def _common(self, parts: list[Node]) -> Generator[RankingStep, Any, set[bytes]]:
        """Return the records that all parts have in common, the rarest part first."""
        parts.sort(key=self._estimate)
        found = yield from self._records(parts[0])
        for part in parts[1:]:
            if not found:
                break
            if isinstance(part, WordTerm) and self._sizes.get(part, 0) > MUCH_LONGER * len(found) and not part.prefix:
                yield from self._look_up(part, found)
                held = self._lists[part]
                found = {pk for pk in found if any(_counts(part, value) for value in held.get(pk, ()))}
            else:
                found &= yield from self._records(part)
        return found

    def _estimate(self, node: Node) -> int:
        if isinstance(node, WordTerm):
            return self._sizes.get(node, 0)
        if isinstance(node, AnyWords):
            return sum(map(self._estimate, node.any_of))
        return min(map(self._estimate, _conjuncts(node)))

    # --- lists ------------------------------------------------------------------------------------------------

    def _list(self, term: WordTerm) -> Generator[RankingStep, Any, dict[bytes, Sequence[bytes]]]:
        """Return the values of the entries of a term, by primary key."""
        if term in self._whole:
            return self._lists[term]
        expected = self._rows + self._sizes.get(term, 0)
        if expected > self._most:
            raise self._too_many(term, expected)
        (postings,) = yield ReadPostings((_span(term)._replace(limit=self._most - self._rows + 1),))
        self._rows += len(postings)
        if self._rows > self._most:
            raise self._too_many(term, self._rows)
        self._whole.add(term)
        self._lists[term] = _by_key(postings, self._size, several=term.prefix)
        return self._lists[term]

    def _look_up(self, term: WordTerm, keys: Iterable[bytes]) -> Generator[RankingStep, Any, None]:
        """Read the entries of a term for some records."""
        part = _span(term).start
        found = self._lists.setdefault(term, {})
        asked = [pk for pk in sorted(keys) if pk not in found]
        answers = yield ReadPostings([EntrySpan(part + pk, key_successor(part + pk)) for pk in asked])
        for pk, postings in zip(asked, answers, strict=True):
            found[pk] = _by_key(postings, self._size, several=False).get(pk, ())

    def _complete(self, found: set[bytes]) -> Generator[RankingStep, Any, None]:
        """Read the entries of scored terms that are not known of the records that were found."""
        for term in self._terms:
            if term in self._whole or not found:
                self._lists.setdefault(term, {})
            elif term.prefix or self._sizes.get(term, 0) <= MUCH_LONGER * len(found):
                yield from self._list(term)
            else:
                yield from self._look_up(term, found)

    def _too_many(self, term: WordTerm, size: int) -> OperationTooLargeError:
        word = f"{term.term}*" if term.prefix else term.term
        return OperationTooLargeError(
            "a search would read too many entries",
            index=self._definition.name,
            limit="max_postings",
            size=size,
            maximum=self._most,
            hint=f"The word {word!r} is too common: add a rarer word, or raise max_postings= of search().",
        )


def _span(term: WordTerm) -> EntrySpan:
    span = span_of(term)
    return EntrySpan(span.start, span.end)


def _by_key(postings: Iterable[Posting], size: int, *, several: bool) -> dict[bytes, Sequence[bytes]]:
    """Return the values by primary key; of a record in several groups once, without rows of other programs.

    ``several``: a record may have entries of several words.
    """
    if not several:
        return {pk: (value,) for _, pk, value in postings if len(value) == size}
    found: dict[bytes, dict[bytes, bytes]] = {}
    for part, pk, value in postings:
        if len(value) == size:
            found.setdefault(pk, {})[part] = value
    return {pk: list(values.values()) for pk, values in found.items()}


def _counts(term: WordTerm, value: bytes) -> bool:
    return any(value[1:]) if term.field is None else bool(value[1 + term.field])


def _conjuncts(node: Node) -> list[Node]:
    """Return the bounded conditions that must all hold; those of a phrase are its terms."""
    if isinstance(node, Phrase):
        return [WordTerm(term, field=node.field) for term in node.terms]
    if isinstance(node, AllWords):
        return [one for part in node.all_of if is_bounded(part) for one in _conjuncts(part)]
    return [node]


def _distance_of(definition: IndexDefinition, searched: Searched, terms: Sequence[WordTerm], scoring: Scoring) -> Any:
    """Return the function from a stored document to its negated score; None if it does not satisfy the search."""
    options = options_of(definition)
    read = reader_of(options.terms)
    test = SearchLookup().test(definition, searched)

    def distance(document: Document) -> float | None:
        if not test(document):
            return None
        found = options.terms_in(read(document))
        if found is None:
            return None
        held: Mapping[str, bytes] = found.frequencies
        return -scoring.score(found.norm, [list(frequencies_of(term, held)) for term in terms])

    return distance
