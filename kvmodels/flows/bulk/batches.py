"""The batches of a bulk write: each is one atomic operation on several records.

``BulkRun`` writes batch after batch, and halves batches that are too large or meet a conflict every time. A record that
cannot be written ends the bulk write or is listed, as the caller requests.

Rules of this module: a ``BulkAction`` decides about one record, given its row as the attempt has read it. Progress is
committed in the operation of its batch. An exception is never replaced; the key of its record is added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import ValidationError

from kvmodels._support.naming import short_repr
from kvmodels.core.keys import encode_key
from kvmodels.errors import (
    IntegrityError,
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    OperationTooLargeError,
    RetriesExhaustedError,
)
from kvmodels.flows.bulk.keys import Source
from kvmodels.flows.bulk.options_and_results import LISTED_AT_MOST, BulkFailure, BulkOptions, BulkProgress, BulkResult
from kvmodels.flows.bulk.progress import BatchOutcome, StoredProgress
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import PlannedChange, refused, state_after, stored
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing.compiler import WriteRefusal, refusals_in
from kvmodels.indexing.entries import RecordChange
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import ObjectState


class _Item(Protocol):
    """A record of a batch, by its packed primary key."""

    @property
    def pk(self) -> bytes: ...


T = TypeVar("T", bound=_Item)

LARGEST_BATCH: Final = 500
"""The default number of records per commit, if the limits of the engine allow it."""

_BESIDE: Final = 4
"""Checks and keys of an operation besides those of records: header, token, progress."""

FEW_ATTEMPTS: Final = 4
"""Attempts of a batch that can be halved: next to busy writers, smaller batches meet fewer conflicts."""

_LONGEST_MESSAGE: Final = 1_000


class FittingSize:
    """The number of records of the next batch: halved after a failure, then doubled up to the largest that fits.

    Attributes:
        largest: the size of the first batch; smaller once a batch was too large.
        now: the size of the next batch.
    """

    def __init__(self, largest: int) -> None:
        self.largest = self.now = largest

    def halve(self, count: int, error: Exception) -> None:
        """Choose half of ``count``, the size of a batch that has failed."""
        self.now = count // 2
        if isinstance(error, OperationTooLargeError):
            self.largest = self.now

    def grow(self, count: int) -> None:
        """Choose twice as many after a batch of ``count`` records was committed."""
        self.now = min(max(self.now, count) * 2, self.largest)


class BulkRun(Generic[T]):
    """Writes records in batches and counts them; ``progress`` is stored with each batch."""

    def __init__(
        self, context: Context, work: BulkAction[T], options: BulkOptions, *, progress: StoredProgress | None = None
    ) -> None:
        self._context = context
        self._work = work
        self._options = options
        self._progress = progress
        self._failed: list[BulkFailure] = []
        limits = context.limits
        fitting = max(1, min(LARGEST_BATCH, limits.max_ranges - _BESIDE, limits.max_checks - _BESIDE))
        self._size = FittingSize(options.batch_size or fitting)
        self.matched = self.written = self.batches = 0
        self.total: int | None = None
        """How many records there are, as far as it is known, for reports of progress."""

    def write(self, source: Source[T]) -> Flow[bool]:
        """Write all records of a source; return False if another process has handled some of them."""
        size = self._size
        size.now = size.largest
        while True:
            items = yield from source.take(size.now)
            if not items:
                return True
            batch = ActionBatch(
                self._context, self._work, items, collect=self._options.on_error == "collect", progress=self._progress
            )
            try:
                outcome = yield from batch.run()
            except Exception as error:
                if batch.committed is not None:  # the error comes from a hook that ran after the commit
                    self._count(batch.committed)
                    raise
                if len(items) == 1 or not self._may_halve(error):
                    raise
                source.give_back(items)
                size.halve(len(items), error)
                continue
            if outcome is None:
                return False
            source.dealt_with(outcome.matched)
            self._count(outcome)
            if self._options.progress is not None:
                own = BulkProgress(self.matched, self.written, self.batches)
                found = own if self._progress is None else self._progress.so_far()
                self._options.progress(replace(found, total=found.total if self.total is None else self.total))
            size.grow(len(items))

    def resume(self, source: Source[T]) -> Flow[None]:
        """Write the rest of a run with stored progress, and finish it; read it again if another process was faster."""
        progress = self._progress
        assert progress is not None, "only called with stored progress"
        if (yield from self.write(source)):
            yield from progress.finish()
        else:
            yield from progress.overtaken()

    def _may_halve(self, error: Exception) -> bool:
        """Return whether smaller batches may succeed, or isolate the refused record so that the others are written."""
        if isinstance(error, (RetriesExhaustedError, OperationTooLargeError)):
            return True
        return self._options.on_error == "collect" and isinstance(error, (LimitExceededError, InvalidValueError))

    def _count(self, outcome: BatchOutcome) -> None:
        self.matched += outcome.matched
        self.written += outcome.written
        self.batches += 1
        self._failed += outcome.failed[: max(0, LISTED_AT_MOST - len(self._failed))]

    def result(self) -> BulkResult:
        """Return the result so far."""
        return BulkResult(self.matched, self.written, tuple(self._failed), self.batches)

    @contextmanager
    def noting(self) -> Generator[None, None, None]:
        """Add a note to an error of the block about earlier commits."""
        try:
            yield
        except Exception as error:
            note_committed(error, self.written, self.batches)
            raise


def note_committed(error: Exception, written: int, batches: int) -> None:
    """Add a note to an error about the batches that were committed before it."""
    if batches:
        error.add_note(f"kvmodels: {written} records in {batches} batches were committed before this was raised")
    if isinstance(error, IntegrityError):
        error.committed = written


def write_in_transaction(
    context: Context, work: BulkAction[T], items: Sequence[T], options: BulkOptions
) -> Flow[BulkResult]:
    """Write all records as part of the transaction of the context."""
    if not items:
        return BulkResult(0, 0)
    outcome = yield from ActionBatch(context, work, items, collect=options.on_error == "collect").run()
    assert outcome is not None, "only stored progress can be overtaken"
    return BulkResult(outcome.matched, outcome.written, outcome.failed, 1)


class BulkAction(ABC, Generic[T]):
    """The change or removal of each record."""

    schema: ModelSchema

    reads: bool = True
    """Whether the records must be read before the first attempt."""

    holds_objects: bool = False
    """Whether objects of the caller are stored."""

    def position_of(self, _: T, /) -> int | None:
        """Return the position of an object in the caller's list; None if there is no such list."""
        return None

    @abstractmethod
    def step(self, seen: AttemptState, item: T) -> PlannedChange | None:
        """Return the change for a record that was read; None for no change. Raises typed errors."""


class ActionBatch(LogicalWrite["BatchOutcome | None"], Generic[T]):
    """One atomic operation on some records."""

    def __init__(
        self,
        context: Context,
        work: BulkAction[T],
        items: Sequence[T],
        *,
        collect: bool,
        progress: StoredProgress | None = None,
    ) -> None:
        self._context = context
        self._work = work
        self._items = items
        self._layout = context.layouts[work.schema.collection]
        self._keys = [self._layout.key(item.pk) for item in items]
        self._collect = collect
        self._progress = progress
        self._left_out: dict[bytes, Exception] = {}
        self._changes: tuple[RecordChange, ...] = ()
        self.schema = work.schema
        self.reads = work.reads or progress is not None
        self.attempts = FEW_ATTEMPTS if len(items) > 1 else None
        self.committed: BatchOutcome | None = None
        """The committed outcome; later errors come from hooks that run after the commit."""

    def run(self) -> Flow[BatchOutcome | None]:
        """Commit the batch; return None if another process has handled these records."""
        while True:
            known = len(self._left_out)
            try:
                return (yield from execute(self._context, self))
            except Exception as error:
                if self.committed is not None:
                    raise
                if len(self._left_out) > known:
                    continue
                if not isinstance(error, (LimitExceededError, InvalidValueError)):
                    raise
                if not self._collect:
                    self._name_refused(error)
                    raise
                # The limit may have been exceeded by all records together; for a single one, the record is known.
                if len(self._items) > 1 or self._left_out:
                    raise
                self._left_out[self._items[0].pk] = error

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the records, and those of the progress."""
        return self._keys if self._progress is None else [*self._keys, *self._progress.keys]

    def propose(self, seen: AttemptState, /) -> Proposal[BatchOutcome | None]:
        """Return the changes of the records; raise the error of the first one that fails, unless errors are listed."""
        if self._progress is not None and self._progress.overtaken_in(seen):
            # Before any record is tested: records that another process has stored are not errors, and run no hooks.
            return Proposal((), always(None))
        steps: list[PlannedChange] = []
        failed: list[BulkFailure] = []
        for item in self._items:
            try:
                left_out = self._left_out.get(item.pk)
                if left_out is not None:
                    raise left_out
                step = self._work.step(seen, item)
            except Exception as error:  # user hooks and validators may raise anything; the failure is listed
                if not self._collect:
                    self._name(error, item)
                    raise
                failed.append(failure_of(self._key(item), error))
                continue
            if step is not None and step.after:
                step = naming(step, self.schema, self._key(item), self._work.position_of(item))
            if step is not None:
                steps.append(step)
        self._changes = tuple(step.change for step in steps)
        return self._proposal(steps, BatchOutcome(len(steps) + len(failed), len(steps), tuple(failed)))

    def _proposal(self, steps: Sequence[PlannedChange], outcome: BatchOutcome) -> Proposal[BatchOutcome | None]:
        holds_objects = self._work.holds_objects
        extra, advance = (None, None) if self._progress is None else self._progress.advanced(self._items, outcome)

        def done(versionstamp: bytes) -> BatchOutcome | None:
            if advance is not None:
                advance(versionstamp)
            self.committed = outcome
            for step in steps:
                # Objects that neither the caller nor a hook receives need no state.
                if step.item is not None and (holds_objects or step.after):
                    stored(step.item, step.change, versionstamp)
            return outcome

        def states(versionstamp: bytes) -> list[tuple[Any, ObjectState | None]]:
            items = [(step.item, step.change) for step in steps if step.item is not None]
            return [(item.instance, state_after(item, change, versionstamp)) for item, change in items]

        after = tuple(call for step in steps for call in step.after)
        return Proposal(self._changes, done, always(outcome), states if holds_objects else None, after, extra)

    def _key(self, item: T) -> Any:
        return shown_key(self._layout.unpack(item.pk))

    def _name(self, error: Exception, item: T) -> None:
        name_record(error, self.schema, self._key(item), self._work.position_of(item))

    def _name_refused(self, error: KvModelsError) -> None:
        """Add the record to an error of the compiler, if the error is about one record."""
        change = changed_record(error, self._changes)
        pk = None if change is None else change.pk
        item = next((one for one in self._items if len(self._items) == 1 or one.pk == pk), None)
        if item is not None:
            self._name(error, item)

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Leave the refused records out, or add the first one to its error; return the error."""
        first, *others = refusals_in(refusal)
        error = refused(first)
        self.cascade_failed(first.change, error)
        for one in others if self._collect else ():
            if one.change.live.schema.collection == self.schema.collection:  # not one that changes with a removal
                self.cascade_failed(one.change, refused(one))
        return error

    def cascade_failed(self, removal: RecordChange, error: Exception, /) -> None:
        """Leave a record out, or add it to the error."""
        if self._collect and self._context.transaction is None:
            self._left_out[removal.pk] = error
        elif not self._collect:
            self._name(error, next(one for one in self._items if one.pk == removal.pk))


def failure_of(key: Any, error: Exception) -> BulkFailure:
    """Return a failure with the primary key and the error."""
    return BulkFailure(key, type(error).__name__, _said(error), error)


def _said(error: Exception) -> str:
    """Return the message of an error without values."""
    if isinstance(error, ValidationError):
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems)
    else:
        text = str(error)
    return text[:_LONGEST_MESSAGE]


def name_record(error: Exception, schema: ModelSchema, key: Any, position: int | None = None) -> None:
    """Add the record to an exception, once.

    An error of this library with such attributes gets the key and the position; any other exception, also of a hook or
    of pydantic, gets a note with both. ``key``: the primary key for display; None if unknown. ``position``: the index
    in the caller's list, from 0; None for a record of a query.
    """
    if isinstance(error, KvModelsError) and {"key", "position"} <= {*error.attributes}:
        told = {"model": schema.name, "key": key, "position": position}
        known = error.data
        # A hook's exception may be about another record.
        if all(known.get(name, value) == value for name, value in told.items()):
            for name, value in told.items():
                setattr(error, name, value)
            return
    record = schema.name if key is None else f"{schema.name} {short_repr(key)}"
    place = "" if position is None else f", the object at position {position}"
    note = f"kvmodels: this is about {record}{place}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def repeated_key(key_values: tuple[Any, ...]) -> InvalidArgumentError:
    """Return the error for a list in which two objects have one primary key."""
    return InvalidArgumentError(
        "two objects have one primary key, so one would overwrite the other",
        argument="objs",
        value=shown_key(key_values),
        hint="Give each record once.",
    )


def naming(step: PlannedChange, schema: ModelSchema, key: Any, position: int | None) -> PlannedChange:
    """Return a change whose hooks that run after the commit name the record in their exceptions."""

    def called(hook: Callable[[], object]) -> None:
        try:
            hook()
        except Exception as error:  # user hooks may raise anything
            name_record(error, schema, key, position)
            raise

    return step._replace(after=tuple(partial(called, hook) for hook in step.after))


def key_of(schema: ModelSchema, instance: Any) -> Any:
    """Return the primary key of an object that may be invalid; None if it has none, or has another class."""
    try:
        return shown_key(schema.primary_key_of(instance))
    except (AttributeError, LookupError, KvModelsError):
        return None


def changed_record(error: KvModelsError, changes: Sequence[RecordChange]) -> RecordChange | None:
    """Return the change that caused an error of the compiler; None if the error is not about one record.

    An error about a value names the primary key, an error about a limit the key of an entry.
    """
    if isinstance(error, InvalidValueError):
        return next((one for one in changes if shown_key(one.live.layout.unpack(one.pk)) == error.key), None)
    if not isinstance(error, LimitExceededError) or error.key is None:
        return None
    key = encode_key(error.key)
    return next((one for one in changes if key == one.key or key in _entries_of(one)), None)


def _entries_of(change: RecordChange) -> set[bytes]:
    document = change.new_document
    if document is None:
        return set()
    held = (index for index in change.live.maintained if index.layout.covers(document))
    return {key for index in held for key in maintenance_of(index).keys(document, change.pk)}
