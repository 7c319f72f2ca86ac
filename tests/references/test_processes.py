"""Processes that are killed while they insert, remove and update records that refer to each other."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import Database
from tests.engines.processes import ROOT
from tests.references.worker import AUTHORS, MODELS, Author, Book, Letter

pytestmark = pytest.mark.servers

ENGINES = pytest.mark.parametrize("engine", ["sqlite", "lmdb", "postgres"])
ROLES = ("insert", "insert", "insert", "insert", "delete", "delete", "update")
KILLS = 5
BATCHES = 6
REFERENCES = (("books", "author"), ("books", "editor"), ("letters", "author"))

UrlOf = Callable[..., str]


class Crew:
    """Processes, and the characters that all of them have written."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        self.said: dict[str, str] = {}

    def start(self, role: str, place: int) -> None:
        """Start a process."""
        self._started += 1
        self._processes[place] = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.references.worker", role, self._url, str(self._started)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )

    def listen(self, place: int, role: str, number: int) -> None:
        """Wait until a process has ended so many operations more."""
        output = self._processes[place].stdout
        assert output is not None
        while number > 0:
            said = os.read(output.fileno(), number).decode()
            assert said, f"a process ended with {self._processes[place].wait()}"
            number -= len(said)
            self.said[role] = self.said.get(role, "") + said

    def kill(self, place: int, role: str) -> None:
        """Kill a process, in the middle of whatever it does."""
        process = self._processes.pop(place)
        assert process.poll() is None
        process.kill()
        said, _ = process.communicate()
        self.said[role] = self.said.get(role, "") + said.decode()

    def end(self) -> None:
        """Kill all processes that are left."""
        for process in self._processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def crew_on() -> Iterator[Callable[[str], Crew]]:
    crews: list[Crew] = []

    def made(url: str) -> Crew:
        crews.append(Crew(url))
        return crews[-1]

    yield made
    for crew in crews:
        crew.end()


def rows(db: Database, collection: str) -> dict[Any, dict[str, Any]]:
    """Return the raw records of a collection by key."""
    found: dict[Any, dict[str, Any]] = {row.key[1]: row.value for row in db.kv.list(prefix=(collection,))}
    return found


def dangling(db: Database) -> list[str]:
    authors = rows(db, "authors")
    return [
        f"{collection} {key}: {field}={row[field]}"
        for collection, field in REFERENCES
        for key, row in rows(db, collection).items()
        if row[field] is not None and row[field] not in authors
    ]


@ENGINES
@pytest.mark.parametrize("kills", [KILLS, pytest.param(200, marks=pytest.mark.soak)])
def test_no_reference_dangles_although_processes_are_killed(
    engine: str, kills: int, url_of: UrlOf, crew_on: Callable[[str], Crew]
):
    url, chance = url_of(engine), random.Random(kills)
    with Database(url, models=MODELS) as db:
        db[Author].bulk_create([Author(id=number) for number in range(AUTHORS)])
    crew = crew_on(url)
    for place, role in enumerate(ROLES):
        crew.start(role, place)
    for place, role in enumerate(ROLES):
        crew.listen(place, role, 1)
    for _ in range(kills):
        place = chance.randrange(len(ROLES))
        crew.listen(place, ROLES[place], chance.randint(1, 10))
        crew.kill(place, ROLES[place])
        crew.start(ROLES[place], place)
    for place, role in enumerate(ROLES):
        crew.listen(place, role, 5)
        crew.kill(place, role)
    print(engine, {role: {one: said.count(one) for one in ".x!"} for role, said in crew.said.items()})
    with Database(url, models=MODELS) as db:
        print({model.__name__: db[model].count() for model in MODELS})
        assert dangling(db) == []
        report = db.check()
        assert report.ok, report
        assert not report.stray_guards, report
    assert "!" not in "".join(crew.said.values())


@ENGINES
def test_batches_are_inserted_beside_a_process_that_updates_their_target(
    engine: str, url_of: UrlOf, crew_on: Callable[[str], Crew]
):
    url = url_of(engine)
    with Database(url, models=MODELS) as db:
        db[Author].create(id=0)
        crew = crew_on(url)
        crew.start("update_one", 0)
        crew.listen(0, "update_one", 3)
        for batch in range(BATCHES):
            db[Letter].bulk_create([Letter(id=500 * batch + number, author=0) for number in range(500)])
            crew.listen(0, "update_one", 3)
        crew.kill(0, "update_one")
        print(engine, {one: crew.said["update_one"].count(one) for one in ".x!"})
        assert db[Letter].count() == 500 * BATCHES
        assert dangling(db) == []
        assert db[Book].count() == 0
    assert set(crew.said["update_one"]) == {"."}
