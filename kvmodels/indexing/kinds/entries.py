"""Entries of an index: a key of columns and primary key, or a unique slot, with what the index includes.

A unique slot is an entry with a single owner. A slot that one record of a commit releases may be claimed by another, so
all records are decided on together. A claim is checked: the slot is as it was seen, and taken for free if nothing was
read.

Rules of this module: pure. All entries of a record in one index hold the same.

Source: FoundationDB Record Layer, StandardIndexMaintainer.update, adapted to point checks: it relies on range conflicts
for uniqueness, here a unique value is one key with a single owner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvmodels.catalog.keyspace import EntryLayout, IndexLayout, RecordLayout, violation_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import Check, Row, Set
from kvmodels.errors import DecodeError, KvModelsError
from kvmodels.indexing import rules
from kvmodels.indexing.entries import (
    DUPLICATE,
    EMPTY_VALUE,
    Misfit,
    RecordChange,
    StoredRecord,
    Violation,
    entry_value,
    owner_in,
    slot_owner,
)
from kvmodels.indexing.kinds.contract import (
    NOTHING,
    Claim,
    Claims,
    Contents,
    EntryValue,
    Fold,
    KindMaintenance,
    Release,
)
from kvmodels.schema.definition.definition import Document

_NO_AMOUNTS: Final = NOTHING.amounts


class EntryMaintenance(KindMaintenance):
    """The maintenance of an index with entries, unique or not."""

    layout: EntryLayout

    def __init__(self, layout: IndexLayout) -> None:
        assert isinstance(layout, EntryLayout), "it has no counters"
        super().__init__(layout)
        self.resolve = resolve_slots if layout.definition.unique else None
        self._holds_nothing = not layout.definition.copies_record and not layout.definition.include
        self.writes_always = layout.definition.copies_record

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entries of a record, which all hold the same."""
        layout = self.layout
        if not layout.covers(record.document):
            return NOTHING
        keys = layout.keys(record.document, record.pk)
        if not keys:
            return NOTHING
        slot = keys[0][1]  # the same for all
        value = EMPTY_VALUE if self._holds_nothing and not slot else entry_value(codec, layout, slot, record)
        return Contents({key: value for key, _ in keys}, _NO_AMOUNTS, len(keys), slot)

    def keys(self, document: Document, pk: bytes) -> list[bytes]:
        """Return the keys of the entries of a document, without their values."""
        return [key for key, _ in self.layout.keys(document, pk)]

    def owner(self, codec: ValueCodec, records: RecordLayout, row: Row) -> bytes:
        """Return the packed primary key at the end of the key, or in the value of a unique slot."""
        definition = self.layout.definition
        pk = self.layout.pk_in(row.key)
        return owner_in(codec, records, definition, row) if not pk and definition.unique else pk

    def is_same_value(self, codec: ValueCodec, wanted: EntryValue, row: Row) -> bool:
        """Return whether an entry has the wanted value, perhaps in other bytes.

        JavaScript writes a newer version number before its values, and marks no floats. A copy of the record has the
        bytes of the record, whoever has written it.
        """
        if (row.value, row.encoding) == wanted:
            return True
        definition = self.layout.definition
        if definition.copies_record or row.encoding != wanted[1]:
            return False
        try:
            if definition.include and self.layout.pk_in(row.key):
                again = codec.encode_document(codec.decode_document(row.value, row.encoding, row.key))
            else:
                again = codec.encode(codec.decode(row.value, row.encoding, row.key))
        except KvModelsError:
            return False
        return again == wanted

    def names_another(self, codec: ValueCodec, records: RecordLayout, pk: bytes, row: Row) -> bool:
        """Return whether a slot contains the primary key of another record, or an unreadable one."""
        definition = self.layout.definition
        if definition.copies_record or self.layout.pk_in(row.key):
            return False
        if not definition.include:
            return True
        try:
            return owner_in(codec, records, definition, row) != pk
        except DecodeError:
            return True


def resolve_slots(claims: Claims, fold: Fold) -> Violation | None:
    """Decide on every slot that is claimed or released in a commit."""
    slots = _Slots(claims, fold)
    found: dict[bytes, Violation] = {}
    for key, wanted in claims.claims.items():
        if found and len(wanted) > 1:
            continue  # who gets it depends on which of these records are left out
        violation = slots.contest(key, wanted)
        if violation is not None:
            found.setdefault(violation.change.key, violation)
    if found:
        first, *others = found.values()
        return replace(first, others=tuple(others)) if others else first
    for key, releases in claims.releases.items():
        for release in releases:
            slots.release(key, release)
    return None


class _Slots:
    """The slots of one commit."""

    def __init__(self, claims: Claims, fold: Fold) -> None:
        self._releases = claims.releases
        self._fold = fold

    def contest(self, key: bytes, claims: list[Claim]) -> Violation | None:
        """One slot, and the records of this commit that want it: one gets it, duplicates of a build stay recorded."""
        if len(claims) == 1:
            return self._claim(key, claims[0])
        fresh = [claim for claim in claims if not claim.held or claim.index.readable]
        if fresh:
            loser = fresh[-1]
            other = next(claim for claim in claims if claim is not loser)
            return Violation(loser.change, loser.index, key, other.change.pk)
        row = self._fold.row(key)
        change, index = claims[0].change, claims[0].index
        owner = None if row is None else slot_owner(self._fold.codec, change.live, index, row)
        keeper = next((claim for claim in claims if claim.change.pk == owner), claims[0])
        for claim in claims:
            if claim is not keeper:
                self._record_duplicate(key, claim, row)
        return self._claim(key, keeper)

    def _claim(self, key: bytes, claim: Claim) -> Violation | None:
        change, index, (value, encoding), held = claim.change, claim.index, claim.value, claim.held
        row = None if self._fold.assumes_free else self._fold.row(key)
        if row is not None:
            owner = slot_owner(self._fold.codec, change.live, index, row)
            if owner != change.pk and not self._is_released(key, owner):
                if held and not index.readable and not rules.is_expired(row, self._fold.now_ms):
                    self._record_duplicate(key, claim, row)
                    return None
                if not self._evict(claim, row, owner):
                    return Violation(change, index, key, owner)
        self._fold.check(rules.slot_check(key, row))
        same = row is not None and (row.value, row.encoding, row.expire_at) == (value, encoding, change.expire_at)
        if not same or change.rewrite or index.definition.copies_record:
            self._fold.set(Set(key, value, encoding, change.expire_at))
        if not index.readable and change.old is not None:
            self._fold.delete(violation_key(index.violations, key, change.pk))
        return None

    def _is_released(self, key: bytes, owner: bytes) -> bool:
        return any(release.change.pk == owner for release in self._releases.get(key, ()))

    def _record_duplicate(self, key: bytes, claim: Claim, row: Row | None) -> None:
        """An unrelated change of a record that a build found to be a duplicate: it stays one, and stays listed."""
        self._fold.check(rules.slot_check(key, row))
        violation = violation_key(claim.index.violations, key, claim.change.pk)
        self._fold.set(Set(violation, *self._fold.codec.encode(Misfit(DUPLICATE).to_value()), claim.change.expire_at))

    def _evict(self, claim: Claim, row: Row, owner: bytes) -> bool:
        """Take its slot from an owner that has expired, as far as is known, and return whether it has.

        Its record and entries then go in this commit. Leaving them to the sweep was rejected: the record would come
        back with a clock that is behind. A sweep may have removed the record before its slot, and the key may have been
        used again: the new record keeps its key and loses nothing.
        """
        if not rules.is_expired(row, self._fold.now_ms):
            return False
        change = claim.change
        key = change.live.layout.key(owner)
        if self._fold.is_changed(key):
            return True
        record = self._fold.row(key)
        if record is None:
            self._fold.check(Check(key, None, physical=True))
            return True
        document = self._fold.codec.decode_document(record.value, record.encoding, record.key)
        if not rules.is_expired(record, self._fold.now_ms):
            layout = claim.index.layout
            assert isinstance(layout, EntryLayout), "counters have no slots"
            return not layout.covers(document) or all(entry != row.key for entry, _ in layout.keys(document, owner))
        self._fold.evict(RecordChange(change.live, owner, record, document, None))
        return True

    def release(self, key: bytes, release: Release) -> None:
        if not release.careful:
            self._fold.delete(key)
            return
        row = self._fold.row(key)
        self._fold.check(rules.slot_check(key, row))
        change = release.change
        if row is not None and slot_owner(self._fold.codec, change.live, release.index, row) == change.pk:
            self._fold.delete(key)


MAINTENANCE: Final = EntryMaintenance
