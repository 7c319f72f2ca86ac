"""Store many loaded objects (``bulk_update``), each only if its record has not changed since it was loaded.

Rules of this module: objects are validated and encoded before the first batch is sent. Only an iterator without a
length is read batch by batch, with one batch in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast

from kvmodels.core.operations import Row
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import items_of, iterator_of, require_object
from kvmodels.flows.blobs.copying import after_uploads, nothing, unstored_blobs
from kvmodels.flows.bulk.batches import BulkAction, BulkRun, name_record, repeated_key, write_in_transaction
from kvmodels.flows.bulk.keys import Source
from kvmodels.flows.bulk.options_and_results import BulkOptions, BulkResult, checked_options
from kvmodels.flows.bulk.progress import StoredProgress, list_digest
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import document_of, object_of, shown_key
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, EncodedObject, PlannedChange, key_changed, writing
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.flows.writing.record_write import stale_error
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.changes import require_changes
from kvmodels.schema.instances import ObjectState, state_of


def bulk_update(
    context: Context, schema: ModelSchema, instances: Iterable[Any], fields: Iterable[str] | None, options: BulkOptions
) -> Flow[BulkResult]:
    """Store loaded objects. ``fields``: store only the values of these fields; None: all fields."""
    options = checked_options(context, options)
    objects = iterator_of("objs", instances, "Give objects of the model in a list.")
    names = None if fields is None else tuple(items_of("fields", fields, "Give names of fields in a list."))
    if names is not None:
        _require_names(schema, names)
    if not isinstance(instances, Sized) and options.resume_id is None and context.transaction is None:
        return writing(context, schema, KEEP, partial(_streamed, objects, names, options))
    loaded = _loaded(context, schema, objects, 0)
    return writing(context, schema, KEEP, partial(_bulk_update, loaded, names, options))


def _require_names(schema: ModelSchema, names: Sequence[str]) -> None:
    if not names or isinstance(names, str):
        raise InvalidArgumentError(
            "an update names no fields", argument="fields", hint="Leave fields out to store the whole objects."
        )
    if not all(isinstance(cast("object", name), str) for name in names):
        raise InvalidArgumentError(
            "the name of a field must be a str", argument="fields", value=names, hint='Give names of fields: ["age"].'
        )
    require_changes(schema, dict.fromkeys(names))


def _loaded(
    context: Context, schema: ModelSchema, objects: Iterable[Any], start: int
) -> dict[bytes, tuple[Any, ObjectState]]:
    """Return the objects with their states, by packed primary key; refuse a repeated object."""
    loaded: dict[bytes, tuple[Any, ObjectState]] = {}
    layout = context.layouts[schema.collection]
    for position, instance in enumerate(objects, start):
        try:
            require_object(schema, instance)
        except InvalidValueError as error:
            name_record(error, schema, None, position)
            raise
        state = state_of(instance)
        if state is None:
            raise InvalidArgumentError(
                "an object was never loaded, so there is nothing to update",
                argument="objs",
                value=shown_key(schema.primary_key_of(instance)),
                hint='Use bulk_create(), with on_conflict="update" to overwrite what is stored.',
            )
        pk = layout.pack(state.key)
        if pk in loaded:
            raise repeated_key(state.key)
        loaded[pk] = instance, state
    return loaded


def _bulk_update(
    loaded: Mapping[bytes, tuple[Any, ObjectState]],
    names: Sequence[str] | None,
    options: BulkOptions,
    writer: ChangeBuilder,
) -> Flow[BulkResult]:
    context = writer.context
    items = yield from _items(loaded, names, options, writer, 0)
    work = StoreAction(writer)
    work.expect(items)
    if context.transaction is not None:
        return (yield from write_in_transaction(context, work, items, options))
    if options.resume_id is not None:
        what = ["bulk_update", writer.schema.collection, None if names is None else sorted(names), options.on_error]
        return (yield from _resumed(context, work, items, options, list_digest(what, (item.row.key for item in items))))
    run = BulkRun(context, work, options)
    run.total = len(items)
    with run.noting():
        yield from run.write(Source(items))
    return run.result()


def _streamed(
    objects: Iterator[Any], names: Sequence[str] | None, options: BulkOptions, writer: ChangeBuilder
) -> Flow[BulkResult]:
    work = StoreAction(writer)
    run = BulkRun(writer.context, work, options)
    with run.noting():
        yield from run.write(ObjectSource(objects, names, options, work))
    return run.result()


def _items(
    loaded: Mapping[bytes, tuple[Any, ObjectState]],
    names: Sequence[str] | None,
    options: BulkOptions,
    writer: ChangeBuilder,
    start: int,
) -> Flow[list[LoadedObject]]:
    """Validate and encode objects, the first of which has the position ``start``."""
    layout = writer.context.layouts[writer.schema.collection]
    items: list[LoadedObject] = []
    for position, (pk, (instance, state)) in enumerate(loaded.items(), start):
        row = Row(layout.key(pk), state.value, state.encoding, state.versionstamp, state.expire_at)
        try:
            item = yield from _prepared(writer, instance, state, row, names)
        except Exception as error:  # user validators may raise anything; the batch of the object lists it
            if options.on_error == "raise":
                name_record(error, writer.schema, shown_key(state.key), position)
                raise
            items.append(LoadedObject(position, pk, state.key, row, None, error))
        else:
            items.append(LoadedObject(position, pk, state.key, row, item))
    return items


def _resumed(
    context: Context, work: StoreAction, items: Sequence[LoadedObject], options: BulkOptions, digest: bytes
) -> Flow[BulkResult]:
    """Write the objects after those that earlier runs have written; at the end return the stored result."""
    assert options.resume_id is not None, "only called with an id"
    progress = StoredProgress(context, context.layouts[work.schema.collection], options.resume_id, digest)
    run = BulkRun(context, work, options, progress=progress)
    run.total = len(items)
    with run.noting():
        progress.resumed = (yield from progress.load()) is not None
        while True:
            state = progress.state
            if state is None:
                yield from progress.begin("list")
            elif state.phase == "done":
                return (yield from progress.result())
            else:
                yield from run.resume(Source(items[state.position :]))


def _prepared(
    writer: ChangeBuilder, instance: Any, state: ObjectState, row: Row, names: Sequence[str] | None
) -> Flow[EncodedObject]:
    """Validate and encode an object."""
    context, schema = writer.context, writer.schema
    if schema.blobs and (places := unstored_blobs(context, schema, (instance,), loaded=True)):
        yield from after_uploads(context, schema, places, nothing)
    changed = instance
    if names is not None:
        _, live = yield from live_collection(context, schema)
        changed = object_of(context, live, row)
        apply_changes(schema.variant_of(changed), changed, {name: getattr(instance, name) for name in names})
    item = writer.first(changed, document_of(context, row) if schema.time_fields else None)
    if item.pk != item.layout.pack(state.key):
        raise key_changed("the primary key of a loaded object was changed", schema, state.key, item.key_values)
    return item._replace(instance=instance)


class LoadedObject(NamedTuple):
    """An object of the caller, and the row that it was loaded from; ``pk`` is its packed primary key."""

    position: int
    pk: bytes
    key: tuple[Any, ...]
    row: Row
    item: EncodedObject | None
    error: Exception | None = None


class StoreAction(BulkAction[LoadedObject]):
    """Store loaded objects whose records are unchanged."""

    holds_objects = True
    reads = False

    def __init__(self, writer: ChangeBuilder) -> None:
        self.schema = writer.schema
        self.writer = writer

    def expect(self, items: Iterable[LoadedObject]) -> None:
        """Read the records of the next batches before the first attempt if one of these objects has a deadline."""
        self.reads = any(item.row.expire_at is not None for item in items)

    def position_of(self, item: LoadedObject, /) -> int:
        """Return the index in the caller's list."""
        return item.position

    def step(self, seen: AttemptState, item: LoadedObject) -> PlannedChange | None:
        """Return the change from the record to the object."""
        if item.item is None:
            assert item.error is not None, "there is one or the other"
            raise item.error
        loaded = item.row
        old = loaded if seen.rows is None else seen.row(loaded.key)
        current = loaded if seen.rows is None else seen.live_row(loaded.key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise stale_error(self.schema, item.key, loaded, current)
        return self.writer.store(item.item, seen, old)


class ObjectSource(Source[LoadedObject]):
    """A source of the objects of an iterator, which reads, validates and encodes those of one batch at a time."""

    def __init__(
        self, objects: Iterator[Any], names: Sequence[str] | None, options: BulkOptions, work: StoreAction
    ) -> None:
        super().__init__()
        self._objects = objects
        self._names = names
        self._options = options
        self._work = work
        self._position = 0

    def take(self, size: int) -> Flow[list[LoadedObject]]:
        """Return the next objects, at most ``size``; empty at the end."""
        if not self._found:
            writer, start = self._work.writer, self._position
            loaded = _loaded(writer.context, writer.schema, islice(self._objects, size), start)
            self._position += len(loaded)
            self._found.extend((yield from _items(loaded, self._names, self._options, writer, start)))
            self._work.expect(self._found)
        return (yield from super().take(size))
