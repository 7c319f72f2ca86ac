"""Drawn records with texts and drawn lookups of parts of them, with their answers by a scan in Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from kvmodels import Index, KvModel, PrimaryKey, Q, TrigramIndex

ORGS = ("acme", "zoo", None)
WORDS = (
    "red", "Redis", "rEd", "straße", "STRASSE", "strasse", "İki", "iki", "ıki", "I\u0307ki", "Σίσυφος", "ΣΊΣΥΦΟΣ",
    "σίσυφοσ", "re\u0301s", "r\xe9s", "日本語", "日本", "😀a😀", "a\0b", "\0\0\0", "aaa", "aaaa", "   ", "ﬁn", "FIN",
    "resume", "resume\u0301", "\u1e9e", "ss", "x",
)  # fmt: skip
"""Texts that share parts: with letters that fold to several characters, of Turkish and Greek, combining, and NUL."""

FORMS: tuple[Callable[[str], str], ...] = (str, str, str.upper, str.lower, str.swapcase, str.casefold, str.title)
TESTS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "icontains": lambda text, part: part.casefold() in text.casefold(),
    "endswith": lambda text, part: text.endswith(part),
    "iexact": lambda text, part: part.casefold() == text.casefold(),
}


class Paper(KvModel, collection="papers"):
    """Texts with an index by itself, of some records, and in a group."""

    id: PrimaryKey[int]
    title: str | None
    body: str
    tags: list[str]
    org: str | None
    size: int

    class Meta:
        indexes = (
            TrigramIndex("title", where=Q(size__gte=2), name="large"),
            TrigramIndex("title"),
            TrigramIndex("body", group="org", name="of_org"),
            TrigramIndex("tags", name="tagged"),
            Index("size"),
        )


def text(chance: Random, most: int = 2) -> str:
    """A text of some words."""
    return chance.choice(["", " ", "-"]).join(chance.choices(WORDS, k=chance.randint(1, most)))


def papers(chance: Random, number: int) -> list[Paper]:
    """Records of which some have no title."""
    return [
        Paper(
            id=key,
            title=None if key % 10 == 9 else text(chance),
            body=text(chance),
            tags=[text(chance, 1) for _ in range(chance.randrange(3))],
            org=chance.choice(ORGS),
            size=chance.randrange(4),
        )
        for key in range(number)
    ]


class Drawn(NamedTuple):
    """A condition, a test of a record, and whether an index answers the condition."""

    condition: Any
    test: Callable[[Paper], bool]
    indexed: bool


def part_of(chance: Random, records: list[Paper], field: str) -> str:
    """A part of a text of some record, or another text, in any case."""
    found = text(chance, 3)
    if chance.random() < 0.8:
        record = chance.choice(records)
        texts = record.tags if field == "tags" else [getattr(record, field)]
        whole = chance.choice([one for one in texts if one] or [found])
        start = chance.randrange(len(whole))
        found = whole if chance.random() < 0.3 else whole[start : start + chance.choice([2, 3, 4, 5, 99])]
    return chance.choice(FORMS)(found)


def lookup(chance: Random, records: list[Paper]) -> Drawn:
    """A lookup of one text, or of one of several."""
    field, (name, holds) = chance.choice(["title", "title", "body", "tags"]), chance.choice([*TESTS.items()])
    part = part_of(chance, records, field)
    indexed = len(part.casefold()) >= 3
    if field == "tags":
        return Drawn(
            Q(**{f"tags__any__{name}": part}), lambda paper: any(holds(one, part) for one in paper.tags), indexed
        )
    condition = Q(**{f"{field}__{name}": part})

    def test(paper: Paper) -> bool:
        held = paper.title if field == "title" else paper.body
        return held is not None and holds(held, part)

    if field == "title":
        if chance.random() < 0.3:
            return Drawn(condition & Q(size__gte=2), lambda paper: paper.size >= 2 and test(paper), True)
        return Drawn(condition, test, indexed)
    org, orgs = chance.choice(ORGS), chance.sample(ORGS, 2)
    match chance.randrange(3):
        case 0:
            return Drawn(condition & Q(org__in=orgs), lambda paper: paper.org in orgs and test(paper), indexed)
        case 1:
            return Drawn(condition, test, False)
    return Drawn(condition & Q(org=org), lambda paper: paper.org == org and test(paper), indexed)


def drawn(chance: Random, records: list[Paper], depth: int = 2) -> Drawn:
    """A condition, or two of them joined or negated."""
    one = lookup(chance, records)
    if depth == 0 or chance.random() < 0.5:
        return one
    other = drawn(chance, records, depth - 1)
    match chance.randrange(4):
        case 0:
            return Drawn(
                one.condition | other.condition,
                lambda paper: one.test(paper) or other.test(paper),
                one.indexed and other.indexed,
            )
        case 1:
            return Drawn(
                one.condition & ~other.condition, lambda paper: one.test(paper) and not other.test(paper), one.indexed
            )
    return Drawn(
        one.condition & other.condition,
        lambda paper: one.test(paper) and other.test(paper),
        one.indexed or other.indexed,
    )
