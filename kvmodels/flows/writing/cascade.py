"""Removals of records that others refer to: the changes of the others, with their hooks and validators.

Rules of this module: nothing is committed here. The changes belong to the commit of the removal, and their errors
refuse it. A transaction reads with its own writes; a single write reads the store under the guard of the header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kvmodels.core.operations import ReadRange, Row
from kvmodels.errors import DecodeError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, now
from kvmodels.flows.hydration.rows import document_of, object_of, shown_key
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder, PlannedChange, stored
from kvmodels.flows.writing.operation import AttemptState, Proposal, always
from kvmodels.indexing.cascades import CascadedRecord, CascadeSearch, StaleEntry, cascading_removals
from kvmodels.indexing.entries import NeedRows, RecordChange
from kvmodels.indexing.references import Entries
from kvmodels.schema.compile.record_codec import apply_changes

RowReader: TypeAlias = "Callable[[Sequence[bytes]], Flow[dict[bytes, Row | None] | None]]"
"""Returns the physical rows of keys; None if the header has changed."""

EntryReader: TypeAlias = "Callable[[Mapping[bytes, ReadRange]], Flow[Entries | None]]"
"""Returns the entries of ranges by their first keys; None if the header has changed."""

FIRST_ENTRIES: Final = 100
"""How many entries of each range are read at first, so that most removals read all ranges in one request."""

Failed: TypeAlias = Callable[[RecordChange, Exception], None]
"""Called with the removal of the caller, and the error of a hook or validator of a record that changes with it."""


class Cascaded(NamedTuple):
    """The changes that belong to the removals of one write.

    Attributes:
        steps: one for each changed record.
        roots: for the key of each changed record, the removal that led to it.
        seen: the state on which the changes are based, with all rows that were read.
        found: the entries that refer to removed targets.
        guards: the keys of the guards of the removed targets.
    """

    steps: Sequence[PlannedChange]
    roots: Mapping[bytes, RecordChange]
    seen: AttemptState
    found: Entries
    guards: Sequence[bytes]

    def of(self, proposal: Proposal[Any]) -> Proposal[Any]:
        """Return the proposal with these changes added."""
        changes = (*proposal.changes, *(step.change for step in self.steps))
        done = partial(_done, proposal.done, self.steps)
        return proposal._replace(changes=changes, done=done, after=(*proposal.after, *self._after))

    def alone(self) -> Proposal[None]:
        """Return a proposal of these changes."""
        changes = tuple(step.change for step in self.steps)
        return Proposal(changes, partial(_done, always(None), self.steps), always(None), None, self._after)

    @property
    def _after(self) -> tuple[Callable[[], object], ...]:
        return tuple(call for step in self.steps for call in step.after)


def _done(first: Callable[[bytes], Any], steps: Iterable[PlannedChange], versionstamp: bytes) -> Any:
    result = first(versionstamp)
    for step in steps:
        if step.item is not None and step.after:  # a hook gets the object
            stored(step.item, step.change, versionstamp)
    return result


class Cascade:
    """The search for the records that change with the removals of one write, in one attempt.

    Args:
        rows: reads rows.
        entries: reads entries; always after the guards of their targets.
        failed: is called before an error of a hook or validator is raised.
    """

    def __init__(self, context: Context, rows: RowReader, entries: EntryReader, failed: Failed) -> None:
        self._context = context
        self._rows = rows
        self._entries = entries
        self._failed = failed
        self._writers: dict[str, ChangeBuilder] = {}
        self._steps: dict[bytes, tuple[CascadedRecord, PlannedChange]] = {}
        self.keys: set[bytes] = set()
        """The keys of all rows that were read besides those of the write itself."""

    def expanded(self, proposal: Proposal[Any], seen: AttemptState) -> Flow[Cascaded | StaleEntry | None]:
        """Return the changes that belong to the removals of a write; None if the header has changed."""
        removals = cascading_removals(proposal.changes, seen.view.live)
        rows: dict[bytes, Row | None] = dict(seen.rows or {})
        found: dict[bytes, Sequence[Row]] = {}
        now_ms = seen.now_ms
        while True:
            more = CascadeSearch(
                removals,
                seen.view.live,
                rows,
                found,
                codec=self._context.codec,
                now_ms=now_ms,
                limits=self._context.limits,
            ).result()
            if isinstance(more, StaleEntry):
                yield from self._require_undamaged(more)
                return more
            if not isinstance(more, NeedRows):
                break
            if more.keys:
                read = yield from self._rows(sorted(more.keys))
                if read is None:
                    return None
                self.keys |= more.keys
                rows |= read
                if not now_ms and any(row is not None and row.expire_at is not None for row in read.values()):
                    now_ms = yield from now()
            else:
                entries = yield from self._read_entries(more.spans)
                if entries is None:
                    return None
                found |= entries
        state = AttemptState(seen.view, rows, now_ms)
        steps = yield from self._planned(more.records, state)
        roots = {step.change.key: record.root for step, record in zip(steps, more.records, strict=True)}
        return Cascaded(steps, roots, state, found, more.guards)

    def _require_undamaged(self, stale: StaleEntry) -> Flow[None]:
        """Refuse an entry of no record, which no further attempt would find otherwise."""
        rows = yield from self._rows(sorted((stale.entry, stale.key)))
        now_ms = yield from now()
        if rows is not None and stale.is_damaged(rows, self._context.codec, now_ms):
            referrer = stale.referrer
            pk = referrer.records.pk_of(stale.key)
            raise DecodeError(
                "an entry of a foreign key names a record that does not refer to this one",
                model=referrer.collection,
                key=shown_key(referrer.records.unpack(pk)),
                field=referrer.field,
                hint="Another program wrote it, or the store is damaged: run db.check(repair=True).",
            )

    def _read_entries(self, spans: Mapping[bytes, ReadRange]) -> Flow[Entries | None]:
        """Return the entries of ranges: the first ones in one request, and the whole of a range that has more."""
        first = {start: span._replace(limit=min(FIRST_ENTRIES, span.limit or 0)) for start, span in spans.items()}
        found = yield from self._entries(first)
        if found is None:
            return None
        longer = {start: spans[start] for start, rows in found.items() if len(rows) == FIRST_ENTRIES}
        if not longer:
            return found
        more = yield from self._entries(longer)
        return None if more is None else {**found, **more}

    def _planned(self, records: Sequence[CascadedRecord], seen: AttemptState) -> Flow[list[PlannedChange]]:
        """Return the changes of records; hooks run once for each version of a record."""
        steps: dict[bytes, PlannedChange] = {}
        for record in records:
            key = record.row.key
            known = self._steps.get(key)
            if known is None or (known[0].row, known[0].fields) != (record.row, record.fields):
                writer = yield from self._writer(record)
                known = self._steps[key] = record, self._step(writer, record, seen)
            steps[key] = known[1]
        return [*steps.values()]

    def _step(self, writer: ChangeBuilder, record: CascadedRecord, seen: AttemptState) -> PlannedChange:
        try:
            return cascaded_change(writer, record.row, record.fields, seen)
        except Exception as error:  # user hooks and validators may raise anything
            self._failed(record.root, error)
            raise

    def _writer(self, record: CascadedRecord) -> Flow[ChangeBuilder]:
        schema = record.live.schema
        writer = self._writers.get(schema.collection)
        if writer is None:
            writer = self._writers[schema.collection] = ChangeBuilder(self._context, schema, KEEP)
            if schema.time_fields:
                writer.now_ms = yield from now()
        return writer


def cascaded_change(writer: ChangeBuilder, row: Row, fields: Sequence[str], seen: AttemptState) -> PlannedChange:
    """Return the removal of a record, or with fields the change that sets these foreign keys to None."""
    context, schema = writer.context, writer.schema
    live = seen.view.live[schema.collection]
    if not fields:
        return writer.remove(seen, live.layout.pk_of(row.key), row, unread=True)
    instance = object_of(context, live, row)
    apply_changes(schema.variant_of(instance), instance, dict.fromkeys(fields))
    changed = writer.first(instance, document_of(context, row) if schema.time_fields else None)
    return writer.store(changed, seen, row)
