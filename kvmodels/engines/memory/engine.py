"""The engine that keeps everything in the memory of this process, and its snapshots.

Rules of this module: one lock per store; a read of one key takes no lock and proves by the store's stamp that no
commit ran meanwhile, every other read holds the lock. A commit is evaluated completely, then published by one
assignment and applied; what an interrupt cuts short, the next holder of the lock finishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Self, cast

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
    Row,
    SuffixFollow,
    to_versionstamp,
)
from kvmodels.engines.contract import Capabilities, ImmediateReads
from kvmodels.engines.memory.store import ChangeLog, MemoryStore, MemoryView
from kvmodels.engines.shared.background import (
    require_reached,
    require_retention,
    require_sweep_limit,
    resume_expired,
    without_change_log,
)
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import confirmed_failures, evaluate, visible
from kvmodels.engines.shared.file_checks import read_only
from kvmodels.engines.shared.registry import StoreHandle, StoreRegistry, require_same_options
from kvmodels.engines.shared.waiting import wait_for
from kvmodels.engines.sqlite import backup as backups
from kvmodels.errors import ClosedError, InvalidArgumentError, SnapshotExpiredError
from kvmodels.limits import Limits, Traits

MEMORY_TRAITS = Traits(may_lose_answers=False, snapshots=True, blocking=False, persistent=False, keeps_rows=True)

SCHEME = "memory://"

_new = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

_named: StoreRegistry[MemoryStore] = StoreRegistry()
_last_counters: dict[str, int] = {}


class MemorySnapshot:
    """A state of a memory store that stays readable while others write; close it soon."""

    # On the class, for the finalizer of an object whose construction an interrupt cut short.
    _view: MemoryView | None = None

    def __init__(self, engine: MemoryEngine, store: MemoryStore, view: MemoryView) -> None:
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

    def keep(self) -> None:
        """Have no maximum age."""
        self._open_view().expires_ms = math.inf

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
        """Enter the store, and refuse a snapshot that is too old. The caller holds the lock."""
        self._engine.enter(self._store)
        if self._store.clock.now_ms() >= view.expires_ms:
            raise SnapshotExpiredError("this snapshot is past its maximum age", url=self._engine.url)

    def _open_view(self) -> MemoryView:
        view = self._view
        if view is None:
            raise ClosedError("this snapshot is closed", url=self._engine.url, reason="closed")
        return view


class MemoryEngine(StoreHandle[MemoryStore]):
    """An ordered store in the memory of this process, with the full contract of ``kvmodels.engines.contract``.

    A read of one key costs about 1 us, a commit of three sets a few us, a range O(log n + rows). While a snapshot
    is open, each commit also keeps the previous rows of the keys it changes.

    Args:
        limits: the largest sizes, for the layers above.
        url: ``memory://`` for a new store, ``memory://name`` for the one that all handles of this name share in
            the process; it is gone when the last of them closes.
        clock: milliseconds since the epoch; None for the system's clock. Handles of one name share one clock.
        readonly: commits raise ReadOnlyError.
        snapshot_max_age: seconds after which a snapshot expires.
        change_log: seconds or a timedelta for which changes are kept, 0 for no log; None for what the store has.

    Raises:
        InvalidArgumentError: the URL is not a memory URL, or the name is open with another clock, maximum age or
            change log.

    Examples:
        >>> from kvmodels.core.operations import AtomicWrite, Check, ReadRange, Set
        >>> engine = MemoryEngine()
        >>> committed = engine.commit(AtomicWrite((Check(b"k", None),), (Set(b"k", b"v", 3),)))
        >>> engine.read([ReadRange(b"k")]).ranges[0][0].value
        b'v'
        >>> engine.commit(AtomicWrite((Check(b"k", None),)))
        Conflict(failed_checks=(0,))
        >>> engine.close()
    """

    __slots__ = ("_readonly", "capabilities")

    def __init__(
        self,
        limits: Limits = Limits.EMBEDDED,
        *,
        url: str = SCHEME,
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        snapshot_max_age: float = 60.0,
        change_log: float | timedelta | None = None,
    ) -> None:
        if not url.startswith(SCHEME):
            raise InvalidArgumentError(
                "this is not the URL of a memory store",
                argument="url",
                value=url,
                expected="memory:// or memory://name",
            )
        given = cast("object", snapshot_max_age)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0:
            raise InvalidArgumentError(
                "the maximum age of a snapshot is not positive", argument="snapshot_max_age", value=snapshot_max_age
            )
        self._readonly = readonly
        retention_ms = require_retention(change_log)
        store = _attach(url[len(SCHEME) :], clock, round(snapshot_max_age * 1_000), retention_ms)
        super().__init__(store, limits, url)
        self.capabilities = Capabilities(MEMORY_TRAITS, ImmediateReads(row=self.row_at_key), turns=store.turns)

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
        """Read all ranges in one snapshot, or say that the guard does not hold in it.

        ``follow`` runs while the lock is held and must not call the engine.
        """
        store = self._store
        if store is None:
            raise self._closed()
        if len(ranges) == 1:
            start, end, limit, _, _ = ranges[0]
            if end is None and limit is None:
                result = _without_lock(store, start, guard, follow, include_expired)
                if result is not None:
                    return result
        with store.lock:
            stamp = self.enter(store)
            now = store.clock.now_ms() if store.any_deadline and not include_expired else None
            if guard is not None and (failed := _failed_guard(store, guard, now)) is not None:
                return failed
            if isinstance(follow, SuffixFollow):
                return ReadResult(*store.with_followed(ranges, follow, now), stamp)
            found = [store.scan(one, now) for one in ranges]
            followed = [] if follow is None else store.scan_all(follow(found), now)
            return ReadResult(found, followed, stamp)

    def row_at_key(self, key: bytes, guard: Guard | None, follow: Follow | None) -> Row | tuple[()] | None:
        """Return the row of a key, or with a guard the row that follows from it; None where ``read`` must decide.

        Without the lock, and without a result around it: O(1). ``()``: there is no row, which is said of a key alone.
        None is no answer: a commit came in between, the guard does not hold, ``follow`` is no ``PredictedFollow``,
        there is no row where it expects one, a row has a deadline.
        """
        store = self._store
        if store is None:
            return None
        stamp, get = store.stamp, store.rows.get
        row = get(key)
        if guard is not None or follow is not None:
            if row is None or guard is None or not isinstance(follow, PredictedFollow):
                return None
            predicted = follow.predicted_key(row.value)
            guarded, behind = get(guard.key), get(predicted)
            if guarded is None or behind is None or guarded.versionstamp != guard.versionstamp:
                return None
            if row.expire_at is not None or guarded.expire_at is not None:
                return None
            row, follow.misses = behind, 0
        # As in _without_lock: the same object before and after.
        if stamp is None or store.stamp is not stamp:
            return None
        if row is None:
            return ()
        return row if row.expire_at is None else None

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot."""
        store = self.check_open()
        with store.lock:
            stamp = self.enter(store)
            now = store.clock.now_ms() if store.any_deadline else None
            if guard is not None and (failed := _failed_guard(store, guard, now)) is not None:
                return failed
            return Counted([store.count(one, now) for one in ranges], stamp)

    def snapshot(self) -> MemorySnapshot:
        """Pin the present state, with the deadlines as of now. O(1); commits then cost more until it is closed."""
        store = self.check_open()
        with store.lock:
            self.enter(store)
            return MemorySnapshot(self, store, store.pin())

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. O(log n) per mutation."""
        store = self._store
        if store is None:
            raise self._closed()
        if self._readonly:
            self._require_writable()
        checks, mutations = write
        with store.lock:
            if store.stamp is None or self._store is None:
                self.enter(store)
            now = store.clock.now_ms() if store.any_deadline else None
            if checks:
                failed = store.failed_checks(checks, now)
                if failed:
                    failed = confirmed_failures(checks, failed, lambda one: store.scan(one, now))
                if failed:
                    return Conflict(failed)
            stamp = to_versionstamp(store.counter + 1)
            # The deadline that counts may be the store's first one, set by this very operation.
            changes, _ = evaluate(mutations, stamp, store.clock.now_ms() if now is None else now, store.rows.get)
            store.apply(changes, stamp)
        store.signal.notify()
        return _new(Committed, (stamp,))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when a handle of the store is closed."""
        return self.check_open().subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over."""
        return wait_for(self._present_stamp, self.subscribe, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, in one commit; O(log n) each."""
        require_sweep_limit(limit)
        store = self.check_open()
        self._require_writable()
        with store.lock:
            self.enter(store)
            swept = store.sweep(limit, store.clock.now_ms())
        if swept:
            store.signal.notify()
        return swept

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since)."""
        store = self.check_open()
        with store.lock:
            present = self.enter(store)
            if store.log is None:
                raise without_change_log(self.url)
            require_reached(after, present)
            found = store.changes(one, after)
            if found is None:
                raise resume_expired(self.url, after, store.log.floor)
            return found

    def backup(self, path: str) -> None:
        """Write one snapshot into a new SQLite file; O(n), and commits go on meanwhile."""
        with self.snapshot() as state:
            state.keep()
            backups.copy_snapshot(state, path, self.url, backups.SHARED_FILE_MODE, self.now_ms())

    def close(self) -> None:
        """Wait for running calls, then let go of the store; idempotent."""
        store = self._store
        if store is None:
            return
        with _named.lock, store.lock:
            # Read again: another thread may have closed this handle while this one waited.
            if self._store is None:
                return
            self._closed_reason = "closed"
            self._store = None
            store.handles -= 1
            if store.handles == 0 and store.name:
                del _named.stores[store.name]
                _last_counters[store.name] = store.counter
            last = store.handles == 0
        store.signal.notify()
        if last:
            store.sweeper.stop()  # outside the lock, which a running sweep may wait for

    def enter(self, store: MemoryStore) -> bytes:
        """The stamp of the store, made whole. For calls that hold its lock; the handle may have closed meanwhile."""
        if self._store is None:
            raise self._closed()
        stamp = store.stamp
        return store.recover() if stamp is None else stamp

    def _require_writable(self) -> None:
        if self._readonly:
            raise read_only(self.url, asked_for=True)

    def _present_stamp(self) -> bytes:
        store = self.check_open()
        stamp = store.stamp
        if stamp is not None:
            return stamp
        with store.lock:
            return self.enter(store)


def _failed_guard(store: MemoryStore, guard: Guard, now: int | None) -> GuardFailed | None:
    """Return the answer to a guard that does not hold; the lock is held, and ``now`` None shows every row."""
    row = store.rows.get(guard.key)
    if now is not None:
        row = visible(row, now)
    actual = None if row is None else row.versionstamp
    return None if actual == guard.versionstamp else GuardFailed(actual)


def _without_lock(
    store: MemoryStore, key: bytes, guard: Guard | None, follow: Follow | None, include_expired: bool
) -> ReadResult | None:
    """A single key, and single keys that follow from it; None where the lock is needed, or a commit came in between."""
    stamp, get = store.stamp, store.rows.get
    row = get(key)
    found: list[list[Row]] = [[] if row is None else [row]]
    followed: list[list[Row]] = []
    if guard is not None:
        guarded = get(guard.key)
        if (None if guarded is None else guarded.versionstamp) != guard.versionstamp:
            return None
    if isinstance(follow, PredictedFollow) and row is not None:
        predicted = follow.predicted_key(row.value)
        behind = get(predicted)
        if behind is not None:
            followed.append([behind])
    if follow is not None and not followed:
        for start, end, limit, _, _ in follow(found):
            if end is not None or limit is not None:
                return None
            other = get(start)
            followed.append([] if other is None else [other])
    # A commit sets the stamp to None first and to a new object last: the same object before and after means that no
    # commit touched the rows in between.
    if stamp is None or store.stamp is not stamp:
        return None
    if store.any_deadline and not include_expired:
        if guard is not None or follow is not None:
            return None
        deadline = None if row is None else row.expire_at
        if deadline is not None and deadline <= store.clock.now_ms():
            found[0] = []
    return _new(ReadResult, (found, followed, stamp))


def _attach(name: str, clock: Callable[[], int] | None, max_age_ms: int, retention_ms: int | None) -> MemoryStore:
    """A new store, or the one that others of this process have open under the name."""
    with _named.lock:
        store = _named.stores.get(name) if name else None
        if store is None:
            engine_clock = EngineClock(clock)
            # A name that was closed and is opened again goes on above its last number, also when the system's
            # clock was set back meanwhile: objects loaded from the old store may still be held.
            counter = max(engine_clock.counter_floor(), _last_counters.get(name, 0) + 1)
            store = MemoryStore(name, engine_clock, counter, max_age_ms)
            if retention_ms:
                store.log = ChangeLog(retention_ms, to_versionstamp(counter))
            if name:
                _named.stores[name] = store
        else:
            retained_ms = 0 if store.log is None else store.log.retention_ms
            wanted_ms = retained_ms if retention_ms is None else retention_ms
            present: dict[str, Any] = {
                "clock": store.clock.source,
                "snapshot_max_age": store.max_age_ms / 1_000,
                "change_log": retained_ms / 1_000,
            }
            given = {
                "clock": clock or store.clock.source,
                "snapshot_max_age": max_age_ms / 1_000,
                "change_log": wanted_ms / 1_000,
            }
            require_same_options(present, given, SCHEME + name)
        store.handles += 1
        return store
