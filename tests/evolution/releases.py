"""The releases of one program that share a store: each declares the collection ``users`` in its own way."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from kvmodels import Database, Field, Index, Indexed, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.contract import Engine


class First(KvModel, collection="users"):
    """Release 1."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")


class WithPlan(KvModel, collection="users"):
    """Release 2: a new field with a default, in a new index, and a copy of the record in another one."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: Annotated[str, Indexed(store="record")] = Field(default="")
    plan: Indexed[str] = Field(default="free")


class Descending(KvModel, collection="users"):
    """Release 1 with another definition of an index."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Annotated[str, Indexed(descending=True)]
    name: str = Field(default="")


class UniqueName(KvModel, collection="users"):
    """Release 1 with a unique index that its records may violate."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: Unique[str] = Field(default="")


class Compound(KvModel, collection="users"):
    """Release 1 with an index over two fields that it has."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")

    class Meta:
        indexes: ClassVar = (Index("color", "-name"),)


class Versioned(KvModel, collection="users"):
    """Release 1 with records of schema version 2."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")

    class Meta:
        schema_version: ClassVar = 2


class TextKey(KvModel, collection="users"):
    """The primary key has another type."""

    id: PrimaryKey[str]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")


class OtherKey(KvModel, collection="users"):
    """The primary key is another field."""

    id: int
    email: PrimaryKey[str]
    color: Indexed[str]
    name: str = Field(default="")


class NumberColor(KvModel, collection="users"):
    """An indexed column has another type."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[int]
    name: str = Field(default="")


class City(KvModel, collection="cities"):
    """A collection of another program in the same store."""

    id: PrimaryKey[int]
    country: Indexed[str]


def database(engine: Engine, *models: type[KvModel]) -> Database:
    """A database over an engine that the test made."""
    core = DatabaseCore(models, retry=RetryPolicy(), readonly=False, must_be_current=False)
    return Database.from_engine(engine, core)


def user(n: int, **changes: Any) -> dict[str, Any]:
    return {"id": n, "email": f"{n}@x.org", "color": ("red", "blue")[n % 2], "name": f"name-{n}", **changes}
