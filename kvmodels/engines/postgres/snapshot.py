"""A state of a PostgreSQL store that stays readable, in a transaction on a connection of its own.

Rules of this module: a snapshot ends by a rollback that is sent and not waited for, so that a finalizer may do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import psycopg

from kvmodels.core.operations import Counted, Follow, GuardFailed, ReadRange, ReadResult, Row
from kvmodels.engines.postgres.connection import Calls, PostgresConnection
from kvmodels.engines.postgres.errors import is_lost, translated
from kvmodels.engines.postgres.reads import NONE, Statements, StateSeen, Times, count_once, read_and_follow
from kvmodels.engines.shared.file_engine import BEFORE_ALL_TIME, FileSnapshot, SnapshotStore
from kvmodels.engines.shared.registry import StoreHandle
from kvmodels.engines.shared.steps import unchanged
from kvmodels.errors import KvModelsError, SnapshotLostError

ResultT = TypeVar("ResultT")

UNTRANSLATED: Final = unchanged()
"""Raises psycopg's errors past the calls of a read."""

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


class FirstKeyStore(Protocol):
    """The store of the reads of a snapshot."""

    @property
    def texts(self) -> Statements:
        """Its statements."""
        ...

    def begins_with(self, key: bytes) -> None:
        """Have the next snapshot read this key while it begins."""
        ...


class BegunSnapshot(NamedTuple):
    """A transaction of one state that has begun: its connection, its state, and the row that was read with it."""

    connection: Any
    state: StateSeen
    first: FirstRow | None


class PinnedReads:
    """The reads of a snapshot, which threads and event loops carry out on its connection.

    Transactions read the header first. So a snapshot reads the key that the one before it has read first in the round
    trip that begins it.

    Args:
        store: whose texts they are.
        first: the row that was read with the beginning.
        now: milliseconds; deadlines are those of this time.
    """

    def __init__(self, store: FirstKeyStore, first: FirstRow | None, now: int) -> None:
        self._store = store
        self._first = first
        self._fresh = True
        self._now = now

    def known(self, ranges: Sequence[ReadRange], follow: Follow | None, *, hiding: bool) -> list[Row] | None:
        """Return the rows of one key that was read at the beginning; else None, and the next one begins with it."""
        fresh, self._fresh = self._fresh, False
        if not is_one_key(ranges, follow):
            return None
        key, first = ranges[0].start, self._first
        if first is not None and first.key == key:
            return first.visible(self._now if hiding else BEFORE_ALL_TIME)
        if fresh:
            self._store.begins_with(key)
        return None

    def reading(self, ranges: Sequence[ReadRange], follow: Follow | None, *, hiding: bool) -> Calls[ReadResult]:
        """Return the calls of a read."""
        times = Times(self._now, NONE)
        _, found = yield from read_and_follow(
            self._store.texts, ranges, times, guard=None, follow=follow, hiding=hiding
        )
        assert found is not None, "nothing comes between two reads of a snapshot"
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found

    def counting(self, ranges: Sequence[ReadRange]) -> Calls[Counted]:
        """Return the calls of a count."""
        _, found = yield from count_once(self._store.texts, ranges, None, Times(self._now, NONE))
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found


def lost_or_refused(error: psycopg.Error, url: str, schema: str) -> KvModelsError:
    """Return the error of this library for an error of a read in a snapshot."""
    if is_lost(error):
        return SnapshotLostError("the connection of this snapshot is lost", url=url, reason=error.sqlstate)
    return translated(error, url, schema)


def is_one_key(ranges: Sequence[ReadRange], follow: Follow | None) -> bool:
    """Return whether a read asks for one key and nothing else."""
    return follow is None and len(ranges) == 1 and ranges[0].end is None and ranges[0].limit is None


class SnapshotPool(FirstKeyStore, SnapshotStore, Protocol):
    """The store of a snapshot of a thread."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    @property
    def schema(self) -> str:
        """The quoted name of its schema."""
        ...

    def return_snapshot(self, connection: PostgresConnection) -> None:
        """Take the connection of a snapshot back, in a finalizer too."""
        ...


class PostgresSnapshot(FileSnapshot[PostgresConnection]):
    """A state of a PostgreSQL store that stays readable while others write; close it soon.

    It holds a connection, and keeps the server from removing rows that were deleted since. It sees the deadlines as of
    its opening, so that two reads of it agree.
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
        self._reads = PinnedReads(store, first, self._now)
        self._reader = owned.pop()

    def _read(
        self, reader: PostgresConnection, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        hiding = now != BEFORE_ALL_TIME
        known = self._reads.known(ranges, follow, hiding=hiding)
        if known is not None:
            return [known], []
        found = self._carried_out(reader, self._reads.reading(ranges, follow, hiding=hiding))
        return found.ranges, found.followed

    def _count(self, reader: PostgresConnection, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:  # noqa: ARG002 - every count is one call
        return self._carried_out(reader, self._reads.counting(ranges)).numbers

    def _carried_out(self, reader: PostgresConnection, calls: Calls[ResultT]) -> ResultT:
        failure: KvModelsError
        try:
            return reader.run(calls)
        except psycopg.Error as error:
            failure = lost_or_refused(error, self._store.url, self._store.schema)
        raise failure

    def _let_go(self, reader: PostgresConnection) -> None:
        self._store.return_snapshot(reader)
