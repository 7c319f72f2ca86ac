"""A bulk write that survives its process: begun, gone on with and repeated under one id.

Either the records are walked in the order of the primary key, and the place is noted with each batch; or their primary
keys are stored first, in the order of no index, and each is removed in the very commit that deals with its record.

Objects that the caller gives are gone through in his order, and the place in his list is noted with each batch.

Rules of this module: what to do next is decided by the stored state alone, which is read again whenever another
process has moved it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgpack

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadRange, after_prefix
from kvmodels.errors import (
    IndexChangedError,
    IndexNotReadyError,
    InvalidCursorError,
    InvalidValueError,
    LimitExceededError,
    NoUsableIndexError,
)
from kvmodels.flows.bulk.batch import Work
from kvmodels.flows.bulk.keys import Found, KeySource, in_key_order
from kvmodels.flows.bulk.progress import BulkState, Listable, StoredProgress
from kvmodels.flows.bulk.results import BulkResult
from kvmodels.flows.bulk.run import BulkOptions, BulkRun, Listed
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read
from kvmodels.query.plans import digest
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.changes import Term

T = TypeVar("T", bound=Listable)

COLLECTED_AT_ONCE: Final = 500

_NO_SUCH_PLACE: Final = (IndexChangedError, IndexNotReadyError, NoUsableIndexError, InvalidCursorError)
"""The index by which the place was noted is another one by now, or none."""


def resumable(
    context: Context, query: Query, work: Work[Found], options: BulkOptions, changes: Mapping[str, Any] | None
) -> Flow[BulkResult]:
    """Begin a bulk write, or go on with it, or tell its result once more.

    Raises:
        InvalidArgumentError: the id belongs to a bulk write with other arguments, or was forgotten meanwhile.
        RetriesExhaustedError: others were faster every time.
        Whatever a record raises, unless failures are collected.

    Cost: of a walk nothing besides one more key in each commit; otherwise each key is stored and removed too.
    """
    assert options.resume_id is not None, "callers saw to it"
    layout = context.layouts[query.schema.collection]
    progress = StoredProgress(context, layout, options.resume_id, _digest(context, query, changes, options.on_error))
    resumption = _Resumption(context, query, work, options, progress)
    try:
        return (yield from resumption.carried_out())
    except Exception as error:
        resumption.run.annotate(error)
        raise


def resumable_list(
    context: Context, work: Work[T], items: Sequence[T], options: BulkOptions, described: bytes
) -> Flow[BulkResult]:
    """Begin to write objects of the caller, or go on behind those that are written, or tell the result once more.

    Args:
        context: shared by the flows of the database.
        work: what is done to each.
        items: all the objects, the same ones in every run.
        options: with a ``resume_id``.
        described: of ``list_digest``.

    Raises: as ``resumable``.

    Cost: one more key in each commit, a read of it, a commit at the beginning and one at the end.
    """
    assert options.resume_id is not None, "callers saw to it"
    progress = StoredProgress(context, context.layouts[work.schema.collection], options.resume_id, described)
    run: BulkRun[T] = BulkRun(context, work, options, ledger=progress)
    try:
        progress.resumed = (yield from progress.load()) is not None
        while True:
            state = progress.state
            if state is None:
                yield from progress.begin("list")
            elif state.phase == "done":
                return (yield from progress.result())
            elif (yield from run.write(Listed(items[state.position :]))):
                yield from progress.finish()
            else:
                yield from progress.overtaken()
    except Exception as error:
        run.annotate(error)
        raise


class _Resumption:
    def __init__(
        self,
        context: Context,
        query: Query,
        work: Work[Found],
        options: BulkOptions,
        progress: StoredProgress,
    ) -> None:
        self._context = context
        self._query = query
        self._options = options
        self._progress = progress
        self._opened: KeySource | None = None
        self.run: BulkRun[Found] = BulkRun(context, work, options, ledger=progress)

    def carried_out(self) -> Flow[BulkResult]:
        progress = self._progress
        progress.resumed = (yield from progress.load()) is not None
        while True:
            state = progress.state
            if state is None:
                source = KeySource(self._context, self._query)
                yield from source.open()
                if (yield from progress.begin("walk" if in_key_order(source.plan) else "collect")):
                    self._opened = source
            elif state.phase == "walk":
                yield from self._walk(state)
            elif state.phase == "collect":
                yield from self._collect(state)
            elif state.phase == "write":
                yield from self._write()
            else:
                return (yield from progress.result())

    def _source(self) -> Flow[KeySource]:
        """The results from the first one on; read already, if this process has just begun."""
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
        if (yield from self.run.write(source)):
            yield from progress.finish()
        else:
            yield from progress.overtaken()

    def _collect(self, state: BulkState) -> Flow[None]:
        progress, source = self._progress, KeySource(self._context, self._query)
        try:
            if state.cursor:
                yield from source.open_behind(state.cursor)
            elif state.collected:
                # What is sorted in memory has no place to go on from.
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

    def _write(self) -> Flow[None]:
        if (yield from self.run.write(_StoredKeys(self._progress.prefix("key")))):
            yield from self._progress.finish()
        else:
            yield from self._progress.overtaken()


class _StoredKeys:
    """Primary keys that were stored; each is removed in the commit that deals with its record."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._next = prefix
        self._found: deque[Found] = deque()

    def take(self, size: int) -> Flow[list[Found]]:
        """The next records, at most ``size``; none at the end."""
        if not self._found:
            span = ReadRange(self._next, after_prefix(self._prefix), COLLECTED_AT_ONCE, keys_only=True)
            rows = (yield from read((span,))).ranges[0]
            self._found.extend(Found(row.key[len(self._prefix) :]) for row in rows)
            if rows:
                self._next = key_successor(rows[-1].key)
        return [self._found.popleft() for _ in range(min(size, len(self._found)))]

    def give_back(self, items: Sequence[Found]) -> None:
        """Records that were taken and not dealt with come first again."""
        self._found.extendleft(reversed(items))

    def dealt_with(self, matched: int) -> None:
        """So many of the records counted; a slice was cut when they were collected."""


def _digest(context: Context, query: Query, changes: Mapping[str, Any] | None, on_error: str) -> bytes:
    """What is done, as bytes that are equal in every process. Raises InvalidValueError: an operand has no such form."""
    schema = query.schema
    described = [
        schema.collection,
        [digest(schema, predicate) for predicate in query.where],
        [[field, descending] for field, descending in query.directions],
        query.reverse,
        [query.start, query.stop],
        None
        if changes is None
        else [[name, _described(context, schema, name, changes[name])] for name in sorted(changes)],
        on_error,
    ]
    return sha256(msgpack.packb(described)).digest()


def _described(context: Context, schema: ModelSchema, name: str, value: Any) -> list[Any]:
    if isinstance(value, Term):
        return ["term", repr(value)]
    try:
        encode = schema.fields[name].encode if name in schema.fields else None
        return [*context.codec.encode(value if encode is None or value is None else encode(value))]
    except (InvalidValueError, TypeError, ValueError, AttributeError, LookupError):
        # The model may make a valid value of it, in its own way; the text of it has to do.
        return ["text", repr(value)]
