"""A state of a store in a file that stays readable: what is the same whichever library reads the file.

Rules of this module: a snapshot owns what reads for it from its beginning, and lets it go when it is closed, when it is
too old, and when the store needs it back (before the process forks, above all).
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from kvmodels.core.operations import Counted, Follow, ReadRange, ReadResult, Row, to_versionstamp
from kvmodels.engines.contract import SMALL_COUNT, NotSmallError, bounded, is_small
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.errors import ClosedError, SnapshotExpiredError

BEFORE_ALL_TIME = -(1 << 63)
"""The time to pass where expired rows are wanted: no deadline lies before it."""

ReaderT = TypeVar("ReaderT")


class PinnedSnapshot(Protocol):
    """A snapshot, which holds what reads for it until it is closed or expires."""

    def expire(self, now: int | None) -> None:
        """Let go if the maximum age is over at ``now`` (None: in any case)."""
        ...


class SnapshotHandle(Protocol):
    """The engine that a snapshot belongs to."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    def check_open(self) -> Any:
        """The store of the handle, or ClosedError."""
        ...


class SnapshotStore(Protocol):
    """The store that a snapshot belongs to."""

    clock: EngineClock
    snapshots: dict[int, weakref.ref[PinnedSnapshot]]

    @property
    def options(self) -> Any:
        """Has a ``snapshot_max_age``, in seconds."""
        ...


class FileSnapshot(ABC, Generic[ReaderT]):
    """A state of a store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree. A class for one library says how to read and
    how to let go, and sets ``_reader`` as the last step of its construction.
    """

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _reader: ReaderT | None = None

    def __init__(self, engine: SnapshotHandle, store: SnapshotStore, version: int, high_water: int) -> None:
        self._engine = engine
        self._kept_by = store
        self._lock = threading.Lock()
        self._expired = False
        self._versionstamp = to_versionstamp(version)
        self._now = max(store.clock.now_ms(), high_water)
        self._expires_ms = self._now + round(store.options.snapshot_max_age * 1_000)
        store.snapshots[id(self)] = weakref.ref(self)

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. O(log n + rows) per range."""
        self._require_open()
        with self._lock:
            reader = self._readable()
            now = BEFORE_ALL_TIME if include_expired else self._now
            found, followed = self._read(reader, ranges, now, follow)
            return ReadResult(found, followed, self._versionstamp)

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give. O(log n + rows) per range, and a row costs a tenth of reading it."""
        return self._counted(ranges, None)

    def count_at_once(self, ranges: Sequence[ReadRange]) -> Counted | None:
        """Count in this thread if that is soon done and no other thread uses the snapshot, else None."""
        if self._lock.locked():
            return None
        try:
            return self._counted(ranges, SMALL_COUNT)
        except NotSmallError:
            return None

    def read_at_once(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult | None:
        """Read in this thread if the read is small and no other thread uses the snapshot, else None."""
        if self._lock.locked() or not is_small(ranges):
            return None
        try:
            return self.read(
                ranges, include_expired=include_expired, follow=None if follow is None else bounded(follow)
            )
        except NotSmallError:
            return None

    def expire(self, now: int | None) -> None:
        """Let go if the maximum age is over at ``now`` (None: in any case)."""
        if now is None or now >= self._expires_ms:
            with self._lock:
                self._expired = self._expired or self._reader is not None
                self._release()

    def close(self) -> None:
        """Let the engine forget the state; idempotent."""
        with self._lock:
            self._release()

    def close_at_once(self) -> bool:
        """Close it, unless another thread uses it; whether it is closed."""
        if self._lock.locked():
            return False
        self.close()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        # No lock: nobody else can refer to it now, and a finalizer may run while its thread holds any lock.
        if self._reader is not None:
            self._release()

    @abstractmethod
    def _read(
        self, reader: ReaderT, ranges: Sequence[ReadRange], now: int, follow: Follow | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        """Rows per range and per followed range, with errors of this library; ``now``: see ``BEFORE_ALL_TIME``."""

    @abstractmethod
    def _count(self, reader: ReaderT, ranges: Sequence[ReadRange], now: int, most: int | None) -> list[int]:
        """Live rows per range, with errors of this library; NotSmallError for more than ``most``."""

    @abstractmethod
    def _let_go(self, reader: ReaderT) -> None:
        """Give back what reads. Takes no lock that is held while other code runs."""

    @abstractmethod
    def _is_lost(self, reader: ReaderT) -> bool:
        """Whether the store has taken back what reads without a word."""

    def _counted(self, ranges: Sequence[ReadRange], most: int | None) -> Counted:
        self._require_open()
        with self._lock:
            return Counted(self._count(self._readable(), ranges, self._now, most), self._versionstamp)

    def _require_open(self) -> None:
        self._engine.check_open()
        self.expire(self._kept_by.clock.now_ms())

    def _readable(self) -> ReaderT:
        reader = self._reader
        if reader is None or self._is_lost(reader):
            raise self._gone()
        return reader

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        self._kept_by.snapshots.pop(id(self), None)
        if reader is not None:
            self._let_go(reader)

    def _gone(self) -> ClosedError | SnapshotExpiredError:
        if self._expired or self._reader is not None:
            return SnapshotExpiredError("this snapshot is past its maximum age", url=self._engine.url)
        return ClosedError("this snapshot is closed", url=self._engine.url, reason="closed")


def expire_snapshots(snapshots: dict[int, weakref.ref[PinnedSnapshot]], now: int | None) -> None:
    """End the snapshots that are too old (None: all), so that a forgotten one releases the file."""
    for number, reference in list(snapshots.items()):
        snapshot = reference()
        if snapshot is None:
            snapshots.pop(number, None)
        else:
            snapshot.expire(now)
