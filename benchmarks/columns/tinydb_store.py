"""TinyDB, in memory and in its JSON file.

Rules of this module: as the documentation writes it. TinyDB has no indexes and no unique fields: what looks one up
reads all documents, and an address that is taken is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tinydb import TinyDB, where
from tinydb.storages import MemoryStorage
from tinydb.table import Document

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE, User


def made(user: User) -> Any:
    """A new document of a row; the key is the document's id."""
    fields = user._asdict()
    return Document({name: fields[name] for name in fields if name != "id"}, doc_id=user.id)


class TinyDbSession:
    """The table of users."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._users = database.table("users")

    def insert(self, user: User) -> object:
        return self._users.insert(made(user))

    def insert_many(self, users: Sequence[User]) -> object:
        return self._users.insert_multiple([made(user) for user in users])

    def get(self, key: int) -> Any:
        return self._users.get(doc_id=key)

    def get_by_email(self, email: str) -> Any:
        return self._users.get(where("email") == email)

    def list_colour(self, colour: str) -> Sequence[Any]:
        found: list[Any] = self._users.search(where("colour") == colour)
        return found

    def page(self, colour: str) -> Sequence[Any]:
        return self.list_colour(colour)[:PAGE]

    def scan(self) -> Sequence[Any]:
        found: list[Any] = self._users.all()
        return found

    def count(self, colour: str) -> int:
        number: int = self._users.count(where("colour") == colour)
        return number

    def update_plain(self, key: int, name: str) -> object:
        return self._users.update({"name": name}, doc_ids=[key])

    def update_indexed(self, key: int, colour: str) -> object:
        return self._users.update({"colour": colour}, doc_ids=[key])

    def update_unique(self, key: int, email: str) -> object:
        return self._users.update({"email": email}, doc_ids=[key])

    def increment(self, key: int) -> object:
        return self._users.update({"age": self.get(key)["age"] + 1}, doc_ids=[key])

    def delete(self, key: int) -> object:
        return self._users.remove(doc_ids=[key])

    def fields(self, obj: Any) -> User:
        return User(obj.doc_id, obj["name"], obj["email"], obj["colour"], obj["age"], obj["bio"])

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """Not for threads, says its documentation; nobody asks for this."""
        yield self

    def close(self) -> None:
        self._database.close()


def opened(folder: Path, durability: Durability) -> TinyDbSession:
    """Open the file, or make it."""
    if durability == "memory":
        return TinyDbSession(TinyDB(storage=MemoryStorage))
    return TinyDbSession(TinyDB(f"{folder}/users.json"))
