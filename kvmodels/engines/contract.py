"""The engine contract: the calls of an engine, what they guarantee, and the capabilities that an engine declares.

Rules of this module: ``tests/contract`` checks the contract against every engine. The layers above learn what an engine
can do from ``engine.capabilities`` alone. An engine may be called from any thread. It never repeats a commit by itself.

- One ``read`` is one snapshot over all its ranges, its guard and what ``follow`` asks for.
- A commit is applied whole or not at all; its rows share one versionstamp; versionstamps rise strictly in commit
  order, also for commits without effect. Checks see the state before the operation, mutations apply in order.
- A check with ``VACANT`` holds if no live key begins with the given parts, in the state before the operation.
- When it is opened for writing, or with its first commit after that, an engine raises its counter to max(counter + 1,
  wall clock in microseconds), so that a versionstamp is never used twice after a power loss, a restore or a restart.
  An engine of a server does so again after it has lost a connection.
- From its deadline on, a row is absent for reads, counts and checks, unless ``include_expired`` or a physical
  check asks for what is stored. The clock of an engine never goes back.
- What an engine says in its traits that it does not have, it refuses with UnsupportedError.
- After a fork the child gets ClosedError and never touches what belongs to the parent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels._support.turns import Turns
from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    PredictedFollow,
    ReadRange,
    ReadResult,
    Removal,
    Row,
    SuffixFollow,
    as_plain_rows,
)
from kvmodels.limits import Limits, Traits

SMALL_READ = 128
"""Rows that an event loop may read itself: half a millisecond on SQLite."""

SMALL_COUNT = 4_000
"""Rows that an event loop may count itself: a third of a millisecond."""


class Snapshot(Protocol):
    """A state of the store that stays readable while others write; close it soon."""

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        ...

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot.

        Raises:
            SnapshotExpiredError: it is past its maximum age, or the store has ended it (SnapshotLostError).
            ClosedError: it is closed.
        """
        ...

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as ``read``."""
        ...

    def keep(self) -> None:
        """Have no maximum age: for reads of the library, which end; a caller may forget to close its snapshot."""
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
    def capabilities(self) -> Capabilities:
        """How the engine behaves, and what it can do beyond this protocol; the same object at each call."""
        ...

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the clock that decides on expiry; it never goes back.

        It waits for nothing: an engine of a server estimates the server's clock from the last answers.
        """
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
            UnsupportedError: ``follow`` where the engine has no snapshots.
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
        """Pin the present state. Raises UnsupportedError where the engine has no snapshots."""
        ...

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed.

        Raises:
            CommitUnknownError: the answer was lost; the operation may have been applied.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer; nothing was applied.
            UnsupportedError: a versionstamped key, a function or an encoding that the traits rule out; nothing was
                applied.
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

        It also removes what the change log has kept for long enough, and uses a versionstamp only if it removes rows.
        Engines also sweep by themselves, in a thread of their own, when the first deadline is reached; not with a
        clock that was passed in, so that a test decides.

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
            ResumeExpiredError: the log no longer reaches back to ``after``, or the store never reached it.
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
            ClosedError, EngineTimeoutError, DecodeError, SnapshotLostError: nothing was written.
        """
        ...

    def close(self) -> None:
        """Wait for running calls, wake those that wait for a commit, then release everything; idempotent."""
        ...


class CommitQueue(Protocol):
    """The queue of operations that wait to be committed to one store."""

    @property
    def waiting(self) -> bool:
        """Whether the queue holds an operation."""
        ...

    def lead(self) -> None:
        """Commit everything in the queue, in as many transactions as it takes."""
        ...


class QueuedCommit(Protocol):
    """One operation in a commit queue."""

    @property
    def outcome(self) -> Committed | Conflict | Exception | None:
        """The outcome; None while there is none. Set for an operation that was withdrawn, and is refused."""
        ...

    @outcome.setter
    def outcome(self, outcome: Committed | Conflict | Exception | None, /) -> None: ...

    @property
    def committer(self) -> CommitQueue:
        """The queue that holds the operation."""
        ...

    def withdraw(self) -> bool:
        """Take the operation back; false if a thread has begun to carry it out, or has done so."""
        ...

    def result(self) -> Committed | Conflict:
        """Return the outcome, or raise it if it is an exception. To be called once, when there is an outcome."""
        ...


class CommitWaiter(Protocol):
    """Receives outcomes of queued operations. The leader calls both methods, which return at once and raise nothing."""

    def answered(self, member: QueuedCommit, /) -> None:
        """Note that an operation has its outcome; called for each operation of a transaction."""
        ...

    def call(self) -> None:
        """Wake the waiter, once for all its operations of a transaction, or because the queue has no leader."""
        ...


class ImmediateSnapshot(Snapshot, Protocol):
    """A snapshot whose small reads wait for nothing."""

    def read_at_once(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult | None:
        """Return the result of ``read``; None if the read is not small, or another thread uses the snapshot."""
        ...

    def count_at_once(self, ranges: Sequence[ReadRange]) -> Counted | None:
        """Return the result of ``count``; None if it is too large, or another thread uses the snapshot."""
        ...

    def close_at_once(self) -> bool:
        """Close it; false, and nothing is done, if another thread uses it."""
        ...


class AsyncSnapshot(Protocol):
    """A ``Snapshot`` for the coroutines of one event loop."""

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit that the snapshot contains."""
        ...

    async def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. Raises as ``Snapshot.read``."""
        ...

    async def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count what ``read`` would give, in the snapshot. Raises as ``Snapshot.read``."""
        ...

    def keep(self) -> None:
        """Have no maximum age, as ``Snapshot.keep``."""
        ...

    async def aclose(self) -> None:
        """Let the engine forget the state; idempotent. A cancelled read does not delay it."""
        ...


class AsyncEngine(Protocol):
    """The calls of an ``Engine`` as coroutines, for one event loop; each raises the errors of the method of that name.

    A read that is cancelled is abandoned. Cancelling ``commit`` withdraws an operation that was not sent. One that was
    sent is awaited to its outcome first, however often it is cancelled, and the CancelledError gets a note with
    ``outcome_note`` of ``engines/shared/group_commit.py``.
    """

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it."""
        ...

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot."""
        ...

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed."""
        ...

    async def snapshot(self) -> AsyncSnapshot:
        """Pin the present state. Cancelled, it leaves no snapshot open."""
        ...

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait until the versionstamp of the last commit is greater than ``after``, or the time is over."""
        ...

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed in commits later than ``after``, each once."""
        ...

    async def aclose(self) -> None:
        """Wait for the calls of this event loop, then release what it holds; idempotent. Other loops go on."""
        ...


class TurnReader(Protocol):
    """Reads single rows for one turn of an event loop, in a state that is at most as old as the turn."""

    def rows(self, key: bytes, /) -> list[Row] | None:
        """Return the row of a key, expired or not, never older than a commit of this process that has returned.

        Returns:
            None where ``ImmediateReads.read`` or ``Engine.read`` must read it.
        """
        ...

    def close(self) -> None:
        """End the reader; idempotent."""
        ...


class ImmediateRead(Protocol):
    """The call of ``ImmediateReads.read``."""

    def __call__(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed | None:
        """Return the result of ``Engine.read``, or None."""
        ...


@dataclass(frozen=True, slots=True)
class ImmediateReads:
    """Reads that wait for no lock and no connection, so that an event loop can carry them out itself.

    Each returns None if it would have to wait, and may raise ClosedError. A page of the file that is not in the cache
    of the operating system is waited for in any case.

    Attributes:
        row: returns the row of a key, or with a guard and a ``PredictedFollow`` the row of the guess, as a row or its
            plain tuple; ``()`` if a key alone has no row; None if only ``Engine.read`` can tell.
        read: returns the result of ``Engine.read``; None also if the read is not small. ``follow`` may be called
            although the answer is None.
        count: returns the result of ``Engine.count``; None also if there is too much to count.
        snapshot: returns the result of ``Engine.snapshot``; then every snapshot is an ``ImmediateSnapshot``.
        turn_reader: returns a new reader for one turn of an event loop, whose many single rows share one state.
    """

    row: Callable[[bytes, Guard | None, Follow | None], Sequence[Any] | None] | None = None
    read: ImmediateRead | None = None
    count: Callable[[Sequence[ReadRange], Guard | None], Counted | GuardFailed | None] | None = None
    snapshot: Callable[[], ImmediateSnapshot | None] | None = None
    turn_reader: Callable[[], TurnReader] | None = None


@dataclass(frozen=True, slots=True)
class WriteCalls:
    """Calls around a commit.

    Attributes:
        submit: puts an operation into a queue, whose operations are committed together without a thread for each, and
            returns at once; the caller then has ``committer.lead()`` called. A ``Removal`` only beside ``remove``. None
            if ``commit`` or ``remove`` is to be called instead.
            Raises ClosedError or ReadOnlyError if it is not in the queue; whatever else ``commit`` raises is its
            outcome.
        remove: reads a record and removes it in one transaction; see ``Removal``. Raises as ``Engine.commit``.
        reserve: keeps other processes from writing until the next commit of this one, for at most so many seconds of
            waiting, and returns whether that was reserved. Raises EngineTimeoutError if another process held it until
            then, and what ``commit`` raises.
        release: lets other processes write again; idempotent. Raises ClosedError.
        outcome: returns whether a commit was applied whose answer was lost, by the token of its
            ``CommitUnknownError``; if not, it never will be. Raises InvalidArgumentError for a token that is not one
            of the engine's, CommitUnknownError if the store did not answer or has forgotten the commit.
    """

    submit: Callable[[AtomicWrite | Removal, CommitWaiter], QueuedCommit | None] | None = None
    remove: Callable[[Removal], Committed | Conflict] | None = None
    reserve: Callable[[float], bool] | None = None
    release: Callable[[], None] | None = None
    outcome: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class ServerCalls:
    """Calls of an engine whose store is on a server.

    Attributes:
        native: returns the asynchronous form for the running event loop, always the same one, which waits for the
            network without threads; cheap after the first call. The form belongs to the loop, and goes with it. After
            the engine's own ``close``, its calls raise ClosedError.
        wait_for_keys: blocks until a key may have changed since an earlier wait for the same keys, where commits are
            not reported. It takes at most ``max_ranges`` keys, the result of the earlier wait, 0 for the first one, and
            the maximum number of seconds. It returns the given result if nothing has changed; another number otherwise,
            or if the caller has to look for itself. A change after an earlier return ends this wait. Raises
            ClosedError, also if the engine is closed meanwhile.
        await_keys: waits as ``wait_for_keys`` does, without blocking the running event loop.
        settle: waits until the state of a versionstamp that was read is durable, where commits may be visible before
            that. It returns false if a crash of the server has removed the state. Raises ClosedError,
            EngineTimeoutError. None where a read shows only what is durable.
        await_settled: waits as ``settle`` does, without blocking the running event loop.
        sizes: returns the size of each table in bytes on the server's disk, with its indexes, by qualified name. Raises
            ClosedError, EngineTimeoutError.
    """

    native: Callable[[], AsyncEngine] | None = None
    wait_for_keys: Callable[[tuple[bytes, ...], int, float], int] | None = None
    await_keys: Callable[[tuple[bytes, ...], int, float], Awaitable[int]] | None = None
    settle: Callable[[bytes], bool] | None = None
    await_settled: Callable[[bytes], Awaitable[bool]] | None = None
    sizes: Callable[[], dict[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything that the layers above may ask about an engine.

    Each group holds calls beyond the protocol, usually methods of the engine; None means that the engine does without.
    An engine that wraps another one passes on ``traits`` and no calls, unless it wraps these too: they would bypass the
    wrapper.

    Attributes:
        traits: how the engine behaves.
        immediate: reads that wait for nothing.
        writes: calls around a commit.
        server: calls of an engine of a server.
        turns: the queues of writers that want the same keys, shared by all handles of the store in this process.
        files: the paths of the files that hold the store; some may not exist at times.
        inner: for the engine of a part of a store, the engine of the store, whose threads carry out the calls.
    """

    traits: Traits
    immediate: ImmediateReads = ImmediateReads()
    writes: WriteCalls = WriteCalls()
    server: ServerCalls = ServerCalls()
    turns: Turns | None = None
    files: tuple[str, ...] = ()
    inner: Engine | None = None


class NotSmallError(Exception):
    """A read asks for more rows than an event loop may wait for; ``ImmediateReads.read`` returns None."""


def bounded(follow: Follow) -> Follow:
    """Wrap a follow-up function so that it raises NotSmallError where it asks for too many rows."""
    if isinstance(follow, SuffixFollow) or follow is as_plain_rows:
        return follow  # it asks for no more rows than the read gave
    if isinstance(follow, PredictedFollow):
        return PredictedFollow(bounded(follow.follow), follow.guess, others=follow.others)

    def small(found: list[list[Row]]) -> Sequence[ReadRange]:
        more = follow(found)
        if not is_small(more):
            raise NotSmallError
        return more

    return small


def is_small(ranges: Sequence[ReadRange]) -> bool:
    """Return whether a read asks for so few rows that an event loop may carry it out itself."""
    rows = 0
    for one in ranges:
        if one.end is None:
            rows += 1
        elif one.limit is None:
            return False
        else:
            rows += one.limit
    return rows <= SMALL_READ
