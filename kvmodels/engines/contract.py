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

from collections.abc import Callable, Sequence
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

    outcome: Committed | Conflict | Exception | None

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


class SubmittingEngine(Protocol):
    """Commits operations of many callers together, several in one transaction, without a thread for each call."""

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit:
        """Put an operation into the queue and return at once; the caller then has ``committer.lead()`` called.

        A ``Removal`` only if the engine has a ``Remover``.

        Raises:
            ClosedError, ReadOnlyError: it is not in the queue. Whatever else ``commit`` raises is its outcome.
        """
        ...


class AtOnceSnapshot(Snapshot, Protocol):
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


class AtOnceEngine(Protocol):
    """Reads that wait for no lock and no connection, which an event loop carries out itself.

    Every snapshot of such an engine is an ``AtOnceSnapshot``.
    """

    def read_at_once(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed | None:
        """Return the result of ``read``; None if the read is not small or would wait for a lock or a connection.

        ``follow`` may be called although the answer is None. A page of the file that is not in the operating system's
        cache is waited for in any case.

        Raises:
            ClosedError: the engine is closed.
        """
        ...

    def count_at_once(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed | None:
        """Return the result of ``count``; None if it is too large or would have to wait.

        Raises:
            ClosedError: the engine is closed.
        """
        ...

    def snapshot_at_once(self) -> AtOnceSnapshot | None:
        """Return the result of ``snapshot``; None if that would have to wait. Raises ClosedError."""
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


class NativeEngine(Protocol):
    """Has an asynchronous form, which waits for the network without threads."""

    def native(self) -> AsyncEngine:
        """Return the form for the running event loop, always the same one; it is cheap after the first call.

        It belongs to the loop, and goes with it. After the engine's own ``close``, its calls raise ClosedError.
        """
        ...


class KeyWatcher(Protocol):
    """Waits for changes of some keys, on an engine that does not report every commit."""

    def wait_for_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait until a key may have changed since an earlier wait for the same keys, at most ``timeout_s`` seconds.

        Args:
            keys: the keys, at most ``max_ranges``.
            after: what the earlier wait returned; 0 for the first one. A change after that return ends this wait.
            timeout_s: seconds, 0 or more.

        Returns:
            ``after`` if nothing has changed; another number otherwise, or if the caller has to look for itself.

        Raises:
            ClosedError: the engine is closed, or was while this waited.
        """
        ...

    async def await_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait as ``wait_for_keys`` does, without blocking the running event loop."""
        ...


class PointReader(Protocol):
    """Reads one row without the lists of a ``ReadResult``, and waits for nothing."""

    def row_at_key(self, key: bytes, guard: Guard | None, follow: Follow | None, /) -> Sequence[Any] | None:
        """Return the row of a key, or with a guard the row that follows from it.

        Args:
            key: of the row.
            guard: must hold in the state that is read.
            follow: a ``PredictedFollow``, whose guess names the second row.

        Returns:
            A row or its plain tuple; ``()`` if a read of the key alone finds no row; None if only ``read`` can tell.
        """
        ...


class TurnReader(Protocol):
    """Reads single rows for one turn of an event loop, in a state that is at most as old as the turn."""

    def rows(self, key: bytes, /) -> list[Row] | None:
        """Return the row of a key, expired or not, never older than a commit of this process that has returned.

        Returns:
            None where it must be read by ``read_at_once``, or by ``read``.
        """
        ...

    def close(self) -> None:
        """End the reader; idempotent."""
        ...


class TurnReaderFactory(Protocol):
    """Makes readers that share one state for the many single rows of one turn of an event loop."""

    def turn_reader(self) -> TurnReader:
        """Return a new reader for the calling thread. Raises ClosedError."""
        ...


class Remover(Protocol):
    """Reads a record and removes it in one transaction."""

    def remove(self, removal: Removal, /) -> Committed | Conflict:
        """Apply a removal whole, or return the conflict; see ``Removal``. Raises as ``Engine.commit``."""
        ...


class WriteReserver(Protocol):
    """Reserves the right to write for this process, so that other processes cannot commit in between."""

    def reserve_writes(self, seconds: float, /) -> bool:
        """Keep other processes from writing until the next commit of this one; return whether that was reserved.

        Raises:
            EngineTimeoutError: another process held it until the time was over; and what ``commit`` raises.
        """
        ...

    def release_writes(self) -> None:
        """Let other processes write again; idempotent. Raises ClosedError."""
        ...


class CommitResolver(Protocol):
    """Finds out what became of a commit whose answer was lost, without a token in the store."""

    def outcome(self, token: str, /) -> bool:
        """Return whether the commit was applied; if not, it never will be.

        Raises:
            InvalidArgumentError: the token is not one of the engine's.
            CommitUnknownError: the store did not answer, or has forgotten the commit.
        """
        ...


class SizeReader(Protocol):
    """Measures the tables of a store on a server."""

    def sizes(self) -> dict[str, int]:
        """Return the size of each table in bytes on the server's disk, with its indexes, by qualified name.

        Raises:
            ClosedError, EngineTimeoutError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything that the layers above may ask about an engine.

    A member other than ``traits`` holds the object that offers the calls, which is usually the engine; None means that
    the engine does without. An engine that wraps another one passes on ``traits`` and nothing else, unless it wraps
    the calls of that member too: they would go past the wrapper.

    Attributes:
        traits: how the engine behaves.
        submitting: a queue of operations that are committed together, without a thread for each.
        at_once: reads that wait for nothing.
        native: the asynchronous form, which the asynchronous driver uses in the place of threads.
        key_watcher: waits for changes of some keys, where commits are not reported.
        point_reader: a faster read of one row.
        turn_readers: a faster read of many single rows in one turn of an event loop.
        remover: a removal that reads the record in its own transaction.
        write_reserver: a reservation of the right to write, against other processes.
        commit_resolver: finds out what became of a commit by the token of its ``CommitUnknownError``.
        turns: the queues of writers that want the same keys, shared by all handles of the store in this process.
        files: the paths of the files that hold the store; some may not exist at times.
        size_reader: measures the tables of a store that has no files here.
    """

    traits: Traits
    submitting: SubmittingEngine | None = None
    at_once: AtOnceEngine | None = None
    native: NativeEngine | None = None
    key_watcher: KeyWatcher | None = None
    point_reader: PointReader | None = None
    turn_readers: TurnReaderFactory | None = None
    remover: Remover | None = None
    write_reserver: WriteReserver | None = None
    commit_resolver: CommitResolver | None = None
    turns: Turns | None = None
    files: tuple[str, ...] = ()
    size_reader: SizeReader | None = None


class NotSmallError(Exception):
    """A read asks for more rows than an event loop may wait for; ``read_at_once`` returns None."""


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
