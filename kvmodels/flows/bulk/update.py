"""Store many loaded objects, each if nobody else changed its record since it was loaded.

Rules of this module: objects are validated and encoded before the first batch is sent; what one of them lacks is an
error at once, or one of its failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, cast

from kvmodels.core.operations import Row
from kvmodels.errors import InvalidArgumentError, InvalidValueError, PrimaryKeyChangedError
from kvmodels.flows.arguments import items_of, require_object
from kvmodels.flows.bulk.actions import Loaded, Storing
from kvmodels.flows.bulk.batch import Batch
from kvmodels.flows.bulk.error_context import name_record
from kvmodels.flows.bulk.progress import list_digest
from kvmodels.flows.bulk.results import BulkResult
from kvmodels.flows.bulk.resume import resumable_list
from kvmodels.flows.bulk.run import BulkOptions, BulkRun, Listed, checked_options
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import document_of, object_of, shown_key
from kvmodels.flows.writing.encode import KEEP, Pending
from kvmodels.flows.writing.hooks import Writer, writing
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.changes import require_changes
from kvmodels.schema.instances import ObjectState, state_of


def bulk_update(
    context: Context,
    schema: ModelSchema,
    instances: Iterable[Any],
    fields: Iterable[str] | None,
    options: BulkOptions,
) -> Flow[BulkResult]:
    """Store loaded objects.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        instances: the objects.
        fields: store only what these fields hold; None: the whole objects.
        options: how it goes.

    Raises:
        InvalidArgumentError: an object that was never loaded, one twice, no fields, an option that makes no sense.
        UnknownFieldError: no such field.
        PrimaryKeyChangedError: an object was loaded under another primary key, or a field of it is named.
        Whatever an object raises, unless failures are collected.

    Cost: per batch one commit, without a read when nobody is in the way and no unique value changes.
    """
    checked_options(context, options)
    objects = items_of("objs", instances, "Give objects of the model in a list.")
    names = None if fields is None else tuple(items_of("fields", fields, "Give names of fields in a list."))
    if names is not None:
        _require_names(schema, names)
    loaded = _loaded(context, schema, objects)
    return writing(context, schema, KEEP, partial(_bulk_update, loaded, names, options))


def _require_names(schema: ModelSchema, names: Sequence[str]) -> None:
    if not names or isinstance(names, str):
        raise InvalidArgumentError(
            "an update names no fields", argument="fields", hint="Leave fields out to store the whole objects."
        )
    if not all(isinstance(cast("object", name), str) for name in names):
        raise InvalidArgumentError(
            "a field is named by a text", argument="fields", value=names, hint='Give names of fields: ["age"].'
        )
    require_changes(schema, dict.fromkeys(names))


def _loaded(context: Context, schema: ModelSchema, objects: Iterable[Any]) -> list[tuple[Any, ObjectState]]:
    """The objects with their states, each record once."""
    loaded: dict[bytes, tuple[Any, ObjectState]] = {}
    layout = context.layouts[schema.collection]
    for position, instance in enumerate(objects):
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
            raise InvalidArgumentError(
                "two objects have one primary key, so one would overwrite the other",
                argument="objs",
                value=shown_key(state.key),
                hint="Give each record once.",
            )
        loaded[pk] = instance, state
    return list(loaded.values())


def _bulk_update(
    loaded: Sequence[tuple[Any, ObjectState]], names: Sequence[str] | None, options: BulkOptions, writer: Writer
) -> Flow[BulkResult]:
    context = writer.context
    layout = context.layouts[writer.schema.collection]
    items: list[Loaded] = []
    for position, (instance, state) in enumerate(loaded):
        key = layout.key(layout.pack(state.key))
        row = Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)
        try:
            item = yield from _prepared(writer, instance, state, row, names)
        except Exception as error:  # validators of the user raise anything; its batch lists it
            if options.on_error == "raise":
                name_record(error, writer.schema, shown_key(state.key), position)
                raise
            items.append(Loaded(position, state.key, row, None, error))
        else:
            items.append(Loaded(position, state.key, row, item))
    work = Storing(writer, may_expire=any(item.row.expire_at is not None for item in items))
    if context.transaction is not None:
        return (yield from _in_transaction(context, work, items, options))
    if options.resume_id is not None:
        what = ["bulk_update", writer.schema.collection, None if names is None else sorted(names), options.on_error]
        return (
            yield from resumable_list(
                context, work, items, options, list_digest(what, (item.row.key for item in items))
            )
        )
    return (yield from _at_once(context, work, items, options))


def _at_once(context: Context, work: Storing, items: Sequence[Loaded], options: BulkOptions) -> Flow[BulkResult]:
    run = BulkRun(context, work, options)
    try:
        yield from run.write(Listed(items))
    except Exception as error:
        run.annotate(error)
        raise
    return run.result()


def _in_transaction(context: Context, work: Storing, items: Sequence[Loaded], options: BulkOptions) -> Flow[BulkResult]:
    if not items:
        return BulkResult(0, 0)
    outcome = yield from Batch(context, work, items, collect=options.on_error == "collect").run()
    assert outcome is not None, "nobody else goes on with it"
    return BulkResult(outcome.matched, outcome.written, outcome.failed, 1)


def _prepared(
    writer: Writer, instance: Any, state: ObjectState, row: Row, names: Sequence[str] | None
) -> Flow[Pending]:
    """What is to be stored of an object, validated and encoded."""
    context, schema = writer.context, writer.schema
    changed = instance
    if names is not None:
        _, live = yield from live_collection(context, schema)
        changed = object_of(context, live, row)
        apply_changes(schema.variant_of(changed), changed, {name: getattr(instance, name) for name in names})
    item = writer.first(changed, document_of(context, row) if schema.time_fields else None)
    if item.pk != item.layout.pack(state.key):
        raise PrimaryKeyChangedError(
            "the primary key of a loaded object was changed",
            model=schema.name,
            loaded_key=shown_key(state.key),
            key=shown_key(item.key_values),
        )
    return item._replace(instance=instance)
