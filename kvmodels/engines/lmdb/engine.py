"""The engine that keeps everything in one LMDB folder, and its snapshots; needs the extra ``lmdb``.

Rules of this module: handles, which translate calls into reads and commits of the shared store; see ``rows.py``,
``environment.py`` and ``file.py``. A snapshot owns one read transaction, and ends it when it is closed, when it is too
old, before the map is made larger and before the process forks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, cast

import lmdb

from kvmodels.core.operations import (
    Changes,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Row,
    to_versionstamp,
)
from kvmodels.engines.contract import Capabilities, ImmediateReads, WriteCalls
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.file import Databases, OpenEnvironment, data_file
from kvmodels.engines.lmdb.rows import Transaction
from kvmodels.engines.lmdb.store import LmdbStore
from kvmodels.engines.shared.background import require_reached, require_retention, resume_expired, without_change_log
from kvmodels.engines.shared.file_checks import canonical_path
from kvmodels.engines.shared.file_engine import (
    BEFORE_ALL_TIME,
    FileEngine,
    FileOptions,
    FileSnapshot,
    attach,
    require_sensible,
)
from kvmodels.engines.shared.registry import StoreHandle, StoreRegistry
from kvmodels.engines.sqlite.backup import copy_snapshot
from kvmodels.errors import InvalidArgumentError
from kvmodels.limits import Limits, Traits


class LmdbSnapshot(FileSnapshot[Transaction]):
    """A state of an LMDB store that stays readable while others write; close it soon.

    Expiry is judged at the time of its opening, so that two reads agree. While it is open, LMDB cannot use again the
    pages that later commits free, in no process: the file grows.
    """

    def __init__(
        self, engine: StoreHandle[Any], store: LmdbStore, transaction: Transaction, databases: Databases
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
            return lmdb_rows.count_ranges(reader, self._databases, ranges, now, most=most)
        except lmdb.Error as error:
            raise self._store.translated(error) from error

    def _let_go(self, reader: Transaction) -> None:
        reader.abort()


LMDB_TRAITS: Final = Traits(may_lose_answers=False, snapshots=True, blocking=True, persistent=True)

DEFAULT_MAP_SIZE: Final = 1 << 34
"""16 GiB of address space and not of disk; so large that the map of most stores never has to be made larger."""

SMALLEST_MAP_SIZE: Final = 1 << 18

_folders: StoreRegistry[LmdbStore] = StoreRegistry()


class LmdbEngine(FileEngine[LmdbStore]):
    """An ordered store in one LMDB folder, shared by any number of threads and processes of one machine.

    A read is one read transaction, which never waits; a commit is one write transaction, and one writer at a time
    is let in. Writers of one process that wait at the same time share a transaction. All engines of one process that
    open the same folder share its environment, and must ask for the same options.

    Args:
        path: the folder, made if it is absent; it holds ``data.mdb``, ``lock.mdb`` and ``writer.lock``.
        limits: the largest sizes, for the layers above; a key has at most 511 bytes.
        readonly: as for ``SqliteEngine``, as all other options; ``lock.mdb`` must be writable all the same, because
            readers register there.
        snapshot_max_age: seconds after which a snapshot expires; an open one keeps pages from being used again.
        map_size: bytes of address space to begin with. It grows by itself, twice as large each time; snapshots that
            are open in a process at that moment expire.

    Raises:
        EngineError: the path is a file, or the folder above it does not exist.
        ForeignFileError: the folder contains other files; it is left as it was.
        InvalidArgumentError: an option makes no sense, or the folder is open in this process with other options.
        EngineTimeoutError, DecodeError, UnsupportedError.
    """

    __slots__ = ("capabilities",)

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Limits = Limits.LMDB,
        *,
        url: str | None = None,
        durability: Literal["commit", "relaxed"] = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        busy_timeout: float = 5.0,
        snapshot_max_age: float = 60.0,
        allow_network_fs: bool = False,
        poll_interval: float = 0.05,
        change_log: float | timedelta | None = None,
        map_size: int = DEFAULT_MAP_SIZE,
    ) -> None:
        options = FileOptions(
            durability=durability,
            clock=clock,
            readonly=readonly,
            busy_timeout=busy_timeout,
            snapshot_max_age=snapshot_max_age,
            allow_network_fs=allow_network_fs,
            poll_interval=poll_interval,
            change_log=require_retention(change_log),
            map_size=map_size,
        )
        require_sensible(options, ("busy_timeout", "snapshot_max_age", "poll_interval"))
        _require_map_size(map_size)
        given = os.fspath(path)
        url = given if url is None else url
        folder = canonical_path(given, url)

        def opened() -> LmdbStore:
            store = LmdbStore(folder, url, options)
            store.open()
            return store

        store = attach(_folders, folder, url, options, opened)
        super().__init__(_folders, store, limits.within(Limits.LMDB), url)
        self.capabilities = Capabilities(
            LMDB_TRAITS,
            ImmediateReads(read=self.read_at_once, count=self.count_at_once, snapshot=self.snapshot_at_once),
            WriteCalls(submit=self.submit, reserve=self.reserve_writes, release=self.release_writes),
            turns=store.turns,
            files=(os.path.join(store.path, "data.mdb"),),
        )

    def snapshot_at_once(self) -> LmdbSnapshot | None:
        """Pin the present state in this thread if that takes no waiting, else return None. Raises ClosedError."""
        store = self.check_open()
        return store.reading_at_once(
            lambda opened: LmdbSnapshot(self, store, opened.environment.begin(), opened.databases)
        )

    def snapshot(self) -> LmdbSnapshot:
        """Pin the present state, with the deadlines as of now. One read transaction, which stays open."""
        store = self.check_open()
        return store.reading(lambda opened: LmdbSnapshot(self, store, opened.environment.begin(), opened.databases))

    def backup(self, path: str) -> None:
        """Write one snapshot into a new SQLite file; O(n), and commits go on meanwhile."""
        store = self.check_open()
        mode = stat.S_IMODE(os.stat(data_file(store.path)).st_mode)
        with self.snapshot() as state:
            state.keep()
            copy_snapshot(state, path, self.url, mode, self.now_ms())

    def _read(
        self,
        reader: OpenEnvironment,
        store: LmdbStore,
        ranges: Sequence[ReadRange],
        guard: Guard | None,
        follow: Follow | None,
        *,
        all_time: bool,
    ) -> ReadResult | GuardFailed:
        with reader.environment.begin() as transaction:
            state = store.state_in(transaction)
            now = BEFORE_ALL_TIME if all_time else max(store.clock.now_ms(), state.clock)
            rows = lmdb_rows.read_ranges(transaction, reader.databases, ranges, now, guard=guard, follow=follow)
            if isinstance(rows, GuardFailed):
                return rows
            return ReadResult(rows[0], rows[1], to_versionstamp(state.version))

    def _count(
        self,
        reader: OpenEnvironment,
        store: LmdbStore,
        ranges: Sequence[ReadRange],
        guard: Guard | None,
        most: int | None = None,
    ) -> Counted | GuardFailed:
        with reader.environment.begin() as transaction:
            state = store.state_in(transaction)
            now = max(store.clock.now_ms(), state.clock)
            if guard is not None:
                rows = lmdb_rows.read_ranges(transaction, reader.databases, (), now, guard=guard)
                if isinstance(rows, GuardFailed):
                    return rows
            numbers = lmdb_rows.count_ranges(transaction, reader.databases, ranges, now, most=most)
            return Counted(numbers, to_versionstamp(state.version))

    def _changes(self, reader: OpenEnvironment, store: LmdbStore, one: ReadRange, after: bytes) -> Changes:
        with reader.environment.begin() as transaction:
            state = store.state_in(transaction)
            if not state.retention_ms:
                raise without_change_log(store.url)
            require_reached(after, to_versionstamp(state.version))
            since = int.from_bytes(after[:8], "big")
            if since < state.floor:
                raise resume_expired(store.url, after, to_versionstamp(state.floor))
            now = max(store.clock.now_ms(), state.clock)
            changes, last = lmdb_rows.changes_in(transaction, reader.databases, one, since, now)
            return Changes(changes, to_versionstamp(state.version if last is None else last))


def _require_map_size(map_size: int) -> None:
    given = cast("object", map_size)
    if isinstance(given, bool) or not isinstance(given, int) or given < SMALLEST_MAP_SIZE:
        raise InvalidArgumentError(
            "the size of the map is too small or not a number",
            argument="map_size",
            value=map_size,
            hint=f"Give bytes, {SMALLEST_MAP_SIZE:,} or more; it grows by itself.",
        )
