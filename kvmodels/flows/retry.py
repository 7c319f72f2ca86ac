"""Carry one logical write to its end: read, propose, compile, commit, and try again after a conflict.

Every decision to fail is taken on one snapshot of header, records, slots and token, so an error is true at one
moment. On engines that may lose answers one token goes with all attempts: each checks that it is absent and sets it
to its number. After a lost answer nothing but success may be reported until the token is burned (``flows/token.py``),
because the lost commit may still arrive.

Rules of this module: bounded by attempts and deadline (``RetryPolicy``); no decision about records or indexes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from kvmodels.errors import CommitUnknownError, KvModelsError, RetriesExhaustedError
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.operation import Operation, Proposal, Seen, run_after
from kvmodels.flows.requests import Flow, commit, now, read, sleep
from kvmodels.flows.token import Token, settled, token_row_attempt
from kvmodels.keys import decode_key
from kvmodels.maintenance.budget import check_budget
from kvmodels.maintenance.changes import NeedRows, Violation
from kvmodels.maintenance.compiler import compile_write
from kvmodels.operations import AtomicWrite, Committed, GuardFailed, Row, point
from kvmodels.schema.keyspace import HEADER_KEY

__all__ = ["FirstAttempt", "execute"]

R = TypeVar("R")


class _Done(NamedTuple, Generic[R]):
    result: R
    written: bool = True
    after: tuple[Callable[[], object], ...] = ()


class FirstAttempt(NamedTuple):
    """An attempt that met a conflict before anybody asked for ``execute``: when it began, and which checks failed."""

    started: float
    failed: tuple[bytes, ...]


def execute(context: Context, operation: Operation[R], first: FirstAttempt | None = None) -> Flow[R]:
    """Run one logical write until it is committed or cannot be.

    Args:
        context: shared by the flows of the database.
        operation: the write.
        first: its first attempt, if it was made by a shorter way; it counts as one that was made here.

    Raises:
        RetriesExhaustedError: every attempt met a conflict, or the deadline passed.
        CommitUnknownError: an answer was lost and the token could not be burned before the deadline.
        Whatever ``operation.propose`` raises.

    Atomicity: one commit, or in a transaction a part of its commit. Cost: an attempt is at most two reads and one
    commit.
    """
    if context.transaction is not None:
        joined: R = yield from context.transaction.take(operation)
        return joined
    run = _Run(context, operation, first)
    try:
        done = yield from _carried_out(run)
    except Exception:
        raise
    except BaseException as interruption:
        run.annotate(interruption)
        raise
    if done.after:
        run_after(done.after)
    return done.result


def _carried_out(run: _Run[R]) -> Flow[_Done[R]]:
    while True:
        try:
            outcome = yield from run.attempt()
        except Exception:
            applied = yield from run.settle()
            if applied is None:
                raise
            return applied
        if outcome is not None:
            # That nothing had to be written is no success either while an earlier attempt may still be applied.
            applied = None if outcome.written else (yield from run.settle())
            return applied or outcome
        exhausted = run.exhausted()
        if exhausted is None:
            yield from run.pause()
            continue
        applied = (yield from run.settle()) or (yield from run.diagnose())
        if applied is None:
            raise exhausted
        return applied


class _Run(Generic[R]):
    """The state of one logical write over its attempts."""

    def __init__(self, context: Context, operation: Operation[R], first: FirstAttempt | None) -> None:
        self._context = context
        self._operation = operation
        self._first = first
        self._started = context.monotonic() if first is None else first.started
        self._attempts = 0
        self._reads = operation.reads
        self._failed: tuple[Any, ...] = ()
        self._proposals: dict[int, Proposal[R]] = {}
        self.token = Token(context.new_token(), context.retry.deadline_s) if context.traits.may_lose_answers else None
        self.lost = False
        """An answer was lost or is not that of the first delivery: the operation may be applied, or may still be."""

    # --- one attempt ------------------------------------------------------------------------------------------

    def attempt(self) -> Flow[_Done[R] | None]:
        """One try; None when it met a conflict."""
        self._attempts += 1
        if self._first is not None:
            failed, self._first = self._first.failed, None
            yield from self._refused(failed)
            return None
        compiled = yield from self._compiled(must_read=self._reads or self._attempts > 1)
        if compiled is None or isinstance(compiled, _Done):
            return compiled
        return (yield from self._commit(*compiled))

    def diagnose(self) -> Flow[_Done[R] | None]:
        """After the last conflict: one look at what is stored now, which raises the error that explains it."""
        compiled = yield from self._compiled(must_read=True)
        return compiled if isinstance(compiled, _Done) else None

    def _compiled(self, *, must_read: bool) -> Flow[tuple[Proposal[R], AtomicWrite | None] | _Done[R] | None]:
        """What to commit; the result when an earlier attempt was applied; None when the header changed."""
        view = yield from self._writable_view()
        keys = set(self._operation.keys(view))
        proposed: tuple[Proposal[R], Any] | None = None
        while True:
            if must_read:
                rows = yield from self._read(view, keys)
                if rows is None:
                    return None
                finished = self._finished(rows)
                if finished is not None:
                    return finished
            else:
                rows = None
            seen = Seen(view, rows, (yield from self._now(rows)))
            # Time passes between two reads: a record may have expired, although its row is still the same.
            wanted = sorted(self._operation.keys(view))
            basis = None if rows is None else [(rows[key], seen.live_row(key) is None) for key in wanted]
            if proposed is None or proposed[1] != basis:
                proposed = self._operation.propose(seen), basis
            compiled = yield from self._compile(proposed[0], seen)
            if isinstance(compiled, NeedRows):
                keys |= compiled.keys
                must_read = True
                continue
            return proposed[0], compiled

    def _writable_view(self) -> Flow[HeaderView]:
        view = yield from header_view(self._context)
        if any(_obstacle(view, schema.collection) for schema in self._operation.schemas):
            view = yield from reload_header(self._context)
            for schema in self._operation.schemas:
                obstacle = _obstacle(view, schema.collection)
                if obstacle is not None:
                    raise obstacle
        return view

    def _read(self, view: HeaderView, keys: set[bytes]) -> Flow[dict[bytes, Row | None] | None]:
        """Physical rows of all keys in one snapshot of the header that the attempt was planned with."""
        wanted = sorted(keys if self.token is None else keys | {self.token.key})
        result = yield from read([point(key) for key in wanted], view.guard, include_expired=True)
        if isinstance(result, GuardFailed):
            yield from reload_header(self._context)
            return None
        return {key: rows[0] if rows else None for key, rows in zip(wanted, result.ranges, strict=True)}

    def _now(self, rows: dict[bytes, Row | None] | None) -> Flow[int]:
        if self._operation.timed or any(row and row.expire_at is not None for row in (rows or {}).values()):
            return (yield from now())
        return 0

    def _compile(self, proposal: Proposal[R], seen: Seen) -> Flow[AtomicWrite | NeedRows | None]:
        beside = proposal.beside
        if not proposal.changes and beside is None:
            return None
        compiled = compile_write(
            proposal.changes,
            seen.rows,
            header=seen.view.guard,
            codec=self._context.codec,
            now_ms=seen.now_ms,
            max_key_bytes=self._context.limits.max_key_bytes,
        )
        if isinstance(compiled, Violation):
            raise self._operation.refused(compiled)
        if isinstance(compiled, NeedRows):
            return compiled
        write = compiled.write
        if beside is not None:
            write = AtomicWrite((*write.checks, *beside.checks), (*write.mutations, *beside.mutations))
        if self.token is not None:
            value = self.token.row(self._context, self._attempts, (yield from now()))
            write = self.token.attach(write, value)
        check_budget(write, self._context.limits, (change.live for change in proposal.changes))
        return write

    def _commit(self, proposal: Proposal[R], write: AtomicWrite | None) -> Flow[_Done[R] | None]:
        if write is None:
            return _Done(proposal.done(b""), written=False)
        self._proposals[self._attempts] = proposal
        try:
            outcome = yield from commit(write)
        except CommitUnknownError:
            if self.token is None:
                raise
            self.lost = True
            return None
        except Exception:
            raise
        except BaseException:
            self.lost = True  # it may be on its way
            raise
        if isinstance(outcome, Committed):
            return _Done(proposal.done(outcome.versionstamp), after=proposal.after)
        yield from self._refused(tuple(write.checks[position].key for position in outcome.failed_checks))
        return None

    def _refused(self, failed: tuple[bytes, ...]) -> Flow[None]:
        """Learn from the checks that did not hold."""
        self._failed = failed
        if self.token is not None and (self.token.key in self._failed or not self._failed):
            # The token is there already: this was the second delivery of an operation that was applied. So no error
            # may be reported before the token was looked at.
            self.lost = True
        if HEADER_KEY in self._failed or not self._failed:
            yield from reload_header(self._context)

    # --- between attempts -------------------------------------------------------------------------------------

    def exhausted(self) -> RetriesExhaustedError | None:
        """The error when there may be no further attempt."""
        elapsed = self._context.monotonic() - self._started
        policy = self._context.retry
        # An attempt without a read only guesses: what it met may be a row that has expired, or another header.
        informed = self._attempts if self._operation.reads else self._attempts - 1
        if informed < min(policy.attempts, self._operation.attempts or policy.attempts) and elapsed < policy.deadline_s:
            return None
        return RetriesExhaustedError(
            "every attempt met a conflict",
            attempts=self._attempts,
            elapsed_s=round(elapsed, 6),
            failed_checks=tuple(decode_key(key) for key in self._failed),
        )

    def pause(self) -> Flow[None]:
        """Wait before the next attempt, with full jitter, and not beyond the deadline.

        The second attempt follows at once: the first may have gone without a read, and then its conflict says
        nothing of contention.
        """
        policy = self._context.retry
        left = policy.deadline_s - (self._context.monotonic() - self._started)
        seconds = min(policy.pause(self._attempts, self._context.random()), left)
        if seconds > 0:
            yield from sleep(seconds)

    def settle(self) -> Flow[_Done[R] | None]:
        """Before a failure is reported: make sure that no lost commit of this operation was or will be applied.

        Returns:
            None when the failure is true; the result of the attempt that was applied after all otherwise.
        """
        if not self.lost or self.token is None:
            return None
        row = yield from settled(self._context, self.token, self._started)
        if row is not None:
            return self._result_of(row)
        # Burned: whatever is still under way is refused, so there is nothing left to ask for or to look at.
        self.lost, self.token = False, None
        return None

    def annotate(self, error: BaseException) -> None:
        """Tell an interruption by which token the outcome can be asked for, if it is not certain."""
        if self.lost and self.token is not None:
            error.add_note(f"kvmodels: db.outcome({self.token.text!r}) tells whether the operation was applied")

    def _finished(self, rows: dict[bytes, Row | None]) -> _Done[R] | None:
        """The result when an earlier attempt turns out to have been applied."""
        row = rows.get(self.token.key) if self.token is not None else None
        return None if row is None else self._result_of(row)

    def _result_of(self, row: Row) -> _Done[R]:
        attempt = token_row_attempt(self._context, row)
        if attempt is None:
            burned, self.lost, self.token = self.token, False, None
            raise CommitUnknownError(
                "the token of an operation was burned while it ran",
                token=burned.text if burned else None,
                hint="Somebody called db.outcome(token), which gave the operation up; nothing was written.",
            )
        proposal = self._proposals[attempt]
        return _Done(proposal.done(row.versionstamp), after=proposal.after)


def _obstacle(view: HeaderView, collection: str) -> KvModelsError | None:
    live = view.live[collection]
    return live.refused or live.read_only
