"""Insert, save, patch, mutate, rename and remove one record.

Each function builds an ``Operation`` and leaves compilation, retry and lost answers to
``kvmodels.flows.writing.attempt``, and hooks and time fields to the ``Writer`` of ``kvmodels.flows.writing.hooks``.

Rules of this module: a decision to refuse is taken in ``propose``, on what was read; nothing is encoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutine
from typing import Any, Final

from kvmodels.core.operations import Removal, Row, format_versionstamp
from kvmodels.errors import (
    AlreadyExistsError,
    InvalidValueError,
    PrimaryKeyChangedError,
    StaleObjectError,
)
from kvmodels.flows.arguments import require_callable, require_flag, require_object
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import absent, document_of, object_of, shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.encode import KEEP, Deadline, Keep, needs_clock, refused, state_after, stored
from kvmodels.flows.writing.hooks import Step, Writer, writing
from kvmodels.flows.writing.operation import Operation, Proposal, Seen, always
from kvmodels.indexing.changes import RecordChange
from kvmodels.indexing.simple import record_writer
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.filters.operands import key_values, takes_as_given
from kvmodels.schema.instances import ObjectState, PendingStamp, drop_state, state_of, with_state_of

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_PROPOSAL: Final[type[Proposal[Any]]] = Proposal
_OPERATION: Final[type[Operation[Any]]] = Operation


def insert(context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline = KEEP) -> Flow[Any]:
    """Store a new record; KEEP is the lifetime that its model declares.

    Raises:
        AlreadyExistsError, UniqueViolationError: nothing was written.

    Cost: no read and one commit of 2 + (unique values) checks when nothing is in the way.
    """
    return writing(context, schema, expire_in, partial(_insert, instance))


def _insert(instance: Any, writer: Writer) -> Flow[Any]:
    context, schema, expire_in = writer.context, writer.schema, writer.deadline
    item = writer.first(instance)
    key = item.layout.key(item.pk)

    def propose(seen: Seen) -> Proposal[Any]:
        if seen.rows is None:  # the commit checks that there is none
            return storing_one(writer.store(item, seen, None))
        if seen.live_row(key) is not None:
            raise AlreadyExistsError(
                "a record with this primary key exists", model=schema.name, key=shown_key(item.key_values)
            )
        return storing_one(writer.store(item, seen, seen.row(key)))

    timed = needs_clock(schema, expire_in)
    return execute(context, _one(schema, (key,), propose, reads=False, timed=timed))


def storing_one(step: Step, *, is_fresh: bool = False) -> Proposal[Any]:
    """The proposal that stores one object.

    Nobody else has a fresh one yet, so it may hold what is stored before that is committed.
    """
    change, item, after = step
    assert item is not None

    def states(versionstamp: bytes) -> Sequence[tuple[Any, ObjectState]]:
        return ((item.instance, state_after(item, change, versionstamp)),)

    done = partial(stored, item, change)
    result = done if is_fresh else always(item.instance)
    return _new(_PROPOSAL, ((change,), done, result, states, after, None))


def _one(
    schema: ModelSchema,
    keys: Sequence[bytes],
    propose: Callable[[Seen], Proposal[Any]],
    *,
    reads: bool = True,
    timed: bool = False,
    guesses: bool = False,
    compiled: Callable[[HeaderView], tuple[Proposal[Any], Removal] | None] | None = None,
) -> Operation[Any]:
    def wanted(_: HeaderView) -> Sequence[bytes]:
        return keys

    values = (schema,), wanted, propose, refused, reads, timed, None, guesses, compiled
    return _new(_OPERATION, values)


def save(
    context: Context,
    schema: ModelSchema,
    instance: Any,
    *,
    force: bool = False,
    expire_in: Deadline = KEEP,
) -> Flow[Any]:
    """Store an object: insert a new one, update a loaded one if its record has not changed since.

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
    return writing(context, schema, expire_in, partial(_save, instance, state, force))


def _save(instance: Any, state: ObjectState | None, force: bool, writer: Writer) -> Flow[Any]:
    context, schema, expire_in = writer.context, writer.schema, writer.deadline
    item = writer.first(instance, _loaded_document(context, schema, state))
    key = item.layout.key(item.pk)
    if state is not None and item.pk != item.layout.pack(state.key):
        raise PrimaryKeyChangedError(
            "the primary key of a loaded object was changed",
            model=schema.name,
            loaded_key=shown_key(state.key),
            key=shown_key(item.key_values),
        )
    loaded = None if state is None else Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)

    def propose(seen: Seen) -> Proposal[Any]:
        old = loaded if seen.rows is None else seen.row(key)
        current = old if seen.rows is None else seen.live_row(key)
        if not force and loaded is not None and (current is None or current.versionstamp != loaded.versionstamp):
            raise stale_error(schema, item.key_values, loaded, current)
        final = item
        if force and schema.time_fields:  # what they follow is what was found, not what was loaded
            final = writer.first(instance, None if current is None else document_of(context, current))
        return storing_one(writer.store(final, seen, old))

    may_expire = loaded is not None and loaded.expire_at is not None
    timed = not isinstance(expire_in, Keep) or may_expire or needs_clock(schema, expire_in)
    return execute(context, _one(schema, (key,), propose, reads=force or may_expire, timed=timed))


def _loaded_document(context: Context, schema: ModelSchema, state: ObjectState | None) -> Document | None:
    """What time fields of a loaded object follow; not decoded for others."""
    if state is None or not schema.time_fields:
        return None
    return context.codec.decode_document(state.value, state.encoding, b"")


def stale_error(schema: ModelSchema, key: tuple[Any, ...], loaded: Row, current: Row | None) -> StaleObjectError:
    """The error for an object whose record is not the one that it was loaded from."""
    if isinstance(loaded.versionstamp, PendingStamp):
        return StaleObjectError(
            "the object is of a version that was not committed",
            model=schema.name,
            key=shown_key(key),
            hint="Its transaction failed, has not ended, or wrote the record again by another object. Load it again.",
        )
    if current is not None and isinstance(current.versionstamp, PendingStamp):
        return StaleObjectError(
            "another object of this record was saved in the transaction",
            model=schema.name,
            key=shown_key(key),
            expected=format_versionstamp(loaded.versionstamp),
            hint="Two objects of one record were loaded: change and save one of them, or use patch().",
        )
    names = {"model": schema.name, "key": shown_key(key), "expected": format_versionstamp(loaded.versionstamp)}
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
    context: Context, schema: ModelSchema, given: Any, changes: Mapping[str, Any], expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Read a record, change fields, commit; again from the read after a conflict. Return the stored object.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        given: the primary key as people give it.
        changes: new values by field name.
        expire_in: when the record expires.

    Raises:
        DoesNotExist: no record has this primary key.
        UnknownFieldError: the model has no such field.
        PrimaryKeyChangedError: a field of the primary key is among the changes.
        UniqueViolationError, RetriesExhaustedError: nothing was written.

    Cost: an attempt is one read and one commit; after a conflict a second read when a unique value changes.
    """
    return _mutating(context, schema, given, _Changing(schema, dict(changes)), expire_in)


class _Changing:
    """Puts new values into an object.

    It is one object where a nested function would be four: each of a thousand tasks that wait for a commit keeps it.
    """

    __slots__ = ("_changes", "_schema")

    def __init__(self, schema: ModelSchema, changes: Mapping[str, Any]) -> None:
        self._schema = schema
        self._changes = changes

    def __call__(self, instance: Any) -> None:
        apply_changes(self._schema.variant_of(instance), instance, self._changes)


def mutate(
    context: Context,
    schema: ModelSchema,
    given: Any,
    function: Callable[[Any], Any],
    expire_in: Deadline = KEEP,
) -> Flow[Any]:
    """Read a record, let a function change it, commit; with a fresh copy after a conflict.

    ``function`` gets the object and may change it in place and return None, or return a model of the same primary
    key. It must be free of side effects, because it may be called again. An exception aborts.

    Raises: as ``patch``.
    """
    require_callable("function", function, "Give a function that takes the object and changes it.")
    return _mutating(context, schema, given, function, expire_in)


def _mutating(
    context: Context, schema: ModelSchema, given: Any, function: Callable[[Any], Any], expire_in: Deadline
) -> Flow[Any]:
    values, pk = _packed(context, schema, given)
    return writing(context, schema, expire_in, partial(_mutate, values, pk, function))


def _packed(context: Context, schema: ModelSchema, given: Any) -> tuple[tuple[Any, ...], bytes]:
    """Return the values of a primary key as people give it, and the key packed.

    Raises:
        InvalidValueError: it is no primary key of the model.
    """
    columns = schema.primary_key
    if len(columns) == 1 and takes_as_given(columns[0].codec):
        try:
            return (given,), columns[0].codec.pack(given)
        except InvalidValueError:
            pass  # raised below with the name of the field
    values = key_values(schema, given)
    return values, context.layouts[schema.collection].pack(values)


def _mutate(values: tuple[Any, ...], pk: bytes, function: Callable[[Any], Any], writer: Writer) -> Flow[Any]:
    context, schema, expire_in = writer.context, writer.schema, writer.deadline
    key = context.layouts[schema.collection].key(pk)

    def propose(seen: Seen) -> Proposal[Any]:
        row = _row_of(context, schema, seen.live_row(key))
        if row is None:
            raise absent(schema, values)
        instance = loader_of(context, seen.view.live[schema.collection])(row)
        returned, prepared = _changed_by(schema, function, instance)
        # An object could be made of the row, so it holds a document.
        old: Document = context.codec.decode_unchecked(row[1], row[2], row[0])
        item = writer.first(prepared, old)
        if returned is not instance:
            item = item._replace(instance=returned)
        if item.pk != pk:
            raise _moved(schema, values, item.key_values)
        return storing_one(writer.store(item, seen, row, old), is_fresh=returned is instance)

    timed = not isinstance(expire_in, Keep)
    return execute(context, _one(schema, (key,), propose, timed=timed, guesses=writer.life is None))


def _changed_by(schema: ModelSchema, function: Callable[[Any], Any], instance: Any) -> tuple[Any, Any]:
    """Return the object that a function has changed or returned, and the one to be prepared for it.

    Raises:
        InvalidValueError: the function returned something else.
    """
    returned = function(instance)
    if returned is None or returned is instance:
        return instance, instance
    _require_changed(schema, returned)
    # What was returned may be an object of the caller, so it gets the state with the commit and not before.
    return returned, with_state_of(instance, returned.model_copy())


def _moved(schema: ModelSchema, loaded: tuple[Any, ...], changed: tuple[Any, ...]) -> PrimaryKeyChangedError:
    """Return the error for a change of a record that changes its primary key."""
    return PrimaryKeyChangedError(
        "a change of a record changed its primary key",
        model=schema.name,
        loaded_key=shown_key(loaded),
        key=shown_key(changed),
    )


def _require_changed(schema: ModelSchema, returned: Any) -> None:
    """Refuse what a function that should change an object returned instead of it.

    Raises:
        InvalidValueError: its type is named.
    """
    if returned.__class__ is schema.model or schema.variant_of(returned) is not schema:
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


def _row_of(context: Context, schema: ModelSchema, row: Row | None) -> Row | None:
    """A row, None when it is one of another class that shares the collection; for the first class none is."""
    if row is None or schema.variants is None or not schema.variants.where:
        return row
    return None if schema.variants.of_document(document_of(context, row)) is None else row


def rename(context: Context, schema: ModelSchema, values: tuple[Any, ...], new_values: tuple[Any, ...]) -> Flow[Any]:
    """Give a record another primary key in one commit: it keeps its values, unique ones too, and its deadline.

    Raises:
        DoesNotExist: no record has the old primary key.
        AlreadyExistsError: a record has the new one.

    Cost: an attempt is one read and one commit.
    """
    return writing(context, schema, KEEP, partial(_rename, values, new_values))


def _rename(values: tuple[Any, ...], new_values: tuple[Any, ...], writer: Writer) -> Flow[Any]:
    context, schema = writer.context, writer.schema
    layout = context.layouts[schema.collection]
    pk, new_pk = layout.pack(values), layout.pack(new_values)
    key, new_key = layout.key(pk), layout.key(new_pk)

    def propose(seen: Seen) -> Proposal[Any]:
        row = _row_of(context, schema, seen.live_row(key))
        if row is None:
            raise absent(schema, values)
        instance = object_of(context, seen.view.live[schema.collection], row)
        if pk == new_pk:
            return Proposal((), always(instance), always(instance))
        if seen.live_row(new_key) is not None:
            raise AlreadyExistsError(
                "a record with this primary key exists",
                model=schema.name,
                key=shown_key(new_values),
                hint="Choose another key, or remove() the record that has this one first.",
            )
        instance.__dict__.update(
            (column.field, value) for column, value in zip(schema.primary_key, new_values, strict=True)
        )
        item = writer.first(instance, document_of(context, row) if schema.time_fields else None)
        if item.pk != new_pk:
            raise PrimaryKeyChangedError(
                "a validator changed the new primary key",
                model=schema.name,
                loaded_key=shown_key(new_values),
                key=shown_key(item.key_values),
            )
        return _moving(context, writer.store(item, seen, row), seen.row(new_key))

    return execute(context, _one(schema, (key, new_key), propose))


def _moving(context: Context, step: Step, replaced: Row | None) -> Proposal[Any]:
    """The proposal that stores an object under another key than that of the row which its change has been made for.

    ``replaced`` is an expired row under the new key.
    """
    change = step.change
    assert change.old is not None
    moved = change._replace(old=replaced, old_document=None if replaced is None else document_of(context, replaced))
    left = RecordChange(change.live, change.live.layout.pk_of(change.old.key), change.old, change.old_document, None)
    proposal = storing_one(step._replace(change=moved), is_fresh=True)
    return proposal._replace(changes=(moved, left), states=None)


def remove(context: Context, schema: ModelSchema, target: Any) -> Flow[bool]:
    """Remove a record by its primary key, or that of an object; see ``remove_key`` and ``remove_object``."""
    if isinstance(target, schema.model):
        return remove_object(context, schema, target)
    return remove_key(context, schema, target)


def remove_key(context: Context, schema: ModelSchema, given: Any) -> Flow[bool]:
    """Remove a record with all its entries, whatever version it has; return False when it was absent.

    Hooks of removals get the object as it was stored; where the record cannot be read as one, they do not run.

    Raises:
        RetriesExhaustedError: others kept changing it.

    Cost: an attempt is one read and one commit.
    """
    _, pk = _packed(context, schema, given)
    return writing(context, schema, KEEP, partial(_remove_key, pk))


def _removed(_: bytes) -> bool:
    return True


_REMOVED: Final[Proposal[bool]] = Proposal((), _removed)
"""The proposal of a removal that the engine compiles; its changes are not known before."""


def _remove_key(pk: bytes, writer: Writer) -> Flow[bool]:
    context, schema = writer.context, writer.schema
    key = context.layouts[schema.collection].key(pk)

    def compiled(view: HeaderView) -> tuple[Proposal[bool], Removal] | None:
        live = view.live[schema.collection]
        compiler = record_writer(live, view.guard, context.codec)
        removal = None if compiler is None else compiler.removal(pk, context.limits)
        return None if removal is None else (_REMOVED, removal)

    def propose(seen: Seen) -> Proposal[bool]:
        row = _row_of(context, schema, seen.live_row(key))
        if row is None:
            return Proposal((), always(False))
        step = writer.remove(seen, pk, row, unread=True)
        return _new(_PROPOSAL, ((step.change,), _removed, _removed, None, step.after, None))

    # Hooks, and the class of a record of several, are asked of the row.
    is_plain = writer.life is None and schema.variants is None
    in_commit = compiled if context.removes and is_plain else None
    return execute(context, _one(schema, (key,), propose, guesses=is_plain, compiled=in_commit))


def remove_object(context: Context, schema: ModelSchema, instance: Any) -> Flow[bool]:
    """Remove the record of a loaded object if nobody changed it since; an object never stored is removed by its key.

    Raises:
        StaleObjectError: the record changed or went since the object was loaded.

    Cost: one commit without a read.
    """
    state = state_of(instance)
    if state is None:
        pk = context.layouts[schema.collection].pack(schema.primary_key_of(instance))
        return writing(context, schema, KEEP, partial(_remove_key, pk))
    return writing(context, schema, KEEP, partial(_remove_object, instance, state))


def _remove_object(instance: Any, state: ObjectState, writer: Writer) -> Flow[bool]:
    context, schema = writer.context, writer.schema
    layout = context.layouts[schema.collection]
    pk = layout.pack(state.key)
    key = layout.key(pk)
    loaded = Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)

    def propose(seen: Seen) -> Proposal[bool]:
        current = loaded if seen.rows is None else seen.live_row(key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise stale_error(schema, state.key, loaded, current)

        def done(_: bytes) -> bool:
            drop_state(instance)
            return True

        step = writer.remove(seen, pk, current)
        return Proposal((step.change,), done, always(True), always(((instance, None),)), step.after)

    return execute(context, _one(schema, (key,), propose, reads=loaded.expire_at is not None))
