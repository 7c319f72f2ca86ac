"""Remove a record together with those that refer to it, in batches that can be resumed.

The records are visited from the target downwards, along the entries of the referring indexes, and removed upwards: a
record goes in a batch after everything that refers to it, and the target in the last commit. Each batch is an ordinary
bulk removal, so hooks run, guards are checked, and a record that began to refer to one of the batch meanwhile changes
with it. Nothing is stored about the way: a call that resumes visits what is left.

A record that cannot go yet is left for later together with those that it refers to: one that is protected by a record
which goes later, or one of a cycle. What is left in the end is removed together with the target in one commit, which
judges it as ``remove()`` does.

Rules of this module: an entry only names a candidate; the commit that changes the record tests it again. Each batch is
read together with the anchor of the target, which updates do not change, and goes only if it is the anchor of the
beginning. The commit need not check the anchor: it checks records that refer to the target, which so cannot have been
removed since they were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgpack

from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import reference_anchors
from kvmodels.catalog.references import IncomingReference, incoming_references
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import AtomicWrite, Mutation, ReadRange, Row, point
from kvmodels.errors import OperationTooLargeError, ProtectedError, RetriesExhaustedError
from kvmodels.flows.arguments import require_text
from kvmodels.flows.bulk.batches import LARGEST_BATCH, BulkAction, BulkRun, name_record, note_committed
from kvmodels.flows.bulk.keys import Source
from kvmodels.flows.bulk.options_and_results import BulkOptions, BulkResult, OnError, checked_options
from kvmodels.flows.bulk.progress import BatchOutcome, StoredProgress
from kvmodels.flows.context import Context, HeaderView, reload_header, writable_collection
from kvmodels.flows.effects import Flow, read, read_all, read_row
from kvmodels.flows.hydration.rows import document_of, row_of_class, shown_key
from kvmodels.flows.references import anchor, refused_reference
from kvmodels.flows.writing.cascade import cascaded_change
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, PlannedChange, writing
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.flows.writing.record_write import packed_key
from kvmodels.indexing.cascades import acting, require_same_effect
from kvmodels.indexing.entries import RecordChange
from kvmodels.indexing.references import SPARE_ENTRIES, RemainingReferrers
from kvmodels.schema.definition.definition import ModelSchema

MOST_ROUNDS: Final = 20
"""Attempts to remove the target while other writers store records that refer to it."""

_CYCLE: Final = (
    "Records that refer to each other in a cycle, and those that they protect, are removed in one commit: first set a "
    "foreign key of one of them to another record, or to None."
)


def remove_cascade(context: Context, schema: ModelSchema, target: Any, options: BulkOptions) -> Flow[BulkResult]:
    """Remove a record after the records that refer to it; begin it, resume it, or return its stored result."""
    options = checked_options(context, options)
    resume_id = options.resume_id or ""
    require_text("resume_id", resume_id, "Give a name for this removal, such as 'author-7'.")
    if isinstance(target, schema.model):
        pk = context.layouts[schema.collection].pack(schema.primary_key_of(target))
    else:
        _, pk = packed_key(context, schema, target)
    root = _CascadeItem(schema.collection, context.layouts[schema.collection].key(pk), pk)
    digest = sha256(msgpack.packb(["remove_cascade", schema.collection, pk])).digest()
    progress = _CascadeProgress(context, root, resume_id, digest)
    return _RemoveCascade(context, schema, root, options, progress).carried_out()


class _CascadeItem(NamedTuple):
    """A record to remove or change.

    Attributes:
        collection, key, pk: its collection, its key, and its packed primary key.
        reference: the foreign key by which it was found; None for the target of the call.
        target: the record that it refers to.
    """

    collection: str
    key: bytes
    pk: bytes
    reference: IncomingReference | None = None
    target: _CascadeItem | None = None

    def path(self) -> Iterator[_CascadeItem]:
        """Yield the record, and those that it was found by, up to the target of the call."""
        item: _CascadeItem | None = self
        while item is not None:
            yield item
            item = item.target


class _StartAgainError(Exception):
    """Another process has changed the progress or the header, so the records are visited again."""


class _CascadeProgress(StoredProgress):
    """The stored progress of a cascade, which ends with the commit that removes the target."""

    def __init__(self, context: Context, root: _CascadeItem, resume_id: str, digest: bytes) -> None:
        super().__init__(context, context.layouts[root.collection], resume_id, digest)
        self._root_key = root.key
        self.same_key = root.key
        """The key whose row lasts as long as the target: its anchor, or the record itself if nothing can refer to
        it."""

    @property
    def keys(self) -> Sequence[bytes]:
        return (*super().keys, self.same_key)

    def overtaken_in(self, seen: AttemptState) -> bool:
        return super().overtaken_in(seen) or not self.is_target(seen.row(self.same_key))

    def is_target(self, row: Row | None) -> bool:
        """Return whether the target is still there, by the row of ``same_key``.

        Updates do not change an anchor, but they change the record itself, of which any version may be removed.
        """
        return row is not None and (self.same_key == self._root_key or row.versionstamp == self.begun.target)

    def advanced(
        self, items: Sequence[object], outcome: BatchOutcome, notes: Sequence[Mutation] = ()
    ) -> tuple[AtomicWrite, Callable[[bytes], None]]:
        state = self.begun
        # Records that were left for later do not count.
        moved = state._replace(
            matched=state.matched + outcome.written,
            written=state.written + outcome.written,
            batches=state.batches + 1,
            phase="done"
            if any(isinstance(one, _CascadeItem) and one.reference is None for one in items)
            else state.phase,
        )
        return self._write(moved, notes), partial(self._moved, moved)


class _ReferrerChange(BulkAction[_CascadeItem]):
    """The removal of records, or with ``fields`` the change that sets these foreign keys to None."""

    def __init__(self, writer: ChangeBuilder, fields: tuple[str, ...]) -> None:
        self.schema = writer.schema
        self._writer = writer
        self._fields = fields

    def step(self, seen: AttemptState, item: _CascadeItem) -> PlannedChange | None:
        """Return the change of a record; None if it does not refer to its target any more."""
        writer = self._writer
        row = seen.live_row(item.key)
        if item.reference is None:
            row = row_of_class(writer.context, writer.schema, row)
        elif row is not None and not self._refers(item, seen.view, document_of(writer.context, row)):
            row = None
        return None if row is None else cascaded_change(writer, row, self._fields, seen)

    def _refers(self, item: _CascadeItem, view: HeaderView, document: dict[str, Any]) -> bool:
        """Return whether a record refers to its target by a foreign key that still has the same effect."""
        reference, target = item.reference, item.target
        assert reference is not None
        assert target is not None
        return reference in view.live[target.collection].referrers and reference.refers(document, target.pk)


class _CascadeLevel:
    """Records of one collection to be removed, and the ranges of entries that refer to them."""

    def __init__(self, items: Sequence[_CascadeItem], references: Sequence[IncomingReference]) -> None:
        self.items = items
        # Removals first, so that most records that are removed later are not changed before.
        ordered = sorted(references, key=lambda one: one.on_delete != "cascade")
        self.ranges = deque((one, [(item, one.span(item.pk, 1).start) for item in items]) for one in ordered)


class _RemoveCascade:
    def __init__(
        self,
        context: Context,
        schema: ModelSchema,
        root: _CascadeItem,
        options: BulkOptions,
        progress: _CascadeProgress,
    ) -> None:
        self._context = context
        self._schema = schema
        self._root = root
        self._options = options
        self._progress = progress
        self._size = options.batch_size or LARGEST_BATCH
        self._postponed: set[bytes] = set()
        """The keys of the records that are left for later."""
        self._refused: Exception | None = None
        """Why the first one was left."""
        self._failed_rounds = 0

    def carried_out(self) -> Flow[BulkResult]:
        progress = self._progress
        try:
            progress.resumed = (yield from progress.load()) is not None
            while True:
                view, live = yield from writable_collection(self._context, self._schema)
                root = self._root
                progress.same_key = reference_anchors(root.collection) + root.pk if live.referrers else root.key
                state = progress.state
                if state is not None and state.phase == "done":
                    return BulkResult(state.matched, state.written, (), state.batches, progress.resumed)
                if state is not None and not progress.is_target((yield from read_row(progress.same_key))):
                    yield from progress.save(state._replace(phase="done"))
                elif state is not None:
                    yield from self._round(view, live)
                elif not (yield from self._begun(view, live)):
                    return BulkResult(0, 0)
        except Exception as error:
            if progress.state is not None:
                note_committed(error, progress.state.written, progress.state.batches)
            raise

    # --- the target -------------------------------------------------------------------------------------------

    def _begun(self, view: HeaderView, live: LiveCollection) -> Flow[bool]:
        """Store the first progress; return False if there is no record to remove."""
        context, root = self._context, self._root
        if live.referrers:
            yield from anchor(self._context.limits, {root.key: self._progress.same_key}, view.guard)
        found = (yield from read((point(root.key), point(self._progress.same_key)))).ranges
        if row_of_class(context, self._schema, found[0][0] if found[0] else None) is None:
            return False
        if found[1]:
            yield from self._progress.begin("cascade", found[1][0].versionstamp)
        else:
            yield from reload_header(context)
            self._count_failure(None)
        return True

    def _round(self, view: HeaderView, live: LiveCollection) -> Flow[None]:
        """Remove the records that refer to the target, and then the target."""
        state = self._progress.begun
        try:
            yield from self._require_removable(view, live)
            yield from self._remove_referrers(view)
            yield from self._write(self._schema, [self._root], (), "raise")
        except _StartAgainError:
            return
        except RetriesExhaustedError as error:
            self._count_failure(error)
        except OperationTooLargeError as error:
            now = self._progress.state
            if now is None or now.written == state.written:
                if self._refused is not None and not isinstance(self._refused, OperationTooLargeError):
                    raise self._refused from error
                error.hint = _CYCLE
                raise
            self._count_failure(error)

    def _count_failure(self, error: Exception | None) -> None:
        self._failed_rounds += 1
        if self._failed_rounds >= MOST_ROUNDS:
            raise RetriesExhaustedError(
                "other writers stored new references to the record in every attempt",
                attempts=self._failed_rounds,
            ) from error

    def _require_removable(self, view: HeaderView, live: LiveCollection) -> Flow[None]:
        """Refuse a target that a record protects which this cascade cannot reach. Raises ProtectedError."""
        root, reached = self._root, _reached(view.header, self._root.collection)
        protecting = [one for one in live.referrers if one.on_delete == "protect" and one.collection not in reached]
        found = yield from self._read([one.span(root.pk, SPARE_ENTRIES) for one in protecting], view)
        for reference, entries in zip(protecting, found, strict=True):
            keys = tuple(reference.pk_of(self._context.codec, entry) for entry in entries)
            if keys:
                require_same_effect(reference, view.live)
                change = RecordChange(live, root.pk, None, None, None)
                raise refused_reference(RemainingReferrers(change, reference, keys))

    def _read(self, ranges: Sequence[ReadRange], view: HeaderView) -> Flow[list[list[Row]]]:
        found = yield from read_all(self._context.limits, ranges, view.guard)
        if found is None:
            yield from reload_header(self._context)
            raise _StartAgainError
        return found

    # --- the records that refer to it -------------------------------------------------------------------------

    def _remove_referrers(self, view: HeaderView) -> Flow[None]:
        """Visit and remove everything below the target, deepest first."""
        self._postponed.clear()
        self._refused = None
        levels = [self._level(view, [self._root])]
        path = {self._root.key}
        while True:
            level = levels[-1]
            found = yield from self._next(level, view, path)
            if found:
                reference = found[0].reference
                assert reference is not None
                if reference.on_delete == "cascade":
                    levels.append(self._level(view, found))
                    path.update(one.key for one in found)
                else:
                    schema = view.live[reference.collection].schema
                    yield from self._write(schema, found, (reference.field,), "raise")
            elif len(levels) == 1:
                return
            else:
                levels.pop()
                path.difference_update(one.key for one in level.items)
                ready = [one for one in level.items if one.key not in self._postponed]
                yield from self._remove(view, ready)

    def _level(self, view: HeaderView, items: Sequence[_CascadeItem]) -> _CascadeLevel:
        return _CascadeLevel(items, acting(view.live[items[0].collection], view.live))

    def _next(self, level: _CascadeLevel, view: HeaderView, path: set[bytes]) -> Flow[list[_CascadeItem]]:
        """Return the next records that refer to one of a level, by one foreign key; empty at the end."""
        while level.ranges:
            reference, places = level.ranges.popleft()
            most = max(1, self._size // len(places))
            spans = [reference.span(item.pk, most)._replace(start=start) for item, start in places]
            found = yield from self._read(spans, view)
            more = [
                (item, key_successor(rows[-1].key))
                for (item, _), rows in zip(places, found, strict=True)
                if len(rows) == most
            ]
            if more:
                level.ranges.appendleft((reference, more))
            children = [
                child
                for (item, _), rows in zip(places, found, strict=True)
                for row in rows
                if (child := self._child(reference, reference.pk_of(self._context.codec, row), item, path)) is not None
            ]
            if children:
                require_same_effect(reference, view.live)
                return children
        return []

    def _child(
        self, reference: IncomingReference, pk: bytes, target: _CascadeItem, path: set[bytes]
    ) -> _CascadeItem | None:
        """Return a record that refers to a target; None if it, and so the target, is left for later."""
        key = reference.records.key(pk)
        if reference.on_delete == "cascade" and key != target.key and (key in path or key in self._postponed):
            self._leave(target)
            return None
        return None if key == target.key else _CascadeItem(reference.collection, key, pk, reference, target)

    def _leave(self, item: _CascadeItem) -> None:
        """Leave a record for later, and those that it refers to: their removal would remove it too."""
        self._postponed.update(one.key for one in item.path())

    # --- batches ----------------------------------------------------------------------------------------------

    def _remove(self, view: HeaderView, items: Sequence[_CascadeItem]) -> Flow[None]:
        """Remove records; leave those for later that cannot go yet."""
        if not items:
            return
        schema, layout = view.live[items[0].collection].schema, self._context.layouts[items[0].collection]
        run = yield from self._write(schema, items, (), "collect")
        by_key = {shown_key(layout.unpack(one.pk)): one for one in items}
        reached = _reached(view.header, self._root.collection)
        for failure in run.result().failed:
            error = failure.error
            assert error is not None, "of this run"
            goes_later = isinstance(error, ProtectedError) and error.referrer in reached
            if not goes_later and not isinstance(error, OperationTooLargeError):
                name_record(error, schema, failure.key)
                raise error
            self._refused = self._refused or error
            self._leave(by_key[failure.key])

    def _write(
        self, schema: ModelSchema, items: Sequence[_CascadeItem], fields: tuple[str, ...], on_error: OnError
    ) -> Flow[BulkRun[_CascadeItem]]:
        """Remove records, or set foreign keys to None, in batches."""
        options = self._options._replace(on_error=on_error)

        def written(writer: ChangeBuilder) -> Flow[BulkRun[_CascadeItem]]:
            run = BulkRun(self._context, _ReferrerChange(writer, fields), options, progress=self._progress)
            if not (yield from run.write(Source(items))):
                yield from self._progress.overtaken()
                raise _StartAgainError
            return run

        return (yield from writing(self._context, schema, KEEP, written))


def _reached(header: Header, collection: str) -> set[str]:
    """Return the collections whose records a cascade from a collection may remove."""
    reached, waiting = {collection}, [collection]
    while waiting:
        for one in incoming_references(header, waiting.pop()):
            if one.on_delete == "cascade" and one.collection not in reached:
                reached.add(one.collection)
                waiting.append(one.collection)
    return reached
