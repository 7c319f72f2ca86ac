"""Commits of the coroutines of one event loop: those that wait share a call, and each gets its own outcome.

Rules of this module: operations wait until the turn of the loop is over, and until the call before them is answered.
When as many wait as ``GroupPace`` says, they are sent at once, and two calls may be under way. A task pursues each
call. It is not ended by a cancellation, as a loop that is shut down cancels every task: an operation that was sent is
pursued until its outcome is known. A caller that is cancelled withdraws an operation that was not sent, and waits for
the outcome of one that was.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import Final

import psycopg

from kvmodels.engines.postgres import errors
from kvmodels.engines.postgres.commits import (
    AS_THROWN,
    NO_ANSWER,
    CallAnswer,
    CallOutcome,
    CommitRun,
    Pause,
    Step,
    Uncomputed,
)
from kvmodels.engines.postgres.connection import Call
from kvmodels.engines.postgres.native.links import LoopLinks
from kvmodels.engines.postgres.native.pace import SMALLEST_HALF, GroupPace
from kvmodels.engines.postgres.packing import PackedWrite
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.group_commit import MOST_BYTES, MOST_MEMBERS, outcome_note
from kvmodels.engines.shared.steps import arun_steps
from kvmodels.errors import KvModelsError

MOST_UNDER_WAY: Final = 2
"""Calls under way: while the server carries out one, the next one arrives."""

NOT_STARTED: Final = "the commit was not applied: it had not been started"


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
        self.outcome: CallOutcome | Exception | None = None
        self.taken = False

    def deliver(self, outcome: CallOutcome | Exception) -> None:
        """Note the outcome, and wake the caller."""
        self.outcome = outcome
        if not self.known.done():
            self.known.set_result(None)


class _QueuedGroup:
    """Operations that share a call, and the steps that carry them out.

    Attributes:
        members: the operations.
        run: of their steps.
        steps: of the first call.
        step: the first of them.
        answer: of the first call, if it was sent at once.
        taken: whether the steps have got it.
    """

    __slots__ = ("answer", "members", "run", "step", "steps", "taken")

    def __init__(self, members: list[_QueuedWrite], run: CommitRun) -> None:
        self.members = members
        self.run = run
        self.steps = run.step()
        self.step = next(self.steps)
        self.answer: asyncio.Future[CallAnswer] | None = None
        self.taken = False


class LoopQueue:
    """The queue of commits of one event loop.

    Args:
        store: is committed to.
        links: its connections.
    """

    def __init__(self, store: PostgresStore, links: LoopLinks) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._links = links
        self._waiting: deque[_QueuedWrite] = deque()
        self._under_way: dict[asyncio.Task[None], _QueuedGroup] = {}
        self._pace = GroupPace()
        self._began: float | None = None
        self._joined = 0

    async def commit(self, write: PackedWrite) -> CallOutcome:
        """Carry out an operation with others that wait; its outcome, or the error of a refusal.

        Raises:
            CancelledError: with a note that tells the outcome.
        """
        member = _QueuedWrite(write, self._loop.create_future())
        self._waiting.append(member)
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
                    self._waiting.remove(member)
                    error.add_note(NOT_STARTED)
                    raise
                # Raised below, once the outcome is known; a second one adds nothing.
                cancelled = cancelled or error
                if member.outcome is None:
                    member.known = self._loop.create_future()
        outcome = member.outcome
        if cancelled is not None:
            cancelled.add_note(outcome_note(None if isinstance(outcome, Uncomputed) else outcome))
            raise cancelled
        if isinstance(outcome, Exception) and not isinstance(outcome, KvModelsError):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        """Wait until everything is carried out."""
        while self._waiting or self._under_way:
            await (asyncio.wait(self._under_way) if self._under_way else asyncio.sleep(0))

    # Sending

    def _begin_turn(self) -> None:
        """Collect operations until the present turn of the loop is over."""
        self._began = time.monotonic()
        self._joined = len(self._waiting)
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        assert self._began is not None
        self._pace.prepared(self._joined, time.monotonic() - self._began)
        self._began = None
        while self._waiting and (not self._under_way or self._has_half()):
            self._send()

    def _has_half(self) -> bool:
        """Return whether enough operations wait to be sent beside a call that is under way."""
        return len(self._waiting) >= self._pace.half and len(self._under_way) < MOST_UNDER_WAY

    def _send(self) -> None:
        """Send the next group, and have a task pursue it."""
        members = self._next_group()
        group = _QueuedGroup(members, CommitRun(self._store, self._store.commit_texts, [one.write for one in members]))
        link = self._links.writer_now(self)
        if link is not None and isinstance(group.step, Call):
            group.answer = self._loop.create_future()
            link.send((group.step,), group.answer, timed=len(members) >= SMALLEST_HALF and not group.run.early)
        self._pursue(group)

    def _next_group(self) -> list[_QueuedWrite]:
        waiting, group = self._waiting, list[_QueuedWrite]()
        size = 0
        while waiting and len(group) < MOST_MEMBERS:
            size += waiting[0].write.size
            if group and size > MOST_BYTES:
                break
            member = waiting.popleft()
            member.taken = True
            group.append(member)
        return group

    # Carrying out

    def _pursue(self, group: _QueuedGroup) -> None:
        task = self._loop.create_task(self._carry_out(group))
        self._under_way[task] = group
        task.add_done_callback(partial(self._ended, group))

    def _ended(self, group: _QueuedGroup, task: asyncio.Task[None]) -> None:
        if self._under_way.pop(task, None) is not None:
            self._pursue(group)  # the task was cancelled before it began

    async def _carry_out(self, group: _QueuedGroup) -> None:
        run, steps = group.run, group.steps
        step: Step | None = group.step
        failure: Exception | None = None
        while run.pending and failure is None:
            try:
                await arun_steps(steps, partial(self._perform, group), AS_THROWN, step)
            except asyncio.CancelledError:
                pass  # the next step finds out what became of the call
            except Exception as error:  # noqa: BLE001 - raised where the operations came from
                failure = error
            steps, step = run.step(), None
        self._deliver(group, failure)
        if self._store.announce([(one.write, at) for one, at in zip(group.members, run.outcomes, strict=True)]):
            await self._trim()

    def _deliver(self, group: _QueuedGroup, failure: Exception | None) -> None:
        """Give each member its outcome; what their callers do next is part of the turn that begins."""
        for member, outcome in zip(group.members, group.run.outcomes, strict=True):
            known = failure if outcome is None else outcome
            assert known is not None
            member.deliver(known)
        task = asyncio.current_task()
        assert task is not None
        del self._under_way[task]
        others = sum(len(other.members) for other in self._under_way.values())
        self._pace.answered(group.run.flush_s, len(group.members) + others + len(self._waiting))
        if self._began is None:
            self._begin_turn()

    async def _perform(self, group: _QueuedGroup, step: Step) -> CallAnswer:
        """Carry out a step, or wait for the first one if it was sent."""
        if isinstance(step, Call):
            if group.answer is not None and not group.taken:
                group.taken = True
                return await group.answer
            async with self._links.writer(self) as link:
                return await link.call(step)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            self._links.drop()
        return NO_ANSWER

    async def _trim(self) -> None:
        try:
            async with self._links.writer(self) as link:
                await link.call(self._store.trim_call())
        except KvModelsError:
            return  # the next thousand commits try again
        except psycopg.Error as error:
            if errors.is_lost(error):
                self._links.drop()
