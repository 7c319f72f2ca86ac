"""Store many new objects: batches, each one atomic operation, with a result for every object.

Rules of this module: a batch is written whole or not at all and is never split; what was committed before an error
is said in the error. Objects are validated and encoded before the first batch is sent, so bad input writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import items_of
from kvmodels.flows.bulk import progress as bulk_progress
from kvmodels.flows.bulk.create_batch import BulkItem, CreateBatch, OnConflict
from kvmodels.flows.bulk.created_log import remembered
from kvmodels.flows.bulk.error_context import key_of, name_record
from kvmodels.flows.bulk.insert import InsertColumns, insert_columns
from kvmodels.flows.bulk.options import checked_batch_size, require_progress, require_resume_id
from kvmodels.flows.bulk.results import BulkProgress
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.writing.encode import KEEP, Deadline, Pending
from kvmodels.flows.writing.hooks import Writer, writing
from kvmodels.schema.definition.definition import ModelSchema


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
    if options.on_conflict == "error" and options.resume_id is None and writer.deadline is KEEP:
        columns = insert_columns(writer, objects)
        if columns is not None:
            return (yield from _stored(writer, columns, options))
    items = [_first(writer, instance, position) for position, instance in enumerate(objects)]
    if options.on_conflict == "update":
        _require_distinct(items)
    if options.resume_id is None:
        return (yield from _stored(writer, items, options))
    what = ["bulk_create", writer.schema.collection, options.on_conflict]
    described = bulk_progress.list_digest(what, (item.layout.key(item.pk) for item in items))
    ledger = bulk_progress.StoredProgress(
        writer.context, writer.context.layouts[writer.schema.collection], options.resume_id, described
    )
    return (yield from _resumed(writer, items, options, ledger))


def _first(writer: Writer, instance: Any, position: int) -> Pending:
    try:
        return writer.first(instance)
    except Exception as error:  # validators of the user raise anything
        name_record(error, writer.schema, key_of(writer.schema, instance), position)
        raise


def _stored(writer: Writer, items: Sequence[Pending] | InsertColumns, options: _Options) -> Flow[list[BulkItem[Any]]]:
    count = len(items.pks) if isinstance(items, InsertColumns) else len(items)
    size = options.batch_size or max(count, 1)
    results: list[BulkItem[Any]] = []
    written = 0
    for batches, start in enumerate(range(0, count, size), 1):
        end = start + size
        part = items.part(start, end) if isinstance(items, InsertColumns) else items[start:end]
        stored_now = yield from CreateBatch(writer, part, options.on_conflict, start).stored()
        assert stored_now is not None, "nobody else goes on with it"
        results += stored_now
        written += sum(item.error is None for item in stored_now)
        if options.progress is not None:
            options.progress(BulkProgress(len(results), written, batches))
    return results


def _resumed(
    writer: Writer, items: Sequence[Pending], options: _Options, ledger: bulk_progress.StoredProgress
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
            batch = CreateBatch(writer, items[start : start + size], options.on_conflict, start, ledger)
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
