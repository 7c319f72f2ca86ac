"""Foreign keys as type checkers see them, which must be accepted."""

from __future__ import annotations

from typing import Annotated, Any, assert_type

from kvmodels import (
    AsyncDatabase,
    AsyncQuerySet,
    Database,
    Field,
    ForeignKey,
    ForeignKeyRef,
    KvModel,
    Page,
    PrimaryKey,
    QuerySet,
    Unique,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str = ""


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    editor_id: ForeignKey[int | None, Author] = Field(default=None)
    sequel_id: Annotated[ForeignKey[int | None, "Book"], Unique()] = Field(default=None)


assert_type(Book.author_id, ForeignKeyRef[Book, int, Author])
assert_type(Book.editor_id, ForeignKeyRef[Book, int | None, Author | None])
assert_type(Book.sequel_id, ForeignKeyRef[Book, int | None, Book | None])

book = Book(id=1, author_id=1)
assert_type(book.author_id, int)
assert_type(book.editor_id, int | None)
book.author_id = 2

db = Database("memory://", models=[Author, Book])
author = db[Author].create(id=2)
assert_type(db[Book].filter(Book.author_id == 1), QuerySet[Book])
db[Book].filter(Book.editor_id == None)  # noqa: E711
db[Book].order_by(Book.author_id.desc())
assert_type(db[Book].related(book, Book.author_id), Author)
assert_type(db[Book].related(book, Book.editor_id), Author | None)
books = db[Book]
assert_type(books.with_related(Book.author_id), QuerySet[tuple[Book, Author]])
assert_type(books.with_related(Book.editor_id), QuerySet[tuple[Book, Author | None]])
assert_type(books.with_related(Book.author_id, Book.editor_id), QuerySet[tuple[Book, Author, Author | None]])
assert_type(books.filter(author_id=1).with_related(Book.sequel_id)[:3].to_list(), list[tuple[Book, Book | None]])
assert_type(books.with_related(Book.author_id).page(size=3), Page[tuple[Book, Author]])
assert_type(books.with_related(Book.author_id).first(), tuple[Book, Author] | None)
assert_type(books.filter(Book.author_id.in_(db[Author].filter(id=1))), QuerySet[Book])
books.filter(Book.editor_id.in_(db[Author]), Book.author_id.not_in([1, 2]))
for one, its_author in books.with_related(Book.author_id):
    assert_type(one, Book)
    assert_type(its_author, Author)


async def in_async_code(database: AsyncDatabase) -> None:
    query = database[Book].with_related(Book.author_id)
    assert_type(query, AsyncQuerySet[tuple[Book, Author]])
    database[Book].filter(Book.author_id.in_(database[Author].filter(id=1)))
    assert_type(await query.to_list(), list[tuple[Book, Author]])
    async for row in database[Book].with_related(Book.author_id, Book.editor_id):
        assert_type(row, tuple[Book, Author, Author | None])


assert_type(db[Author].fetch_referrers([author], Book.author_id, limit=10), dict[Any, list[Book]])
assert_type(db[Author].fetch_referrers([author], Book.editor_id, limit=10), dict[Any, list[Book]])
