"""A state of a memory store that stays readable while others write.

Rules of this module: a snapshot reads the store's present rows with those that it keeps for its view; it holds the
lock only while it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from kvmodels.core.operations import Counted, Follow, ReadRange, ReadResult
from kvmodels.engines.memory.store import MemoryStore, MemoryView
from kvmodels.errors import ClosedError, SnapshotExpiredError


class MemoryHandle(Protocol):
    """The engine that a snapshot belongs to."""

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    def check_open(self) -> MemoryStore:
        """The store of the handle, or ClosedError."""
        ...

    def enter(self, store: MemoryStore) -> bytes:
        """The stamp of the store, made whole; for calls that hold its lock."""
        ...


class MemorySnapshot:
    """A state of a memory store that stays readable while others write; close it soon.

    It sees the deadlines as of its opening, so that two reads of it agree.
    """

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _view: MemoryView | None = None

    def __init__(self, engine: MemoryHandle, store: MemoryStore, view: MemoryView) -> None:
        self._engine = engine
        self._store = store
        self._view = view

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._open_view().stamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. O(log n + rows) per range."""
        view, store = self._open_view(), self._store
        self._engine.check_open()
        with store.lock:
            self._require_readable(view)
            now = None if include_expired else view.now
            found = [store.scan_view(view, one, now) for one in ranges]
            followed = [] if follow is None else [store.scan_view(view, one, now) for one in follow(found)]
            return ReadResult(found, followed, view.stamp)

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give. O(log n + rows) per range. Raises SnapshotExpiredError, ClosedError."""
        view, store = self._open_view(), self._store
        self._engine.check_open()
        with store.lock:
            self._require_readable(view)
            return Counted([len(store.scan_view(view, one, view.now)) for one in ranges], view.stamp)

    def close(self) -> None:
        """Let the engine forget the state; idempotent. Takes no lock, so that a finalizer may call it anywhere."""
        view, self._view = self._view, None
        if view is not None:
            self._store.drop(view)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _require_readable(self, view: MemoryView) -> None:
        """For calls that hold the lock."""
        self._engine.enter(self._store)
        if self._store.clock.now_ms() >= view.expires_ms:
            raise SnapshotExpiredError("this snapshot is past its maximum age", url=self._engine.url)

    def _open_view(self) -> MemoryView:
        view = self._view
        if view is None:
            raise ClosedError("this snapshot is closed", url=self._engine.url, reason="closed")
        return view
