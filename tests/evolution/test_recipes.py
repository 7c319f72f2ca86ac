"""Deployments in which neither release is refused: two releases side by side at every step of the recipes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey

COUNT = 250


class Plain(KvModel, collection="users"):
    id: PrimaryKey[int]
    color: str
    name: str = ""


class Declares(KvModel, collection="users"):
    id: PrimaryKey[int]
    color: Indexed[str]
    name: str = ""


class Queries(Declares, collection="users"):
    """The release that queries the index has the same declarations."""


class Descends(KvModel, collection="users"):
    id: PrimaryKey[int]
    color: Annotated[str, Indexed(descending=True)]
    name: str = ""


class WritesBoth(KvModel, collection="users"):
    id: PrimaryKey[int]
    color: str
    name: str = ""
    first: str | None = None


class ReadsNew(KvModel, collection="users"):
    id: PrimaryKey[int]
    color: str
    name: str = ""
    first: Indexed[str | None] = Field(default=None)


class Deployment:
    """The processes that run: a database handle for each release, all of which write and read at every step."""

    def __init__(self, path: Path) -> None:
        self._path = str(path / "app.db")
        self._running: dict[type[KvModel], Database] = {}
        self._next = COUNT
        with Database(self._path, models=[Plain]) as db:
            db[Plain].bulk_create([Plain(id=n, color="red", name=f"Ada{n}") for n in range(COUNT)])

    def start(self, model: type[KvModel]) -> Database:
        self._running[model] = Database(self._path, models=[model])
        self.work()
        return self._running[model]

    def stop(self, model: type[KvModel]) -> None:
        self.work()
        self._running.pop(model).close()

    def work(self, _progress: object = None) -> None:
        """Write and read in every process that runs; nothing of it may be refused."""
        for model, db in self._running.items():
            users: Any = db[model]
            users.create(id=self._next, color="blue", name="Eve")
            users.patch(self._next % COUNT, color="green")
            users.save(users.get(self._next))
            users.remove(self._next)
            users.filter(id__lt=3).update(color="white")
            assert users.get(1).color == "white"
            self._next += 1

    def close(self) -> None:
        for db in self._running.values():
            assert db.check().ok
            db.close()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.close()


def test_an_index_is_added_in_three_steps_and_no_write_is_refused(deployment: Deployment):
    deployment.start(Plain)
    declares = deployment.start(Declares)  # both write: the index is not built
    deployment.stop(Plain)
    assert declares.apply(progress=deployment.work).complete
    queries = deployment.start(Queries)
    assert queries[Queries].filter(color="white").count() == 3
    deployment.stop(Declares)


def test_an_index_is_changed_in_three_steps_and_no_write_is_refused(deployment: Deployment):
    declares = deployment.start(Declares)
    assert declares.apply(progress=deployment.work).complete
    descends = deployment.start(Descends)
    deployment.stop(Declares)
    assert descends.apply(progress=deployment.work).complete
    assert descends[Descends].filter(color="white").count() == 3


def test_an_index_is_dropped_in_three_steps_and_no_write_is_refused(deployment: Deployment):
    declares = deployment.start(Declares)
    assert declares.apply(progress=deployment.work).complete
    deployment.start(Queries)  # the release that no longer queries the index, and still declares it
    deployment.stop(Declares)
    running: Database = deployment._running[Queries]
    assert running.drop_index(Queries, "color")
    deployment.start(Plain)
    deployment.stop(Queries)


def test_a_stored_form_is_changed_in_a_field_of_its_own_and_no_write_is_refused(deployment: Deployment):
    deployment.start(Plain)
    both = deployment.start(WritesBoth)
    deployment.stop(Plain)

    def fill(user: WritesBoth) -> None:
        user.first = user.name.casefold()

    for user in both[WritesBoth].all():  # all, because the release before has changed names and not the new field
        both[WritesBoth].mutate(user.id, fill)
        deployment.work() if user.id % 100 == 0 else None
    new = deployment.start(ReadsNew)
    deployment.stop(WritesBoth)
    assert new.apply(progress=deployment.work).complete
    assert new[ReadsNew].filter(first="ada7").count() == 1
    assert new[ReadsNew].filter(first=None).count() == 0
