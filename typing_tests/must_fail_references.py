"""Foreign keys that type checkers must refuse."""

from __future__ import annotations

from kvmodels import Database, ForeignKey, ForeignKeyRef, KvModel, PrimaryKey


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]


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
Book(id=1)  # mypy: call-arg / pyright: reportCallIssue
Book(id=1, author_id=1).author_id.upper()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
db[Author].with_related(Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
db[Book].with_related(Book.id)  # mypy: call-overload / pyright: reportArgumentType
db[Book].values("id").with_related(Book.author_id)  # mypy: arg-type / pyright: reportArgumentType
query = db[Book].all()
Book.author_id.in_(query)  # mypy: arg-type / pyright: reportArgumentType
