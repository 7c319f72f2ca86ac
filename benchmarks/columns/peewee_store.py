"""Peewee on SQLite, as its documentation writes it.

Rules of this module: the journal and ``synchronous`` are set as kvmodels sets them, nothing else is tuned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from peewee import BigIntegerField, CharField, IntegerField, Model, SqliteDatabase, TextField

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE
from benchmarks.workload import User as Row

DATABASE: Any = SqliteDatabase(None, timeout=60)
# SQLite takes 32,766 variables in a statement; a record has six.
ROWS_OF_A_STATEMENT = 500


class User(Model):
    """The record of the workload."""

    id = BigIntegerField(primary_key=True)
    name = TextField()
    email = CharField(unique=True)
    colour = CharField(index=True)
    age = IntegerField()
    bio = TextField()

    class Meta:
        database = DATABASE


def made(row: Row) -> Any:
    """A new object of a row."""
    return User(id=row.id, name=row.name, email=row.email, colour=row.colour, age=row.age, bio=row.bio)


class PeeweeSession:
    """The database that the models are bound to."""

    def insert(self, user: Row) -> object:
        obj = made(user)
        obj.save(force_insert=True)
        return obj

    def insert_many(self, users: Sequence[Row]) -> object:
        objects = [made(user) for user in users]
        with DATABASE.atomic():
            User.bulk_create(objects, batch_size=ROWS_OF_A_STATEMENT)
        return objects

    def get(self, key: int) -> Any:
        return User.get_by_id(key)

    def get_by_email(self, email: str) -> Any:
        return User.get(User.email == email)

    def list_colour(self, colour: str) -> Sequence[Any]:
        return list(User.select().where(User.colour == colour))

    def page(self, colour: str) -> Sequence[Any]:
        return list(User.select().where(User.colour == colour).order_by(User.id).limit(PAGE))

    def scan(self) -> Sequence[Any]:
        return list(User.select())

    def count(self, colour: str) -> int:
        number: int = User.select().where(User.colour == colour).count()
        return number

    def _change(self, key: int, field: str, value: object) -> object:
        user = User.get_by_id(key)
        setattr(user, field, value)
        user.save(only=[field])
        return user

    def update_plain(self, key: int, name: str) -> object:
        return self._change(key, "name", name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._change(key, "colour", colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._change(key, "email", email)

    def increment(self, key: int) -> object:
        with DATABASE.atomic("IMMEDIATE"):
            user = User.get_by_id(key)
            user.age += 1
            user.save(only=["age"])
        return user

    def delete(self, key: int) -> object:
        return User.delete_by_id(key)

    def fields(self, obj: Any) -> Row:
        return Row(obj.id, obj.name, obj.email, obj.colour, obj.age, obj.bio)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """Every thread has a connection of its own, which it must close."""
        with DATABASE.connection_context():
            yield self

    def close(self) -> None:
        DATABASE.close()


def opened(folder: Path, durability: Durability) -> PeeweeSession:
    """Open the database, or make it."""
    if durability == "memory":
        DATABASE.init(":memory:")
    else:
        pragmas = {"journal_mode": "wal", "synchronous": "full" if durability == "commit" else "normal"}
        DATABASE.init(f"{folder}/users.db", pragmas=pragmas)
    DATABASE.connect()
    DATABASE.create_tables([User])
    return PeeweeSession()
