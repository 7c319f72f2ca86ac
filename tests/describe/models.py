"""A small library: models with every kind of index, for the tests of descriptions."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from kvmodels import (
    CASCADE,
    AggregateIndex,
    AutoNow,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    Version,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: Annotated[ForeignKey[int, Author], CASCADE]
    title: Annotated[str, Indexed(key=str.casefold)]
    genre: str
    price: float = 0.0
    pages: int = 0
    published: date | None = None
    tags: MultiIndexed[list[str]] = Field(default=[])
    changed_at: datetime = AutoNow()
    revision: int = Version()

    def before_insert(self) -> None:
        """A hook."""

    class Meta:
        indexes = (
            Index("genre", "-price", include=("pages",)),
            Index("published", where=Q(genre="essay"), name="essays"),
            UniqueConstraint("genre", "title", name="titles"),
            AggregateIndex("genre", sums=("pages",)),
        )


class Shelf(KvModel, collection="shelves"):
    """With a primary key of two columns."""

    room: PrimaryKey[str]
    number: PrimaryKey[int]
    label: Indexed[str] = Field(default="")


MODELS = (Author, Book, Shelf)
