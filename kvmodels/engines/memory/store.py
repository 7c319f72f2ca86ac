"""The rows of a memory store by key, the sorted list of their keys, old rows that snapshots need, and the change log.

Rules of this module: every method is called with ``lock`` held; only ``rows.get`` and ``stamp`` may be used without it,
as ``MemoryEngine.read`` does. The mapping is the truth: the sorted list is built again after an interrupt. Recording a
commit in the log twice is the same as once, so that a commit which an interrupt cut short can be finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple, cast

from sortedcontainers import SortedList

from kvmodels._support.turns import Turns
from kvmodels.core.operations import Change, Changes, Check, ReadRange, Row, SuffixFollow, to_versionstamp
from kvmodels.engines.shared.background import NEVER_MS, PAUSE_WATCHED_S, SWEEP_BATCH, seconds_until, trim_slack_ms
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.evaluation import visible
from kvmodels.engines.shared.threads import BackgroundTask
from kvmodels.engines.shared.waiting import CommitSignal


class ChangeLog:
    """Keys in the order of their last change; a key is there once, however often it was changed.

    Examples:
        >>> log = ChangeLog(1_000, b"0")
        >>> log.record([b"a", b"b"], b"1", 10)
        >>> log.record([b"a"], b"2", 20)
        >>> log.after(b"0")
        [(b'b', b'1'), (b'a', b'2')]
        >>> log.trim(1_015)
        >>> log.floor, log.after(b"1")
        (b'1', [(b'a', b'2')])
    """

    def __init__(self, retention_ms: int, floor: bytes) -> None:
        self.retention_ms = retention_ms
        self.floor = floor
        self._last: dict[bytes, tuple[bytes, int]] = {}

    def record(self, keys: Iterable[bytes], stamp: bytes, now: int) -> None:
        """Note that a commit changed the keys; O(1) each."""
        last = self._last
        for key in keys:
            last.pop(key, None)  # so that it moves to the end
            last[key] = (stamp, now)

    def after(self, stamp: bytes) -> list[tuple[bytes, bytes]]:
        """(key, versionstamp) of each key that changed after ``stamp``; O(what is returned)."""
        found: list[tuple[bytes, bytes]] = []
        for key, (changed, _) in reversed(self._last.items()):
            if changed <= stamp:
                break
            found.append((key, changed))
        found.reverse()
        return found

    @property
    def oldest_ms(self) -> int | None:
        """The time of the oldest change that is kept."""
        for _, made in self._last.values():
            return made
        return None

    def trim(self, now: int) -> None:
        """Forget changes that are older than the retention."""
        end = 0
        for stamp, made in self._last.values():
            if made + self.retention_ms > now:
                break
            end += 1
            self.floor = stamp
        for key in list(islice(self._last, end)):
            del self._last[key]


_FROM_START_TO_BEFORE_END: Final = (True, False)


class MemoryView:
    """A pinned state: the rows that commits have replaced since, as they were then (None: absent)."""

    def __init__(self, stamp: bytes, now: int, expires_ms: int) -> None:
        self.stamp = stamp
        self.now = now
        self.expires_ms: float = expires_ms
        self.before: dict[bytes, Row | None] = {}
        self.order: SortedList[bytes] = SortedList()


class _Redo(NamedTuple):
    """A commit that is being applied: everything that is needed to apply it again."""

    changes: dict[bytes, Row | None]
    stamp: bytes
    now: int


class MemoryStore:
    """The state that all handles of one memory store share.

    Attributes:
        rows: the rows by key, expired ones included.
        stamp: the versionstamp of the last commit; None while a commit is being applied, so that a reader without
            the lock can tell.
        any_deadline: a row with a deadline was stored once; without one no clock needs to be asked.
        log: the last change of every key, if a change log was asked for.
        sweeper: removes expired rows and old changes when they are due, in a thread of its own.
        signal: wakes who waits for a commit; it is used without the lock.
        turns: queues of writers that want the same keys; used without the lock, and not by the engine.
    """

    def __init__(self, name: str, clock: EngineClock, counter: int, max_age_ms: int) -> None:
        self.name = name
        self.clock = clock
        self.counter = counter
        self.max_age_ms = max_age_ms
        self.handles = 0
        self.any_deadline = False
        self.lock = threading.Lock()
        self.signal = CommitSignal()
        self.rows: dict[bytes, Row] = {}
        self.stamp: bytes | None = to_versionstamp(counter)
        self._order: SortedList[bytes] = SortedList()
        self._views: dict[int, MemoryView] = {}
        self._redo: _Redo | None = None
        self.log: ChangeLog | None = None
        self._deadlines: SortedList[tuple[int, bytes]] = SortedList()
        self._planned_ms = NEVER_MS
        self.sweeper = BackgroundTask("sweep", self._sweep_in_background)
        self.turns = Turns()

    def failed_checks(self, checks: Sequence[Check], now: int | None) -> tuple[int, ...]:
        """Return the positions of the checks that do not hold; ``now`` None: no row has a deadline."""
        get = self.rows.get
        failed: list[int] = []
        for position, (key, versionstamp, physical) in enumerate(checks):
            stored = get(key)
            if now is not None and not physical:
                stored = visible(stored, now)
            if (None if stored is None else stored[3]) != versionstamp:
                failed.append(position)
        return (*failed,)

    def apply(self, changes: dict[bytes, Row | None], stamp: bytes) -> None:
        """Store evaluated changes under the next versionstamp; O(log n) per key.

        An interrupt may cut this short at any point. Before the redo record is set nothing of the commit is
        visible; from then on ``recover`` makes it whole, because ``stamp`` stays None until the end.
        """
        self.stamp = None
        if self._views:
            self._keep_for_views(changes)
        self._redo = _Redo(changes, stamp, 0 if self.log is None else self.clock.now_ms())
        self._store(self._redo)
        self.counter += 1
        self._redo = None
        self.stamp = stamp
        if self.any_deadline or self.log is not None:
            self.plan_sweep()

    def recover(self) -> bytes:
        """Finish or forget a commit that an interrupt cut short; O(n log n), and rare. Returns the stamp."""
        for view in list(self._views.values()):
            view.order = SortedList(view.before)
        self._order = SortedList(self.rows)
        self._deadlines = SortedList((x, key) for key, row in self.rows.items() if (x := row.expire_at) is not None)
        if self._redo is not None:
            self._store(self._redo)
            # Interrupted after counting, the counter is one too high: a gap in the versionstamps does no harm,
            # but the rows must not carry a number above it.
            self.counter += 1
            self._redo = None
        stamp = self.stamp = to_versionstamp(self.counter)
        return stamp

    def scan(self, one: ReadRange, now: int | None) -> list[Row]:
        """The rows of a range; those expired at ``now`` are left out (None: every row is kept)."""
        start, end, limit, reverse, _ = one
        if end is None:
            row = self.rows.get(start) if limit != 0 else None
            if now is not None:
                row = visible(row, now)
            return [] if row is None else [row]
        keys = self._order.irange(start, end, _FROM_START_TO_BEFORE_END, reverse)
        return _live(map(self.rows.__getitem__, keys), now, limit)

    def scan_all(self, ranges: Sequence[ReadRange], now: int | None) -> list[list[Row]]:
        """Return the rows of each range, most of which are single keys."""
        if now is not None:
            return [self.scan(one, now) for one in ranges]
        get = self.rows.get
        return [
            [stored]
            if one[1] is None and one[2] is None and (stored := get(one[0])) is not None
            else self.scan(one, None)
            for one in ranges
        ]

    def count(self, one: ReadRange, now: int | None) -> int:
        """Return the number of rows that ``scan`` would return. O(log n + expired rows that are not removed yet)."""
        start, end, limit, _, _ = one
        if end is None or limit == 0:
            return len(self.scan(one, now))
        if start >= end:
            return 0
        number = self._order.bisect_left(end) - self._order.bisect_left(start)
        if now is not None and number:
            due = self._deadlines.bisect_left((now + 1, b""))
            if due > number:
                rows = self.rows
                keys = self._order.irange(start, end, _FROM_START_TO_BEFORE_END)
                number = sum((deadline := rows[key][4]) is None or deadline > now for key in keys)
            elif due:
                number -= sum(start <= key < end for _, key in self._deadlines.islice(0, due))
        return number if limit is None else min(number, limit)

    def with_followed(
        self, ranges: Sequence[ReadRange], suffix: SuffixFollow, now: int | None
    ) -> tuple[list[list[Row]], list[list[Row]]]:
        """Return the rows of ranges, and the rows that the entries of the first range lead to, as ``suffix`` allows."""
        if now is not None:
            rows = [self.scan(one, now) for one in ranges]
            return rows, self.scan_all(suffix(rows), now)
        start, end, limit, reverse, _ = ranges[0]
        if end is None or len(ranges) > 1:
            rows = [self.scan(one, None) for one in ranges]
            keys = [row[0] for row in rows[0]]
        else:
            keys = list(islice(self._order.irange(start, end, _FROM_START_TO_BEFORE_END, reverse), limit))
            rows = [cast("list[Row]", list(zip(keys, strict=True)))]  # of an entry the key is all that is asked for
        prefix, at, get = suffix.prefix, suffix.start, self.rows.get
        joined = [get(prefix + key[at:]) for key in keys]
        if None in joined:
            return rows, [[] if row is None else [row] for row in joined]
        return rows, [cast("list[Row]", joined)]

    def changes(self, one: ReadRange, after: bytes) -> Changes | None:
        """The changes in a range; None where the log does not reach back to ``after``."""
        log, now = self.log, self.clock.now_ms()
        if log is None or after < log.floor:
            return None
        found: list[Change] = []
        for key, stamp in log.after(after):
            if one.start <= key and (one.end is None or key < one.end):
                if one.limit is not None and len(found) >= one.limit and stamp != found[-1].versionstamp:
                    return Changes(found, found[-1].versionstamp)
                found.append(Change(key, stamp, visible(self.rows.get(key), now)))
        return Changes(found, to_versionstamp(self.counter))

    def scan_view(self, view: MemoryView, one: ReadRange, now: int | None) -> list[Row]:
        """The rows of a range as the view saw them."""
        start, end, limit, reverse, _ = one
        if end is None:
            key_iterator = iter((start,))
        else:
            present = self._order.irange(start, end, _FROM_START_TO_BEFORE_END, reverse)
            past = view.order.irange(start, end, _FROM_START_TO_BEFORE_END, reverse)
            key_iterator = _distinct(merge(present, past, reverse=reverse))
        return _live(self._as_seen(view, key_iterator), now, limit)

    def pin(self) -> MemoryView:
        """Keep the present state readable until the view is dropped or too old."""
        now = self.clock.now_ms()
        view = MemoryView(to_versionstamp(self.counter), now, now + self.max_age_ms)
        self._views[id(view)] = view
        return view

    def drop(self, view: MemoryView) -> None:
        """Forget a view. One step of the interpreter, so it needs no lock and may run in a finalizer."""
        self._views.pop(id(view), None)

    # Sweeping

    def sweep(self, limit: int, now: int) -> int:
        """Remove up to ``limit`` rows that have expired at ``now``, as one commit; how many there were."""
        due = self._deadlines.irange(None, (now + 1, b""), (True, False))
        expired: dict[bytes, Row | None] = {key: None for _, key in islice(due, limit)}
        if expired:
            self.apply(expired, to_versionstamp(self.counter + 1))
        if self.log is not None:
            self.log.trim(now)
        return len(expired)

    def plan_sweep(self) -> None:
        """Have the sweeper come in time for the earliest deadline."""
        due = self._next_due_ms()
        if due < self._planned_ms and self.clock.is_of_the_system:
            planned = self.sweeper.schedule(max(0, due - self.clock.now_ms() + 1) / 1_000)
            if planned:  # and last, so that an interrupt leaves it unplanned rather than forgotten
                self._planned_ms = due

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit; expired rows are swept without delay from now on."""
        unsubscribe = self.signal.subscribe(wake)
        if self.any_deadline and self.clock.is_of_the_system:
            with self.lock:
                due = self._next_due_ms()
                if due != NEVER_MS:
                    self.sweeper.schedule(max(PAUSE_WATCHED_S, (due - self.clock.now_ms() + 1) / 1_000))
        return unsubscribe

    def _next_due_ms(self) -> int:
        due = self._deadlines[0][0] if self._deadlines else NEVER_MS
        log = self.log
        if log is not None and (oldest := log.oldest_ms) is not None:
            due = min(due, oldest + log.retention_ms + trim_slack_ms(log.retention_ms))
        return due

    def _sweep_in_background(self) -> float | None:
        with self.lock:
            if self.stamp is None:
                self.recover()
            now = self.clock.now_ms()
            self._planned_ms = 0  # the commit of the sweep plans nothing: what is left is decided below
            swept = self.sweep(SWEEP_BATCH, now)
            due = self._planned_ms = self._next_due_ms()
        if swept:
            self.signal.notify()
        watched = self.signal.waited_for
        return seconds_until(None if due == NEVER_MS else due, now, swept=swept, watched=watched)

    def before_fork(self) -> None:
        """Wait for a running call; the child gets a copy that it never uses."""
        self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Allow calls again."""
        self.lock.release()

    def _store(self, redo: _Redo) -> None:
        rows, order, deadlines = self.rows, self._order, self._deadlines
        for key, row in redo.changes.items():
            before = rows.get(key)
            if before is not None and (deadline := before.expire_at) is not None:
                deadlines.discard((deadline, key))
            if row is not None:
                if (deadline := row.expire_at) is not None:
                    self.any_deadline = True
                    deadlines.add((deadline, key))
                if before is None:
                    order.add(key)
                rows[key] = row
            elif before is not None:
                order.remove(key)
                del rows[key]
        if self.log is not None:
            self.log.record(redo.changes, redo.stamp, redo.now)

    def _keep_for_views(self, changes: dict[bytes, Row | None]) -> None:
        now = self.clock.now_ms()
        get = self.rows.get
        for view in list(self._views.values()):
            if now >= view.expires_ms:
                self.drop(view)
                continue
            before = view.before
            for key in changes:
                if key not in before:
                    before[key] = get(key)
                    view.order.add(key)

    def _as_seen(self, view: MemoryView, keys: Iterator[bytes]) -> Iterator[Row]:
        before, get = view.before, self.rows.get
        for key in keys:
            row = before[key] if key in before else get(key)
            if row is not None:
                yield row


def _live(rows: Iterator[Row], now: int | None, limit: int | None) -> list[Row]:
    if now is not None:
        rows = (row for row in rows if visible(row, now) is not None)
    return list(rows if limit is None else islice(rows, limit))


def _distinct(keys: Iterator[bytes]) -> Iterator[bytes]:
    last: bytes | None = None
    for key in keys:
        if key != last:
            yield key
            last = key
