"""The write compiler: all record changes of one commit to one atomic operation that keeps every index exact.

Entries are a function of the stored document. For every maintained index the keys of the old and the new document
are compared, and only differences are written; an entry is its key, its value and its deadline. An aggregate index
has counters in place of entries, and gets what the new documents add less what the old ones did. The compiler takes
all records of a commit at once, because a slot that one of them releases may be claimed by another, and because one
key gets at most one mutation.

Rules of this module: pure, no I/O and no clock; every write of a record in this library goes through here (R4).
The checks it sets are those of ``indexing/rules.py``.

Source: FoundationDB Record Layer, StandardIndexMaintainer.update, adapted to point checks: it relies on range
conflicts for uniqueness, here a unique value is one key with a single owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveIndex
from kvmodels.catalog.keyspace import violation_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Delete, Guard, Mutation, Row, Set
from kvmodels.errors import InvalidValueError
from kvmodels.indexing import entries, rules
from kvmodels.indexing.cascades import RefusedCascade
from kvmodels.indexing.entries import (
    Misfit,
    NeedRows,
    RecordChange,
    Violation,
    entry_value,
    misfit,
    require_fan_out,
    same_included,
    slot_owner,
)
from kvmodels.indexing.references import (
    Entries,
    MissingTarget,
    ReferenceChecks,
    ReferenceJudgement,
    RemainingReferrers,
)
from kvmodels.indexing.simple import compile_simple

NO_ENTRIES: Final[Entries] = {}

NO_REFERENCES: Final = ReferenceChecks({}, {}, {})

Refusal: TypeAlias = Violation | MissingTarget | RemainingReferrers
"""Why the changes of a commit are refused; ``change`` is the one to which it is due."""

WriteRefusal: TypeAlias = Refusal | RefusedCascade
"""Why a write is refused; ``change`` is the one of its own changes to which it is due."""


def refusals_in(refusal: WriteRefusal) -> Sequence[WriteRefusal]:
    """Return a refusal and those of the other records of the commit that are known with it."""
    return (refusal, *refusal.others) if isinstance(refusal, (Violation, MissingTarget)) else (refusal,)


DUPLICATE = "duplicate"
"""The kind of violation of a record whose unique value another record holds."""


def compile_write(
    changes: Sequence[RecordChange],
    rows: Mapping[bytes, Row | None] | None,
    *,
    header: Guard,
    codec: ValueCodec,
    now_ms: int,
    max_key_bytes: int,
    found: Entries = NO_ENTRIES,
    loaded: Mapping[bytes, bytes] | None = None,
) -> AtomicWrite | NeedRows | Refusal:
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
        loaded: versionstamps by key of records that the caller has read before, without a deadline.

    Returns:
        AtomicWrite: checks: header, one per record, one per claimed slot (and one per released slot while its index
            is being built); mutations: one per record, one per entry that differs, one per counter that changes.
        NeedRows: rows that must be read as well; read all of them again in one snapshot.
        Violation: a unique slot belongs to another record in the snapshot.
        MissingTarget, RemainingReferrers: a foreign key would refer to no record.
    """
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
    )
    if isinstance(full, Violation):
        return full
    if isinstance(judged, (MissingTarget, RemainingReferrers)):
        return judged
    if isinstance(full, NeedRows):
        return NeedRows(full.keys | judged.keys) if isinstance(judged, NeedRows) else full
    if isinstance(judged, NeedRows):
        return judged
    checks, mutations = full
    own = {check.key for check in checks}  # a target may be a record whose entries a build writes
    checks = (*checks, *(check for key, check in judged.checks.items() if key not in own))
    return AtomicWrite(checks, (*mutations, *judged.mutations.values()))


def compile_in_full(
    changes: Sequence[RecordChange],
    rows: Mapping[bytes, Row | None] | None,
    *,
    header: Guard,
    codec: ValueCodec,
    now_ms: int,
    max_key_bytes: int,
    listed: Mapping[tuple[bytes, bytes], Misfit] = MappingProxyType({}),
) -> AtomicWrite | NeedRows | Violation:
    """``compile_write`` for every kind of index and change; other arguments, errors and result are its own."""
    changes = list(changes)
    while True:
        fold = _Fold(rows, codec, now_ms, max_key_bytes, listed)
        fold.check(rules.header_check(header))
        for change in changes:
            fold.add(change)
        violation = fold.resolve({change.key: change for change in changes})
        if violation is not None:
            return violation  # whatever the other rows are
        if fold.needed:
            return NeedRows(frozenset(fold.needed))
        if not fold.evicted:
            return fold.write()
        changes.extend(fold.evicted)


@dataclass(frozen=True, slots=True)
class _Claim:
    change: RecordChange
    index: LiveIndex
    held: bool
    """The old document claims this slot too, or a build does: a duplicate is recorded, not refused."""


@dataclass(frozen=True, slots=True)
class _Release:
    change: RecordChange
    index: LiveIndex
    careful: bool
    """Ownership is not certain and must be read: the index is being built, or ``rules.owns_nothing``."""


def _is_kept(change: RecordChange) -> bool:
    """Return whether the record keeps its values, whose number another process has allowed."""
    return change.tolerant or change.rewrite


@dataclass(slots=True)
class _Fold:
    """The checks and mutations of one commit, at most one of each per key."""

    _rows: Mapping[bytes, Row | None] | None
    _codec: ValueCodec
    _now_ms: int
    _max_key_bytes: int
    _without_target: Mapping[tuple[bytes, bytes], Misfit]
    checks: dict[bytes, Check] = field(default_factory=dict[bytes, Check])
    mutations: dict[bytes, Mutation] = field(default_factory=dict[bytes, Mutation])
    needed: set[bytes] = field(default_factory=set[bytes])
    evicted: list[RecordChange] = field(default_factory=list[RecordChange])
    _counters: dict[bytes, int] = field(default_factory=dict[bytes, int])
    _claims: dict[bytes, list[_Claim]] = field(default_factory=dict[bytes, list[_Claim]])
    _releases: dict[bytes, list[_Release]] = field(default_factory=dict[bytes, list[_Release]])

    def write(self) -> AtomicWrite:
        """Return the operation, once every slot is resolved."""
        mutations = (*self.mutations.values(), *entries.additions(self._counters))
        return AtomicWrite(tuple(self.checks.values()), mutations)

    def check(self, check: Check | None) -> None:
        if check is not None:
            self.checks[check.key] = check

    def _set(self, mutation: Set) -> None:
        self.mutations[mutation.key] = mutation

    def _delete(self, key: bytes) -> None:
        self.mutations.setdefault(key, Delete(key))

    # --- one record -------------------------------------------------------------------------------------------

    def add(self, change: RecordChange) -> None:
        """Take in one record: its own key, and the difference of what it has in every maintained index."""
        self.check(rules.record_check(change.key, change.old, self._now_ms))
        if change.only is None and change.new_document is not None:
            self._set(Set(change.key, change.value, change.encoding, change.expire_at))
        elif change.only is None and change.old is not None:
            self._delete(change.key)
        unowned = rules.owns_nothing(change, self._now_ms)
        try:
            for index in change.live.maintained if change.only is None else (change.only,):
                if index.definition.aggregates is None:
                    self._maintain_entries(change, index, unowned=unowned)
                elif change.only is None:  # what does not set its record does not count it either
                    self._maintain_counters(change, index)
        except InvalidValueError as error:
            error.model = error.model or change.live.schema.name
            values = change.live.layout.unpack(change.pk)
            error.key = values[0] if len(values) == 1 else values
            raise

    def _maintain_entries(self, change: RecordChange, index: LiveIndex, *, unowned: bool) -> None:
        unsure = change.tolerant and not index.readable and self._may_lack_entries(change, index)
        old = self._old_keys(index, change)
        why = self._without_target.get((change.key, index.violations))
        if why is not None:
            self._list(change, index, why)
        if why is not None or (unsure and self._listed_as_misfit(change, index)):
            # A build of a process that allows more may have been here already, without setting the record.
            self._drop_entries(change, index, old, {}, careful=True)
            return
        new = self._new_keys(index, change)
        if len(new) > 1 and not _is_kept(change):
            require_fan_out(change.live, index, len(new))
        # What is inserted in the place of an absent record has no older claim to a slot.
        self._write_entries(change, index, old, new, absent=unowned)
        self._drop_entries(change, index, old, new, careful=unowned or not index.readable)

    def _maintain_counters(self, change: RecordChange, index: LiveIndex) -> None:
        """Take the record as read out of the counters if it is in them, and add it as it shall be."""
        listed = not index.readable and rules.is_counted(change, index, listed=False) and self._is_listed(change, index)
        counted = rules.is_counted(change, index, listed=listed)
        if counted:
            assert change.old is not None
            try:
                before = entries.contribution(index, change.old_document, change.old.expire_at)
            except InvalidValueError:
                before = {}  # another program wrote it, and did not count it
            entries.fold(self._counters, before, -1)
        # What a build only sets again stays counted, although another process may allow it fewer groups by now.
        lenient = (change.tolerant and not counted) or change.expire_at is not None
        if lenient and not index.readable and self._listed_as_misfit(change, index):
            return
        after = self._contribution(index, change)
        if index.definition.fans_out and after and change.new_document is not None and not _is_kept(change):
            require_fan_out(change.live, index, len(index.layout.groups(change.new_document)))
        entries.fold(self._counters, after, +1)
        if change.old is not None and not index.readable:
            self._delete(violation_key(index.violations, None, change.pk))

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
        row = self._row(key)
        self.check(rules.slot_check(key, row))
        value = None if row is None else self._codec.decode(row.value, row.encoding, row.key)
        # A duplicate of a long value has the same row; of such a record there may be other entries.
        return value is not None and (value["kind"] != DUPLICATE or "reason" in value)

    def _listed_as_misfit(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether an index under construction cannot hold a record, which is then listed as a violation.

        For a build that rewrites the record for another index: the record is newer than the fence of this one
        afterwards, so that its own build would pass over it.
        """
        document = change.new_document
        if document is None:
            return False
        kind = misfit(index, document, change.pk, self._max_key_bytes, change.expire_at)
        if kind is None:
            return False
        # Of what the document does not store, the build knows why it could not be made.
        found = Misfit(kind) if change.unmade is None or index.layout.covers(document) else change.unmade
        self._list(change, index, found)
        return True

    def _list(self, change: RecordChange, index: LiveIndex, why: Misfit) -> None:
        """List a record as a violation of an index under construction."""
        key = violation_key(index.violations, None, change.pk)
        self._set(Set(key, *self._codec.encode(why.to_value()), change.expire_at))

    def _old_keys(self, index: LiveIndex, change: RecordChange) -> dict[bytes, bool]:
        """Return the entries that the old document may have.

        Entries that can never be written are left out, so that a change that makes the record fit, or removes it, does
        not fail. A build lists such a record as a violation; another program may also have written one.
        """
        try:
            keys = index.layout.stored_keys(change.old_document, change.pk)
        except InvalidValueError:
            return {}
        if index.readable:
            return dict(keys)
        if index.definition.fans_out and self._is_listed(change, index):
            return {}  # to remove entries that are not there may be more than one operation takes
        return {key: slot for key, slot in keys if len(key) <= self._max_key_bytes}

    def _new_keys(self, index: LiveIndex, change: RecordChange) -> dict[bytes, bool]:
        """Return the entries of the new document; none where a build rewrites a record that the index cannot hold."""
        try:
            return dict(index.layout.stored_keys(change.new_document, change.pk))
        except InvalidValueError:
            if not change.tolerant:
                raise
            return {}

    def _contribution(self, index: LiveIndex, change: RecordChange) -> dict[bytes, int]:
        """Return the additions of the new document to counters; as ``_new_keys``."""
        try:
            return entries.contribution(index, change.new_document, change.expire_at)
        except InvalidValueError:
            if not change.tolerant:
                raise
            return {}

    def _write_entries(
        self, change: RecordChange, index: LiveIndex, old: dict[bytes, bool], new: dict[bytes, bool], *, absent: bool
    ) -> None:
        careful = absent or not index.readable or change.rewrite
        known = index.readable or any(key in old and not slot for key, slot in new.items())
        elided = bool(old) and known and self._may_elide(change, index)
        value: tuple[bytes, int] | None = None
        for key, slot in new.items():
            held = key in old
            if slot and (careful or not held):
                self._claims.setdefault(key, []).append(_Claim(change, index, (held and not absent) or change.tolerant))
            elif not (held and elided):
                # Every entry of a record holds the same, so the value is made once.
                value = value or entry_value(self._codec, index.layout, slot, change)
                self._set(Set(key, *value, change.expire_at))

    def _may_elide(self, change: RecordChange, index: LiveIndex) -> bool:
        """Return whether an entry that both documents have need not be written: it is there, and stays as it is."""
        definition = index.definition
        if definition.store is not None or change.rewrite or rules.predates_fence(change, index):
            return False
        if not rules.same_deadline(change):
            return False
        old, new = change.old_document, change.new_document
        if not index.readable and self._is_listed(change, index):
            return False  # another build may have rewritten the record, so that it is above the fence of this one
        return not definition.include or old is None or new is None or same_included(self._codec, index, old, new)

    def _drop_entries(
        self, change: RecordChange, index: LiveIndex, old: dict[bytes, bool], new: dict[bytes, bool], *, careful: bool
    ) -> None:
        for key, slot in old.items():
            if key in new:
                continue
            if slot:
                self._releases.setdefault(key, []).append(_Release(change, index, careful))
            else:
                self._delete(key)
            if slot and not index.readable:
                self._delete(violation_key(index.violations, key, change.pk))
        if change.old is not None and not index.readable:
            self._delete(violation_key(index.violations, None, change.pk))

    # --- unique slots over all records ------------------------------------------------------------------------

    def resolve(self, changes: Mapping[bytes, RecordChange]) -> Violation | None:
        """Decide on every slot that is claimed or released in this commit."""
        found: dict[bytes, Violation] = {}
        for key, claims in self._claims.items():
            if found and len(claims) > 1:
                continue  # who gets it depends on which of these records are left out
            violation = self._contest(key, claims, changes)
            if violation is not None:
                found.setdefault(violation.change.key, violation)
        if found:
            first, *others = found.values()
            return replace(first, others=tuple(others)) if others else first
        for key, releases in self._releases.items():
            for release in releases:
                self._release(key, release)
        return None

    def _row(self, key: bytes) -> Row | None:
        """Return a physical row; None also for one that must be read first, and then all is compiled again."""
        if self._rows is not None and key in self._rows:
            return self._rows[key]
        self.needed.add(key)
        return None

    def _contest(self, key: bytes, claims: list[_Claim], changes: Mapping[bytes, RecordChange]) -> Violation | None:
        """One slot, and the records of this commit that want it: one gets it, duplicates of a build stay recorded."""
        if len(claims) == 1:
            return self._claim(key, claims[0], changes)
        fresh = [claim for claim in claims if not claim.held or claim.index.readable]
        if fresh:
            loser = fresh[-1]
            other = next(claim for claim in claims if claim is not loser)
            return Violation(loser.change, loser.index, key, other.change.pk)
        row = self._row(key)
        change, index = claims[0].change, claims[0].index
        owner = None if row is None else slot_owner(self._codec, change.live, index, row)
        keeper = next((claim for claim in claims if claim.change.pk == owner), claims[0])
        for claim in claims:
            if claim is not keeper:
                self._record_duplicate(key, claim, row)
        return self._claim(key, keeper, changes)

    def _claim(self, key: bytes, claim: _Claim, changes: Mapping[bytes, RecordChange]) -> Violation | None:
        change, index, held = claim.change, claim.index, claim.held
        row = None if self._rows is None else self._row(key)
        if row is not None:
            owner = slot_owner(self._codec, change.live, index, row)
            if owner != change.pk and not self._is_released(key, owner):
                if held and not index.readable and not rules.is_expired(row, self._now_ms):
                    self._record_duplicate(key, claim, row)
                    return None
                if not self._evict(change, row, owner, changes):
                    return Violation(change, index, key, owner)
        self.check(rules.slot_check(key, row))
        value, encoding = entry_value(self._codec, index.layout, True, change)
        same = row is not None and (row.value, row.encoding, row.expire_at) == (value, encoding, change.expire_at)
        if not same or change.rewrite or index.definition.store is not None:
            self._set(Set(key, value, encoding, change.expire_at))
        if not index.readable and change.old is not None:
            self._delete(violation_key(index.violations, key, change.pk))
        return None

    def _is_released(self, key: bytes, owner: bytes) -> bool:
        return any(release.change.pk == owner for release in self._releases.get(key, ()))

    def _record_duplicate(self, key: bytes, claim: _Claim, row: Row | None) -> None:
        """An unrelated change of a record that a build found to be a duplicate: it stays one, and stays listed."""
        self.check(rules.slot_check(key, row))
        violation = violation_key(claim.index.violations, key, claim.change.pk)
        self._set(Set(violation, *self._codec.encode(Misfit(DUPLICATE).to_value()), claim.change.expire_at))

    def _evict(self, change: RecordChange, row: Row, owner: bytes, changes: Mapping[bytes, RecordChange]) -> bool:
        """Take its slot from an owner that has expired, as far as is known, and return whether it has.

        Its record and entries then go in this commit. Leaving them to the sweep was rejected: the record would come
        back with a clock that is behind.
        """
        if not rules.is_expired(row, self._now_ms):
            return False
        key = change.live.layout.key(owner)
        if key in changes:
            return True
        record = self._row(key)
        if record is None:
            self.check(Check(key, None, physical=True))
            return True
        if not rules.is_expired(record, self._now_ms):
            return False
        document = self._codec.decode_document(record.value, record.encoding, record.key)
        self.evicted.append(RecordChange(change.live, owner, record, document, None))
        return True

    def _release(self, key: bytes, release: _Release) -> None:
        if not release.careful:
            self._delete(key)
            return
        row = self._row(key)
        self.check(rules.slot_check(key, row))
        change = release.change
        if row is not None and slot_owner(self._codec, change.live, release.index, row) == change.pk:
            self._delete(key)
