"""The engine contract: what a store must do, so that everything above it is right.

Rules of this module: the contract is stated here and shown by ``tests/contract``, which runs against every
engine. An engine may be called from any thread. It never sends a commit again by itself.

- One ``read`` is one snapshot over all its ranges, its guard and what ``follow`` asks for.
- A commit is applied whole or not at all; its rows share one versionstamp; versionstamps rise strictly in commit
  order, also for commits without effect. Checks see the state before the operation, mutations apply in order.
- When it is opened for writing, or with its first commit after that, an engine raises its counter to max(counter + 1,
  wall clock in microseconds), so that a versionstamp is never used twice after a power loss, a restore or a restart.
- From its deadline on, a row is absent for reads, counts and checks, unless ``include_expired`` or a physical
  check asks for what is stored. The clock of an engine never goes back.
- After a fork the child gets ClosedError and never touches what belongs to the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from kvmodels.engines.group_commit import Member, Waiter
from kvmodels.limits import Limits, Traits
from kvmodels.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    Likely,
    Nothing,
    ReadRange,
    ReadResult,
    Removal,
    Row,
    Tail,
)

__all__ = [
    "SMALL_COUNT",
    "EmbeddedEngine",
    "EmbeddedSnapshot",
    "Engine",
    "Glance",
    "GlancingEngine",
    "NotSmallError",
    "RemovingEngine",
    "Snapshot",
    "bounded",
    "is_small",
]

SMALL_READ = 128
"""Rows that a read may ask for to be carried out by a thread that must not be kept: half a millisecond on SQLite."""


SMALL_COUNT = 4_000
"""Rows that may be counted by a thread that must not be kept: a third of a millisecond."""


class Snapshot(Protocol):
    """A state of the store that stays readable while others write; close it soon."""

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        ...

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. Raises SnapshotExpiredError past the maximum age, ClosedError when closed."""
        ...

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as ``read``."""
        ...

    def close(self) -> None:
        """Let the engine forget the state; idempotent."""
        ...


class Engine(Protocol):
    """An ordered key-value store with versionstamps and atomic check-and-mutate."""

    @property
    def limits(self) -> Limits:
        """The largest sizes that it takes."""
        ...

    @property
    def traits(self) -> Traits:
        """How it behaves."""
        ...

    @property
    def url(self) -> str:
        """What was opened, for messages."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the clock that decides on expiry; it never goes back."""
        ...

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it.

        Raises:
            UnsupportedError: ``follow`` where the trait ``snapshots`` is false.
            ClosedError, EngineTimeoutError, DecodeError: nothing was read; the last one for a damaged file.
        """
        ...

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot, without making them.

        A limit bounds the number and the work. An engine may count faster than it reads, and must not count otherwise:
        rows past their deadline are no part of it.

        Raises:
            ClosedError, EngineTimeoutError, DecodeError: nothing was counted; the last one for a damaged file.
        """
        ...

    def snapshot(self) -> Snapshot:
        """Pin the present state. Raises UnsupportedError where the trait ``snapshots`` is false."""
        ...

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed.

        Raises:
            CommitUnknownError: the answer was lost; the operation may have been applied.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer; nothing was applied.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError: nothing was applied.
        """
        ...

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when this engine is closed, until the result is called.

        A commit of this process calls at once, in the thread that made it; one of another process is found within
        the engine's ``poll_interval``. ``wake`` returns at once and raises nothing; several commits may share a
        call. Raises ClosedError.
        """
        ...

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Args:
            after: ten bytes; ``ReadResult.versionstamp`` waits for what the read did not see.
            timeout_s: seconds, 0 or more; 0 only asks, infinity waits for ever.

        Returns:
            The versionstamp of the last commit.

        Raises:
            ClosedError: the engine is closed, or was while this waited; EngineTimeoutError, DecodeError.
        """
        ...

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, in one commit; how many there were.

        It uses a versionstamp only if it removes something. Engines also sweep by themselves, in a thread of their
        own, when the first deadline is reached; not with a clock that was passed in, so that a test decides.

        Raises:
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError: nothing was removed.
        """
        ...

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed in commits later than ``after``, each once, in order of the last change.

        At least ``one.limit`` changes if there are so many: commits are not cut in two.

        Args:
            one: has an end and a limit; the direction is not used.
            after: ten bytes; ``Changes.through`` goes on where the last call ended.

        Raises:
            UnsupportedError: the store keeps no change log.
            ResumeExpiredError: the log no longer reaches back to ``after``.
            InvalidArgumentError: the store never reached ``after``.
            ClosedError, EngineTimeoutError, DecodeError: nothing was read.
        """
        ...

    def backup(self, path: str) -> None:
        """Write the present state into a new SQLite file that this library opens, beside readers and writers.

        It holds one snapshot with all versionstamps and deadlines. The file appears whole or not at all.

        Args:
            path: where no file is; its folder must exist.

        Raises:
            EngineError: there is a file already, or it cannot be written; StorageFullError: no room.
            ClosedError, EngineTimeoutError, DecodeError, SnapshotExpiredError: nothing was written.
        """
        ...

    def close(self) -> None:
        """Wait for running calls, wake those that wait for a commit, then release everything; idempotent."""
        ...


class EmbeddedSnapshot(Snapshot, Protocol):
    """A snapshot of an embedded engine."""

    def read_at_once(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult | None:
        """What ``read`` returns; None if the read is not small, or another thread uses the snapshot. Raises as it."""
        ...

    def count_at_once(self, ranges: Sequence[ReadRange]) -> Counted | None:
        """What ``count`` returns; None if there is too much to count, or another thread uses the snapshot."""
        ...

    def close_at_once(self) -> bool:
        """Close it; false, and nothing is done, if another thread uses it."""
        ...


@runtime_checkable
class EmbeddedEngine(Protocol):
    """An engine inside the process that an event loop can use without a thread for every call.

    It commits what waits in one queue, several operations in one transaction, and knows which reads wait for nothing.
    """

    def submit(self, write: AtomicWrite | Removal, waiter: Waiter) -> Member:
        """Put an operation into the queue and return at once; ``member.committer.lead()`` must be called then.

        A ``Removal`` only if the engine is a RemovingEngine as well.

        Raises:
            ClosedError, ReadOnlyError: it is not in the queue. Whatever else ``commit`` raises is its outcome.
        """
        ...

    def read_at_once(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed | None:
        """What ``read`` returns; None if the read is not small, or would have to wait for a lock or a connection.

        ``follow`` may be called although the answer is None. A page of the file that is not in the operating system's
        cache is waited for in any case.

        Raises:
            ClosedError: the engine is closed.
        """
        ...

    def count_at_once(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed | None:
        """What ``count`` returns; None if there is too much to count, or it would have to wait for somebody.

        Raises:
            ClosedError: the engine is closed.
        """
        ...

    def snapshot_at_once(self) -> EmbeddedSnapshot | None:
        """What ``snapshot`` returns; None if that would have to wait. Raises ClosedError."""
        ...


class RemovingEngine(Protocol):
    """An embedded engine that reads what it removes inside the transaction of the removal; no other has this method."""

    def remove(self, removal: Removal, /) -> Committed | Conflict:
        """Apply a removal whole, or say what it met; see ``Removal``. Raises as ``Engine.commit``."""
        ...


class Glance(Protocol):
    """Reads single rows for one turn of an event loop, in a state that is as old as the turn at most."""

    def rows(self, key: bytes, /) -> list[Row] | None:
        """The row of a key, expired or not, never older than a commit of this process that has returned.

        Returns:
            None where it must be read by ``read_at_once``, or by ``read``.
        """
        ...

    def close(self) -> None:
        """End it; it may be called again."""
        ...


@runtime_checkable
class GlancingEngine(Protocol):
    """An embedded engine of which many single rows are read faster in one state than each in its own."""

    def glance(self) -> Glance:
        """A new one, for the thread that asks. Raises ClosedError."""
        ...


class NotSmallError(Exception):
    """A read asks for more rows than an event loop may wait for; ``read_at_once`` answers None."""


def bounded(follow: Follow) -> Follow:
    """The same function, which raises NotSmallError where it asks for too much."""
    if isinstance(follow, Tail | Nothing):
        return follow  # it asks for no more rows than the read gave
    if isinstance(follow, Likely):
        return Likely(bounded(follow.follow), follow.guess, others=follow.others)

    def small(found: list[list[Row]]) -> Sequence[ReadRange]:
        more = follow(found)
        if not is_small(more):
            raise NotSmallError
        return more

    return small


def is_small(ranges: Sequence[ReadRange]) -> bool:
    """Whether a read asks for so few rows that an event loop may carry it out itself."""
    rows = 0
    for one in ranges:
        if one.end is None:
            rows += 1
        elif one.limit is None:
            return False
        else:
            rows += one.limit
    return rows <= SMALL_READ
