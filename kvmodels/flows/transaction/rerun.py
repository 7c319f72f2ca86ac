"""How often, and when, the function of a transaction is run again after a conflict.

The first run takes no turn before its commit, so writers of different keys do not wait for each other; with its commit
it takes the turn for the keys that it replaces. After a conflict the function waits for its turn on the keys of the
conflict, and keeps the turn until its commit (``kvmodels._support.turns``). From then on only writers that take no
turns, such as other processes, can cause a conflict. If one of these has done so recently, a function with a turn also
takes the writer lock of the file, before it reads (``kvmodels.flows.write_reservation``).

A run ends as soon as it comes to a key for which another transaction has the turn: at a write, and if the last run of
the function has written, already at a read.

Rules of this module: bounded by the number of runs and by the deadline of the ``RetryPolicy``; waiting for a turn
counts as time, and not as a run.
"""

from __future__ import annotations

from math import inf
from typing import Final

from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.keys import KeyPart
from kvmodels.core.operations import AtomicWrite
from kvmodels.errors import RetriesExhaustedError, SnapshotLostError, TransactionConflictError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, sleep, take_turn
from kvmodels.flows.references.targets import anchor, busy_targets
from kvmodels.flows.write_reservation import WriteReservation

QUICK_S: Final = 0.1
"""Longest last run, in seconds, of a function that takes the writer lock, which stops all other writers."""

_MORE_RETRIES: Final = (
    "The keys are contended: try again later, raise transactional(retries=), or let the transactions read and write "
    "fewer keys in common."
)
_MORE_TIME: Final = (
    "The deadline of the RetryPolicy of the database has passed: try again later, raise RetryPolicy(deadline_s=), or "
    "make the function quicker."
)


class RunHistory:
    """The last run of one function that has come to its commit.

    Attributes:
        wrote: whether it had anything to commit.
        seconds: how long it took until then.
    """

    __slots__ = ("seconds", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        self.seconds = inf


class Rerun:
    """The runs of one call. The caller keeps ``ticket.alive``, and calls ``leave`` at the end.

    Args:
        retries: how often the function is run again at most, 0 or more; None for the attempts of the policy.

    Attributes:
        attempt: number of the present run, from 1.
        ticket: its place in the queues for contended keys.
    """

    __slots__ = (
        "_began",
        "_contended",
        "_context",
        "_defeats",
        "_failed",
        "_had_turn",
        "_history",
        "_lost",
        "_replaced",
        "_reservation",
        "_retries",
        "_started",
        "attempt",
        "ticket",
    )

    def __init__(self, context: Context, retries: int | None, history: RunHistory) -> None:
        self._context = context
        self._retries = context.retry.attempts - 1 if retries is None else retries
        self._history = history
        self._started = context.monotonic()
        self._began = self._started
        self._contended: frozenset[bytes] = frozenset()
        self._defeats = 0
        self._failed: tuple[tuple[KeyPart, ...], ...] = ()
        self._had_turn = False
        self._lost: frozenset[bytes] = frozenset()
        self._replaced: frozenset[bytes] = frozenset()
        self.attempt = 1
        self._reservation = WriteReservation(context)
        self.ticket = context.turns.ticket()

    @property
    def will_write(self) -> bool:
        """Whether the function will probably write, so that a run during the turn of another one is in vain."""
        return self._history.wrote

    def prepared(self, write: AtomicWrite | None) -> None:
        """Note that a run has come to its commit; without a turn, take it for the keys that the commit replaces.

        So others that come to these keys meanwhile wait, instead of failing at their commit.
        """
        history = self._history
        history.wrote = write is not None
        history.seconds = self._context.monotonic() - self._began
        if write is not None:
            self._replaced = frozenset(mutation.key for mutation in write.mutations)
        if write is not None and not self.ticket.keys:
            checked = {check.key for check in write.checks}
            replaced = [mutation.key for mutation in write.mutations if mutation.key in checked]
            if replaced:
                self.ticket.join(replaced)

    def beaten(self, conflict: TransactionConflictError, keys: tuple[bytes, ...]) -> None:
        """Note that a conflict has ended a run. It is not kept, because it holds the frames of the run.

        Args:
            keys: keys that others have written.

        Raises:
            RetriesExhaustedError: the function was run as often, or for as long, as it may be.
        """
        self._failed = conflict.failed_checks
        self._lost = frozenset(keys) - {HEADER_KEY}
        left = self._left()
        if self.attempt > self._retries or left <= 0:
            raise self._exhausted(_MORE_TIME if left <= 0 else _MORE_RETRIES) from conflict
        self.attempt += 1

    def interrupted(self, lost: SnapshotLostError) -> None:
        """Note that the store has ended the snapshot of a run, which wrote nothing.

        Raises:
            SnapshotLostError: the function was run as often, or for as long, as it may be.
        """
        if self.attempt > self._retries or self._left() <= 0:
            raise lost
        self._lost = frozenset()
        self.attempt += 1

    def again(self) -> Flow[None]:
        """Wait until the function may be run once more.

        Records that were referred to, and that another writer has changed, get their anchors.

        Raises:
            RetriesExhaustedError: the deadline has passed.
        """
        view = self._context.view
        if view is not None:
            yield from anchor(busy_targets(self._lost - self._replaced, view.live.values()), view.guard)
        if self._had_turn and self.ticket.granted and self._lost <= self.ticket.keys:
            self._reservation.expect_outsiders()
            self._defeats += 1
            if not (yield from self._reserve()):
                retry = self._context.retry
                pause = min(retry.pause(self._defeats + 1, self._context.random()), max(self._left(), 0))
                if pause > 0:
                    yield from sleep(pause)
        else:
            # The function may come back to keys of earlier conflicts, so it waits for all of them.
            self._contended |= self._lost
            self.ticket.join(self._contended)
            if self._contended:  # a schema change takes no turn for the header, so there is none to wait for
                yield from self._turn()
            yield from self._reserve()
        self._had_turn = True
        self._began = self._context.monotonic()

    def leave(self) -> None:
        """Release the reservation of writes and the turn that the runs of the call hold. Idempotent."""
        try:
            self._reservation.release()
        finally:
            self.ticket.leave()

    def _reserve(self) -> Flow[bool]:
        """Take the writer lock if other processes write; return whether it was taken."""
        return self._history.seconds < QUICK_S and (yield from self._reservation.taken(self._left()))

    def _turn(self) -> Flow[None]:
        while not (yield from take_turn(self.ticket, max(self._left(), 0))):
            if self._left() <= 0:
                raise self._exhausted(_MORE_TIME)

    def _left(self) -> float:
        return self._context.retry.deadline_s - (self._context.monotonic() - self._started)

    def _exhausted(self, hint: str) -> RetriesExhaustedError:
        return RetriesExhaustedError(
            "every run of the transaction met a conflict",
            attempts=self.attempt,
            elapsed_s=round(self._context.monotonic() - self._started, 6),
            failed_checks=self._failed,
            hint=hint,
        )
