"""Records on the other side of a foreign key: the target of a record, and the records that refer to others.

Rules of this module: a missing target is looked up a second time together with the referring record, so an object that
was loaded before a change is not mistaken for damage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvmodels._support.naming import short_repr
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.references import IncomingReference
from kvmodels.core.operations import ReadRange, format_versionstamp, point
from kvmodels.errors import (
    DanglingReferenceError,
    IndexNotReadyError,
    InvalidArgumentError,
    StaleObjectError,
)
from kvmodels.flows.arguments import items_of, require_object
from kvmodels.flows.context import Context, live_collection, planned, reload_header
from kvmodels.flows.effects import Flow, read, read_all
from kvmodels.flows.hydration.rows import absent, object_of, shown_key
from kvmodels.flows.reading.lookup import get_many_by_key
from kvmodels.query.query import reference_of
from kvmodels.schema.definition.definition import ModelSchema, Reference
from kvmodels.schema.instances import state_of


def related(context: Context, schema: ModelSchema, instance: Any, key: object) -> Flow[Any]:
    """Return the record that an object refers to; None if its field is None."""
    require_object(schema, instance)
    reference = reference_of(schema, key)
    target = declared(context, reference)
    value = getattr(instance, reference.field)
    if value is None:
        return None
    while True:
        (found,) = yield from get_many_by_key(context, target, [(value,)])
        if found is not None:
            return found
        state = state_of(instance)
        if state is None:
            raise absent(target, (value,))
        layout, targets = context.layouts[schema.collection], context.layouts[target.collection]
        ranges = (point(layout.key(layout.pack(state.key))), point(targets.key(targets.pack((value,)))))
        own, stored = (yield from read(ranges)).ranges
        if not own or own[0].versionstamp != state.versionstamp:
            raise StaleObjectError(
                "the record changed since the object was loaded, and refers to another one now",
                model=schema.name,
                key=shown_key(state.key),
                expected=format_versionstamp(state.versionstamp),
                actual=format_versionstamp(own[0].versionstamp) if own else None,
            )
        if stored:
            continue
        _, live = yield from live_collection(context, schema)
        if getattr(object_of(context, live, own[0]), reference.field) != value:
            raise absent(target, (value,))  # the object was changed since, and not saved
        if reference.optional:
            return None
        raise dangling(live, reference, state.key, value)


def dangling(live: LiveCollection, reference: Reference, key: tuple[Any, ...], target: Any) -> DanglingReferenceError:
    """Return the error for a record that refers to a missing one.

    While a foreign key is added, nothing is damaged: the record is, or will be, one of the violations.
    """
    complete = any(one.field == reference.field and not one.under_construction for one in live.references)
    name = live.schema.name
    hint = f"The foreign key is not complete: db.violations({name}) lists such records. Store the missing one, or "
    hint += f"change the field, and call db.resolve({name})."
    return DanglingReferenceError(
        "a record refers to one that does not exist",
        hint=None if complete else hint,
        model=name,
        key=shown_key(key),
        field=reference.field,
        target=target,
    )


def fetch_referrers(
    context: Context, schema: ModelSchema, instances: Iterable[Any], key: object, limit: int
) -> Flow[dict[Any, list[Any]]]:
    """Return, for each object, the first records that refer to it, in the order of their primary keys."""
    if type(limit) is not int or limit < 1:
        raise InvalidArgumentError(
            "a limit is not a number of records", argument="limit", value=limit, hint="Give 1 or more: limit=10."
        )
    objects = items_of("objs", instances, "Give objects of the model in a list.")
    for instance in objects:
        require_object(schema, instance)
    referring = _referring(context, schema, key)
    reference = reference_of(referring, key)
    target = context.layouts[schema.collection]
    keys = [*dict.fromkeys(schema.primary_key_of(instance) for instance in objects)]
    while True:
        view, index = yield from planned(context, referring, lambda live: _index_of(live, reference))
        incoming = IncomingReference(
            referring.collection, index.layout, context.layouts[referring.collection], index.layout
        )
        ranges: list[ReadRange] = [incoming.span(target.pack(values), limit) for values in keys]
        found = yield from read_all(context.limits, ranges, view.guard)
        if found is not None:
            break
        yield from reload_header(context)
    wanted = [
        (values[0], incoming.records.unpack(incoming.pk_of(context.codec, row)))
        for values, rows in zip(keys, found, strict=True)
        for row in rows
    ]
    records = yield from get_many_by_key(context, referring, [pk for _, pk in wanted])
    referrers: dict[Any, list[Any]] = {values[0]: [] for values in keys}
    for (value, _), record in zip(wanted, records, strict=True):
        # Read after its entry: it may refer to another record now.
        if record is not None and getattr(record, reference.field) == value:
            referrers[value].append(record)
    return referrers


def declared(context: Context, reference: Reference) -> ModelSchema:
    """Return the schema of the target of a foreign key. Raises InvalidArgumentError."""
    for schema in context.schemas.values():
        if schema.model is reference.target:
            return schema
    raise InvalidArgumentError(
        "the database was opened without the target of the foreign key",
        argument="key",
        value=reference.target_name,
        expected=tuple(schema.name for schema in context.schemas.values()),
        hint="Name its class in Database(url, models=[...]).",
    )


def _referring(context: Context, schema: ModelSchema, key: object) -> ModelSchema:
    """Return the schema of the model that declares the foreign key."""
    model = getattr(key, "_model", None)
    for one in context.schemas.values():
        if one.model is model:  # a class that derives from another one has records of its own
            reference = reference_of(one, key)
            if declared(context, reference).collection == schema.collection:
                return one
    raise InvalidArgumentError(
        "this is not a foreign key that refers to the model",
        argument="key",
        value=short_repr(key),
        hint=f"Give the attribute of another class whose target is {schema.name}: Book.author_id.",
    )


def _index_of(live: LiveCollection, reference: Reference) -> LiveIndex:
    index = live.readable.get(reference.index_name)
    if index is not None:
        return index
    raise IndexNotReadyError(
        "the index of a foreign key is not complete",
        model=live.schema.name,
        index=reference.index_name,
        state=live.states[reference.index_name].value,
    )
