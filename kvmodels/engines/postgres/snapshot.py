"""A state of a PostgreSQL store that stays readable, in a transaction on a connection of its own.

Rules of this module: a snapshot ends by a rollback that is sent and not waited for, so that a finalizer may do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import psycopg

from kvmodels.core.operations import Follow, GuardFailed, ReadRange, Row
from kvmodels.engines.postgres.connection import PostgresConnection
from kvmodels.engines.postgres.errors import is_lost, translated
from kvmodels.engines.postgres.reads import NONE, Statements, StateSeen, Times, count_once, read_and_follow
from kvmodels.engines.shared.file_engine import BEFORE_ALL_TIME, FileSnapshot, SnapshotStore
from kvmodels.engines.shared.registry import StoreHandle
from kvmodels.errors import KvModelsError, SnapshotLostError

SNAPSHOTS: Final = "snapshots"
"""The purpose of its connections in the pool."""


class FirstRow(NamedTuple):
    """A key that was read while a snapshot began, and its row, expired or not; None for an absent one."""

    key: bytes
    row: Row | None

    def visible(self, now: int) -> list[Row]:
        """Return the row in a list, which is empty if it has expired by now."""
        row = self.row
        return [] if row is None or (row.expire_at is not None and row.expire_at <= now) else [row]


def lost_or_refused(error: psycopg.Error, url: str, schema: str) -> KvModelsError:
    """Return the error of this library for an error of a read in a snapshot."""
    if is_lost(error):
        return SnapshotLostError("the connection of this snapshot is lost", url=url, reason=error.sqlstate)
    return translated(error, url, schema)


def is_one_key(ranges: Sequence[ReadRange], follow: Follow | None) -> bool:
    """Return whether a read asks for one key and nothing else."""
    return follow is None and len(ranges) == 1 and ranges[0].end is None and ranges[0].limit is None


class SnapshotPool(SnapshotStore, Protocol):
    """The store of a snapshot."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    @property
    def schema(self) -> str:
        """The quoted name of its schema."""
        ...

    @property
    def texts(self) -> Statements:
        """Its statements."""
        ...

    def begins_with(self, key: bytes) -> None:
        """Have the next snapshot read this key while it begins."""
        ...

    def return_snapshot(self, connection: PostgresConnection) -> None:
        """Take the connection of a snapshot back, in a finalizer too."""
        ...


class PostgresSnapshot(FileSnapshot[PostgresConnection]):
    """A state of a PostgreSQL store that stays readable while others write; close it soon.

    It holds a connection, and keeps the server from removing rows that were deleted since. It sees the deadlines as of
    its opening, so that two reads of it agree.

    Transactions read the header first. So a snapshot reads the key that the one before it has read first in the round
    trip that begins it.
    """

    def __init__(
        self,
        engine: StoreHandle[Any],
        store: SnapshotPool,
        owned: list[PostgresConnection],
        state: StateSeen,
        first: FirstRow | None,
    ) -> None:
        super().__init__(engine, store, state.version, state.present)
        self._store = store
        self._first = first
        self._fresh = True
        self._reader = owned.pop()

    def _read(
        self, reader: PostgresConnection, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        if is_one_key(ranges, follow):
            known = self._known(ranges[0].start, now)
            if known is not None:
                return [known], []
        self._fresh = False
        hiding = now != BEFORE_ALL_TIME
        failure: KvModelsError
        try:
            times = Times(self._now, NONE)
            _, found = reader.run(
                read_and_follow(self._store.texts, ranges, times, guard=None, follow=follow, hiding=hiding)
            )
        except psycopg.Error as error:
            failure = self._meaning(error)
        else:
            assert found is not None, "nothing comes between two reads of a snapshot"
            assert not isinstance(found, GuardFailed), "no guard was given"
            return found.ranges, found.followed
        raise failure

    def _known(self, key: bytes, now: int) -> list[Row] | None:
        """Return the rows of a key if it was read at the beginning; else None."""
        first = self._first
        if self._fresh and (first is None or first.key != key):
            self._store.begins_with(key)
        if first is None or first.key != key:
            return None
        self._fresh = False
        return first.visible(now)

    def _count(self, reader: PostgresConnection, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:  # noqa: ARG002 - every count is one call
        failure: KvModelsError
        try:
            _, found = reader.run(count_once(self._store.texts, ranges, None, Times(now, NONE)))
        except psycopg.Error as error:
            failure = self._meaning(error)
        else:
            assert not isinstance(found, GuardFailed), "no guard was given"
            return found.numbers
        raise failure

    def _meaning(self, error: psycopg.Error) -> KvModelsError:
        return lost_or_refused(error, self._store.url, self._store.schema)

    def _let_go(self, reader: PostgresConnection) -> None:
        self._store.return_snapshot(reader)
