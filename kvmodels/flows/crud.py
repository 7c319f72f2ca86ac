"""The verbs that write one record: insert, save, patch, mutate, remove.

Each builds an ``Operation`` and leaves retry, compilation and lost answers to ``flows/retry.py``.

Rules of this module: an object of the caller is changed only after the commit: then it holds the validated values
and the state that was stored. A deadline is carried over unless the caller gives another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from inspect import iscoroutine
from typing import Any, Final, NamedTuple

from kvmodels.errors import (
    AlreadyExistsError,
    InvalidValueError,
    KvModelsError,
    PrimaryKeyChangedError,
    StaleObjectError,
    UniqueViolationError,
)
from kvmodels.flows.arguments import require_callable, require_flag, require_no_counters, require_object
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.operation import Operation, Proposal, Seen, always
from kvmodels.flows.records import document_of, object_of
from kvmodels.flows.requests import Flow
from kvmodels.flows.retry import execute
from kvmodels.maintenance.changes import RecordChange, Violation
from kvmodels.operations import Row, format_versionstamp
from kvmodels.schema.definition import Document, ModelSchema
from kvmodels.schema.keyspace import RecordLayout
from kvmodels.schema.record_codec import Prepared, apply_changes
from kvmodels.schema.state import ObjectState, drop_state, set_state, state_of, with_state_of

__all__ = [
    "KEEP",
    "Deadline",
    "Keep",
    "Pending",
    "insert",
    "mutate",
    "needs_clock",
    "patch",
    "pending",
    "record_change",
    "refused",
    "remove_key",
    "remove_object",
    "save",
    "stored",
]


class Keep(Enum):
    """The deadline of the record stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

Deadline = int | None | Keep
"""Milliseconds from now until a record expires, None for never, KEEP for no change: ``Meta.ttl`` for a new record."""


class Pending(NamedTuple):
    """A validated and encoded object on its way into the store."""

    schema: ModelSchema
    layout: RecordLayout
    instance: Any
    prepared: Prepared
    document: Document
    value: bytes
    encoding: int
    key_values: tuple[Any, ...]
    pk: bytes


def pending(context: Context, schema: ModelSchema, instance: Any) -> Pending:
    """Validate and encode an object.

    Raises:
        pydantic.ValidationError: the object does not satisfy its model.
        InvalidValueError: a value cannot be stored, or not in an index; the field is named.
        NonIdempotentValidatorError: a validator changes its own output.
    """
    prepared = schema.prepare(instance)
    document = prepared.document
    try:
        value, encoding = context.codec.encode_document(document)
    except InvalidValueError as error:
        error.model = schema.name
        error.field = _field_in(error.path)
        raise
    layout = context.layouts[schema.collection]
    pk = layout.pack(prepared.primary_key)
    return Pending(schema, layout, instance, prepared, document, value, encoding, prepared.primary_key, pk)


_FIELD = re.compile(r"\$\.(\w+)")


def _field_in(path: str | None) -> str | None:
    """The field at the head of the path of a value in a document, such as ``$.tags[2]``."""
    found = _FIELD.match(path or "")
    return found[1] if found else None


def record_change(context: Context, item: Pending, seen: Seen, old: Row | None, deadline: Deadline) -> RecordChange:
    """The change that stores an object over the row that was read.

    Raises:
        InvalidArgumentError: a deadline for a record that is counted.
    """
    if not isinstance(deadline, Keep) and deadline is not None:
        require_no_counters(item.schema)
    live = seen.view.live[item.schema.collection]
    if isinstance(deadline, Keep):
        expired = old is None or (old.expire_at is not None and old.expire_at <= seen.now_ms)
        # An expired row is none: the record is a new one.
        expire_at = _deadline(seen, item.schema.ttl_ms) if expired or old is None else old.expire_at
    else:
        expire_at = _deadline(seen, deadline)
    return RecordChange(
        live=live,
        pk=item.pk,
        old=old,
        old_document=None if old is None else document_of(context, old),
        new_document=item.document,
        value=item.value,
        encoding=item.encoding,
        expire_at=expire_at,
    )


def _deadline(seen: Seen, lifetime: int | None) -> int | None:
    return None if lifetime is None else seen.now_ms + lifetime


def stored(item: Pending, change: RecordChange, versionstamp: bytes) -> Any:
    """After the commit: give the caller's object its validated values and its state."""
    item.schema.accept(item.instance, item.prepared)
    set_state(
        item.instance,
        ObjectState(
            versionstamp=versionstamp,
            value=item.value,
            encoding=item.encoding,
            expire_at=change.expire_at,
            key=item.key_values,
            unknown=item.prepared.unknown,
        ),
    )
    return item.instance


def refused(violation: Violation) -> KvModelsError:
    """The error for a unique slot that another record holds."""
    change, index = violation.change, violation.index
    live = change.live
    values = index.layout.columns_in(violation.slot)
    return UniqueViolationError(
        "a unique index already holds these values",
        model=live.schema.name,
        index=index.stored.name,
        fields=index.definition.fields,
        values=values,
        existing_key=_shown(live.layout.unpack(violation.owner)),
        key=_shown(live.layout.unpack(change.pk)),
    )


def _shown(values: tuple[Any, ...]) -> Any:
    """A primary key as people give it: the value, or a tuple when it is composite."""
    return values[0] if len(values) == 1 else values


def insert(context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline = KEEP) -> Flow[Any]:
    """Store a new record; KEEP is the lifetime that its model declares.

    Raises:
        AlreadyExistsError, UniqueViolationError: nothing was written.

    Cost: no read and one commit of 2 + (unique values) checks when nothing is in the way.
    """
    item = pending(context, schema, instance)
    key = item.layout.key(item.pk)

    def propose(seen: Seen) -> Proposal[Any]:
        if seen.live_row(key) is not None:
            raise AlreadyExistsError(
                "a record with this primary key exists", model=schema.name, key=_shown(item.key_values)
            )
        change = record_change(context, item, seen, seen.row(key), expire_in)
        return Proposal((change,), partial(stored, item, change))

    return execute(context, _one(schema, (key,), propose, reads=False, timed=needs_clock(schema, expire_in)))


def needs_clock(schema: ModelSchema, expire_in: Deadline) -> bool:
    """Whether a new record gets a deadline."""
    return (schema.ttl_ms if isinstance(expire_in, Keep) else expire_in) is not None


def _one(
    schema: ModelSchema,
    keys: Sequence[bytes],
    propose: Callable[[Seen], Proposal[Any]],
    *,
    reads: bool = True,
    timed: bool = False,
) -> Operation[Any]:
    def wanted(_: HeaderView) -> Sequence[bytes]:
        return keys

    return Operation((schema,), wanted, propose, refused, reads, timed)


def save(
    context: Context, schema: ModelSchema, instance: Any, *, force: bool = False, expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Store an object: insert a new one, update a loaded one if nobody else did since.

    Raises:
        InvalidArgumentError: ``force`` is neither True nor False.
        StaleObjectError: the record changed or went since the object was loaded (not with ``force``).
        PrimaryKeyChangedError: the object was loaded under another primary key.
        AlreadyExistsError, UniqueViolationError: nothing was written.

    Cost: one commit without a read for a loaded object whose unique values did not change or are free.
    """
    require_object(schema, instance)
    require_flag("force", force)
    state = state_of(instance)
    if state is None and not force:
        return insert(context, schema, instance, expire_in)
    item = pending(context, schema, instance)
    key = item.layout.key(item.pk)
    if state is not None and state.key != item.key_values:
        raise PrimaryKeyChangedError(
            "the primary key of a loaded object was changed",
            model=schema.name,
            loaded_key=_shown(state.key),
            key=_shown(item.key_values),
        )
    loaded = None if state is None else Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)

    def propose(seen: Seen) -> Proposal[Any]:
        old = loaded if seen.rows is None else seen.row(key)
        if not force and loaded is not None:
            current = old if seen.rows is None else seen.live_row(key)
            if current is None or current.versionstamp != loaded.versionstamp:
                raise _stale(schema, item.key_values, loaded, current)
        change = record_change(context, item, seen, old, expire_in)
        return Proposal((change,), partial(stored, item, change))

    may_expire = loaded is not None and loaded.expire_at is not None
    timed = not isinstance(expire_in, Keep) or may_expire or needs_clock(schema, expire_in)
    return execute(context, _one(schema, (key,), propose, reads=force or may_expire, timed=timed))


def _stale(schema: ModelSchema, key: tuple[Any, ...], loaded: Row, current: Row | None) -> StaleObjectError:
    names = {"model": schema.name, "key": _shown(key), "expected": format_versionstamp(loaded.versionstamp)}
    if current is None:
        return StaleObjectError(
            "the record was removed, or has expired, since the object was loaded",
            **names,
            hint="There is nothing left to refresh. save(force=True) stores the object as a new record.",
        )
    return StaleObjectError(
        "the record changed since the object was loaded", **names, actual=format_versionstamp(current.versionstamp)
    )


def patch(
    context: Context,
    schema: ModelSchema,
    key_values: tuple[Any, ...],
    changes: Mapping[str, Any],
    expire_in: Deadline = KEEP,
) -> Flow[Any]:
    """Read a record, change fields, commit; again from the read after a conflict. Returns the stored object.

    Raises:
        DoesNotExist: no record has this primary key.
        UnknownFieldError: the model has no such field.
        PrimaryKeyChangedError: a field of the primary key is among the changes.
        UniqueViolationError, RetriesExhaustedError: nothing was written.

    Cost: an attempt is one read, a second one when a unique value changes, and one commit.
    """

    def change(instance: Any) -> None:
        apply_changes(schema, instance, changes)

    return mutate(context, schema, key_values, change, expire_in)


def mutate(
    context: Context,
    schema: ModelSchema,
    key_values: tuple[Any, ...],
    function: Callable[[Any], Any],
    expire_in: Deadline = KEEP,
) -> Flow[Any]:
    """Read a record, let a function change it, commit; with a fresh copy after a conflict.

    ``function`` gets the object and may change it in place and return None, or return a model of the same primary
    key. It must be free of side effects, because it may be called again. An exception aborts.

    Raises: as ``patch``.
    """
    require_callable("function", function, "Give a function that takes the object and changes it.")
    layout = context.layouts[schema.collection]
    pk = layout.pack(key_values)
    key = layout.key(pk)

    def propose(seen: Seen) -> Proposal[Any]:
        row = seen.live_row(key)
        if row is None:
            raise schema.model.DoesNotExist(
                "no record has this primary key", model=schema.name, lookup=_shown(key_values)
            )
        instance = object_of(context, seen.view.live[schema.collection], row)
        returned = function(instance)
        if returned is None:
            returned = instance
        _require_changed(schema, returned)
        # What was returned may be an object of the caller, so it gets the state with the commit and not before.
        prepared = returned if returned is instance else with_state_of(instance, returned.model_copy())
        item = pending(context, schema, prepared)._replace(instance=returned)
        if item.pk != pk:
            raise PrimaryKeyChangedError(
                "a change of a record changed its primary key",
                model=schema.name,
                loaded_key=_shown(key_values),
                key=_shown(item.key_values),
            )
        change = record_change(context, item, seen, row, expire_in)
        return Proposal((change,), partial(stored, item, change))

    return execute(context, _one(schema, (key,), propose, timed=not isinstance(expire_in, Keep)))


def _require_changed(schema: ModelSchema, returned: Any) -> None:
    """Refuse what a function that should change an object returned instead of it.

    Raises:
        InvalidValueError: its type is named.
    """
    if returned.__class__ is schema.model:
        return
    if iscoroutine(returned):
        returned.close()  # it will never be awaited, and a warning of that would only lead away from the error
    raise InvalidValueError(
        "the function of mutate returned something else than an object of the model",
        model=schema.name,
        type=type(returned).__name__,
        hint="It changes the object in place and returns None, or returns an object of the model, and is not async: "
        "await what it needs before, and give it to the function.",
    )


def remove_key(context: Context, schema: ModelSchema, key_values: tuple[Any, ...]) -> Flow[bool]:
    """Remove a record with all its entries, whatever version it has; False when it was absent.

    Raises:
        RetriesExhaustedError: others kept changing it.

    Cost: an attempt is one read and one commit.
    """
    layout = context.layouts[schema.collection]
    pk = layout.pack(key_values)
    key = layout.key(pk)

    def propose(seen: Seen) -> Proposal[bool]:
        row = seen.live_row(key)
        if row is None:
            return Proposal((), always(False))
        return Proposal((_removal(context, seen, schema, pk, row),), always(True))

    return execute(context, _one(schema, (key,), propose))


def remove_object(context: Context, schema: ModelSchema, instance: Any) -> Flow[bool]:
    """Remove the record of a loaded object if nobody changed it since; an object never stored is removed by its key.

    Raises:
        StaleObjectError: the record changed or went since the object was loaded.

    Cost: one commit without a read.
    """
    state = state_of(instance)
    if state is None:
        return remove_key(context, schema, schema.primary_key_of(instance))
    layout = context.layouts[schema.collection]
    pk = layout.pack(state.key)
    key = layout.key(pk)
    loaded = Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)

    def propose(seen: Seen) -> Proposal[bool]:
        current = loaded if seen.rows is None else seen.live_row(key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise _stale(schema, state.key, loaded, current)

        def done(_: bytes) -> bool:
            drop_state(instance)
            return True

        return Proposal((_removal(context, seen, schema, pk, current),), done)

    return execute(context, _one(schema, (key,), propose, reads=loaded.expire_at is not None))


def _removal(context: Context, seen: Seen, schema: ModelSchema, pk: bytes, row: Row) -> RecordChange:
    live = seen.view.live[schema.collection]
    return RecordChange(live, pk, row, document_of(context, row), None)
