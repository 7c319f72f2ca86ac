"""The rows of a memory store: a mapping, its keys in order, and what open snapshots still need.

Rules of this module: every method is called with ``lock`` held; only ``rows`` and ``stamp`` may be read without
it, as ``MemoryEngine.read`` does. Mappings are the truth: an ordered list can be built from its mapping again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from sortedcontainers import SortedList

from kvmodels.engines.clock import EngineClock
from kvmodels.engines.evaluation import to_versionstamp, visible
from kvmodels.engines.signals import CommitSignal
from kvmodels.operations import ReadRange, Row

__all__ = ["MemoryStore", "MemoryView"]


class MemoryView:
    """A pinned state: the rows that commits have replaced since, as they were then (None: absent)."""

    __slots__ = ("before", "expires_ms", "now", "order", "stamp")

    def __init__(self, stamp: bytes, now: int, expires_ms: int) -> None:
        self.stamp = stamp
        self.now = now
        self.expires_ms = expires_ms
        self.before: dict[bytes, Row | None] = {}
        self.order: SortedList[bytes] = SortedList()


class MemoryStore:
    """What all handles of one memory store share.

    Attributes:
        rows: every stored row by key, expired ones included.
        stamp: the versionstamp of the last commit; None while a commit is being applied, so that a reader without
            the lock can tell.
        any_deadline: a row with a deadline was stored once; without one no clock needs to be asked.
        signal: wakes who waits for a commit; it is used without the lock.
    """

    __slots__ = (
        "_order",
        "_redo",
        "_views",
        "any_deadline",
        "clock",
        "counter",
        "handles",
        "lock",
        "max_age_ms",
        "name",
        "rows",
        "signal",
        "stamp",
    )

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
        self._redo: dict[bytes, Row | None] | None = None

    def apply(self, changes: dict[bytes, Row | None], stamp: bytes) -> None:
        """Store evaluated changes under the next versionstamp; O(log n) per key.

        An interrupt may cut this short at any point. Before the redo record is set nothing of the commit is
        visible; from then on ``recover`` makes it whole, because ``stamp`` stays None until the end.
        """
        self.stamp = None
        if self._views:
            self._keep_for_views(changes)
        self._redo = changes
        self._store(changes)
        self.counter += 1
        self._redo = None
        self.stamp = stamp

    def recover(self) -> bytes:
        """Finish or forget a commit that an interrupt cut short; O(n log n), and rare. Returns the stamp."""
        for view in list(self._views.values()):
            view.order = SortedList(view.before)
        self._order = SortedList(self.rows)
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
        rows = self.rows
        if end is None:
            row = rows.get(start) if limit != 0 else None
            if now is not None:
                row = visible(row, now)
            return [] if row is None else [row]
        keys = self._order.irange(start, end, (True, False), reverse)
        if now is None:
            return [rows[key] for key in (keys if limit is None else islice(keys, limit))]
        return _live((rows[key] for key in keys), now, limit)

    def scan_view(self, view: MemoryView, one: ReadRange, now: int | None) -> list[Row]:
        """The rows of a range as the view saw them."""
        start, end, limit, reverse, _ = one
        if end is None:
            key_iterator = iter((start,))
        else:
            present = self._order.irange(start, end, (True, False), reverse)
            past = view.order.irange(start, end, (True, False), reverse)
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

    def before_fork(self) -> None:
        """Wait for a running call; the child gets a copy that it never uses."""
        self.lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Allow calls again."""
        self.lock.release()

    def _store(self, changes: dict[bytes, Row | None]) -> None:
        rows, order = self.rows, self._order
        for key, row in changes.items():
            if row is not None:
                if row[4] is not None:
                    self.any_deadline = True
                if key not in rows:
                    order.add(key)
                rows[key] = row
            elif key in rows:
                order.remove(key)
                del rows[key]

    def _keep_for_views(self, changes: dict[bytes, Row | None]) -> None:
        now = self.clock.now_ms()
        rows = self.rows
        for view in list(self._views.values()):
            if now >= view.expires_ms:
                self.drop(view)
                continue
            before = view.before
            for key in changes:
                if key not in before:
                    before[key] = rows.get(key)
                    view.order.add(key)

    def _as_seen(self, view: MemoryView, keys: Iterator[bytes]) -> Iterator[Row]:
        before, rows = view.before, self.rows
        for key in keys:
            row = before[key] if key in before else rows.get(key)
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
