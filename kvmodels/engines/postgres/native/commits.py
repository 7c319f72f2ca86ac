"""Commits of the coroutines of one event loop: those that wait share a call, and each gets its own outcome.

Rules of this module: operations wait until the turn of the loop is over, and then are sent in one call, if none is
under way. When as many wait as ``GroupPace`` says, they are sent at once, and two calls may be under way. A task
pursues each call. It is not ended by a cancellation, as a loop that is shut down cancels every task: an operation that
was sent is pursued until its outcome is known. A caller that is cancelled withdraws an operation that was not sent, and
waits for the outcome of one that was.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import psycopg

from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import (
    NO_ANSWER,
    CallAnswer,
    CommitRun,
    Outcome,
    Pause,
    Reading,
    Step,
    Steps,
    compute_and_commit,
)
from kvmodels.engines.postgres.connection import Call
from kvmodels.engines.postgres.native.links import LoopLinks
from kvmodels.engines.postgres.native.pace import SMALLEST_HALF, GroupPace
from kvmodels.engines.postgres.native.reads import LoopReads
from kvmodels.engines.postgres.packing import PackedWrite, packed
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.group_commit import MOST_BYTES, MOST_MEMBERS, outcome_note
from kvmodels.errors import KvModelsError

_NOT_STARTED: Final = "the commit was not applied: it had not been started"

MOST_UNDER_WAY: Final = 2
"""Calls under way: while the server carries out one, the next one arrives."""


class _QueuedWrite:
    """One operation in the queue.

    Attributes:
        outcome: the outcome or the error, once it is known.
        taken: whether it was sent, or is about to be.
        known: done when the outcome is known; replaced when the caller that waits for it is cancelled.
    """

    __slots__ = ("known", "outcome", "taken", "write")

    def __init__(self, write: PackedWrite, known: asyncio.Future[None]) -> None:
        self.write = write
        self.known = known
        self.outcome: Outcome | Exception | None = None
        self.taken = False

    def deliver(self, outcome: Outcome | Exception) -> None:
        """Note the outcome, and wake the caller."""
        self.outcome = outcome
        if not self.known.done():
            self.known.set_result(None)

    @property
    def size(self) -> int:
        """Bytes of keys and values that it writes."""
        _, sets, deletes, sums = self.write
        return (
            sum(len(one.key) + len(one.value) for one in sets) + sum(map(len, deletes)) + sum(len(s.key) for s in sums)
        )


class _SentGroup:
    """A group of operations, the steps that carry it out, and the answer of the call that was sent at once."""

    __slots__ = ("answer", "members", "run", "step", "steps")

    def __init__(self, members: list[_QueuedWrite], run: CommitRun) -> None:
        self.members = members
        self.run = run
        self.steps = run.step()
        self.step = next(self.steps)
        self.answer: asyncio.Future[CallAnswer] | None = None


class LoopCommits:
    """The queue of commits of one event loop.

    Args:
        store: is committed to.
        links: its connections.
        reads: reads what operations with a Python function are computed from.
        clock: returns seconds, and never goes back.
    """

    def __init__(
        self, store: PostgresStore, links: LoopLinks, reads: LoopReads, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._links = links
        self._reads = reads
        self._queue: deque[_QueuedWrite] = deque()
        self._under_way: dict[asyncio.Task[None], _SentGroup] = {}
        self._clock = clock
        self._pace = GroupPace()
        self._began: float | None = None
        self._joined = 0

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply an operation whole, or return the conflict. Raises as ``AsyncEngine.commit``."""
        one = packed(write)
        outcome = await (self._compute(write) if one is None else self._enqueue(one))
        if isinstance(outcome, KvModelsError):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        """Wait for the operations that are in the queue."""
        while self._queue or self._under_way:
            await (asyncio.wait(self._under_way) if self._under_way else asyncio.sleep(0))

    async def _compute(self, write: AtomicWrite) -> Outcome:
        steps = compute_and_commit(self._store, self._store.texts, write)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome
            if isinstance(step, PackedWrite):
                answer = await self._enqueue(step)
                continue
            try:
                if isinstance(step, Reading):
                    answer = await self._reads.run(step.make)
                else:
                    await asyncio.sleep(step.seconds)
            except asyncio.CancelledError as cancelled:
                cancelled.add_note(_NOT_STARTED)
                raise

    async def _enqueue(self, write: PackedWrite) -> Outcome:
        member = _QueuedWrite(write, self._loop.create_future())
        self._queue.append(member)
        self._joined += 1
        if self._began is None:
            self._begin_turn()
        if self._has_half():
            self._send()
        cancelled: asyncio.CancelledError | None = None
        while member.outcome is None:
            try:
                await member.known
            except asyncio.CancelledError as error:
                if not member.taken:
                    self._queue.remove(member)
                    error.add_note(_NOT_STARTED)
                    raise
                # Raised below, once the outcome is known; a second one adds nothing.
                cancelled = cancelled or error
                if member.outcome is None:
                    member.known = self._loop.create_future()
        outcome = member.outcome
        if cancelled is not None:
            cancelled.add_note(outcome_note(outcome))
            raise cancelled
        if isinstance(outcome, Exception) and not isinstance(outcome, KvModelsError):
            raise outcome
        return outcome

    # Sending

    def _begin_turn(self) -> None:
        """Collect operations until the present turn of the loop is over."""
        self._began = self._clock()
        self._joined = len(self._queue)
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        assert self._began is not None
        self._pace.prepared(self._joined, self._clock() - self._began)
        self._began = None
        while self._queue and (not self._under_way or self._has_half()):
            self._send()

    def _has_half(self) -> bool:
        """Return whether enough operations wait to be sent beside a call that is under way."""
        return len(self._queue) >= self._pace.half and len(self._under_way) < MOST_UNDER_WAY

    def _send(self) -> None:
        """Send the next group, and have a task pursue it."""
        members = self._next_group()
        run = CommitRun(self._store, self._store.commit_texts, [member.write for member in members])
        group = _SentGroup(members, run)
        link = self._links.writer_now()
        if link is not None and isinstance(group.step, Call):
            group.answer = self._loop.create_future()
            link.send((group.step,), group.answer, timed=len(members) >= SMALLEST_HALF)
        self._pursue(group)

    def _pursue(self, group: _SentGroup) -> None:
        task = self._loop.create_task(self._commit_group(group))
        self._under_way[task] = group
        task.add_done_callback(partial(self._ended, group))

    def _ended(self, group: _SentGroup, task: asyncio.Task[None]) -> None:
        if self._under_way.pop(task, None) is not None:
            self._pursue(group)  # the task was cancelled before it began

    def _next_group(self) -> list[_QueuedWrite]:
        queue, group = self._queue, list[_QueuedWrite]()
        size = 0
        while queue and len(group) < MOST_MEMBERS:
            size += queue[0].size
            if group and size > MOST_BYTES:
                break
            member = queue.popleft()
            member.taken = True
            group.append(member)
        return group

    async def _commit_group(self, group: _SentGroup) -> None:
        store, run = self._store, group.run
        failure: Exception | None = None
        first: _SentGroup | None = group
        while run.pending and failure is None:
            try:
                await (self._drive(run.step()) if first is None else self._drive(first.steps, first.step, first.answer))
            except asyncio.CancelledError:
                continue
            except Exception as error:  # noqa: BLE001 - raised where the operations came from
                failure = error
            finally:
                first = None
        self._deliver(group, failure)
        if store.announce([(member.write, at) for member, at in zip(group.members, run.outcomes, strict=True)]):
            await self._trim()

    def _deliver(self, group: _SentGroup, failure: Exception | None) -> None:
        """Give each member its outcome; what they do next is part of the turn that begins."""
        for member, outcome in zip(group.members, group.run.outcomes, strict=True):
            known = failure if outcome is None else outcome
            assert known is not None
            member.deliver(known)
        task = asyncio.current_task()
        assert task is not None
        del self._under_way[task]
        others = sum(len(other.members) for other in self._under_way.values())
        answer = group.answer
        flush_s = answer.result().flush_s if answer is not None and _has_result(answer) else None
        self._pace.answered(flush_s, len(group.members) + others + len(self._queue))
        if self._began is None:
            self._begin_turn()

    async def _drive(
        self, steps: Steps, step: Step | None = None, sent: asyncio.Future[CallAnswer] | None = None
    ) -> None:
        """Carry out the steps of a generator, which is thrown the errors.

        ``step``: the first one, if it was taken already; ``sent``: its answer, if it was sent.
        """
        try:
            if step is None:
                step = next(steps)
            while True:
                waiting, sent = sent, None
                try:
                    answer = await (self._perform(step) if waiting is None else waiting)
                except (KvModelsError, psycopg.Error) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return

    async def _perform(self, step: Step) -> CallAnswer:
        if isinstance(step, Call):
            return await (await self._links.writer()).call(step)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            self._links.drop()
        return NO_ANSWER

    async def _trim(self) -> None:
        try:
            await (await self._links.writer()).call(self._store.trim_call())
        except (KvModelsError, asyncio.CancelledError):
            return  # the next thousand commits try again
        except psycopg.Error as error:
            if errors.is_lost(error):
                self._links.drop()


def _has_result(answer: asyncio.Future[CallAnswer]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None
