"""A search as conditions on terms: what a record must have, and which lists of entries hold every such record.

A condition is *bounded* if each record that satisfies it has an entry of one of finitely many terms. A search that is
not bounded finds nothing: of its alternatives those without a positive word are left out.

Rules of this module: pure. Conditions are immutable and hashable. Phrases are verified on the words of texts, because
entries have no positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.words.search import MAX_WORDS, Every, Without, Words, Written
from kvmodels.schema.words.tokenizer import Tokenizer
from kvmodels.schema.words.word_runs import is_paired


@dataclass(frozen=True, slots=True)
class WordTerm:
    """A term that one of the fields must have.

    Attributes:
        term: the term, or the beginning of terms.
        prefix: whether it is the beginning.
        field: the number of the only field that counts; None: any.
    """

    term: str
    prefix: bool = False
    field: int | None = None


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words next to each other in one text; they are verified there.

    Attributes:
        words: the terms of all words, stop words included.
        terms: the terms of them that the index has.
        field: as of ``WordTerm``.
    """

    words: tuple[str, ...]
    terms: tuple[str, ...]
    field: int | None = None


@dataclass(frozen=True, slots=True)
class AllWords:
    """Every part holds."""

    all_of: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyWords:
    """One of the parts holds."""

    any_of: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class NoWords:
    """The part does not hold."""

    part: Node


Node: TypeAlias = WordTerm | Phrase | AllWords | AnyWords | NoWords

NOTHING = AnyWords(())
"""A condition that no record satisfies."""

TextWords: TypeAlias = Callable[[int], Iterable[Sequence[str]]]
"""Returns the terms of all words of each text of a field, in order, stop words included."""


# --- from a search ----------------------------------------------------------------------------------------------


def condition_of(written: Written, tokenizer: Tokenizer, fields: Sequence[str]) -> Node:
    """Return the condition of a search, with at most ``MAX_WORDS`` words."""
    made = _Compiling(tokenizer, fields).node(written)
    bounded = None if made is None else _bounded_part(made)
    return NOTHING if bounded is None else bounded


class _Compiling:
    """The compilation of one search, which counts its words."""

    def __init__(self, tokenizer: Tokenizer, fields: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._fields = fields
        self._left = MAX_WORDS

    def node(self, written: Written) -> Node | None:
        """Return the condition of a part; None for one without words."""
        if isinstance(written, Words):
            return self._words(written)
        if isinstance(written, Without):
            part = self.node(written.part)
            return None if part is None else part.part if isinstance(part, NoWords) else NoWords(part)
        found = [part for part in map(self.node, written.parts) if part is not None]
        parts = tuple(dict.fromkeys(found))
        if len(parts) <= 1:
            return parts[0] if parts else None
        return AllWords(parts) if isinstance(written, Every) else AnyWords(parts)

    def _words(self, written: Words) -> Node | None:
        tokenizer, field = self._tokenizer, None
        if written.field is not None:
            if written.field not in self._fields:
                return NOTHING
            field = self._fields.index(written.field)
        words = list(islice(tokenizer.words(written.text), self._left))
        self._left -= len(words)
        if len(words) == 1 and (written.prefix or _is_half_pair(words[0])):
            return WordTerm(tokenizer.term(words[0]), prefix=True, field=field)
        stops = [tokenizer.is_stop_word(word) for word in words]
        if not words or (len(words) == 1 and stops[0] and not written.quoted):
            return None
        terms = tuple(map(tokenizer.term, words))
        if len(words) == 1 and not stops[0]:
            return WordTerm(terms[0], field=field)
        held = [term for term, is_stop in zip(terms, stops, strict=True) if not is_stop]
        return Phrase(terms, tuple(dict.fromkeys(held)), field)


def _is_half_pair(word: str) -> bool:
    return len(word) == 1 and is_paired(word)


def is_bounded(node: Node) -> bool:
    """Return whether every record that satisfies a condition has an entry of one of its terms."""
    if isinstance(node, WordTerm):
        return True
    if isinstance(node, Phrase):
        return bool(node.terms)
    if isinstance(node, AllWords):
        return any(map(is_bounded, node.all_of))
    return isinstance(node, AnyWords) and all(map(is_bounded, node.any_of))


def _bounded_part(node: Node) -> Node | None:
    """Return a condition without those of its alternatives that are not bounded; None if none is left."""
    if is_bounded(node):
        return node
    if not isinstance(node, AnyWords):
        return None
    parts = tuple(part for part in map(_bounded_part, node.any_of) if part is not None)
    return parts[0] if len(parts) == 1 else AnyWords(parts) if parts else None


# --- terms ------------------------------------------------------------------------------------------------------


def cover_of(node: Node) -> tuple[WordTerm, ...]:
    """Return the terms one of which every record that satisfies a bounded condition has: few, and long ones.

    Long words are rare more often than short ones; nothing is counted.
    """
    return tuple(dict.fromkeys(_cover(node)))


def _cover(node: Node) -> tuple[WordTerm, ...]:
    if isinstance(node, WordTerm):
        return (node,)
    if isinstance(node, Phrase):
        return (max((WordTerm(term, field=node.field) for term in node.terms), key=_length),)
    if isinstance(node, AnyWords):
        return tuple(term for part in node.any_of for term in _cover(part))
    assert isinstance(node, AllWords)  # only bounded conditions are covered
    covers = [_cover(part) for part in node.all_of if is_bounded(part)]
    return min(covers, key=lambda terms: (len(terms), any(term.prefix for term in terms), -min(map(_length, terms))))


def needed_terms(node: Node) -> tuple[str, ...]:
    """Return the distinct whole terms that every record of a bounded condition has, those of each part in order."""
    return tuple(dict.fromkeys(_needed(node)))


def _needed(node: Node) -> Iterator[str]:
    if isinstance(node, WordTerm):
        if not node.prefix:
            yield node.term
    elif isinstance(node, Phrase):
        yield from node.terms
    elif isinstance(node, AllWords):
        for part in node.all_of:
            yield from _needed(part)


def named_in(node: Node) -> Iterator[WordTerm]:
    """Yield every term that a condition names, those of excluded parts too."""
    if isinstance(node, WordTerm):
        yield node
    elif isinstance(node, Phrase):
        yield from (WordTerm(term, field=node.field) for term in node.terms)
    elif isinstance(node, NoWords):
        yield from named_in(node.part)
    else:
        for part in node.all_of if isinstance(node, AllWords) else node.any_of:
            yield from named_in(part)


def _length(term: WordTerm) -> int:
    return len(term.term)


def scored_terms(node: Node) -> tuple[WordTerm, ...]:
    """Return the distinct terms of a bounded condition that a score adds up: those of its bounded parts."""
    return tuple(dict.fromkeys(_scored(node)))


def _scored(node: Node) -> Iterator[WordTerm]:
    if isinstance(node, WordTerm):
        yield node
    elif isinstance(node, Phrase):
        yield from (WordTerm(term, field=node.field) for term in node.terms)
    elif isinstance(node, AllWords | AnyWords):
        for part in node.all_of if isinstance(node, AllWords) else node.any_of:
            if is_bounded(part):
                yield from _scored(part)


def terms_decide(node: Node) -> bool:
    """Return whether entries of single terms alone decide, without their values and without the record."""
    if isinstance(node, AnyWords):
        return all(map(terms_decide, node.any_of))
    return isinstance(node, WordTerm) and node.field is None


def is_verified(node: Node) -> bool:
    """Return whether the record must be tested, because the lists of entries do not decide."""
    if isinstance(node, WordTerm):
        return False
    if isinstance(node, AllWords):
        return any(map(is_verified, node.all_of))
    return any(map(is_verified, node.any_of)) if isinstance(node, AnyWords) else True


# --- tests ------------------------------------------------------------------------------------------------------


def holds(node: Node, frequencies: Mapping[str, bytes], texts: TextWords) -> bool:
    """Return whether a record with these terms satisfies a condition; ``texts`` is called for phrases alone."""
    if isinstance(node, WordTerm):
        return any(frequencies_of(node, frequencies))
    if isinstance(node, AllWords):
        return all(holds(part, frequencies, texts) for part in node.all_of)
    if isinstance(node, AnyWords):
        return any(holds(part, frequencies, texts) for part in node.any_of)
    if isinstance(node, NoWords):
        return not holds(node.part, frequencies, texts)
    if not all(any(frequencies_of(WordTerm(term, field=node.field), frequencies)) for term in node.terms):
        return False
    fields = range(_fields_in(frequencies)) if node.field is None else (node.field,)
    return any(_follows(words, node.words) for field in fields for words in texts(field))


def _fields_in(frequencies: Mapping[str, bytes]) -> int:
    return len(next(iter(frequencies.values()), b""))


def frequencies_of(term: WordTerm, frequencies: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the frequencies of a term, or of each term that begins with it, in the fields that count."""
    if term.prefix:
        found = [counts for name, counts in frequencies.items() if name.startswith(term.term)]
    else:
        found = [frequencies[term.term]] if term.term in frequencies else []
    for counts in found:
        kept = counts if term.field is None else counts[term.field : term.field + 1]
        if any(kept):
            yield counts


def _follows(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """Return whether words contain others next to each other."""
    size, first, at = len(phrase), phrase[0], -1
    wanted = list(phrase)
    while True:
        try:
            at = words.index(first, at + 1)
        except ValueError:
            return False
        if list(words[at : at + size]) == wanted:
            return True


def plain_of(node: Node) -> list[Any]:
    """Return a condition as plain lists, which are equal in every process."""
    if isinstance(node, WordTerm):
        return ["term", node.term, node.prefix, node.field]
    if isinstance(node, Phrase):
        return ["phrase", list(node.words), list(node.terms), node.field]
    if isinstance(node, NoWords):
        return ["not", plain_of(node.part)]
    parts = node.all_of if isinstance(node, AllWords) else node.any_of
    return ["all" if isinstance(node, AllWords) else "any", *map(plain_of, parts)]
