"""How an event loop uses an engine that may block: with threads of the engine's own, and without where it can.

Rules of this module: a task that waits for a commit holds no thread. The operations of an embedded engine wait in its
queue; one thread carries them out, many in one transaction, and the answers of a transaction wake the loop once.
A read that waits for nothing is carried out by the loop itself; after some in a row other tasks have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

from kvmodels.engines.base import EmbeddedEngine, EmbeddedSnapshot, Engine, Glance, GlancingEngine, Snapshot
from kvmodels.engines.group_commit import GroupCommitter, Member, outcome_note
from kvmodels.flows.requests import Count, Read, ReadToChange
from kvmodels.operations import AtomicWrite, Committed, Conflict, Counted, GuardFailed, ReadResult, Removal

__all__ = [
    "READ_THREADS",
    "Lanes",
    "close_at_once",
    "closing_lanes",
    "count_at_once",
    "glanced",
    "lanes_of",
    "may_read",
    "outcome_of",
    "read_at_once",
    "settle",
    "snapshot_at_once",
    "submit",
]

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

READ_THREADS: Final = 4
"""Threads that read from one blocking engine; SQLite gains nothing beyond, since rows are decoded under the GIL."""

READS_AT_ONCE: Final = 16
"""Reads that a task carries out in the event loop before others have their turn."""


class Lanes:
    """The threads of one engine; they end when nothing refers to the lanes any more.

    Attributes:
        embedded: whether the engine is an EmbeddedEngine.
        glances: whether it is a GlancingEngine as well.
    """

    __slots__ = ("__weakref__", "_leads", "commits", "embedded", "glances", "reads")

    def __init__(self, *, embedded: bool, glances: bool = False) -> None:
        # Not the default executor of the loop: it is shared with code that may wait for us, and queueing there
        # would let reads of one slow engine keep those of another from running.
        self.commits = ThreadPoolExecutor(1, thread_name_prefix="kvmodels-commit")
        self.reads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="kvmodels-read")
        self.embedded = embedded
        self.glances = glances
        self._leads = False

    def lead(self, committer: GroupCommitter) -> None:
        """Have the thread for commits carry out everything that is in the queue, or will be until it comes to it."""
        if not self._leads:
            self._leads = True
            self.commits.submit(self._lead, committer)

    def _lead(self, committer: GroupCommitter) -> None:
        # Before it looks into the queue: what comes later has itself carried out by another call.
        self._leads = False
        try:
            committer.lead()
        finally:
            if committer.waiting:
                self.lead(committer)


class _LoopDesk:
    """What one event loop waits for: answers to commits; and how much the task that reads has read in a row.

    Attributes:
        loop: by a weak reference.
        expected: what is done when a member is answered; see ``expect``.
        leaders: the queues that are to be carried out; see ``lead``.
    """

    __slots__ = ("_answered", "_called", "_glances", "_reader", "_reads", "expected", "leaders", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._answered: deque[Member] = deque()
        self._called = False
        self.expected: dict[Member, asyncio.Future[None]] = {}
        self.leaders: dict[Lanes, GroupCommitter] = {}
        self._glances: dict[Lanes, Glance] = {}
        self._reader = 0
        self._reads = 0

    def lead(self, lanes: Lanes, committer: GroupCommitter) -> None:
        """Have a queue carried out when the tasks that are ready have had their turn.

        At once, the thread would begin with the first of many operations, and then both threads would take the
        interpreter from each other at every statement. To be called in the loop, as the next four.
        """
        if not self.leaders:
            asyncio.get_running_loop().call_soon(self.start_leaders)
        self.leaders[lanes] = committer

    def start_leaders(self) -> None:
        """Have the queues carried out now."""
        leaders, self.leaders = self.leaders, {}
        for lanes, committer in leaders.items():
            lanes.lead(committer)

    def glance(self, lanes: Lanes, engine: GlancingEngine) -> Glance:
        """What reads rows for the tasks that are ready now, until they have had their turn."""
        glance = self._glances.get(lanes)
        if glance is None:
            glance = engine.glance()
            if not self._glances:
                asyncio.get_running_loop().call_soon(self.end_glances)
            self._glances[lanes] = glance
        return glance

    def end_glances(self) -> None:
        """Let go of what was read by."""
        glances, self._glances = self._glances, {}
        for glance in glances.values():
            glance.close()

    def expect(self, member: Member) -> asyncio.Future[None]:
        """A future that is done when the member is answered."""
        future = self.expected[member] = asyncio.get_running_loop().create_future()
        return future

    def forget(self, member: Member) -> None:
        """Nobody waits for the member any more."""
        self.expected.pop(member, None)

    def may_read(self) -> bool:
        """See the function of this name."""
        reader = id(asyncio.current_task())  # of a task that has ended, the next one may have it: a pause too early
        if reader != self._reader:
            self._reader, self._reads = reader, 0
        self._reads += 1
        if self._reads <= READS_AT_ONCE:
            return True
        self._reads = 0
        return False

    def answered(self, member: Member) -> None:
        """Note an answer; in the thread of the leader."""
        self._answered.append(member)

    def call(self) -> None:
        """Have the loop hand out the answers that were noted; in the thread of the leader, once for a group."""
        loop = self.loop()
        if loop is not None and self._answered and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # a closed loop refuses the call, and then nobody waits in it
                loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._called = False  # first: an answer that is noted from here on either is seen below, or calls again
        while self._answered:
            future = self.expected.pop(self._answered.popleft(), None)
            if future is not None and not future.done():
                future.set_result(None)


def submit(engine: Any, lanes: Lanes, write: AtomicWrite | Removal) -> tuple[Member, asyncio.Future[None]]:
    """Have an operation of an embedded engine carried out, with others; await the future, and ask ``outcome_of`` then.

    Whoever is cancelled meanwhile calls ``settle``. No coroutine: of many tasks that wait, each would keep one more.

    Args:
        engine: an EmbeddedEngine.
        lanes: its threads.
        write: the operation.
    """
    loop = asyncio.get_running_loop()
    desk = _desks.of(loop)
    member: Member = engine.submit(write, desk)
    answered = desk.expected[member] = loop.create_future()
    if lanes not in desk.leaders:
        desk.lead(lanes, member.committer)
    return member, answered


async def settle(member: Member, cancelled: asyncio.CancelledError) -> None:
    """Withdraw an operation that is waited for no longer, or wait for its outcome; note which on the cancellation."""
    desk = _desks.of(asyncio.get_running_loop())
    if member.withdraw():
        desk.forget(member)
        cancelled.add_note("the commit was not applied: it had not been started")
        return
    while member.outcome is None:
        # The first cancellation is raised by the caller, once the outcome is known; a second one adds nothing.
        with contextlib.suppress(asyncio.CancelledError):
            await desk.expect(member)
    cancelled.add_note(outcome_note(member.outcome))


def outcome_of(member: Member) -> Committed | Conflict:
    """What became of an operation that was answered; raises what the engine says."""
    outcome = member.outcome
    if isinstance(outcome, Exception):
        try:
            raise outcome
        finally:
            member.outcome = member.verdict = None  # the error holds this frame, which must not hold the error
            del outcome
    assert outcome is not None, "the future is done when there is an outcome"
    return outcome


def may_read() -> bool:
    """Whether the present task may read in the event loop without a pause; false once after so many reads in a row."""
    return _desks.of(asyncio.get_running_loop()).may_read()


def glanced(engine: Any, lanes: Lanes, request: ReadToChange) -> ReadResult | None:
    """The row that a commit will check, read in the event loop; None when it must be read in another way.

    Args:
        engine: a GlancingEngine; not by ``cast``, which is a call in each of many tasks.
        lanes: its threads.
        request: what is read.
    """
    desk = _desks.of(asyncio.get_running_loop())
    rows = desk.glance(lanes, engine).rows(request[0][0][0])
    return None if rows is None else _new(ReadResult, ([rows], (), b""))


def read_at_once(engine: Engine, request: Read, snapshot: Snapshot | None) -> ReadResult | GuardFailed | None:
    """Read from an embedded engine, or from a snapshot of it, without a thread; None when that would keep the loop."""
    if snapshot is not None:
        return cast("EmbeddedSnapshot", snapshot).read_at_once(
            request.ranges, include_expired=request.include_expired, follow=request.follow
        )
    return cast("EmbeddedEngine", engine).read_at_once(
        request.ranges, request.guard, include_expired=request.include_expired, follow=request.follow
    )


def count_at_once(engine: Engine, request: Count, snapshot: Snapshot | None) -> Counted | GuardFailed | None:
    """Count in an embedded engine, or in a snapshot of it, without a thread; None when that would keep the loop."""
    if snapshot is not None:
        return cast("EmbeddedSnapshot", snapshot).count_at_once(request.ranges)
    return cast("EmbeddedEngine", engine).count_at_once(request.ranges, request.guard)


def snapshot_at_once(engine: Engine) -> Snapshot | None:
    """Pin the state of an embedded engine without a thread; None when that would keep the loop."""
    return cast("EmbeddedEngine", engine).snapshot_at_once()


def close_at_once(snapshot: Snapshot) -> bool:
    """Close a snapshot of an embedded engine without a thread; false when that would keep the loop."""
    return cast("EmbeddedSnapshot", snapshot).close_at_once()


class _Desks:
    """The desk of every event loop in use; an entry goes with its loop."""

    __slots__ = ("_desks", "_last")

    def __init__(self) -> None:
        self._last: _LoopDesk | None = None
        self._desks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopDesk] = weakref.WeakKeyDictionary()

    def of(self, loop: asyncio.AbstractEventLoop) -> _LoopDesk:
        last = self._last
        if last is not None and last.loop() is loop:
            return last
        desk = self._desks.get(loop)
        if desk is None:
            # Two threads may come here at once, but with two loops.
            desk = self._desks.setdefault(loop, _LoopDesk(loop))
        self._last = desk
        return desk


def _nothing() -> None:
    """What a reference gives whose object is gone."""


_NO_LANES: Final[tuple[Callable[[], Engine | None], Callable[[], Lanes | None]]] = (_nothing, _nothing)


class _LanesByEngine:
    """The lanes of every blocking engine in use; an entry goes with its engine."""

    __slots__ = ("_lanes", "_last", "_lock")

    _last: tuple[Callable[[], Engine | None], Callable[[], Lanes | None]]

    def __init__(self) -> None:
        self.forget_all()

    def of(self, engine: Engine) -> Lanes:
        known, its_lanes = self._last
        if known() is engine:
            last = its_lanes()
            if last is not None:
                return last
        lanes = self._lanes.get(engine)
        if lanes is not None:
            # Weak both: an engine that nobody uses goes, and its lanes with it. One step, which no thread comes into.
            self._last = weakref.ref(engine), weakref.ref(lanes)
            return lanes
        with self._lock:
            lanes = self._lanes.get(engine)
            if lanes is None:
                lanes = self._lanes[engine] = Lanes(
                    embedded=isinstance(engine, EmbeddedEngine), glances=isinstance(engine, GlancingEngine)
                )
            return lanes

    def forget(self, engine: Engine) -> None:
        with self._lock:
            self._lanes.pop(engine, None)
            self._last = _NO_LANES

    def forget_all(self) -> None:
        # In a forked child the executors are there but their threads are not: a call would wait for ever instead
        # of raising the engine's ClosedError. The lock is new, since a lost thread may have been holding it.
        self._lock = threading.Lock()
        self._last = _NO_LANES
        self._lanes: weakref.WeakKeyDictionary[Engine, Lanes] = weakref.WeakKeyDictionary()


_desks = _Desks()
_lanes = _LanesByEngine()


def lanes_of(engine: Engine) -> Lanes:
    """The threads of a blocking engine, which are made when they are needed."""
    return _lanes.of(engine)


def closing_lanes(engine: Engine) -> Lanes:
    """The threads of an engine that is to be closed: what waits goes first, and they end when they have done it."""
    _desks.of(asyncio.get_running_loop()).start_leaders()
    lanes = _lanes.of(engine)
    _lanes.forget(engine)
    return lanes


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lanes.forget_all)
