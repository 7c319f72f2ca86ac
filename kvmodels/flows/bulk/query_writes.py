"""Update or delete all records of a query: in batches with one commit each, or as part of a transaction.

An update scans in the order of the primary key, which no update changes, or collects the primary keys first. So a
record is never found again at the position to which its update has moved it (the Halloween problem; see Hellerstein,
Stonebraker and Hamilton, "Architecture of a Database System", 4.4). A deleted record cannot be found again.

Rules of this module: a record that was found is only a candidate; the operation that writes it tests it against the
query again. With a ``resume_id``, the stored progress determines the next step, so any process can continue after a
crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgpack

from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, after_prefix
from kvmodels.errors import (
    IndexChangedError,
    IndexNotReadyError,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    LimitExceededError,
    NoUsableIndexError,
    OperationTooLargeError,
)
from kvmodels.flows.blobs.copying import refuse_blobs
from kvmodels.flows.bulk.batches import BulkAction, BulkRun, write_in_transaction
from kvmodels.flows.bulk.keys import FoundRecord, KeySource, Source, tested_values
from kvmodels.flows.bulk.options_and_results import BulkOptions, BulkResult, checked_options
from kvmodels.flows.bulk.progress import BulkState, Phase, StoredProgress
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, count_rows, ranges_at_once, read
from kvmodels.flows.execution.executor import counts_rows
from kvmodels.flows.hydration.rows import document_of, object_of
from kvmodels.flows.reading.semi_join import resolved
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, PlannedChange, key_changed, writing
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.query.matching import Matcher, matcher
from kvmodels.query.plans import QueryPlan, digest, in_key_order
from kvmodels.query.query import Query
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import with_keys
from kvmodels.schema.filters.changes import Term, require_changes
from kvmodels.schema.filters.predicate import has_subquery

MOST_COLLECTED: Final = 1_000_000
"""The maximum number of primary keys in memory, about 200 bytes each."""

COLLECTED_AT_ONCE: Final = 500

_NO_SUCH_PLACE: Final = (IndexChangedError, IndexNotReadyError, NoUsableIndexError, InvalidCursorError)
"""The errors of a stored cursor whose index was replaced or dropped."""


def update_all(context: Context, query: Query, changes: Mapping[str, Any], options: BulkOptions) -> Flow[BulkResult]:
    """Change fields of all records of a query."""
    if not changes:
        raise InvalidArgumentError(
            "an update changes nothing", argument="changes", hint="Give new values by field name: update(n=F('n') + 1)."
        )
    changes = with_keys(query.schema, changes)
    require_changes(query.schema, changes)
    refuse_blobs(query.schema, changes)
    return _writing(context, query, changes, options)


def remove_all(context: Context, query: Query, options: BulkOptions) -> Flow[BulkResult]:
    """Delete all records of a query, with their entries. Errors and cost: as for ``update_all``."""
    return _writing(context, query, None, options)


def _writing(
    context: Context, query: Query, changes: Mapping[str, Any] | None, options: BulkOptions
) -> Flow[BulkResult]:
    """Return the flow of an update, or of a removal if there are no ``changes``."""
    options = checked_options(context, options)
    if options.resume_id is not None and has_subquery(query.where):
        raise InvalidArgumentError(
            "a resumable write cannot have a query or a path of foreign keys in its filter",
            argument="resume_id",
            value=options.resume_id,
            hint="Read the keys first, and filter by them with in_([...]), so that a resumed run selects the same.",
        )
    return writing(context, query.schema, KEEP, partial(_written, query, changes, options))


def refused_removal() -> InvalidArgumentError:
    """Return the error for ``users.delete()``, which is easily confused with ``users.remove(key)``."""
    return InvalidArgumentError(
        "delete() without a condition would remove every record",
        argument="delete",
        hint="Write all().delete() to remove every record, filter(...).delete() for some, remove(key) for one.",
    )


def refused_update() -> InvalidArgumentError:
    """Return the error for ``users.update(...)``, which is easily confused with ``users.patch(key, ...)``."""
    return InvalidArgumentError(
        "update() without a condition would change every record",
        argument="update",
        hint="Write all().update(...) to change every record, filter(...).update(...) for some, patch(key, ...) for "
        "one.",
    )


def _written(
    query: Query, changes: Mapping[str, Any] | None, options: BulkOptions, writer: ChangeBuilder
) -> Flow[BulkResult]:
    context = writer.context
    if not query.sliced:
        query = query.without_default_order()
    query = yield from resolved(context, query)
    work = RemoveAction(writer, query) if changes is None else UpdateAction(writer, query, changes)
    source = KeySource(context, query)
    if context.transaction is not None:
        yield from source.open()
        return (yield from write_in_transaction(context, work, (yield from _collected(source)), options))
    if options.resume_id is not None:
        described = _digest(context, query, changes, options.on_error)
        progress = StoredProgress(context, context.layouts[query.schema.collection], options.resume_id, described)
        return (yield from _Resumption(context, query, work, options, progress).carried_out())
    run = BulkRun(context, work, options)
    with run.noting():
        yield from source.open()
        given: Source[FoundRecord] = source
        if changes is not None and not in_key_order(source.plan):
            found = yield from _collected(source)
            run.total, given = len(found), Source(found)
        elif options.progress is not None:
            run.total = yield from _number_of(context, query, source.plan)
        yield from run.write(given)
    return run.result()


def _collected(source: KeySource) -> Flow[list[FoundRecord]]:
    """Return all results without duplicates: a record that other writers move during the read may be found twice."""
    found: dict[bytes, FoundRecord] = {}
    while True:
        more = yield from source.take(MOST_COLLECTED)
        if not more:
            return list(found.values())
        source.dealt_with(len(more))
        found.update((one.pk, FoundRecord(one.pk, tested=one.tested)) for one in more)
        if len(found) > MOST_COLLECTED:
            raise OperationTooLargeError(
                "more primary keys would be held in memory than a bulk write may hold",
                limit="collected_keys",
                size=len(found),
                maximum=MOST_COLLECTED,
                hint="Give a resume_id, with which they are kept in the store, or write in the order of the primary "
                'key: order_by("pk"), with allow_scan() if no index gives it.',
            )


def _number_of(context: Context, query: Query, plan: QueryPlan) -> Flow[int | None]:
    """Return the number of results if one request counts them; None if rows would have to be read."""
    is_counted = plan.combine == "scan" and not plan.full_scan and plan.sort is None and counts_rows(plan)
    if not is_counted or len(plan.ranges) > ranges_at_once(context.limits, guarded=False):
        return None
    stop = query.stop
    wanted = [ReadRange(start) if end is None else ReadRange(start, end, stop) for start, end in plan.ranges]
    counted = yield from count_rows(wanted)
    assert not isinstance(counted, GuardFailed), "there is no guard"
    number = sum(counted.numbers)
    return max(0, (number if stop is None else min(number, stop)) - query.start)


class _QueryAction(BulkAction[FoundRecord]):
    """An action on the records of a query."""

    def __init__(self, writer: ChangeBuilder, query: Query) -> None:
        self.schema = query.schema
        self._writer = writer
        self._context: Context = writer.context
        self._layout = writer.context.layouts[query.schema.collection]
        self._query = query
        self._matcher: Matcher | None = matcher(query.schema, query.where)

    def _row(self, seen: AttemptState, item: FoundRecord) -> tuple[Row, Document] | None:
        """Return the row and the document of a record; None if it no longer satisfies the query."""
        row = seen.live_row(self._layout.key(item.pk))
        if row is None:
            return None
        held = document_of(self._context, row)
        if item.tested and tested_values(self._query, held) != item.tested:
            return None  # it refers to another record now, which was not tested
        return (row, held) if self._matcher is None or self._holds(self._matcher, seen, row, held) else None

    def _holds(self, test: Matcher, seen: AttemptState, row: Row, held: Document) -> bool:
        upgrade = self.schema.upgrade
        try:
            document = held if upgrade is None else upgrade(held, decode_key(self._layout.pk_of(row.key)))
            return test.on_document(document)
        except KeyError:
            # Written before the column was declared: the form in which the record would be stored now is tested.
            return test.on_object(object_of(self._context, seen.view.live[self.schema.collection], row))


class UpdateAction(_QueryAction):
    """Change fields of the records of a query; ``changes`` contains values and terms by field name."""

    def __init__(self, writer: ChangeBuilder, query: Query, changes: Mapping[str, Any]) -> None:
        super().__init__(writer, query)
        self._changes = changes

    def step(self, seen: AttemptState, item: FoundRecord) -> PlannedChange | None:
        """Return the change of the record; None if it no longer satisfies the query."""
        found = self._row(seen, item)
        if found is None:
            return None
        row, held = found
        instance = object_of(self._context, seen.view.live[self.schema.collection], row)
        apply_changes(self.schema.variant_of(instance), instance, self._changes)
        changed = self._writer.first(instance, held if self.schema.time_fields else None)
        if changed.pk != item.pk:
            loaded, message = self._layout.unpack(item.pk), "a change of a record changed its primary key"
            raise key_changed(message, self.schema, loaded, changed.key_values)
        return self._writer.store(changed, seen, row)


class RemoveAction(_QueryAction):
    """Delete the records of a query."""

    def step(self, seen: AttemptState, item: FoundRecord) -> PlannedChange | None:
        """Return the removal; None if the record no longer satisfies the query."""
        found = self._row(seen, item)
        return None if found is None else self._writer.remove(seen, item.pk, found[0])


class _Resumption:
    """A bulk write that begins, is resumed, or returns its stored result.

    In the order of the primary key, the position is stored with each batch. Otherwise the primary keys are stored
    first, and each is removed in the commit that handles its record.
    """

    def __init__(
        self,
        context: Context,
        query: Query,
        work: BulkAction[FoundRecord],
        options: BulkOptions,
        progress: StoredProgress,
    ) -> None:
        self._context = context
        self._query = query
        self._options = options
        self._progress = progress
        self._opened: KeySource | None = None
        self._run: BulkRun[FoundRecord] = BulkRun(context, work, options, progress=progress)

    def carried_out(self) -> Flow[BulkResult]:
        progress = self._progress
        with self._run.noting():
            progress.resumed = (yield from progress.load()) is not None
            while True:
                state = progress.state
                if state is None:
                    source = KeySource(self._context, self._query)
                    yield from source.open()
                    phase: Phase = "walk" if in_key_order(source.plan) else "collect"
                    if phase == "walk" and self._options.progress is not None:
                        self._run.total = yield from _number_of(self._context, self._query, source.plan)
                    if (yield from progress.begin(phase)):
                        self._opened = source
                elif state.phase == "walk":
                    yield from self._walk(state)
                elif state.phase == "collect":
                    yield from self._collect(state)
                elif state.phase == "write":
                    yield from self._run.resume(_StoredKeySource(progress.prefix("key")))
                else:
                    return (yield from progress.result())

    def _source(self) -> Flow[KeySource]:
        """Return the results from the beginning; already read if this process has just begun."""
        source, self._opened = self._opened, None
        if source is None:
            source = KeySource(self._context, self._query)
            yield from source.open()
        return source

    def _walk(self, state: BulkState) -> Flow[None]:
        progress, source = self._progress, KeySource(self._context, self._query)
        if state.cursor:
            try:
                yield from source.open_behind(state.cursor)
            except _NO_SUCH_PLACE:
                yield from source.open_behind_key(state.last, state.order)
        else:
            source = yield from self._source()
            if not in_key_order(source.plan):
                yield from progress.save(progress.restarted(state)._replace(phase="collect"))
                return
        source.dealt_with(state.matched)
        yield from self._run.resume(source)

    def _collect(self, state: BulkState) -> Flow[None]:
        progress, source = self._progress, KeySource(self._context, self._query)
        try:
            if state.cursor:
                yield from source.open_behind(state.cursor)
            elif state.collected:
                # Results that are sorted in memory have no position to resume from.
                yield from progress.save(progress.restarted(state))
                return
            else:
                source = yield from self._source()
        except _NO_SUCH_PLACE:
            if not state.cursor:
                raise
            yield from progress.save(progress.restarted(state))
            return
        source.dealt_with(state.collected)
        size = COLLECTED_AT_ONCE
        more = True
        while more:
            found = yield from source.take(size)
            source.dealt_with(len(found))
            more = not source.finished
            try:
                if not (yield from progress.collect(found, more=more)):
                    return
            except LimitExceededError:
                if len(found) < 2:
                    raise
                source.dealt_with(-len(found))
                source.give_back(found)
                size, more = len(found) // 2, True
                continue
            if self._options.progress is not None:
                self._options.progress(progress.so_far())


class _StoredKeySource(Source[FoundRecord]):
    """A source of stored primary keys; each is removed in the commit that handles its record."""

    def __init__(self, prefix: bytes) -> None:
        super().__init__()
        self._prefix = prefix
        self._next = prefix

    def _fill(self) -> Flow[None]:
        if not self._found:
            span = ReadRange(self._next, after_prefix(self._prefix), COLLECTED_AT_ONCE, keys_only=True)
            rows = (yield from read((span,))).ranges[0]
            self._found.extend(FoundRecord(row.key[len(self._prefix) :]) for row in rows)
            if rows:
                self._next = key_successor(rows[-1].key)


def _digest(context: Context, query: Query, changes: Mapping[str, Any] | None, on_error: str) -> bytes:
    """Return a digest of the write that is equal in every process. Raises InvalidValueError."""
    schema = query.schema
    described = [
        schema.collection,
        [digest(schema, predicate) for predicate in query.where],
        [[field, descending] for field, descending in query.directions] + [[field, "nulls"] for field in query.placed],
        query.reverse,
        [query.start, query.stop],
        None
        if changes is None
        else [[name, _described(context, schema, name, changes[name])] for name in sorted(changes)],
        on_error,
    ]
    return sha256(msgpack.packb(described)).digest()


def _described(context: Context, schema: ModelSchema, name: str, value: Any) -> list[Any]:
    """Return a new value for the digest; of an encrypted field a blind value, because others can try the digest."""
    described = _plainly_described(context, schema, name, value)
    if name not in schema.encrypted or schema.sealer is None:
        return described
    return ["blind", schema.sealer.blind_digest(name, msgpack.packb(described))]


def _plainly_described(context: Context, schema: ModelSchema, name: str, value: Any) -> list[Any]:
    if isinstance(value, Term):
        return ["term", repr(value)]
    try:
        encode = schema.fields[name].encode if name in schema.fields else None
        return [*context.codec.encode(value if encode is None or value is None else encode(value))]
    except (InvalidValueError, TypeError, ValueError, AttributeError, LookupError):
        # The model may convert it to a valid value, in its own way; its text is used for the digest.
        return ["text", repr(value)]
