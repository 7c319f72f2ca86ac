"""Store many new objects: batches, each one atomic operation, with a result for every object.

Rules of this module: a batch is written whole or not at all and is never split; what was committed before an error
is said in the error. Objects are validated and encoded before the first batch is sent, so bad input writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from kvmodels.errors import AlreadyExistsError, IntegrityError, InvalidArgumentError, UniqueViolationError
from kvmodels.flows.arguments import items_of
from kvmodels.flows.bulk_arguments import checked_batch_size, require_progress, require_resume_id
from kvmodels.flows.bulk_batch import Outcome
from kvmodels.flows.bulk_created import Became, notes_of, remembered
from kvmodels.flows.bulk_progress import Place, StoredProgress, list_digest
from kvmodels.flows.bulk_results import BulkProgress
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.hooks import Step, Writer, writing
from kvmodels.flows.operation import Operation, Proposal, Seen, always
from kvmodels.flows.records import document_of
from kvmodels.flows.requests import Flow
from kvmodels.flows.retry import execute
from kvmodels.flows.storing import (
    KEEP,
    Deadline,
    Pending,
    needs_clock,
    record_change,
    refused,
    shown_key,
    state_after,
    stored,
)
from kvmodels.maintenance.changes import RecordChange, Violation
from kvmodels.maintenance.entries import slot_owner
from kvmodels.operations import Row
from kvmodels.public_path import show_public_path
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.state import ObjectState

__all__ = ["BulkItem", "OnConflict", "bulk_create"]

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor

M = TypeVar("M")
OnConflict = Literal["error", "ignore", "update"]


class BulkItem(NamedTuple, Generic[M]):
    """What became of one object of a bulk write: created, left out because of an error, or else overwritten."""

    obj: M
    created: bool
    error: IntegrityError | None = None


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
) -> Flow[list[BulkItem[Any]]]:
    """Insert all objects, in their order.

    Args:
        batch_size: records per atomic operation, 1 or more; None for one operation over all of them.
        on_conflict: ``"error"`` raises at the first object that cannot be inserted; ``"ignore"`` leaves such objects
            out and inserts the others; ``"update"`` overwrites the record of the same primary key, whatever version it
            has, and raises where another record holds a unique value.
        expire_in: milliseconds until the records expire, None for never, KEEP for what their model declares, or for
            the deadline of the record that is overwritten.
        progress: called after each batch.
        resume_id: under which the store remembers how far it is, and what became of each object.

    Raises:
        AlreadyExistsError, UniqueViolationError: with ``position``, the index of the object, and ``committed``, how
            many objects of earlier batches are stored; nothing of its own batch is.
        OperationTooLargeError: a batch is over a limit of the engine.
        InvalidArgumentError: a primary key twice with ``"update"``, or an id of another write.
        RetriesExhaustedError: others were faster every time.

    Cost: per batch one commit, with ``"ignore"``, ``"update"`` and an id one read before it; with an id a commit at the
    beginning and one at the end.
    """
    size = checked_batch_size(context, batch_size)
    if on_conflict not in ("error", "ignore", "update"):
        raise InvalidArgumentError(
            "an unknown way to treat conflicts",
            argument="on_conflict",
            value=on_conflict,
            expected=("error", "ignore", "update"),
            hint="Give 'error', 'ignore' or 'update'.",
        )
    require_progress(context, progress)
    require_resume_id(context, resume_id)
    objects = items_of("objs", instances, "Give objects of the model in a list.")
    options = _Options(size, on_conflict, progress, resume_id)
    return writing(context, schema, expire_in, partial(_create, objects, options))


class _Options(NamedTuple):
    batch_size: int | None
    on_conflict: OnConflict
    progress: Callable[[BulkProgress], object] | None
    resume_id: str | None


def _create(objects: Sequence[Any], options: _Options, writer: Writer) -> Flow[list[BulkItem[Any]]]:
    items = [writer.first(instance) for instance in objects]
    if options.on_conflict == "update":
        _require_distinct(items)
    if options.resume_id is None:
        return (yield from _stored(writer, items, options))
    what = ["bulk_create", writer.schema.collection, options.on_conflict]
    described = list_digest(what, (item.layout.key(item.pk) for item in items))
    ledger = StoredProgress(
        writer.context, writer.context.layouts[writer.schema.collection], options.resume_id, described
    )
    return (yield from _resumed(writer, items, options, ledger))


def _stored(writer: Writer, items: Sequence[Pending], options: _Options) -> Flow[list[BulkItem[Any]]]:
    size = options.batch_size or max(len(items), 1)
    results: list[BulkItem[Any]] = []
    written = 0
    for batches, start in enumerate(range(0, len(items), size), 1):
        stored_now = yield from _Batch(writer, items[start : start + size], options.on_conflict, start).stored()
        assert stored_now is not None, "nobody else goes on with it"
        results += stored_now
        written += sum(item.error is None for item in stored_now)
        if options.progress is not None:
            options.progress(BulkProgress(len(results), written, batches))
    return results


def _resumed(
    writer: Writer, items: Sequence[Pending], options: _Options, ledger: StoredProgress
) -> Flow[list[BulkItem[Any]]]:
    """The same behind the objects that were dealt with by earlier runs, or by others meanwhile."""
    size = options.batch_size or max(len(items), 1)
    own: dict[int, BulkItem[Any]] = {}
    yield from ledger.load()
    while (state := ledger.state) is None or state.phase != "done":
        if state is None:
            yield from ledger.begin("list")
        elif state.position >= len(items):
            yield from ledger.finish()
        else:
            start = state.position
            batch = _Batch(writer, items[start : start + size], options.on_conflict, start, ledger)
            stored_now = yield from batch.stored()
            if stored_now is None:
                yield from ledger.overtaken()
                continue
            own.update(enumerate(stored_now, start))
            if options.progress is not None:
                options.progress(ledger.so_far())
    if len(own) == len(items):
        return list(own.values())
    became = yield from remembered(writer.context, writer.schema, ledger.prefix("item"), items)
    return [
        own.get(position) or BulkItem(item.instance, one.created, one.error)
        for position, (item, one) in enumerate(zip(items, became, strict=True))
    ]


def _require_distinct(items: Iterable[Pending]) -> None:
    seen: set[bytes] = set()
    for item in items:
        if item.pk in seen:
            raise InvalidArgumentError(
                "two objects have one primary key, so one would overwrite the other",
                argument="objs",
                value=shown_key(item.key_values),
                hint="Give each record once.",
            )
        seen.add(item.pk)


_Result = tuple[Pending, Step | None, bool, IntegrityError | None]
"""An object, how it is stored, whether it is a new record, and why it is left out."""


class _Batch:
    """One atomic operation that stores several objects.

    Args:
        writer: stores them.
        items: the objects.
        on_conflict: as of ``bulk_create``.
        start: the place of the first of them in the list of the caller.
        ledger: remembers the batch; None: nobody does.
    """

    def __init__(
        self,
        writer: Writer,
        items: Sequence[Pending],
        on_conflict: OnConflict,
        start: int,
        ledger: StoredProgress | None = None,
    ) -> None:
        self._writer = writer
        self._context = writer.context
        self._schema = writer.schema
        self._items = items
        self._keys = [item.layout.key(item.pk) for item in items]
        self._ignore = on_conflict == "ignore"
        self._update = on_conflict == "update"
        self._start = start
        self._ledger = ledger
        self._positions: dict[bytes, int] = {}
        self._refusals: dict[bytes, IntegrityError] = {}
        self._violations: dict[IntegrityError, Violation] = {}

    def stored(self) -> Flow[list[BulkItem[Any]] | None]:
        """Carry the operation out; with "ignore" without the objects whose unique values turn out to be taken.

        None: another process has gone on with the same bulk write.
        """
        while True:
            known = len(self._refusals)
            try:
                return (yield from execute(self._context, self._operation()))
            except UniqueViolationError:
                if len(self._refusals) == known:
                    raise

    def _operation(self) -> Operation[list[BulkItem[Any]] | None]:
        return Operation(
            (self._schema,),
            self._wanted,
            self._propose,
            self._refused,
            reads=self._ignore or self._update or self._ledger is not None,
            timed=needs_clock(self._schema, self._writer.deadline),
        )

    def _wanted(self, view: HeaderView) -> Sequence[bytes]:
        beside = () if self._ledger is None else self._ledger.keys
        return [*self._keys, *beside, *(self._slots(view) if self._ignore else ())]

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
        inserted = self._inserted(seen)
        if inserted is not None:
            return inserted
        taken: dict[bytes, bytes] = {}
        results: list[_Result] = []
        self._positions = {}
        for position, (item, key) in enumerate(zip(self._items, self._keys, strict=True)):
            old = seen.live_row(key)
            error = self._refusals.get(item.pk) or self._taken_key(item, key, old, taken)
            step = None if error is not None else self._step(item, seen, key, old)
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
        return self._remembered(_proposal(results), results)

    def _inserted(self, seen: Seen) -> Proposal[list[BulkItem[Any]] | None] | None:
        """The proposal of a first attempt in which nothing is looked at but the objects; None if something is."""
        is_plain = seen.rows is None and self._writer.life is None and self._schema.ttl_ms is None
        if not is_plain or self._writer.deadline is not KEEP or self._refusals:
            return None
        positions = {item.pk: position for position, item in enumerate(self._items)}
        if len(positions) < len(self._items):
            return None
        self._positions = positions
        live, results = seen.view.live[self._schema.collection], list[_Result]()
        for item in self._items:
            written = (item.document, item.value, item.encoding, None, False, None, False, None)
            change: RecordChange = _new(RecordChange, (live, item.pk, None, None, *written))
            results.append((item, _new(Step, (change, item, ())), True, None))
        return _proposal(results)

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
        places = [Place(self._start + offset) for offset in range(len(results))]
        entry = ledger.entry(places, Outcome(len(results), written, ()), notes)

        def committed(versionstamp: bytes) -> list[BulkItem[Any]] | None:
            entry.committed(versionstamp)
            return proposal.done(versionstamp)

        return proposal._replace(done=committed, beside=entry.beside)

    def _step(self, item: Pending, seen: Seen, key: bytes, old: Row | None) -> Step:
        if old is not None and self._schema.time_fields:  # they follow those of the record that is overwritten
            item = self._writer.first(item.instance, document_of(self._context, old))
        return self._writer.store(item, seen, seen.row(key))

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
