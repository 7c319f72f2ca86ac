"""One batch of ``bulk_create``: the objects that one atomic operation stores, and those that it leaves out.

Rules of this module: a batch is written completely or not at all. An error names its object and the number of objects
committed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import AtomicWrite, Row
from kvmodels.errors import (
    ExclusionViolationError,
    IntegrityError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    ReferenceViolationError,
    UniqueViolationError,
)
from kvmodels.flows.bulk.batches import changed_record, name_record, naming
from kvmodels.flows.bulk.insert import InsertColumns
from kvmodels.flows.bulk.options_and_results import BulkItem, OnConflict
from kvmodels.flows.bulk.progress import BatchOutcome, ItemOutcome, StoredProgress, outcome_rows
from kvmodels.flows.bulk.unique_owners import UniqueOwners
from kvmodels.flows.context import HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    ChangeBuilder,
    EncodedObject,
    PlannedChange,
    already_stored,
    needs_clock,
    record_change,
    refused,
    state_after,
    stored,
)
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.compiler import WriteRefusal, refusals_in
from kvmodels.indexing.entries import RecordChange, StoredRecord, Violation, slot_owner
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.references import MissingTarget, RemainingReferrers
from kvmodels.schema.instances import ObjectState

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

_Result = tuple[EncodedObject, PlannedChange | None, bool, IntegrityError | None]
"""An object, its planned change, whether it is a new record, and the error if it is left out."""


def note_committed(error: Exception, count: int) -> None:
    """Add a note to an error about the batches that were committed before it; an IntegrityError has an attribute."""
    note = f"kvmodels: the batches before position {count} are committed"
    if count and not isinstance(error, IntegrityError) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


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
        *,
        owners: UniqueOwners | None = None,
    ) -> None:
        self._writer = writer
        self._context = writer.context
        self.schema = writer.schema
        self._columns = items if isinstance(items, InsertColumns) else None
        self._given = None if isinstance(items, InsertColumns) else items
        self._ignore = on_conflict == "ignore"
        self._owners = owners
        self.finds_keys = owners is not None
        self._update = on_conflict == "update" and owners is None
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
            note_committed(error, self._start)
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
        """Return the keys of the records, of the progress, and of the unique slots that decide."""
        extra = () if self._progress is None else self._progress.keys
        keys = [item.layout.key(item.pk) for item in self._items]
        slots = [key for item in self._items for _, key in self._slots_of(view, item)] if self._ignore else ()
        if self._owners is not None:
            live = view.live[self.schema.collection]
            slots = [key for item in self._items if (key := self._owners.entry(live, item)) is not None]
        return [*keys, *extra, *slots]

    def further_keys(self, seen: AttemptState, /) -> Iterable[bytes]:
        """Return the keys of the records that have the values of the objects in the unique index that decides."""
        owners = self._owners
        found = () if owners is None else [owners.owner(seen, item) for item in self._items]
        return [key for key in found if key is not None]

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
            owner = None if self._owners is None else self._owners.owner(seen, item)
            key = item.layout.key(item.pk) if owner is None else owner
            old = seen.live_row(key)
            error = self._refusals.get(position)
            overwrites = self._update or owner is not None
            if error is None and not overwrites and (old is not None or key in taken):
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
            pk = step.item.pk
            self._positions[pk] = position
            taken[key] = pk
            if self._ignore:
                taken.update((slot, pk) for _, slot in self._slots_of(seen.view, step.item))
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
            if self._owners is not None:
                item = self._owners.as_owner(self._writer, seen, item, key)
            elif old is not None and self.schema.time_fields:  # computed from those of the overwritten record
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
        position = None if change is None else self._positions.get(change.pk)
        if change is not None and position is not None:
            key = shown_key(change.live.layout.unpack(change.pk))
            name_record(error, self.schema, key, self._start + position)

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
