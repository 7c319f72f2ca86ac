"""A model with an index of every kind, and how to fill it."""

from __future__ import annotations

from typing import Any

from kvmodels import (
    AggregateIndex,
    Database,
    Field,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    UniqueConstraint,
)


def tenth(n: int) -> int:
    """The column of a computed index."""
    return n // 10


class Thing(KvModel, collection="things"):
    id: PrimaryKey[int]
    n: Indexed[int]
    kind: Indexed[str] = Field(default="a")
    tags: MultiIndexed[list[int]] = Field(default_factory=list)
    label: str | None = None

    class Meta:
        indexes = (
            UniqueConstraint("n", "id", name="serial"),
            Index("kind", "-n", name="newest"),
            Index("n", where=Q(kind="a"), name="of_a"),
            Index("n", include=("kind",), name="covering"),
            Index("n", store="record", name="copied"),
            Index("n", key=tenth, version=1, name="tens"),
            AggregateIndex("kind", sums=("n",), name="totals"),
        )


def things(count: int, **changes: Any) -> list[Thing]:
    """Things with an id, an ``n`` and tags that follow their numbers."""
    return [
        Thing(id=number, n=number % 7, kind="ab"[number % 2], tags=[number % 3, number % 5], **changes)
        for number in range(count)
    ]


def filled(db: Database, count: int, **changes: Any) -> Database:
    """The database with so many things in it."""
    db[Thing].bulk_create(things(count, **changes))
    return db


def memory(count: int = 0, **options: Any) -> Database:
    """A store in memory with so many things."""
    return filled(Database("memory://", models=[Thing], **options), count)
