"""Models of the tests of tenants: one side is the store's, the other that of its tenants."""

from __future__ import annotations

from typing import ClassVar

from kvmodels import (
    AUTO,
    AggregateIndex,
    Field,
    ForeignKey,
    GeoIndex,
    GeoPoint,
    History,
    Indexed,
    KvModel,
    ManyToMany,
    PrimaryKey,
    RankIndex,
    SearchIndex,
    Unique,
)


class Account(KvModel, collection="accounts"):
    """Of the store itself."""

    id: PrimaryKey[int]
    email: Unique[str]


class User(KvModel, collection="users"):
    """Of a tenant; with every family of indexes that a repository asks."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    score: int = 0
    name: str = ""
    home: GeoPoint | None = None

    class Meta:
        indexes: ClassVar = (
            RankIndex("-score", low=0, high=100, name="board"),
            SearchIndex("name", name="by_name"),
            GeoIndex("home"),
            AggregateIndex("color", name="colors"),
        )


class Doc(KvModel, collection="docs"):
    """Refers to a user, and has keys of the store and a history."""

    id: PrimaryKey[int] = Field(default=AUTO)
    owner: ForeignKey[int, User]
    title: str = ""
    readers: ManyToMany[User] = ManyToMany(related_name="reads")

    class Meta:
        history = History()


TENANT_MODELS = (User, Doc)

__all__ = ["TENANT_MODELS", "Account", "Doc", "User"]
