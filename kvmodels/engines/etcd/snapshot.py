"""A state of a store that stays readable: a revision of the cluster, which costs nothing to keep.

Rules of this module: a compaction ends a snapshot, and so does its maximum age, so that both are met by the same code.
Transactions read the header first. So a snapshot reads the key that the one before it has read first in the round trip
that begins it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

from kvmodels.core.operations import Counted, Follow, ReadRange, ReadResult, Row, point
from kvmodels.engines.etcd.protocol.calls import CompactedError
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.reads import EtcdReading, count_pinned, pin_and_read, pin_steps, read_pinned
from kvmodels.engines.etcd.store import EtcdStore, Pin
from kvmodels.engines.shared.evaluation import visible
from kvmodels.errors import ClosedError, SnapshotExpiredError, SnapshotLostError

T = TypeVar("T")


class StepsRunner(Protocol):
    """Carries out flows while an engine is open."""

    def __call__(self, make: Callable[[], Steps[T]], /) -> T:
        """Make a flow, carry it out, and return its result. Raises ClosedError, and what the flow raises."""
        ...


class AsyncStepsRunner(Protocol):
    """Carries out flows in an event loop while an engine is open."""

    async def __call__(self, make: Callable[[], Steps[T]], /) -> T:
        """Make a flow, carry it out, and return its result. Raises ClosedError, and what the flow raises."""
        ...


class FirstRead(NamedTuple):
    """A key that was read while a snapshot began, and its row, expired or not."""

    key: bytes
    rows: list[Row]


def snapshot_steps(store: EtcdStore) -> Steps[SnapshotState]:
    """Pin the present state. Raises EngineTimeoutError, EngineError."""
    reading = EtcdReading(store, hiding=False, attempts=store.attempts())
    key = store.first_key
    if key is None:
        return SnapshotState(store, (yield from pin_steps(reading)), None)
    pin, rows = yield from pin_and_read(reading, key)
    return SnapshotState(store, pin, FirstRead(key, rows))


class SnapshotState:
    """The common part of both forms of a snapshot.

    Args:
        store: that is read.
        pin: the state.
        first: was read in it already; None if nothing was.
    """

    def __init__(self, store: EtcdStore, pin: Pin, first: FirstRead | None) -> None:
        self._store = store
        self._pin = pin
        self._first = first
        self._is_unread = True
        self._expires_ms: float = pin.now_ms + round(store.options.snapshot_max_age * 1_000)
        self._closed = False

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._pin.versionstamp

    def reading(
        self, ranges: Sequence[ReadRange], *, include_expired: bool, follow: Follow | None
    ) -> Steps[ReadResult]:
        """Return the flow of ``read``. Raises ClosedError, SnapshotExpiredError."""
        reading = self._reading(hiding=not include_expired)

        def steps() -> Steps[ReadResult]:
            known = self._known(ranges, follow, hiding=not include_expired)
            if known is not None:
                return ReadResult([known], [], self.versionstamp)
            found, followed = yield from read_pinned(reading, self._pin, ranges, follow)
            return ReadResult(found, followed, self.versionstamp)

        return self._until_compacted(steps())

    def counting(self, ranges: Sequence[ReadRange]) -> Steps[Counted]:
        """Return the flow of ``count``. Raises ClosedError, SnapshotExpiredError."""
        reading = self._reading(hiding=True)

        def steps() -> Steps[Counted]:
            return Counted((yield from count_pinned(reading, self._pin, ranges)), self.versionstamp)

        return self._until_compacted(steps())

    def keep(self) -> None:
        """Have no maximum age."""
        self._expires_ms = math.inf

    def end(self) -> None:
        """Refuse further reads; idempotent."""
        self._closed = True

    def _reading(self, *, hiding: bool) -> EtcdReading:
        if self._closed:
            raise ClosedError("this snapshot is closed", url=self._store.url, reason="closed")
        if self._store.clock.now_ms() >= self._expires_ms:
            raise SnapshotExpiredError("this snapshot is past its maximum age", url=self._store.url)
        return EtcdReading(self._store, hiding, self._store.attempts())

    def _known(self, ranges: Sequence[ReadRange], follow: Follow | None, *, hiding: bool) -> list[Row] | None:
        """Return the rows of a single key that was read at the beginning; else None."""
        is_first, self._is_unread = self._is_unread, False
        if follow is not None or len(ranges) != 1 or ranges[0] != point(ranges[0].start):
            return None
        key, first = ranges[0].start, self._first
        if first is not None and first.key == key:
            return [row for row in first.rows if not hiding or visible(row, self._pin.now_ms) is not None]
        if is_first:
            self._store.first_key = key
        return None

    def _until_compacted(self, steps: Steps[T]) -> Steps[T]:
        try:
            return (yield from steps)
        except CompactedError:
            pass
        raise SnapshotLostError(
            "the cluster was compacted beyond the state of this snapshot",
            url=self._store.url,
            reason="compacted",
            hint="Start again with a new snapshot. If that takes longer than the cluster keeps its history, raise "
            "--auto-compaction-retention of the servers.",
        )


class EtcdSnapshot:
    """A state of a store that stays readable while others write; close it soon.

    Expiry is judged at the time of its opening, so that two reads agree.

    Args:
        state: the state to read.
        run: runs a flow, as long as the engine is open.
    """

    def __init__(self, state: SnapshotState, run: StepsRunner) -> None:
        self._state = state
        self._run = run

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._state.versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. One round trip, and a second one for what follows.

        Raises:
            SnapshotExpiredError: it is past its maximum age, or the cluster was compacted (SnapshotLostError).
            ClosedError, EngineTimeoutError, DecodeError.
        """
        return self._run(lambda: self._state.reading(ranges, include_expired=include_expired, follow=follow))

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as ``read``."""
        return self._run(lambda: self._state.counting(ranges))

    def keep(self) -> None:
        """Have no maximum age."""
        self._state.keep()

    def close(self) -> None:
        """Refuse further reads; idempotent."""
        self._state.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class EtcdAsyncSnapshot:
    """A snapshot for the coroutines of one event loop.

    Args:
        state: the state to read.
        run: runs a flow, as long as the engine is open.
    """

    def __init__(self, state: SnapshotState, run: AsyncStepsRunner) -> None:
        self._state = state
        self._run = run

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        return self._state.versionstamp

    async def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. Raises as ``EtcdSnapshot.read``."""
        return await self._run(lambda: self._state.reading(ranges, include_expired=include_expired, follow=follow))

    async def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as ``EtcdSnapshot.read``."""
        return await self._run(lambda: self._state.counting(ranges))

    def keep(self) -> None:
        """Have no maximum age."""
        self._state.keep()

    async def aclose(self) -> None:
        """Refuse further reads; idempotent."""
        self._state.end()
