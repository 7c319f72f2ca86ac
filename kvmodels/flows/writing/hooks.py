"""Run time fields, hooks of the model and signals around one write.

A verb asks for the ``Lifecycle`` of its model once. Where there is one, every attempt hands its objects to it:
``before_*`` work on a fresh copy, whose values are validated once more and stored, so that an attempt that fails leaves
no trace in the object of the caller. ``after_*`` go with the proposal and run once it is committed.

Rules of this module: nothing is read or written here, but for the clock. A collection without time fields, hooks and
receivers has no lifecycle, and its writes go past all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from copy import copy, deepcopy
from functools import partial
from inspect import isawaitable
from typing import Any, Final, Literal, NamedTuple, TypeVar

from kvmodels._support.naming import key_argument
from kvmodels.core.operations import Row
from kvmodels.errors import DecodeError, InvalidArgumentError, KvModelsError, PrimaryKeyChangedError
from kvmodels.flows.arguments import require_object
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, now
from kvmodels.flows.hydration.rows import document_of, object_of, shown_key
from kvmodels.flows.writing.encode import Deadline, Pending, pending, record_change
from kvmodels.flows.writing.operation import Seen
from kvmodels.indexing.changes import RecordChange
from kvmodels.schema.declare.on_write import Hooks, TimeField
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import require_known_class
from kvmodels.schema.instances import drop_state

R = TypeVar("R")

Event = Literal["insert", "update"]

Calls = tuple[Callable[[], object], ...]
"""Hooks with their arguments, to run after the commit."""

_NONE: Final = Hooks()
_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


class Step(NamedTuple):
    """One record of an operation: its change, the object that is stored (None: it is removed), what runs afterwards."""

    change: RecordChange
    item: Pending | None
    after: Calls = ()


class Lifecycle:
    """The time fields and hooks of one operation.

    Args:
        context: shared by the flows of the database.
        schema: the model.

    Attributes:
        now_ms: the time that all records of the operation get.
    """

    __slots__ = ("_context", "_schema", "now_ms")

    def __init__(self, context: Context, schema: ModelSchema) -> None:
        self._context = context
        self._schema = schema
        self.now_ms = 0

    def _hooks_for(self, instance: Any) -> Hooks:
        return self._context.signals.hooks_of(self._schema.variant_of(instance)) or _NONE

    def first(self, instance: Any, old: Document | None) -> Pending:
        """Validate and encode an object with its time fields, for an insert (``old`` None) or an update.

        What the caller has put into a time field is not even validated.
        """
        if not self._schema.time_fields:
            return pending(self._context, self._schema, instance)
        require_object(self._schema, instance)
        fresh = copy(instance)
        # No copy of these: nobody changes them here, and those of the caller stay his.
        object.__setattr__(fresh, "__pydantic_private__", instance.__pydantic_private__)
        self._set_time(fresh, old if old is not None and self._follows(instance, old) else None)
        return pending(self._context, self._schema, fresh)._replace(instance=instance, fresh=fresh)

    def _follows(self, instance: Any, old: Document) -> bool:
        """Whether a stored document is of the class of an object; else the object is a new record in its place."""
        variants = self._schema.variants
        if variants is None:
            return True
        schema = variants.of_document(old)
        return schema is not None and schema.model is instance.__class__

    def ready(self, item: Pending, seen: Seen, old: Row | None) -> tuple[Pending, Calls]:
        """What one attempt stores: with the time fields of this attempt, and what the hooks have made of a copy.

        Args:
            item: of ``first``.
            seen: what the attempt has read.
            old: the live row that is changed; None for an insert.

        Raises:
            Whatever a hook raises.
            pydantic.ValidationError, InvalidValueError: a hook made the object invalid.
            PrimaryKeyChangedError: a hook changed the primary key.
        """
        if old is not None and self._schema.variants is not None:
            old = old if self._follows(item.instance, document_of(self._context, old)) else None
        event: Event = "insert" if old is None else "update"
        hooks = self._hooks_for(item.instance)
        before, after = getattr(hooks, f"before_{event}"), getattr(hooks, f"after_{event}")
        arguments: tuple[Any, ...] = ()
        if old is not None and (before or after):
            arguments = (object_of(self._context, seen.view.live[self._schema.collection], old),)
        if before:
            fresh = _copied(item)
            for hook in before:
                _call(hook, fresh, *arguments)
            if self._schema.time_fields:
                self._set_time(fresh, None if old is None else document_of(self._context, old))
            changed = pending(self._context, self._schema, fresh)
            if changed.pk != item.pk:
                raise PrimaryKeyChangedError(
                    "a hook changed the primary key",
                    model=self._schema.name,
                    loaded_key=shown_key(item.key_values),
                    key=shown_key(changed.key_values),
                    hint="The record is looked for before hooks run: use a default_factory or a validator.",
                )
            item = changed._replace(instance=item.instance, fresh=fresh)
        return item, tuple(partial(_call, hook, item.instance, *arguments) for hook in after)

    def removal(self, seen: Seen, row: Row, *, unread: bool) -> Calls:
        """Run the hooks before a removal; what runs after it is returned. They get the object as it was stored.

        Args:
            seen: what the attempt has read.
            row: the record.
            unread: where it cannot be read as an object, no hook runs, instead of an error.
        """
        if not any(hooks.before_remove or hooks.after_remove for hooks in _hooks_of(self._context, self._schema)):
            return ()
        try:
            instance = object_of(self._context, seen.view.live[self._schema.collection], row)
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
        for field in self._schema.variant_of(fresh).time_fields:
            if old is None:
                value = field.first(self.now_ms)
            else:
                stored = self._stored(field, old, self._schema.variant_of(fresh))
                value = field.next(stored, self.now_ms, counted=counted)
            fresh.__dict__[field.name] = value
            fresh.__pydantic_fields_set__.add(field.name)

    def _is_counted(self, old: Document) -> bool:
        """Whether a document is one that the same transaction has stored."""
        transaction = self._context.transaction
        if transaction is None:
            return False
        layout = self._context.layouts[self._schema.collection]
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


class Writer:
    """Stores and removes the records of one operation.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        deadline: that the records get.

    Attributes:
        life: what runs besides; None: nothing.
    """

    __slots__ = ("context", "deadline", "life", "schema")  # no named tuple: one is made for every write

    def __init__(self, context: Context, schema: ModelSchema, deadline: Deadline) -> None:
        self.context = context
        self.schema = schema
        self.deadline = deadline
        hooks = context.signals.hooks_of(schema) if schema.variants is None else _hooks_of(context, schema)
        self.life = Lifecycle(context, schema) if hooks or schema.time_fields else None

    def first(self, instance: Any, old: Document | None = None) -> Pending:
        """Validate and encode an object, once per operation; ``old`` is the stored document that it changes."""
        if self.life is None:
            return pending(self.context, self.schema, instance)
        return self.life.first(instance, old)

    def store(self, item: Pending, seen: Seen, old: Row | None, before: Document | None = None) -> Step:
        """Return the step that stores an object over the row that was read; to be called in every attempt.

        Hooks run here. An expired row is none, so the object is inserted. ``before`` is the document of the row, if the
        caller has decoded it.

        Raises:
            DecodeError: the row is of a class that this program does not know.
        """
        after: Calls = ()
        if self.life is not None:
            expired = old is None or (old.expire_at is not None and old.expire_at <= seen.now_ms)
            item, after = self.life.ready(item, seen, None if expired else old)
        change = record_change(self.context, item, seen, old, self.deadline, before=before)
        if self.schema.variants is not None:
            self._require_known(change, seen)
        return _new(Step, (change, item, after))

    def remove(self, seen: Seen, pk: bytes, row: Row, *, unread: bool = False) -> Step:
        """The step that removes a record; hooks run here, with the object as it was stored.

        With ``unread`` a record that cannot be read as an object is removed without them: somebody must be able to.

        Raises:
            DecodeError: the row is of a class that this program does not know, or hooks need an object.
        """
        after = () if self.life is None else self.life.removal(seen, row, unread=unread)
        live = seen.view.live[self.schema.collection]
        before = document_of(self.context, row)
        change: RecordChange = _new(RecordChange, (live, pk, row, before, None, b"", 0, None, False, None, False, None))
        if self.schema.variants is not None:
            self._require_known(change, seen)
        return _new(Step, (change, None, after))

    def _require_known(self, change: RecordChange, seen: Seen) -> None:
        """Leave a record alone whose class only another program knows; one that has expired is none."""
        old = change.old
        if old is None or change.old_document is None:
            return
        if old.expire_at is None or old.expire_at > seen.now_ms:
            live = change.live
            require_known_class(live.schema, change.old_document, live.layout.unpack(live.layout.pk_of(old.key)))


def writing(context: Context, schema: ModelSchema, deadline: Deadline, verb: Callable[[Writer], Flow[R]]) -> Flow[R]:
    """Return the flow that ``verb`` makes of a writer; the clock is read before if the model has time fields.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        deadline: that stored records get.
        verb: from the writer of the operation to its flow.
    """
    writer = Writer(context, schema, deadline)
    return verb(writer) if writer.life is None else attended(writer, writer.life, verb)


def _hooks_of(context: Context, schema: ModelSchema) -> Sequence[Hooks]:
    """What runs for objects of the model, which may be of several classes; none when nothing does."""
    if schema.variants is None:
        hooks = context.signals.hooks_of(schema)
        return () if hooks is None else (hooks,)
    found = [context.signals.hooks_of(one) for one in schema.variants.by_class.values()]
    return [hooks for hooks in found if hooks is not None]


def attended(writer: Writer, life: Lifecycle, verb: Callable[[Writer], Flow[R]]) -> Flow[R]:
    """Return the result of ``verb``, after the clock was read if the model has time fields."""
    if writer.schema.time_fields:
        life.now_ms = yield from now()
    return (yield from verb(writer))


def _copied(item: Pending) -> Any:
    """A copy of an object with its validated values, that shares nothing with it that could be changed."""
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
            "a hook returned something to be awaited, and nobody does",
            argument="hook",
            value=getattr(hook, "__name__", repr(hook)),
            hint="Hooks run inside of a write and cannot wait: start a task in after_* for the rest.",
        )
