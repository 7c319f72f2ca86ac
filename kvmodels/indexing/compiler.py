"""The write compiler: all record changes of one commit to one atomic operation that keeps every index exact.

What a record has in an index is a function of its stored document: ``contents`` of the kind of the index
(``kinds/contract.py``). For every maintained index the contents of the old and the new document are compared, and only
differences are written; an entry is its key, its value and its deadline, and a counter gets what the new documents add
less what the old ones did. The compiler takes all records of a commit at once, because a slot that one of them releases
may be claimed by another, and because one key gets at most one mutation.

Rules of this module: pure, no I/O and no clock; every write of a record in this library goes through here (R4).
The checks it sets are those of ``indexing/rules.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from kvmodels.catalog.collection import LiveIndex
from kvmodels.catalog.keyspace import violation_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Delete, Guard, Mutation, ReadRange, Row, Set
from kvmodels.errors import InvalidValueError
from kvmodels.indexing import entries, rules
from kvmodels.indexing.blobs import NO_OWNERS, BlobOwners, owners_after
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.entries import (
    DUPLICATE,
    Misfit,
    NeedRows,
    Neighbours,
    RecordChange,
    StaleRow,
    StoredRecord,
    VersionNote,
    Violation,
    require_fan_out,
)
from kvmodels.indexing.kinds.contract import NOTHING, Claim, Claims, Contents, KindMaintenance, Release, Resolve
from kvmodels.indexing.kinds.registry import maintenance_of, misfit
from kvmodels.indexing.references import (
    Entries,
    MissingTarget,
    ReferenceChecks,
    ReferenceJudgement,
    RemainingReferrers,
)
from kvmodels.indexing.simple import compile_simple
from kvmodels.indexing.versions import CommitMoment, StagedVersions, staged

NO_ENTRIES: Final[Entries] = {}

NO_NEIGHBOURS: Final[Neighbours] = {}

NO_REFERENCES: Final = ReferenceChecks({}, {}, {})

Refusal: TypeAlias = Violation | MissingTarget | RemainingReferrers
"""Why the changes of a commit are refused; ``change`` is the one to which it is due."""

WriteRefusal: TypeAlias = Refusal | RefusedCascade
"""Why a write is refused; ``change`` is the one of its own changes to which it is due."""


def refusals_in(refusal: WriteRefusal) -> Sequence[WriteRefusal]:
    """Return a refusal and those of the other records of the commit that are known with it."""
    return (refusal, *refusal.others) if isinstance(refusal, (Violation, MissingTarget)) else (refusal,)


def compile_write(
    changes: Sequence[RecordChange],
    rows: Mapping[bytes, Row | None] | None,
    *,
    header: Guard,
    codec: ValueCodec,
    now_ms: int,
    max_key_bytes: int,
    found: Entries = NO_ENTRIES,
    neighbours: Neighbours = NO_NEIGHBOURS,
    loaded: Mapping[bytes, bytes] | None = None,
    moment: CommitMoment | None = None,
) -> AtomicWrite | NeedRows | StaleRow | Refusal:
    """Compile all record changes of one commit.

    Raises InvalidValueError: an index cannot hold a value; the model and the field are named; OperationTooLargeError: a
    record has more values than its index takes.

    Args:
        changes: one per record, however often it was saved.
        rows: physical rows by key, read in one snapshot with the records and the header; None to assume that every
            slot which would be claimed is free (the checks make that safe, and an insert needs no read).
        header: key and versionstamp of the header that the changes were planned with.
        now_ms: the time by the clock of the engine, which decides whether a row has expired.
        max_key_bytes: what the engine takes; a longer entry was never written.
        found: the rows of ``NeedRows.spans``, by the first keys of the ranges.
        neighbours: the rows of ``NeedRows.neighbours``, by the ranges.
        loaded: versionstamps by key of records that the caller has read before, without a deadline.
        moment: the time of the commit; given if ``rules.needs_moment``.

    Returns:
        AtomicWrite: checks: header, one per record, one per claimed slot (and one per released slot while its index
            is being built); mutations: one per record, one per entry that differs, one per counter that changes.
        NeedRows: rows that must be read as well; read all of them again in one snapshot.
        StaleRow: a record has changed since it was read.
        Violation: another record is in the way, such as the owner of a unique slot.
        MissingTarget, RemainingReferrers: a foreign key would refer to no record.
    """
    if moment is not None:
        limits = partial(compile_write, header=header, codec=codec, now_ms=now_ms, max_key_bytes=max_key_bytes)
        compile_staged = partial(limits, found=found, neighbours=neighbours, loaded=loaded)
        versions = staged(changes, codec, moment, is_read=rows is not None)
        return _with_versions(rows, versions, partial(owners_after, codec=codec, moment=moment), compile_staged)
    compiled = compile_simple(changes, rows, header, codec)
    if compiled is not None:
        return compiled
    judged: ReferenceChecks | NeedRows | MissingTarget | RemainingReferrers = NO_REFERENCES
    if any(change.live.references or change.live.referrers for change in changes):
        judged = ReferenceJudgement(changes, rows, found, codec, now_ms, loaded=loaded or {}).result()
        if rows is None and isinstance(judged, NeedRows):
            rows = {}  # something must be read; so read the slots with it, in place of one read more
    full = compile_in_full(
        changes,
        rows,
        header=header,
        codec=codec,
        now_ms=now_ms,
        max_key_bytes=max_key_bytes,
        listed=judged.listed if isinstance(judged, ReferenceChecks) else {},
        neighbours=neighbours,
    )
    if isinstance(full, (Violation, StaleRow)):
        return full
    if isinstance(judged, (MissingTarget, RemainingReferrers)):
        return judged
    if isinstance(full, NeedRows):
        return _both(full, judged) if isinstance(judged, NeedRows) else full
    if isinstance(judged, NeedRows):
        return judged
    checks, mutations = full
    own = {check.key for check in checks}  # a target may be a record whose entries a build writes
    checks = (*checks, *(check for key, check in judged.checks.items() if key not in own))
    return AtomicWrite(checks, (*mutations, *judged.mutations.values()))


def _both(full: NeedRows, judged: NeedRows) -> NeedRows:
    """Return everything that two parts of the compiler need; ranges only once all keys are read."""
    keys = full.keys | judged.keys
    return NeedRows(keys) if keys else NeedRows(keys, judged.spans, full.neighbours)


def _with_versions(
    rows: Mapping[bytes, Row | None] | None,
    versions: StagedVersions | NeedRows,
    owners: Callable[..., BlobOwners | NeedRows],
    compile_staged: Callable[..., AtomicWrite | NeedRows | StaleRow | Refusal],
) -> AtomicWrite | NeedRows | StaleRow | Refusal:
    """Compile changes with the rows of the versions that they end, and of the blobs that they get and drop.

    Arguments and result are those of ``compile_write``.
    """
    if isinstance(versions, NeedRows):
        return versions
    blobs: BlobOwners | NeedRows = NO_OWNERS
    if any(change.live.blobs for change in versions.changes):
        blobs = owners(versions.changes, rows, time_ms=versions.time_ms)
    if isinstance(blobs, NeedRows):
        return blobs
    compiled = compile_staged(versions.changes, rows)
    return blobs.of(versions.of(compiled)) if isinstance(compiled, AtomicWrite) else compiled


def compile_in_full(
    changes: Sequence[RecordChange],
    rows: Mapping[bytes, Row | None] | None,
    *,
    header: Guard,
    codec: ValueCodec,
    now_ms: int,
    max_key_bytes: int,
    listed: Mapping[tuple[bytes, bytes], Misfit] = MappingProxyType({}),
    neighbours: Neighbours = NO_NEIGHBOURS,
) -> AtomicWrite | NeedRows | StaleRow | Violation:
    """``compile_write`` for every kind of index and change; other arguments, errors and result are its own."""
    changes = list(changes)
    while True:
        fold = _Fold(rows, codec, now_ms, max_key_bytes, neighbours=neighbours, without_target=listed)
        fold.check(rules.header_check(header))
        for change in changes:
            fold.add(change)
        violation = fold.resolve()
        if violation is not None:
            return violation  # whatever the other rows are
        if fold.needed:
            return NeedRows(frozenset(fold.needed))
        if fold.needed_ranges:
            return NeedRows(frozenset(), {}, fold.needed_ranges)
        if not fold.evicted:
            return fold.write()
        changes.extend(fold.evicted)


def _is_kept(change: RecordChange) -> bool:
    """Return whether the record keeps its values, whose number another process has allowed."""
    return change.tolerant or change.rewrite


class _Fold:
    """The checks and mutations of one commit, at most one of each per key: a ``Fold`` of kinds of indexes."""

    needed_ranges: frozenset[ReadRange] = frozenset()  # of the class, because few commits need any

    def __init__(
        self,
        rows: Mapping[bytes, Row | None] | None,
        codec: ValueCodec,
        now_ms: int,
        max_key_bytes: int,
        *,
        neighbours: Neighbours,
        without_target: Mapping[tuple[bytes, bytes], Misfit],
    ) -> None:
        self.codec = codec
        self.now_ms = now_ms
        self.assumes_free = rows is None
        self._rows = rows
        self._neighbours = neighbours
        self._max_key_bytes = max_key_bytes
        self._without_target = without_target
        self._checks: dict[bytes, Check] = {}
        self._mutations: dict[bytes, Mutation] = {}
        self._counters: dict[bytes, int] = {}
        self._claims: dict[Resolve, Claims] = {}
        self._changed: set[bytes] = set()
        self.needed: set[bytes] = set()
        self.evicted: list[RecordChange] = []

    def write(self) -> AtomicWrite:
        """Return the operation, once every claim is resolved."""
        mutations = (*self._mutations.values(), *entries.additions(self._counters))
        return AtomicWrite(tuple(self._checks.values()), mutations)

    def check(self, check: Check | None) -> None:
        """Add a check; None is left out."""
        if check is not None:
            self._checks[check.key] = check

    def set(self, mutation: Set) -> None:
        """Set a key, whatever else was to be done to it."""
        self._mutations[mutation.key] = mutation

    def delete(self, key: bytes) -> None:
        """Delete a key that nothing else is done to."""
        self._mutations.setdefault(key, Delete(key))

    def set_again(self, row: Row) -> None:
        """Set a row as it is, with its deadline, if nothing else is done to its key."""
        self._mutations.setdefault(row.key, Set(row.key, row.value, row.encoding, row.expire_at))

    def row(self, key: bytes) -> Row | None:
        """Return a physical row; None also for one that must be read first, and then all is compiled again."""
        if self._rows is not None and key in self._rows:
            return self._rows[key]
        self.needed.add(key)
        return None

    def rows_in(self, wanted: ReadRange) -> Sequence[Row] | None:
        """Return the physical rows of a range; None for one that must be read first."""
        found = self._neighbours.get(wanted)
        if found is None:
            self.needed_ranges |= {wanted}
        return found

    def is_changed(self, key: bytes) -> bool:
        """Return whether the record with this key is one of the commit."""
        return key in self._changed

    def evict(self, change: RecordChange) -> None:
        """Remove an expired record with all that it has, in this commit; it ends no version."""
        self.evicted.append(change._replace(note=VersionNote(None, None)))

    def resolve(self) -> Violation | StaleRow | None:
        """Decide on every contested entry of the commit."""
        for resolve, claims in self._claims.items():
            violation = resolve(claims, self)
            if violation is not None:
                return violation
        return None

    # --- one record -------------------------------------------------------------------------------------------

    def add(self, change: RecordChange) -> None:
        """Take in one record: its own key, and the difference of what it has in every maintained index."""
        key = change.key
        if change.live.history is not None and change.only is None:
            assert change.note is not None, "no record with a history is written without its versions"
        self._changed.add(key)
        self.check(rules.record_check(key, change.old, self.now_ms))
        if change.only is None and change.new_document is not None:
            self.set(Set(key, change.value, change.encoding, change.expire_at))
        elif change.only is None and change.old is not None:
            self.delete(key)
        unowned, record = rules.owns_nothing(change, self.now_ms), change.after
        try:
            for index in change.live.maintained if change.only is None else (change.only,):
                self._maintain(change, record, index, unowned=unowned)
        except InvalidValueError as error:
            error.model = error.model or change.live.schema.name
            values = change.live.layout.unpack(change.pk)
            error.key = values[0] if len(values) == 1 else values
            raise

    def _maintain(self, change: RecordChange, record: StoredRecord | None, index: LiveIndex, *, unowned: bool) -> None:
        """Write the difference of what the record had in an index and what it shall have."""
        kind = maintenance_of(index)
        old = NOTHING if change.old is None else self._old_contents(kind, index, change)
        counts = kind.has_counters and change.only is None  # what does not set its record does not count it either
        counted = counts and self._is_counted(change, index)
        if counted:
            entries.fold(self._counters, old.amounts, -1)
        why = self._without_target.get((change.key, index.violations)) if self._without_target else None
        if why is not None:
            self.list_violation(change, index, why)
        if why is not None or (
            self._may_not_fit(change, index, counted=counted) and self._listed_as_misfit(change, index)
        ):
            # A build of a process that allows more may have been here already, without setting the record.
            self._drop_entries(change, index, old, NOTHING, kind=kind, careful=True)
            return
        new = NOTHING if record is None else self._new_contents(kind, record, tolerant=change.tolerant)
        if new.fan_out > 1 and not _is_kept(change):
            require_fan_out(change.live, index, new.fan_out)
        if counts:
            entries.fold(self._counters, new.amounts, +1)
        # What is inserted in the place of an absent record has no older claim to a slot.
        if new.entries:
            self._write_entries(change, index, old, new, kind=kind, absent=unowned)
        if change.old is not None:
            self._drop_entries(change, index, old, new, kind=kind, careful=unowned or not index.readable)

    def _is_counted(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether the record as read is in the counters of an index."""
        if not rules.is_counted(change, index, listed=False):
            return False
        return index.readable or rules.is_counted(change, index, listed=self._is_listed(change, index))

    def _may_not_fit(self, change: RecordChange, index: LiveIndex, *, counted: bool) -> bool:
        """Return whether a record that an index under construction cannot hold is listed, and not refused.

        What a build only sets again stays counted, although another process may allow it fewer groups by now.
        """
        if index.readable:
            return False
        if index.definition.has_counters:
            return (change.tolerant and not counted) or change.expire_at is not None
        return change.tolerant and self._may_lack_entries(change, index)

    def _may_lack_entries(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether an index under construction may lack the entries of the record as read."""
        return rules.predates_fence(change, index) or self._is_listed(change, index)

    def _is_listed(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether an index under construction lists the record as a violation, and has no entry of it.

        The row is read: what the index can hold may have changed since with the declaration or with the limits.
        """
        if change.old is None:
            return False
        key = violation_key(index.violations, None, change.pk)
        row = self.row(key)
        self.check(rules.slot_check(key, row))
        value = None if row is None else self.codec.decode(row.value, row.encoding, row.key)
        # A duplicate of a long value has the same row; of such a record there may be other entries.
        return value is not None and (value["kind"] != DUPLICATE or "reason" in value)

    def _listed_as_misfit(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether an index under construction cannot hold a record, which is then listed as a violation.

        For a build that rewrites the record for another index: the record is newer than the fence of this one
        afterwards, so that its own build would pass over it.
        """
        record = change.after
        if record is None:
            return False
        kind = misfit(index, record, self.codec, self._max_key_bytes)
        if kind is None:
            return False
        # Of what the document does not store, the build knows why it could not be made.
        found = Misfit(kind) if change.unmade is None or index.layout.covers(record.document) else change.unmade
        self.list_violation(change, index, found)
        return True

    def list_violation(self, change: RecordChange, index: LiveIndex, why: Misfit) -> None:
        """List a record as a violation of an index under construction."""
        key = violation_key(index.violations, None, change.pk)
        self.set(Set(key, *self.codec.encode(why.to_value()), change.expire_at))

    def _old_contents(self, kind: KindMaintenance, index: LiveIndex, change: RecordChange) -> Contents:
        """Return what the old document may have in an index.

        Entries that can never be written are left out, so that a change that makes the record fit, or removes it, does
        not fail. A build lists such a record as a violation; another program may also have written one, and has not
        counted it.
        """
        record = change.before
        if record is None:
            return NOTHING
        try:
            old = kind.contents(record, self.codec)
        except InvalidValueError:
            return NOTHING
        if index.readable or not old.entries:
            return old
        if index.definition.fans_out and self._is_listed(change, index):
            return old._replace(entries={})  # to remove entries that are not there may be more than one operation takes
        fitting = {key: value for key, value in old.entries.items() if len(key) <= self._max_key_bytes}
        return old._replace(entries=fitting)

    def _new_contents(self, kind: KindMaintenance, record: StoredRecord, *, tolerant: bool) -> Contents:
        """Return what the new document has; nothing where a build rewrites a record that the index cannot hold."""
        try:
            return kind.contents(record, self.codec)
        except InvalidValueError:
            if not tolerant:
                raise
            return NOTHING

    def _write_entries(
        self,
        change: RecordChange,
        index: LiveIndex,
        old: Contents,
        new: Contents,
        *,
        kind: KindMaintenance,
        absent: bool,
    ) -> None:
        careful = absent or not index.readable or change.rewrite
        elided = False
        if old.entries and (index.readable or (not new.contested and any(key in old.entries for key in new.entries))):
            elided = self._may_elide(change, index, kind)
        for key, value in new.entries.items():
            before = old.entries.get(key)
            held = before is not None
            if new.contested and (careful or not held or (kind.claims_by_value and before != value)):
                held = held and (before == value or not kind.claims_by_value)
                claim = Claim(change, index, value, (held and not absent) or change.tolerant)
                self._claims_of(kind).claims.setdefault(key, []).append(claim)
            elif not (elided and before == value):
                self.set(Set(key, *value, change.expire_at))

    def _claims_of(self, kind: KindMaintenance) -> Claims:
        """Return the claims that are resolved together with those in an index."""
        assert kind.resolve is not None, "its entries are contested"
        claims = self._claims.get(kind.resolve)
        if claims is None:
            claims = self._claims[kind.resolve] = Claims()
        return claims

    def _may_elide(self, change: RecordChange, index: LiveIndex, kind: KindMaintenance) -> bool:
        """Return whether an entry that both documents have with one value need not be written: it is there."""
        if kind.writes_always or change.rewrite or rules.predates_fence(change, index):
            return False
        if not rules.same_deadline(change):
            return False
        # Another build may have rewritten a listed record, so that it is above the fence of this one.
        return index.readable or not self._is_listed(change, index)

    def _drop_entries(
        self,
        change: RecordChange,
        index: LiveIndex,
        old: Contents,
        new: Contents,
        *,
        kind: KindMaintenance,
        careful: bool,
    ) -> None:
        for key, value in old.entries.items():
            by_value = old.contested and kind.claims_by_value
            if key in new.entries and not by_value:
                continue
            if by_value and not careful and not change.rewrite and new.entries.get(key) == value:
                self._claims_of(kind).kept.add(key)
            elif old.contested:
                releases = self._claims_of(kind).releases
                releases.setdefault(key, []).append(
                    Release(change, index, value, careful or (by_value and change.rewrite))
                )
            else:
                self.delete(key)
            if old.contested and not index.readable and not by_value:
                self.delete(violation_key(index.violations, key, change.pk))
        if change.old is not None and not index.readable:
            self.delete(violation_key(index.violations, None, change.pk))
