"""One batch of a ``bulk_create``: an atomic operation that stores several new objects, with a result for each.

Rules of this module: a batch is written whole or not at all; an error tells which object it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.core.operations import AtomicWrite, Row
from kvmodels.core.values import ErrorAsText
from kvmodels.errors import (
    AlreadyExistsError,
    IntegrityError,
    InvalidValueError,
    KvModelsError,
    LimitExceededError,
    UniqueViolationError,
)
from kvmodels.flows.bulk import progress as bulk_progress
from kvmodels.flows.bulk.batch import Outcome
from kvmodels.flows.bulk.created_log import Became, notes_of
from kvmodels.flows.bulk.error_context import changed_record, name_record, naming
from kvmodels.flows.bulk.insert import InsertColumns
from kvmodels.flows.context import HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.encode import (
    Pending,
    needs_clock,
    record_change,
    refused,
    state_after,
    stored,
)
from kvmodels.flows.writing.hooks import Step, Writer
from kvmodels.flows.writing.operation import Operation, Proposal, Seen, always
from kvmodels.indexing.changes import RecordChange, Violation
from kvmodels.indexing.entries import slot_owner
from kvmodels.schema.instances import ObjectState

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

M = TypeVar("M")
OnConflict = Literal["error", "ignore", "update"]


class BulkItem(NamedTuple, Generic[M]):
    """What became of one object of a bulk write: created, left out because of an error, or else overwritten."""

    obj: M
    created: bool
    error: Annotated[IntegrityError | None, ErrorAsText] = None


_Result = tuple[Pending, Step | None, bool, IntegrityError | None]
"""An object, how it is stored, whether it is a new record, and why it is left out."""


class CreateBatch:
    """One atomic operation that stores several objects.

    Args:
        writer: stores them.
        items: the objects; in columns, if the first attempt may be compiled of them.
        on_conflict: as of ``bulk_create``.
        start: the place of the first of them in the list of the caller.
        ledger: remembers the batch; None: nobody does.
    """

    def __init__(
        self,
        writer: Writer,
        items: Sequence[Pending] | InsertColumns,
        on_conflict: OnConflict,
        start: int,
        ledger: bulk_progress.StoredProgress | None = None,
    ) -> None:
        self._writer = writer
        self._context = writer.context
        self._schema = writer.schema
        self._columns = items if isinstance(items, InsertColumns) else None
        self._given = None if isinstance(items, InsertColumns) else items
        self._ignore = on_conflict == "ignore"
        self._update = on_conflict == "update"
        self._start = start
        self._ledger = ledger
        self._positions: dict[bytes, int] = {}
        self._refusals: dict[bytes, IntegrityError] = {}
        self._violations: dict[IntegrityError, Violation] = {}
        self._changes: tuple[RecordChange, ...] = ()

    @property
    def _items(self) -> Sequence[Pending]:
        if self._given is None:
            assert self._columns is not None, "objects are given in one way or the other"
            self._given = self._columns.items(self._context)
        return self._given

    def stored(self) -> Flow[list[BulkItem[Any]] | None]:
        """Carry the operation out; with "ignore" without the objects whose unique values turn out to be taken.

        None: another process has gone on with the same bulk write.
        """
        try:
            return (yield from self._carried_out())
        except Exception as error:
            if self._start and not isinstance(error, IntegrityError):  # which has an attribute for it
                error.add_note(f"kvmodels: the batches before position {self._start} are committed")
            raise

    def _carried_out(self) -> Flow[list[BulkItem[Any]] | None]:
        while True:
            known = len(self._refusals)
            try:
                return (yield from execute(self._context, self._operation()))
            except UniqueViolationError:
                if len(self._refusals) == known:
                    raise
            except (LimitExceededError, InvalidValueError) as error:
                self._name_refused(error)
                raise

    def _operation(self) -> Operation[list[BulkItem[Any]] | None]:
        return Operation(
            (self._schema,),
            self._wanted,
            self._propose,
            self._refused,
            reads=self._ignore or self._update or self._ledger is not None,
            timed=needs_clock(self._schema, self._writer.deadline),
            compiled=None if self._columns is None else self._inserted,
        )

    def _inserted(self, view: HeaderView) -> tuple[Proposal[list[BulkItem[Any]] | None], AtomicWrite] | None:
        """Return the proposal and the write of a first attempt that is compiled by columns; None if it cannot be."""
        columns = self._columns
        compiled = None if columns is None else columns.compiled(self._context, view)
        if columns is None or compiled is None:
            return None
        write, accept = compiled

        def done(versionstamp: bytes) -> list[BulkItem[Any]]:
            accept(versionstamp)
            return list(map(_new, repeat(BulkItem), zip(columns.instances, repeat(True), repeat(None), strict=False)))

        return Proposal((), done), write

    def _wanted(self, view: HeaderView) -> Sequence[bytes]:
        beside = () if self._ledger is None else self._ledger.keys
        keys = [item.layout.key(item.pk) for item in self._items]
        return [*keys, *beside, *(self._slots(view) if self._ignore else ())]

    def _slots(self, view: HeaderView) -> Iterable[bytes]:
        for item in self._items:
            yield from self._slots_of(view, item)

    def _slots_of(self, view: HeaderView, item: Pending) -> Iterable[bytes]:
        for index in view.live[self._schema.collection].maintained:
            for key, slot in index.layout.keys(item.document, item.pk):
                if slot:
                    yield key

    def _propose(self, seen: Seen) -> Proposal[list[BulkItem[Any]] | None]:
        if self._ledger is not None and self._ledger.overtaken_in(seen):
            return Proposal((), always(None))
        taken: dict[bytes, bytes] = {}
        results: list[_Result] = []
        self._positions = {}
        for position, item in enumerate(self._items):
            key = item.layout.key(item.pk)
            old = seen.live_row(key)
            error = self._refusals.get(item.pk) or self._taken_key(item, key, old, taken)
            step = None if error is not None else self._step(position, seen, key, old)
            if step is not None and self._ignore:
                assert step.item is not None  # it is stored
                error = self._taken_slot(seen, step.item, taken)
            if error is not None:
                if not self._ignore:
                    raise self._placed(error, position)
                # It ends nothing, so nothing is to be said of what was committed before it.
                error.position, error.committed = self._start + position, None
                results.append((item, None, False, error))
                continue
            assert step is not None
            assert step.item is not None
            self._positions[item.pk] = position
            taken[key] = item.pk
            if self._ignore:
                taken.update(dict.fromkeys(self._slots_of(seen.view, step.item), item.pk))
            results.append((step.item, step, old is None, None))
        proposal = _proposal(results)
        self._changes = proposal.changes
        return self._remembered(proposal, results)

    def _remembered(
        self, proposal: Proposal[list[BulkItem[Any]] | None], results: Sequence[_Result]
    ) -> Proposal[list[BulkItem[Any]] | None]:
        """The proposal, with what is noted of the batch."""
        ledger = self._ledger
        if ledger is None:
            return proposal
        became = [
            Became(created, error, None if error is None else self._violations.get(error))
            for _, _, created, error in results
        ]
        written = sum(error is None for _, _, _, error in results)
        notes = notes_of(self._context, ledger.prefix("item"), self._start, became)
        places = [bulk_progress.Place(self._start + offset) for offset in range(len(results))]
        entry = ledger.entry(places, Outcome(len(results), written, ()), notes)

        def committed(versionstamp: bytes) -> list[BulkItem[Any]] | None:
            entry.committed(versionstamp)
            return proposal.done(versionstamp)

        return proposal._replace(done=committed, beside=entry.beside)

    def _step(self, position: int, seen: Seen, key: bytes, old: Row | None) -> Step:
        item = self._items[position]
        shown = shown_key(item.key_values)
        try:
            if old is not None and self._schema.time_fields:  # they follow those of the record that is overwritten
                item = self._writer.first(item.instance, document_of(self._context, old))
            step = self._writer.store(item, seen, seen.row(key))
        except Exception as error:  # hooks and validators of the user raise anything
            name_record(error, self._schema, shown, self._start + position)
            raise
        if not step.after:
            return step
        return step._replace(after=tuple(naming(step.after, self._schema, shown, self._start + position)))

    def _taken_key(
        self, item: Pending, key: bytes, old: Row | None, taken: dict[bytes, bytes]
    ) -> AlreadyExistsError | None:
        if self._update or (key not in taken and old is None):
            return None
        return AlreadyExistsError(
            "a record with this primary key exists", model=self._schema.name, key=shown_key(item.key_values)
        )

    def _taken_slot(self, seen: Seen, item: Pending, taken: dict[bytes, bytes]) -> IntegrityError | None:
        """Why an object cannot be inserted: a record, or an object before it, has one of its unique values."""
        live = seen.view.live[self._schema.collection]
        for index in live.maintained:
            for slot_key, slot in index.layout.keys(item.document, item.pk):
                if not slot:
                    continue
                owner = taken.get(slot_key)
                # A hook may have made values whose slots nobody has read; then the compiler asks for them.
                row = seen.live_row(slot_key) if seen.rows is not None and slot_key in seen.rows else None
                if owner is None and row is not None:
                    owner = slot_owner(self._context.codec, live, index, row)
                if owner is not None:
                    change = record_change(self._context, item, seen, None, self._writer.deadline)
                    return self._violated(Violation(change, index, slot_key, owner))
        return None

    def _refused(self, violation: Violation) -> IntegrityError:
        error = self._violated(violation)
        if self._ignore and self._context.transaction is None:
            self._refusals[violation.change.pk] = error
        return self._placed(error, self._positions[violation.change.pk])

    def _name_refused(self, error: KvModelsError) -> None:
        """Tell with an error of the compiler which object it is about, if it is one."""
        change = changed_record(error, self._changes)
        pk = None if change is None else change.pk
        for position, item in enumerate(self._items):
            if item.pk == pk:
                name_record(error, self._schema, shown_key(item.key_values), self._start + position)

    def _violated(self, violation: Violation) -> IntegrityError:
        error = refused(violation)
        assert isinstance(error, UniqueViolationError)
        self._violations[error] = violation
        return error

    def _placed(self, error: IntegrityError, position: int) -> IntegrityError:
        error.position = self._start + position
        error.committed = self._start
        return error


def _proposal(results: Sequence[_Result]) -> Proposal[list[BulkItem[Any]] | None]:
    steps = [step for _, step, _, _ in results if step is not None]

    def done(versionstamp: bytes) -> list[BulkItem[Any]]:
        for item, step, _, _ in results:
            if step is not None:
                stored(item, step.change, versionstamp)
        return planned(versionstamp)

    def planned(_: bytes) -> list[BulkItem[Any]]:
        return [BulkItem(item.instance, created, error) for item, _, created, error in results]

    def states(versionstamp: bytes) -> list[tuple[Any, ObjectState]]:
        return [
            (item.instance, state_after(item, step.change, versionstamp))
            for item, step, _, _ in results
            if step is not None
        ]

    after: list[Callable[[], object]] = [call for step in steps for call in step.after]
    return Proposal(tuple(step.change for step in steps), done, planned, states, tuple(after))


show_public_path(BulkItem)
