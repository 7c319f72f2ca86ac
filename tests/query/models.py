"""The models that the query tests share."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodels import Field, Index, Indexed, KvModel, PrimaryKey, Unique, UniqueConstraint


class Person(KvModel, collection="people"):
    """A usual model: a unique value, plain and compound indexes, a field without an index."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    age: Indexed[int | None] = Field(default=None)
    score: float = 0.0
    tags: list[str] = []

    class Meta:
        indexes = (Index("color", "-age"), Index("color", "age", name="color_age_up"))


class Mixed(KvModel, collection="mixed"):
    """Every kind of index over few small values, so that many records share them; the key is composite."""

    left: PrimaryKey[int]
    right: PrimaryKey[str]
    a: int | None = None
    b: str | None = None
    c: int = 0
    d: int | None = None
    e: int | None = None
    free: int | None = None

    class Meta:
        indexes = (
            Index("a", "-b"),
            Index("-c"),
            Index("b", nulls="skip"),
            Index("b", "c", name="copies", store="record"),
            UniqueConstraint("d", "c", name="distinct"),
            UniqueConstraint("d", "right", name="skipping", nulls="skip"),
            UniqueConstraint("e", "left", name="equal", nulls="equal"),
            UniqueConstraint("e", "c", "left", name="unique_copies", store="record"),
        )


def people(count: int) -> list[dict[str, Any]]:
    """Fields of the first ``count`` people; every seventh has no age."""
    return [
        {
            "id": number,
            "email": f"p{number:06}@x.org",
            "color": ("red", "green", "blue")[number % 3],
            "age": None if number % 7 == 0 else number % 50,
            "score": number / 4,
            "tags": [str(number % 2)],
        }
        for number in range(count)
    ]


def falling(type_: Any) -> Any:
    """An optional column that is indexed in descending order."""
    return Annotated[type_, Indexed(descending=True)]
