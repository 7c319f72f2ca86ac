"""A model with an index of every kind, and random filters over it with their meaning in Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from kvmodels import Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Q, UniqueConstraint


class Place(BaseModel):
    room: str
    shelf: str | None = None


class Book(KvModel, collection="books"):
    """Few small values, so that every filter has matches."""

    id: PrimaryKey[int]
    year: Indexed[int]
    rating: int | None = None
    genre: Indexed[str]
    pages: int = 0
    weight: float = 0.0
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    place: Place
    title: Annotated[str, Indexed(key=str.casefold)]

    class Meta:
        indexes = (
            Index("year", "-rating"),
            Index("-rating"),
            Index("genre", "pages"),
            Index("rating", nulls="skip", name="rated"),
            Index("place.room"),
            Index("tags", "-pages", name="tag_pages"),
            Index("pages", where=Q(rating__gt=2), include=("weight", "year"), name="good"),
            UniqueConstraint("genre", "id", name="shelfmark"),
            Index("pages", "year", store="record", name="copies"),
        )


TAGS = ("a", "b", "c", "d")
_VALUES: dict[str, tuple[Any, ...]] = {
    "year": (0, 1, 2, 3),
    "rating": (0, 1, 2, 3, 4),
    "pages": (0, 1, 2, 3),
    "genre": ("x", "y", "z"),
    "place__room": ("p", "q", "r"),
    "weight": (0.0, 0.5, 1.0),
    "id": tuple(range(40)),
}
ORDERS = (
    (),
    (),
    ("id",),
    ("-id",),
    ("rating",),
    ("-rating",),
    ("pages", "year"),
    ("year", "-rating"),
    ("genre",),
    ("-pages",),
)

Holds = Callable[[Book], bool]


class Ask(NamedTuple):
    """A filter and what it means."""

    filter: Q | Any
    holds: Holds


def books(random: Random, count: int) -> list[dict[str, Any]]:
    """Fields of some books."""
    return [
        {
            "id": number,
            "year": random.randrange(4),
            "rating": random.choice([None, 0, 1, 2, 3, 4]),
            "genre": random.choice("xyz"),
            "pages": random.randrange(4),
            "weight": random.randrange(5) / 2,
            "tags": random.sample(TAGS, random.randrange(4)),
            "place": {"room": random.choice("pqr"), "shelf": random.choice([None, "1"])},
            "title": random.choice(["Ab", "aB", "cd"]),
        }
        for number in range(count)
    ]


def filters(random: Random, depth: int) -> Ask:
    """A random filter: conditions joined by ``&``, ``|`` and ``~``."""
    kind = random.random()
    if depth == 0 or kind < 0.25:
        return _of_tags(random) if random.random() < 0.3 else _of_value(random)
    if kind < 0.35:
        negated = filters(random, depth - 1)
        return Ask(~negated.filter, lambda book: not negated.holds(book))
    parts = [filters(random, depth - 1) for _ in range(random.randrange(2, 4))]
    joined = parts[0].filter
    both = kind < 0.65
    for part in parts[1:]:
        joined = joined & part.filter if both else joined | part.filter
    together = all if both else any
    return Ask(joined, lambda book: together(part.holds(book) for part in parts))


def _of_tags(random: Random) -> Ask:
    lookup = random.choice(["contains", "contains_any", "contains_all", "any__gt", "any__ne"])
    wanted: Any = random.sample(TAGS, 2) if lookup in ("contains_any", "contains_all") else random.choice(TAGS)
    meaning: dict[str, Holds] = {
        "contains": lambda book: wanted in book.tags,
        "contains_any": lambda book: any(tag in wanted for tag in book.tags),
        "contains_all": lambda book: all(tag in book.tags for tag in wanted),
        "any__gt": lambda book: any(tag > wanted for tag in book.tags),
        "any__ne": lambda book: any(tag != wanted for tag in book.tags),
    }
    return Ask(Q(**{f"tags__{lookup}": wanted}), meaning[lookup])


def _of_value(random: Random) -> Ask:
    field = random.choice(list(_VALUES))
    lookup = random.choice(["exact", "exact", "exact", "in", "in", "ne", "not_in", "gt", "gte", "lt", "lte"])
    values = _VALUES[field]
    wanted: Any = random.sample(values, random.randrange(1, 3)) if lookup in ("in", "not_in") else random.choice(values)
    if field == "rating" and random.random() < 0.2:
        lookup, wanted = "isnull", random.random() < 0.5
    return Ask(Q(**{f"{field}__{lookup}": wanted}), lambda book: _compared(value_of(book, field), lookup, wanted))


def value_of(book: Book, field: str) -> Any:
    """The value of a field, also of the nested one."""
    return book.place.room if field in ("place__room", "place.room") else getattr(book, field)


def _compared(value: Any, lookup: str, wanted: Any) -> bool:
    if lookup == "isnull":
        return (value is None) is wanted
    if lookup in ("exact", "ne"):
        return (value == wanted) is (lookup == "exact")
    if lookup in ("in", "not_in"):
        return (value in wanted) is (lookup == "in")
    if value is None:
        return False
    return bool({"gt": value > wanted, "gte": value >= wanted, "lt": value < wanted, "lte": value <= wanted}[lookup])
