"""Insert, save, patch, mutate, rename and remove one record.

Each function builds a ``LogicalWrite``. ``kvmodels.flows.writing.attempt`` compiles it, retries it and handles lost
answers; the ``ChangeBuilder`` of ``kvmodels.flows.writing.changes`` runs hooks and sets time fields.

Rules of this module: a decision to refuse is taken in ``propose``, on what was read; nothing is encoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from inspect import iscoroutine
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from kvmodels.catalog.keyspace import reference_guards
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import require_callable, require_flag, require_object, versions_of
from kvmodels.flows.blobs.copying import after_own_blobs, after_uploads, has_blobs, unstored_blobs
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import absent, document_of, object_of
from kvmodels.flows.references import loaded_targets
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    Deadline,
    EncodedObject,
    Keep,
    PlannedChange,
    already_stored,
    created_object,
    deadline_of,
    encoded,
    key_changed,
    needs_clock,
    state_after,
    stored,
)
from kvmodels.flows.writing.given_keys import after_keys, without_key
from kvmodels.flows.writing.operation import AttemptState, CompiledWrite, Proposal, always
from kvmodels.flows.writing.record_write import RecordWrite, flow_of, packed_key, require_version, stale_error
from kvmodels.indexing.entries import RecordChange, VersionNote
from kvmodels.indexing.simple import record_writer
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import mark_body_error, with_keys
from kvmodels.schema.instances import ObjectState, drop_state, set_stored, state_of, with_state_of

R = TypeVar("R")

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
_PROPOSAL: Final[type[Proposal[Any]]] = Proposal


def insert(context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline = KEEP) -> Flow[Any]:
    """Store a new record; KEEP is the lifetime that its model declares."""
    return _insert(context, schema, instance, expire_in, None)


def create(
    context: Context,
    schema: ModelSchema,
    fields: Mapping[str, Any],
    expire_in: float | timedelta | Keep | None,
    *,
    body_fields: Collection[str] | None = None,
) -> Flow[Any]:
    """Make an object of values, and store it as a new record.

    ``body_fields`` are the fields whose values are those of a body; None: there is no body, and ``fields`` has only the
    names that the constructor accepts. An error that they cause is marked.
    """
    try:
        instance = created_object(schema, fields, expire_in, by_fields=body_fields is not None)
    except ValidationError as error:
        mark_body_error(schema, error, body_fields or ())
        raise
    targets = loaded_targets(context, fields.values()) if schema.references else None
    return _insert(context, schema, instance, deadline_of(expire_in), targets)


def _insert(
    context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline, targets: Mapping[bytes, bytes] | None
) -> Flow[Any]:
    if schema.automatic_key is not None and (unset := without_key(schema, (instance,))):
        return after_keys(context, schema, unset, lambda: _insert(context, schema, instance, expire_in, targets))
    if schema.blobs and (places := unstored_blobs(context, schema, (instance,))):
        return after_uploads(
            context, schema, places, lambda: _insert_stored(context, schema, instance, expire_in, targets)
        )
    return flow_of(ChangeBuilder(context, schema, expire_in), _InsertObject, instance, targets)


def _insert_stored(
    context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline, targets: Mapping[bytes, bytes] | None
) -> Flow[Any]:
    """Insert an object whose key is set and whose blobs are stored."""
    return flow_of(ChangeBuilder(context, schema, expire_in), _InsertObject, instance, targets)


class _InsertObject(RecordWrite):
    """Store a new record."""

    __slots__ = ("_item", "targets")

    reads = False

    def __init__(self, writer: ChangeBuilder, instance: Any, targets: Mapping[bytes, bytes] | None) -> None:
        self.targets = targets
        item = self._item = writer.first(instance)
        super().__init__(writer, item.layout.prefix + item.pk, needs_clock(writer.schema, writer.deadline))

    def propose(self, seen: AttemptState, /) -> Proposal[Any]:
        item, writer = self._item, self._writer
        if seen.rows is None:  # the commit checks that there is none
            return storing_one(writer, writer.store(item, seen, None))
        if seen.live_row(self._key) is not None:
            raise already_stored(writer.schema, item.key_values)
        return storing_one(writer, writer.store(item, seen, seen.row(self._key)))


def storing_one(writer: ChangeBuilder, step: PlannedChange, *, is_fresh: bool = False) -> Proposal[Any]:
    """Return the proposal that stores one object.

    A fresh object belongs to no caller yet, so it may get its state before the commit.
    """
    change, item, after = step
    assert item is not None
    done = partial(stored, item, change)
    if writer.context.transaction is None:  # no result is used before the commit
        return _new(_PROPOSAL, ((change,), done, None, None, after, None))

    def states(versionstamp: bytes) -> Sequence[tuple[Any, ObjectState]]:
        return ((item.instance, state_after(item, change, versionstamp)),)

    return Proposal((change,), done, done if is_fresh else always(item.instance), states, after)


def save(
    context: Context, schema: ModelSchema, instance: Any, *, force: bool = False, expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Store an object: insert a new one, update a loaded one if its record has not changed since."""
    require_object(schema, instance)
    require_flag("force", force)
    state = state_of(instance)
    if state is None and (not force or without_key(schema, (instance,))):
        return insert(context, schema, instance, expire_in)

    if schema.blobs and (places := unstored_blobs(context, schema, (instance,), loaded=True)):
        writer = ChangeBuilder(context, schema, expire_in)
        return after_uploads(context, schema, places, lambda: flow_of(writer, _SaveObject, instance, state, force))
    return flow_of(ChangeBuilder(context, schema, expire_in), _SaveObject, instance, state, force)


class _SaveObject(RecordWrite):
    """Store an object over the version that it was loaded from; with ``force`` over any version."""

    __slots__ = ("_force", "_instance", "_item", "_loaded", "reads")

    def __init__(self, writer: ChangeBuilder, instance: Any, state: ObjectState | None, force: bool) -> None:
        context, schema, expire_in = writer.context, writer.schema, writer.deadline
        old: Document | None = None
        if state is not None and schema.time_fields:  # which follow those of the loaded document
            old = context.codec.decode_document(state.value, state.encoding, b"")
        item = writer.first(instance, old)
        key = item.layout.prefix + item.pk
        if state is not None and not item.layout.is_same(item.key_values, state.key):
            raise key_changed("the primary key of a loaded object was changed", schema, state.key, item.key_values)
        loaded = None if state is None else Row(key, state.value, state.encoding, state.versionstamp, state.expire_at)
        may_expire = loaded is not None and loaded.expire_at is not None
        timed = not isinstance(expire_in, Keep) or may_expire or needs_clock(schema, expire_in)
        super().__init__(writer, key, timed)
        self.reads = force or may_expire
        self._force = force
        self._instance = instance
        self._item = item
        self._loaded = loaded

    def propose(self, seen: AttemptState, /) -> Proposal[Any]:
        writer, item, loaded = self._writer, self._item, self._loaded
        schema = writer.schema
        old = loaded if seen.rows is None else seen.row(self._key)
        current = old if seen.rows is None else seen.live_row(self._key)
        if not self._force and loaded is not None and (current is None or current.versionstamp != loaded.versionstamp):
            raise stale_error(schema, item.key_values, loaded, current)
        if self._force and schema.time_fields:  # what they follow is what was found, not what was loaded
            found = None if current is None else document_of(writer.context, current)
            item = writer.first(self._instance, found)
        return storing_one(writer, writer.store(item, seen, old))


def patch(
    context: Context,
    schema: ModelSchema,
    given: Any,
    changes: Mapping[str, Any],
    expire_in: Deadline = KEEP,
    *,
    if_version: str | Collection[str] | None = None,
    body_fields: Collection[str] = (),
) -> Flow[Any]:
    """Read a record, change fields, commit; again from the read after a conflict. Return the stored object.

    ``body_fields`` are the changes whose values are those of a body; an error that they cause is marked.
    """
    expected = None if if_version is None else versions_of(if_version)
    writer = ChangeBuilder(context, schema, expire_in)
    changed = {**(with_keys(schema, changes) if schema.references else changes)}
    operation = partial(_ChangeRecord, body_fields=body_fields) if body_fields else _ChangeRecord
    if schema.blobs and has_blobs(changed):
        return after_own_blobs(
            context, schema, changed, lambda stored: flow_of(writer, operation, given, None, stored, expected)
        )
    return flow_of(writer, operation, given, None, changed, expected)


def mutate(
    context: Context, schema: ModelSchema, given: Any, function: Callable[[Any], Any], expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Read a record, let a function change it, commit; with a fresh copy after a conflict.

    ``function`` gets the object and may change it in place and return None, or return a model of the same primary
    key. It must be free of side effects, because it may be called again. An exception aborts.
    """
    require_callable("function", function, "Give a function that takes the object and changes it.")
    return flow_of(ChangeBuilder(context, schema, expire_in), _ChangeRecord, given, function, {}, None)


class _ChangeRecord(RecordWrite):
    """Change a record, of any version or of the expected one: by new values of fields, or by a function."""

    __slots__ = ("_body_fields", "_changes", "_expected", "_function", "_pk", "_values", "guesses")

    def __init__(
        self,
        writer: ChangeBuilder,
        given: Any,
        function: Callable[[Any], Any] | None,
        changes: Mapping[str, Any],
        expected: tuple[bytes, ...] | None,
        *,
        body_fields: Collection[str] = (),
    ) -> None:
        context, schema = writer.context, writer.schema
        self._values, pk = packed_key(context, schema, given)
        self._pk = pk
        self._function = function
        self._changes = changes
        self._expected = expected
        self._body_fields = body_fields
        self.guesses = writer.is_plain
        super().__init__(writer, context.layouts[schema.collection].prefix + pk, writer.deadline is not KEEP)

    def propose(self, seen: AttemptState, /) -> Proposal[Any]:
        writer = self._writer
        schema = writer.schema
        row = self.found(seen)
        require_version(schema, self._values, self._expected, row)
        if row is None:
            raise absent(schema, self._values)
        item, old, is_fresh = self._changed(seen, row)
        if item.pk != self._pk:
            raise key_changed("a change of a record changed its primary key", schema, self._values, item.key_values)
        return storing_one(writer, writer.store(item, seen, row, old), is_fresh=is_fresh)

    def _changed(self, seen: AttemptState, row: Row) -> tuple[EncodedObject, Document, bool]:
        """Return the changed object, the document before, and whether the object is not one of the caller."""
        writer, function, changes = self._writer, self._function, self._changes
        context, schema = writer.context, writer.schema
        # If an object can be made of the row, this is a document.
        old: Document = context.codec.decode_unchecked(row.value, row.encoding, row.key)
        revised = None
        if schema.revise is not None and writer.is_plain and old.__class__ is dict:
            revised = schema.revise(old, changes)
        if revised is None:
            instance = loader_of(context, seen.view.live[schema.collection])(row)
        elif function is None:
            instance, ready = revised
            same = context.layouts[schema.collection].is_same(ready[3], self._values)
            return encoded(context, schema, instance, ready, self._pk if same else None), old, True
        else:
            instance, _ = revised
            set_stored(instance, context.layouts[schema.collection].unpack_key, cast("Any", (*row,)))
        if function is None:
            return self._patched(instance, old), old, True
        returned, prepared = _changed_by(schema, function, instance)
        item = writer.first(prepared, old)
        if returned is not instance:
            item = item._replace(instance=returned)
        return item, old, returned is instance

    def _patched(self, instance: Any, old: Document) -> EncodedObject:
        """Return the loaded object with the new values. Raises pydantic.ValidationError, marked if a body caused it."""
        schema = self._writer.schema
        try:
            apply_changes(schema.variant_of(instance), instance, self._changes)
            return self._writer.first(instance, old)
        except ValidationError as error:
            mark_body_error(schema, error, self._body_fields)
            raise


def _changed_by(schema: ModelSchema, function: Callable[[Any], Any], instance: Any) -> tuple[Any, Any]:
    """Return the object that a function has changed or returned, and the one to be prepared for it."""
    returned = function(instance)
    if returned is None or returned is instance:
        return instance, instance
    _require_changed(schema, returned)
    # What was returned may be an object of the caller, so it gets the state with the commit and not before.
    return returned, with_state_of(instance, returned.model_copy())


def _require_changed(schema: ModelSchema, returned: Any) -> None:
    """Refuse what a function that should change an object returned instead of it. Raises InvalidValueError."""
    if returned.__class__ is schema.model or schema.variant_of(returned) is not schema:
        return
    if iscoroutine(returned):
        returned.close()  # it will never be awaited, and a warning of that would only lead away from the error
    raise InvalidValueError(
        "the mutate() callback must return None or an object of the model",
        model=schema.name,
        type=type(returned).__name__,
        hint="It changes the object in place and returns None, or returns an object of the model, and is not async: "
        "await what it needs before, and give it to the function.",
    )


def rename(context: Context, schema: ModelSchema, values: tuple[Any, ...], new_values: tuple[Any, ...]) -> Flow[Any]:
    """Give a record another primary key in one commit: it keeps its values, unique ones too, and its deadline."""
    return flow_of(ChangeBuilder(context, schema, KEEP), _RenameRecord, values, new_values)


class _RenameRecord(RecordWrite):
    """Store a record under another primary key."""

    __slots__ = ("_new_key", "_new_pk", "_new_values", "_pk", "_values")

    def __init__(self, writer: ChangeBuilder, values: tuple[Any, ...], new_values: tuple[Any, ...]) -> None:
        layout = writer.context.layouts[writer.schema.collection]
        self._values, self._new_values = values, new_values
        self._pk, self._new_pk = layout.pack(values), layout.pack(new_values)
        self._new_key = layout.key(self._new_pk)
        super().__init__(writer, layout.key(self._pk))

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        return (self._key, self._new_key)

    def propose(self, seen: AttemptState, /) -> Proposal[Any]:
        writer, new_values = self._writer, self._new_values
        context, schema = writer.context, writer.schema
        row = self.found(seen)
        if row is None:
            raise absent(schema, self._values)
        instance = object_of(context, seen.view.live[schema.collection], row)
        if self._pk == self._new_pk:
            return Proposal((), always(instance), always(instance))
        if seen.live_row(self._new_key) is not None:
            hint = "Choose another key, or remove() the record that has this one first."
            raise already_stored(schema, new_values, hint)
        instance.__dict__.update(
            (column.field, value) for column, value in zip(schema.primary_key, new_values, strict=True)
        )
        for field, key in schema.references.items():  # a record that refers to itself goes on doing so
            refers_to_own = schema.indexes[key.index_name].reference == schema.collection
            if refers_to_own and instance.__dict__[field] == self._values[0]:
                instance.__dict__[field] = new_values[0]
        item = writer.first(instance, document_of(context, row) if schema.time_fields else None)
        if item.pk != self._new_pk:
            raise key_changed("a validator changed the new primary key", schema, new_values, item.key_values)
        return _moving(writer, writer.store(item, seen, row), seen.row(self._new_key))


def _moving(writer: ChangeBuilder, step: PlannedChange, replaced: Row | None) -> Proposal[Any]:
    """Return the proposal that moves a record to the key of its object.

    ``step`` was made for the row under the old key; ``replaced`` is an expired row under the new one.
    """
    change = step.change
    assert change.old is not None
    document = None if replaced is None else document_of(writer.context, replaced)
    moved = change._replace(old=replaced, old_document=document)
    left = RecordChange(change.live, change.live.layout.pk_of(change.old.key), change.old, change.old_document, None)
    if change.note is not None:
        ending = VersionNote(change.note.by, change.note.why)
        ending.to_key, change.note.from_key = decode_key(change.pk), decode_key(left.pk)
        left = left._replace(note=ending)
    proposal = storing_one(writer, step._replace(change=moved), is_fresh=True)
    return proposal._replace(changes=(moved, left), states=None)


def remove(
    context: Context, schema: ModelSchema, target: Any, *, if_version: str | Collection[str] | None = None
) -> Flow[bool]:
    """Remove a record by its primary key, or that of an object; see ``remove_key`` and ``remove_object``."""
    expected = None if if_version is None else versions_of(if_version)
    if not isinstance(target, schema.model):
        return remove_key(context, schema, target, expected)
    if expected is not None:
        raise InvalidArgumentError(
            "if_version was given with an object, which has a version of its own",
            argument="if_version",
            value=if_version,
            hint="Leave if_version out, or give the primary key instead of the object.",
        )
    return remove_object(context, schema, target)


def remove_key(
    context: Context, schema: ModelSchema, given: Any, expected: tuple[bytes, ...] | None = None
) -> Flow[bool]:
    """Remove a record with all its entries; return False when it was absent and any version was expected.

    Hooks of removals get the object as it was stored; where the record cannot be read as one, they do not run.
    """
    values, pk = packed_key(context, schema, given)
    return flow_of(ChangeBuilder(context, schema, KEEP), _RemoveByKey, values, pk, expected)


def _is_target(view: HeaderView, schema: ModelSchema) -> bool:
    return bool(view.live[schema.collection].referrers)


def _removed(_: bytes) -> bool:
    return True


_REMOVED: Final[Proposal[bool]] = Proposal((), _removed)
"""The proposal of a removal that the engine compiles; its changes are not known before."""


class _RemoveByKey(RecordWrite):
    """Remove a record, of any version or of the expected one."""

    __slots__ = ("_expected", "_pk", "_values", "guesses")

    def __init__(
        self, writer: ChangeBuilder, values: tuple[Any, ...], pk: bytes, expected: tuple[bytes, ...] | None
    ) -> None:
        schema = writer.schema
        self._values, self._pk, self._expected = values, pk, expected
        view = writer.context.view
        # Hooks, and the class of a record of several, are asked of the row; what refers to it, of its guard.
        self.guesses = writer.is_plain and schema.variants is None and not (view and _is_target(view, schema))
        super().__init__(writer, writer.context.layouts[schema.collection].prefix + pk)

    def keys(self, view: HeaderView, /) -> Sequence[bytes]:
        """Return the key of the record, and that of its guard if others may refer to it."""
        schema = self._writer.schema
        if self._writer.context.transaction is not None or not _is_target(view, schema):
            return (self._key,)
        return (self._key, reference_guards(schema.collection) + self._pk)

    def compiled(self, view: HeaderView, /) -> CompiledWrite[bool] | None:
        """Return a removal that the engine compiles, where the engine can."""
        context = self._writer.context
        if not context.removes or not self.guesses or self._expected is not None:
            return None
        compiler = record_writer(view.live[self._writer.schema.collection], view.guard, context.codec)
        removal = None if compiler is None else compiler.removal(self._pk, context.limits)
        return None if removal is None else (_REMOVED, removal)

    def propose(self, seen: AttemptState, /) -> Proposal[bool]:
        writer = self._writer
        row = self.found(seen)
        require_version(writer.schema, self._values, self._expected, row)
        if row is None:
            return Proposal((), always(False))
        step = writer.remove(seen, self._pk, row, unread=True)
        return _new(_PROPOSAL, ((step.change,), _removed, _removed, None, step.after, None))


def remove_object(context: Context, schema: ModelSchema, instance: Any) -> Flow[bool]:
    """Remove the record of a loaded object if it has not changed since; an object never stored is removed by its key.

    Cost: one commit without a read. Raises StaleObjectError: the record changed or went since the object was loaded.
    """
    state = state_of(instance)
    writer = ChangeBuilder(context, schema, KEEP)
    if state is None:
        values = schema.primary_key_of(instance)
        return flow_of(writer, _RemoveByKey, values, context.layouts[schema.collection].pack(values), None)
    return flow_of(writer, _RemoveLoaded, instance, state)


class _RemoveLoaded(RecordWrite):
    """Remove the record of an object that was loaded from its present version."""

    __slots__ = ("_instance", "_loaded", "_pk", "_state", "reads")

    def __init__(self, writer: ChangeBuilder, instance: Any, state: ObjectState) -> None:
        layout = writer.context.layouts[writer.schema.collection]
        self._pk = layout.pack(state.key)
        super().__init__(writer, layout.key(self._pk))
        self.reads = state.expire_at is not None
        self._instance = instance
        self._loaded = Row(self._key, state.value, state.encoding, state.versionstamp, state.expire_at)
        self._state = state

    def propose(self, seen: AttemptState, /) -> Proposal[bool]:
        loaded = self._loaded
        current = loaded if seen.rows is None else seen.live_row(self._key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise stale_error(self._writer.schema, self._state.key, loaded, current)
        step = self._writer.remove(seen, self._pk, current)
        states = always(((self._instance, None),))
        return Proposal((step.change,), self._done, always(True), states, step.after)

    def _done(self, _: bytes) -> bool:
        drop_state(self._instance)
        return True
