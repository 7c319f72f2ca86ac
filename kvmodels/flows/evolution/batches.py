"""Batches of records that an index build or a migration writes: one commit each, next to live readers and writers.

A batch checks the header, the progress row and every record that it writes, and advances the progress row. So a second
delivery, or another process at the same position, is refused. A record that cannot be written is listed with the reason
and skipped, so that it does not stop the others.

Rules of this module: the write compiler writes all records. After a lost answer, the stored progress shows whether the
batch was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

from pydantic import ValidationError

from kvmodels._support.naming import show_public_path
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.core.operations import AtomicWrite, Check, Committed, Mutation, Row, Set, point
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import CommitUnknownError, DecodeError, KvModelsError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow, commit, read, read_together
from kvmodels.flows.hydration.rows import cause_of, shown_key
from kvmodels.flows.references import anchor, busy_targets, read_neighbours
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.built_entries import BuiltEntries, EntryBuilder
from kvmodels.indexing.compiler import NO_NEIGHBOURS, compile_write
from kvmodels.indexing.entries import DUPLICATE, OVERLAP, Misfit, NeedRows, RecordChange, StaleRow, Violation
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.references import NO_TARGET, MissingTarget, RemainingReferrers
from kvmodels.indexing.versions import CommitMoment
from kvmodels.schema.compile.columns import failed_function

MANY_ENTRIES: Final = 200
"""From so many entries on, a batch that waits for a disk asks whether others write; its size depends on that."""


class IndexViolation(NamedTuple):
    """A record that an index cannot hold.

    Attributes:
        key: the primary key of the record.
        kind: the reason: ``duplicate``, ``overlap``, ``no_target``, ``too_long``, ``too_many``, ``not_encodable``,
            ``not_decodable``, ``key_function`` or ``expires``.
        reason: for ``key_function``, the type name of the exception; for ``duplicate``, the other index in which the
            record would take another record's value if it were rewritten, as in a migration; for ``overlap``, the
            primary key of the other record as text, or such another index; for ``no_target``, ``missing``,
            ``expires`` if the target has a deadline, or such another index; for a record that cannot be read or
            encoded, the field and the cause; otherwise None.
    """

    key: Annotated[Any, StoredAsJson]
    kind: str
    reason: str | None = None


def index_violation(context: Context, layout: RecordLayout, pk: bytes, listed: Row) -> IndexViolation:
    """Return a listed record that cannot be written; ``pk`` is part of the key of the listed row."""
    value = context.codec.decode(listed.value, listed.encoding, listed.key)
    return IndexViolation(shown_key(layout.unpack(pk)), value["kind"], value.get("reason"))


class RefusedChange(NamedTuple):
    """A change of a record that cannot be written: the record as it was read, and the reason."""

    row: Row
    why: Misfit


def _refused(refusal: Violation | MissingTarget) -> RefusedChange:
    """Return a change that another index refuses: it has no place for the record in the form of the present model."""
    row = refusal.change.old
    assert row is not None, "a batch changes what it has read"
    if isinstance(refusal, MissingTarget):
        return RefusedChange(row, Misfit(NO_TARGET, refusal.reference.layout.definition.name))
    kind = OVERLAP if maintenance_of(refusal.index).claims_by_value else DUPLICATE
    return RefusedChange(row, Misfit(kind, refusal.index.stored.name))


def misfit_of(error: KvModelsError | ValidationError) -> Misfit:
    """Return why a record cannot be written, by the error of reading it or of making its stored form."""
    if isinstance(error, DecodeError):
        return Misfit("not_decodable", cause_of(error))
    failed = None if isinstance(error, ValidationError) else failed_function(error)
    return Misfit("not_encodable", cause_of(error)) if failed is None else Misfit("key_function", failed)


class RecordBatch:
    """The checks and mutations of one commit. It begins with the check of the progress, if it advances any.

    Attributes:
        was_alone: whether it is known that nothing else was written between the batch before and its commit.
    """

    def __init__(self, context: Context, view: HeaderView, live: LiveCollection, progress: Check | None = None) -> None:
        self._context = context
        self._view = view
        self._progress = progress
        self._own: set[bytes] = set()
        self._checks: dict[bytes, Check] = {}
        self._mutations: list[Mutation] = []
        self.live = live
        self.was_alone = False
        self.check(progress)

    def restarted(self) -> RecordBatch:
        """Return a batch as this one began."""
        return RecordBatch(self._context, self._view, self.live, self._progress)

    def check(self, *checks: Check | None) -> None:
        """Add checks; of two checks of one key, the first is used."""
        for check in checks:
            if check is not None:
                self._checks.setdefault(check.key, check)

    def check_header(self) -> None:
        """Check the header, as a compiled change does automatically."""
        self.check(rules.header_check(self._view.guard))

    def add(self, *mutations: Mutation) -> None:
        """Add mutations."""
        self._mutations += mutations

    def pass_over(self, row: Row, key: bytes, why: Misfit) -> None:
        """List a record that cannot be written, under a key of the violation list."""
        self.check(rules.listing_check(row))
        self.add(Set(key, *self._context.codec.encode(why.to_value()), row.expire_at))

    def compile(self, changes: Sequence[RecordChange], now_ms: int) -> Flow[list[RefusedChange] | None]:
        """Add changes of records; return the refused ones, or None after a conflict."""
        refused: list[RefusedChange] = []
        self._own.update(change.key for change in changes)
        while True:
            compiled = yield from self._compiled(changes, now_ms)
            if compiled is None:
                return None
            if isinstance(compiled, AtomicWrite):
                self.check(*compiled.checks)
                self.add(*compiled.mutations)
                return refused
            refused.append(_refused(compiled))
            changes = [change for change in changes if change.pk != compiled.change.pk]

    def _compiled(
        self, changes: Sequence[RecordChange], now_ms: int
    ) -> Flow[AtomicWrite | Violation | MissingTarget | None]:
        """Compile with slots read in the same snapshot as the records; None if a record or the header has changed."""
        rows: dict[bytes, Row | None] = {change.key: change.old for change in changes}
        keys = set(rows)
        neighbours = NO_NEIGHBOURS
        while True:
            compiled = compile_write(
                changes,
                rows,
                header=self._view.guard,
                codec=self._context.codec,
                now_ms=now_ms,
                max_key_bytes=self._context.limits.max_key_bytes,
                neighbours=neighbours,
                moment=CommitMoment(now_ms, self._context.limits) if rules.needs_moment(changes) else None,
            )
            if isinstance(compiled, AtomicWrite):
                return compiled
            if isinstance(compiled, StaleRow):
                return None
            assert not isinstance(compiled, RemainingReferrers), "a batch removes no target"
            if not isinstance(compiled, NeedRows):
                return compiled
            assert not compiled.spans, "a batch removes no target"
            if compiled.neighbours:
                more = yield from read_neighbours(self._context, compiled.neighbours, self._view.guard)
                if more is None:
                    return None
                neighbours = {**neighbours, **more}
                continue
            keys |= compiled.keys
            found = yield from read_together(self._context.limits, sorted(keys), self._view.guard)
            if found is None:
                self._context.view = None
                return None
            rows, neighbours = found, NO_NEIGHBOURS
            if any(rows[change.key] != change.old for change in changes):
                return None

    def mutations(self) -> dict[bytes, Mutation]:
        """Return the added mutations by key."""
        return {mutation.key: mutation for mutation in self._mutations}

    def builder(self, index: LiveIndex) -> EntryBuilder:
        """Return the builder of entries in an index under construction, under the header of this batch."""
        return EntryBuilder(self.live, index, self._view.guard, self._context.codec, self._context.limits)

    def commit_built(self, built: BuiltEntries, moved: Set) -> Flow[bool | None]:
        """Commit entries and the progress in place of this batch; return whether that is known to have been applied.

        Returns None if a unique slot is not free, so that the changes must be compiled. Records that were written or
        removed meanwhile are left out. Raises LimitExceededError.
        """
        if self._context.traits.blocking and len(built.sets) >= MANY_ENTRIES:
            self.was_alone = yield from self._is_alone()
        while True:
            write = built.write(self._progress, moved)
            check_budget(write, self._context.limits, (self.live,))
            try:
                outcome = yield from commit(write)
            except CommitUnknownError:
                break
            if isinstance(outcome, Committed):
                return True
            failed = {write.checks[position].key for position in outcome.failed_checks}
            if failed and failed.issubset(built.keys):
                built = built.without(failed)
            elif failed and failed.issubset((*built.keys, *built.slots)):
                return None
            else:
                break
        self._context.view = None
        return False

    def _is_alone(self) -> Flow[bool]:
        """Return whether nothing was written since the progress row, by the version of the store. Cost: one read."""
        progress = self._progress
        if progress is None:
            return False
        found = yield from read((point(progress.key),))
        return found.versionstamp == progress.versionstamp

    def commit(self) -> Flow[bool]:
        """Commit the batch; return whether it is known to have been applied.

        Targets of foreign keys that were written meanwhile get anchors, so that the next attempt does not wait for
        them to rest. Raises LimitExceededError.
        """
        write = AtomicWrite(tuple(self._checks.values()), tuple(self._mutations))
        check_budget(write, self._context.limits, (self.live,))
        try:
            outcome = yield from commit(write)
        except CommitUnknownError:
            self._context.view = None
            return False
        if isinstance(outcome, Committed):
            return True
        self._context.view = None
        failed = [write.checks[position].key for position in outcome.failed_checks]
        yield from anchor(
            self._context.limits,
            busy_targets((key for key in failed if key not in self._own), (self.live,)),
            self._view.guard,
        )
        return False


show_public_path(IndexViolation)
