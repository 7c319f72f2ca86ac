"""Searches as users write them: the query language of search boxes, and the typed form of programs.

The language is that of PostgreSQL's ``websearch_to_tsquery``: words are joined by AND; ``"quoted words"`` are a phrase;
``OR`` between words; ``-word`` excludes; ``word*`` matches the beginning of words; ``title:word`` searches one field.
OR binds less than AND. No text is an error: a sign without a meaning at its place is ignored.

Rules of this module: pure; it knows no tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError

MAX_CHARACTERS: Final = 10_000
"""The part of the text of a query that is read."""

MAX_WORDS: Final = 100
"""The number of words of a query that count."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a search: of one written word, or of a phrase.

    Attributes:
        text: as written.
        field: the only field to search; None: all.
        quoted: whether stop words count, because the words were quoted.
        prefix: whether the last word is the beginning of words.
    """

    text: str
    field: str | None = None
    quoted: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Every:
    """All parts must be found."""

    parts: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of the parts must be found."""

    parts: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Without:
    """The part must not be found."""

    part: Written


Written: TypeAlias = Words | Every | Either | Without
"""A search as it was written."""

_PIECE: Final = re.compile(r'(-?)([^\s":]*:)?(?:"([^"]*)"?|([^\s"]+))|\S')
_QUOTES: Final = str.maketrans("“”„«»", '"""""')


def parsed_search(text: str, fields: Collection[str]) -> Written:
    """Return the search of a text in the query language; ``fields`` are the names that may stand before a colon.

    Examples:
        >>> parsed_search('lmdb -redis OR "key value"', ())
        Either(parts=(Every(parts=(Words(text='lmdb'...), Without(part=Words(text='redis'...))), Every(parts=(...))))
    """
    alternatives: list[list[Written]] = [[]]
    for minus, name, phrase, word in _pieces(text[:MAX_CHARACTERS]):
        if word == "OR" and not minus and not name:
            alternatives.append([])
            continue
        field = name[:-1] if name[:-1] in fields else None
        if phrase is not None:
            if name and field is None:
                alternatives[-1].append(Words(name))
            found = Words(phrase, field, quoted=True)
        else:
            written = word if field is not None else name + word
            found = Words(written, field, prefix=written.endswith("*"))
        alternatives[-1].append(Without(found) if minus else found)
    return Either(tuple(Every(tuple(parts)) for parts in alternatives if parts))


def fields_in(written: Written) -> frozenset[str]:
    """Return the fields that a search names."""
    if isinstance(written, Words):
        return frozenset(() if written.field is None else (written.field,))
    parts = (written.part,) if isinstance(written, Without) else written.parts
    return frozenset(name for part in parts for name in fields_in(part))


def _pieces(text: str) -> Iterator[tuple[bool, str, str | None, str]]:
    """Yield minus, name with colon, phrase or None, and word of each piece."""
    for found in _PIECE.finditer(text.translate(_QUOTES)):
        minus, name, phrase, word = found.groups()
        if phrase is not None or word is not None:
            yield bool(minus), name or "", phrase, word or ""


class Search:
    """A search as a program writes it, for ``search()`` and the lookup ``search``; ``&``, ``|`` and ``~`` join several.

    Texts of users need no ``Search``: give the text itself, in which quotes, ``OR``, ``-``, ``*`` and ``field:`` have a
    meaning. Here, signs in words have none.

    Examples:
        >>> Search.all("key", "value") | Search.phrase("ordered store", field="title")
        Search.all('key', 'value') | Search.phrase('ordered store', field='title')
    """

    __slots__ = ("_shown", "written")

    written: Written
    """The search, before its words become terms."""
    _shown: str

    def __init__(self) -> None:
        raise InvalidArgumentError(
            "a search is made by one of its methods",
            argument="Search",
            value=Search,
            hint='Write Search.all("key", "value"), Search.any(...), Search.phrase("key value").',
        )

    @classmethod
    def _made(cls, written: Written, shown: str) -> Search:
        made = object.__new__(cls)
        made.written = written
        made._shown = shown
        return made

    @classmethod
    def all(cls, *words: str, field: str | None = None) -> Search:
        """Return the search for records with all of these words.

        Args:
            words: the words.
            field: the only field that is searched; None: all fields of the index.

        Returns:
            The search.

        Raises:
            InvalidArgumentError: no words, or something else than str.
        """
        return cls._made(Every(_words("all", words, field)), _shown("all", words, field))

    @classmethod
    def any(cls, *words: str, field: str | None = None) -> Search:
        """Return the search for records with at least one of these words.

        Args:
            words: the words.
            field: the only field that is searched; None: all fields of the index.

        Returns:
            The search.

        Raises:
            InvalidArgumentError: no words, or something else than str.
        """
        return cls._made(Either(_words("any", words, field)), _shown("any", words, field))

    @classmethod
    def phrase(cls, text: str, *, field: str | None = None) -> Search:
        """Return the search for records with these words next to each other, in this order.

        Args:
            text: the words.
            field: the only field that is searched; None: all fields of the index.

        Returns:
            The search.

        Raises:
            InvalidArgumentError: not a str.
        """
        (words,) = _words("phrase", (text,), field)
        return cls._made(replace(words, quoted=True), _shown("phrase", (text,), field))

    @classmethod
    def prefix(cls, word: str, *, field: str | None = None) -> Search:
        """Return the search for records with a word that begins like this.

        Args:
            word: the beginning of a word.
            field: the only field that is searched; None: all fields of the index.

        Returns:
            The search.

        Raises:
            InvalidArgumentError: not a str.
        """
        (words,) = _words("prefix", (word,), field)
        return cls._made(replace(words, prefix=True), _shown("prefix", (word,), field))

    def __and__(self, other: Search) -> Search:
        return self._joined(other, Every((self.written, other.written)), "&") if _is(other) else NotImplemented

    def __or__(self, other: Search) -> Search:
        return self._joined(other, Either((self.written, other.written)), "|") if _is(other) else NotImplemented

    def __invert__(self) -> Search:
        return self._made(Without(self.written), f"~({self._shown})")

    def _joined(self, other: Search, written: Written, sign: str) -> Search:
        return self._made(written, f"{_within(self._shown, sign)} {sign} {_within(other._shown, sign)}")

    def __repr__(self) -> str:
        return self._shown

    def __eq__(self, other: object) -> bool:
        return self.written == other.written if isinstance(other, Search) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.written)


def _is(other: object) -> bool:
    return isinstance(other, Search)


def _within(shown: str, sign: str) -> str:
    return f"({shown})" if sign == "&" and " | " in shown else shown


def _words(method: str, words: tuple[Any, ...], field: Any) -> tuple[Words, ...]:
    if not words or not all(isinstance(word, str) for word in words) or not isinstance(field, str | None):
        raise InvalidArgumentError(
            "the words of a search are str",
            argument=f"Search.{method}",
            value=words,
            hint=f'Write Search.{method}("lmdb"), with field="title" for one field.',
        )
    return tuple(Words(word, field) for word in words)


def _shown(method: str, words: tuple[str, ...], field: str | None) -> str:
    given = [*map(repr, words), *([f"field={field!r}"] if field is not None else [])]
    return f"Search.{method}({', '.join(given)})"


show_public_path(Search)
