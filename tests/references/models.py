"""Authors, books and categories with foreign keys between them."""

from __future__ import annotations

from typing import Annotated

from kvmodels import Field, ForeignKey, Indexed, KvModel, PrimaryKey, Unique


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str = ""


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    editor_id: ForeignKey[int | None, Author] = Field(default=None)
    title: Indexed[str] = Field(default="")


class Cover(KvModel, collection="covers"):
    """One to one: a book has at most one cover."""

    id: PrimaryKey[int]
    book_id: Annotated[ForeignKey[int, Book], Unique()]


class Category(KvModel, collection="categories"):
    """A tree."""

    id: PrimaryKey[str]
    parent: ForeignKey[str | None, "Category"] = Field(default=None)  # noqa: UP037


class Tagging(KvModel, collection="taggings"):
    """A join table."""

    book_id: Annotated[ForeignKey[int, Book], PrimaryKey()]
    category_id: Annotated[ForeignKey[str, "Category"], PrimaryKey()]  # noqa: UP037


MODELS = (Author, Book, Cover, Category, Tagging)
