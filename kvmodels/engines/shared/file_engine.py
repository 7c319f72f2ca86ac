"""The common part of engines on a file: handles of a store that the process opens once, and snapshots of it.

Rules of this module: a handle translates calls and nothing more; the state that two handles share is in the store. How
the store reads and writes is the business of the engine. A snapshot owns its reader from its beginning, and releases it
when it is closed, when it is too old, and when the store needs it back, such as before the process forks.
"""

from __future__ import annotations

import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

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
    ReadRange,
    ReadResult,
    Removal,
    Row,
    to_versionstamp,
)
from kvmodels.engines.contract import SMALL_COUNT, CommitWaiter, NotSmallError, QueuedCommit, bounded, is_small
from kvmodels.engines.shared.background import BackgroundStore, StoreBackground, require_sweep_limit
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.file_checks import FileIdentity, read_only, replaced, unusable
from kvmodels.engines.shared.group_commit import Group, GroupCommitter, UncontendedCommit
from kvmodels.engines.shared.registry import SharedStore, StoreHandle, StoreRegistry, require_same_options
from kvmodels.engines.shared.waiting import Backoff, SharedBackoff, wait_for
from kvmodels.errors import ClosedError, InvalidArgumentError, KvModelsError, SnapshotExpiredError, SnapshotLostError
from kvmodels.limits import Limits

BEFORE_ALL_TIME = -(1 << 63)
"""The time to pass where expired rows are wanted: no deadline lies before it."""

ReaderT = TypeVar("ReaderT")
T = TypeVar("T")


class SnapshotStore(Protocol):
    """The store that a snapshot belongs to."""

    clock: EngineClock
    snapshots: dict[int, weakref.ref[FileSnapshot[Any]]]

    @property
    def options(self) -> Any:
        """Has a ``snapshot_max_age``, in seconds."""
        ...


class FileSnapshot(ABC, Generic[ReaderT]):
    """A state of a store that stays readable while others write; close it soon.

    Expiry is judged at the time of its opening, so that two reads agree. A class for one library says how to read and
    how to let go, and sets ``_reader`` as the last step of its construction.

    Attributes:
        versionstamp: the versionstamp of the last commit that the snapshot contains.
    """

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _reader: ReaderT | None = None

    def __init__(self, engine: StoreHandle[Any], store: SnapshotStore, version: int, high_water: int) -> None:
        self._engine = engine
        self._kept_by = store
        self._lock = threading.Lock()
        self._expired = False
        self._taken = False
        self.versionstamp = to_versionstamp(version)
        self._now = max(store.clock.now_ms(), high_water)
        self._expires_ms: float = self._now + round(store.options.snapshot_max_age * 1_000)
        store.snapshots[id(self)] = weakref.ref(self)

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot. O(log n + rows) per range."""
        self._require_open()
        with self._lock:
            reader = self._readable()
            now = BEFORE_ALL_TIME if include_expired else self._now
            found, followed = self._read(reader, ranges, now, follow)
            return ReadResult(found, followed, self.versionstamp)

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

    def keep(self) -> None:
        """Have no maximum age."""
        self._expires_ms = math.inf

    def expire(self, now: int | None) -> None:
        """Let go if the maximum age is over at ``now`` (None: in any case)."""
        if now is None or now >= self._expires_ms:
            with self._lock:
                if self._reader is not None:
                    self._expired, self._taken = now is not None, now is None
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
        # No lock: nothing else refers to this object now, and a finalizer may run while its thread holds any lock.
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

    def _counted(self, ranges: Sequence[ReadRange], most: int | None) -> Counted:
        self._require_open()
        with self._lock:
            return Counted(self._count(self._readable(), ranges, self._now, most), self.versionstamp)

    def _require_open(self) -> None:
        self._engine.check_open()
        self.expire(self._kept_by.clock.now_ms())

    def _readable(self) -> ReaderT:
        reader = self._reader
        if reader is None:
            raise self._gone()
        return reader

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        self._kept_by.snapshots.pop(id(self), None)
        if reader is not None:
            self._let_go(reader)

    def _gone(self) -> ClosedError | SnapshotExpiredError:
        if self._expired:
            return SnapshotExpiredError("this snapshot is past its maximum age", url=self._engine.url)
        if self._taken or self._reader is not None:
            return SnapshotLostError("the store has ended this snapshot", url=self._engine.url)
        return ClosedError("this snapshot is closed", url=self._engine.url, reason="closed")


def expire_snapshots(snapshots: dict[int, weakref.ref[FileSnapshot[Any]]], now: int | None) -> None:
    """End the snapshots that are too old (None: all), so that a forgotten one releases the file."""
    for number, reference in list(snapshots.items()):
        snapshot = reference()
        if snapshot is None:
            snapshots.pop(number, None)
        else:
            snapshot.expire(now)


SYNCED_DURABILITIES = ("commit", "relaxed")

ZERO_ALLOWED = frozenset({"busy_timeout"})


class FileOptions(NamedTuple):
    """Options that all handles of one file must agree on; ``map_size`` belongs to LMDB alone."""

    durability: str
    clock: Callable[[], int] | None
    readonly: bool
    busy_timeout: float
    snapshot_max_age: float
    allow_network_fs: bool
    poll_interval: float
    change_log: int | None
    map_size: int = 0


class FileStore(SharedStore, BackgroundStore, ABC, Generic[ReaderT]):
    """The state of one file that its handles share; ``ReaderT`` is what its calls read with.

    Attributes:
        write_lock: held by the thread that writes, and by who opens or closes the file.
        closed_reason: why nothing can be done any more; None while the store is open.
    """

    def __init__(self, path: str, url: str, options: FileOptions, fatal: type[Exception]) -> None:
        self.path = path
        self.url = url
        self.options = options
        self.handles = 0
        self.clock = EngineClock(options.clock)
        self.readonly = options.readonly
        self.identity: FileIdentity | None = None
        self.write_lock = threading.Lock()
        self.snapshots: dict[int, weakref.ref[FileSnapshot[Any]]] = {}
        self.closed_reason: str | None = None
        self.commits = GroupCommitter(self._carry_out, fatal)
        self.background, self.turns = StoreBackground(self), Turns()
        self._backoff_of_many = SharedBackoff(self.backoff)

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two looks for commits of other processes; None when no other process can commit."""
        return self.options.poll_interval

    def backoff(self) -> Backoff:
        """A new deadline for one call."""
        return Backoff(self.options.busy_timeout, self.translated)

    def no_wait(self) -> Backoff:
        """Return a backoff that does not wait, for background work."""
        return Backoff(0, self.translated)

    def commit(self, write: AtomicWrite | Removal) -> Committed | Conflict:
        """Carry out an operation, with those of other threads that wait for the file at the same time."""
        if self.readonly:
            self._require_writable()
        backoff = self.backoff()
        outcome = self.commits.commit_uncontended(write, backoff, self._carry_out_alone)
        return self.commits.commit(write, backoff) if outcome is None else outcome

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit:
        """Have an operation carried out by the next caller of ``commits.lead``."""
        self._require_writable()
        return self.commits.submit(write, self._backoff_of_many.get(), waiter)

    def expire_snapshots(self, now: int | None) -> None:
        """End the snapshots that are too old (None: all), so that a forgotten one releases the file."""
        expire_snapshots(self.snapshots, now)

    def closed_error(self) -> ClosedError:
        """Return the error of a call on a closed store."""
        return ClosedError("this store is closed", url=self.url, reason=self.closed_reason)

    def refuse_calls(self, reason: str) -> None:
        """Have every call from here on raise ClosedError, with the first reason that was given."""
        self.closed_reason = self.closed_reason or reason

    def _require_writable(self) -> None:
        if self.readonly:
            raise read_only(self.url, asked_for=self.options.readonly)

    @abstractmethod
    def present_identity(self) -> FileIdentity | None:
        """The identity of the file that the path holds now."""

    @abstractmethod
    def translated(self, error: Exception) -> KvModelsError:
        """The error of this library for one of the storage library."""

    @abstractmethod
    def reading(self, work: Callable[[ReaderT], T]) -> T:
        """Do ``work`` with what reads, again while the file is busy."""

    @abstractmethod
    def reading_at_once(self, work: Callable[[ReaderT], T]) -> T | None:
        """Do ``work`` if that takes no waiting, else return None; it may have been begun then."""

    def point(self, _key: bytes, _guard: Guard | None, _follow: Follow | None, _all_time: bool, /) -> ReadResult | None:
        """Read one key, and single ones that follow, without waiting; None: read it with ``reading``.

        ``_all_time``: expired rows are read too.
        """
        return None

    @abstractmethod
    def _carry_out_alone(self, commit: UncontendedCommit) -> None:
        """Carry out an operation without a group; see ``GroupCommitter.commit_uncontended``."""

    @abstractmethod
    def reserve_writes(self, backoff: Backoff) -> bool:
        """Keep other processes from writing until the next commit; false if they may not write anyway."""

    @abstractmethod
    def release_writes(self) -> None:
        """Let other processes write again; idempotent."""

    @abstractmethod
    def close(self, reason: str = "closed") -> None:
        """Wait for running calls and release everything; nothing can be done with the store afterwards."""

    @abstractmethod
    def _carry_out(self, group: Group) -> None:
        """Carry out a group of operations in one write transaction."""


StoreT = TypeVar("StoreT", bound="FileStore[Any]")


class FileEngine(StoreHandle[StoreT], ABC):
    """One handle of a store in a file; a class for one library says how to read with what its store gives."""

    __slots__ = ("_registry",)

    def __init__(self, registry: StoreRegistry[StoreT], store: StoreT, limits: Limits, url: str) -> None:
        super().__init__(store, limits, url)
        self._registry = registry

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the clock that decides on expiry; it never goes back."""
        return self.check_open().clock.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it."""
        store = self._store
        if store is not None and len(ranges) == 1 and store.closed_reason is None:
            key, end, limit, _, _ = ranges[0]
            if end is None and limit is None:
                found = store.point(key, guard, follow, include_expired)
                if found is not None:
                    return found
        store = self.check_open()
        return store.reading(lambda reader: self._read(reader, store, ranges, guard, follow, all_time=include_expired))

    def read_at_once(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed | None:
        """Read in this thread if that takes no waiting; None if it has to be done with ``read``.

        Readers wait for no writer. What they may wait for is a file that is opened, closed or made larger, a connection
        that must be opened first, and the one connection of a private database in memory.
        """
        store = self.check_open()
        if not is_small(ranges):
            return None
        small = None if follow is None else bounded(follow)
        try:
            if len(ranges) == 1:
                key, end, limit, _, _ = ranges[0]
                if end is None and limit is None:
                    found = store.point(key, guard, small, include_expired)
                    if found is not None:
                        return found
            return store.reading_at_once(
                lambda reader: self._read(reader, store, ranges, guard, small, all_time=include_expired)
            )
        except NotSmallError:
            return None

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot."""
        store = self.check_open()
        return store.reading(lambda reader: self._count(reader, store, ranges, guard))

    def count_at_once(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed | None:
        """Count in this thread if that takes no waiting and is soon done, else return None. Raises ClosedError."""
        store = self.check_open()
        try:
            return store.reading_at_once(lambda reader: self._count(reader, store, ranges, guard, SMALL_COUNT))
        except NotSmallError:
            return None

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range)."""
        store = self.check_open()
        return store.reading(lambda reader: self._changes(reader, store, one, after))

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. O(log n) per check and mutation, one fsync."""
        return self.check_open().commit(write)

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit:
        """Put an operation into the queue, for a thread that calls ``member.committer.lead()``; returns at once."""
        return self.check_open().submit(write, waiter)

    def reserve_writes(self, seconds: float) -> bool:
        """Keep other processes from writing until the next commit of this one; return whether that was reserved."""
        store = self.check_open()
        return store.reserve_writes(Backoff(min(seconds, store.options.busy_timeout), store.translated))

    def release_writes(self) -> None:
        """Let other processes write again; idempotent."""
        self.check_open().release_writes()

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when a handle of the store is closed.

        While there are subscribers, a thread reads the counter every ``poll_interval``, about 20 us each.
        """
        return self.check_open().background.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over."""
        return wait_for(self._present_stamp, self.subscribe, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, in one commit; an index search and O(log n) each."""
        require_sweep_limit(limit)
        store = self.check_open()
        swept = store.sweep(limit, store.backoff())
        store.background.trim_log(store.backoff())
        return swept

    def close(self) -> None:
        """Wait for running calls; the last handle closes the file. Idempotent."""
        registry = self._registry
        with registry.lock:
            store, self._store = self._store, None
            if store is None:
                return
            self._closed_reason = "closed"
            store.handles -= 1
            if store.handles == 0:
                if registry.stores.get(store.path) is store:
                    del registry.stores[store.path]
                store.close()
        store.background.signal.notify()

    def check_open(self) -> StoreT:
        """Return the store of this handle. Raises ClosedError."""
        store = self._store
        if store is None:
            raise self._closed()
        if store.closed_reason is not None:
            raise store.closed_error()
        return store

    @abstractmethod
    def _read(
        self,
        reader: Any,
        store: StoreT,
        ranges: Sequence[ReadRange],
        guard: Guard | None,
        follow: Follow | None,
        *,
        all_time: bool,
    ) -> ReadResult | GuardFailed: ...

    @abstractmethod
    def _count(
        self, reader: Any, store: StoreT, ranges: Sequence[ReadRange], guard: Guard | None, most: int | None = None
    ) -> Counted | GuardFailed: ...

    @abstractmethod
    def _changes(self, reader: Any, store: StoreT, one: ReadRange, after: bytes) -> Changes: ...

    def _present_stamp(self) -> bytes:
        return to_versionstamp(self.check_open().present_version())


def attach(
    registry: StoreRegistry[StoreT], path: str, url: str, options: Any, open_store: Callable[[], StoreT]
) -> StoreT:
    """The store that this process has open on the same file, or a new one; it counts one handle more."""
    try:
        with registry.lock:
            store = registry.stores.get(path)
            if store is not None and store.closed_reason is None:
                if options.change_log is None:
                    options = options._replace(change_log=store.options.change_log)
                require_same_options(store.options._asdict(), options._asdict(), url)
                if store.present_identity() != store.identity:
                    raise replaced(url, path)
                store.handles += 1
                return store
            if store is not None:
                registry.private.add(store)
            opened = open_store()
            opened.handles = 1
            registry.stores[path] = opened
            return opened
    except OSError as error:
        raise unusable(url, path, error) from error


def require_sensible(options: Any, seconds: tuple[str, ...]) -> None:
    """Refuse options that make no sense, before a file is touched."""
    if options.durability not in SYNCED_DURABILITIES:
        raise InvalidArgumentError(
            "this durability does not exist",
            argument="durability",
            value=options.durability,
            expected=SYNCED_DURABILITIES,
        )
    for argument in seconds:
        value = getattr(options, argument)
        sensible = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        if not sensible or (argument not in ZERO_ALLOWED and value == 0):
            raise InvalidArgumentError(
                "a number of seconds is negative, zero or not a number",
                argument=argument,
                value=value,
                hint="Give seconds as a number, 0 or more (all but busy_timeout: above 0).",
            )
