"""One batch of an online build, and the resolution of its violations.

Rules of this module: a batch is one commit that checks the header, its progress row and every record it indexes.
Records that cannot be indexed are listed and passed over, so that one bad record stops nobody. A record is rewritten
only where it must be (``rules.must_touch``), and when it stores no value yet for a column or an included field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvmodels.catalog.catalogue import IndexState
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import build_key, violation_key
from kvmodels.core.keys import key_successor, skip_parts
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Delete,
    GuardFailed,
    Mutation,
    ReadRange,
    Row,
    Set,
    after_prefix,
    point,
)
from kvmodels.errors import CommitUnknownError, DecodeError, KvModelsError, OperationTooLargeError
from kvmodels.flows.context import Context, HeaderView, writable_collection
from kvmodels.flows.effects import Flow, commit, now, read
from kvmodels.flows.hydration.rows import StoredDocument, cause_of, document_of, is_incomplete, stored_of
from kvmodels.flows.split_reads import read_together, rows_at_once
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.changes import Compiled, Misfit, RecordChange, Violation
from kvmodels.indexing.compiler import compile_write
from kvmodels.indexing.entries import entry_value, misfit
from kvmodels.schema.compile.columns import failed_function
from kvmodels.schema.definition.definition import Document, ModelSchema

VIOLATIONS_AT_ONCE = 100


class Progress(NamedTuple):
    """The progress row: the last record key that was dealt with (empty at the start), and how many records were."""

    cursor: bytes
    scanned: int

    def to_value(self) -> dict[str, Any]:
        """The value of the progress row."""
        return {"cursor": self.cursor, "scanned": self.scanned}


class IndexBatch(NamedTuple):
    """How one batch went: where the next one begins, and whether this one was committed by this builder.

    ``too_large``: nothing was sent, because one operation cannot take so many records. ``total``: how many records the
    build has passed with this batch, those of other builders included.
    """

    cursor: bytes
    scanned: int
    committed: bool
    finished: bool
    too_large: bool = False
    total: int = 0


def build_batch(context: Context, schema: ModelSchema, index: LiveIndex, cursor: bytes, size: int) -> Flow[IndexBatch]:
    """Index the next ``size`` records behind the stored cursor (``cursor`` is what this builder believes it to be).

    Raises:
        SchemaMismatchError: this process may not write the collection, since another one began to build an index.
    """
    view, live = yield from writable_collection(context, schema)
    current = next((ix for ix in live.maintained if ix.stored == index.stored), None)
    if current is None or current.stored.state is not IndexState.WRITE_ONLY:
        return IndexBatch(cursor, 0, False, True)
    progress_key = build_key(schema.collection, index.stored.name, index.stored.generation)
    start = key_successor(cursor) if cursor else live.layout.prefix
    span = ReadRange(start, after_prefix(live.layout.prefix), rows_at_once(context.limits, size, beside=2))
    result = yield from read((point(progress_key), span), view.guard, include_expired=True)
    if isinstance(result, GuardFailed):
        context.view = None
        return IndexBatch(cursor, 0, False, False)
    progress_rows, rows = result.ranges
    if not progress_rows:
        context.view = None
        return IndexBatch(cursor, 0, False, False)
    value = context.codec.decode(progress_rows[0].value, progress_rows[0].encoding, progress_key)
    progress = Progress(value["cursor"], value["scanned"])
    if progress.cursor != cursor:
        return IndexBatch(progress.cursor, 0, False, False)
    if not rows:
        return IndexBatch(cursor, 0, False, True)
    moved = Progress(rows[-1].key, progress.scanned + len(rows))
    advance = (
        Check(progress_key, progress_rows[0].versionstamp, physical=True),
        Set(progress_key, *context.codec.encode(moved.to_value())),
    )
    try:
        committed = yield from _index_rows(context, live, current, view, rows, advance=advance)
    except OperationTooLargeError:
        if len(rows) > 1:
            return IndexBatch(cursor, 0, False, False, too_large=True)
        committed = yield from _list_alone(context, live, current, view, rows[0], advance=advance)
    return IndexBatch(moved.cursor if committed else cursor, len(rows), committed, False, total=moved.scanned)


def _index_rows(
    context: Context,
    live: LiveCollection,
    index: LiveIndex,
    view: HeaderView,
    rows: Sequence[Row],
    *,
    advance: tuple[Check, Mutation],
) -> Flow[bool]:
    """Commit the entries of these records together with the progress; False after a conflict."""
    now_ms = yield from now()
    fence = index.fence
    old = [row for row in rows if not rules.is_expired(row, now_ms) and (fence is None or row.versionstamp <= fence)]
    # A key that is none of a record has no primary key to list it by; a check reports it as foreign.
    old = [row for row in old if live.layout.is_record_key(row.key)]
    changes: list[RecordChange] = []
    checks, mutations = [advance[0]], [advance[1]]
    for row in old:
        change = _change(context, live, index, row)
        if isinstance(change, RecordChange):
            changes.append(change)
        else:
            pk = live.layout.pk_of(row.key)
            checks += _present(rules.listing_check(row))
            mutations.append(_listed(context, index, pk, change, row.expire_at))
    compiled, refused = yield from _compiled(context, view, changes, now_ms)
    if compiled is None:
        return False
    for violation in refused:
        # Written as its model has it today, the record would take a unique value of another index from its owner.
        change, why = violation.change, Misfit("duplicate", violation.index.stored.name)
        assert change.old is not None, "a build changes what it has read"
        checks += _present(rules.listing_check(change.old))
        mutations.append(_listed(context, index, change.pk, why, change.expire_at))
    write = AtomicWrite((*compiled.checks, *checks), (*compiled.mutations, *mutations))
    check_budget(write, context.limits, (live,))
    return (yield from _committed(context, write))


def _compiled(
    context: Context, view: HeaderView, changes: Sequence[RecordChange], now_ms: int
) -> Flow[tuple[AtomicWrite | None, list[Violation]]]:
    """The operation for all changes but those that a unique index refuses; none when a record changed meanwhile."""
    refused: list[Violation] = []
    while True:
        compiled = yield from compile_changes(context, view, changes, now_ms)
        if not isinstance(compiled, Violation):
            return compiled, refused
        refused.append(compiled)
        changes = [change for change in changes if change.pk != compiled.change.pk]


def _list_alone(
    context: Context,
    live: LiveCollection,
    index: LiveIndex,
    view: HeaderView,
    row: Row,
    *,
    advance: tuple[Check, Mutation],
) -> Flow[bool]:
    """Pass over a record that no operation can index, because its entries alone are over a limit of the engine."""
    listed = _listed(context, index, live.layout.pk_of(row.key), Misfit("too_many"), row.expire_at)
    checks = _present(rules.header_check(view.guard), rules.listing_check(row))
    return (yield from _committed(context, AtomicWrite((advance[0], *checks), (advance[1], listed))))


def _present(*checks: Check | None) -> tuple[Check, ...]:
    return tuple(check for check in checks if check is not None)


def _listed(context: Context, index: LiveIndex, pk: bytes, misfit: Misfit, expire_at: int | None) -> Set:
    """The violation row of a record that an index cannot hold."""
    return Set(violation_key(index.violations, None, pk), *context.codec.encode(misfit.to_value()), expire_at)


def _committed(context: Context, write: AtomicWrite) -> Flow[bool]:
    """Whether the commit is known to be applied; the stored progress tells after a lost answer."""
    try:
        outcome = yield from commit(write)
    except CommitUnknownError:
        context.view = None
        return False
    if isinstance(outcome, Committed):
        return True
    context.view = None
    return False


def _change(context: Context, live: LiveCollection, index: LiveIndex, row: Row) -> RecordChange | Misfit:
    """What indexes one record, or why that cannot be done."""
    pk = live.layout.pk_of(row.key)
    try:
        document = document_of(context, row)
        touched = rules.must_touch(index) or is_incomplete(index, document)
        made = _materialised(context, live, row, document) if touched else None
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    if isinstance(made, Misfit) and is_incomplete(index, document):
        return made
    # What only other indexes cannot hold is no obstacle here: the compiler lists it for them.
    stored, unmade = (None, made) if isinstance(made, Misfit) else (made, None)
    new_document, value, encoding, _ = stored or StoredDocument(document, row.value, row.encoding, document)
    kind = misfit(index, new_document, pk, context.limits.max_key_bytes, row.expire_at)
    if kind is not None:
        return Misfit(kind)
    if touched and len(value) > context.limits.max_value_bytes:
        return Misfit("too_long")  # with the columns that the record did not store yet
    change = RecordChange(
        live,
        pk,
        row,
        document,
        new_document,
        value,
        encoding,
        row.expire_at,
        only=None if touched else index,
        tolerant=True,
        unmade=unmade,
    )
    return Misfit("too_long") if _holds_too_much(context, index, change) else change


def _materialised(
    context: Context, live: LiveCollection, row: Row, document: Document
) -> StoredDocument | Misfit | None:
    """A record that is set anyway, with the values of every column of every index; None to set it as it is.

    Also those that other indexes need: their builds pass over the record from here on, because it is newer than their
    fences. A Misfit says why they cannot be made.
    """
    if not any(is_incomplete(other, document) for other in live.maintained):
        return None
    try:
        return stored_of(context, live, row)
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    except KvModelsError as error:
        failed = failed_function(error)
        return Misfit("not_encodable", cause_of(error)) if failed is None else Misfit("key_function", failed)


def _holds_too_much(context: Context, index: LiveIndex, change: RecordChange) -> bool:
    """Whether a unique slot would hold more than the record: with the primary key, which the record has in its key."""
    if not (index.definition.include and index.definition.unique):
        return False
    return len(entry_value(context.codec, index.layout, True, change)[0]) > context.limits.max_value_bytes


def compile_changes(
    context: Context, view: HeaderView, changes: Sequence[RecordChange], now_ms: int
) -> Flow[AtomicWrite | Violation | None]:
    """Compile with the slots as they were at one moment with the records; None when a record or the header changed."""
    rows: dict[bytes, Row | None] = {change.key: change.old for change in changes}
    keys = set(rows)
    while True:
        compiled = compile_write(
            changes,
            rows,
            header=view.guard,
            codec=context.codec,
            now_ms=now_ms,
            max_key_bytes=context.limits.max_key_bytes,
        )
        if isinstance(compiled, Compiled):
            return compiled.write
        if isinstance(compiled, Violation):
            return compiled
        keys |= compiled.keys
        wanted = sorted(keys)
        found = yield from read_together(context.limits, wanted, view.guard)
        if found is None:
            context.view = None
            return None
        rows = found
        if any(rows[change.key] != change.old for change in changes):
            return None


def resolve_violations(context: Context, schema: ModelSchema, index: LiveIndex) -> Flow[None]:
    """Look at every violation row once more: take the slot if it is free by now, drop the row if it is out of date."""
    start = index.violations
    while True:
        view, _ = yield from writable_collection(context, schema)
        span = ReadRange(start, after_prefix(index.violations), VIOLATIONS_AT_ONCE)
        result = yield from read((span,), view.guard)
        if isinstance(result, GuardFailed):
            context.view = None
            return
        rows = result.ranges[0]
        if not rows:
            return
        for row in rows:
            yield from _resolve(context, schema, index, view, row)
        start = key_successor(rows[-1].key)


def _resolve(context: Context, schema: ModelSchema, index: LiveIndex, view: HeaderView, violation: Row) -> Flow[None]:
    live = view.live[schema.collection]
    current = next((ix for ix in live.maintained if ix.stored == index.stored), None)
    if current is None:
        return
    rest = violation.key[len(index.violations) :]
    key = live.layout.key(rest[skip_parts(rest, 1) :])
    result = yield from read((point(key),), view.guard)
    if isinstance(result, GuardFailed):
        context.view = None
        return
    seen = Check(violation.key, violation.versionstamp, physical=True)
    if not result.ranges[0]:
        write = AtomicWrite((Check(key, None), seen), (Delete(violation.key),))
        yield from _committed(context, write)
        return
    change = _change(context, live, current, result.ranges[0][0])
    if not isinstance(change, RecordChange):
        anew = _listed(context, current, rest[skip_parts(rest, 1) :], change, result.ranges[0][0].expire_at)
        if anew.key == violation.key and (anew.value, anew.encoding) != (violation.value, violation.encoding):
            # Another reason than before, for example of another release of a function.
            unchanged = _present(rules.listing_check(result.ranges[0][0]))
            yield from _committed(context, AtomicWrite((*unchanged, seen), (anew,)))
        return
    # Every entry, whatever the fence says: that the violation is listed means that they are not there.
    change = change._replace(rewrite=True)
    compiled = yield from compile_changes(context, view, (change,), (yield from now()))
    if not isinstance(compiled, AtomicWrite):
        return
    gone = () if any(mutation.key == violation.key for mutation in compiled.mutations) else (Delete(violation.key),)
    checks = {check.key: check for check in (*compiled.checks, seen)}
    write = AtomicWrite(tuple(checks.values()), (*compiled.mutations, *gone))
    try:
        check_budget(write, context.limits, (live,))
    except OperationTooLargeError:
        return  # it stays listed until it has fewer values
    yield from _committed(context, write)
