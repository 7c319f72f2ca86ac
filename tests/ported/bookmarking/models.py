"""Models of a service for bookmarks: the fields of linkding that its queries name, with times as numbers."""

from __future__ import annotations

from typing import Any

from django.db.models import (
    CASCADE,
    BooleanField,
    CharField,
    ForeignKey,
    IntegerField,
    ManyToManyField,
    Model,
    OneToOneField,
    UniqueConstraint,
)


class User(Model):
    username = CharField(max_length=50, unique=True)


class Profile(Model):
    user: Any = OneToOneField(User, CASCADE)
    enable_sharing = BooleanField(default=False)
    enable_public_sharing = BooleanField(default=False)


class Tag(Model):
    name = CharField(max_length=50)
    owner: Any = ForeignKey(User, CASCADE)

    class Meta:
        constraints = [UniqueConstraint(fields=["owner", "name"], name="one_tag_of_a_name")]


class Bookmark(Model):
    url = CharField(max_length=200)
    title = CharField(max_length=50, default="")
    notes = CharField(max_length=50, default="")
    favicon_file = CharField(max_length=50, default="")
    unread = BooleanField(default=False)
    is_archived = BooleanField(default=False)
    shared = BooleanField(default=False)
    date_added = IntegerField()
    owner: Any = ForeignKey(User, CASCADE)
    tags: Any = ManyToManyField(Tag)


class Asset(Model):
    bookmark: Any = ForeignKey(Bookmark, CASCADE)
    asset_type = CharField(max_length=10)
    status = CharField(max_length=10)
    date_created = IntegerField()


class Bundle(Model):
    owner: Any = ForeignKey(User, CASCADE)
    order = IntegerField()


class Token(Model):
    key = CharField(max_length=50, unique=True)
    user: Any = ForeignKey(User, CASCADE)


THROUGH = {"BookmarkTags": Bookmark.tags.through}
Bookmark.tags.through.ends = ("bookmark", "tag")
