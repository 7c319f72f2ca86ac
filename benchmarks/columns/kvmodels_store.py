"""kvmodels, synchronous and asynchronous, on each engine.

Rules of this module: only the documented calls, as a service would write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE
from benchmarks.workload import User as Row
from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique


class User(KvModel, collection="users"):
    """The record of the workload."""

    id: PrimaryKey[int]
    name: str
    email: Unique[str]
    colour: Indexed[str]
    age: int
    bio: str


def made(row: Row) -> User:
    """A validated object of a row."""
    return User(id=row.id, name=row.name, email=row.email, colour=row.colour, age=row.age, bio=row.bio)


def row_of(user: User) -> Row:
    """The row that an object holds."""
    return Row(user.id, user.name, user.email, user.colour, user.age, user.bio)


def add_a_year(user: User) -> None:
    """Make the contended update."""
    user.age += 1


class KvModelsSession:
    """The synchronous database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._users = database[User]

    def insert(self, user: Row) -> object:
        return self._users.insert(made(user))

    def insert_many(self, users: Sequence[Row]) -> object:
        return self._users.bulk_create([made(user) for user in users], batch_size=len(users))

    def get(self, key: int) -> User:
        return self._users.get(key)

    def get_by_email(self, email: str) -> User:
        return self._users.get(email=email)

    def list_colour(self, colour: str) -> Sequence[User]:
        return self._users.filter(colour=colour).to_list()

    def page(self, colour: str) -> Sequence[User]:
        return self._users.filter(colour=colour).order_by("id")[:PAGE].to_list()

    def scan(self) -> Sequence[User]:
        return self._users.all().to_list()

    def count(self, colour: str) -> int:
        return self._users.filter(colour=colour).count()

    def update_plain(self, key: int, name: str) -> object:
        return self._users.patch(key, name=name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._users.patch(key, colour=colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._users.patch(key, email=email)

    def increment(self, key: int) -> object:
        return self._users.mutate(key, add_a_year)

    def delete(self, key: int) -> object:
        return self._users.remove(key)

    def fields(self, obj: User) -> Row:
        return row_of(obj)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """One database serves any number of threads."""
        yield self

    def close(self) -> None:
        self.database.close()


class KvModelsAsyncSession:
    """The asynchronous database."""

    def __init__(self, database: AsyncDatabase) -> None:
        self.database = database
        self._users = database[User]

    async def insert(self, user: Row) -> object:
        return await self._users.insert(made(user))

    async def insert_many(self, users: Sequence[Row]) -> object:
        return await self._users.bulk_create([made(user) for user in users], batch_size=len(users))

    async def get(self, key: int) -> User:
        return await self._users.get(key)

    async def get_by_email(self, email: str) -> User:
        return await self._users.get(email=email)

    async def list_colour(self, colour: str) -> Sequence[User]:
        return await self._users.filter(colour=colour).to_list()

    async def page(self, colour: str) -> Sequence[User]:
        return await self._users.filter(colour=colour).order_by("id")[:PAGE].to_list()

    async def scan(self) -> Sequence[User]:
        return await self._users.all().to_list()

    async def count(self, colour: str) -> int:
        return await self._users.filter(colour=colour).count()

    async def update_plain(self, key: int, name: str) -> object:
        return await self._users.patch(key, name=name)

    async def update_indexed(self, key: int, colour: str) -> object:
        return await self._users.patch(key, colour=colour)

    async def update_unique(self, key: int, email: str) -> object:
        return await self._users.patch(key, email=email)

    async def increment(self, key: int) -> object:
        return await self._users.mutate(key, add_a_year)

    async def delete(self, key: int) -> object:
        return await self._users.remove(key)

    async def put(self, key: int, text: str) -> object:
        """One commit of one key, without a model."""
        return await self.database.kv.set(("tasks", key), text)

    async def got(self, key: int) -> object:
        """Return the object that ``put`` has stored."""
        return (await self.database.kv.get(("tasks", key))).value

    def fields(self, obj: User) -> Row:
        return row_of(obj)

    async def close(self) -> None:
        await self.database.close()


def url_of(engine: str, folder: Path) -> str:
    """Where an engine keeps its store."""
    if engine == "memory":
        return "memory://"
    return f"{folder}/users.db" if engine == "sqlite" else f"lmdb:///{folder}/users.lmdb"


def kept(durability: Durability) -> Literal["commit", "relaxed"]:
    """The option of the database; in memory it makes no difference."""
    return "commit" if durability == "commit" else "relaxed"


def opened(engine: str, folder: Path, durability: Durability) -> KvModelsSession:
    """Open the synchronous database."""
    return KvModelsSession(Database(url_of(engine, folder), models=[User], durability=kept(durability)))


async def opened_async(engine: str, folder: Path, durability: Durability) -> KvModelsAsyncSession:
    """Open the asynchronous database."""
    database = AsyncDatabase(url_of(engine, folder), models=[User], durability=kept(durability))
    await database.open()
    return KvModelsAsyncSession(database)
