"""A state of an LMDB store that stays readable, in a read transaction of its own.

Rules of this module: a snapshot owns one read transaction from its beginning, and ends it when it is closed, when it is
too old, before the map is made larger and before the process forks.
"""

from __future__ import annotations

from collections.abc import Sequence

import lmdb

from kvmodels.engines import lmdb_counts, lmdb_rows
from kvmodels.engines.file_snapshot import FileSnapshot, SnapshotHandle
from kvmodels.engines.lmdb_file import Databases
from kvmodels.engines.lmdb_store import LmdbStore
from kvmodels.operations import Follow, GuardFailed, ReadRange, Row

__all__ = ["LmdbSnapshot"]


class LmdbSnapshot(FileSnapshot[lmdb_rows.Transaction]):
    """A state of an LMDB store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree. While it is open, LMDB cannot use again the
    pages that later commits free, in no process: the file grows.
    """

    def __init__(
        self, engine: SnapshotHandle, store: LmdbStore, transaction: lmdb_rows.Transaction, databases: Databases
    ) -> None:
        state = store.state_in(transaction)
        super().__init__(engine, store, state.version, state.clock)
        self._store = store
        self._databases = databases
        self._reader = transaction

    def _read(
        self, reader: lmdb_rows.Transaction, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        try:
            found = lmdb_rows.read_ranges(reader, self._databases, ranges, now, follow=follow)
        except lmdb.Error as error:
            raise self._store.translated(error) from error
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found

    def _count(
        self, reader: lmdb_rows.Transaction, ranges: Sequence[ReadRange], now: int, most: int | None
    ) -> list[int]:
        try:
            return lmdb_counts.count_ranges(reader, self._databases, ranges, now, most=most)
        except lmdb.Error as error:
            raise self._store.translated(error) from error

    def _let_go(self, reader: lmdb_rows.Transaction) -> None:
        reader.abort()

    def _is_lost(self, reader: lmdb_rows.Transaction) -> bool:
        del reader  # the store expires its snapshots before it closes or resizes the environment
        return False
