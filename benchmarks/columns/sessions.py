"""The operations of a column, synchronous and asynchronous.

Rules of this module: types only. A session is an open store; every method that writes is one transaction of its own,
and ``insert_many`` is one for the batch that it is given. What a method returns is what the library hands its users:
``fields`` turns that into a ``User`` after the clock has stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from benchmarks.workload import User

Durability = Literal["memory", "relaxed", "commit"]
"""``relaxed`` survives a killed process, ``commit`` a power loss as well."""


class Session(Protocol):
    """An open store."""

    def insert(self, user: User) -> object:
        """Add one record; a key or an e-mail address that is taken raises."""
        ...

    def insert_many(self, users: Sequence[User]) -> object:
        """Add a batch in one transaction."""
        ...

    def get(self, key: int) -> Any:
        """One object by key."""
        ...

    def get_by_email(self, email: str) -> Any:
        """One object by the unique index."""
        ...

    def list_colour(self, colour: str) -> Sequence[Any]:
        """All objects of one colour."""
        ...

    def page(self, colour: str) -> Sequence[Any]:
        """The first twenty objects of one colour, by key."""
        ...

    def scan(self) -> Sequence[Any]:
        """All objects."""
        ...

    def count(self, colour: str) -> int:
        """How many are of one colour."""
        ...

    def update_plain(self, key: int, name: str) -> object:
        """Read a record, change its name, write it."""
        ...

    def update_indexed(self, key: int, colour: str) -> object:
        """Read a record, change its colour, write it."""
        ...

    def update_unique(self, key: int, email: str) -> object:
        """Read a record, change its e-mail address, write it."""
        ...

    def increment(self, key: int) -> object:
        """Add a year to a record's age, without losing one of another writer."""
        ...

    def delete(self, key: int) -> object:
        """Remove a record with its index rows."""
        ...

    def fields(self, obj: Any) -> User:
        """Return the values of an object."""
        ...

    def beside(self) -> AbstractContextManager[Self]:
        """A session on the same store for another thread."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


class AsyncSession(Protocol):
    """An open store in an event loop; as ``Session``, awaited."""

    def insert(self, user: User) -> Awaitable[object]:
        """See ``Session``, as for all below."""
        ...

    def insert_many(self, users: Sequence[User]) -> Awaitable[object]: ...
    def get(self, key: int) -> Awaitable[Any]: ...
    def get_by_email(self, email: str) -> Awaitable[Any]: ...
    def list_colour(self, colour: str) -> Awaitable[Sequence[Any]]: ...
    def page(self, colour: str) -> Awaitable[Sequence[Any]]: ...
    def scan(self) -> Awaitable[Sequence[Any]]: ...
    def count(self, colour: str) -> Awaitable[int]: ...
    def update_plain(self, key: int, name: str) -> Awaitable[object]: ...
    def update_indexed(self, key: int, colour: str) -> Awaitable[object]: ...
    def update_unique(self, key: int, email: str) -> Awaitable[object]: ...
    def increment(self, key: int) -> Awaitable[object]: ...
    def delete(self, key: int) -> Awaitable[object]: ...
    def fields(self, obj: Any) -> User: ...
    def close(self) -> Awaitable[None]: ...


class Opener(Protocol):
    """Opens, or makes, the store of a column in a folder."""

    def __call__(self, folder: Path, durability: Durability) -> Session:
        """Open it."""
        ...


class AsyncOpener(Protocol):
    """As ``Opener``, awaited."""

    def __call__(self, folder: Path, durability: Durability) -> Awaitable[AsyncSession]:
        """Open it."""
        ...
