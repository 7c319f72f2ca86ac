"""One batch of a bulk write: an atomic operation over several records, each looked at once more before it is written.

A record that does not satisfy the query any more is left alone. A record that cannot be written ends the batch, or is
left out and listed, as the caller has asked for.

Rules of this module: what is done to one record is decided by a ``Work``; nothing is read before the operation, and
what a ``Ledger`` wants to remember of the batch is committed in the very same operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from pydantic import ValidationError

from kvmodels.core.operations import AtomicWrite
from kvmodels.errors import InvalidValueError, KvModelsError, LimitExceededError, UniqueViolationError
from kvmodels.flows.bulk.error_context import changed_record, name_record, naming
from kvmodels.flows.bulk.results import BulkFailure, BulkProgress
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.encode import Pending, refused, state_after, stored
from kvmodels.flows.writing.hooks import Step
from kvmodels.flows.writing.operation import Operation, Proposal, Seen, always
from kvmodels.indexing.changes import RecordChange, Violation
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import ObjectState

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

FEW_ATTEMPTS: Final = 4
"""Of a batch that can be halved: beside busy writers smaller batches get through where a large one meets one always."""

_LONGEST_MESSAGE: Final = 1_000


class Outcome(NamedTuple):
    """What a batch did: records that satisfied the query, those that were written, and those that could not be."""

    matched: int
    written: int
    failed: tuple[BulkFailure, ...]


class Work(Protocol[T_contra]):
    """What is done to each record of a bulk write; the parameter is what names one."""

    @property
    def schema(self) -> ModelSchema:
        """The model."""
        ...

    @property
    def reads(self) -> bool:
        """Whether the records must be read before the first attempt."""
        ...

    @property
    def holds_objects(self) -> bool:
        """Whether the steps store objects of the caller."""
        ...

    def pk_of(self, item: T_contra) -> bytes:
        """The packed primary key of a record."""
        ...

    def position_of(self, item: T_contra, /) -> int | None:
        """The place of an object in the list of the caller; None where a query has found the record."""
        ...

    def step(self, seen: Seen, item: T_contra) -> Step | None:
        """The change of a record as it was read; None when there is nothing to do any more. Raises typed errors."""
        ...


class Entry(NamedTuple):
    """What is committed beside a batch, and what is to be called with the versionstamp of the commit."""

    beside: AtomicWrite
    committed: Callable[[bytes], None]


class Ledger(Protocol[T_contra]):
    """What remembers, in the store, how far a bulk write is."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that every batch must read."""
        ...

    def overtaken_in(self, seen: Seen) -> bool:
        """Whether another process has gone on with the same bulk write in the meantime."""
        ...

    def entry(self, items: Sequence[T_contra], outcome: Outcome) -> Entry:
        """What is remembered of a batch."""
        ...

    def so_far(self) -> BulkProgress:
        """How far it is, by all runs together."""
        ...


class Batch(Generic[T]):
    """One atomic operation over some records.

    Args:
        context: shared by the flows of the database.
        work: what is done to each.
        items: the records.
        collect: list a record that cannot be written and go on, instead of ending there.
        ledger: remembers the batch; None: nobody does.
    """

    def __init__(
        self,
        context: Context,
        work: Work[T],
        items: Sequence[T],
        *,
        collect: bool,
        ledger: Ledger[T] | None = None,
    ) -> None:
        self._context = context
        self._work = work
        self._items = items
        self._layout = context.layouts[work.schema.collection]
        self._keys = [self._layout.key(work.pk_of(item)) for item in items]
        self._collect = collect
        self._ledger = ledger
        self._left_out: dict[bytes, Exception] = {}
        self._changes: tuple[RecordChange, ...] = ()
        self.committed: Outcome | None = None
        """What was committed: what is raised from now on comes from hooks that ran afterwards."""

    def run(self) -> Flow[Outcome | None]:
        """Carry it out; None when another process has gone on with the same bulk write.

        Raises:
            RetriesExhaustedError: after a few attempts, if the batch can be halved.
            LimitExceededError: one operation cannot take so much.
            Whatever a record raises, unless failures are collected.
        """
        while True:
            known = len(self._left_out)
            try:
                return (yield from execute(self._context, self._operation()))
            except UniqueViolationError:
                if self.committed is not None or len(self._left_out) == known:
                    raise
            except (LimitExceededError, InvalidValueError) as error:
                if self.committed is not None:
                    raise
                if not self._collect:
                    self._name_refused(error)
                    raise
                # A limit may be that of all records together; of a single one it is clear which it is.
                if len(self._items) > 1 or self._left_out:
                    raise
                self._left_out[self._work.pk_of(self._items[0])] = error

    def _operation(self) -> Operation[Outcome | None]:
        return Operation(
            (self._work.schema,),
            self._wanted,
            self._propose,
            self._refused,
            reads=self._work.reads or self._ledger is not None,
            attempts=FEW_ATTEMPTS if len(self._items) > 1 else None,
        )

    def _wanted(self, _: HeaderView) -> Sequence[bytes]:
        return self._keys if self._ledger is None else [*self._keys, *self._ledger.keys]

    def _propose(self, seen: Seen) -> Proposal[Outcome | None]:
        if self._ledger is not None and self._ledger.overtaken_in(seen):
            # Before any record is judged: what another process has stored is no error, and no matter for hooks.
            return Proposal((), always(None))
        steps: list[Step] = []
        failed: list[BulkFailure] = []
        for item in self._items:
            try:
                step = self._step(seen, item)
            except Exception as error:  # hooks and validators of the user raise anything; it is listed
                if not self._collect:
                    self._name(error, item)
                    raise
                failed.append(failure_of(self._key(item), error))
                continue
            if step is not None:
                steps.append(self._named(step, item) if step.after else step)
        self._changes = tuple(step.change for step in steps)
        outcome = Outcome(len(steps) + len(failed), len(steps), tuple(failed))
        proposal = _proposal(steps, outcome, holds_objects=self._work.holds_objects)

        def done(versionstamp: bytes) -> Outcome | None:
            self.committed = outcome
            return proposal.done(versionstamp)

        if (ledger := self._ledger) is None:
            return proposal._replace(done=done)
        entry = ledger.entry(self._items, outcome)

        def committed(versionstamp: bytes) -> Outcome | None:
            entry.committed(versionstamp)
            return done(versionstamp)

        return proposal._replace(done=committed, beside=entry.beside)

    def _step(self, seen: Seen, item: T) -> Step | None:
        left_out = self._left_out.get(self._work.pk_of(item))
        if left_out is not None:
            raise left_out
        return self._work.step(seen, item)

    def _key(self, item: T) -> Any:
        return shown_key(self._layout.unpack(self._work.pk_of(item)))

    def _named(self, step: Step, item: T) -> Step:
        """The same step, whose hooks after the commit tell with an exception which record it is about."""
        named = naming(step.after, self._work.schema, self._key(item), self._work.position_of(item))
        return step._replace(after=tuple(named))

    def _name(self, error: Exception, item: T) -> None:
        name_record(error, self._work.schema, self._key(item), self._work.position_of(item))

    def _name_refused(self, error: KvModelsError) -> None:
        """Tell with an error of the compiler which record it is about, if it is one."""
        change = changed_record(error, self._changes)
        pk = None if change is None else change.pk
        item = next((one for one in self._items if len(self._items) == 1 or self._work.pk_of(one) == pk), None)
        if item is not None:
            self._name(error, item)

    def _refused(self, violation: Violation) -> KvModelsError:
        error = refused(violation)
        if self._collect and self._context.transaction is None:
            self._left_out[violation.change.pk] = error
        elif not self._collect:
            self._name(error, next(one for one in self._items if self._work.pk_of(one) == violation.change.pk))
        return error


def _proposal(steps: Sequence[Step], outcome: Outcome, *, holds_objects: bool) -> Proposal[Outcome | None]:
    def done(versionstamp: bytes) -> Outcome | None:
        for step in steps:
            # An object that nobody will see is not told what became of it.
            if step.item is not None and (holds_objects or step.after):
                stored(step.item, step.change, versionstamp)
        return outcome

    def result(_: bytes) -> Outcome | None:
        return outcome

    def states(versionstamp: bytes) -> list[tuple[Any, ObjectState | None]]:
        return [_state(step.item, step, versionstamp) for step in steps if step.item is not None]

    after: list[Callable[[], object]] = [call for step in steps for call in step.after]
    changes = tuple(step.change for step in steps)
    return Proposal(changes, done, result, states if holds_objects else None, tuple(after))


def _state(item: Pending, step: Step, versionstamp: bytes) -> tuple[Any, ObjectState | None]:
    return item.instance, state_after(item, step.change, versionstamp)


def failure_of(key: Any, error: Exception) -> BulkFailure:
    """A record that could not be written, by its primary key and what was raised."""
    return BulkFailure(key, type(error).__name__, _said(error), error)


def _said(error: Exception) -> str:
    """What an error says, without the values that it is about."""
    if isinstance(error, ValidationError):
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems)
    else:
        text = str(error)
    return text[:_LONGEST_MESSAGE]
