"""Posts with tags, persons with friends, and books with contributors by a link model that has a field."""

from __future__ import annotations

from typing import Annotated

from kvmodels import CASCADE, Field, ForeignKey, Indexed, KvModel, ManyToMany, PrimaryKey


class Tag(KvModel, collection="tags"):
    id: PrimaryKey[int]
    name: Indexed[str]
    weight: int = Field(default=0)
    parent_id: ForeignKey[int | None, "Tag"] = Field(default=None)  # noqa: UP037


class Post(KvModel, collection="posts"):
    id: PrimaryKey[int]
    title: Indexed[str] = Field(default="")
    tags: ManyToMany[Tag] = ManyToMany()
    hidden_tags: ManyToMany[Tag] = ManyToMany(related_name="hidden_in")


class Comment(KvModel, collection="comments"):
    id: PrimaryKey[int]
    post: ForeignKey[int, Post]


class Person(KvModel, collection="people"):
    name: PrimaryKey[str]
    friends: ManyToMany[Person] = ManyToMany(related_name="friend_of")


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    authors: ManyToMany[Person] = ManyToMany(through="Authorship", related_name="books")


class Authorship(KvModel, collection="authorships"):
    person_id: Annotated[ForeignKey[str, Person], PrimaryKey(), CASCADE]
    book_id: Annotated[ForeignKey[int, Book], PrimaryKey(), CASCADE]
    role: str = Field(default="author")


MODELS = (Tag, Post, Comment, Person, Book, Authorship)
