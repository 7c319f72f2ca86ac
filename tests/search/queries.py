"""Drawn records with texts and drawn searches for them, with their answers by the words of all records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from kvmodels import KvModel, PrimaryKey, Q, SearchIndex

FIELDS = ("title", "body", "tags")
ORGS = ("a", "b", None)
WORDS = ["key", "value", "store", "ordered", "lmdb", "redis", "é", "strasse", "हिन्दी", "東京", "京都", "x1", "be", "to"]
"""Rare ones are at the end of a drawn text, common ones at its beginning."""
STOP_WORDS = ("to", "be")


class Note(KvModel, collection="notes"):
    """Texts in fields of one and of several values, by themselves, in a group, and of some records."""

    id: PrimaryKey[int]
    org: str | None
    title: str | None
    body: str
    tags: list[str] | None
    size: int

    class Meta:
        indexes = (
            SearchIndex("title", "body", "tags", stop_words=STOP_WORDS, group="org", name="in_org"),
            SearchIndex("title", "body", "tags", weights={"title": 3}, stop_words=STOP_WORDS, name="by_text"),
            SearchIndex("body", where=Q(size__gte=2), rank=False, name="large"),
        )

    def texts(self, field: str | None = None) -> list[list[str]]:
        """The words of each text."""
        names = FIELDS if field is None else (field,)
        values = [getattr(self, name) for name in names]
        texts = [text for value in values for text in ([value] if isinstance(value, str) else value or [])]
        return [text.casefold().replace("-", " ").split() for text in texts]


class Sought(NamedTuple):
    """A word that a score adds up; with ``prefix`` the beginning of words."""

    word: str
    field: str | None
    prefix: bool = False

    def matches(self, word: str) -> bool:
        return word not in STOP_WORDS and (word.startswith(self.word) if self.prefix else word == self.word)


class Drawn(NamedTuple):
    """A search as text, and its test of a record.

    Attributes:
        bounded: whether it has a word that is needed.
        sought: the words that scores add up.
    """

    text: str
    test: Callable[[Note], bool]
    bounded: bool = True
    sought: tuple[Sought, ...] = ()


def notes(chance: Random, number: int) -> list[Note]:
    return [
        Note(
            id=key,
            org=chance.choice(ORGS),
            title=None if chance.random() < 0.2 else text(chance, 3),
            body=text(chance, 12),
            tags=chance.choice([None, [], [text(chance, 2)], [text(chance, 2), text(chance, 1)]]),
            size=chance.randrange(4),
        )
        for key in range(number)
    ]


def text(chance: Random, most: int) -> str:
    return chance.choice([" ", "-"]).join(word(chance) for _ in range(chance.randrange(most + 1)))


def word(chance: Random) -> str:
    return WORDS[min(int(chance.expovariate(0.3)), len(WORDS) - 1)]


def drawn(chance: Random) -> Drawn:
    """A search of up to three alternatives of up to three parts each; an alternative without a needed word is none."""
    alternatives = [_every(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    kept = [one.test for one in alternatives if one.bounded]
    sought = tuple(dict.fromkeys(word for one in alternatives if one.bounded for word in one.sought))
    text = " OR ".join(one.text for one in alternatives)
    return Drawn(text, lambda note: any(test(note) for test in kept), bool(kept), sought)


def _every(chance: Random) -> Drawn:
    parts = [_part(chance) for _ in range(chance.choice([1, 1, 2, 2, 3]))]
    kept = [one.test for one in parts]
    bounded = any(one.bounded for one in parts)
    sought = tuple(word for one in parts for word in one.sought)
    return Drawn(" ".join(one.text for one in parts), lambda note: all(test(note) for test in kept), bounded, sought)


def _part(chance: Random) -> Drawn:
    field = chance.choice([None, None, None, *FIELDS])
    named = "" if field is None else f"{field}:"
    match chance.randrange(8):
        case 0:
            found = [word(chance) for _ in range(chance.choice([2, 2, 3]))]
            phrase = " ".join(found)
            return Drawn(
                f'{named}"{phrase}"',
                lambda note: any(_follow(words, found) for words in note.texts(field)),
                any(one not in STOP_WORDS for one in found),
                tuple(Sought(one, field) for one in found if one not in STOP_WORDS),
            )
        case 1:
            start = chance.choice(["st", "re", "x", "ke", "東", "va", "zz"])
            mark = "" if start == "東" else "*"
            return Drawn(
                f"{named}{start}{mark}",
                lambda note: any(one.startswith(start) and one not in STOP_WORDS for one in _words(note, field)),
                sought=(Sought(start, field, prefix=True),),
            )
        case 2:
            one = word(chance)
            if one in STOP_WORDS:
                return Drawn(f"-{named}{one}", lambda _: True, bounded=False)
            return Drawn(f"-{named}{one}", lambda note: one not in _words(note, field), bounded=False)
    one = word(chance)
    if one in STOP_WORDS:
        return Drawn(f"{named}{one.upper()}", lambda _: True, bounded=False)
    return Drawn(f"{named}{one.upper()}", lambda note: one in _words(note, field), sought=(Sought(one, field),))


def _words(note: Note, field: str | None) -> Iterator[str]:
    return (one for words in note.texts(field) for one in words)


def _follow(words: list[str], phrase: list[str]) -> bool:
    return any(words[at : at + len(phrase)] == phrase for at in range(len(words) - len(phrase) + 1))


# --- scores -----------------------------------------------------------------------------------------------------


def scores(notes: list[Note], asked: Drawn, weights: dict[str, float]) -> dict[int, float]:
    """BM25 of the records of a group that a search finds, by the formula over all records of the group."""
    lengths = {note.id: rounded(sum(one not in STOP_WORDS for one in _words(note, None))) for note in notes}
    counted = [length for length in lengths.values() if length]
    mean = max(sum(counted) / max(len(counted), 1), 1.0)
    found = dict.fromkeys((note.id for note in notes if asked.test(note)), 0.0)
    for sought in asked.sought:
        entries = sum(len({one for one in _words(note, None) if sought.matches(one)}) for note in notes)
        records = max(len(counted), *(_entries(notes, other) for other in asked.sought))
        idf = math.log(1 + (records - entries + 0.5) / (entries + 0.5))
        for note in notes:
            if note.id in found:
                fields = FIELDS if sought.field is None else (sought.field,)
                frequency = sum(
                    weights.get(field, 1.0) * sum(map(sought.matches, _words(note, field))) for field in fields
                )
                scale = 1.2 * (1 - 0.75 + 0.75 * lengths[note.id] / mean)
                found[note.id] += idf * frequency * 2.2 / (frequency + scale) if frequency else 0.0
    return found


def _entries(notes: list[Note], sought: Sought) -> int:
    return sum(len({one for one in _words(note, None) if sought.matches(one)}) for note in notes)


def rounded(length: int) -> int:
    """The length that the norm of a length stands for."""
    value = 0
    while (following := max(value + 1, value * 5 // 4)) <= length:
        value = following
    return value
