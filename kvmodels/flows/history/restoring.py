"""The way back: revert a record to an old version, and restore removed records.

A restore checks and removes the trash row of the key, so that it excludes other restores and ``forget``.

Rules of this module: a restore and a revert are ordinary writes: unique values, foreign keys, hooks and validation
apply, and the errors are theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, cast

from kvmodels._support.naming import show_public_path
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import also_prefix, trash_prefix
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import ReadRange, Row, after_prefix, point
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import DoesNotExist, HistoryExpiredError, KvModelsError
from kvmodels.flows.arguments import refusal, require_flag, versions_of
from kvmodels.flows.blobs.copying import with_own_blobs
from kvmodels.flows.context import Context, HeaderView, live_collection
from kvmodels.flows.effects import Flow, now, read_all
from kvmodels.flows.history.reading import HistoryReader, history_reader
from kvmodels.flows.history.trash import begin_in
from kvmodels.flows.history.versions import (
    Revision,
    Version,
    ended_version,
    instance_of,
    present_version,
    without_note,
)
from kvmodels.flows.hydration.rows import absent, document_of, object_of, shown_key
from kvmodels.flows.settling import require_durable_reads
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    PlannedChange,
    already_stored,
    key_changed,
    refused,
    stored,
    with_clock,
)
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal
from kvmodels.flows.writing.record_write import RecordWrite, packed_key, require_version
from kvmodels.flows.writing.records import storing_one
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.indexing.versions import begin_of
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.instances import drop_state, set_loaded

_RESTORE_HINT: Final = "Look it up with trash(); a record that exists goes back with revert(key, revision)."


class LeftOut(NamedTuple):
    """A record that a restore has not brought back with the one that was named.

    Attributes:
        collection: its collection.
        key: its primary key, a tuple if it is composite.
        reason: why: ``exists``, ``removed again``, ``changed``, ``not kept`` or ``not declared``.
    """

    collection: str
    key: Annotated[Any, StoredAsJson]
    reason: str


# --- revert ---------------------------------------------------------------------------------------------------


def revert(
    context: Context,
    schema: ModelSchema,
    given: Any,
    revision: Revision[Any] | str,
    *,
    if_version: str | Collection[str] | None = None,
) -> Flow[Any]:
    """Write the values of an old version of a record; fields that the history excludes keep their present values.

    Raises DoesNotExist: there is no record; HistoryExpiredError: the version is not kept; the errors of a write.
    """
    values, pk = packed_key(context, schema, given)
    begin = _begin_of(revision, shown_key(values))
    expected = None if if_version is None else versions_of(if_version)
    reader = yield from history_reader(context, schema)
    writer = ChangeBuilder(context, schema, KEEP)
    return (
        yield from with_clock(
            writer, lambda _: execute(context, _Revert(writer, reader, values, pk, begin=begin, expected=expected))
        )
    )


def _begin_of(revision: Any, key: Any) -> str:
    if isinstance(revision, Revision):
        if revision.key != key:
            hint = "Give a revision of this key."
            raise refusal("a revision is one of another record", "revision", revision.key, hint)
        return revision.versionstamp
    if isinstance(revision, str):
        return revision
    hint = "Give a revision of history(key), or the versionstamp at which it began."
    raise refusal("this is no revision", "revision", revision, hint)


class _Revert(RecordWrite):
    """Write an old version over the present one."""

    __slots__ = ("_begin", "_expected", "_pk", "_reader", "_row_key", "_values")

    def __init__(
        self,
        writer: ChangeBuilder,
        reader: HistoryReader,
        values: tuple[Any, ...],
        pk: bytes,
        *,
        begin: str,
        expected: tuple[bytes, ...] | None,
    ) -> None:
        super().__init__(writer, reader.live.layout.key(pk))
        self._reader = reader
        self._values = values
        self._pk = pk
        self._begin = begin
        self._expected = expected
        self._row_key = reader.prefix + pk + encode_key((begin,))

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the record and of the old version."""
        return (self._key, self._row_key)

    def propose(self, seen: AttemptState, /) -> Proposal[Any]:
        writer, reader = self._writer, self._reader
        context, schema = writer.context, writer.schema
        row = self.found(seen)
        require_version(schema, self._values, self._expected, row)
        if row is None:
            raise absent(schema, self._values)
        kept = seen.row(self._row_key)
        version = None if kept is None else ended_version(context.codec, reader.prefix, kept, reader.now_ms)
        present = document_of(context, row)
        if version is None and begin_of(present, row.versionstamp) == self._begin:
            version = present_version(context.codec, reader.live, row)
        if version is None:
            raise _not_kept(schema, self._values)
        held = {name: value for name, value in present.items() if name in reader.history.exclude}
        version = version._replace(document={**version.document, **held})
        instance = _loaded(reader, version, row)
        item = writer.first(instance, document_of(context, row))
        return storing_one(writer, writer.store(item, seen, row), is_fresh=True)


def _loaded(reader: HistoryReader, version: Version, row: Row) -> Any:
    """Return the object of a version with its undeclared fields, as one that was loaded from a row."""
    instance, unknown = instance_of(reader.live, version._replace(document=without_note(version.document)))
    if unknown:
        set_loaded(instance, reader.live.layout.unpack, version.pk, row, unknown)
    return instance


def _not_kept(schema: ModelSchema, values: tuple[Any, ...]) -> HistoryExpiredError:
    return HistoryExpiredError(
        "the history does not hold this version", model=schema.name, key=shown_key(values), horizon=None
    )


# --- restore --------------------------------------------------------------------------------------------------


class Restored(NamedTuple):
    """The result of a restore with ``also=True``.

    Attributes:
        record: the object of the record that was named.
        others: the number of other records that were restored or changed.
        left_out: the others that were not.
    """

    record: Annotated[Any, StoredAsJson]
    others: int
    left_out: tuple[LeftOut, ...]


class RestoringBuilder(ChangeBuilder):
    """Stores removed records again, with the creation times of their last versions."""

    __slots__ = ("restored",)

    restored: Document

    @property
    def base(self) -> Document:
        """The document of the last version."""
        return self.restored


class RemovedRecord(NamedTuple):
    """A removed record that a restore inserts again."""

    reader: HistoryReader
    writer: RestoringBuilder
    pk: bytes
    begin: str

    @property
    def record(self) -> bytes:
        """The key of the record."""
        return self.reader.live.layout.key(self.pk)

    @property
    def trash(self) -> bytes:
        """The key of its trash row."""
        return trash_prefix(self.reader.live.schema.collection) + self.pk

    @property
    def row(self) -> bytes:
        """The key of the row of its last version."""
        return self.reader.prefix + self.pk + encode_key((self.begin,))


class ClearedReference(NamedTuple):
    """A foreign key of a stored record that a restore sets again."""

    live: LiveCollection
    writer: ChangeBuilder
    pk: bytes
    field: str

    @property
    def record(self) -> bytes:
        """The key of the record."""
        return self.live.layout.key(self.pk)


def restore(
    context: Context,
    schema: ModelSchema,
    given: Any,
    changes: Mapping[str, Any] | None = None,
    *,
    also: bool = False,
) -> Flow[Any]:
    """Insert the last version of a removed record again, with changes if given; return the object.

    With ``also`` what the same removal took with it is restored in the same commit, and the result is a ``Restored``.
    Raises DoesNotExist: no removed record has this key, or its version is not kept; the errors of an insert.
    """
    require_flag("also", also)
    if changes is not None and not isinstance(cast("object", changes), Mapping):
        raise refusal("changes are not values by field", "changes", changes, 'Write restore(7, {"title": "new"}).')
    values, pk = packed_key(context, schema, given)
    changes = yield from with_own_blobs(context, schema, changes or {})
    while True:
        reader = yield from history_reader(context, schema)
        trash = (yield from read_all(context.limits, (point(trash_prefix(schema.collection) + pk),))) or [[]]
        if not trash[0]:
            yield from require_durable_reads(context.traits)
            raise _never_removed(schema, values)
        first = RemovedRecord(reader, RestoringBuilder(context, schema, KEEP), pk, begin_in(context, trash[0][0]))
        others: list[RemovedRecord | ClearedReference] = []
        left_out: list[LeftOut] = []
        if also:
            yield from _find_others(context, first, others, left_out)
        for one in (first, *others):
            if one.writer.schema.time_fields:
                one.writer.now_ms = yield from now()
        write = _Restore(context, first, others, left_out, changes=changes, values=values)
        try:
            restored: Restored = yield from execute(context, write)
        except _RemovedAgainError:
            continue
        return restored if also else restored.record


def _never_removed(schema: ModelSchema, values: tuple[Any, ...]) -> DoesNotExist:
    error: DoesNotExist = schema.model.DoesNotExist(
        "no removed record has this primary key", model=schema.name, lookup=shown_key(values), hint=_RESTORE_HINT
    )
    return error


class _RemovedAgainError(Exception):
    """The trash row names another version than the one that was read first."""


def _find_others(
    context: Context, first: RemovedRecord, others: list[RemovedRecord | ClearedReference], left_out: list[LeftOut]
) -> Flow[None]:
    """Add what the removal of a record has removed or changed with it, as far as this process declares it."""
    prefix = also_prefix(first.reader.live.schema.collection) + first.pk + encode_key((first.begin,))
    found = yield from read_all(context.limits, (ReadRange(prefix, after_prefix(prefix)),))
    for row in (found or [[]])[0]:
        for collection, key, begin, what in context.codec.decode_document(row.value, row.encoding, row.key)["also"]:
            schema = context.schemas.get(collection)
            if schema is None:
                left_out.append(LeftOut(collection, shown_key(tuple(key)), "not declared"))
                continue
            writer, pk = ChangeBuilder(context, schema, KEEP), encode_key(tuple(key))
            if what == "gone":
                removed = RestoringBuilder(context, schema, KEEP)
                others.append(RemovedRecord((yield from history_reader(context, schema)), removed, pk, begin))
            else:
                _, live = yield from live_collection(context, schema)
                others.append(ClearedReference(live, writer, pk, what))


class _Restore(LogicalWrite[Restored]):
    """Insert the last version of a removed record, and what its removal took with it."""

    def __init__(
        self,
        context: Context,
        first: RemovedRecord,
        others: Sequence[RemovedRecord | ClearedReference],
        left_out: Sequence[LeftOut],
        *,
        changes: Mapping[str, Any],
        values: tuple[Any, ...],
    ) -> None:
        self._context = context
        self._first = first
        self._others = others
        self._left_out = left_out
        self._changes = changes
        self._values = values
        self.schema = first.writer.schema

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the records, of their trash rows and of their versions."""
        keys = [
            key
            for one in (self._first, *self._others)
            if isinstance(one, RemovedRecord)
            for key in (one.trash, one.row)
        ]
        return [*keys, *(one.record for one in (self._first, *self._others))]

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Return the error for a value that another record holds, or for a missing target."""
        return refused(refusal)

    def propose(self, seen: AttemptState, /) -> Proposal[Restored]:
        """Return the inserts and changes. Raises DoesNotExist, AlreadyExistsError, or the errors of an insert."""
        first, schema = self._first, self.schema
        if seen.live_row(first.record) is not None:
            raise already_stored(schema, self._values, _RESTORE_HINT)
        trash = seen.live_row(first.trash)
        if trash is None:
            raise _never_removed(schema, self._values)
        if begin_in(self._context, trash) != first.begin:
            raise _RemovedAgainError
        step = self._insert(seen, first, self._changes)
        if step is None:
            raise _not_kept(schema, self._values)
        steps, left_out = [step], [*self._left_out]
        references: dict[bytes, tuple[ClearedReference, list[str]]] = {}
        for one in self._others:
            if isinstance(one, ClearedReference):
                references.setdefault(one.record, (one, []))[1].append(one.field)
                continue
            reason = self._obstacle(seen, one)
            added = None if reason is not None else self._insert(seen, one, {})
            if added is None:
                left_out.append(self._left(one, reason or "not kept"))
            else:
                steps.append(added)
        for one, fields in references.values():
            added = self._refer(seen, one, fields)
            if added is None:
                left_out.append(self._left(one, "changed"))
            else:
                steps.append(added)
        return self._proposal(steps, left_out)

    def _proposal(self, steps: Sequence[PlannedChange], left_out: Sequence[LeftOut]) -> Proposal[Restored]:
        def done(versionstamp: bytes) -> Restored:
            objects = [stored(step.item, step.change, versionstamp) for step in steps if step.item is not None]
            return Restored(objects[0], len(steps) - 1, tuple(left_out))

        after = tuple(call for step in steps for call in step.after)
        return Proposal(tuple(step.change for step in steps), done, done, None, after)

    def _obstacle(self, seen: AttemptState, one: RemovedRecord) -> str | None:
        """Return why another record is not restored; None if it is."""
        live = seen.view.live[one.reader.live.schema.collection]
        if live.refused is not None or live.read_only is not None:
            raise live.refused or live.read_only or AssertionError
        if seen.live_row(one.record) is not None:
            return "exists"
        trash = seen.live_row(one.trash)
        if trash is None or begin_in(self._context, trash) != one.begin:
            return "removed again"
        return None

    def _insert(self, seen: AttemptState, one: RemovedRecord, changes: Mapping[str, Any]) -> PlannedChange | None:
        """Return the insert of a version; None if it is not kept."""
        row, trash = seen.row(one.row), seen.live_row(one.trash)
        if row is None:
            return None
        version = ended_version(self._context.codec, one.reader.prefix, row, one.reader.now_ms)
        if version is None:
            return None
        if not one.reader.shows(version):
            raise _never_removed(self.schema, self._values)
        instance = _loaded(one.reader, version, row)
        if changes:
            apply_changes(one.writer.schema.variant_of(instance), instance, changes)
        one.writer.restored = version.document
        item = one.writer.first(instance, version.document)
        if item.pk != one.pk:
            raise key_changed(
                "a restore changed the primary key", one.writer.schema, self._values, item.key_values, _RESTORE_HINT
            )
        step = one.writer.store(item, seen, seen.row(one.record))
        drop_state(instance)
        assert step.change.note is not None, "the collection has a history"
        step.change.note.trash = trash
        return step

    def _refer(self, seen: AttemptState, one: ClearedReference, fields: Sequence[str]) -> PlannedChange | None:
        """Return the change that sets foreign keys again; None if the record is gone or refers to another one."""
        row = seen.live_row(one.record)
        live = seen.view.live[one.writer.schema.collection]
        if live.refused is not None or live.read_only is not None:
            raise live.refused or live.read_only or AssertionError
        if row is None:
            return None
        instance = object_of(self._context, live, row)
        empty = [name for name in fields if instance.__dict__.get(name) is None]
        if not empty:
            return None
        apply_changes(one.writer.schema.variant_of(instance), instance, dict.fromkeys(empty, self._values[0]))
        return one.writer.store(one.writer.first(instance, document_of(self._context, row)), seen, row)

    def _left(self, one: RemovedRecord | ClearedReference, reason: str) -> LeftOut:
        live = one.reader.live if isinstance(one, RemovedRecord) else one.live
        return LeftOut(live.schema.collection, shown_key(live.layout.unpack(one.pk)), reason)


show_public_path(LeftOut, Restored)
