"""Create many objects (``bulk_create``): batches of one atomic operation each, with a result for every object.

Rules of this module: objects are validated and encoded before the first batch is sent, so invalid input writes nothing.
Only an iterator without a length, given with ``batch_size``, is read batch by batch, with one batch in memory.
A batch is written completely or not at all. With ``batch_size``, one that is too large is halved before anything of it
is sent; without, the objects are one commit. An error names its object and the number of objects committed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import AtomicWrite, Row
from kvmodels.errors import (
    ExclusionViolationError,
    IntegrityError,
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    OperationTooLargeError,
    ReferenceViolationError,
    UniqueViolationError,
)
from kvmodels.flows.arguments import iterator_of, require_flag
from kvmodels.flows.bulk.batches import FittingSize, changed_record, key_of, name_record, naming, repeated_key
from kvmodels.flows.bulk.insert import InsertColumns, insert_columns
from kvmodels.flows.bulk.options_and_results import (
    BulkItem,
    BulkOptions,
    BulkProgress,
    BulkResult,
    OnConflict,
    checked_options,
)
from kvmodels.flows.bulk.progress import (
    BatchOutcome,
    ItemOutcome,
    StoredProgress,
    list_digest,
    outcome_rows,
    read_outcomes,
)
from kvmodels.flows.bulk.results import CreateResults
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    Deadline,
    EncodedObject,
    PlannedChange,
    already_stored,
    needs_clock,
    record_change,
    refused,
    state_after,
    stored,
    writing,
)
from kvmodels.flows.writing.given_keys import after_keys, without_key
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.compiler import WriteRefusal, refusals_in
from kvmodels.indexing.entries import RecordChange, StoredRecord, Violation, slot_owner
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.references import MissingTarget, RemainingReferrers
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import ObjectState

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

_Result = tuple[EncodedObject, PlannedChange | None, bool, IntegrityError | None]
"""An object, its planned change, whether it is a new record, and the error if it is left out."""


def bulk_create(
    context: Context,
    schema: ModelSchema,
    instances: Iterable[Any],
    *,
    batch_size: int | None = None,
    on_conflict: OnConflict = "error",
    expire_in: Deadline = KEEP,
    progress: Callable[[BulkProgress], object] | None = None,
    resume_id: str | None = None,
    results: bool = True,
) -> Flow[list[BulkItem[Any]] | BulkResult]:
    """Insert all objects, in their order; KEEP is also the deadline of a record that is overwritten."""
    options = checked_options(context, BulkOptions(batch_size, "raise", progress, resume_id, on_conflict))
    require_flag("results", results)
    iterator = iterator_of("objs", instances, "Give objects of the model in a list.")
    kept = CreateResults(schema, progress, keeps_items=results)
    size = None if batch_size is None else FittingSize(batch_size)
    creation = _Creation(context, schema, options, expire_in, kept, size)
    if batch_size is not None and resume_id is None and not isinstance(instances, Sized):
        return creation.streamed(iterator, batch_size)
    return creation.part([*iterator], 0)


class _Creation(NamedTuple):
    """One call: its options, the results so far, and the size of its batches; None: all objects are one batch."""

    context: Context
    schema: ModelSchema
    options: BulkOptions
    expire_in: Deadline
    results: CreateResults
    size: FittingSize | None

    def streamed(self, iterator: Iterator[Any], size: int) -> Flow[list[BulkItem[Any]] | BulkResult]:
        """Insert the objects of an iterator without a length, such as a generator, with one batch in memory."""
        start = 0
        try:
            while True:
                objects = list(islice(iterator, size))
                result = yield from self.part(objects, start)
                start += len(objects)
                if len(objects) < size:
                    return result
        except Exception as error:
            _note_committed(error, start)
            raise

    def part(self, objects: Sequence[Any], start: int) -> Flow[list[BulkItem[Any]] | BulkResult]:
        """Insert some of the objects, the first of which has the position ``start``; return all results so far."""
        context, schema, resume_id = self.context, self.schema, self.options.resume_id
        create = partial(self._create, objects, start)
        unset = without_key(schema, objects)
        if not unset:
            return writing(context, schema, self.expire_in, create)
        if resume_id is not None:
            raise InvalidArgumentError(
                "a write that is resumed needs objects with the same primary keys in every run",
                argument="resume_id",
                value=resume_id,
                hint="Give the objects keys of your own, or leave resume_id out.",
            )
        return after_keys(context, schema, unset, lambda: writing(context, schema, self.expire_in, create))

    def _create(
        self, objects: Sequence[Any], start: int, writer: ChangeBuilder
    ) -> Flow[list[BulkItem[Any]] | BulkResult]:
        options, results = self.options, self.results
        if options.on_conflict == "error" and options.resume_id is None and writer.deadline is KEEP:
            columns = insert_columns(writer, objects)
            if columns is not None:
                return (yield from self._stored(writer, columns, start))
        items = [_first(writer, instance, start + position) for position, instance in enumerate(objects)]
        if options.on_conflict == "update":
            _require_distinct(items)
        if options.resume_id is None:
            return (yield from self._stored(writer, items, start))
        layout = writer.context.layouts[writer.schema.collection]
        what = ["bulk_create", writer.schema.collection, options.on_conflict]
        described = list_digest(what, (layout.key(item.pk) for item in items))
        progress = StoredProgress(writer.context, layout, options.resume_id, described)
        results.count((yield from self._resumed(writer, items, progress)))
        results.batches = progress.so_far().batches
        return results.result(resumed=progress.resumed)

    def _stored(
        self, writer: ChangeBuilder, items: Sequence[EncodedObject] | InsertColumns, first: int
    ) -> Flow[list[BulkItem[Any]] | BulkResult]:
        count = len(items.pks) if isinstance(items, InsertColumns) else len(items)
        start = 0
        while start < count:
            end = count if self.size is None else start + self.size.now
            part = items.part(start, end) if isinstance(items, InsertColumns) else items[start:end]
            batch = CreateBatch(writer, part, self.options.on_conflict, first + start)
            try:
                stored_now = yield from batch.stored()
            except OperationTooLargeError as error:
                self._halve(batch, error)
                continue
            assert stored_now is not None, "only stored progress can be overtaken"
            self.results.add(stored_now)
            start = end
        return self.results.result()

    def _resumed(
        self, writer: ChangeBuilder, items: Sequence[EncodedObject], progress: StoredProgress
    ) -> Flow[list[BulkItem[Any]]]:
        """Write the objects after those that earlier runs, or other processes, have handled."""
        options = self.options
        own: dict[int, BulkItem[Any]] = {}
        progress.resumed = (yield from progress.load()) is not None
        while (state := progress.state) is None or state.phase != "done":
            if state is None:
                yield from progress.begin("list")
                continue
            start = state.position
            if start >= len(items):
                yield from progress.finish()
                continue
            end = len(items) if self.size is None else start + self.size.now
            batch = CreateBatch(writer, items[start:end], options.on_conflict, start, progress)
            try:
                stored_now = yield from batch.stored()
            except OperationTooLargeError as error:
                self._halve(batch, error)
                continue
            if stored_now is None:
                yield from progress.overtaken()
                continue
            own.update(enumerate(stored_now, start))
            if options.progress is not None:
                options.progress(progress.so_far())
        if len(own) == len(items):
            return list(own.values())
        became = yield from read_outcomes(writer.context, writer.schema, progress.prefix("item"), items)
        return [
            own[position] if position in own else BulkItem(item.instance, one.created, one.error)
            for position, (item, one) in enumerate(zip(items, became, strict=True))
        ]

    def _halve(self, batch: CreateBatch, error: OperationTooLargeError) -> None:
        """Choose half of a batch that was too large; raise the error if it cannot be halved, or is of a later hook."""
        if self.size is None or batch.committed or len(batch) == 1:
            raise error
        self.size.halve(len(batch), error)


def _first(writer: ChangeBuilder, instance: Any, position: int) -> EncodedObject:
    try:
        return writer.first(instance)
    except Exception as error:  # user validators may raise anything
        name_record(error, writer.schema, key_of(writer.schema, instance), position)
        raise


def _note_committed(error: Exception, count: int) -> None:
    """Add a note to an error about the batches that were committed before it; an IntegrityError has an attribute."""
    note = f"kvmodels: the batches before position {count} are committed"
    if count and not isinstance(error, IntegrityError) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _require_distinct(items: Iterable[EncodedObject]) -> None:
    seen: set[bytes] = set()
    for item in items:
        if item.pk in seen:
            raise repeated_key(item.key_values)
        seen.add(item.pk)


class CreateBatch(LogicalWrite["list[BulkItem[Any]] | None"]):
    """One atomic operation that stores several objects.

    Attributes:
        committed: whether it is committed; later errors come from hooks.
    """

    def __init__(
        self,
        writer: ChangeBuilder,
        items: Sequence[EncodedObject] | InsertColumns,
        on_conflict: OnConflict,
        start: int,
        progress: StoredProgress | None = None,
    ) -> None:
        self._writer = writer
        self._context = writer.context
        self.schema = writer.schema
        self._columns = items if isinstance(items, InsertColumns) else None
        self._given = None if isinstance(items, InsertColumns) else items
        self._ignore = on_conflict == "ignore"
        self._update = on_conflict == "update"
        self._start = start
        self._progress = progress
        self.reads = on_conflict != "error" or progress is not None
        self.timed = needs_clock(writer.schema, writer.deadline)
        self._positions: dict[bytes, int] = {}
        # By position: a refused object leaves its primary key to a later one.
        self._refusals: dict[int, IntegrityError] = {}
        self._violations: dict[IntegrityError, Violation | MissingTarget] = {}
        self._changes: tuple[RecordChange, ...] = ()
        self.committed = False

    def __len__(self) -> int:
        return len(self._items if self._columns is None else self._columns.pks)

    @property
    def _items(self) -> Sequence[EncodedObject]:
        if self._given is None:
            assert self._columns is not None, "objects are given in one way or the other"
            self._given = self._columns.items(self._context)
        return self._given

    def stored(self) -> Flow[list[BulkItem[Any]] | None]:
        """Commit the batch; with ``"ignore"``, leave out the objects whose unique values are taken.

        Returns the results; None if another process has handled these objects.
        """
        try:
            return (yield from self._carried_out())
        except Exception as error:
            _note_committed(error, self._start)
            raise

    def _carried_out(self) -> Flow[list[BulkItem[Any]] | None]:
        while True:
            known = len(self._refusals)
            try:
                return (yield from execute(self._context, self))
            except (UniqueViolationError, ReferenceViolationError, ExclusionViolationError):
                if len(self._refusals) == known:
                    raise
            except (LimitExceededError, InvalidValueError) as error:
                self._name_refused(error)
                raise

    def compiled(self, view: HeaderView, /) -> tuple[Proposal[list[BulkItem[Any]] | None], AtomicWrite] | None:
        """Return the proposal and the write of a first attempt, compiled by columns; None if that is impossible."""
        columns = self._columns
        compiled = None if columns is None else columns.compiled(self._context, view)
        if columns is None or compiled is None:
            return None
        write, accept = compiled

        def done(versionstamp: bytes) -> list[BulkItem[Any]]:
            self.committed = True
            accept(versionstamp)
            return list(map(_new, repeat(BulkItem), zip(columns.instances, repeat(True), repeat(None), strict=False)))

        return Proposal((), done), write

    def keys(self, view: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the records and of the progress; with ``"ignore"``, also those of their unique slots."""
        extra = () if self._progress is None else self._progress.keys
        keys = [item.layout.key(item.pk) for item in self._items]
        slots = [key for item in self._items for _, key in self._slots_of(view, item)] if self._ignore else ()
        return [*keys, *extra, *slots]

    def _slots_of(self, view: HeaderView, item: EncodedObject) -> Iterable[tuple[LiveIndex, bytes]]:
        record = StoredRecord(item.pk, item.document, item.value, item.encoding)
        for index in view.live[self.schema.collection].maintained:
            kind = maintenance_of(index)
            if kind.resolve is not None and not kind.claims_by_value:  # intervals are decided on by the compiler
                contents = kind.contents(record, self._context.codec)
                yield from ((index, key) for key in contents.entries if contents.contested)

    def propose(self, seen: AttemptState, /) -> Proposal[list[BulkItem[Any]] | None]:
        """Return the changes that store the objects; with ``"ignore"``, leave out those that are in the way."""
        if self._progress is not None and self._progress.overtaken_in(seen):
            return Proposal((), always(None))
        taken: dict[bytes, bytes] = {}
        results: list[_Result] = []
        self._positions = {}
        for position, item in enumerate(self._items):
            key = item.layout.key(item.pk)
            old = seen.live_row(key)
            error = self._refusals.get(position)
            if error is None and not self._update and (old is not None or key in taken):
                error = already_stored(self.schema, item.key_values)
            step = None if error is not None else self._step(position, seen, key, old)
            if step is not None and self._ignore:
                assert step.item is not None  # it was stored
                error = self._taken_slot(seen, step.item, taken)
            if error is not None:
                if not self._ignore:
                    raise self._placed(error, position)
                # The error does not end the write, so it gets no note about earlier commits.
                error.position, error.committed = self._start + position, None
                results.append((item, None, False, error))
                continue
            assert step is not None
            assert step.item is not None
            self._positions[item.pk] = position
            taken[key] = item.pk
            if self._ignore:
                taken.update((slot, item.pk) for _, slot in self._slots_of(seen.view, step.item))
            results.append((step.item, step, old is None, None))
        proposal = self._proposal(results)
        self._changes = proposal.changes
        return proposal

    def _proposal(self, results: Sequence[_Result]) -> Proposal[list[BulkItem[Any]] | None]:
        steps = [(step.item, step) for _, step, _, _ in results if step is not None and step.item is not None]
        items = [BulkItem(item.instance, created, error) for item, _, created, error in results]
        extra, advance = (None, None) if self._progress is None else self._advanced(self._progress, results)

        def done(versionstamp: bytes) -> list[BulkItem[Any]]:
            self.committed = True
            if advance is not None:
                advance(versionstamp)
            for item, step in steps:
                stored(item, step.change, versionstamp)
            return items

        def states(versionstamp: bytes) -> list[tuple[Any, ObjectState]]:
            return [(item.instance, state_after(item, step.change, versionstamp)) for item, step in steps]

        after = tuple(call for _, step in steps for call in step.after)
        return Proposal(tuple(step.change for _, step in steps), done, always(items), states, after, extra)

    def _advanced(
        self, progress: StoredProgress, results: Sequence[_Result]
    ) -> tuple[AtomicWrite, Callable[[bytes], None]]:
        """Return the progress after the batch, with the outcomes of its objects; see ``StoredProgress.advanced``."""
        outcomes = [
            ItemOutcome(created, error, None if error is None else self._violations.get(error))
            for _, _, created, error in results
        ]
        written = sum(error is None for _, _, _, error in results)
        notes = outcome_rows(self._context, progress.prefix("item"), self._start, outcomes)
        return progress.advanced(results, BatchOutcome(len(results), written, ()), notes)

    def _step(self, position: int, seen: AttemptState, key: bytes, old: Row | None) -> PlannedChange:
        item = self._items[position]
        shown = shown_key(item.key_values)
        try:
            if old is not None and self.schema.time_fields:  # computed from those of the overwritten record
                item = self._writer.first(item.instance, document_of(self._context, old))
            step = self._writer.store(item, seen, seen.row(key))
        except Exception as error:  # user hooks and validators may raise anything
            name_record(error, self.schema, shown, self._start + position)
            raise
        return naming(step, self.schema, shown, self._start + position) if step.after else step

    def _taken_slot(self, seen: AttemptState, item: EncodedObject, taken: dict[bytes, bytes]) -> IntegrityError | None:
        """Return the error for an object whose unique value an existing record, or an earlier object, has."""
        live = seen.view.live[self.schema.collection]
        for index, slot in self._slots_of(seen.view, item):
            owner = taken.get(slot)
            # A hook may have set values whose slots were not read; then the compiler requests them.
            row = seen.live_row(slot) if seen.rows is not None and slot in seen.rows else None
            if owner is None and row is not None:
                owner = slot_owner(self._context.codec, live, index, row)
            if owner is not None:
                change = record_change(self._context, item, seen, None, self._writer.deadline)
                return self._violated(Violation(change, index, slot, owner))
        return None

    def refused(self, refusal: WriteRefusal, /) -> IntegrityError:
        """Return the error of the first refused object; with ``"ignore"``, the next attempt leaves all of them out."""
        found = refusals_in(refusal)
        refused_keys = {one.change.pk for one in found}
        # What only a refused object of this batch holds is free in the next attempt.
        certain = [one for one in found if not (isinstance(one, Violation) and one.owner in refused_keys)]
        if not self._ignore or not certain:
            certain = [found[0]]
        errors = {self._positions[one.change.pk]: self._violated(one) for one in certain}
        if self._ignore and self._context.transaction is None:
            self._refusals.update(errors)
        position, error = next(iter(errors.items()))
        return self._placed(error, position)

    def _name_refused(self, error: KvModelsError) -> None:
        """Add the object to an error of the compiler, if the error is about one object."""
        change = changed_record(error, self._changes)
        pk = None if change is None else change.pk
        for position, item in enumerate(self._items):
            if item.pk == pk:
                name_record(error, self.schema, shown_key(item.key_values), self._start + position)

    def _violated(self, violation: WriteRefusal) -> IntegrityError:
        error = refused(violation)
        assert isinstance(error, IntegrityError)
        assert not isinstance(violation, (RemainingReferrers, RefusedCascade)), "nothing is removed here"
        self._violations[error] = violation
        return error

    def _placed(self, error: IntegrityError, position: int) -> IntegrityError:
        error.position = self._start + position
        error.committed = self._start
        return error
