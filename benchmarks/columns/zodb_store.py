"""ZODB, in memory and in its file, with the B-trees that its documentation recommends.

Rules of this module: an index is a B-tree kept by hand in the same transaction; a write that conflicts is repeated;
each call begins a transaction, or it would not see what other connections have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import transaction
from BTrees.LOBTree import LOBTree
from BTrees.OLBTree import OLBTree
from BTrees.OOBTree import OOTreeSet
from persistent import Persistent
from ZODB import DB
from ZODB.FileStorage import FileStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import ConflictError

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE, User

LARGEST = 1 << 62


class Taken(ValueError):  # noqa: N818 - an answer to the caller, as in the stores themselves
    """A key or an e-mail address that exists already."""


class Person(Persistent):
    """The record of the workload."""

    def __init__(self, user: User) -> None:
        self.id, self.name, self.email, self.colour, self.age, self.bio = user


class ZodbSession:
    """A connection with a transaction manager of its own."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._manager = transaction.TransactionManager()
        self._connection = database.open(self._manager)
        root = self._connection.root()
        if "users" not in root:
            root["users"], root["emails"], root["colours"] = LOBTree(), OLBTree(), OOTreeSet()
            self._manager.commit()
        self._users, self._emails, self._colours = root["users"], root["emails"], root["colours"]

    def _add(self, user: User) -> None:
        if user.email in self._emails or not self._users.insert(user.id, Person(user)):
            raise Taken
        self._emails[user.email] = user.id
        self._colours.insert((user.colour, user.id))

    def _transact(self, work: Callable[[], None]) -> object:
        while True:
            try:
                self._manager.begin()
                work()
                self._manager.commit()
            except ConflictError:
                self._manager.abort()
                continue
            except BaseException:
                self._manager.abort()
                raise
            return None

    def insert(self, user: User) -> object:
        return self._transact(lambda: self._add(user))

    def insert_many(self, users: Sequence[User]) -> object:
        def work() -> None:
            for user in users:
                self._add(user)

        return self._transact(work)

    def _loaded(self, person: Any) -> Any:
        # Touched, or what a fresh connection returns is a ghost without its state.
        person._p_activate()
        return person

    def get(self, key: int) -> Any:
        self._manager.begin()
        return self._loaded(self._users[key])

    def get_by_email(self, email: str) -> Any:
        self._manager.begin()
        return self._loaded(self._users[self._emails[email]])

    def _keys(self, colour: str) -> Any:
        self._manager.begin()
        return self._colours.keys((colour, 0), (colour, LARGEST))

    def list_colour(self, colour: str) -> Sequence[Any]:
        return [self._loaded(self._users[key]) for _, key in self._keys(colour)]

    def page(self, colour: str) -> Sequence[Any]:
        return [self._loaded(self._users[key]) for _, key in islice(self._keys(colour), PAGE)]

    def scan(self) -> Sequence[Any]:
        self._manager.begin()
        return [self._loaded(person) for person in self._users.values()]

    def count(self, colour: str) -> int:
        return len(self._keys(colour))

    def update_plain(self, key: int, name: str) -> object:
        def work() -> None:
            self._users[key].name = name

        return self._transact(work)

    def update_indexed(self, key: int, colour: str) -> object:
        def work() -> None:
            person = self._users[key]
            self._colours.remove((person.colour, key))
            self._colours.insert((colour, key))
            person.colour = colour

        return self._transact(work)

    def update_unique(self, key: int, email: str) -> object:
        def work() -> None:
            person = self._users[key]
            if self._emails.get(email, key) != key:
                raise Taken
            del self._emails[person.email]
            self._emails[email] = key
            person.email = email

        return self._transact(work)

    def increment(self, key: int) -> object:
        def work() -> None:
            self._users[key].age += 1

        return self._transact(work)

    def delete(self, key: int) -> object:
        def work() -> None:
            person = self._users.pop(key)
            del self._emails[person.email]
            self._colours.remove((person.colour, key))

        return self._transact(work)

    def fields(self, obj: Any) -> User:
        return User(obj.id, obj.name, obj.email, obj.colour, obj.age, obj.bio)

    @contextmanager
    def beside(self) -> Iterator[ZodbSession]:
        """A connection for another thread."""
        other = ZodbSession(self._database)
        try:
            yield other
        finally:
            other._connection.close()

    def close(self) -> None:
        self._connection.close()
        self._database.close()


def opened(folder: Path, durability: Durability) -> ZodbSession:
    """Open the file, or make it."""
    storage = MappingStorage() if durability == "memory" else FileStorage(f"{folder}/users.fs")
    return ZodbSession(DB(storage))
