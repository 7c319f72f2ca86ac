"""The tokenizer of a search index: words of a text, stop words, and the term of each word.

Rules of this module: pure. Texts and queries have one tokenizer, so that the terms of a query are those of texts. A
change of a library that changes terms changes ``digest``, which is stored with the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, cast

from kvmodels.errors import InvalidValueError, UnsupportedError
from kvmodels.schema.words import stemming
from kvmodels.schema.words.stop_words import STOP_WORDS
from kvmodels.schema.words.word_runs import cut, words_in

TokenizerFunction = Callable[[str], Iterable[str]]
"""Returns the words of a text in order; words that it returns are compared as they are."""

_PROBE: Final = (
    "running generously nationalities organization relational knives happily Häuser Wohnungen maison chevaux "
    "ciudades corriendo случаями книгами 東京都 हिन्दी كتاب 42"
)
"""A text that a stemmer of any language changes."""


class Tokenizer:
    """Makes words and terms of texts, for one index.

    Args:
        language: a language with a stemmer; None: words are compared as they are, folded.
        stop_words: words without terms; None: the list of the language.
        function: returns the words in place of the built-in rules.
    """

    __slots__ = ("_function", "_language", "_stop_words", "digest")

    def __init__(
        self,
        language: str | None = None,
        stop_words: Collection[str] | None = None,
        function: TokenizerFunction | None = None,
    ) -> None:
        self._language = language
        self._function = function
        if stop_words is None:
            stop_words = STOP_WORDS.get(language or "", "").split()
        self._stop_words = frozenset(_single_words(stop_words)) if function is None else frozenset[str]()
        self.digest = self._digest()

    def _digest(self) -> str | None:
        """Return the digest of the terms of a probe and of the stop words; None if no library decides on terms."""
        if self._language is None and not self._stop_words:
            return None
        stop_words = sorted(self._stop_words)
        terms = [self.term(word) for word in (*words_in(_PROBE), *stop_words)]
        return sha256("\n".join((*stop_words, "", *terms)).encode()).hexdigest()[:16]

    @property
    def is_built_in(self) -> bool:
        """Whether words are found by the built-in rules."""
        return self._function is None

    def words(self, text: str) -> Iterator[str]:
        """Yield the words of a text in order, stop words included. Raises what a function raises."""
        if self._function is None:
            return words_in(text)
        return _given_words(self._function(text))

    def is_stop_word(self, word: str) -> bool:
        """Return whether a word has no term in the index."""
        return word in self._stop_words

    def term(self, word: str) -> str:
        """Return the term of a word: its stem."""
        if self._language is None:
            return word
        return cut(stemming.stemmer(self._language)(word)) or word

    def __reduce__(self) -> str | tuple[Any, ...]:
        return Tokenizer, (self._language, self._stop_words, self._function)


def _single_words(stop_words: Iterable[str]) -> Iterator[str]:
    """Yield the stop words that are one word; of ``don't`` the rest after the first word."""
    for stop_word in stop_words:
        found = list(words_in(stop_word))
        yield from found if len(found) == 1 else found[1:]


def _given_words(words: object) -> Iterator[str]:
    for word in cast("Iterable[object]", words):
        if not isinstance(word, str):
            raise InvalidValueError(
                "a tokenizer has returned something else than words",
                type=type(word).__name__,
                hint="It returns a list of str, in the order of the text.",
            )
        kept = cut(word)
        if kept:
            yield kept.encode(errors="ignore").decode()


def languages() -> frozenset[str]:
    """Return the languages with a stemmer. Raises UnsupportedError without the package."""
    try:
        return stemming.LANGUAGES
    except ModuleNotFoundError as missing:
        if missing.name != "Stemmer":
            raise
        raise UnsupportedError(
            "a search index with a language needs a package that is not installed",
            reason="PyStemmer",
            hint="Install it: pip install 'kvmodels[search]'. Without language=, words are compared as they are.",
        ) from missing
