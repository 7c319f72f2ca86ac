"""Releases of one collection with a history, of three schema versions, and what each shows of a stored document.

Each version has a full release, which declares the history, and a plain one, which does not, and has another field.
The upgrade to version 2 fills an indexed field, so ``apply()`` rewrites all records. That to version 3 touches no
index, so records are rewritten one by one, or by ``migrate()``.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Annotated, Any, ClassVar

from kvmodels import (
    CASCADE,
    SET_NULL,
    Field,
    ForeignKey,
    History,
    Indexed,
    KvModel,
    PrimaryKey,
    Unique,
    Upgrade,
)
from tests.history.machine import Team

NEWEST = 3


def sized(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "size": document["rank"] + 100}


def graded(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "grade": document["size"] * 10}


UPGRADES = (Upgrade(2, sized, touches=("size",)), Upgrade(3, graded, touches=("grade",)))


class Fields(KvModel, abstract=True):
    id: PrimaryKey[int]
    title: Unique[str | None] = Field(default=None)
    rank: Indexed[int] = Field(default=0)
    note: str = ""
    team: Annotated[ForeignKey[int | None, Team], CASCADE] = Field(default=None)
    lead: Annotated[ForeignKey[int | None, Team], SET_NULL] = Field(default=None)


class FirstPlain(Fields, collection="cards"):
    tag: str = ""


class SecondPlain(Fields, collection="cards"):
    size: Indexed[int] = Field(default=0)

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = UPGRADES[:1]


class ThirdPlain(Fields, collection="cards"):
    size: int = 0
    grade: int = 0
    mark: str = ""

    class Meta:
        schema_version: ClassVar = 3
        upgrades: ClassVar = UPGRADES


@cache
def full(version: int, keep_ms: int | None) -> Any:
    """Return the release of a schema version that declares the history."""
    kept = History(None if keep_ms is None else timedelta(milliseconds=keep_ms), exclude=("note",))

    class First(Fields, collection="cards"):
        class Meta:
            history = kept

    class Second(Fields, collection="cards"):
        tag: str = ""
        size: Indexed[int] = Field(default=0)

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = UPGRADES[:1]
            history = kept

    class Third(Fields, collection="cards"):
        size: int = 0
        grade: int = 0

        class Meta:
            schema_version: ClassVar = 3
            upgrades: ClassVar = UPGRADES
            history = kept

    return (First, Second, Third)[version - 1]


PLAIN: tuple[Any, ...] = (FirstPlain, SecondPlain, ThirdPlain)


def shown(release: Any, key: int, document: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a release, or the class of teams, shows of a document, without excluded fields."""
    fields = release.model_fields
    if "size" in fields and "size" not in document:
        document = sized(document)
    if "grade" in fields and "grade" not in document:
        document = graded(document)
    values = {name: document.get(name, field.default) for name, field in fields.items() if name != "note"}
    return {**values, "id": key}
