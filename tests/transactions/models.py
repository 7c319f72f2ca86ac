"""Models for the tests of transactions: every kind of index, aggregates, a lifetime, a second collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from kvmodels import (
    AUTO,
    CASCADE,
    AggregateIndex,
    Database,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    KvModelsError,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
)


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    email: Unique[str | None] = Field(default=None)
    city: Indexed[str] = Field(default="x")
    tags: MultiIndexed[list[str]] = Field(default_factory=list[str])
    team: str = "red"
    score: int = 0
    active: bool = True

    class Meta:
        indexes = (
            Index("team", "-score", name="ranking"),
            Index("score", name="active_score", where=Q(active=True)),
            Index("team", name="team_copy", store="record"),
            Index("city", name="city_score", include=("score",)),
            UniqueConstraint("team", "score", name="team_score", include=("email",), where=Q(active=False)),
            AggregateIndex("team", sums=("score",), name="per_team"),
        )


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    balance: int = 0


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    account: Annotated[ForeignKey[int, Account], CASCADE]


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int] = Field(default=AUTO)


class Session(KvModel, collection="sessions"):
    id: PrimaryKey[str]
    user: Unique[str]

    class Meta:
        ttl = 60


class Clock:
    """Milliseconds since the epoch that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


MODELS: tuple[type[KvModel], ...] = (Member, Account, Session)


def opened(url: str = "memory://", **options: Any) -> Database:
    """A database of all of these models."""
    return Database(url, models=MODELS, **options)


def raised(function: Callable[[], object]) -> Any:
    """The error of a function."""
    with pytest.raises(KvModelsError) as caught:
        function()
    return caught.value
