"""One batch of a migration: records of an older schema version, written as the declared version stores them.

Rules of this module: a batch is one commit that checks the header, its progress row and every record that it
rewrites. A record goes through the write compiler, from the document as it is stored to the one that the upgrades
give, so its entries move with it. What cannot be rewritten is listed and passed over, so that one record stops nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import migration_key, unmigrated_prefix
from kvmodels.core.keys import key_successor
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
from kvmodels.errors import CommitUnknownError, DecodeError, KvModelsError, LimitExceededError
from kvmodels.flows.context import Context, HeaderView, writable_collection
from kvmodels.flows.effects import Flow, commit, now, read
from kvmodels.flows.evolution.build_batch import compile_changes
from kvmodels.flows.hydration.rows import cause_of, document_of, object_of
from kvmodels.flows.split_reads import read_all, rows_at_once
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.changes import Misfit, RecordChange
from kvmodels.indexing.entries import misfit
from kvmodels.schema.compile.columns import failed_function
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.instances import set_state, state_of

SETTLED_AT_ONCE: Final = 100


class Migration(NamedTuple):
    """The progress row of a migration.

    Attributes:
        version: the schema version that it leads to.
        forget: fields that it takes out of the records.
        cursor: the last record key that was dealt with, empty at the start.
        scanned: records that were passed.
        written: records that were rewritten.
    """

    version: int
    forget: tuple[str, ...]
    cursor: bytes = b""
    scanned: int = 0
    written: int = 0

    def to_value(self) -> dict[str, Any]:
        """The value of the progress row."""
        return {**self._asdict(), "forget": list(self.forget)}

    @classmethod
    def from_value(cls, value: Any) -> Migration:
        """The reverse of ``to_value``."""
        return cls(value["version"], tuple(value["forget"]), value["cursor"], value["scanned"], value["written"])

    def has_aim_of(self, other: Migration) -> bool:
        """Whether both lead to the same."""
        return (self.version, self.forget) == (other.version, other.forget)


class MigrationBatch(NamedTuple):
    """How one batch went.

    Attributes:
        migration: as it is stored now, as far as this process knows; None when its row is gone or has another aim.
        passed: records that this process has committed.
        written: records of them that were rewritten.
        finished: no record is left.
        too_large: nothing was sent, because one operation cannot take so many records.
    """

    migration: Migration | None
    passed: int = 0
    written: int = 0
    finished: bool = False
    too_large: bool = False


def migrate_batch(context: Context, schema: ModelSchema, migration: Migration, size: int) -> Flow[MigrationBatch]:
    """Migrate the next ``size`` records behind the stored cursor (``migration`` is what this process believes).

    Raises:
        SchemaMismatchError: this process may not write the collection, since a newer release was brought up.
    """
    view, live = yield from writable_collection(context, schema)
    progress_key = migration_key(schema.collection)
    start = key_successor(migration.cursor) if migration.cursor else live.layout.prefix
    span = ReadRange(start, after_prefix(live.layout.prefix), rows_at_once(context.limits, size, beside=2))
    result = yield from read((point(progress_key), span), view.guard, include_expired=True)
    if isinstance(result, GuardFailed):
        context.view = None
        return MigrationBatch(migration)
    progress_rows, rows = result.ranges
    if not progress_rows:
        return MigrationBatch(None)
    row = progress_rows[0]
    stored = Migration.from_value(context.codec.decode(row.value, row.encoding, progress_key))
    if not stored.has_aim_of(migration):
        return MigrationBatch(None)
    if stored.cursor != migration.cursor:
        return MigrationBatch(stored)
    if not rows:
        return MigrationBatch(stored, finished=True)
    batch = _Batch(context, view, live, migration)
    batch.check(progress_check(progress_key, row))
    try:
        return (yield from _advanced(batch, stored, rows))
    except LimitExceededError:
        if len(rows) > 1:
            return MigrationBatch(stored, too_large=True)
    alone = batch.anew()
    alone.check(progress_check(progress_key, row))
    alone.give_up(rows[0], Misfit("too_long"))
    return (yield from _commit(alone, stored, rows))


def progress_check(key: bytes, row: Row) -> Check | None:
    """R5: a batch is committed only if no other has passed the same records."""
    return Check(key, row.versionstamp, physical=True)


def _advanced(batch: _Batch, stored: Migration, rows: Sequence[Row]) -> Flow[MigrationBatch]:
    batch.now_ms = yield from now()
    changes: list[RecordChange] = []
    for row in rows:
        change = batch.rewritten(row)
        if isinstance(change, RecordChange):
            changes.append(change)
        elif change is not None:
            batch.give_up(row, change)
    if not (yield from batch.compile(changes, listed=False)):
        return MigrationBatch(stored)
    return (yield from _commit(batch, stored, rows))


def _commit(batch: _Batch, stored: Migration, rows: Sequence[Row]) -> Flow[MigrationBatch]:
    moved = stored._replace(
        cursor=rows[-1].key, scanned=stored.scanned + len(rows), written=stored.written + batch.written
    )
    batch.set(migration_key(batch.live.schema.collection), moved.to_value(), None)
    if not (yield from batch.commit()):
        return MigrationBatch(stored)
    return MigrationBatch(moved, len(rows), batch.written)


class _Batch:
    """The checks and mutations of one commit."""

    def __init__(self, context: Context, view: HeaderView, live: LiveCollection, aim: Migration) -> None:
        self._context = context
        self._view = view
        self._aim = aim
        self._checks: list[Check] = []
        self._mutations: list[Mutation] = []
        self.live = live
        self.now_ms = 0
        self.written = 0

    def anew(self) -> _Batch:
        """An empty one under the same header."""
        batch = _Batch(self._context, self._view, self.live, self._aim)
        batch.now_ms = self.now_ms
        return batch

    def check(self, check: Check | None) -> None:
        if check is not None:
            self._checks.append(check)

    def set(self, key: bytes, value: Any, expire_at: int | None) -> None:
        self._mutations.append(Set(key, *self._context.codec.encode(value), expire_at))

    def delete(self, key: bytes) -> None:
        self._mutations.append(Delete(key))

    def records(self, keys: Sequence[bytes]) -> Flow[list[list[Row]]]:
        """The rows of some records; each is checked by the commit."""
        found = yield from read_all(self._context.limits, [point(key) for key in keys])
        assert found is not None, "there is no guard"
        return found

    def listing(self, pk: bytes) -> bytes:
        """The key under which a record is listed that cannot be rewritten."""
        return unmigrated_prefix(self.live.schema.collection) + pk

    def give_up(self, row: Row, why: Misfit) -> None:
        """List a record that cannot be rewritten as it is now."""
        self.check(rules.listing_check(row))
        self.set(self.listing(self.live.layout.pk_of(row.key)), why.to_value(), row.expire_at)

    def rewritten(self, row: Row) -> RecordChange | Misfit | None:
        """The change that rewrites a record; why it cannot be; None when it is as it should be."""
        live, context = self.live, self._context
        # A key that is none of a record has no primary key to list it by; a check reports it as foreign.
        if rules.is_expired(row, self.now_ms) or not live.layout.is_record_key(row.key):
            return None
        pk = live.layout.pk_of(row.key)
        try:
            held = document_of(context, row)
        except DecodeError as error:
            return Misfit("not_decodable", cause_of(error))
        if version_of(held) >= self._aim.version and held.keys().isdisjoint(self._aim.forget):
            return None
        made = remade(context, live, row, self._aim.forget)
        if isinstance(made, Misfit):
            return made
        return RecordChange(live, pk, row, held, *made, row.expire_at, tolerant=True)

    def compile(self, changes: Sequence[RecordChange], *, listed: bool) -> Flow[bool]:
        """Take in what rewrites records; False after a conflict. A unique value that is taken leaves one out.

        Args:
            listed: the records are on the list already: those that are rewritten leave it.
        """
        changes = list(changes)
        while True:
            compiled = yield from compile_changes(self._context, self._view, changes, self.now_ms)
            if compiled is None:
                return False
            if isinstance(compiled, AtomicWrite):
                break
            refused = compiled.change
            changes = [change for change in changes if change.pk != refused.pk]
            if not listed:
                assert refused.old is not None
                self.give_up(refused.old, Misfit("duplicate", compiled.index.stored.name))
        check_budget(compiled, self._context.limits, (self.live,))
        self._checks += compiled.checks
        self._mutations += compiled.mutations
        self.written += len(changes)
        for change in changes if listed else ():
            self.delete(self.listing(change.pk))
        return True

    def commit(self) -> Flow[bool]:
        """Whether the commit is known to be applied; the stored progress tells after a lost answer."""
        write = AtomicWrite(tuple(self._checks), tuple(self._mutations))
        check_budget(write, self._context.limits, (self.live,))
        try:
            outcome = yield from commit(write)
        except CommitUnknownError:
            self._context.view = None
            return False
        if not isinstance(outcome, Committed):
            self._context.view = None
        return isinstance(outcome, Committed)


def remade(
    context: Context, live: LiveCollection, row: Row, forget: Iterable[str] = ()
) -> tuple[Document, bytes, int] | Misfit:
    """What a record becomes when it is written as its model has it, with its bytes; or why it cannot be."""
    try:
        document = live.schema.prepare(_forgetful(object_of(context, live, row), forget)).document
        value, encoding = context.codec.encode_document(document)
    except DecodeError as error:
        return Misfit("not_decodable", cause_of(error))
    except ValidationError as error:
        return Misfit("not_encodable", cause_of(error))
    except KvModelsError as error:
        failed = failed_function(error)
        return Misfit("not_encodable", cause_of(error)) if failed is None else Misfit("key_function", failed)
    # Of complete indexes only: one that is being built lists by itself what it cannot hold.
    pk, limit = live.layout.pk_of(row.key), context.limits.max_key_bytes
    for index in live.maintained:
        kind = misfit(index, document, pk, limit, row.expire_at) if index.readable else None
        if kind is not None:
            return Misfit(kind, index.stored.name)
    return Misfit("too_long") if len(value) > context.limits.max_value_bytes else (document, value, encoding)


def _forgetful(instance: Any, names: Iterable[str]) -> Any:
    """The object without values that its class does not declare and that are to be forgotten."""
    state, extra = state_of(instance), instance.__pydantic_extra__
    assert state is not None, "it was read"
    set_state(
        instance,
        replace(state, unknown={name: value for name, value in state.unknown.items() if name not in names}),
    )
    for name in names:
        if extra is not None:
            extra.pop(name, None)
    return instance


class Settled(NamedTuple):
    """How many records left the list of those that cannot be rewritten, and how many commits met a conflict."""

    records: int
    conflicts: int = 0


def settle_unmigrated(context: Context, schema: ModelSchema, aim: Migration) -> Flow[Settled]:
    """Look at every listed record once more: rewrite it if that is possible by now, or take it off the list.

    A value that one record gives up may be free for another, so ask again until nothing is settled.
    """
    prefix = unmigrated_prefix(schema.collection)
    start, settled = prefix, Settled(0)
    while True:
        view, live = yield from writable_collection(context, schema)
        span = ReadRange(start, after_prefix(prefix), SETTLED_AT_ONCE)
        result = yield from read((span,), view.guard)
        if isinstance(result, GuardFailed):
            context.view = None
            continue
        listed = result.ranges[0]
        if not listed:
            return settled
        start = key_successor(listed[-1].key)
        some = yield from _settle(_Batch(context, view, live, aim), listed)
        settled = Settled(settled.records + some.records, settled.conflicts + some.conflicts)


def _settle(batch: _Batch, listed: Sequence[Row]) -> Flow[Settled]:
    """Deal with some of the list in one commit; one by one when that is too large."""
    layout, prefix = batch.live.layout, unmigrated_prefix(batch.live.schema.collection)
    keys = [layout.key(row.key[len(prefix) :]) for row in listed]
    records = yield from batch.records(keys)
    batch.now_ms = yield from now()
    changes: list[RecordChange] = []
    gone = 0
    for row, key, rows in zip(listed, keys, records, strict=True):
        change = batch.rewritten(rows[0]) if rows else None
        if isinstance(change, Misfit):
            continue
        batch.check(Check(row.key, row.versionstamp, physical=True))
        if change is not None:
            changes.append(change)
            continue
        gone += 1
        batch.check(Check(key, rows[0].versionstamp if rows else None, physical=bool(rows)))
        batch.delete(row.key)
    try:
        if not (yield from batch.compile(changes, listed=True)):
            return Settled(0, conflicts=1)
        if batch.written + gone == 0:
            return Settled(0)
        return Settled(batch.written + gone) if (yield from batch.commit()) else Settled(0, conflicts=1)
    except LimitExceededError:
        if len(listed) == 1:
            return Settled(0)
    one_by_one: list[Settled] = []
    for row in listed:
        alone = yield from _settle(batch.anew(), (row,))
        one_by_one.append(alone)
    return Settled(sum(one.records for one in one_by_one), sum(one.conflicts for one in one_by_one))
