"""A model with indexes of every kind, queries over it that are answered in every way, and walks over their results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvmodels import Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Q, Unique

WORDS = ("ana", "anb", "bo", "ce", "dan")


class Spot(KvModel, collection="spots"):
    """Few values, so that many records share them."""

    id: PrimaryKey[int]
    code: Unique[str | None] = Field(default=None)
    land: Indexed[str]
    pop: Indexed[int] = Field(default=0)
    zone: Indexed[int] = Field(default=0)
    kind: str = "x"
    names: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (
            Index("land", "-pop"),
            Index("zone", "-pop"),
            Index("names", "-pop", name="by_name"),
            Index("land", "zone", name="cover", include=("kind",)),
            Index("kind", "zone", name="copy", store="record"),
            Index("names", "kind", name="names_copy", store="record"),
        )


def spots(count: int, seed: int = 7) -> list[Spot]:
    rng = random.Random(seed)
    return [Spot(**spot(rng, number)) for number in range(count)]


def spot(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "code": None if rng.random() < 0.2 else f"c{number}",
        "land": rng.choice("AABCD"),
        "pop": rng.randrange(12),
        "zone": rng.randrange(4),
        "kind": rng.choice("xyz"),
        "names": rng.sample(WORDS, rng.randrange(4)),
    }


class Asked(NamedTuple):
    """A query, what it must find, and how it must be answered, so that every way is tried."""

    ask: Callable[[Any], Any]
    holds: Callable[[Spot], bool]
    combine: str
    fans_out: bool = False


QUERIES: dict[str, Asked] = {
    "a scan": Asked(lambda q: q.filter(land="A"), lambda s: s.land == "A", "scan"),
    "a list of values in a common order": Asked(
        lambda q: q.filter(land__in=["A", "C", "D"]).order_by("-pop"), lambda s: s.land in "ACD", "merge"
    ),
    "a merge of two indexes": Asked(
        lambda q: q.filter(Q(land="A") | Q(zone=2)).order_by("-pop"), lambda s: s.land == "A" or s.zone == 2, "merge"
    ),
    "a merge that is tested": Asked(
        lambda q: q.filter(Q(land="A") | Q(zone=2), kind="x").order_by("-pop"),
        lambda s: (s.land == "A" or s.zone == 2) and s.kind == "x",
        "merge",
    ),
    "a merge of elements": Asked(
        lambda q: q.filter(names__contains_any=["ana", "bo", "no"]).order_by("-pop"),
        lambda s: bool({"ana", "bo"} & set(s.names)),
        "merge",
    ),
    "one scan after the other": Asked(
        lambda q: q.filter(Q(pop__gt=8) | Q(zone=2) | Q(land="C", pop=3)),
        lambda s: s.pop > 8 or s.zone == 2 or (s.land == "C" and s.pop == 3),
        "concatenate",
    ),
    "one scan after the other, with several entries": Asked(
        lambda q: q.filter(Q(pop__gt=8) | Q(names__any__startswith="a")),
        lambda s: s.pop > 8 or any(name.startswith("a") for name in s.names),
        "concatenate",
        fans_out=True,
    ),
    "an intersection": Asked(
        lambda q: q.filter(land="A", names__contains="ana"), lambda s: s.land == "A" and "ana" in s.names, "intersect"
    ),
    "an intersection of elements": Asked(
        lambda q: q.filter(names__contains_all=["ana", "bo"]), lambda s: {"ana", "bo"} <= set(s.names), "intersect"
    ),
    "a range of elements": Asked(
        lambda q: q.filter(names__any__startswith="a"),
        lambda s: any(name.startswith("a") for name in s.names),
        "scan",
        fans_out=True,
    ),
    "several elements": Asked(
        lambda q: q.filter(names__contains_any=["ana", "bo", "dan"]),
        lambda s: bool({"ana", "bo", "dan"} & set(s.names)),
        "scan",
        fans_out=True,
    ),
    "copies of several elements": Asked(
        lambda q: q.filter(names__any__gte="b").using_index("names_copy"),
        lambda s: any(name >= "b" for name in s.names),
        "scan",
        fans_out=True,
    ),
    "a test of a scan": Asked(
        lambda q: q.filter(land="B", kind="x"), lambda s: s.land == "B" and s.kind == "x", "scan"
    ),
    "copies": Asked(lambda q: q.filter(kind="y", zone__gte=1), lambda s: s.kind == "y" and s.zone >= 1, "scan"),
    "a unique index with None": Asked(lambda q: q.order_by("code"), lambda s: True, "scan"),
}


def forward(asked: Any, size: int) -> Iterator[list[Any]]:
    """The pages from the beginning, each read when it is asked for."""
    cursor = None
    while True:
        page = asked.page(size=size, after=cursor)
        yield page.items
        cursor = page.next_cursor
        assert page.has_more is (cursor is not None)
        if cursor is None:
            return
        assert len(page) == size


def last_page(asked: Any, size: int) -> Any:
    cursor, page = None, None
    while page is None or page.has_more:
        page = asked.page(size=size, after=cursor)
        cursor = page.next_cursor
    return page


def backward(asked: Any, size: int) -> Iterator[list[Any]]:
    """The pages from the last one to the first, each in the order of the query, the last one read at once."""
    page = last_page(asked, size)
    while True:
        yield page.items
        assert page.has_previous is (page.previous_cursor is not None)
        if page.previous_cursor is None:
            return
        page = asked.page(size=size, before=page.previous_cursor)
        assert page.has_more
