"""Commit the atomic operation of a transaction, and find out its outcome where answers can be lost.

On such engines the operation checks that its token is absent, and sets it. So it may be sent again after a lost answer.
Before a failure is reported the token is burned (``flows/writing/tokens.py``), because the operation may still arrive.

Rules of this module: bounded by the attempts and the deadline of the ``RetryPolicy``; after a conflict the operation is
not sent again, because it rests on what the transaction has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import AtomicWrite, Committed, Conflict
from kvmodels.errors import CommitUnknownError, KvModelsError, RetriesExhaustedError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Commit, Flow, now, sleep
from kvmodels.flows.writing.tokens import Token, settled
from kvmodels.indexing.budget import check_budget

Conflicted = Callable[[Sequence[bytes]], KvModelsError]


def send(
    context: Context, write: AtomicWrite, collections: Iterable[LiveCollection], conflicted: Conflicted
) -> Flow[bytes]:
    """Commit an operation; return its versionstamp.

    Args:
        write: the result of ``TransactionFlows.prepared``.
        collections: of the records that are written, for the error of a limit.
        conflicted: makes the error for keys whose checks failed.

    Raises:
        TransactionConflictError: a check failed; nothing was written.
        CommitUnknownError: answers were lost, and the outcome could not be found out before the deadline.
        RetriesExhaustedError: every answer was lost, and it is certain that nothing was written.
    """
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
            except KvModelsError:
                applied = yield from self._settle()
                if applied is None:
                    raise
                return applied
            if isinstance(failed, bytes):
                return failed
            if failed is not None:
                applied = yield from self._settle()
                if applied is None:
                    raise conflicted(failed)
                return applied
            exhausted = self._exhausted()
            if exhausted is not None:
                applied = yield from self._settle()
                if applied is None:
                    raise exhausted
                return applied
            pause = self._context.retry.pause(self._attempts + 1, self._context.random())
            if pause > 0:
                yield from sleep(pause)

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

    def _exhausted(self) -> RetriesExhaustedError | None:
        elapsed = self._context.monotonic() - self._started
        policy = self._context.retry
        if self._attempts < policy.attempts and elapsed < policy.deadline_s:
            return None
        return RetriesExhaustedError(
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
