"""Foreign keys as type checkers see them, which must be accepted."""

from __future__ import annotations

from typing import Annotated, Any, assert_type

from kvmodels import (
    CASCADE,
    SET_NULL,
    AsyncDatabase,
    AsyncQuerySet,
    BulkResult,
    Count,
    Database,
    Exists,
    Field,
    FieldRef,
    ForeignKey,
    ForeignKeyRef,
    KvModel,
    Page,
    PrimaryKey,
    QuerySet,
    Unique,
    col,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str = ""


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    editor_id: ForeignKey[int | None, Author] = Field(default=None)
    sequel_id: Annotated[ForeignKey[int | None, "Book"], Unique()] = Field(default=None)


class Chapter(KvModel, collection="chapters"):
    id: PrimaryKey[int]
    book_id: Annotated[ForeignKey[int, Book], CASCADE]
    draft_id: Annotated[ForeignKey[int | None, Book], SET_NULL] = Field(default=None)
    next_id: Annotated[ForeignKey[int | None, "Chapter"], SET_NULL, Unique()] = Field(default=None)


assert_type(Chapter.book_id, ForeignKeyRef[Chapter, int, Book])
assert_type(Chapter.draft_id, ForeignKeyRef[Chapter, int | None, Book | None])
assert_type(Chapter.next_id, ForeignKeyRef[Chapter, int | None, Chapter | None])
chapter = Chapter(id=1, book_id=1)
assert_type(chapter.book_id, int)
assert_type(chapter.draft_id, int | None)
chapter.draft_id = None

assert_type(Book.author_id, ForeignKeyRef[Book, int, Author])
assert_type(Book.editor_id, ForeignKeyRef[Book, int | None, Author | None])
assert_type(Book.sequel_id, ForeignKeyRef[Book, int | None, Book | None])

book = Book(id=1, author_id=1)
assert_type(book.author_id, int)
assert_type(book.editor_id, int | None)
book.author_id = 2

db = Database("memory://", models=[Author, Book, Chapter])
author = db[Author].create(id=2)
db[Author].create(id=1)
db[Book].create(id=1, author_id=1)
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
assert_type(Book.author_id.to(col(Author.name)), FieldRef[str])
assert_type(Book.editor_id.to(col(Author.name)), FieldRef[str | None])
assert_type(Chapter.book_id.to(Book.author_id), ForeignKeyRef[Chapter, int, Author])
assert_type(Chapter.book_id.to(Book.editor_id), ForeignKeyRef[Chapter, int | None, Author | None])
assert_type(Chapter.draft_id.to(Book.author_id), ForeignKeyRef[Chapter, int | None, Author | None])
assert_type(Chapter.book_id.to(Book.author_id).to(Author.id), FieldRef[int])
assert_type(db[Chapter].values_list(Chapter.draft_id.to(Book.author_id), flat=True).to_list(), list[int | None])
chapters = db[Chapter].with_related(Chapter.book_id, Chapter.draft_id.to(Book.author_id))
assert_type(chapters.to_list(), list[tuple[Chapter, Book, Author | None]])
assert_type(db[Chapter].related(chapter, Chapter.book_id.to(Book.author_id)), Author)
db[Author].filter(Author.id.in_(books.values_list(Book.editor_id, flat=True)))
assert_type(db[Chapter].filter(Chapter.draft_id.to(Book.author_id).to(col(Author.name)) == "Ada"), QuerySet[Chapter])
db[Chapter].filter(Chapter.draft_id.to(Book.author_id).to(col(Author.name)).startswith("A"))
db[Chapter].order_by(Chapter.draft_id.to(Book.author_id).to(col(Author.name)).desc(), "book__author__name")
books.filter(Book.editor_id.in_(db[Author]), Book.author_id.not_in([1, 2]))
for one, its_author in books.with_related(Book.author_id):
    assert_type(one, Book)
    assert_type(its_author, Author)

assert_type(db[Chapter].with_related(Chapter.book_id, Chapter.draft_id), QuerySet[tuple[Chapter, Book, Book | None]])
assert_type(db[Book].remove_cascade(1, resume_id="book-1"), BulkResult)


async def in_async_code(database: AsyncDatabase) -> None:
    assert_type(await database[Book].remove_cascade(book, resume_id="book-1", batch_size=10), BulkResult)
    query = database[Book].with_related(Book.author_id)
    assert_type(query, AsyncQuerySet[tuple[Book, Author]])
    database[Book].filter(Book.author_id.in_(database[Author].filter(id=1)))
    assert_type(await query.to_list(), list[tuple[Book, Author]])
    async for row in database[Book].with_related(Book.author_id, Book.editor_id):
        assert_type(row, tuple[Book, Author, Author | None])


assert_type(db[Author].fetch_referrers([author], Book.author_id, limit=10), dict[Any, list[Book]])
assert_type(db[Author].fetch_referrers([author], Book.editor_id, limit=10), dict[Any, list[Book]])
newest = db[Author].fetch_referrers([author], Book.author_id, filter=Book.id > 1, order_by="-id", limit=1)
assert_type(newest, dict[Any, list[Book]])
counted = db[Author].with_counts(books=Count(Book.author_id), any=Exists(Book.author_id))
assert_type(counted, QuerySet[tuple[Author, dict[str, Any]]])
both = db[Book].with_related(Book.author_id).with_counts(chapters=Count(Chapter.book_id, filter=Chapter.id > 1))
assert_type(both, QuerySet[tuple[tuple[Book, Author], dict[str, Any]]])
db[Author].fetch_referrers([author], Book.author_id, order_by=[Book.author_id, "id"], limit=1)
