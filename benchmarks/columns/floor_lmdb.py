"""The hand-written floor on LMDB: one B-tree of keys and values, index rows kept by hand in the same transaction.

Rules of this module: a write reads and writes in one write transaction; uniqueness is ``overwrite=False``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NoReturn, Self, cast

import lmdb

from benchmarks.columns.floor_records import (
    Record,
    Taken,
    changed,
    colour_key,
    colour_prefix,
    email_key,
    fields,
    key_in,
    loaded,
    made,
    packed,
    record_key,
)
from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE, User

MAP_SIZE = 8 << 30


def absent() -> NoReturn:
    """Instead of a record."""
    raise KeyError


class LmdbFloor:
    """An open environment."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._env = lmdb.open(
            str(path), map_size=MAP_SIZE, subdir=False, metasync=durability == "commit", lock=True, max_readers=512
        )

    def insert(self, user: User) -> object:
        record = made(user)
        with self._env.begin(write=True) as transaction:
            self._add(transaction, record)
        return record

    def insert_many(self, users: Sequence[User]) -> object:
        records = [made(user) for user in users]
        with self._env.begin(write=True) as transaction:
            for record in records:
                self._add(transaction, record)
        return records

    def _add(self, transaction: lmdb.Transaction, record: Record) -> None:
        put, key = transaction.put, record_key(record.id)
        if not put(key, packed(record), overwrite=False) or not put(email_key(record.email), key, overwrite=False):
            raise Taken
        put(colour_key(record.colour, record.id), b"")

    def get(self, key: int) -> Record:
        with self._env.begin() as transaction:
            return loaded(transaction.get(record_key(key)) or absent())

    def get_by_email(self, email: str) -> Record:
        with self._env.begin() as transaction:
            slot = transaction.get(email_key(email)) or absent()
            return loaded(transaction.get(slot) or absent())

    def _of_colour(self, transaction: lmdb.Transaction, colour: str) -> Iterator[bytes]:
        prefix = colour_prefix(colour)
        cursor = transaction.cursor()
        if cursor.set_range(prefix):
            # Copies, not buffers: that is what the environment was asked for.
            for key in cast("Iterator[bytes]", cursor.iternext(keys=True, values=False)):
                if not key.startswith(prefix):
                    break
                yield key

    def list_colour(self, colour: str) -> Sequence[Record]:
        with self._env.begin() as transaction:
            get = transaction.get
            return [loaded(get(key_in(key)) or absent()) for key in self._of_colour(transaction, colour)]

    def page(self, colour: str) -> Sequence[Record]:
        with self._env.begin() as transaction:
            get = transaction.get
            return [loaded(get(key_in(key)) or absent()) for key in islice(self._of_colour(transaction, colour), PAGE)]

    def scan(self) -> Sequence[Record]:
        with self._env.begin() as transaction:
            cursor = transaction.cursor()
            if not cursor.set_range(b"r"):
                return []
            return [loaded(value) for value in cursor.iternext(keys=False, values=True)]

    def count(self, colour: str) -> int:
        with self._env.begin() as transaction:
            return sum(1 for _ in self._of_colour(transaction, colour))

    def _changed(self, key: int, field: str, value: object) -> Record:
        with self._env.begin(write=True) as transaction:
            before = loaded(transaction.get(record_key(key)) or absent())
            record = changed(before, field, before.age + 1 if field == "age" else value)
            transaction.put(record_key(key), packed(record))
            if record.colour != before.colour:
                transaction.delete(colour_key(before.colour, key))
                transaction.put(colour_key(record.colour, key), b"")
            if record.email != before.email:
                if not transaction.put(email_key(record.email), record_key(key), overwrite=False):
                    raise Taken
                transaction.delete(email_key(before.email))
        return record

    def update_plain(self, key: int, name: str) -> object:
        return self._changed(key, "name", name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._changed(key, "colour", colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._changed(key, "email", email)

    def increment(self, key: int) -> object:
        return self._changed(key, "age", None)

    def delete(self, key: int) -> object:
        with self._env.begin(write=True) as transaction:
            record = loaded(transaction.get(record_key(key)) or absent())
            for row_key in (record_key(key), email_key(record.email), colour_key(record.colour, key)):
                transaction.delete(row_key)
        return record

    def fields(self, obj: Record) -> User:
        return fields(obj)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """An environment serves all threads; it must not be opened twice in a process."""
        yield self

    def close(self) -> None:
        self._env.close()


def opened(folder: Path, durability: Durability) -> LmdbFloor:
    """Open the file, or make it."""
    return LmdbFloor(folder / "users.lmdb", durability)
