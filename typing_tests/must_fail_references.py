"""Foreign keys that type checkers must refuse."""

from __future__ import annotations

from typing import Annotated

from kvmodels import CASCADE, SET_NULL, Database, Exists, Field, ForeignKey, ForeignKeyRef, KvModel, PrimaryKey, col


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    title: str = ""
    author_id: ForeignKey[int, Author]


class Chapter(KvModel, collection="chapters"):
    id: PrimaryKey[int]
    book_id: Annotated[ForeignKey[int, Book], CASCADE]
    draft_id: Annotated[ForeignKey[int | None, Book], SET_NULL] = Field(default=None)


def of_books(key: ForeignKeyRef[Book, int, Author]) -> None:
    """Take the foreign key of a book."""


def of_authors(key: ForeignKeyRef[Author, int, Author]) -> None:
    """Take the foreign key of an author."""


of_books(Book.author_id)
of_authors(Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
of_books(Book.id)  # mypy: arg-type / pyright: reportArgumentType
Book(id=1, author_id="a")  # mypy: arg-type / pyright: reportArgumentType
db = Database("memory://", models=[Author, Book])
db[Author].related(Author(id=1), Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
db[Book].fetch_referrers([Book(id=1, author_id=1)], Book.author_id, limit=1)  # mypy: arg-type / pyright: reportArgumentType
db[Author].fetch_referrers([Author(id=1)], Book.author_id, order_by=1, limit=1)  # mypy: arg-type / pyright: reportArgumentType
db[Author].with_counts(books=3)  # mypy: arg-type / pyright: reportArgumentType
db[Author].with_counts(books=Exists("author_id"))  # mypy: arg-type / pyright: reportArgumentType
Book(id=1)  # mypy: call-arg / pyright: reportCallIssue
Book(id=1, author_id=1).author_id.upper()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
db[Author].with_related(Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
db[Book].with_related(Book.id)  # mypy: call-overload / pyright: reportArgumentType
Book.author_id.to("id")  # mypy: call-overload / pyright: reportCallIssue, reportArgumentType
Chapter.book_id.to(Book.author_id).in_(db[Book].all())  # mypy: arg-type / pyright: reportArgumentType
db[Book].values("id").with_related(Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
Author.id.in_(db[Book].values_list(col(Book.title), flat=True))  # mypy: arg-type / pyright: reportArgumentType
query = db[Book].all()
Book.author_id.in_(query)  # mypy: arg-type / pyright: reportArgumentType
of_books(Chapter.book_id)  # mypy: arg-type / pyright: reportArgumentType
chapter = Chapter(id=1, book_id=1)
chapter.book_id = None  # mypy: assignment / pyright: reportAttributeAccessIssue
chapter.draft_id.bit_length()  # mypy: union-attr / pyright: reportOptionalMemberAccess
db[Book].remove_cascade(1)  # mypy: call-arg / pyright: reportCallIssue
