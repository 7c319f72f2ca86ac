"""Commit the atomic operation of a transaction, and decide when its function is run again after a conflict.

On engines whose answers can be lost the operation checks that its token is absent, and sets it. So it may be sent again
after a lost answer. Before a failure is reported the token is burned (``flows/writing/tokens.py``), because the
operation may still arrive. After a conflict the operation is not sent again, because it rests on what was read.

The first run takes no turn before its commit, so writers of different keys do not wait for each other; with its commit
it takes the turn for the keys that it replaces. After a conflict the function waits for its turn on the keys of the
conflict, and keeps the turn until its commit (``kvmodels._support.turns``). From then on only writers that take no
turns, such as other processes, can cause a conflict. If one of these has done so recently, a function with a turn also
takes the writer lock of the file, before it reads (``HeldTurn``).

A run ends as soon as it comes to a key for which another transaction has the turn: at a write, and if the last run of
the function has written, already at a read.

Rules of this module: bounded by the attempts and the deadline of the ``RetryPolicy``; waiting for a turn counts as
time, and not as a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.keys import KeyPart, decode_key
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.errors import (
    CommitUnknownError,
    KvModelsError,
    RetriesExhaustedError,
    SnapshotLostError,
    TransactionConflictError,
)
from kvmodels.flows.context import Context, pause_before
from kvmodels.flows.effects import Commit, Flow, now, take_turn
from kvmodels.flows.references import anchor, busy_targets
from kvmodels.flows.writing.contention import DEFEATS, HeldTurn
from kvmodels.flows.writing.tokens import Token, settled
from kvmodels.indexing.budget import check_budget

Conflicted = Callable[[Sequence[bytes]], KvModelsError]


def send(
    context: Context, write: AtomicWrite, collections: Iterable[LiveCollection], conflicted: Conflicted
) -> Flow[bytes]:
    """Commit an operation; return its versionstamp."""
    token = None
    if context.traits.may_lose_answers:
        token = Token(context.new_token(), context.retry.deadline_s)
        write = token.attach(write, token.row(context, 1, (yield from now())))
        check_budget(write, context.limits, collections)
    sending = _Sending(context, write, token)
    try:
        return (yield from sending.outcome(conflicted))
    except Exception:
        raise
    except BaseException as interruption:
        sending.annotate(interruption)
        raise


class _Sending:
    """One operation that is being committed."""

    def __init__(self, context: Context, write: AtomicWrite, token: Token | None) -> None:
        self._context = context
        self._write = write
        self._token = token
        self._started = context.monotonic()
        self._attempts = 0
        self._lost = False

    def outcome(self, conflicted: Conflicted) -> Flow[bytes]:
        while True:
            try:
                failed = yield from self._attempt()
                if isinstance(failed, bytes):
                    return failed
                if failed is not None:
                    raise conflicted(failed)
                self._require_attempts_left()
            except KvModelsError:
                applied = yield from self._settle()
                if applied is None:
                    raise
                return applied
            yield from pause_before(self._context, self._attempts + 1)

    def _attempt(self) -> Flow[bytes | tuple[bytes, ...] | None]:
        """Return the versionstamp; or the keys whose checks failed; or None when the answer was lost."""
        self._attempts += 1
        try:
            outcome: Committed | Conflict = yield Commit(self._write)
        except CommitUnknownError:
            if self._token is None:
                raise
            self._lost = True
            return None
        except Exception:
            raise
        except BaseException:
            self._lost = True  # it may be on its way
            raise
        if isinstance(outcome, Committed):
            return outcome.versionstamp
        failed = tuple(self._write.checks[position].key for position in outcome.failed_checks)
        if self._token is not None and (self._token.key in failed or not failed):
            self._lost = True  # the second delivery of an operation that was applied
        return failed

    def _settle(self) -> Flow[bytes | None]:
        """Return the versionstamp if the operation was applied after all; called before a failure is reported."""
        if not self._lost or self._token is None:
            return None
        row = yield from settled(self._context, self._token, self._started)
        self._lost = False
        return None if row is None else row.versionstamp

    def _require_attempts_left(self) -> None:
        elapsed = self._context.monotonic() - self._started
        policy = self._context.retry
        if self._attempts >= policy.attempts or elapsed >= policy.deadline_s:
            raise RetriesExhaustedError(
                "the answer to every commit of the transaction was lost",
                attempts=self._attempts,
                elapsed_s=round(elapsed, 6),
                failed_checks=(decode_key(self._token.key),) if self._token else (),
                hint="Nothing was written. Look after the connection to the store, and run the transaction again.",
            )

    def annotate(self, error: BaseException) -> None:
        """Add to an interruption the token by which the outcome can be found out, if it is uncertain."""
        if self._lost and self._token is not None:
            error.add_note(f"kvmodels: db.outcome({self._token.text!r}) tells whether the transaction was applied")


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
    """The last run of one function that has come to its commit."""

    def __init__(self) -> None:
        self.wrote = False
        self.seconds = inf


class Rerun(HeldTurn):
    """The runs of one call.

    Args:
        retries: how often the function is run again at most, 0 or more; None for the attempts of the policy.

    Attributes:
        attempt: number of the present run, from 1.
        history: of the runs of the function that have come to their commits.
    """

    def __init__(self, context: Context, retries: int | None, history: RunHistory) -> None:
        super().__init__(context, context.turns.ticket(), context.monotonic())
        self._retries = context.retry.attempts - 1 if retries is None else retries
        self.history = history
        self._contended: frozenset[bytes] = frozenset()
        self._failed: tuple[tuple[KeyPart, ...], ...] = ()
        self._had_turn = False
        self._lost: frozenset[bytes] = frozenset()
        self._replaced: frozenset[bytes] = frozenset()
        self.attempt = 1

    def prepared(self, write: AtomicWrite | None) -> None:
        """Note that a run has come to its commit; without a turn, take it for the keys that the commit replaces.

        So others that come to these keys meanwhile wait, instead of failing at their commit.
        """
        history = self.history
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
        """Note that a conflict has ended a run. It is not kept, because it holds the frames of the run."""
        self._failed = conflict.failed_checks
        self._lost = frozenset(keys) - {HEADER_KEY}
        left = self.seconds_left()
        if self.attempt > self._retries or left <= 0:
            raise self._exhausted(_MORE_TIME if left <= 0 else _MORE_RETRIES) from conflict
        self.attempt += 1

    def interrupted(self, lost: SnapshotLostError) -> None:
        """Note that the store has ended the snapshot of a run, which wrote nothing."""
        if self.attempt > self._retries or self.seconds_left() <= 0:
            raise lost
        self._lost = frozenset()
        self.attempt += 1

    def again(self) -> Flow[None]:
        """Wait until the function may be run once more.

        Records that were referred to, and that another writer has changed, get their anchors.
        """
        if self.attempt > DEFEATS:
            self._report(self._lost)
        view = self._context.view
        if view is not None:
            yield from anchor(
                self._context.limits, busy_targets(self._lost - self._replaced, view.live.values()), view.guard
            )
        if self._had_turn and self.ticket.granted and self._lost <= self.ticket.given_keys:
            self._expect_outsiders()
            self._defeats += 1
            if not (yield from self._reserve_if_quick()):
                yield from pause_before(self._context, self._defeats + 1, self.seconds_left())
        else:
            # The function may come back to keys of earlier conflicts, so it waits for all of them.
            self._contended |= self._lost
            self.ticket.join(self._contended)
            if self._contended:  # a schema change takes no turn for the header, so there is none to wait for
                yield from self._turn()
            yield from self._reserve_if_quick()
        self._had_turn = True
        self._began = self._context.monotonic()

    def _reserve_if_quick(self) -> Flow[bool]:
        return self.history.seconds < QUICK_S and (yield from self._reserve())

    def _turn(self) -> Flow[None]:
        while not (yield from take_turn(self.ticket, max(self.seconds_left(), 0))):
            if self.seconds_left() <= 0:
                raise self._exhausted(_MORE_TIME)

    def _exhausted(self, hint: str) -> RetriesExhaustedError:
        return RetriesExhaustedError(
            "every run of the transaction met a conflict",
            attempts=self.attempt,
            elapsed_s=round(self._context.monotonic() - self._started, 6),
            failed_checks=self._failed,
            hint=hint,
        )
