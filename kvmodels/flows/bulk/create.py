"""Create many objects (``bulk_create``): batches of one atomic operation each, with a result for every object.

Rules of this module: objects are validated and encoded before the first batch is sent, so invalid input writes nothing.
Only an iterator without a length, given with ``batch_size``, is read batch by batch, with one batch in memory.
A batch is written completely or not at all. With ``batch_size``, one that is too large is halved before anything of it
is sent; without, the objects are one commit. An error names its object and the number of objects committed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from kvmodels.errors import InvalidArgumentError, OperationTooLargeError
from kvmodels.flows.arguments import iterator_of, require_flag
from kvmodels.flows.blobs.copying import after_uploads, unstored_blobs
from kvmodels.flows.bulk.batches import FittingSize, key_of, name_record, repeated_key
from kvmodels.flows.bulk.create_batch import CreateBatch, note_committed
from kvmodels.flows.bulk.insert import InsertColumns, insert_columns
from kvmodels.flows.bulk.options_and_results import (
    BulkItem,
    BulkOptions,
    BulkProgress,
    BulkResult,
    OnConflict,
    checked_options,
)
from kvmodels.flows.bulk.progress import StoredProgress, list_digest, read_outcomes
from kvmodels.flows.bulk.results import CreateResults
from kvmodels.flows.bulk.unique_owners import UniqueOwners, owners_by
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, Deadline, EncodedObject, writing
from kvmodels.flows.writing.given_keys import after_keys, without_key
from kvmodels.schema.definition.definition import ModelSchema


def bulk_create(
    context: Context,
    schema: ModelSchema,
    instances: Iterable[Any],
    *,
    batch_size: int | None = None,
    on_conflict: OnConflict = "error",
    expire_in: Deadline = KEEP,
    progress: Callable[[BulkProgress], object] | None = None,
    resume_id: str | None = None,
    results: bool = True,
    unique: object = None,
) -> Flow[list[BulkItem[Any]] | BulkResult]:
    """Insert all objects, in their order; KEEP is also the deadline of a record that is overwritten."""
    options = checked_options(context, BulkOptions(batch_size, "raise", progress, resume_id, on_conflict))
    require_flag("results", results)
    owners = None if unique is None else owners_by(context, schema, on_conflict, unique)
    iterator = iterator_of("objs", instances, "Give objects of the model in a list.")
    kept = CreateResults(schema, progress, keeps_items=results)
    batch_size = options.batch_size
    size = None if batch_size is None else FittingSize(batch_size)
    creation = _Creation(context, schema, options, expire_in, kept, size, owners)
    if batch_size is not None and resume_id is None and not isinstance(instances, Sized):
        return creation.streamed(iterator, batch_size)
    objects = [*iterator]
    kept.total = len(objects)
    return creation.part(objects, 0)


class _Creation(NamedTuple):
    """One call: its options, the results so far, and the size of its batches; None: all objects are one batch."""

    context: Context
    schema: ModelSchema
    options: BulkOptions
    expire_in: Deadline
    results: CreateResults
    size: FittingSize | None
    owners: UniqueOwners | None

    def streamed(self, iterator: Iterator[Any], size: int) -> Flow[list[BulkItem[Any]] | BulkResult]:
        """Insert the objects of an iterator without a length, such as a generator, with one batch in memory."""
        start = 0
        try:
            while True:
                objects = list(islice(iterator, size))
                result = yield from self.part(objects, start)
                start += len(objects)
                if len(objects) < size:
                    return result
        except Exception as error:
            note_committed(error, start)
            raise

    def part(self, objects: Sequence[Any], start: int) -> Flow[list[BulkItem[Any]] | BulkResult]:
        """Insert some of the objects, the first of which has the position ``start``; return all results so far."""
        context, schema, resume_id = self.context, self.schema, self.options.resume_id
        create = partial(self._create, objects, start)
        unset = without_key(schema, objects)
        if not unset:
            places = unstored_blobs(context, schema, objects) if schema.blobs else ()
            if places:
                return after_uploads(context, schema, places, lambda: writing(context, schema, self.expire_in, create))
            return writing(context, schema, self.expire_in, create)
        if resume_id is not None:
            raise InvalidArgumentError(
                "a write that is resumed needs objects with the same primary keys in every run",
                argument="resume_id",
                value=resume_id,
                hint="Give the objects keys of your own, or leave resume_id out.",
            )
        return after_keys(context, schema, unset, lambda: self.part(objects, start))

    def _create(
        self, objects: Sequence[Any], start: int, writer: ChangeBuilder
    ) -> Flow[list[BulkItem[Any]] | BulkResult]:
        options, results = self.options, self.results
        if options.on_conflict == "error" and options.resume_id is None and writer.deadline is KEEP:
            columns = insert_columns(writer, objects)
            if columns is not None:
                return (yield from self._stored(writer, columns, start))
        items = [_first(writer, instance, start + position) for position, instance in enumerate(objects)]
        layout = writer.context.layouts[writer.schema.collection]
        identities: Iterable[bytes] = (layout.key(item.pk) for item in items)
        if self.owners is not None:
            _, live = yield from live_collection(self.context, self.schema)
            identities = self.owners.identities(live, items)
        elif options.on_conflict == "update":
            _require_distinct(items)
        if options.resume_id is None:
            return (yield from self._stored(writer, items, start))
        what = ["bulk_create", writer.schema.collection, options.on_conflict]
        described = list_digest(what if self.owners is None else [*what, self.owners.index_name], identities)
        progress = StoredProgress(writer.context, layout, options.resume_id, described)
        results.count((yield from self._resumed(writer, items, progress)))
        results.batches = progress.so_far().batches
        return results.result(resumed=progress.resumed)

    def _stored(
        self, writer: ChangeBuilder, items: Sequence[EncodedObject] | InsertColumns, first: int
    ) -> Flow[list[BulkItem[Any]] | BulkResult]:
        count = len(items.pks) if isinstance(items, InsertColumns) else len(items)
        start = 0
        while start < count:
            end = count if self.size is None else start + self.size.now
            part = items.part(start, end) if isinstance(items, InsertColumns) else items[start:end]
            batch = self._batch(writer, part, first + start)
            try:
                stored_now = yield from batch.stored()
            except OperationTooLargeError as error:
                self._halve(batch, error)
                continue
            assert stored_now is not None, "only stored progress can be overtaken"
            self.results.add(stored_now)
            start = end
        return self.results.result()

    def _resumed(
        self, writer: ChangeBuilder, items: Sequence[EncodedObject], progress: StoredProgress
    ) -> Flow[list[BulkItem[Any]]]:
        """Write the objects after those that earlier runs, or other processes, have handled."""
        options = self.options
        own: dict[int, BulkItem[Any]] = {}
        progress.resumed = (yield from progress.load()) is not None
        while (state := progress.state) is None or state.phase != "done":
            if state is None:
                yield from progress.begin("list")
                continue
            start = state.position
            if start >= len(items):
                yield from progress.finish()
                continue
            end = len(items) if self.size is None else start + self.size.now
            batch = self._batch(writer, items[start:end], start, progress)
            try:
                stored_now = yield from batch.stored()
            except OperationTooLargeError as error:
                self._halve(batch, error)
                continue
            if stored_now is None:
                yield from progress.overtaken()
                continue
            own.update(enumerate(stored_now, start))
            if options.progress is not None:
                options.progress(replace(progress.so_far(), total=len(items)))
        if len(own) == len(items):
            return list(own.values())
        became = yield from read_outcomes(writer.context, writer.schema, progress.prefix("item"), items)
        return [
            own[position] if position in own else BulkItem(item.instance, one.created, one.error)
            for position, (item, one) in enumerate(zip(items, became, strict=True))
        ]

    def _batch(
        self,
        writer: ChangeBuilder,
        items: Sequence[EncodedObject] | InsertColumns,
        start: int,
        progress: StoredProgress | None = None,
    ) -> CreateBatch:
        return CreateBatch(writer, items, self.options.on_conflict, start, progress, owners=self.owners)

    def _halve(self, batch: CreateBatch, error: OperationTooLargeError) -> None:
        """Choose half of a batch that was too large; raise the error if it cannot be halved, or is of a later hook."""
        if self.size is None or batch.committed or len(batch) == 1:
            raise error
        self.size.halve(len(batch), error)


def _first(writer: ChangeBuilder, instance: Any, position: int) -> EncodedObject:
    try:
        return writer.first(instance)
    except Exception as error:  # user validators may raise anything
        name_record(error, writer.schema, key_of(writer.schema, instance), position)
        raise


def _require_distinct(items: Iterable[EncodedObject]) -> None:
    seen: set[bytes] = set()
    for item in items:
        if item.pk in seen:
            raise repeated_key(item.key_values)
        seen.add(item.pk)
