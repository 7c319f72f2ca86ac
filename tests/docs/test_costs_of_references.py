"""The table of costs on the page about relations is what an engine is asked for, measured here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from kvmodels import CASCADE, SET_NULL, Database, Field, ForeignKey, KvModel, PrimaryKey, ProtectedError
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.source_tree import REPOSITORY

PAGE = REPOSITORY / "docs" / "guides" / "relations.md"


class Author(KvModel, collection="authors"):
    """100 are stored; the first 30 wrote the books."""

    id: PrimaryKey[int]
    name: str


class Book(KvModel, collection="books"):
    """300 are stored, 10 of each author."""

    id: PrimaryKey[int]
    title: str
    author_id: ForeignKey[int, Author]
    editor_id: ForeignKey[int | None, Author] = Field(default=None)


class Album(KvModel, collection="albums"):
    """The first one has 100 tracks."""

    id: PrimaryKey[int]


class Track(KvModel, collection="tracks"):
    """The first 100 have a review each."""

    id: PrimaryKey[int]
    album_id: Annotated[ForeignKey[int, Album], CASCADE]


class Review(KvModel, collection="reviews"):
    """One for each track."""

    id: PrimaryKey[int]
    track_id: Annotated[ForeignKey[int | None, Track], SET_NULL] = Field(default=None)


def filled(db: Database) -> Database:
    db[Author].bulk_create([Author(id=number, name=f"{number}") for number in range(1, 101)])
    db[Book].bulk_create([Book(id=number, title=f"{number}", author_id=number % 30 + 1) for number in range(1, 301)])
    db[Album].bulk_create([Album(id=1), Album(id=2)])
    db[Track].bulk_create([Track(id=number, album_id=1) for number in range(1, 101)])
    db[Review].bulk_create([Review(id=number, track_id=number) for number in range(1, 101)])
    return db


def books(numbers: range, author: int) -> list[Book]:
    return [Book(id=number, title="", author_id=author) for number in numbers]


CALLS: dict[str, Callable[[Database], object]] = {
    "books.create(author_id=1)": lambda db: db[Book].create(id=1000, title="", author_id=1),
    "books.create(author_id=author), loaded": lambda db: db[Book].create(id=1000, title="", author_id=LOADED[0]),
    "books.create(author_id=1, editor_id=2)": lambda db: db[Book].create(id=1000, title="", author_id=1, editor_id=2),
    "books.bulk_create(100 objects of one author)": lambda db: db[Book].bulk_create(books(range(1000, 1100), 1)),
    "books.patch(1, title=…)": lambda db: db[Book].patch(1, title=""),
    "books.patch(1, author_id=3)": lambda db: db[Book].patch(1, author_id=3),
    "books.remove(1)": lambda db: db[Book].remove(1),
    "books.filter(author_id=1).to_list()": lambda db: db[Book].filter(author_id=1).to_list(),
    "books.filter(author_id=1).update(author_id=2)": lambda db: db[Book].filter(author_id=1).update(author_id=2),
    "books.related(book, Book.author_id)": lambda db: db[Book].related(books(range(1), 1)[0], Book.author_id),
    "books.with_related(Book.author_id).page(size=20)": lambda db: db[Book].with_related(Book.author_id).page(size=20),
    "books.with_related(Book.author_id).to_list()": lambda db: db[Book].with_related(Book.author_id).to_list(),
    "authors.fetch_referrers(10 authors, Book.author_id, limit=10)": lambda db: db[Author].fetch_referrers(
        [Author(id=number, name="") for number in range(1, 11)], Book.author_id, limit=10
    ),
    "books.filter(Book.author_id.in_(authors.filter(pk__lte=3))).to_list()": lambda db: (
        db[Book].filter(Book.author_id.in_(db[Author].filter(pk__lte=3))).to_list()
    ),
    "authors.patch(1, name=…)": lambda db: db[Author].patch(1, name=""),
    "authors.remove(99), to which nothing refers": lambda db: db[Author].remove(99),
    "authors.remove(1), ProtectedError": lambda db: refused(lambda: db[Author].remove(1)),
    "albums.remove(2), to which nothing refers": lambda db: db[Album].remove(2),
    "albums.remove(1), with 100 tracks and their reviews": lambda db: db[Album].remove(1),
    'albums.remove_cascade(1, resume_id="a"), the same': lambda db: db[Album].remove_cascade(1, resume_id="a"),
}


LOADED: list[Author] = []


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except ProtectedError:
        return
    raise AssertionError("it was not refused")


def cost_of(call: Callable[[Database], object]) -> Cost:
    engine = MeasuredEngine(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore([Author, Book, Album, Track, Review])) as db:
        filled(db)
        LOADED[:] = [db[Author].get(1)]
        engine.take()
        call(db)
        return engine.take()


def cost_rows() -> list[str]:
    """The table as the page has to show it."""
    return [f"| `{name}` | " + " | ".join(map(str, cost_of(call))) + " |" for name, call in CALLS.items()]


def test_the_page_shows_what_each_call_costs():
    starts = "| `books.", "| `authors.", "| `albums."
    shown = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(starts)]
    assert shown == cost_rows(), "\n".join(cost_rows())
