"""Commits of the coroutines of one event loop: those that wait share a call, and each gets its own outcome.

Rules of this module: one task carries operations out while there are any. It is not ended by a cancellation, as a loop
that is shut down cancels every task: an operation that was sent is pursued until its outcome is known. A caller that is
cancelled withdraws an operation that was not sent, and waits for the outcome of one that was.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
from kvmodels.engines.postgres.native.reads import LoopReads
from kvmodels.engines.postgres.packing import PackedWrite, packed
from kvmodels.engines.postgres.store import PostgresStore
from kvmodels.engines.shared.group_commit import MOST_BYTES, MOST_MEMBERS, outcome_note
from kvmodels.errors import KvModelsError

_NOT_STARTED: Final = "the commit was not applied: it had not been started"


class _QueuedWrite:
    """One operation in the queue.

    Attributes:
        outcome: a future of its outcome, errors included.
        taken: whether it is being carried out.
    """

    __slots__ = ("outcome", "taken", "write")

    def __init__(self, write: PackedWrite, outcome: asyncio.Future[Outcome]) -> None:
        self.write = write
        self.outcome = outcome
        self.taken = False

    @property
    def size(self) -> int:
        """Bytes of keys and values that it writes."""
        _, sets, deletes, sums = self.write
        return (
            sum(len(one.key) + len(one.value) for one in sets) + sum(map(len, deletes)) + sum(len(s.key) for s in sums)
        )


class LoopCommits:
    """The queue of commits of one event loop.

    Args:
        store: is committed to.
        links: its connections.
        reads: reads what operations with a Python function are computed from.
    """

    def __init__(self, store: PostgresStore, links: LoopLinks, reads: LoopReads) -> None:
        self._store = store
        self._links = links
        self._reads = reads
        self._queue: deque[_QueuedWrite] = deque()
        self._task: asyncio.Task[None] | None = None

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply an operation whole, or return the conflict. Raises as ``AsyncEngine.commit``."""
        one = packed(write)
        outcome = await (self._compute(write) if one is None else self._enqueue(one))
        if isinstance(outcome, KvModelsError):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        """Wait for the operations that are in the queue."""
        while self._task is not None:
            await asyncio.wait((self._task,))

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
        member = _QueuedWrite(write, asyncio.get_running_loop().create_future())
        self._queue.append(member)
        if self._task is None:
            self._task = asyncio.create_task(self._carry_out())
        try:
            await asyncio.wait((member.outcome,))
        except asyncio.CancelledError as cancelled:
            if not member.taken:
                self._queue.remove(member)
                cancelled.add_note(_NOT_STARTED)
                raise
            while not member.outcome.done():
                try:
                    await asyncio.wait((member.outcome,))
                except asyncio.CancelledError:
                    # The first cancellation is raised below, once the outcome is known; a second one adds nothing.
                    continue
            cancelled.add_note(outcome_note(member.outcome.exception() or member.outcome.result()))
            raise
        return member.outcome.result()

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

    async def _carry_out(self) -> None:
        try:
            while self._queue:
                await self._commit_group(self._next_group())
        finally:
            self._task = None

    async def _commit_group(self, group: list[_QueuedWrite]) -> None:
        store = self._store
        run = CommitRun(store, store.commit_texts, [member.write for member in group])
        failure: Exception | None = None
        while run.pending and failure is None:
            try:
                await self._drive(run.step())
            except asyncio.CancelledError:
                continue
            except Exception as error:  # noqa: BLE001 - raised where the operations came from
                failure = error
        for member, outcome in zip(group, run.outcomes, strict=True):
            if outcome is not None:
                member.outcome.set_result(outcome)
            elif failure is not None:
                member.outcome.set_exception(failure)
        trim = store.announce([(member.write, outcome) for member, outcome in zip(group, run.outcomes, strict=True)])
        if trim:
            await self._trim()

    async def _drive(self, steps: Steps) -> None:
        """Carry out the steps of a generator, which is thrown the errors."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._perform(step)
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
