"""A shop: models with references, nested models, enums, Decimals, times with zones, and a composite primary key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic import Field as PydanticField
from starlette.applications import Starlette
from starlette.testclient import TestClient

from kvmodels import AUTO, Database, Field, ForeignKey, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Unique
from kvmodels.ext.admin import Admin


class Status(Enum):
    OPEN = "open"
    CLOSED = "closed"


class Publisher(BaseModel):
    city: str
    zip: str = PydanticField(default="", max_length=8)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int] = Field(default=AUTO)
    email: Unique[str]
    name: Indexed[str]
    home: Publisher | None = None


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    isbn: Unique[str]
    title: str = PydanticField(min_length=1)
    author_id: ForeignKey[int, Author]
    status: Indexed[Status] = Field(default=Status.OPEN)
    genre: str = "essay"
    price: Decimal = Decimal("9.90")
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    note: str | None = None
    bought: datetime | None = None
    publisher: Publisher = Publisher(city="Kyiv")

    class Meta:
        indexes = (Index("genre", "-price"),)


class Seat(KvModel, collection="seats"):
    hall: PrimaryKey[str]
    number: PrimaryKey[int]
    taken: Indexed[bool] = Field(default=False)


MODELS: tuple[type[KvModel], ...] = (Author, Book, Seat)
GENRES = ("essay", "poem", "novel")


def book(number: int) -> Book:
    """A book; its price and genre repeat, its title and ISBN do not."""
    return Book(
        id=number,
        isbn=f"978-{number:07}",
        title=f"Book {number}",
        author_id=number % 20 + 1,
        status=list(Status)[number % 2],
        genre=GENRES[number % 3],
        price=Decimal(number % 50) + Decimal("0.5"),
        tags=["x", "y"][: number % 3],
        bought=datetime(2026, 1, 1, tzinfo=UTC),
    )


def fill(db: Database, books: int) -> None:
    """Store 20 authors, some seats, and books numbered from 1."""
    db[Author].bulk_create([Author(id=n, email=f"a{n}@example.org", name=f"Author {n}") for n in range(1, 21)])
    db[Seat].bulk_create([Seat(hall=hall, number=n, taken=n % 3 == 0) for hall in ("blue", "red") for n in range(5)])
    for first in range(1, books + 1, 10_000):
        db[Book].bulk_create([book(number) for number in range(first, min(first + 10_000, books + 1))])


_SHARED: dict[tuple[type[KvModel], ...], tuple[Admin, Starlette]] = {}
"""The pages by models: their templates are compiled once, and each test gives them its own database."""


@contextmanager
def browsed(db: Database, **options: Any) -> Iterator[TestClient]:
    """A client of the admin page of a database."""
    if options or db.models not in _SHARED:
        app = Starlette()
        admin = Admin(db, secret_key="for tests", **options)
        admin.mount_to(app)
        if not options:
            _SHARED[db.models] = admin, app
    else:
        admin, app = _SHARED[db.models]
        admin.backend.store = db
    with TestClient(app) as client:
        yield client
