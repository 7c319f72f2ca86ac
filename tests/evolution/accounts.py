"""Two releases of a program that differ by an upgrade function: it folds, splits, converts, fills and counts."""

from __future__ import annotations

from typing import Any, ClassVar

from kvmodels import AggregateIndex, Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Unique, upgrade


def initial(email: str) -> str:
    return email[0]


INDEXES = (
    Index("email", key=initial, version=1, name="initial"),
    Index("city", store="record", name="copies"),
    Index("city", include=("age",), name="ages"),
    Index("city", include=("visits",), name="visited"),
    AggregateIndex("city", name="per_city"),
    AggregateIndex("city", sums=("visits",), name="visits_per_city"),
)


class Account(KvModel, collection="accounts"):
    """Release 1."""

    id: PrimaryKey[int]
    email: Unique[str]
    size: Indexed[int]
    city: Indexed[str] = Field(default="rome")
    age: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    name: str = ""
    visits: int = 0

    class Meta:
        indexes: ClassVar = INDEXES


class NewAccount(KvModel, collection="accounts"):
    """Release 2: ``email`` is folded, ``name`` is split, ``size`` is a text, ``visits`` counts from one."""

    id: PrimaryKey[int]
    email: Unique[str]
    size: Indexed[str]
    city: Indexed[str] = Field(default="rome")
    age: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    first: Indexed[str]
    last: str
    visits: int = 0

    class Meta:
        schema_version: ClassVar = 2
        indexes: ClassVar = INDEXES

    @upgrade(to=2, touches=("email", "size", "name", "first", "last", "visits"))
    @staticmethod
    def modernised(document: dict[str, Any]) -> dict[str, Any]:
        document["email"] = document["email"].casefold()
        document["size"] = str(document["size"])
        document["first"], _, document["last"] = document.pop("name").partition(" ")
        document["visits"] += 1
        return document


class Touched(KvModel, collection="accounts"):
    """Release 2 without another type: every index of release 1 can be kept, and some of them wait for the records."""

    id: PrimaryKey[int]
    email: Unique[str]
    size: Indexed[int]
    city: Indexed[str] = Field(default="rome")
    age: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    name: str = ""
    visits: int = 0

    class Meta:
        schema_version: ClassVar = 2
        indexes: ClassVar = INDEXES

    @upgrade(to=2, touches=("email", "visits"))
    @staticmethod
    def folded(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "email": document["email"].casefold(), "visits": document["visits"] + 1}


def account(n: int, **changes: Any) -> dict[str, Any]:
    """Values of the n-th account of release 1."""
    values = {
        "id": n,
        "email": f"User{n}@X.org",
        "size": n,
        "city": ("rome", "oslo")[n % 2],
        "age": n % 7,
        "tags": ["a", "b"][: n % 3],
        "name": f"Ada{n} Li",
        "visits": n,
    }
    return {**values, **changes}
