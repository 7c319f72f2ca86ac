"""The order of records by the score of a search: BM25 over the entries of its words.

    score = sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))
    tf    = sum over fields of weight * frequency,  idf = ln(1 + (n - df + 0.5) / (df + 0.5))

``n`` and the mean length are the statistics of the groups, ``df`` is the number of entries of a word. Words count that
are in a bounded part of the search; the beginning of words counts as one word.

One request reads the statistics, and with them the lists that are read in any case: those of alternatives, or of the
two rarest words that must all be found, which are counted before. Other lists are read rarest first. A list that is
much longer than the records found so far is not read: their entries are looked up one by one.

Rules of this module: pure. The score of a record follows from its stored terms and from the numbers of the first page
alone, so a reader can compute it again from the record, and pages agree.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import log
from operator import mul
from typing import Any, Final, NamedTuple, TypeAlias

from kvmodels.errors import OperationTooLargeError
from kvmodels.query.kinds.ranking import (
    CountEntries,
    EntryList,
    EntrySpan,
    ListsRead,
    Posting,
    RankingStep,
    RankRecords,
    ReadLists,
    ReadPoints,
    ReadPostings,
)
from kvmodels.query.words.word_spans import span_of
from kvmodels.schema.definition.definition import Document, IndexDefinition
from kvmodels.schema.kinds.search import COUNT, LENGTH, Searched, finder, options_of
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

Entries: TypeAlias = tuple[bytes, ...]
"""The values of the entries of one record."""

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
        self._damping: dict[int, float] = {}  # by the norm of the length
        self._known: list[dict[bytes, float]] = [{} for _ in terms]
        self._idf = [log(1 + (records - found + 0.5) / (found + 0.5)) for found in numbers.found]

    def score(self, norm: int, counts: Iterable[Sequence[bytes]]) -> float:
        """Return the score for the frequencies of each term, or of each word that begins with it."""
        total = 0.0
        for at, found in enumerate(counts):
            if len(found) == 1:
                total += self._part_of_entry(at, bytes((norm,)) + found[0])
            elif found:
                total += self._part(at, norm, found)
        return total

    def distances(self, at: int, entries: Iterable[Entries]) -> dict[Entries, float]:
        """Return the negated share of a term for the values of its entries; those of many records are equal."""
        return {found: -self._part(at, found[0][0], [value[1:] for value in found]) for found in {*entries}}

    def distances_of_values(self, at: int, values: Iterable[bytes]) -> dict[bytes, float]:
        """Return the same for a term of which a record has one entry."""
        return {value: -self._part_of_entry(at, value) for value in {*values}}

    def _part_of_entry(self, at: int, value: bytes) -> float:
        known = self._known[at]
        part = known.get(value)
        if part is None:
            part = known[value] = self._part(at, value[0], (value[1:],))
        return part

    def _part(self, at: int, norm: int, found: Iterable[bytes]) -> float:
        """Return the share of one term."""
        field, weights = self._terms[at].field, self._weights
        if field is None:
            frequency = sum([sum(map(mul, weights, one)) for one in found])
        else:
            frequency = sum([weights[field] * one[field] for one in found])
        if not frequency:
            return 0.0
        damping = self._damping.get(norm)
        if damping is None:
            damping = self._damping[norm] = K1 * (1 - B + B * length_of(norm) / self._mean)
        share: float = self._idf[at] * frequency * (K1 + 1) / (frequency + damping)
        return share


class WordRanking:
    """The ranking of one search: reads the lists of its words, and scores the records that they find."""

    def __init__(self, definition: IndexDefinition, searched: Searched, most: int, frozen: Any) -> None:
        options = options_of(definition)
        self._definition = definition
        self._searched = searched
        self._weights = options.weights
        self._value_size = 1 + len(options.fields)
        self._most = most
        self._terms = scored_terms(searched.node)
        self._frozen = statistics_in(frozen, len(self._terms))
        self._rows = 0
        self._begun: dict[WordTerm, EntryList] = {}
        self._lists: dict[WordTerm, Mapping[bytes, Any]] = {}
        self._whole: set[WordTerm] = set()
        self._sizes: dict[WordTerm, int] = {}

    def steps(self) -> Steps:
        """Yield the requests, and the records with their scores as the last of them."""
        numbers = self._frozen
        statistics: Sequence[int] = (0, 0)
        if numbers is None:
            statistics = yield from self._begin()
        else:
            self._sizes = dict(zip(self._terms, numbers.found, strict=True))
        found = yield from self._records(self._searched.node)
        yield from self._complete(found)
        if numbers is None:
            records, length = statistics
            entries = tuple(self._sizes[term] for term in self._terms)
            numbers = WordStatistics(max(records, 0), max(length, 0), entries)
        scoring = Scoring(self._terms, self._weights, numbers)
        distance = _distance_of(self._definition, self._searched, self._terms, scoring)
        yield RankRecords(self._distances(found, scoring), distance, numbers.plain())

    def _begin(self) -> Generator[RankingStep, Any, Sequence[int]]:
        """Return the statistics; read with them the lists that are needed in any case."""
        wanted: Sequence[WordTerm] = self._terms
        if not _is_read_whole(self._searched.node):
            counted = yield CountEntries([_span(term) for term in self._terms])
            if counted is not None:
                self._sizes = dict(zip(self._terms, counted, strict=True))
            wanted = self._rarest_two()
        words = [term for term in wanted if not term.prefix]
        read: ListsRead = yield ReadLists([_span(term).start for term in words], self._most + 1, (COUNT, LENGTH))
        for term, found in zip(words, read.lists, strict=True):
            if found.size > self._most:
                raise self._too_many(term, found.size)
            if found.whole:
                self._begun[term] = found
        return read.counters

    def _rarest_two(self) -> list[WordTerm]:
        """Return the rarest of words that must all be found, and the next one unless it is looked up."""
        if not self._sizes or isinstance(self._searched.node, AnyWords):
            return []
        first, *others = sorted(_conjuncts(self._searched.node), key=self._estimate)
        found = [first, *(one for one in others[:1] if self._estimate(one) <= MUCH_LONGER * self._estimate(first))]
        if sum(map(self._estimate, found)) > self._most:
            return []
        return [one for one in found if isinstance(one, WordTerm)]

    def _distances(self, found: Collection[bytes], scoring: Scoring) -> dict[bytes, float]:
        """Return the negated score of each record."""
        total = dict.fromkeys(found, -0.0)
        for at, term in enumerate(self._terms):
            held = self._lists[term]
            if len(held) > len(total):
                held = {pk: held[pk] for pk in total if pk in held}
            of = scoring.distances(at, held.values()) if term.prefix else scoring.distances_of_values(at, held.values())
            if len(self._terms) == 1 and len(held) == len(total):
                return {pk: of[value] for pk, value in held.items()}
            for pk, value in held.items():
                if pk in total:
                    total[pk] += of[value]
        return total

    # --- records ----------------------------------------------------------------------------------------------

    def _records(self, node: Node) -> Generator[RankingStep, Any, Collection[bytes]]:
        """Return the records whose entries satisfy a bounded condition, as far as entries decide."""
        if isinstance(node, WordTerm):
            held = yield from self._list(node)
            return self._satisfying(node, held)
        if isinstance(node, AnyWords):
            union = set[bytes]()
            for part in node.any_of:
                union.update((yield from self._records(part)))
            return union
        return (yield from self._common([*_conjuncts(node)]))

    def _satisfying(self, term: WordTerm, held: Mapping[bytes, Any]) -> Collection[bytes]:
        """Return the records of entries that count for a term."""
        known = {*held.values()}
        if term.prefix:
            counting = {one for one in known if any(_counts(term, value) for value in one)}
        else:
            counting = {one for one in known if _counts(term, one)}
        return held.keys() if len(counting) == len(known) else [pk for pk, one in held.items() if one in counting]

    def _common(self, parts: list[Node]) -> Generator[RankingStep, Any, Collection[bytes]]:
        """Return the records that all parts have in common, the rarest part first."""
        parts.sort(key=self._estimate)
        found = yield from self._records(parts[0])
        for part in parts[1:]:
            if not found:
                break
            if isinstance(part, WordTerm) and self._is_looked_up(part, len(found)):
                yield from self._look_up(part, found)
                others: Collection[bytes] = self._satisfying(part, self._lists[part])
            else:
                others = yield from self._records(part)
            if not isinstance(others, AbstractSet):
                others = {*others}
            found = [pk for pk in found if pk in others]
        return found

    def _is_looked_up(self, term: WordTerm, records: int) -> bool:
        """Return whether entries are looked up for so many records, because the list is much longer."""
        return not (term.prefix or term in self._whole) and self._sizes.get(term, 0) > MUCH_LONGER * records

    def _estimate(self, node: Node) -> int:
        if isinstance(node, WordTerm):
            return self._sizes.get(node, 0)
        if isinstance(node, AnyWords):
            return sum(map(self._estimate, node.any_of))
        return min(map(self._estimate, _conjuncts(node)))

    # --- lists ------------------------------------------------------------------------------------------------

    def _list(self, term: WordTerm) -> Generator[RankingStep, Any, Mapping[bytes, Any]]:
        """Return the value of the entry of a term by primary key; of the beginning of words, all values."""
        if term in self._whole:
            return self._lists[term]
        held: Mapping[bytes, Any]
        begun, room = self._begun.pop(term, None), self._most - self._rows
        expected = self._sizes.get(term, 0) if begun is None else begun.size
        if expected > room:
            raise self._too_many(term, self._rows + expected)
        if term.prefix:
            (postings,) = yield ReadPostings((_span(term)._replace(limit=room + 1),))
            size, held = len(postings), _by_key(postings, self._value_size)
        else:
            if begun is None:
                read = yield ReadLists((_span(term).start,), room + 1)
                begun = read.lists[0]
            size, held = begun.size, _of_this_size(begun.values, self._value_size)
        self._rows += size
        if self._rows > self._most:
            raise self._too_many(term, self._rows)
        self._sizes.setdefault(term, size)
        self._whole.add(term)
        self._lists[term] = held
        return held

    def _look_up(self, term: WordTerm, keys: Iterable[bytes]) -> Generator[RankingStep, Any, None]:
        """Read the entries of a term for some records."""
        found = dict(self._lists.get(term, {}))
        values = yield ReadPoints(_span(term).start, [pk for pk in sorted(keys) if pk not in found])
        found.update(_of_this_size(values, self._value_size))
        self._lists[term] = found

    def _complete(self, found: Collection[bytes]) -> Generator[RankingStep, Any, None]:
        """Read the entries of scored terms that are not known of the records that were found."""
        for term in self._terms:
            if not found:
                self._lists.setdefault(term, {})
                self._sizes.setdefault(term, 0)
            elif self._is_looked_up(term, len(found)):
                yield from self._look_up(term, found)
            else:
                yield from self._list(term)

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


def _is_read_whole(node: Node) -> bool:
    """Return whether all lists of a condition are read, because no word limits those of another."""
    return all(map(_is_read_whole, node.any_of)) if isinstance(node, AnyWords) else isinstance(node, WordTerm)


def _span(term: WordTerm) -> EntrySpan:
    span = span_of(term)
    return EntrySpan(span.start, span.end)


def _of_this_size(values: Mapping[bytes, bytes], size: int) -> Mapping[bytes, bytes]:
    """Return values by primary key without rows of other programs, whose values have another size."""
    if {*map(len, values.values())} <= {size}:
        return values
    return {pk: value for pk, value in values.items() if len(value) == size}


def _by_key(postings: Iterable[Posting], size: int) -> dict[bytes, Entries]:
    """Return the values of entries of several words by primary key; of a record in several groups once."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    for part, pk, value in postings:
        if len(value) == size:  # no row of another program
            found.setdefault(pk, {})[part] = value
    return {pk: tuple(values.values()) for pk, values in found.items()}


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
    found_in = finder(definition, searched)

    def distance(document: Document) -> float | None:
        found = found_in(document)
        if found is None:
            return None
        held: Mapping[str, bytes] = found.frequencies
        return -scoring.score(found.norm, [list(frequencies_of(term, held)) for term in terms])

    return distance
