"""How an event loop uses an engine that may block: with the engine's threads, and without a thread if possible.

Rules of this module: a task that waits for a commit uses no thread. Operations wait in the queue of a submitting
engine. One thread carries them out, many in one transaction, and the answers of a transaction wake the loop once. The
loop itself carries out reads that do not wait; after several in a row, other tasks run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from kvmodels.core.operations import AtomicWrite, ReadResult, Removal
from kvmodels.engines.contract import (
    CommitQueue,
    CommitWaiter,
    Engine,
    ImmediateReads,
    ImmediateSnapshot,
    QueuedCommit,
    Snapshot,
    TurnReader,
)
from kvmodels.engines.shared.group_commit import outcome_note
from kvmodels.engines.shared.threads import START_FAILURES, missing_thread
from kvmodels.engines.shared.waiting import RECHECK_S
from kvmodels.errors import EngineError
from kvmodels.flows.effects import CountRows, Read, ReadToChange

T = TypeVar("T")

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

READ_THREADS: Final = 4
"""Threads that read from one blocking engine; more do not help SQLite, because rows are decoded under the GIL."""

READS_AT_ONCE: Final = 16
"""Reads that a task carries out in the event loop before other tasks run."""


class EngineThreads:
    """The threads of one engine: one for its commits, a few for its reads. They end when the object is collected."""

    def __init__(self) -> None:
        # Not the default executor of the loop: it is shared with code that may wait for this library, and queueing
        # there would let reads of one slow engine block those of another.
        self.commits = ThreadPoolExecutor(1, thread_name_prefix="kvmodels-commit")
        self.reads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="kvmodels-read")
        self._leads = False
        self._lead_lock = threading.Lock()

    def lead(self, committer: CommitQueue) -> None:
        """Have the thread for commits carry out all operations that are in the queue when it runs.

        Raises EngineError if the thread could not be started; the next call tries again.
        """
        # The lock is for two loops: one must not rely on a start by the other that then fails.
        with self._lead_lock:
            if not self._leads:
                self._leads = True
                try:
                    self.commits.submit(self._lead, committer)
                except START_FAILURES as failure:
                    self._leads = False
                    raise missing_thread(failure) from failure

    def _lead(self, committer: CommitQueue) -> None:
        while True:
            # Before it reads the queue: operations that are added later start another call.
            self._leads = False
            try:
                committer.lead()
            except BaseException:
                if committer.waiting:
                    continue  # here, because another call might not get a thread
                raise
            return


class _LoopState:
    """The commits whose answers one event loop awaits, and the number of consecutive reads of its running task.

    Attributes:
        expected: the future of each queued operation without an answer; see ``expect``.
        leaders: the queues to carry out; see ``lead``.
        reader: the ``id`` of the task that read last.
        reads: its consecutive reads.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._answered: deque[QueuedCommit] = deque()
        self._called = False
        self.expected: dict[QueuedCommit, asyncio.Future[None]] = {}
        self.leaders: dict[EngineThreads, CommitQueue] = {}
        self._turn_readers: dict[EngineThreads, TurnReader] = {}
        self.reader = 0
        self.reads = 0

    def lead(self, threads: EngineThreads, committer: CommitQueue) -> None:
        """Carry out a queue after the tasks that are ready have run.

        If it began at once, the thread would find only the first of many operations, and then both threads would
        contend for the interpreter at every statement. Call it in the loop, like the methods down to ``expect``.
        """
        if not self.leaders:
            asyncio.get_running_loop().call_soon(self.start_leaders)
        self.leaders[threads] = committer

    def start_leaders(self) -> None:
        """Carry out the queues now; if there is no thread, the error is the answer of their operations."""
        leaders, self.leaders = self.leaders, {}
        for threads, committer in leaders.items():
            try:
                threads.lead(committer)
            except EngineError as error:
                self._refuse(threads, committer, error)

    def _refuse(self, threads: EngineThreads, committer: CommitQueue, error: EngineError) -> None:
        """Withdraw the queued operations of this loop, and answer them with an error."""
        carried_out = False
        for member in [member for member in self.expected if member.committer is committer]:
            if member.withdraw():
                # A separate error for each: two tasks must not add their tracebacks to one object.
                member.outcome = missing_thread(error.__cause__ or error)
                self._answered.append(member)
            else:
                carried_out = True
        self._hand_out()
        if carried_out:
            # By a thread that commits for itself. If it is interrupted, it returns them to the queue for the next
            # leader.
            asyncio.get_running_loop().call_later(RECHECK_S, self.lead, threads, committer)

    def turn_reader(self, threads: EngineThreads, new_reader: Callable[[], TurnReader]) -> TurnReader:
        """Return the reader for the tasks that are ready now; it is closed after they have run."""
        reader = self._turn_readers.get(threads)
        if reader is None:
            reader = new_reader()
            if not self._turn_readers:
                asyncio.get_running_loop().call_soon(self.close_turn_readers)
            self._turn_readers[threads] = reader
        return reader

    def close_turn_readers(self) -> None:
        """Close the read transactions of this turn."""
        readers, self._turn_readers = self._turn_readers, {}
        for reader in readers.values():
            reader.close()

    def expect(self, member: QueuedCommit) -> asyncio.Future[None]:
        """Return a future that is done when the operation is answered."""
        future = self.expected[member] = asyncio.get_running_loop().create_future()
        return future

    def answered(self, member: QueuedCommit) -> None:
        """Note an answer; called in the thread of the leader."""
        self._answered.append(member)

    def call(self) -> None:
        """Let the loop deliver the noted answers; called in the thread of the leader, once per group."""
        loop = self.loop()
        if loop is not None and self._answered and not self._called:
            self._called = True
            with contextlib.suppress(RuntimeError):  # a closed loop refuses the call, but then no task waits in it
                loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._called = False  # first: a later answer is either seen below, or calls again
        while self._answered:
            future = self.expected.pop(self._answered.popleft(), None)
            if future is not None and not future.done():
                future.set_result(None)


def submit_call(executor: Callable[..., object], function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Submit a call to an executor; if this raises EngineError, the call is not carried out."""
    future: Future[T] = Future()
    try:
        executor(_carry_out, future, function, arguments)
    except START_FAILURES as failure:
        # The executor has already queued the call; a thread that is started later would run it.
        if future.cancel():
            raise missing_thread(failure) from failure
    return future


def _carry_out(future: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised where the call came from
            future.set_exception(error)
            del future  # avoids a reference cycle: the error refers to this frame
        else:
            future.set_result(result)


def submit(
    enqueue: Callable[[AtomicWrite | Removal, CommitWaiter], QueuedCommit | None],
    threads: EngineThreads,
    write: AtomicWrite | Removal,
) -> tuple[QueuedCommit, asyncio.Future[None]] | None:
    """Queue an operation for a commit; the caller awaits the future, then calls ``result`` of the operation.

    None if the engine does not take it into its queue.
    A caller that is cancelled meanwhile calls ``settle``. This is not a coroutine, because each of many waiting tasks
    would keep one more.
    """
    state = _state_of_loop()
    member = enqueue(write, state)
    if member is None:
        return None
    answered = state.expect(member)
    if threads not in state.leaders:
        state.lead(threads, member.committer)
    return member, answered


async def settle(member: QueuedCommit, cancelled: asyncio.CancelledError) -> None:
    """Withdraw an operation of a cancelled task, or wait for its outcome; add a note with it to the cancellation."""
    state = _state_of_loop()
    if member.withdraw():
        state.expected.pop(member, None)
        cancelled.add_note("the commit was not applied: it had not been started")
        return
    while member.outcome is None:
        # The caller raises the first cancellation once the outcome is known; a second one has no further effect.
        with contextlib.suppress(asyncio.CancelledError):
            await state.expect(member)
    cancelled.add_note(outcome_note(member.outcome))


def may_read() -> bool:
    """Return whether the present task may read without a pause; false once after a number of reads in a row."""
    state = _state_of_loop()
    reader = id(asyncio.current_task())  # a new task may have the id of an ended one: at worst it pauses too early
    if reader != state.reader:
        state.reader, state.reads = reader, 0
    state.reads += 1
    if state.reads <= READS_AT_ONCE:
        return True
    state.reads = 0
    return False


def read_in_turn(immediate: ImmediateReads, threads: EngineThreads, request: ReadToChange) -> ReadResult | None:
    """Read the row that a commit will check, in the event loop; None if it must be read in another way."""
    new_reader = immediate.turn_reader
    if new_reader is None:
        return None
    rows = _state_of_loop().turn_reader(threads, new_reader).rows(request[0][0][0])
    return None if rows is None else _new(ReadResult, ([rows], (), b""))


def perform_at_once(immediate: ImmediateReads, request: Read | CountRows, snapshot: Snapshot | None) -> Any:
    """Read or count in an engine, or in its snapshot, without a thread; None if that would block the loop."""
    state = cast("ImmediateSnapshot | None", snapshot)
    assert immediate.read is not None
    assert immediate.count is not None  # an engine has both or none
    if isinstance(request, CountRows):
        return immediate.count(*request) if state is None else state.count_at_once(request.ranges)
    ranges, guard, include_expired, follow = request
    if state is not None:
        return state.read_at_once(ranges, include_expired=include_expired, follow=follow)
    return immediate.read(ranges, guard, include_expired=include_expired, follow=follow)


_loops: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState]] = weakref.WeakKeyDictionary()


def _state_of_loop() -> _LoopState:
    """Return the state of the running event loop; it is removed with the loop."""
    loop = asyncio.get_running_loop()
    state = _loops.get(loop)
    if state is None:
        # Two threads may get here at the same time, but with two loops.
        state = _loops.setdefault(loop, _LoopState(loop))
    return state


_threads: Final[weakref.WeakKeyDictionary[Engine, EngineThreads]] = weakref.WeakKeyDictionary()


def threads_of(engine: Engine) -> EngineThreads:
    """Return the threads of a blocking engine, which are removed with it; they are created at first use."""
    threads = _threads.get(engine)
    if threads is None and engine.capabilities.inner is not None:
        return threads_of(engine.capabilities.inner)
    # Both steps are atomic; of two objects that are made at the same time, one has never started a thread.
    return _threads.setdefault(engine, EngineThreads()) if threads is None else threads


def closing_threads(engine: Engine) -> EngineThreads:
    """Return the threads of an engine to close: they carry out pending calls, and end."""
    _state_of_loop().start_leaders()
    threads = threads_of(engine)
    _threads.pop(engine, None)
    return threads


if hasattr(os, "register_at_fork"):
    # A forked child has the executors but not their threads: a call would wait forever instead of raising the engine's
    # ClosedError.
    os.register_at_fork(after_in_child=_threads.clear)
