"""A transaction: reads of one snapshot and of its own writes, and one commit of all its writes.

Every flow of the library runs in a transaction unchanged: ``through`` answers its reads, and ``execute`` hands its
write over to ``take``. At the end ``prepared`` compiles all changes to one atomic operation, which checks everything
that was read.

Rules of this module: the time of a transaction is that of its beginning, as that of its snapshot, so two reads of one
record agree on whether it has expired. On an engine without snapshots, a key that is seen in two versions, or a header
that changes, ends the transaction with a conflict at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.operations import AtomicWrite, Follow, GuardFailed, Mutation, ReadRange, ReadResult, Row, Set, point
from kvmodels.errors import KvModelsError, OperationTooLargeError, TransactionConflictError
from kvmodels.flows.context import Context, HeaderView, read_header
from kvmodels.flows.effects import (
    PASSED_ON,
    AnyFlow,
    Commit,
    CommitApart,
    Flow,
    Now,
    Read,
    ReadPresent,
    ReadUnchecked,
    Request,
    fits_one_read,
    now,
    read,
    read_all,
    split_ranges,
    steps_of,
)
from kvmodels.flows.kv.queue import NewMessage
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.references import NOTHING_FOUND, FoundRanges, read_neighbours
from kvmodels.flows.transaction import refusals
from kvmodels.flows.transaction.checks import (
    Guards,
    KeptRows,
    ReadSet,
    is_unchecked,
    noting,
    unchecked,
    version_of,
)
from kvmodels.flows.transaction.commit import Rerun
from kvmodels.flows.transaction.other_reads import (
    add_found_rows,
    alive_rows,
    entries_of,
    loose_rows,
    only_lists_more,
    presently,
    read_apart,
    rows_of,
)
from kvmodels.flows.transaction.pending_writes import Overlay, WrittenRecords
from kvmodels.flows.writing.cascade import Cascade, Cascaded
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.cascades import TOO_LARGE, cascading_removals
from kvmodels.indexing.compiler import compile_write
from kvmodels.indexing.entries import NeedRows, RecordChange, StaleRow
from kvmodels.indexing.versions import CommitMoment
from kvmodels.schema.instances import PendingStamp

R = TypeVar("R")
T = TypeVar("T")


def serve(flow: Flow[T], answer: Callable[[Request], Flow[Any]]) -> Flow[T]:
    """Run a flow inside another one: ``answer`` answers its requests, and its errors are thrown into the flow."""
    step: Callable[[Any], Request] = flow.send
    answered: Any = None
    try:
        while True:
            try:
                request = step(answered)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                answered = yield from answer(request)
            except KvModelsError as error:
                step, answered = flow.throw, error
    finally:
        flow.close()
        answered = None  # avoids a cycle: a stored error refers to its traceback and to this frame


class TransactionFlows:
    """The state of one transaction, and its flows.

    ``begin`` is run first; ``begin``, ``through``, ``check``, ``guard``, ``prepared`` and ``changed`` are run in the
    snapshot of the transaction if the engine has any.
    """

    _roots: Mapping[bytes, RecordChange] = MappingProxyType({})
    """For the key of each record that changes with a removal, the removal."""

    def __init__(self, shared: Context, form: StoreFormat, attempt: int = 1) -> None:
        self._shared = shared
        self.form = form
        self.attempt = attempt
        self.limits = form.limits_within(shared.limits)
        self.context = copy(shared)  # fewer instructions than ``replace()``
        self.context.view = None
        self.context.transaction = self
        self.now_ms = 0
        self.ended = False
        self._settled = False
        self.aborted_by: BaseException | None = None
        """The error that has ended a nested block; after it nothing can be committed."""
        self.met: TransactionConflictError | None = None
        """A conflict that was found before the commit; nothing can be committed after it."""
        self.rerun: Rerun | None = None
        """Runs the function again after a conflict. Its transaction leaves keys to those whose turn it is."""
        self.contended: tuple[bytes, ...] = ()
        """The keys of the conflict that has ended the transaction."""
        self._overlay = Overlay(PendingStamp())
        self._reads = ReadSet(shared.limits)
        self._kept = KeptRows() if shared.traits.remote and shared.traits.snapshots else None
        self._records = WrittenRecords(shared.codec, self._overlay)
        self._guards = Guards()
        self._acted: dict[bytes, Row | None] = {}
        """The guards of removed targets, as they were read when their removals changed other records."""
        self._versionstamped: dict[bytes, Set] = {}
        self._messages: list[tuple[NewMessage, StoreFormat]] = []
        self.hooks: list[Callable[[], object]] = []

    # --- reading ----------------------------------------------------------------------------------------------

    def begin(self) -> Flow[None]:
        """Read the time, and the header of the snapshot."""
        self.now_ms = yield Now()
        found: ReadResult = yield Read((ReadRange(HEADER_KEY),))
        rows, view = found.ranges[0], self._shared.view
        stamp = rows[0].versionstamp if rows else None
        if view is not None and view.versionstamp == stamp:
            self.context.view = view
            return
        self.context.view = yield from read_header(self.context)
        if stamp is not None and (view is None or view.versionstamp is None or view.versionstamp < stamp):
            self._shared.view = self.context.view  # the next transaction need not read it again

    @property
    def view(self) -> HeaderView:
        """The header for the whole transaction."""
        assert self.context.view is not None, "a transaction is begun before it is used"
        return self.context.view

    def through(self, flow: AnyFlow[T]) -> Flow[T]:
        """Run a flow in the transaction, which answers its reads; the flow cannot commit by itself."""
        self.require_open()
        return (yield from serve(steps_of(flow) if isinstance(flow, tuple) else flow, self._answer))

    def _answer(self, request: Any) -> Flow[Any]:
        if isinstance(request, ReadPresent):
            return (yield request)
        if isinstance(request, CommitApart):
            return (yield Commit(request.write))
        if isinstance(request, ReadUnchecked):
            return (yield from self._unchecked(request.ranges))
        if isinstance(request, Read):
            return (yield from self._read(request))
        if isinstance(request, Now):
            return self.now_ms
        if isinstance(request, PASSED_ON):
            return (yield request)
        raise refusals.commits_itself()

    def _read(self, request: Read) -> Flow[ReadResult | GuardFailed]:
        guard = request.guard
        if guard is not None and guard.versionstamp != self.view.versionstamp:
            return GuardFailed(self.view.versionstamp)
        if self.rerun is not None and self.rerun.history.wrote:  # a run during the turn of another one is in vain
            self._leave_turns([one.start for one in request.ranges if one.end is None])
        expired = request.include_expired
        if not self.context.traits.snapshots and not self._reads_once(request.ranges):
            chunks = split_ranges(self.context.limits, map(self._overlay.widened, request.ranges), guarded=True)
            return (yield from read_apart(request, chunks, self._read))
        if not self._overlay:
            asked: list[ReadRange] = []
            follow = None if request.follow is None else noting(request.follow, asked)
            result = yield from self._base(request.ranges, expired, follow)
            self._note_all((*request.ranges, *asked), (*result.ranges, *result.followed))
            return result
        merged = yield from self._merged(request.ranges, expired, guarded=guard is not None)
        if merged is None:
            return GuardFailed(self.view.versionstamp)
        found, versionstamp = merged
        further = [] if request.follow is None else [*request.follow(found)]
        followed = (yield from self._merged(further, expired)) if further else None
        return ReadResult(found, followed[0] if followed else [], versionstamp)

    def _reads_once(self, ranges: Sequence[ReadRange]) -> bool:
        """Return whether the engine takes these ranges in one read, with rows that the transaction hides."""
        widened = [*map(self._overlay.widened, ranges)]
        return len(ranges) <= 1 or fits_one_read(self.context.limits, widened, guarded=True)

    def _merged(
        self, ranges: Sequence[ReadRange], expired: bool, *, guarded: bool = False
    ) -> Flow[tuple[list[list[Row]], bytes] | None]:
        """Return the present rows of ranges: those of the snapshot with what was written since.

        None, if it is a guarded read, when it has found a unique value that two records claim: a new plan reads the
        index as one that is not unique.
        """
        overlay, now_ms = self._overlay, None if expired else self.now_ms
        base = yield from self._base([overlay.widened(one) for one in ranges], expired, None)
        view = overlay.shared_view(self.context.codec, self.view, zip(ranges, base.ranges, strict=True), now_ms)
        if view is not self.view:
            self.context.view = view
            return None if guarded else (yield from self._merged(ranges, expired))
        merged = [overlay.merged(one, rows, now_ms) for one, rows in zip(ranges, base.ranges, strict=True)]
        for one, stored, rows in zip(ranges, base.ranges, merged, strict=True):
            self._note_all(*overlay.counted(one, stored, rows))
        return merged, base.versionstamp

    def _unchecked(self, ranges: Sequence[ReadRange]) -> Flow[ReadResult]:
        """Return the rows of the snapshot with what was written since, without a check."""
        base = yield from self._base([*map(self._overlay.widened, ranges)], False, None)
        pairs = zip(ranges, base.ranges, strict=True)
        return ReadResult([self._overlay.merged(*one, self.now_ms) for one in pairs], [], base.versionstamp)

    def _base(self, ranges: Sequence[ReadRange], expired: bool, follow: Follow | None) -> Flow[ReadResult]:
        kept = self._kept
        if kept is not None:
            known = kept.result(ranges) if follow is None else None
            if known is None:
                known = yield Read(ranges, None, expired, follow)
                kept.keep(ranges, known, self.now_ms)
            return known
        if self.context.traits.snapshots:  # whose header does not change
            result: ReadResult = yield Read(ranges, None, expired, follow)
            return result
        found = yield from read_all(self.context.limits, ranges, self.view.guard, include_expired=expired)
        if found is None:
            self._stop((HEADER_KEY,))
        self._reads.next_state()
        return ReadResult(found, [], b"")

    def _note_all(self, ranges: Sequence[ReadRange], found: Sequence[Sequence[Row]]) -> None:
        if is_unchecked(self):
            return
        for one, rows in zip(ranges, found, strict=True):
            for row in rows:
                self._note(row.key, row)
            if one.end is None and not rows:
                self._note(one.start, None)

    def _note(self, key: bytes, row: Row | None) -> None:
        alive = row is not None and (row.expire_at is None or row.expire_at > self.now_ms)
        if not self._reads.note(key, row if alive else None):
            self._stop((key,))

    def unchecked(self) -> AbstractContextManager[None]:
        """Return a block in which what is read is not checked by the commit."""
        self.require_open()
        return unchecked(self)

    # --- writing ----------------------------------------------------------------------------------------------

    def take(self, operation: LogicalWrite[R]) -> Flow[R]:
        """Carry out a write of records as a part of the transaction; called by ``execute``."""
        view = self.view
        live = view.live[operation.schema.collection]
        if live.read_only is not None:
            view = yield from self._listed(view, operation.schema.collection)
            live = view.live[operation.schema.collection]
        if (obstacle := live.refused or live.read_only) is not None:
            raise obstacle
        keys = sorted(set(operation.keys(view)))
        self._leave_turns(keys)  # now, and not only at the commit: the rest of the run would be in vain
        # Not of the snapshot alone: this flow is run by ``through``.
        result: ReadResult = yield Read([ReadRange(key) for key in keys], include_expired=True)
        rows = {key: found[0] if found else None for key, found in zip(keys, result.ranges, strict=True)}
        seen = AttemptState(view, rows, self.now_ms)
        if operation.finds_keys:
            keys = yield from add_found_rows(operation, seen, rows, self._leave_turns)
        before = self._records.versions(keys)
        proposal = operation.propose(seen)
        if self._records.versions(keys) != before:
            raise refusals.wrote_itself()
        if not proposal.changes and proposal.extra is None:
            return proposal.done(b"")
        if not cascading_removals(proposal.changes, view.live):
            return self._records.take(operation, proposal)
        cascaded = yield from self._cascaded(operation, proposal, seen)
        if self._records.versions(keys) != before:
            raise refusals.wrote_itself()
        self._roots = {**self._roots, **cascaded.roots}
        return self._records.take(operation, proposal, cascaded.alone())

    def _listed(self, view: HeaderView, name: str) -> Flow[HeaderView]:
        """List a collection that is new to this tenant, in a commit of its own, and use the new header."""
        listed: HeaderView = yield from serve(self._shared.listed(view, name), presently)
        if not only_lists_more(listed, view):
            self._stop((HEADER_KEY,))
        self.context.view = listed
        return listed

    def _cascaded(self, operation: LogicalWrite[R], proposal: Proposal[R], seen: AttemptState) -> Flow[Cascaded]:
        """Return the changes of the records that refer to removed ones, as the transaction sees them."""
        reads = partial(rows_of, self.context.limits), partial(entries_of, self.context.limits)
        cascade = Cascade(self.context, *reads, operation.cascade_failed)
        cascaded = yield from cascade.expanded(proposal, seen)
        if not isinstance(cascaded, Cascaded):
            self._stop((HEADER_KEY,) if cascaded is None else (cascaded.key,))
        rows = cascaded.seen.rows or {}
        for key in cascaded.guards:
            # Kept whatever follows: the entries that the removal went by were read after this guard.
            if version_of(self._acted.setdefault(key, rows[key])) != version_of(rows[key]):
                self._stop((key,))
        return cascaded

    def wrote(self, key: bytes) -> bool:
        """Return whether the transaction has stored the record of this key."""
        return self._records.has(key)

    def write(self, mutation: Mutation) -> None:
        """Add a raw write."""
        self.require_open()
        if isinstance(mutation, Set) and mutation.versionstamped:
            self._versionstamped[mutation.key] = mutation
        else:
            self._overlay.write(mutation, PendingStamp(), self.now_ms)

    def enqueue(self, message: NewMessage, form: StoreFormat) -> None:
        """Add a message to the queue of the store, or of the namespace of the form."""
        self.require_open()
        self._messages.append((message, form))

    def check(self, key: bytes, versionstamp: bytes | None) -> Flow[None]:
        """Check the version of a key that was read elsewhere.

        Writes of the transaction itself do not matter, nor does the order of the calls. An entry that the transaction
        has read of its own writes is accepted, and checks nothing.
        """
        self.require_open()
        found = yield from self._base((ReadRange(key),), False, None)
        stored = found.ranges[0][0] if found.ranges[0] else None
        present = self._overlay.row(key, stored, self.now_ms)
        if present is not stored and version_of(present) == versionstamp:
            return
        if version_of(stored) != versionstamp:
            self._stop((key,))
        self._note(key, stored)

    def guard(self, name: str, parts: tuple[Any, ...], shared: bool = False) -> Flow[None]:
        """Conflict with other transactions that take the same guard; with ``shared``, only with exclusive ones."""
        self.require_open()
        yield from self._guards.take(name, parts, shared, self.context.limits)

    # --- the end ----------------------------------------------------------------------------------------------

    def prepared(self) -> Flow[AtomicWrite | None]:
        """Return the one atomic operation of the transaction; None when nothing was written."""
        self.require_open()
        if self.met is not None:
            raise self.met  # first: what was made of two states is to be run again, also if an inner part failed of it
        if self.aborted_by is not None:
            raise refusals.has_failed_inside() from self.aborted_by
        # From here on nothing is taken in any more: what another thread would write now would be lost.
        self.ended = True
        try:
            write = yield from self._operation()
        except OperationTooLargeError as error:
            if self._acted:
                error.hint = TOO_LARGE
            raise
        if write is not None:
            self._leave_turns([check.key for check in write.checks if check.key != HEADER_KEY])
        if self.rerun is not None:
            self.rerun.prepared(write)
        return write

    def _operation(self) -> Flow[AtomicWrite | None]:
        if not (self._overlay or self._records or self._guards or self._versionstamped or self._messages):
            return None
        records = yield from self._compiled()
        checks = {check.key: check for check in records.checks}
        acted = [rules.guard_check(key, row) for key, row in self._acted.items()]
        checks |= {check.key: check for check in acted if check is not None}
        checks |= self._guards.checks()
        checks |= {check.key: check for check in self._reads.checks(self.view.live.values(), checks)}
        marks = self._guards.marks(self.context.codec)
        for new, _ in self._messages:
            # A message that could not be given up in the end would be tried for ever.
            check_budget(AtomicWrite(mutations=new.message.dead_letters), self.limits)
        time = (yield from now()) if self._messages else 0
        arrivals = [new.arrival(form, time) for new, form in self._messages]
        raw = (*self._overlay.mutations(), *self._versionstamped.values())
        write = AtomicWrite((*checks.values(),), (*records.mutations, *raw, *marks, *arrivals))
        check_budget(write, self.context.limits, self.view.live.values())
        return write

    def _leave_turns(self, keys: Sequence[bytes]) -> None:
        """End the run if another transaction has the turn for one of the keys."""
        if self.rerun is not None:
            taken = self.rerun.ticket.taken(keys)
            if taken:
                self._stop(taken)

    def _compiled(self) -> Flow[AtomicWrite]:
        changes = self._records.changes()
        rows: dict[bytes, Row | None] = {}
        found = NOTHING_FOUND
        moment = None
        if self._records.needs_moment:
            moment = CommitMoment((yield from now()), self.context.limits, self._roots)
        while True:
            compiled = compile_write(
                changes,
                rows,
                header=self.view.guard,
                codec=self.context.codec,
                now_ms=self.now_ms,
                max_key_bytes=self.context.limits.max_key_bytes,
                found=found.entries,
                neighbours=found.neighbours,
                moment=moment,
            )
            if isinstance(compiled, AtomicWrite):
                return compiled
            if isinstance(compiled, StaleRow):
                self._stop([compiled.key])
            if not isinstance(compiled, NeedRows):
                raise self._records.refused(compiled)
            if not compiled.keys:
                found = yield from self._ranges(compiled, found)
                continue
            rows |= yield from self._rows_now(sorted(compiled.keys))
            if not self.context.traits.snapshots:
                # Of two versions of one key only one could be checked.
                self._stop_if(self._reads.differing([*alive_rows(rows, self.now_ms)]))

    def _ranges(self, wanted: NeedRows, found: FoundRanges) -> Flow[FoundRanges]:
        """Return the found ranges with those that are wanted."""
        if wanted.spans:
            stored = yield from self._base([*wanted.spans.values()], False, None)
            found = found._replace(entries=dict(zip(wanted.spans, stored.ranges, strict=True)))
        if wanted.neighbours:
            # Not in the snapshot: a long transaction would conflict with every write of a busy calendar.
            rows = yield from serve(read_neighbours(self.context, wanted.neighbours, None), presently)
            found = found._replace(neighbours={**found.neighbours, **(rows or {})})
        return found

    def _rows_now(self, keys: Sequence[bytes]) -> Flow[dict[bytes, Row | None]]:
        """Return the rows of keys for the compiler; stop if one has changed since a removal was planned."""
        found = yield from self._base([ReadRange(key) for key in keys], True, None)
        rows = {key: stored[0] if stored else None for key, stored in zip(keys, found.ranges, strict=True)}
        if self._records.needs_moment:
            rows |= yield from serve(loose_rows(self.context, keys), presently)
        later = [key for key in keys if key in self._acted and version_of(rows[key]) != version_of(self._acted[key])]
        if later:
            self._stop(later)
        return rows

    def changed(self) -> Flow[None]:
        """Check that everything that was read still holds, for an engine without snapshots."""
        for chunk in split_ranges(self.context.limits, map(point, self._reads.keys()), guarded=False):
            found = yield from read(chunk)
            rows = [(one.start, stored[0] if stored else None) for one, stored in zip(chunk, found.ranges, strict=True)]
            self._stop_if(self._reads.differing(rows))

    def commit(self, versionstamp: bytes) -> list[Callable[[], object]]:
        """Give objects their committed versions; return what is to be run now, in order."""
        self._settled = True
        return [*self._records.commit(versionstamp), *self.hooks]

    def fail(self) -> None:
        """Give objects of the caller their former states; does nothing after a commit."""
        self.ended = True
        self.aborted_by = None  # its traceback holds the frame of the block, which holds this
        if not self._settled:
            self._settled = True
            self._records.fail()

    def require_open(self) -> None:
        """Refuse a use after the end. Raises ClosedError."""
        if self.ended:
            raise refusals.has_ended()

    def conflict(self, keys: Sequence[bytes]) -> TransactionConflictError:
        """Return the error for keys that others have written."""
        self.contended = tuple(keys)
        return refusals.read_what_changed(keys, self.attempt, snapshots=self.context.traits.snapshots)

    def _stop_if(self, keys: Sequence[bytes]) -> None:
        if keys:
            self._stop(keys)

    def _stop(self, keys: Sequence[bytes]) -> NoReturn:
        # Also when the caller goes on after the error: what he does then rests on two states.
        self.met = self.met or self.conflict(keys)
        raise self.met
