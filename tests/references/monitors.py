"""Checks of projects of owners: optional and required foreign keys, and one of a class to itself."""

from __future__ import annotations

import random
from typing import Annotated, Any

from kvmodels import Database, Field, ForeignKey, Indexed, KvModel, PrimaryKey, Unique


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]
    email: Annotated[str, Unique()]
    age: Indexed[int]
    boss: ForeignKey[int | None, "Owner"] = Field(default=None)  # noqa: UP037
    nick: str | None = None


class Project(KvModel, collection="projects"):
    id: PrimaryKey[int]
    name: Indexed[str]
    owner: ForeignKey[int | None, Owner] = Field(default=None)
    lead_id: ForeignKey[int, Owner]
    labels: list[str] = Field(default_factory=list)


class Check(KvModel, collection="checks"):
    id: PrimaryKey[int]
    project: ForeignKey[int | None, Project] = Field(default=None)
    spare_id: ForeignKey[int | None, Project] = Field(default=None)
    status: Indexed[str]
    created: Indexed[int]


MODELS = (Owner, Project, Check)
KEYS = {("Check", "project"): "Project", ("Check", "spare_id"): "Project", ("Project", "owner"): "Owner"}
KEYS |= {("Project", "lead_id"): "Owner", ("Owner", "boss"): "Owner"}


def stocked(db: Database, drawn: random.Random, checks: int = 40) -> Records:
    """Store a drawn family, and return its records."""
    owners = [
        Owner(
            id=n,
            email=f"o{n}@x",
            age=drawn.randrange(4),
            boss=drawn.choice([None, *range(n)]),
            nick=drawn.choice([None, "a", "b"]),
        )
        for n in range(5)
    ]
    projects = [
        Project(
            id=n,
            name=drawn.choice("pqr"),
            owner=drawn.choice([None, *range(5)]),
            lead_id=drawn.randrange(5),
            labels=drawn.sample(["x", "y", "z"], drawn.randrange(3)),
        )
        for n in range(8)
    ]
    stored = [
        Check(
            id=n,
            project=drawn.choice([None, *range(8)]),
            spare_id=drawn.choice([None, None, *range(8)]),
            status=drawn.choice(["up", "down", "new"]),
            created=drawn.randrange(30),
        )
        for n in range(checks)
    ]
    for model, objects in ((Owner, owners), (Project, projects), (Check, stored)):
        repository: Any = db[model]
        repository.bulk_create(objects, batch_size=8)
    return Records({"Owner": owners, "Project": projects, "Check": stored})


class Records:
    """All records in memory, for a Python program that answers the same queries."""

    def __init__(self, objects: dict[str, list[Any]]) -> None:
        self.objects = objects
        self._by_key = {(name, one.id): one for name, several in objects.items() for one in several}

    def value(self, record: Any, path: str) -> Any:
        """Return the value at the end of a path; None where a foreign key on the way is None."""
        head, _, rest = path.partition("__")
        model = type(record).__name__
        field = head if head in type(record).model_fields else f"{head}_id"
        found = getattr(record, field)
        if not rest or found is None:
            return found
        return self.value(self._by_key[KEYS[model, field], found], rest)
