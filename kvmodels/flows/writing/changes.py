"""Build the changes of records: validate and encode objects, set time fields, run hooks.

A ``before_*`` hook works on a fresh copy, which is validated once more and stored, so that a failed attempt leaves no
trace in the object of the caller. ``after_*`` hooks belong to the proposal and run once it is committed.

Rules of this module: nothing is read or written here, but for the clock. An object of the caller is changed only after
the commit: then it holds the validated values and the state that was stored. A deadline is kept unless the caller gives
another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy, deepcopy
from datetime import timedelta
from enum import Enum
from functools import partial
from inspect import isawaitable
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from kvmodels._support.naming import key_argument
from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.core.operations import Row
from kvmodels.errors import (
    AlreadyExistsError,
    DecodeError,
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    PrimaryKeyChangedError,
)
from kvmodels.flows.arguments import lifetime_ms, require_no_counters, require_object, require_told_deadlines
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, now
from kvmodels.flows.hydration.rows import document_of, object_of, sealed_form, shown_key
from kvmodels.flows.references import refused_reference
from kvmodels.flows.writing.acting import noted
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.indexing.entries import RecordChange, Violation
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.compile.record_codec import PreparedObject
from kvmodels.schema.declare.on_write import Hooks, TimeField
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import constructor_of, new_object, require_known_class
from kvmodels.schema.instances import ObjectState, drop_state, set_loaded, set_stored

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class Keep(Enum):
    """The deadline of the record stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

Deadline = int | None | Keep
"""Milliseconds from now until a record expires, None for never, KEEP for no change: ``Meta.ttl`` for a new record."""


def deadline_of(expire_in: float | timedelta | Keep | None) -> Deadline:
    """Return the deadline of an ``expire_in`` argument. Raises as ``lifetime_ms``."""
    return expire_in if expire_in is None or expire_in is KEEP else lifetime_ms(expire_in)


def created_object(
    schema: ModelSchema, fields: Mapping[str, Any], expire_in: object, *, by_fields: bool = False
) -> Any:
    """Return the object that ``create`` inserts."""
    made: BaseModel = new_object(schema, fields, by_fields=by_fields)
    if not isinstance(expire_in, Keep) and "expire_in" in constructor_of(type(made)).takes:
        raise InvalidArgumentError(
            "expire_in is the lifetime of the record and the alias of a field",
            argument="expire_in",
            value=expire_in,
            hint=f"Write insert({schema.name}(...), expire_in=...), where each of the two has a place of its own.",
        )
    return made


class EncodedObject(NamedTuple):
    """A validated and encoded object on its way into the store.

    ``instance`` is the object of the caller; ``fresh`` the copy that hooks and time fields have changed in its place,
    None when nothing did.
    """

    schema: ModelSchema
    layout: RecordLayout
    instance: Any
    prepared: PreparedObject
    document: Document
    value: bytes
    encoding: int
    key_values: tuple[Any, ...]
    pk: bytes
    fresh: Any = None


def pending(context: Context, schema: ModelSchema, instance: Any) -> EncodedObject:
    """Validate and encode an object."""
    return encoded(context, schema, instance, schema.prepare(instance))


def encoded(
    context: Context, schema: ModelSchema, instance: Any, prepared: PreparedObject, pk: bytes | None = None
) -> EncodedObject:
    """Encode an object that was validated; ``pk`` is its packed primary key if known. Raises InvalidValueError."""
    _, _, document, key_values, _ = prepared
    layout = context.layouts[schema.collection]
    try:
        value, encoding = context.codec.encode_document(document)
    except InvalidValueError as error:
        error.model = schema.name
        error.field = _field_in(error.path)
        raise
    if pk is None:
        pk = layout.pack_prepared(key_values, document)
    return _new(EncodedObject, (schema, layout, instance, prepared, document, value, encoding, key_values, pk, None))


_FIELD = re.compile(r"\$\.(\w+)")


def _field_in(path: str | None) -> str | None:
    """Return the field at the head of the path of a value in a document, such as ``$.tags[2]``."""
    found = _FIELD.match(path or "")
    return found[1] if found else None


def record_change(
    context: Context,
    item: EncodedObject,
    seen: AttemptState,
    old: Row | None,
    deadline: Deadline,
    *,
    before: Document | None = None,
) -> RecordChange:
    """Return the change that stores an object over the row that was read.

    ``old``: the row that is replaced; None for an insert. Raises InvalidArgumentError: a deadline for a record that is
    counted.
    """
    schema, _, _, _, document, value, encoding, _, pk, _ = item
    view, _, now_ms = seen
    expire_at: int | None
    if deadline is KEEP:
        expire_at = None if old is None else old.expire_at
        # An expired row is none: the record is a new one.
        if (old is None and schema.ttl_ms is not None) or (expire_at is not None and expire_at <= now_ms):
            expire_at = None if schema.ttl_ms is None else now_ms + schema.ttl_ms
    elif deadline is None:
        expire_at = None
    else:
        require_no_counters(schema)
        require_told_deadlines(context.traits, schema)
        expire_at = now_ms + deadline
    if old is not None and before is None:
        before = document_of(context, old)
    live = view.live[schema.collection]
    note = None if live.history is None else noted()
    return _new(
        RecordChange, (live, pk, old, before, document, value, encoding, expire_at, False, None, False, None, note)
    )


def settled(
    context: Context, item: EncodedObject, seen: AttemptState, old: Row | None, before: Document | None = None
) -> tuple[EncodedObject, Document | None]:
    """Return an object sealed as the present header says, with the document of the row that it replaces.

    A value that has not changed keeps its sealed form. Raises SchemaMismatchError without the present key.
    """
    if old is not None and before is None:
        before = document_of(context, old)
    document = sealed_form(seen.view.live[item.schema.collection], item.document, item.key_values, before)
    if document is item.document:
        return item, before
    value, encoding = context.codec.encode_document(document)
    prepared = item.prepared._replace(document=document)
    return item._replace(prepared=prepared, document=document, value=value, encoding=encoding), before


def stored(item: EncodedObject, change: RecordChange, versionstamp: bytes) -> Any:
    """Give the caller's object its validated values and its state, after the commit; return it."""
    schema, layout, instance, prepared, _, value, encoding, _, pk, fresh = item
    if change.note is not None:
        value, encoding = change.stored_value
    schema.accept(instance, prepared)
    if fresh is not None:
        _take_over(instance, fresh)
    row = layout.prefix + pk, value, encoding, versionstamp, change.expire_at
    if prepared.unknown:
        set_loaded(instance, layout.unpack, pk, row, prepared.unknown)
    else:
        set_stored(instance, layout.unpack_key, row)
    return instance


def _take_over(instance: Any, fresh: Any) -> None:
    """Take over the changes that hooks made besides values: private attributes, and extra fields that they removed."""
    instance.__pydantic_fields_set__.update(fresh.__pydantic_fields_set__)
    if fresh.__pydantic_private__ is not None:
        object.__setattr__(instance, "__pydantic_private__", fresh.__pydantic_private__)
    if instance.__pydantic_extra__:
        for name in instance.__pydantic_extra__.keys() - fresh.__pydantic_extra__.keys():
            del instance.__pydantic_extra__[name]


def state_after(item: EncodedObject, change: RecordChange, versionstamp: bytes) -> ObjectState:
    """Return the state of an object that was stored."""
    value, encoding = (item.value, item.encoding) if change.note is None else change.stored_value
    return ObjectState(
        versionstamp=versionstamp,
        value=value,
        encoding=encoding,
        expire_at=change.expire_at,
        key=item.key_values,
        unknown=item.prepared.unknown,
    )


def refused(violation: WriteRefusal) -> KvModelsError:
    """Return the error for a contested entry of another record, or for a foreign key without a target."""
    if isinstance(violation, RefusedCascade):
        return refused(violation.cause)
    if not isinstance(violation, Violation):
        return refused_reference(violation)
    return maintenance_of(violation.index).refusal(violation)


def key_changed(
    message: str, schema: ModelSchema, loaded: tuple[Any, ...], changed: tuple[Any, ...], hint: str | None = None
) -> PrimaryKeyChangedError:
    """Return the error for a change of a record that changes its primary key."""
    return PrimaryKeyChangedError(
        message, model=schema.name, loaded_key=shown_key(loaded), key=shown_key(changed), hint=hint
    )


def already_stored(schema: ModelSchema, key_values: tuple[Any, ...], hint: str | None = None) -> AlreadyExistsError:
    """Return the error for a record that is to be new."""
    return AlreadyExistsError(
        "a record with this primary key exists", model=schema.name, key=shown_key(key_values), hint=hint
    )


def needs_clock(schema: ModelSchema, expire_in: Deadline) -> bool:
    """Return whether a new record gets a deadline."""
    return (schema.ttl_ms if expire_in is KEEP else expire_in) is not None


R = TypeVar("R")

Event = Literal["insert", "update"]

Calls = tuple[Callable[[], object], ...]
"""Hooks with their arguments, to run after the commit."""

_NONE: Final = Hooks()


class PlannedChange(NamedTuple):
    """One record of an operation: its change, the object that is stored (None: it is removed), what runs afterwards."""

    change: RecordChange
    item: EncodedObject | None
    after: Calls = ()


class ChangeBuilder:
    """Stores and removes the records of one operation; sets their time fields, and runs their hooks.

    Attributes:
        is_plain: whether ``store`` and ``remove`` set no time fields and run no hooks; a load switches them off.
        now_ms: the time that all records of the operation get.
    """

    # No named tuple: one is made for every write.
    __slots__ = ("context", "deadline", "is_plain", "now_ms", "schema")

    def __init__(self, context: Context, schema: ModelSchema, deadline: Deadline) -> None:
        self.context = context
        self.schema = schema
        self.deadline = deadline
        may_have_hooks = context.signals.connected or schema.hooks is not None or schema.variants is not None
        self.is_plain = not (schema.time_fields or (may_have_hooks and _hooks_of(context, schema)))
        self.now_ms = 0

    @property
    def base(self) -> Document | None:
        """The document of the removed record that an insert restores, whose creation time it keeps; else None."""
        return None

    def first(self, instance: Any, old: Document | None = None) -> EncodedObject:
        """Validate and encode an object, once per operation; ``old`` is the stored document that it changes.

        What the caller has put into a time field is not even validated.
        """
        if not self.schema.time_fields:
            return pending(self.context, self.schema, instance)
        require_object(self.schema, instance)
        fresh = copy(instance)
        # Not copied: nothing changes these here, and the caller's object keeps its own.
        object.__setattr__(fresh, "__pydantic_private__", instance.__pydantic_private__)
        self._set_time(fresh, old if old is not None and self._follows(instance, old) else None)
        return pending(self.context, self.schema, fresh)._replace(instance=instance, fresh=fresh)

    def store(
        self, item: EncodedObject, seen: AttemptState, old: Row | None, before: Document | None = None
    ) -> PlannedChange:
        """Return the step that stores an object over the row that was read; to be called in every attempt.

        Hooks run here. An expired row is none, so the object is inserted. ``before`` is the document of the row, if the
        caller has decoded it. Raises DecodeError: the row is of a class that this program does not know.
        """
        after: Calls = ()
        if not self.is_plain:
            expired = old is None or (old.expire_at is not None and old.expire_at <= seen.now_ms)
            item, after = self._ready(item, seen, None if expired else old)
        if self.schema.sealer is not None:
            item, before = settled(self.context, item, seen, old, before)
        change = record_change(self.context, item, seen, old, self.deadline, before=before)
        if self.schema.variants is not None:
            self._require_known(change, seen)
        return _new(PlannedChange, (change, item, after))

    def remove(self, seen: AttemptState, pk: bytes, row: Row, *, unread: bool = False) -> PlannedChange:
        """Return the step that removes a record; hooks run here, with the object as it was stored.

        With ``unread`` a record that cannot be read as an object is removed without them, because there must be a way.
        Raises DecodeError: the row is of a class that this program does not know, or hooks need an object.
        """
        after = () if self.is_plain else self._removal(seen, row, unread=unread)
        live = seen.view.live[self.schema.collection]
        before = document_of(self.context, row)
        note = None if live.history is None else noted()
        change: RecordChange = _new(
            RecordChange, (live, pk, row, before, None, b"", 0, None, False, None, False, None, note)
        )
        if self.schema.variants is not None:
            self._require_known(change, seen)
        return _new(PlannedChange, (change, None, after))

    def _require_known(self, change: RecordChange, seen: AttemptState) -> None:
        """Leave a record alone whose class only another program knows; one that has expired is none."""
        old = change.old
        if old is None or change.old_document is None:
            return
        if old.expire_at is None or old.expire_at > seen.now_ms:
            live = change.live
            require_known_class(live.schema, change.old_document, live.layout.unpack(live.layout.pk_of(old.key)))

    def _hooks_for(self, instance: Any) -> Hooks:
        return self.context.signals.hooks_of(self.schema.variant_of(instance)) or _NONE

    def _follows(self, instance: Any, old: Document) -> bool:
        """Return whether a document is of the class of an object; else the object is a new record in its place."""
        variants = self.schema.variants
        if variants is None:
            return True
        schema = variants.of_document(old)
        return schema is not None and schema.model is instance.__class__

    def _ready(self, item: EncodedObject, seen: AttemptState, old: Row | None) -> tuple[EncodedObject, Calls]:
        """Return the object that an attempt stores, after time fields and hooks, and the hooks to run after the commit.

        ``old``: the live row that is changed; None for an insert.
        """
        if old is not None and self.schema.variants is not None:
            old = old if self._follows(item.instance, document_of(self.context, old)) else None
        event: Event = "insert" if old is None else "update"
        hooks = self._hooks_for(item.instance)
        before, after = getattr(hooks, f"before_{event}"), getattr(hooks, f"after_{event}")
        arguments: tuple[Any, ...] = ()
        if old is not None and (before or after):
            arguments = (object_of(self.context, seen.view.live[self.schema.collection], old),)
        if before:
            fresh = _copied(item)
            for hook in before:
                _call(hook, fresh, *arguments)
            if self.schema.time_fields:
                self._set_time(fresh, self.base if old is None else document_of(self.context, old))
            changed = pending(self.context, self.schema, fresh)
            if changed.pk != item.pk:
                hint = "The record is looked for before hooks run: use a default_factory or a validator."
                raise key_changed(
                    "a hook changed the primary key", self.schema, item.key_values, changed.key_values, hint
                )
            item = changed._replace(instance=item.instance, fresh=fresh)
        return item, tuple(partial(_call, hook, item.instance, *arguments) for hook in after)

    def _removal(self, seen: AttemptState, row: Row, *, unread: bool) -> Calls:
        """Run the hooks before a removal; what runs after it is returned. They get the object as it was stored."""
        if not any(hooks.before_remove or hooks.after_remove for hooks in _hooks_of(self.context, self.schema)):
            return ()
        try:
            instance = object_of(self.context, seen.view.live[self.schema.collection], row)
        except DecodeError as error:
            if unread:
                return ()
            error.hint = (
                "A hook gets the object that is removed: let the model accept what is stored (kv.get shows it), or "
                f"remove it with repository.remove({key_argument(error.key)}), which then runs no hook."
            )
            raise
        hooks = self._hooks_for(instance)
        for hook in hooks.before_remove:
            _call(hook, instance)
        after = [partial(_call, hook, instance) for hook in hooks.after_remove]
        return (partial(drop_state, instance), *after) if after else ()

    def _set_time(self, fresh: Any, old: Document | None) -> None:
        counted = old is not None and self._is_counted(old)
        for field in self.schema.variant_of(fresh).time_fields:
            if old is None:
                value = field.first(self.now_ms)
            else:
                stored = self._stored(field, old, self.schema.variant_of(fresh))
                value = field.next(stored, self.now_ms, counted=counted)
            fresh.__dict__[field.name] = value
            fresh.__pydantic_fields_set__.add(field.name)

    def _is_counted(self, old: Document) -> bool:
        """Return whether a document is one that the same transaction has stored."""
        transaction = self.context.transaction
        if transaction is None:
            return False
        layout = self.context.layouts[self.schema.collection]
        return transaction.wrote(layout.key(layout.pack_document(old)))

    def _stored(self, field: TimeField, document: Document, schema: ModelSchema) -> Any:
        if schema.upgrade is not None:
            document = schema.upgrade(document, ())
        if field.name not in document:
            return field.automatic()
        decode, value = schema.fields[field.name].decode, document[field.name]
        try:
            return value if decode is None else decode(value)
        except (KvModelsError, TypeError, ValueError) as error:
            raise DecodeError(
                "a stored record is not a valid object of its model",
                key=None,
                model=schema.name,
                field=field.name,
                reason=type(error).__name__,
                hint="Read it with kv.get and repair it.",
            ) from error


def writing(
    context: Context, schema: ModelSchema, deadline: Deadline, verb: Callable[[ChangeBuilder], Flow[R]]
) -> Flow[R]:
    """Return the flow that ``verb`` makes of a writer; the clock is read before if the model has time fields."""
    writer = ChangeBuilder(context, schema, deadline)
    return verb(writer) if writer.is_plain else with_clock(writer, verb)


def _hooks_of(context: Context, schema: ModelSchema) -> Sequence[Hooks]:
    """Return the hooks of all classes of a model; empty if there are none."""
    if schema.variants is None:
        hooks = context.signals.hooks_of(schema)
        return () if hooks is None else (hooks,)
    found = [context.signals.hooks_of(one) for one in schema.variants.by_class.values()]
    return [hooks for hooks in found if hooks is not None]


def with_clock(writer: ChangeBuilder, verb: Callable[[ChangeBuilder], Flow[R]]) -> Flow[R]:
    """Return the result of ``verb``, after the clock was read if the model has time fields."""
    if writer.schema.time_fields:
        writer.now_ms = yield from now()
    return (yield from verb(writer))


def _copied(item: EncodedObject) -> Any:
    """Return a copy of an object with its validated values, that shares nothing with it that could be changed."""
    fresh = copy(item.instance if item.fresh is None else item.fresh)
    fresh.__dict__.update(deepcopy(item.prepared.values))
    if item.prepared.extra and fresh.__pydantic_extra__ is not None:
        fresh.__pydantic_extra__.update(deepcopy(item.prepared.extra))
    return fresh


def _call(hook: Callable[..., object], *arguments: Any) -> None:
    returned = hook(*arguments)
    if returned is not None and isawaitable(returned):
        if isinstance(returned, Coroutine):
            returned.close()
        raise InvalidArgumentError(
            "a hook returned an awaitable, which is never awaited",
            argument="hook",
            value=getattr(hook, "__name__", repr(hook)),
            hint="Hooks run inside of a write and cannot wait: start a task in after_* for the rest.",
        )
