"""The hand-written floor in memory: dicts, and a SortedDict for the index, under one lock.

Rules of this module: stored bytes, not live objects, so that nobody can change a record from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Self

from sortedcontainers import SortedDict

from benchmarks.columns.floor_records import Record, Taken, changed, fields, loaded, made, packed
from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE, User

LARGEST = 1 << 63


class MemoryFloor:
    """Records by key, keys by e-mail address, and an ordered index of (colour, key)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[int, bytes] = {}
        self._emails: dict[str, int] = {}
        self._colours: SortedDict[tuple[str, int], None] = SortedDict()

    def insert(self, user: User) -> object:
        record = made(user)
        data = packed(record)
        with self._lock:
            self._put(record, data)
        return record

    def insert_many(self, users: Sequence[User]) -> object:
        records = [made(user) for user in users]
        with self._lock:
            for record in records:
                self._put(record, packed(record))
        return records

    def _put(self, record: Record, data: bytes) -> None:
        if record.id in self._records or record.email in self._emails:
            raise Taken
        self._records[record.id] = data
        self._emails[record.email] = record.id
        self._colours[record.colour, record.id] = None

    def get(self, key: int) -> Record:
        return loaded(self._records[key])

    def get_by_email(self, email: str) -> Record:
        with self._lock:
            data = self._records[self._emails[email]]
        return loaded(data)

    def _of_colour(self, colour: str) -> Iterator[tuple[str, int]]:
        return self._colours.irange((colour, 0), (colour, LARGEST))

    def list_colour(self, colour: str) -> Sequence[Record]:
        records = self._records
        with self._lock:
            rows = [records[key] for _, key in self._of_colour(colour)]
        return [loaded(data) for data in rows]

    def page(self, colour: str) -> Sequence[Record]:
        records = self._records
        with self._lock:
            rows = [records[key] for _, key in islice(self._of_colour(colour), PAGE)]
        return [loaded(data) for data in rows]

    def scan(self) -> Sequence[Record]:
        with self._lock:
            rows = list(self._records.values())
        return [loaded(data) for data in rows]

    def count(self, colour: str) -> int:
        with self._lock:
            return self._colours.bisect((colour, LARGEST)) - self._colours.bisect((colour, 0))

    def update_plain(self, key: int, name: str) -> object:
        with self._lock:
            record = changed(loaded(self._records[key]), "name", name)
            self._records[key] = packed(record)
        return record

    def update_indexed(self, key: int, colour: str) -> object:
        with self._lock:
            before = loaded(self._records[key])
            record = changed(before, "colour", colour)
            self._records[key] = packed(record)
            if record.colour != before.colour:
                del self._colours[before.colour, key]
                self._colours[record.colour, key] = None
        return record

    def update_unique(self, key: int, email: str) -> object:
        with self._lock:
            before = loaded(self._records[key])
            record = changed(before, "email", email)
            if self._emails.get(record.email, key) != key:
                raise Taken
            self._records[key] = packed(record)
            if record.email != before.email:
                del self._emails[before.email]
                self._emails[record.email] = key
        return record

    def increment(self, key: int) -> object:
        with self._lock:
            before = loaded(self._records[key])
            record = changed(before, "age", before.age + 1)
            self._records[key] = packed(record)
        return record

    def delete(self, key: int) -> object:
        with self._lock:
            record = loaded(self._records.pop(key))
            del self._emails[record.email]
            del self._colours[record.colour, key]
        return record

    def fields(self, obj: Record) -> User:
        return fields(obj)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """The lock lets threads share it."""
        yield self

    def close(self) -> None:
        """Nothing is open."""


def opened(folder: Path, durability: Durability) -> MemoryFloor:  # noqa: ARG001 - as every opener
    """A new, empty one."""
    return MemoryFloor()
