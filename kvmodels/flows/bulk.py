"""Insert many records: batches, each one atomic operation, with a result for every object.

Rules of this module: a batch is written whole or not at all and is never split; what was committed before an error
is said in the error. Objects are validated and encoded before the first batch is sent, so bad input writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from kvmodels.errors import AlreadyExistsError, IntegrityError, InvalidArgumentError, UniqueViolationError
from kvmodels.flows.arguments import items_of
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.operation import Operation, Proposal, Seen
from kvmodels.flows.requests import Flow
from kvmodels.flows.retry import execute
from kvmodels.flows.storing import (
    KEEP,
    Deadline,
    Pending,
    needs_clock,
    pending,
    record_change,
    refused,
    state_after,
    stored,
)
from kvmodels.maintenance.changes import RecordChange, Violation
from kvmodels.maintenance.entries import slot_owner
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.state import ObjectState

__all__ = ["BulkItem", "OnConflict", "bulk_create"]

M = TypeVar("M")
OnConflict = Literal["error", "ignore"]


class BulkItem(NamedTuple, Generic[M]):
    """What became of one object of a bulk write: created, or left out because of an error."""

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
) -> Flow[list[BulkItem[Any]]]:
    """Insert all objects, in their order.

    Args:
        batch_size: records per atomic operation, 1 or more; None for one operation over all of them.
        on_conflict: ``"error"`` raises at the first object that cannot be inserted; ``"ignore"`` leaves such objects
            out and inserts the others.
        expire_in: milliseconds until the records expire, None for never, KEEP for what their model declares.

    Raises:
        AlreadyExistsError, UniqueViolationError: with ``position``, the index of the object, and ``committed``, how
            many objects of earlier batches are stored; nothing of its own batch is.
        OperationTooLargeError: a batch is over a limit of the engine.

    Cost: per batch one commit, with ``"ignore"`` one read before it.
    """
    # A caller without a type checker may give anything, and True would be a batch of one.
    given: object = batch_size
    if given is not None and (type(given) is not int or given < 1):
        raise InvalidArgumentError(
            "a batch size is not a positive whole number",
            argument="batch_size",
            value=batch_size,
            hint="Give the number of records per atomic operation, or None for one operation.",
        )
    if on_conflict not in ("error", "ignore"):
        raise InvalidArgumentError(
            "an unknown way to treat conflicts",
            argument="on_conflict",
            value=on_conflict,
            expected=("error", "ignore"),
            hint="Give 'error' or 'ignore'.",
        )
    objects = items_of("objs", instances, "Give objects of the model in a list.")
    items = [pending(context, schema, instance) for instance in objects]
    size = batch_size or max(len(items), 1)
    results: list[BulkItem[Any]] = []
    for start in range(0, len(items), size):
        batch = _Batch(
            context,
            schema,
            items[start : start + size],
            ignore=on_conflict == "ignore",
            expire_in=expire_in,
            start=start,
        )
        results.extend((yield from execute(context, batch.operation())))
    return results


class _Batch:
    """One atomic operation that inserts several records."""

    def __init__(
        self,
        context: Context,
        schema: ModelSchema,
        items: Sequence[Pending],
        *,
        ignore: bool,
        expire_in: Deadline,
        start: int,
    ) -> None:
        self._context = context
        self._schema = schema
        self._items = items
        self._keys = [item.layout.key(item.pk) for item in items]
        self._ignore = ignore
        self._deadline = expire_in
        self._start = start
        self._positions: dict[bytes, int] = {}

    def operation(self) -> Operation[list[BulkItem[Any]]]:
        return Operation(
            (self._schema,),
            self._wanted,
            self._propose,
            self._refused,
            reads=self._ignore,
            timed=needs_clock(self._schema, self._deadline),
        )

    def _wanted(self, view: HeaderView) -> Sequence[bytes]:
        return [*self._keys, *self._slots(view)] if self._ignore else self._keys

    def _slots(self, view: HeaderView) -> Iterable[bytes]:
        for item in self._items:
            yield from self._slots_of(view, item)

    def _slots_of(self, view: HeaderView, item: Pending) -> Iterable[bytes]:
        for index in view.live[self._schema.collection].maintained:
            for key, slot in index.layout.keys(item.document, item.pk):
                if slot:
                    yield key

    def _propose(self, seen: Seen) -> Proposal[list[BulkItem[Any]]]:
        taken: dict[bytes, bytes] = {}
        changes: list[RecordChange] = []
        results: list[tuple[Pending, RecordChange | None, IntegrityError | None]] = []
        self._positions = {}
        for position, (item, key) in enumerate(zip(self._items, self._keys, strict=True)):
            error = self._obstacle(seen, item, key, taken)
            if error is not None:
                if not self._ignore:
                    raise self._placed(error, position)
                results.append((item, None, error))
                continue
            change = record_change(self._context, item, seen, seen.row(key), self._deadline)
            self._positions[item.pk] = position
            taken[key] = item.pk
            if self._ignore:
                taken.update(dict.fromkeys(self._slots_of(seen.view, item), item.pk))
            changes.append(change)
            results.append((item, change, None))

        def done(versionstamp: bytes) -> list[BulkItem[Any]]:
            return [
                BulkItem(item.instance, False, error)
                if change is None
                else BulkItem(stored(item, change, versionstamp), True)
                for item, change, error in results
            ]

        def planned(_: bytes) -> list[BulkItem[Any]]:
            return [BulkItem(item.instance, change is not None, error) for item, change, error in results]

        def states(versionstamp: bytes) -> list[tuple[Any, ObjectState]]:
            return [
                (item.instance, state_after(item, change, versionstamp))
                for item, change, _ in results
                if change is not None
            ]

        return Proposal(tuple(changes), done, planned, states)

    def _obstacle(self, seen: Seen, item: Pending, key: bytes, taken: dict[bytes, bytes]) -> IntegrityError | None:
        """Why an object cannot be inserted: its key is there already, or (with "ignore") a slot of it is."""
        if key in taken or seen.live_row(key) is not None:
            shown = item.key_values[0] if len(item.key_values) == 1 else item.key_values
            return AlreadyExistsError("a record with this primary key exists", model=self._schema.name, key=shown)
        if not self._ignore:
            return None
        live = seen.view.live[self._schema.collection]
        for index in live.maintained:
            for slot_key, slot in index.layout.keys(item.document, item.pk):
                if not slot:
                    continue
                owner = taken.get(slot_key)
                row = seen.live_row(slot_key)
                if owner is None and row is not None:
                    owner = slot_owner(self._context.codec, live, index, row)
                if owner is not None:
                    change = record_change(self._context, item, seen, None, self._deadline)
                    error = refused(Violation(change, index, slot_key, owner))
                    assert isinstance(error, UniqueViolationError)
                    return error
        return None

    def _refused(self, violation: Violation) -> IntegrityError:
        error = refused(violation)
        assert isinstance(error, UniqueViolationError)
        return self._placed(error, self._positions[violation.change.pk])

    def _placed(self, error: IntegrityError, position: int) -> IntegrityError:
        error.position = self._start + position
        error.committed = self._start
        return error
