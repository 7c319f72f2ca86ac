"""A sink that keeps texts of records in an FTS5 table of SQLite, with BM25 search over large collections.

Rules of this module: one transaction holds the texts of a batch and its position. The table ``keys`` has the packed key
of each record, in the order of the store; its row number is that of the texts.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from kvmodels._support.naming import show_public_path
from kvmodels.core.keys import Key, decode_key, encode_key
from kvmodels.errors import (
    EngineError,
    InvalidArgumentError,
    SinkPositionError,
    UnknownFieldError,
    UnsupportedError,
)
from kvmodels.flows.arguments import require_limit
from kvmodels.flows.feeds.position import Position
from kvmodels.flows.feeds.sink import ChangeBatch, FollowedChange

_LOCK_WAIT_S: Final = 10.0

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY CHECK (id = 1), position TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS keys (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version TEXT NOT NULL)",
)


class FtsSink:
    """Texts of records in a file of SQLite, kept up to date by ``db.follow(models, sink)``.

    Args:
        path: the file; it is created if it does not exist.
        fields: the names of fields with texts, at least one. A record without one of them has an empty text there, and
            one without any is refused; elements of a list are joined. A file keeps its fields.
        tokenize: the tokenizer of FTS5, such as ``"porter unicode61"``.

    Raises:
        InvalidArgumentError: an argument is invalid, or the file was created with other fields.
        UnsupportedError: this SQLite has no FTS5.
        EngineError: SQLite cannot use the file.

    Examples:
        >>> sink = FtsSink(":memory:", "title", "body")
        >>> sink.search("store"), sink.load()
        ([], None)
        >>> sink.close()
    """

    def __init__(
        self, path: str | os.PathLike[str], /, *fields: str, tokenize: str = "unicode61 remove_diacritics 2"
    ) -> None:
        if not fields or not all(map(str.isidentifier, fields)):
            raise InvalidArgumentError(
                "a sink of texts needs names of fields",
                argument="fields",
                value=fields,
                hint='Write FtsSink("search.db", "title", "body").',
            )
        self._path = os.fspath(path)
        self._fields = fields
        self._mutex = threading.Lock()
        with self._errors():
            self._connection = sqlite3.connect(
                self._path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction() as connection:
            for statement in _TABLES:
                connection.execute(statement)
            columns = ", ".join(f'"{field}"' for field in fields)
            quoted = tokenize.replace("'", "''")
            connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5({columns}, tokenize = '{quoted}')")
            held = tuple(row[1] for row in connection.execute("PRAGMA table_info(texts)"))
        if held != fields:
            self.close()
            raise InvalidArgumentError(
                "the file was created with other fields",
                argument="fields",
                value=fields,
                expected=held,
                hint="Use a new file for other fields; a follower fills it.",
            )

    def search(self, query: str, *, limit: int = 20) -> list[Key]:
        """Return the keys of the records that match a query of FTS5, the best match first by BM25.

        Args:
            query: words, ``"a phrase"``, ``pre*``, AND, OR, NOT, ``title: word``.
            limit: the maximum number of keys, 1 or more.

        Returns:
            Stored keys, ``(collection, *primary key)``.

        Raises:
            InvalidArgumentError: FTS5 does not understand the query.
        """
        require_limit(limit, "Give the number of keys, 1 or more.")
        statement = (
            "SELECT keys.key FROM texts JOIN keys ON keys.id = texts.rowid WHERE texts MATCH ? ORDER BY rank LIMIT ?"
        )
        try:
            with self._mutex:
                return [decode_key(row[0]) for row in self._connection.execute(statement, (query, limit))]
        except sqlite3.OperationalError as error:
            raise InvalidArgumentError(
                "FTS5 does not understand the query",
                argument="query",
                value=query,
                expected=f"the syntax of FTS5: {error}",
                hint="Put double quotes around words with punctuation: '\"key-value\"'.",
            ) from error

    def load(self) -> Position | None:
        """Return the stored position; None in a new file."""
        with self._errors(), self._mutex:
            return self._position(self._connection)

    def apply(self, batch: ChangeBatch, /) -> None:
        """Store the changes and the position of a batch in one transaction. Raises SinkPositionError."""
        with self._transaction() as connection:
            position = self._position(connection)
            if position != batch.since:
                raise SinkPositionError(
                    "the sink has another position than the batch begins with",
                    hint="Another follower of the sink has applied a batch.",
                )
            for change in batch.changes:
                self._change(connection, change)
            connection.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (str(batch.position),))

    def keys(self, after: Key | None, limit: int, /) -> list[tuple[Key, str]]:
        """Return the stored keys after a key with their versionstamps, in the order of the store."""
        statement = "SELECT key, version FROM keys WHERE key > ? ORDER BY key LIMIT ?"
        with self._errors(), self._mutex:
            rows = self._connection.execute(statement, (b"" if after is None else encode_key(after), limit))
            return [(decode_key(key), version) for key, version in rows]

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._mutex:
            self._connection.close()

    def _position(self, connection: sqlite3.Connection) -> Position | None:
        row: Any = connection.execute("SELECT position FROM position").fetchone()
        return None if row is None else Position.parse(row[0])

    def _change(self, connection: sqlite3.Connection, change: FollowedChange) -> None:
        packed = encode_key(change.key)
        row: Any = connection.execute("SELECT id FROM keys WHERE key = ?", (packed,)).fetchone()
        if row is not None:
            connection.execute("DELETE FROM texts WHERE rowid = ?", row)
            connection.execute("DELETE FROM keys WHERE id = ?", row)
        if change.record is None:
            return
        number = connection.execute(
            "INSERT INTO keys (key, version) VALUES (?, ?)", (packed, change.versionstamp)
        ).lastrowid
        columns = ", ".join(f'"{field}"' for field in self._fields)
        if not any(hasattr(change.record, field) for field in self._fields):
            raise UnknownFieldError(
                "a record has none of the fields of the sink",
                model=type(change.record).__name__,
                field=self._fields[0],
                hint="Name fields of the models that are followed: FtsSink(path, ...).",
            )
        places = ", ".join("?" * len(self._fields))
        texts = [_text_of(getattr(change.record, field, None)) for field in self._fields]
        connection.execute(f"INSERT INTO texts (rowid, {columns}) VALUES (?, {places})", (number, *texts))  # noqa: S608

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._errors(), self._mutex:
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "no such module: fts5" in str(error):
                raise UnsupportedError(
                    "this SQLite has no FTS5", reason="fts5", hint="Use a Python whose SQLite was built with FTS5."
                ) from error
            raise EngineError(
                "SQLite cannot use the file of the sink",
                reason=str(error),
                hint="Check the file, its rights and the disk.",
            ) from error

    def __repr__(self) -> str:
        return f"FtsSink({self._path!r}, {', '.join(map(repr, self._fields))})"


def _text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple, set, frozenset)):
        return "\n".join(map(_text_of, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


show_public_path(FtsSink)
