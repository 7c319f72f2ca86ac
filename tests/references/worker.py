"""A process of a crowd on authors and what refers to them: ``python -m tests.references.worker ROLE URL SEED``.

It works until it is killed, and writes a character to its standard output for each operation: ``.`` if it was carried
out, ``x`` if a foreign key refused it, ``!`` if it gave up after conflicts.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Annotated

from kvmodels import (
    CASCADE,
    SET_NULL,
    AlreadyExistsError,
    Database,
    DoesNotExist,
    Field,
    ForeignKey,
    IntegrityError,
    KvModel,
    PrimaryKey,
    RetriesExhaustedError,
)

AUTHORS = 6


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    revision: int = 0


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    editor: Annotated[ForeignKey[int | None, Author], SET_NULL] = Field(default=None)


class Letter(KvModel, collection="letters"):
    id: PrimaryKey[int]
    author: Annotated[ForeignKey[int, Author], CASCADE]


MODELS = (Author, Book, Letter)


class Worker:
    """The roles, each with one operation."""

    def __init__(self, db: Database, seed: int) -> None:
        self._db = db
        self._chance = random.Random(seed)

    def _author(self) -> int:
        return self._chance.randrange(AUTHORS)

    def _id(self) -> int:
        return self._chance.randrange(2**60)

    def insert(self) -> None:
        """Store records that refer to authors."""
        author, kind = self._author(), self._chance.randrange(4)
        if kind == 0:
            self._db[Letter].create(id=self._id(), author=author)
        elif kind == 1:
            self._db[Book].bulk_create([Book(id=self._id(), author=author, editor=self._author()) for _ in range(5)])
        else:
            self._db[Book].create(id=self._id(), author=author, editor=self._chance.choice([None, self._author()]))

    def delete(self) -> None:
        """Remove an author in one of the ways that there are; first its books, or the author is protected."""
        author, kind = self._author(), self._chance.randrange(4)
        if kind:
            self._db[Book].filter(author=author).delete()
        if kind == 1:
            self._db[Author].filter(id=author).delete()
        elif kind == 2:
            self._db[Author].remove_cascade(author, resume_id=str(self._id()), batch_size=3)
        else:
            self._db[Author].remove(author)

    def update(self) -> None:
        """Change an author, or store it again."""
        author = self._author()
        try:
            self._db[Author].patch(author, revision=self._id())
        except DoesNotExist:
            self._db[Author].create(id=author)

    def update_one(self) -> None:
        """Change the first author."""
        self._db[Author].patch(0, revision=self._id())


def outcome(operation: Callable[[], object]) -> str:
    """Carry out an operation; return how it ended."""
    try:
        operation()
    except RetriesExhaustedError:
        return "!"
    except (IntegrityError, AlreadyExistsError):
        return "x"
    return "."


if __name__ == "__main__":
    role, url, seed = sys.argv[1:]
    with Database(url, models=MODELS, busy_timeout=60) as database:  # seven processes wait for one disk
        operation = getattr(Worker(database, int(seed)), role)
        while True:
            sys.stdout.write(outcome(operation))
            sys.stdout.flush()
