"""Highlights: the part of a text that has most of the searched words, escaped for HTML, with marks around them.

Rules of this module: pure. Words are found in the text as it was written, so the highlight is a part of it, character
by character; each is compared by its terms, as in the index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from html import escape
from typing import Final, NamedTuple

from kvmodels.schema.words.conditions import WordTerm
from kvmodels.schema.words.tokenizer import Tokenizer
from kvmodels.schema.words.word_runs import is_paired, spaced

CUT: Final = "…"
"""Where a text was cut."""

CHARACTERS_OF_A_WORD: Final = 40
"""The number of characters for each word of a highlight, with the spaces, unless a caller gives a number."""

_WORDS: Final = re.compile(r"\S+").finditer


class _Word(NamedTuple):
    """A word of a text by its place, and whether it is searched."""

    start: int
    end: int
    found: bool


class Extent(NamedTuple):
    """The marks around words, and the maximum size of a highlight.

    Attributes:
        before, after: the marks.
        words: the maximum number of words; None: all.
        characters: the maximum number of characters of the text, without marks and before it is escaped; None: all.
    """

    before: str
    after: str
    words: int | None = None
    characters: int | None = None


def highlighted(text: str, tokenizer: Tokenizer, terms: Collection[WordTerm], extent: Extent) -> str:
    """Return the highlight of a text.

    Examples:
        >>> terms = [WordTerm("key"), WordTerm("val", prefix=True)]
        >>> highlighted("a & b: Key, <values> and the rest", Tokenizer(), terms, Extent("[", "]", words=4))
        '…b: [Key], &lt;[values]&gt; and…'
        >>> highlighted("a & b: Key, <values> and the rest", Tokenizer(), terms, Extent("[", "]", characters=12))
        '…b: [Key]…'
    """
    words = list(_words(text, tokenizer, terms))
    first, last = _best(words, extent.words)
    chosen = words[first:last]
    at = 0 if not chosen or not first else chosen[0].start
    end = len(text) if not chosen or last == len(words) else chosen[-1].end
    if extent.characters is not None and end - at > extent.characters:
        at, end = _within(chosen, at, end, extent.characters)
    parts = [CUT if at else ""]
    for word in _joined([word for word in chosen if at <= word.start < end]):
        stop = min(word.end, end)
        parts += [escape(text[at : word.start]), extent.before, escape(text[word.start : stop]), extent.after]
        at = stop
    return "".join((*parts, escape(text[at:end]), "" if end == len(text) else CUT))


def _within(words: list[_Word], at: int, end: int, most: int) -> tuple[int, int]:
    """Return the bounds of a part with the first searched word, between words if it has room for one."""
    wanted = next((word for word in words if word.found), None)
    lead = 0 if wanted is None else min(most // 4, max(0, most - (wanted.end - wanted.start)))
    first = at if wanted is None else max(at, min(wanted.start - lead, end - most))
    last = first + most
    starts = [word.start for word in words if first <= word.start and (wanted is None or word.start <= wanted.start)]
    first = starts[0] if starts and first > at else first
    ends = [word.end for word in words if first < word.end <= last]
    return first, ends[-1] if ends and (wanted is None or ends[-1] > wanted.start) else last


def _joined(words: list[_Word]) -> Iterator[_Word]:
    """Yield the searched words; those without anything between them as one."""
    start = end = -1
    for word in words:
        if word.found and word.start == end:
            end = word.end
        elif word.found:
            if end >= 0:
                yield _Word(start, end, True)
            start, end = word.start, word.end
    if end >= 0:
        yield _Word(start, end, True)


def _best(words: list[_Word], most: int | None) -> tuple[int, int]:
    """Return the bounds of the first part with the most searched words, which begins a little before them."""
    if most is None or len(words) <= most:
        return 0, len(words)
    found = [0]
    for word in words:
        found.append(found[-1] + word.found)
    starts = range(len(words) - most + 1)
    best = max(starts, key=lambda at: (found[at + most] - found[at], -at))
    inside = [at for at in range(best, best + most) if words[at].found]
    if inside:  # in the middle, as far as the text goes
        best = min(max(0, (inside[0] + inside[-1] + 1 - most) // 2), len(words) - most)
    return best, best + most


def _words(text: str, tokenizer: Tokenizer, terms: Collection[WordTerm]) -> Iterator[_Word]:
    plain = {term.term for term in terms if not term.prefix}
    prefixes = tuple(term.term for term in terms if term.prefix)

    def is_found(word: str) -> bool:
        term = tokenizer.term(word)
        return term in plain or (bool(prefixes) and term.startswith(prefixes))

    shown = spaced(text) if tokenizer.is_built_in else text
    for run in _WORDS(shown):
        start, end, written = run.start(), run.end(), run.group()
        if tokenizer.is_built_in and any(map(is_paired, written)):
            yield from _characters(start, written, is_found)
            continue
        yield _Word(start, end, any(map(is_found, tokenizer.words(written))))


def _characters(start: int, written: str, is_found: Callable[[str], bool]) -> Iterator[_Word]:
    """Yield each character of a run with pairs; one is searched if a pair that it is in is."""
    marked = [False] * len(written)
    for at in range(len(written)):
        pair = written[at : at + 2]
        if len(pair) == 2 and all(map(is_paired, pair)) and is_found(pair):
            marked[at] = marked[at + 1] = True
    for at, found in enumerate(marked):
        yield _Word(start + at, start + at + 1, found)
