"""A foreign key is added to many records, some of them without a target, beside four writers."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodels import (
    Database,
    DoesNotExist,
    Field,
    ForeignKey,
    KvModel,
    PrimaryKey,
    ProtectedError,
    ReferenceViolationError,
    SchemaMismatchError,
)
from kvmodels.flows.evolution import record_pass
from tests.killing import Story, killed_until_done

AUTHORS = 50
SIZE = 10
WRITERS = 4
LEAST = 10
"""Writes of each writer after the build, at least."""


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str = ""


class OldBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: int
    title: str = Field(default="")


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    title: str = Field(default="")


class Writers:
    """Threads of a program of the newer release, each with its own handle; they leave the dangling books alone."""

    def __init__(self, path: Path, records: int, dangling: int) -> None:
        self._path = path
        self._kept = range(dangling, records)
        self._built = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]
        self.answers: Counter[str] = Counter()
        self.unexpected: list[Exception] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let each writer make some more writes, and wait for them."""
        self._built.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance, left = random.Random(number), LEAST
        with Database(self._path, models=[Author, Book], durability="relaxed") as db:
            try:
                while left:
                    self._write(db, chance)
                    left -= self._built.is_set()
            except Exception as error:  # noqa: BLE001 - judged by the test
                self.unexpected.append(error)

    def _write(self, db: Database, chance: random.Random) -> None:
        books, authors = db[Book], db[Author]
        book, author, new = chance.choice(self._kept), chance.randrange(AUTHORS), chance.randrange(10**6, 10**12)
        verbs = {
            "create": lambda: books.create(id=new, author_id=author),
            "title": lambda: books.patch(book, title=str(new)),
            "re-point": lambda: books.patch(book, author_id=author),
            "remove": lambda: books.remove(book),
            "name": lambda: authors.patch(author, name=str(new)),
            "come and go": lambda: (authors.create(id=new), authors.remove(new)),
            "stay": lambda: (authors.create(id=new), books.create(id=new, author_id=new), authors.remove(new)),
            "missing": lambda: books.patch(book, author_id=new),
        }
        verb = chance.choice(list(verbs))
        try:
            verbs[verb]()
        except (SchemaMismatchError, ReferenceViolationError, ProtectedError, DoesNotExist) as error:
            verb = f"{verb}: {type(error).__name__}"
        self.answers[verb] += 1


def added_beside_writers(path: Path, *, records: int, dangling: int) -> None:
    with Database(path, models=[Author, OldBook], durability="relaxed") as db:
        db[Author].bulk_create([Author(id=number) for number in range(AUTHORS)])
        targets = [number + AUTHORS if number < dangling else number % AUTHORS for number in range(records)]
        db[OldBook].bulk_create(
            [OldBook(id=number, author_id=target) for number, target in enumerate(targets)], batch_size=10_000
        )
    writers = Writers(path, records, dangling)
    with Database(path, models=[Author, Book], durability="relaxed") as db:
        writers.start()
        try:
            report = db.apply()
            violations = db.violations(Book, limit=records)
            for number in range(0, dangling, 2):
                db[Author].create(id=number + AUTHORS)
            for number in range(1, dangling, 2):
                db[Book].patch(number, author_id=AUTHORS)
            (resolved,) = db.resolve(Book)
        finally:
            writers.end()
        print(report, resolved, dict(writers.answers))
        assert writers.unexpected == []
        assert [report.builds[0].state, resolved.state] == ["pending", "readable"]
        assert {(one.key, one.kind, one.reason) for one in violations} == {
            (number, "no_target", "missing") for number in range(dangling)
        }
        assert writers.answers["missing"] == writers.answers["stay"] == 0, "every one of them was refused"
        assert writers.answers["create"] > 0
        with pytest.raises(ReferenceViolationError):
            db[Book].create(id=10**13, author_id=10**13)
        with pytest.raises(ProtectedError):
            db[Author].remove(AUTHORS)
        checked = db.check()
        assert checked.ok, checked


@pytest.mark.servers
def test_two_thousand_records_are_checked_beside_four_writers(tmp_path: Path):
    added_beside_writers(tmp_path / "store.db", records=2_000, dangling=20)


def _apply(path: str, tell: Callable[..., object]) -> None:
    for size in ("FIRST_BATCH", "LARGEST_BATCH"):
        setattr(record_pass, size, SIZE)
    with Database(path, models=[Author, Book], durability="relaxed", busy_timeout=60) as db:
        db.apply(progress=tell)


built = Story(_apply, 600 // SIZE)


@pytest.mark.servers
def test_a_foreign_key_is_added_by_processes_that_are_killed_beside_four_writers(tmp_path: Path):
    path, dangling = tmp_path / "store.db", 20
    with Database(path, models=[Author, OldBook], durability="relaxed") as db:
        db[Author].bulk_create([Author(id=number) for number in range(AUTHORS)])
        targets = [number + AUTHORS if number < dangling else number % AUTHORS for number in range(800)]
        db[OldBook].bulk_create([OldBook(id=number, author_id=target) for number, target in enumerate(targets)])
    writers = Writers(path, 800, dangling)
    writers.start()
    try:
        killed_until_done(__name__, "built", path, 13, 8)
    finally:
        writers.end()
    assert writers.unexpected == []
    assert writers.answers["missing"] == writers.answers["stay"] == 0, dict(writers.answers)
    with Database(path, models=[Author, Book], durability="relaxed") as db:
        assert {(one.key, one.kind, one.reason) for one in db.violations(Book)} == {
            (number, "no_target", "missing") for number in range(dangling)
        }
        with pytest.raises(ReferenceViolationError):
            db[Book].create(id=10**13, author_id=10**13)
        for number in range(dangling):
            db[Book].patch(number, author_id=1)
        (resolved,) = db.resolve(Book)
        assert resolved.state == "readable"
        with pytest.raises(ProtectedError):
            db[Author].remove(1)
        checked = db.check()
        assert checked.ok, checked


@pytest.mark.soak
def test_a_hundred_thousand_records_are_checked_beside_four_writers(tmp_path: Path):
    added_beside_writers(tmp_path / "store.db", records=100_000, dangling=50)
