"""Models of the section about several tables on the page for users of Django."""

from __future__ import annotations

from typing import Any

from django.db.models import CASCADE, SET_NULL, CharField, DateField, ForeignKey, IntegerField, Model


class Author(Model):
    name = CharField(max_length=50)
    born = IntegerField(null=True)


class Book(Model):
    title = CharField(max_length=50)
    author: Any = ForeignKey(Author, CASCADE)
    editor: Any = ForeignKey(Author, SET_NULL, null=True, related_name="edited")
    status = CharField(max_length=10)
    printed = DateField()
    price = IntegerField()
    cost = IntegerField()


class Chapter(Model):
    title = CharField(max_length=50)
    book: Any = ForeignKey(Book, CASCADE)


THROUGH: dict[str, Any] = {}
