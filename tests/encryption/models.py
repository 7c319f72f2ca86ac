"""The models of the tests of encrypted fields, their keys, and a search for planted secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel

from kvmodels import (
    Database,
    Encrypted,
    Field,
    History,
    Index,
    Indexed,
    KeyRing,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Unique,
)

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
RING = KeyRing({1: ONE, 2: TWO})
ONLY_ONE = KeyRing({1: ONE})


class Note(BaseModel):
    text: str


class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique(key=str.casefold)]
    city: Annotated[Encrypted[str | None], Indexed()] = Field(default=None)
    tags: Annotated[Encrypted[list[str]], MultiIndexed()] = Field(default_factory=list)
    notes: Encrypted[list[Note]] = Field(default_factory=list)
    ward: Indexed[str] = Field(default="a")
    bed: int = 0

    class Meta:
        history = History()
        indexes = (Index("ward", "city", "bed"),)


class Plain(KvModel, collection="patients"):
    """The release before the fields were encrypted."""

    id: PrimaryKey[int]
    name: str
    insurance: Unique[str]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()


class Sealed(KvModel, collection="patients"):
    """The release that encrypts them."""

    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique()]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 2


class PlainAgain(KvModel, collection="patients"):
    """The release that does not encrypt them any more."""

    id: PrimaryKey[int]
    name: str
    insurance: Unique[str]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 3


class SealedAgain(KvModel, collection="patients"):
    """The release that encrypts them again."""

    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique()]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 4


def patient(number: int, **fields: Any) -> Patient:
    return Patient(id=number, **{"name": f"Planted {number}", "insurance": f"I-{number}", **fields})


def holders(db: Database, text: str) -> list[tuple[Any, ...]]:
    """The keys of the rows whose key or value has a text, as ``str`` or inside of bytes."""
    found = []
    for entry in db.kv.unsafe().list(()):
        if text in repr(entry.key) or text in repr(entry.value):
            found.append(entry.key)
    return found


def names(revisions: Iterable[Any]) -> list[str]:
    """The names in the records of revisions."""
    return [revision.record.name for revision in revisions]
