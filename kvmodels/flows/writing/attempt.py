"""Carry out one logical write: read, propose, compile, commit, and try again after a conflict.

The first attempt guesses where its operation allows it: it goes without a read, or with one that no guard protects, and
takes unique values for free. Its commit checks all of that. Every later attempt goes by what it has read.

Every decision to fail is taken on one snapshot of header, records, slots and token, so an error is true at one
moment. On engines that may lose answers one ``Token`` goes with all attempts: each checks that it is absent and sets
it to its number. Burning a token (setting it to VOID while it is absent) makes sure that no delivery which is still
under way can be applied; until then nothing but success may be reported after a lost answer. A token in the record
itself was rejected, because a later write of the record destroys it.

Rules of this module: bounded by attempts and deadline (``RetryPolicy``); no decision about records or indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kvmodels._support.turns import Ticket
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, ReadRange, ReadResult, Removal, Row, point
from kvmodels.errors import (
    CommitUnknownError,
    EngineError,
    KvModelsError,
    OperationTooLargeError,
    ReadOnlyError,
    RetriesExhaustedError,
)
from kvmodels.flows.context import (
    Context,
    HeaderView,
    header_view,
    pause_before,
    reload_header,
    writable_collection,
)
from kvmodels.flows.effects import Commit, Flow, ReadToChange, Remove, now, read_all, read_together
from kvmodels.flows.references import NOTHING_FOUND, FoundRanges, anchor, busy_targets, read_entries, with_ranges
from kvmodels.flows.settling import require_durable_reads
from kvmodels.flows.writing.cascade import Cascade, Cascaded
from kvmodels.flows.writing.contention import DEFEATS, Contention, calling
from kvmodels.flows.writing.operation import (
    NO_ROOTS,
    AttemptState,
    LogicalWrite,
    Proposal,
    compiled_proposal,
    failed_keys,
    may_guess,
    refused_by_store,
    run_after,
)
from kvmodels.flows.writing.tokens import Token, settled, token_row_attempt
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.cascades import TOO_LARGE, cascading_removals
from kvmodels.indexing.entries import NeedRows, StaleRow
from kvmodels.indexing.rules import needs_moment
from kvmodels.indexing.simple import RecordWriter, fits, record_writer

R = TypeVar("R")

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


_Keys: TypeAlias = Sequence[bytes]

_NO_KEYS: Final = frozenset[bytes]()


class _Done(NamedTuple, Generic[R]):
    result: R
    written: bool = True
    after: tuple[Callable[[], object], ...] = ()


def execute(context: Context, operation: LogicalWrite[R], passed: Sequence[Ticket] | None = None) -> Flow[R]:
    """Run one logical write until it is committed or cannot be.

    Atomicity: one commit, or in a transaction a part of its commit. Cost: an attempt is at most two reads and one
    commit.

    ``passed``: the tickets that its first attempt goes past; None: not known yet.
    """
    if context.transaction is not None:
        joined: R = yield from context.transaction.take(operation)
        return joined
    started = context.monotonic()
    failed: _Keys | None = None
    view = context.view or (yield from reload_header(context))
    if passed is None and context.turns.queues:
        return (yield from _in_contention(context, operation, view, started))
    writer = record_writer(live := view.live[operation.schema.collection], view.guard, context.codec)
    if may_guess(context, operation, live, writer):
        guess = operation.compiled(view)
        if guess is None:
            rows: dict[bytes, Row | None] | None = None
            row: Row | None = None
            if operation.reads:
                (key,) = operation.keys(view)
                ranges = (_new(ReadRange, (key, None, None, False, False)),)
                found: ReadResult = yield _new(ReadToChange, (ranges, None, True, None))
                row = found.ranges[0][0] if found.ranges[0] else None
                rows = {key: row}
                del found
            timed = operation.timed or live.is_staged
            now_ms = (yield from now()) if timed or (row is not None and row.expire_at is not None) else 0
            guess = _guess(context, operation, _new(AttemptState, (view, rows, now_ms)), writer)
            del rows, row  # the garbage collector visits everything that many waiting tasks keep
        if guess is not None:
            proposal, write = guess
            try:
                outcome: Committed | Conflict = yield (
                    _new(Remove, (write,)) if isinstance(write, Removal) else _new(Commit, (write,))
                )
            except ReadOnlyError as error:
                outcome = refused_by_store(write, error)
            if isinstance(outcome, Committed):
                result: R = proposal.done(outcome.versionstamp)
                if proposal.after:
                    run_after(proposal.after)
                return result
            failed = failed_keys(write, outcome)
    return (yield from _carried_out(_Run(context, operation, started), failed, passed=passed or ()))


def _in_contention(context: Context, operation: LogicalWrite[R], view: HeaderView, started: float) -> Flow[R]:
    """Run a write while others wait for turns: in its own turn if for its keys, but past those that still sleep."""
    keys = operation.keys(view) if operation.reads else ()
    # On a server no ticket is passed: a round trip in vain costs more than a switch of threads.
    passed = context.turns.passed(keys, passes_sleepers=not context.traits.remote)
    if passed is None:
        return (yield from _carried_out(_Run(context, operation, started), None, keys))
    try:
        return (yield from execute(context, operation, passed))
    finally:
        for ticket in passed:
            ticket.end_passing()


def _guess(
    context: Context, operation: LogicalWrite[R], seen: AttemptState, writer: RecordWriter | None
) -> tuple[Proposal[R], AtomicWrite] | None:
    """Return what to commit by assumptions; None where the state of the store must be read.

    Only a success of that commit is final. Where the assumptions lead to an error, or to no write at all, the attempt
    is made again under the guard of the header.
    """
    try:
        proposal = operation.propose(seen)
        changes = proposal.changes
        compiled: AtomicWrite | NeedRows | StaleRow | None = None
        if writer is not None and changes and proposal.extra is None:
            compiled = writer.compiled(changes, None)  # of unique slots nothing is read: each is taken for free
        if compiled is None:
            compiled = compiled_proposal(context, operation, proposal, seen, time_ms=seen.now_ms)
        if not isinstance(compiled, AtomicWrite):
            return None
        if not fits(compiled, context.limits):
            check_budget(compiled, context.limits, [change.live for change in changes])
    except KvModelsError:
        if seen.rows is None:
            raise
        return None
    return proposal, compiled


def _carried_out(run: _Run[R], failed: _Keys | None, contended: _Keys = (), passed: Sequence[Ticket] = ()) -> Flow[R]:
    """Return the result of the attempt that succeeds; ``passed``: the tickets that the first attempt went past."""
    for ticket in passed:
        ticket.end_passing()
    try:
        done = yield from (_in_turns(run, contended) if contended else _attempts(run, failed))
    except Exception:
        raise
    except BaseException as interruption:
        run.annotate(interruption)
        raise
    if done.after:
        run_after(done.after)
    return done.result


def _in_turns(run: _Run[R], contended: Sequence[bytes]) -> Flow[_Done[R]]:
    """Make the attempts in turns with other writes of the same keys; without ``contended``, after a conflict."""
    contention = run.contention = run.contend()
    with contention.ticket.alive:
        try:
            yield from (contention.expected(contended) if contended else contention.lost(run.lost_keys))
            return (yield from _attempts(run, None))
        finally:
            contention.leave()
            run.contention = None


def _attempts(run: _Run[R], failed: _Keys | None) -> Flow[_Done[R]]:
    """Make attempts until one succeeds or none may follow; return what it ended with."""
    while True:
        try:
            outcome = yield from (run.attempt() if failed is None else run.refused(failed))
        except Exception as error:
            applied = yield from run.settle()
            if applied is None:
                if run.traits.remote and not isinstance(error, EngineError):
                    yield from require_durable_reads(run.traits)
                raise
            return applied
        failed = None
        if outcome is not None:
            # That nothing had to be written is no success either while an earlier attempt may still be applied.
            applied = None if outcome.written else (yield from run.settle())
            if not outcome.written and applied is None:
                yield from require_durable_reads(run.traits)
            return applied or outcome
        exhausted = run.exhausted()
        if exhausted is None:
            yield from run.anchor_targets()  # before a reservation of writes, which their commits would end
            if run.contention is None and run.is_beaten:
                return (yield from _in_turns(run, ()))
            yield from run.pause()
            continue
        applied = (yield from run.settle()) or (yield from run.diagnose())
        if applied is None:
            raise exhausted
        return applied


class _Run(Generic[R]):
    """The state of one logical write over its attempts."""

    def __init__(self, context: Context, operation: LogicalWrite[R], started: float) -> None:
        self._context = context
        self._operation = operation
        self._started = started
        self.traits = context.traits
        self._attempts = 0
        self.contention: Contention | None = None
        self.lost_keys: tuple[bytes, ...] = ()
        """The keys that the last attempt has lost to another write."""
        self._failed: _Keys = ()
        self._busy: dict[bytes, bytes] = {}
        """The targets of the write that another one changed before its commit, with the keys of their anchors."""
        self._proposals: dict[int, Proposal[R]] = {}
        self.token = Token(context.new_token(), context.retry.deadline_s) if context.traits.may_lose_answers else None
        self.lost = False
        """An answer was lost or is not that of the first delivery: the operation may be applied, or may still be."""

    # --- one attempt ------------------------------------------------------------------------------------------

    def attempt(self) -> Flow[_Done[R] | None]:
        """Make one attempt; return None when it met a conflict."""
        self._attempts += 1
        self.lost_keys = ()
        compiled = yield from self._compiled(must_read=self._operation.reads or self._attempts > 1)
        if compiled is None or isinstance(compiled, _Done):
            return compiled
        return (yield from self._commit(*compiled))

    def refused(self, failed: _Keys) -> Flow[None]:
        """Count an attempt that met a conflict."""
        self._attempts += 1
        yield from self._refused(failed)

    def diagnose(self) -> Flow[_Done[R] | None]:
        """After the last conflict: one look at what is stored now, which raises the error that explains it."""
        compiled = yield from self._compiled(must_read=True)
        return compiled if isinstance(compiled, _Done) else None

    def _compiled(self, *, must_read: bool) -> Flow[tuple[Proposal[R], AtomicWrite | None] | _Done[R] | None]:
        """Return what to commit; or the result if an earlier attempt was applied; or None if the header changed."""
        context, operation = self._context, self._operation
        view, _ = yield from writable_collection(context, operation.schema)
        # A check that has failed is that of a row that is needed now, such as the owner of a unique value.
        keys = {*operation.keys(view), *self._failed} - {HEADER_KEY}
        proposed: tuple[Proposal[R], Any] | None = None
        entries = partial(read_entries, context, guard=view.guard)
        cascade = Cascade(context, partial(self._read_more, view), entries, operation.cascade_failed)
        rows: dict[bytes, Row | None] | None = None
        while True:
            if must_read:
                rows = yield from self._read(view, keys)
                if rows is None:
                    return None
                if (finished := self._finished(rows)) is not None:
                    return finished
            seen = AttemptState(view, rows, (yield from self._now(rows)))
            further = {*operation.further_keys(seen)} if operation.finds_keys else _NO_KEYS
            if rows is not None and not rows.keys() >= further:
                keys |= further
                continue
            # Time passes between two reads: a record may have expired, although its row is still the same.
            wanted = sorted(further.union(operation.keys(view)))
            basis = None if rows is None else [(rows[key], seen.live_row(key) is None) for key in wanted]
            if proposed is None or proposed[1] != basis:
                with calling(self.contention):
                    proposed = operation.propose(seen), basis
            planned = yield from self._planned(cascade, proposed[0], seen)
            if planned is None:
                return None
            proposal, compiled, has_cascade = planned
            if isinstance(compiled, NeedRows):
                keys |= compiled.keys | cascade.keys
                must_read = True
                continue
            if compiled is not None and self.token is not None:
                value = self.token.row(context, self._attempts, (yield from now()))
                compiled = self.token.attach(compiled, value)
            if compiled is not None:
                self._check_budget(compiled, proposal, has_cascade=has_cascade)
            return proposal, compiled

    def _planned(
        self, cascade: Cascade, proposal: Proposal[R], seen: AttemptState
    ) -> Flow[tuple[Proposal[R], AtomicWrite | NeedRows | None, bool] | None]:
        """Return a proposal with the records that change with it, its write, and whether there may be such records.

        Returns None after a conflict, or if the header has changed.
        """
        context, operation, view = self._context, self._operation, seen.view
        found, roots = NOTHING_FOUND, NO_ROOTS
        has_cascade = bool(cascading_removals(proposal.changes, seen.view.live))
        if has_cascade:
            cascaded = yield from cascade.expanded(proposal, seen)
            if not isinstance(cascaded, Cascaded):
                return None
            proposal, seen, roots = cascaded.of(proposal), cascaded.seen, cascaded.roots
            found = FoundRanges(cascaded.found)
        time_ms = (yield from now()) if needs_moment(proposal.changes) else 0

        def compiled(found: FoundRanges, now_ms: int) -> AtomicWrite | NeedRows | StaleRow | None:
            known = seen if now_ms == seen.now_ms else seen._replace(now_ms=now_ms)
            return compiled_proposal(context, operation, proposal, known, found=found, roots=roots, time_ms=time_ms)

        result = compiled(found, seen.now_ms)
        if isinstance(result, NeedRows) and not result.keys:
            result = yield from with_ranges(context, result, compiled, found, now_ms=seen.now_ms, guard=view.guard)
        return None if isinstance(result, StaleRow) else (proposal, result, has_cascade)

    def _check_budget(self, write: AtomicWrite, proposal: Proposal[R], *, has_cascade: bool) -> None:
        try:
            check_budget(write, self._context.limits, [change.live for change in proposal.changes])
        except OperationTooLargeError as error:
            if has_cascade:
                error.hint = TOO_LARGE
            raise

    def _read(self, view: HeaderView, keys: set[bytes]) -> Flow[dict[bytes, Row | None] | None]:
        """Physical rows of all keys at one moment under the header that the attempt was planned with.

        Without a read if they were handed on, unless an earlier attempt may have stored the token.
        """
        contention = None if self.token is not None and self._proposals else self.contention
        if contention is not None and (handed := contention.handed(view.guard, keys)) is not None:
            return handed
        wanted = sorted(keys if self.token is None else keys | {self.token.key})
        rows = yield from read_together(self._context.limits, wanted, view.guard)
        if rows is None:
            yield from reload_header(self._context)
        return rows

    def _read_more(self, view: HeaderView, keys: Sequence[bytes]) -> Flow[dict[bytes, Row | None] | None]:
        """Return physical rows at a later moment; each is checked by itself."""
        found = yield from read_all(self._context.limits, [*map(point, keys)], view.guard, include_expired=True)
        if found is None:
            yield from reload_header(self._context)
            return None
        return {key: rows[0] if rows else None for key, rows in zip(keys, found, strict=True)}

    def _now(self, rows: dict[bytes, Row | None] | None) -> Flow[int]:
        if self._operation.timed or any(row and row.expire_at is not None for row in (rows or {}).values()):
            return (yield from now())
        return 0

    def _commit(self, proposal: Proposal[R], write: AtomicWrite | None) -> Flow[_Done[R] | None]:
        """Commit; return None after a conflict."""
        if write is None:
            return _Done(proposal.done(b""), written=False)
        self._proposals[self._attempts] = proposal
        moment = self._context.turns.moment()
        try:
            outcome: Committed | Conflict = yield _new(Commit, (write,))
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
            if self.contention is not None:
                self.contention.committed(moment, write, outcome.versionstamp)
            return _Done(proposal.done(outcome.versionstamp), after=proposal.after)
        yield from self._refused(tuple([write.checks[position].key for position in outcome.failed_checks]))
        return None

    def _refused(self, failed: _Keys) -> Flow[None]:
        """Learn from the checks that did not hold."""
        self._failed = failed
        if self._attempts > 1 or not self._operation.targets:  # a loaded target may only be an old version
            self._note_busy(failed)
        if self.token is not None and (self.token.key in self._failed or not self._failed):
            # The token is there already: this was the second delivery of an operation that was applied. So no error
            # may be reported before the token was looked at.
            self.lost = True
        # An attempt without a read only guesses, so its conflict says nothing of contention.
        if self._informed:
            token_key = None if self.token is None else self.token.key
            self.lost_keys = tuple(key for key in failed if key not in (HEADER_KEY, token_key))
        if HEADER_KEY in self._failed or not self._failed:
            yield from reload_header(self._context)

    def _note_busy(self, failed: _Keys) -> None:
        view = self._context.view
        if view is not None and (live := view.live[self._operation.schema.collection]).references:
            own = self._operation.keys(view)
            self._busy = busy_targets([key for key in failed if key not in own], (live,))

    # --- between attempts -------------------------------------------------------------------------------------

    def anchor_targets(self) -> Flow[None]:
        """Set the anchors of the targets that other writes have changed; see ``anchor``."""
        if self._busy:
            found, self._busy = self._busy, {}
            yield from anchor(self._context.limits, found, (yield from header_view(self._context)).guard)

    @property
    def _informed(self) -> int:
        """The number of attempts that have read.

        An attempt without a read only guesses: what it met may be a row that has expired, or another header.
        """
        return self._attempts if self._operation.reads else self._attempts - 1

    @property
    def is_beaten(self) -> bool:
        """Whether other writers were faster: at keys of this write, or again and again while its records were read."""
        return bool(self.lost_keys) or (self._context.release_writes is not None and self._informed >= DEFEATS)

    def contend(self) -> Contention:
        """Return a place in the queues for contended keys."""
        return Contention(self._context, self._started)

    def exhausted(self) -> RetriesExhaustedError | None:
        """Return the error when there may be no further attempt."""
        elapsed = self._context.monotonic() - self._started
        policy = self._context.retry
        allowed = min(policy.attempts, self._operation.attempts or policy.attempts)
        if self._informed < allowed and elapsed < policy.deadline_s:
            return None
        return RetriesExhaustedError(
            "every attempt met a conflict",
            attempts=self._attempts,
            elapsed_s=round(elapsed, 6),
            failed_checks=tuple(decode_key(key) for key in self._failed),
        )

    def pause(self) -> Flow[None]:
        """Wait before the next attempt: for a turn after a conflict, else with full jitter; not beyond the deadline.

        The second attempt follows at once: the first may have gone without a read, and then its conflict says
        nothing of contention.
        """
        if self.contention is not None and self.is_beaten:
            yield from self.contention.lost(self.lost_keys)
            return
        left = self._context.retry.deadline_s - (self._context.monotonic() - self._started)
        yield from pause_before(self._context, self._attempts, left)

    def settle(self) -> Flow[_Done[R] | None]:
        """Before a failure is reported: make sure that no lost commit of this operation was or will be applied.

        Returns None when the failure is true; the result of the attempt that was applied after all otherwise.
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
        """Return the result when an earlier attempt turns out to have been applied."""
        row = rows.get(self.token.key) if self.token is not None else None
        return None if row is None else self._result_of(row)

    def _result_of(self, row: Row) -> _Done[R]:
        attempt = token_row_attempt(self._context, row)
        if attempt is None:
            burned, self.lost, self.token = self.token, False, None
            raise CommitUnknownError(
                "db.outcome(token) gave up the operation while it ran",
                token=burned.text if burned else None,
                hint="A call of db.outcome(token) has given the operation up; nothing was written.",
            )
        proposal = self._proposals[attempt]
        return _Done(proposal.done(row.versionstamp), after=proposal.after)
