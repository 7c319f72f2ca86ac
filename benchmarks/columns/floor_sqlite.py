"""The hand-written floor on SQLite: one table of keys and values, index rows kept by hand in the same transaction.

Rules of this module: one connection for each thread; a write takes the write lock at its beginning, so that what it
has read still holds when it commits; uniqueness is the primary key of the index row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks.columns.floor_records import (
    Record,
    changed,
    colour_key,
    colour_prefix,
    email_key,
    fields,
    loaded,
    made,
    packed,
    record_key,
)
from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE, User

T = TypeVar("T")

TABLE = "CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
ADD = "INSERT INTO kv (k, v) VALUES (?, ?)"
SET = "UPDATE kv SET v = ? WHERE k = ?"
GET = "SELECT v FROM kv WHERE k = ?"
DELETE = "DELETE FROM kv WHERE k = ?"
RANGE = "SELECT v FROM kv WHERE k >= ? AND k < ? ORDER BY k"
COUNT = "SELECT count(*) FROM kv WHERE k >= ? AND k < ?"
# Index rows hold the record's key, so one statement walks the index and fetches the records.
LISTED = "SELECT r.v FROM kv AS i CROSS JOIN kv AS r ON r.k = i.v WHERE i.k >= ? AND i.k < ? ORDER BY i.k LIMIT ?"
BY_SLOT = "SELECT r.v FROM kv AS e CROSS JOIN kv AS r ON r.k = e.v WHERE e.k = ?"
EVERYTHING = -1


class SqliteFloor:
    """An open connection."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability: Durability = durability
        connection = sqlite3.connect(path, isolation_level=None, timeout=60, cached_statements=64)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'commit' else 'NORMAL'}")
        connection.execute(TABLE)
        self._connection = connection
        self._run = connection.execute

    def _transact(self, work: Callable[[], T]) -> T:
        self._run("BEGIN IMMEDIATE")
        try:
            result = work()
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            raise
        return result

    def insert(self, user: User) -> object:
        record = made(user)
        return self._transact(lambda: self._add(record))

    def insert_many(self, users: Sequence[User]) -> object:
        records = [made(user) for user in users]
        rows: list[tuple[bytes, bytes]] = []
        for record in records:
            rows += self._rows(record)
        rows.sort()
        return self._transact(lambda: self._connection.executemany(ADD, rows))

    def _rows(self, record: Record) -> tuple[tuple[bytes, bytes], ...]:
        key = record_key(record.id)
        return (
            (key, packed(record)),
            (email_key(record.email), key),
            (colour_key(record.colour, record.id), key),
        )

    def _add(self, record: Record) -> Record:
        for row in self._rows(record):
            self._run(ADD, row)
        return record

    def get(self, key: int) -> Record:
        return loaded(self._run(GET, (record_key(key),)).fetchone()[0])

    def get_by_email(self, email: str) -> Record:
        return loaded(self._run(BY_SLOT, (email_key(email),)).fetchone()[0])

    def _listed(self, colour: str, limit: int) -> Sequence[Record]:
        low = colour_prefix(colour)
        high = low[:-1] + b"\1"
        return [loaded(data) for (data,) in self._run(LISTED, (low, high, limit)).fetchall()]

    def list_colour(self, colour: str) -> Sequence[Record]:
        return self._listed(colour, EVERYTHING)

    def page(self, colour: str) -> Sequence[Record]:
        return self._listed(colour, PAGE)

    def scan(self) -> Sequence[Record]:
        return [loaded(data) for (data,) in self._run(RANGE, (b"r", b"s")).fetchall()]

    def count(self, colour: str) -> int:
        low = colour_prefix(colour)
        number: int = self._run(COUNT, (low, low[:-1] + b"\1")).fetchone()[0]
        return number

    def _changed(self, key: int, field: str, new: Callable[[Record], object]) -> Record:
        def work() -> Record:
            before = self.get(key)
            record = changed(before, field, new(before))
            self._run(SET, (packed(record), record_key(key)))
            if record.colour != before.colour:
                self._run(DELETE, (colour_key(before.colour, key),))
                self._run(ADD, (colour_key(record.colour, key), record_key(key)))
            if record.email != before.email:
                self._run(DELETE, (email_key(before.email),))
                self._run(ADD, (email_key(record.email), record_key(key)))
            return record

        return self._transact(work)

    def update_plain(self, key: int, name: str) -> object:
        return self._changed(key, "name", lambda _: name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._changed(key, "colour", lambda _: colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._changed(key, "email", lambda _: email)

    def increment(self, key: int) -> object:
        return self._changed(key, "age", lambda before: before.age + 1)

    def delete(self, key: int) -> object:
        def work() -> Record:
            record = self.get(key)
            for row_key in (record_key(key), email_key(record.email), colour_key(record.colour, key)):
                self._run(DELETE, (row_key,))
            return record

        return self._transact(work)

    def fields(self, obj: Record) -> User:
        return fields(obj)

    @contextmanager
    def beside(self) -> Iterator[SqliteFloor]:
        """A connection of its own for another thread."""
        other = SqliteFloor(self._path, self._durability)
        try:
            yield other
        finally:
            other.close()

    def close(self) -> None:
        self._connection.close()


def opened(folder: Path, durability: Durability) -> SqliteFloor:
    """Open the file, or make it."""
    return SqliteFloor(folder / "users.db", durability)
