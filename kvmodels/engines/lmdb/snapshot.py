"""A state of an LMDB store that stays readable, in a read transaction of its own.

Rules of this module: a snapshot owns one read transaction from its beginning, and ends it when it is closed, when it is
too old, before the map is made larger and before the process forks.
"""

from __future__ import annotations

from collections.abc import Sequence

import lmdb

from kvmodels.core.operations import Follow, GuardFailed, ReadRange, Row
from kvmodels.engines.lmdb import counts as lmdb_counts
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.bulk_reads import Transaction
from kvmodels.engines.lmdb.file import Databases
from kvmodels.engines.lmdb.store import LmdbStore
from kvmodels.engines.shared.file_snapshot import FileSnapshot, SnapshotHandle


class LmdbSnapshot(FileSnapshot[Transaction]):
    """A state of an LMDB store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree. While it is open, LMDB cannot use again the
    pages that later commits free, in no process: the file grows.
    """

    def __init__(
        self, engine: SnapshotHandle, store: LmdbStore, transaction: Transaction, databases: Databases
    ) -> None:
        state = store.state_in(transaction)
        super().__init__(engine, store, state.version, state.clock)
        self._store = store
        self._databases = databases
        self._reader = transaction

    def _read(
        self, reader: Transaction, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        try:
            found = lmdb_rows.read_ranges(reader, self._databases, ranges, now, follow=follow)
        except lmdb.Error as error:
            raise self._store.translated(error) from error
        assert not isinstance(found, GuardFailed), "no guard was given"
        return found

    def _count(self, reader: Transaction, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:
        try:
            return lmdb_counts.count_ranges(reader, self._databases, ranges, now, most=most)
        except lmdb.Error as error:
            raise self._store.translated(error) from error

    def _let_go(self, reader: Transaction) -> None:
        reader.abort()

    def _is_lost(self, reader: Transaction) -> bool:
        del reader  # the store expires its snapshots before it closes or resizes the environment
        return False
